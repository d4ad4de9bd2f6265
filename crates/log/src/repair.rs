//! Repair of a killed session: the events that close its pending calls and turns on the next open. (The torn
//! last line itself is cut off in `open.rs`.)
//!
//! Nothing is run again. A request to the model was interrupted; a call is lost, and whether it
//! acted is known only when it had not started; a question that was asked stays asked, answered or
//! not, and keeps its call and its turn open: the call goes on when the session does.

use std::collections::BTreeMap;

use agent_protocol::id::{
    IntentId, InvocationId, ModelRequestId, ObservationId, ProcessId, ToolCallId, TurnId,
};
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::conversation::TurnFailed;
use agent_protocol::payload::model::{ModelFailed, ModelFailureKind};
use agent_protocol::payload::process::{ProcessFailed, ProcessFailureCategory};
use agent_protocol::payload::tool::{ToolExit, ToolFailed, ToolObservation};
use agent_protocol::status::Status;
use agent_protocol::{ActionHappened, CallState, Code, Event, Payload, Phase, Scope};

/// Work that has begun and not ended, as the log shows it.
#[derive(Debug, Default)]
pub(crate) struct OpenWork {
    requests: BTreeMap<ModelRequestId, (Scope, u64)>,
    calls: BTreeMap<ToolCallId, OpenCall>,
    turns: BTreeMap<TurnId, OpenTurn>,
    processes: BTreeMap<ProcessId, Scope>,
    last_stable: u64,
}

#[derive(Debug, Default)]
struct OpenCall {
    scope: Scope,
    intent_id: IntentId,
    tool_name: String,
    invocation_id: Option<InvocationId>,
    state: CallState,
    /// Its end, when only the observation is missing.
    ended: Option<Ended>,
}

#[derive(Debug, Clone)]
struct Ended {
    ok: bool,
    phase: Phase,
    code: Code,
    message: String,
    retryable: bool,
    action_happened: ActionHappened,
    /// Its recorded changes.
    side_effects: Vec<SideEffect>,
}

#[derive(Debug, Default)]
struct OpenTurn {
    scope: Scope,
    is_queued: bool,
}

/// True for the classes [`OpenWork::take`] looks at; the rest need not be parsed. Of a call these are
/// the steps that tell whether it is pending, started, ended or observed.
pub(crate) fn matters(type_name: &str) -> bool {
    matches!(
        type_name,
        "model.requested"
            | "model.completed"
            | "model.failed"
            | "tool.intent"
            | "tool.validation"
            | "tool.started"
            | "tool.result"
            | "tool.failed"
            | "tool.observation"
            | "action.required"
            | "process.started"
            | "process.completed"
            | "process.terminated"
            | "process.failed"
            | "turn.submitted"
            | "turn.started"
            | "turn.completed"
            | "turn.failed"
    )
}

impl OpenWork {
    pub(crate) fn take(&mut self, event: &Event) {
        let scope = || Scope {
            causation_id: None,
            ..event.scope.clone()
        };
        match &event.payload {
            Payload::ModelRequested(requested) => {
                let request = (scope(), requested.attempt);
                self.requests
                    .insert(requested.model_request_id.clone(), request);
            }
            Payload::ModelCompleted(completed) => {
                self.requests.remove(&completed.model_request_id);
            }
            Payload::ModelFailed(failed) => {
                self.requests.remove(&failed.model_request_id);
            }
            Payload::ProcessStarted(started) => {
                self.processes.insert(started.process_id.clone(), scope());
            }
            Payload::ProcessCompleted(completed) => {
                self.processes.remove(&completed.process_id);
            }
            Payload::ProcessTerminated(terminated) => {
                self.processes.remove(&terminated.process_id);
            }
            Payload::ProcessFailed(failed) => {
                if let Some(process_id) = &failed.process_id {
                    self.processes.remove(process_id);
                }
            }
            Payload::TurnSubmitted(submitted) => {
                if let Some(turn_id) = &event.scope.turn_id {
                    let turn = OpenTurn {
                        scope: scope(),
                        is_queued: submitted.status == Status::Queued,
                    };
                    self.turns.insert(turn_id.clone(), turn);
                }
            }
            Payload::TurnStarted(_) => {
                if let Some(turn_id) = &event.scope.turn_id {
                    let turn = OpenTurn {
                        scope: scope(),
                        is_queued: false,
                    };
                    self.turns.insert(turn_id.clone(), turn);
                }
            }
            Payload::TurnCompleted(_) | Payload::TurnFailed(_) => {
                if let Some(turn_id) = &event.scope.turn_id {
                    self.turns.remove(turn_id);
                }
                self.last_stable = event.sequence;
            }
            _ => self.take_call(event, scope),
        }
    }

    fn take_call(&mut self, event: &Event, scope: impl FnOnce() -> Scope) {
        let Some(call_id) = &event.scope.tool_call_id else {
            return;
        };
        match &event.payload {
            Payload::ToolIntent(intent) => {
                let call = OpenCall {
                    scope: scope(),
                    intent_id: intent.intent_id.clone(),
                    tool_name: intent.tool_name.clone(),
                    ..OpenCall::default()
                };
                self.calls.insert(call_id.clone(), call);
            }
            Payload::ToolObservation(_) => self.last_stable = event.sequence,
            _ => {}
        }
        let Some(call) = self.calls.get_mut(call_id) else {
            return;
        };
        call.state.apply(event);
        if call.state.is_observed() {
            self.calls.remove(call_id);
            return;
        }
        match &event.payload {
            Payload::ToolStarted(started) => {
                call.invocation_id = Some(started.invocation_id.clone());
            }
            Payload::ToolResult(result) => {
                call.ended = Some(Ended {
                    ok: result.ok,
                    phase: Phase::Execute,
                    code: result.code,
                    message: "the call gave a result".into(),
                    retryable: false,
                    action_happened: if result.side_effects.is_empty() {
                        result.code.facts().action_happened
                    } else {
                        ActionHappened::Yes
                    },
                    side_effects: result.side_effects.clone(),
                });
            }
            Payload::ToolFailed(failed) => {
                call.ended = Some(Ended {
                    ok: false,
                    phase: failed.phase,
                    code: failed.code,
                    message: failed.message.clone(),
                    retryable: failed.retryable,
                    action_happened: failed.action_happened,
                    side_effects: failed.side_effects.clone(),
                });
            }
            _ => {}
        }
    }

    /// The events that close what was left open, in the order they are to be appended.
    pub(crate) fn closing_events(
        self,
        mint_observation: impl Fn() -> ObservationId,
    ) -> Vec<(Scope, Payload)> {
        let mut events: Vec<(Scope, Payload)> = Vec::new();
        for (model_request_id, (scope, attempt)) in self.requests {
            let failed = ModelFailed {
                model_request_id,
                attempt,
                kind: ModelFailureKind::StreamInterrupted,
                retryable: true,
                message: "the session ended before the answer was whole".into(),
                ..ModelFailed::default()
            };
            events.push((scope, failed.into()));
        }
        for (process_id, scope) in self.processes {
            let failed = ProcessFailed {
                process_id: Some(process_id),
                category: ProcessFailureCategory::Lost,
                code: Some(Code::Lost),
                message: "the session ended while the command ran; how it ended is unknown".into(),
            };
            events.push((scope, failed.into()));
        }
        let mut waiting_turns = Vec::new();
        for call in self.calls.into_values() {
            // An answer alone starts nothing: the call is resumed with it.
            if call.state.is_pending() {
                waiting_turns.extend(call.scope.turn_id);
                continue;
            }
            let ended = call.ended.clone().unwrap_or_else(|| {
                let failed = lost(&call);
                let ended = Ended {
                    ok: false,
                    phase: failed.phase,
                    code: failed.code,
                    message: failed.message.clone(),
                    retryable: failed.retryable,
                    action_happened: failed.action_happened,
                    side_effects: Vec::new(),
                };
                events.push((call.scope.clone(), failed.into()));
                ended
            });
            let observation = observe(&call, &ended, mint_observation());
            events.push((call.scope, observation.into()));
        }
        for (turn_id, turn) in self.turns {
            if turn.is_queued || waiting_turns.contains(&turn_id) {
                continue;
            }
            let failed = TurnFailed {
                status: Status::Failed,
                category: "runtime".into(),
                code: Code::Lost.as_str().into(),
                message: "the session ended before the turn did".into(),
                retryable: true,
                last_stable_sequence: Some(self.last_stable),
                ..TurnFailed::default()
            };
            let scope = Scope {
                step_id: None,
                ..turn.scope
            };
            events.push((scope, failed.into()));
        }
        events
    }
}

fn lost(call: &OpenCall) -> ToolFailed {
    let has_started = call.state.has_started();
    let (phase, action_happened, message) = if has_started {
        (
            Phase::Execute,
            ActionHappened::Unknown,
            "the session ended while the call was running; whether it acted is unknown",
        )
    } else {
        (
            Phase::Schedule,
            ActionHappened::No,
            "the session ended before the call was started; it did nothing",
        )
    };
    ToolFailed {
        invocation_id: call.invocation_id.clone(),
        exit: has_started.then_some(ToolExit::Error),
        phase,
        category: "lost".into(),
        code: Code::Lost,
        message: message.into(),
        retryable: true,
        recovery: Code::Lost.facts().recovery.into(),
        action_happened,
        ..ToolFailed::default()
    }
}

fn observe(call: &OpenCall, ended: &Ended, observation_id: ObservationId) -> ToolObservation {
    let summary = if ended.code == Code::Lost {
        ended.message.clone()
    } else {
        format!(
            "{}; the session ended before it was shown, and its text was not kept",
            ended.message
        )
    };
    ToolObservation {
        observation_id,
        intent_id: call.intent_id.clone(),
        invocation_id: call.invocation_id.clone(),
        tool_name: call.tool_name.clone(),
        ok: ended.ok,
        phase: ended.phase,
        code: ended.code,
        title: format!("{}: {}", call.tool_name, ended.code),
        model_text: Some(format!("{} {}: {summary}", call.tool_name, ended.code)),
        user_text: summary.clone(),
        summary,
        action_happened: ended.action_happened,
        side_effects: ended.side_effects.clone(),
        retryable: ended.retryable,
        recovery: Some(ended.code.facts().recovery.into()),
        ..ToolObservation::default()
    }
}
