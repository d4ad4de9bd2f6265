//! Every call of a log, followed through the state machine of a call; and what its events say, held against each other.

use std::collections::{HashMap, HashSet};

use agent_protocol::id::{EventId, InvocationId, ToolCallId, TurnId};
use agent_protocol::payload::permission::{Effect, PermissionEvaluated};
use agent_protocol::payload::tool::{ToolArgs, ToolStarted};
use agent_protocol::{
    CallFault, CallState, CallStep, Code, Event, Payload, Phase, is_before_execution,
};
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
    state: CallState,
    /// What was asked for, until the first arguments have been compared with it.
    asked: Option<Value>,
    args_sha256: Option<String>,
    /// The events that may have let the call through.
    permission_events: Vec<EventId>,
    invocation_id: Option<InvocationId>,
    sandbox_event: Option<EventId>,
    end: Option<(bool, Code)>,
    exit_code: Option<i32>,
}

impl CallCheck {
    pub(super) fn count(&self) -> u64 {
        (self.open.len() + self.ended.len()) as u64
    }

    pub(super) fn take(&mut self, event: &Event, report: &mut AuditReport) {
        let Some(step) = CallStep::of(event) else {
            return;
        };
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
            if !step.may_follow_observation() {
                let (code, what) = fault(CallFault::AfterObservation, event);
                report.error_at(event, code, format!("call {call_id}: {what}"));
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
        for (code, what) in check(call, step, event) {
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
            let waits = call.state.awaits_answer();
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
fn check(call: &mut OpenCall, step: CallStep, event: &Event) -> Problems {
    let was_allowed = call.state.is_allowed();
    let had_ended = call.state.has_ended();
    let mut problems: Problems = call
        .state
        .step(step)
        .into_iter()
        .map(|breach| fault(breach, event))
        .collect();
    let mut wrong = |code, what: String| problems.push((code, what));
    match &event.payload {
        Payload::ToolIntent(intent) => call.asked = intent.input().cloned(),
        Payload::ToolValidation(_) if !call.state.has_started() => {
            // Of the first input alone it is known what was asked for.
            if call.args_sha256.take().is_some() {
                call.asked = None;
            }
        }
        Payload::ToolArgs(args) => {
            if let Some(what) = odd_args(call.asked.take().as_ref(), args) {
                wrong("args_differ", what.into());
            }
            call.args_sha256 = Some(args.args_sha256.clone());
        }
        Payload::PermissionEvaluated(evaluated) => {
            if let Some(what) = odd_decision(evaluated) {
                wrong("decision_contradicts_rule", what);
            }
            call.permission_events.push(event.event_id.clone());
        }
        Payload::PermissionResolved(_) => {
            call.permission_events.push(event.event_id.clone());
        }
        Payload::ToolStarted(started) => {
            let mut known = call.permission_events.iter();
            if was_allowed && !known.any(|id| id.as_str() == started.permission_ref) {
                let what = "started by a decision the log does not show";
                wrong("permission_ref_unknown", what.into());
            }
            if let Some(what) = odd_start(call, started) {
                wrong("args_differ", what.into());
            }
            call.invocation_id = Some(started.invocation_id.clone());
        }
        Payload::SandboxApplied(_) => call.sandbox_event = Some(event.event_id.clone()),
        Payload::ProcessStarted(started) => match &call.sandbox_event {
            None => {
                let what = "a command ran without `sandbox.applied`";
                wrong("process_without_sandbox", what.into());
            }
            Some(sandbox) if sandbox.as_str() != started.sandbox_ref => {
                let what = "a command ran in a boundary the log does not show";
                wrong("sandbox_ref_unknown", what.into());
            }
            Some(_) => {}
        },
        _ => check_end(call, event, had_ended, &mut problems),
    }
    problems
}

/// Compares what the end and the observation of a call say with what came before.
fn check_end(call: &mut OpenCall, event: &Event, had_ended: bool, problems: &mut Problems) {
    let mut wrong = |code, what: String| problems.push((code, what));
    let invocation = call.invocation_id.as_ref();
    match &event.payload {
        Payload::ToolResult(result) => {
            let is_other = invocation.is_some_and(|id| *id != result.invocation_id);
            if !had_ended && is_other {
                let what = "the result belongs to another invocation";
                wrong("invocation_differs", what.into());
            }
            if result.ok != result.code.is_ok() {
                let what = format!("ok is {} but the code is `{}`", result.ok, result.code);
                wrong("result_contradicts_itself", what);
            }
            call.end.get_or_insert((result.ok, result.code));
            call.exit_code = result.data.exit_code;
        }
        Payload::ToolFailed(failed) => {
            if failed.invocation_id.as_ref() != invocation {
                let what = "the failure belongs to another invocation";
                wrong("invocation_differs", what.into());
            }
            call.end.get_or_insert((false, failed.code));
        }
        Payload::ToolObservation(observation) => {
            let Some((ok, code)) = call.end else {
                return;
            };
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
                let what = format!("ended with exit code {ended}, but exit code {shown} was shown");
                wrong("observation_differs", what);
            }
            if observation.invocation_id.as_ref() != invocation {
                let what = "the observation belongs to another invocation";
                wrong("invocation_differs", what.into());
            }
        }
        _ => {}
    }
}

/// A breach of a call's order, as a finding: its code and what is wrong.
fn fault(fault: CallFault, event: &Event) -> (&'static str, String) {
    let class = event.payload.type_name();
    let phase = match &event.payload {
        Payload::ToolFailed(failed) => failed.phase,
        _ => Phase::Execute,
    };
    let (code, what) = match fault {
        CallFault::IntentMissing => {
            let what = format!("it begins with `{class}`");
            return ("call_without_intent", what);
        }
        CallFault::PhaseContradictsStart => {
            let begun = match is_before_execution(phase) {
                true => "had begun",
                false => "had not begun",
            };
            let what = format!("failed in phase `{phase}`, but execution {begun}");
            return ("phase_contradicts_start", what);
        }
        CallFault::PhaseContradictsValidation => {
            let what = format!("failed in phase `{phase}`, but was not found invalid");
            return ("phase_contradicts_validation", what);
        }
        CallFault::AfterObservation => {
            let what = format!("`{class}` comes after its observation");
            return ("event_after_observation", what);
        }
        CallFault::IntentRepeated => ("intent_repeated", "the intent is recorded twice"),
        CallFault::ValidationTooLate => (
            "validation_too_late",
            "validated after it was decided or started",
        ),
        CallFault::ValidationRepeated => {
            ("validation_repeated", "validated again after it had failed")
        }
        CallFault::ArgsWithoutValidation => (
            "args_without_validation",
            "has arguments although it is not valid",
        ),
        CallFault::DecisionWithoutValidation => (
            "permission_without_validation",
            "decided although it is not valid",
        ),
        CallFault::DecisionWithoutArgs => {
            ("args_missing", "decided before its arguments are recorded")
        }
        CallFault::DecisionTooLate => ("permission_too_late", "decided after it was started"),
        CallFault::RequestWithoutNeed => {
            ("asked_without_need", "a question without a decision to ask")
        }
        CallFault::QuestionWithoutRequest => (
            "request_missing",
            "a question without `permission.requested`",
        ),
        CallFault::AnswerWithoutQuestion => (
            "answer_without_question",
            "answered without having been asked",
        ),
        CallFault::ResolutionWithoutAnswer => {
            ("resolved_without_answer", "resolved without an answer")
        }
        CallFault::ResolutionContradictsAnswer => (
            "answer_contradicted",
            "the answer was one thing, and what came of it another",
        ),
        CallFault::ResolutionTooLate => ("permission_too_late", "resolved after it was started"),
        CallFault::StartWithoutPermission => (
            "started_without_permission",
            "started without having been allowed",
        ),
        CallFault::StartRepeated => ("started_twice", "started twice"),
        CallFault::StartAfterEnd => ("started_after_end", "started after it had ended"),
        CallFault::SandboxWithoutStart => (
            "sandbox_without_start",
            "a boundary was applied before it was started",
        ),
        CallFault::ProcessWithoutStart => (
            "process_without_start",
            "a command ran before it was started",
        ),
        CallFault::EndRepeated => ("second_end", "ended twice"),
        CallFault::ResultWithoutStart => (
            "result_without_start",
            "a result without having been started",
        ),
        CallFault::PhaseContradictsPermission => (
            "phase_contradicts_permission",
            "failed for permission, but was not refused",
        ),
        CallFault::ObservationWithoutEnd => {
            ("observation_without_end", "observed before it had ended")
        }
    };
    (code, what.to_owned())
}
