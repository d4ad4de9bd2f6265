//! The state machine of one tool call, followed for every call of a log.

use std::collections::{HashMap, HashSet};

use agent_protocol::id::{EventId, InvocationId, ToolCallId, TurnId};
use agent_protocol::payload::permission::{ActionDecision, Effect, PermissionEvaluated};
use agent_protocol::payload::tool::{ToolArgs, ToolStarted};
use agent_protocol::{Code, Event, Payload, Phase};
use serde_json::Value;

use super::AuditReport;
use super::turns::TurnCheck;

#[derive(Default)]
pub(super) struct CallCheck {
    open: HashMap<ToolCallId, OpenCall>,
    ended: HashSet<ToolCallId>,
}

#[derive(Default)]
struct OpenCall {
    first_sequence: u64,
    turn_id: Option<TurnId>,
    has_intent: bool,
    /// What was asked for, until the first arguments have been compared with it.
    asked: Option<Value>,
    validation: Option<bool>,
    args_sha256: Option<String>,
    decision: Option<Effect>,
    is_requested: bool,
    is_asked: bool,
    is_answered: bool,
    /// Whether the answer was a yes; a question that is no permission has neither.
    answer: Option<Effect>,
    resolution: Option<Effect>,
    /// The events that may have let the call through.
    permission_events: Vec<EventId>,
    invocation_id: Option<InvocationId>,
    sandbox_event: Option<EventId>,
    end: Option<(bool, Code)>,
    exit_code: Option<i32>,
}

impl OpenCall {
    fn begin_again(&mut self) {
        self.asked = None;
        self.args_sha256 = None;
        self.decision = None;
        self.is_requested = false;
        self.is_asked = false;
        self.is_answered = false;
        self.answer = None;
        self.resolution = None;
    }

    fn is_allowed(&self) -> bool {
        match self.decision {
            Some(Effect::Allow) => self.resolution != Some(Effect::Deny),
            Some(Effect::Ask) => self.resolution == Some(Effect::Allow) && self.is_answered,
            Some(Effect::Deny) | None => false,
        }
    }
}

impl CallCheck {
    pub(super) fn count(&self) -> u64 {
        (self.open.len() + self.ended.len()) as u64
    }

    pub(super) fn take(&mut self, event: &Event, report: &mut AuditReport) {
        if !concerns_a_call(&event.payload) {
            return;
        }
        let class = event.payload.type_name();
        let is_tool_event = class.starts_with("tool.");
        let Some(call_id) = &event.scope.tool_call_id else {
            if is_tool_event {
                report.error_at(event, "call_missing", format!("`{class}` names no call"));
            }
            return;
        };
        if is_tool_event && event.scope.step_id.is_none() {
            report.error_at(
                event,
                "step_missing",
                format!("`{class}` of call {call_id} names no step"),
            );
        }
        if self.ended.contains(call_id) {
            if !may_follow_the_end(&event.payload) {
                let message = format!("`{class}` after the observation of call {call_id}");
                report.error_at(event, "event_after_observation", message);
            }
            return;
        }
        let call = self
            .open
            .entry(call_id.clone())
            .or_insert_with(|| OpenCall {
                first_sequence: event.sequence,
                turn_id: event.scope.turn_id.clone(),
                ..OpenCall::default()
            });
        if !call.has_intent && !matches!(event.payload, Payload::ToolIntent(_)) {
            report.error_at(
                event,
                "call_without_intent",
                format!("call {call_id} begins with `{class}`"),
            );
            // Said once is enough.
            call.has_intent = true;
        }
        for (code, what) in step(call, event) {
            report.error_at(event, code, format!("call {call_id}: {what}"));
        }
        if matches!(event.payload, Payload::ToolObservation(_)) {
            self.open.remove(call_id);
            self.ended.insert(call_id.clone());
        }
    }

    pub(super) fn finish(&self, turns: &TurnCheck, report: &mut AuditReport) {
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_by_key(|(_, call)| call.first_sequence);
        for (call_id, call) in open {
            let sequence = Some(call.first_sequence);
            let waits = call.is_asked && !call.is_answered;
            let turn_ended = call
                .turn_id
                .as_ref()
                .is_some_and(|turn| turns.has_ended(turn));
            if turn_ended && !waits {
                let message =
                    format!("call {call_id} has no observation although its turn has ended");
                report.error("call_open_in_ended_turn", sequence, message);
            } else {
                let what = if waits {
                    "waits for an answer"
                } else {
                    "has not ended"
                };
                report.note("open_call", sequence, format!("call {call_id} {what}"));
            }
        }
    }
}

/// Arguments have the hash they say, and are what was asked for unless somebody changed them.
fn odd_args(asked: Option<&Value>, args: &ToolArgs) -> Option<&'static str> {
    let used = args.safe_args.as_ref()?;
    let text = used.to_string();
    // What was masked has the hash of what it was before.
    if !text.contains("[redacted:") && agent_text::sha256_hex(text.as_bytes()) != args.args_sha256 {
        return Some("its arguments do not have the hash that is recorded of them");
    }
    let changed = args.changed_by_hook == Some(true);
    asked
        .is_some_and(|asked| asked != used && !changed)
        .then_some("its arguments are not those that were asked for")
}

fn odd_start(call: &OpenCall, started: &ToolStarted) -> Option<&'static str> {
    let checked = call.args_sha256.as_ref()?;
    (*checked != started.args_sha256).then_some("started with other arguments than were checked")
}

/// Deny beats everything, so whatever a deny rule matched was denied.
fn odd_decision(evaluated: &PermissionEvaluated) -> Option<String> {
    let mut matched = evaluated.matched.iter();
    let denies = matched.find(|matched| matched.effect == Effect::Deny)?;
    (evaluated.decision != Effect::Deny).then(|| {
        format!(
            "the rule `{}` denies it, and the decision was `{}`",
            denies.rule, evaluated.decision
        )
    })
}

type Problems = Vec<(&'static str, String)>;

/// Moves a call on and says what should not have happened.
fn step(call: &mut OpenCall, event: &Event) -> Problems {
    let mut problems = Problems::new();
    let mut wrong = |code, what: &str| problems.push((code, what.to_owned()));
    let has_started = call.invocation_id.is_some();
    match &event.payload {
        Payload::ToolIntent(intent) => {
            if call.has_intent {
                wrong("intent_repeated", "the intent is recorded twice");
            }
            call.has_intent = true;
            call.asked.clone_from(&intent.raw_input);
        }
        Payload::ToolValidation(validation) => {
            // An answer may bring another input, or come when the world has moved on: then the call
            // is checked and decided once more, and the earlier answer alone lets nothing through.
            if call.is_answered && !has_started {
                call.begin_again();
            }
            if call.decision.is_some() || has_started {
                wrong(
                    "validation_too_late",
                    "validated after it was decided or started",
                );
            }
            if call.validation == Some(false) {
                wrong("validation_repeated", "validated again after it had failed");
            }
            call.validation = Some(validation.ok);
        }
        Payload::ToolArgs(args) => {
            if call.validation != Some(true) {
                wrong(
                    "args_without_validation",
                    "has arguments although it is not valid",
                );
            }
            if let Some(what) = odd_args(call.asked.take().as_ref(), args) {
                wrong("args_differ", what);
            }
            call.args_sha256 = Some(args.args_sha256.clone());
        }
        Payload::PermissionEvaluated(evaluated) => {
            if let Some(what) = odd_decision(evaluated) {
                wrong("decision_contradicts_rule", &what);
            }
            if call.validation != Some(true) {
                wrong(
                    "permission_without_validation",
                    "decided although it is not valid",
                );
            }
            if call.args_sha256.is_none() {
                wrong("args_missing", "decided before its arguments are recorded");
            }
            if has_started {
                wrong("permission_too_late", "decided after it was started");
            }
            call.decision = Some(evaluated.decision);
            call.permission_events.push(event.event_id.clone());
        }
        Payload::PermissionRequested(_) => {
            if call.decision != Some(Effect::Ask) {
                wrong("asked_without_need", "a question without a decision to ask");
            }
            call.is_requested = true;
        }
        Payload::ActionRequired(_) => {
            if call.decision == Some(Effect::Ask) && !call.is_requested {
                wrong(
                    "request_missing",
                    "a question without `permission.requested`",
                );
            }
            call.is_asked = true;
        }
        Payload::ActionResolved(answer) => {
            if !call.is_asked {
                wrong(
                    "answer_without_question",
                    "answered without having been asked",
                );
            }
            call.is_answered = true;
            call.answer = match answer.decision {
                ActionDecision::AllowOnce | ActionDecision::AllowSession => Some(Effect::Allow),
                ActionDecision::Deny | ActionDecision::Abort => Some(Effect::Deny),
                ActionDecision::Answer => None,
            };
        }
        Payload::PermissionResolved(resolved) => {
            if !call.is_answered {
                wrong("resolved_without_answer", "resolved without an answer");
            }
            if call
                .answer
                .is_some_and(|answer| answer != resolved.decision)
            {
                wrong(
                    "answer_contradicted",
                    "the answer was one thing, and what came of it another",
                );
            }
            if has_started {
                wrong("permission_too_late", "resolved after it was started");
            }
            call.resolution = Some(resolved.decision);
            call.permission_events.push(event.event_id.clone());
        }
        Payload::ToolStarted(started) => {
            if !call.is_allowed() {
                wrong(
                    "started_without_permission",
                    "started without having been allowed",
                );
            } else if !call
                .permission_events
                .iter()
                .any(|id| id.as_str() == started.permission_ref)
            {
                wrong(
                    "permission_ref_unknown",
                    "started by a decision the log does not show",
                );
            }
            if let Some(what) = odd_start(call, started) {
                wrong("args_differ", what);
            }
            if has_started {
                wrong("started_twice", "started twice");
            }
            if call.end.is_some() {
                wrong("started_after_end", "started after it had ended");
            }
            call.invocation_id = Some(started.invocation_id.clone());
        }
        Payload::SandboxApplied(_) => {
            if !has_started {
                wrong(
                    "sandbox_without_start",
                    "a boundary was applied before it was started",
                );
            }
            call.sandbox_event = Some(event.event_id.clone());
        }
        Payload::ProcessStarted(started) => {
            if !has_started {
                wrong(
                    "process_without_start",
                    "a command ran before it was started",
                );
            }
            match &call.sandbox_event {
                None => wrong(
                    "process_without_sandbox",
                    "a command ran without `sandbox.applied`",
                ),
                Some(sandbox) if sandbox.as_str() != started.sandbox_ref => {
                    wrong(
                        "sandbox_ref_unknown",
                        "a command ran in a boundary the log does not show",
                    );
                }
                Some(_) => {}
            }
        }
        _ => step_end(call, event, &mut problems),
    }
    problems
}

fn step_end(call: &mut OpenCall, event: &Event, problems: &mut Problems) {
    let mut wrong = |code, what: String| problems.push((code, what));
    let invocation = call.invocation_id.as_ref();
    match &event.payload {
        Payload::ToolResult(result) => {
            if call.end.is_some() {
                wrong("second_end", "ended twice".into());
            } else if invocation.is_none() {
                wrong(
                    "result_without_start",
                    "a result without having been started".into(),
                );
            } else if invocation != Some(&result.invocation_id) {
                wrong(
                    "invocation_differs",
                    "the result belongs to another invocation".into(),
                );
            }
            if result.ok != result.code.is_ok() {
                let what = format!("ok is {} but the code is `{}`", result.ok, result.code);
                wrong("result_contradicts_itself", what);
            }
            call.end.get_or_insert((result.ok, result.code));
            call.exit_code = result.data.exit_code;
        }
        Payload::ToolFailed(failed) => {
            if call.end.is_some() {
                wrong("second_end", "ended twice".into());
            }
            let before_execution = matches!(
                failed.phase,
                Phase::Lookup | Phase::Validate | Phase::Permission | Phase::Schedule
            );
            if before_execution == invocation.is_some() {
                let what = format!(
                    "failed in phase `{}`, but execution {}",
                    failed.phase,
                    if before_execution {
                        "had begun"
                    } else {
                        "had not begun"
                    }
                );
                wrong("phase_contradicts_start", what);
            }
            if failed.invocation_id.as_ref() != invocation {
                wrong(
                    "invocation_differs",
                    "the failure belongs to another invocation".into(),
                );
            }
            match failed.phase {
                Phase::Lookup | Phase::Validate if call.validation != Some(false) => {
                    wrong(
                        "phase_contradicts_validation",
                        format!(
                            "failed in phase `{}`, but was not found invalid",
                            failed.phase
                        ),
                    );
                }
                Phase::Permission if call.decision.is_none() || call.is_allowed() => {
                    wrong(
                        "phase_contradicts_permission",
                        "failed for permission, but was not refused".into(),
                    );
                }
                _ => {}
            }
            call.end.get_or_insert((false, failed.code));
        }
        Payload::ToolObservation(observation) => match call.end {
            None => wrong(
                "observation_without_end",
                "observed before it had ended".into(),
            ),
            Some((ok, code)) => {
                if observation.ok != ok || observation.code != code {
                    let what = format!(
                        "ended with ok {ok} and code `{code}`, but ok {} and `{}` were shown",
                        observation.ok, observation.code
                    );
                    wrong("observation_differs", what);
                }
                // A failure may know a code that is no result, and what was never shown has none.
                if let (Some(ended), Some(shown)) = (call.exit_code, observation.facts.exit_code)
                    && ended != shown
                {
                    let what =
                        format!("ended with exit code {ended}, but exit code {shown} was shown");
                    wrong("observation_differs", what);
                }
                if observation.invocation_id.as_ref() != invocation {
                    wrong(
                        "invocation_differs",
                        "the observation belongs to another invocation".into(),
                    );
                }
            }
        },
        _ => {}
    }
}

fn concerns_a_call(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::ToolIntent(_)
            | Payload::ToolValidation(_)
            | Payload::ToolArgs(_)
            | Payload::PermissionEvaluated(_)
            | Payload::PermissionRequested(_)
            | Payload::ActionRequired(_)
            | Payload::ActionResolved(_)
            | Payload::PermissionResolved(_)
            | Payload::ToolStarted(_)
            | Payload::ToolProgress(_)
            | Payload::SandboxApplied(_)
            | Payload::ProcessStarted(_)
            | Payload::ToolResult(_)
            | Payload::ToolFailed(_)
            | Payload::ToolObservation(_)
    )
}

/// A command in the background goes on after its call was observed.
fn may_follow_the_end(payload: &Payload) -> bool {
    matches!(payload, Payload::ToolProgress(_))
}
