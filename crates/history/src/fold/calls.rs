//! `calls`: each tool call with its whole chain, from intent to observation. What `replay`, `why`,
//! `audit` and the screen say about a call comes from here.

use std::collections::{BTreeMap, HashMap};

use agent_protocol::id::{
    ActionId, ArtifactId, EventId, IntentId, InvocationId, ObservationId, ProcessId, StepId,
    SubagentId, ToolCallId, TurnId,
};
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, DecisionSource, Effect, GrantScope,
};
use agent_protocol::payload::process::{SandboxStatus, pipeline_failed};
use agent_protocol::payload::tool::{ToolExit, ValidationLayer};
use agent_protocol::{
    ActionHappened, CallState, CallStatus, Code, Event, Payload, Phase, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{Cursor, Fold, Step};
use agent_text::brief;

/// How many ended calls are kept where not all are wanted.
const ENDED_KEPT: usize = 200;

/// The calls of a session, in the order they were asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub cursor: Cursor,
    /// How many ended calls are kept; missing means all.
    keep_ended: Option<usize>,
    /// By the sequence of the first event that named the call.
    calls: BTreeMap<u64, Box<Call>>,
    index: HashMap<ToolCallId, u64>,
    pub started_count: u64,
    pub ended_count: u64,
    pub refused_count: u64,
    /// Ended calls that are no longer kept.
    pub dropped_count: u64,
}

impl Default for Calls {
    fn default() -> Self {
        Self::keeping(Some(ENDED_KEPT))
    }
}

/// Where a fact is in the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventPlace {
    pub sequence: u64,
    pub event_id: EventId,
    pub timestamp: Timestamp,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub tool_call_id: ToolCallId,
    pub turn_id: Option<TurnId>,
    pub step_id: Option<StepId>,
    /// The sub-agent that made it.
    pub subagent_id: Option<SubagentId>,
    pub tool_name: String,
    /// The name the model used, when it is an alias.
    pub requested_name: Option<String>,
    pub state: CallState,
    /// Status that `state` gives, unless the session was left by its writer (see `unattended`).
    pub status: CallStatus,
    pub code: Option<Code>,
    pub intent_id: Option<IntentId>,
    pub intent: Option<EventPlace>,
    /// The input as asked, shortened.
    pub input: Option<String>,
    pub input_ref: Option<ArtifactId>,
    /// What the model gave as its reason.
    pub reason: Option<String>,
    pub validation: Option<CallValidation>,
    pub args_sha256: Option<String>,
    pub args_ref: Option<ArtifactId>,
    pub permission: Option<CallPermission>,
    pub action: Option<CallAction>,
    pub start: Option<CallStart>,
    pub sandbox: Option<CallSandbox>,
    pub process: Option<CallProcess>,
    pub end: Option<CallEnd>,
    pub observation: Option<CallObservation>,
    pub artifacts: Vec<ArtifactId>,
    /// Paths it changed, relative to the project.
    pub paths_changed: Vec<String>,
}

/// Whether the input was valid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallValidation {
    pub place: EventPlace,
    pub ok: bool,
    pub layer: ValidationLayer,
    pub code: Option<Code>,
    pub errors: Vec<String>,
}

/// What the gate said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallPermission {
    pub place: EventPlace,
    pub decision: Effect,
    pub source: DecisionSource,
    pub reason: String,
    pub rules: Vec<String>,
    /// What came of asking.
    pub resolved: Option<CallResolution>,
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResolution {
    pub place: EventPlace,
    pub decision: Effect,
    pub source: DecisionSource,
    pub scope: GrantScope,
    pub note: Option<String>,
}

/// The question that was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallAction {
    pub action_id: ActionId,
    pub asked: EventPlace,
    pub title: String,
    pub answered: Option<EventPlace>,
    pub decision: Option<ActionDecision>,
    pub decided_by: Option<DecidedBy>,
}

/// That execution began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallStart {
    pub place: EventPlace,
    pub invocation_id: InvocationId,
    pub executor: String,
    pub cwd: String,
    pub sandboxed: bool,
    pub permission_ref: String,
}

/// The boundary that held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallSandbox {
    pub place: EventPlace,
    pub profile_id: String,
    pub mechanism: String,
    pub status: SandboxStatus,
    pub network: String,
    pub violations: u64,
}

/// The command it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallProcess {
    pub place: EventPlace,
    pub process_id: ProcessId,
    pub command_summary: String,
    pub background: bool,
    pub ended: Option<EventPlace>,
    pub exit_code: Option<i32>,
    /// A command failed inside the last pipeline, whatever the exit code says.
    #[serde(default)]
    pub pipeline_failed: bool,
    pub signal: Option<i32>,
    pub output_ref: Option<ArtifactId>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallEnd {
    pub place: EventPlace,
    pub ok: bool,
    pub code: Code,
    pub phase: Phase,
    pub exit: Option<ToolExit>,
    pub message: Option<String>,
    pub action_happened: ActionHappened,
    pub duration_ms: Option<u64>,
}

/// What model and user saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallObservation {
    pub place: EventPlace,
    pub observation_id: ObservationId,
    pub ok: bool,
    pub code: Code,
    pub title: String,
    pub summary: String,
    pub truncated: bool,
    pub omitted_bytes: u64,
}

impl Calls {
    /// Keeps every call, for a report over a whole log.
    #[must_use]
    pub fn all() -> Self {
        Self::keeping(None)
    }

    fn keeping(keep_ended: Option<usize>) -> Self {
        Self {
            cursor: Cursor::default(),
            keep_ended,
            calls: BTreeMap::new(),
            index: HashMap::new(),
            started_count: 0,
            ended_count: 0,
            refused_count: 0,
            dropped_count: 0,
        }
    }

    /// The calls that are kept, in the order they were asked for.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.values().map(Box::as_ref)
    }

    /// The calls that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Call> {
        self.iter().filter(|call| !call.status.is_terminal())
    }

    pub(super) fn open_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        let calls = self.calls.values_mut().map(Box::as_mut);
        calls.filter(|call| !call.status.is_terminal())
    }

    /// The call with this id, if it is kept.
    #[must_use]
    pub fn get(&self, id: &ToolCallId) -> Option<&Call> {
        self.calls.get(self.index.get(id)?).map(Box::as_ref)
    }

    /// Ended and observed calls beyond the limit are forgotten, the oldest first.
    fn forget(&mut self) {
        let Some(keep) = self.keep_ended else {
            return;
        };
        while self.calls.len() > keep {
            let oldest = self
                .calls
                .iter()
                .find(|(_, call)| call.observation.is_some())
                .map(|(sequence, _)| *sequence);
            let Some(call) = oldest.and_then(|sequence| self.calls.remove(&sequence)) else {
                return;
            };
            self.index.remove(&call.tool_call_id);
            self.dropped_count += 1;
        }
    }
}

impl Fold for Calls {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => {
                for call in self.calls.values_mut() {
                    call.state.doubt();
                    call.status = call.state.status();
                }
            }
            Step::Next => {}
        }
        let Some(call_id) = &event.scope.tool_call_id else {
            return;
        };
        let concerns_calls = matches!(
            event.payload,
            Payload::ToolIntent(_)
                | Payload::ToolValidation(_)
                | Payload::ToolArgs(_)
                | Payload::PermissionEvaluated(_)
                | Payload::PermissionResolved(_)
                | Payload::ActionRequired(_)
                | Payload::ActionResolved(_)
                | Payload::ToolStarted(_)
                | Payload::SandboxApplied(_)
                | Payload::SandboxViolation(_)
                | Payload::ProcessStarted(_)
                | Payload::ProcessCompleted(_)
                | Payload::ProcessFailed(_)
                | Payload::ProcessTerminated(_)
                | Payload::ArtifactChanged(_)
                | Payload::ToolResult(_)
                | Payload::ToolFailed(_)
                | Payload::ToolObservation(_)
        );
        if !concerns_calls {
            return;
        }
        let sequence = match self.index.get(call_id) {
            Some(sequence) => *sequence,
            // A background command may end long after its call was forgotten.
            None if !begins_a_call(&event.payload) => return,
            None => {
                self.index.insert(call_id.clone(), event.sequence);
                let call = Call {
                    tool_call_id: call_id.clone(),
                    turn_id: event.scope.turn_id.clone(),
                    step_id: event.scope.step_id.clone(),
                    subagent_id: event.scope.subagent_id.clone(),
                    status: CallStatus::Unknown,
                    ..Call::default()
                };
                self.calls.insert(event.sequence, Box::new(call));
                event.sequence
            }
        };
        let Some(call) = self.calls.get_mut(&sequence) else {
            return;
        };
        let had_ended = call.state.has_ended();
        call.take(event);
        match &event.payload {
            Payload::ToolStarted(_) => self.started_count += 1,
            Payload::ToolResult(_) | Payload::ToolFailed(_) if !had_ended => {
                self.ended_count += 1;
                self.refused_count += u64::from(call.status == CallStatus::Denied);
            }
            Payload::ToolObservation(_) => self.forget(),
            _ => {}
        }
    }
}

/// Whether an event can be the first that is seen of a call.
fn begins_a_call(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::ToolIntent(_)
            | Payload::ToolValidation(_)
            | Payload::PermissionEvaluated(_)
            | Payload::ActionRequired(_)
            | Payload::ToolStarted(_)
            | Payload::ToolResult(_)
            | Payload::ToolFailed(_)
            | Payload::ToolObservation(_)
    )
}

impl Call {
    fn take(&mut self, event: &Event) {
        // A breach of the order is the audit's business.
        self.state.apply(event);
        self.status = self.state.status();
        let place = || EventPlace {
            sequence: event.sequence,
            event_id: event.event_id.clone(),
            timestamp: event.timestamp,
        };
        match &event.payload {
            Payload::ToolIntent(intent) => {
                self.intent = Some(place());
                self.intent_id = Some(intent.intent_id.clone());
                self.tool_name.clone_from(&intent.tool_name);
                self.requested_name.clone_from(&intent.requested_name);
                self.input = intent.input().map(|input| brief(&input.to_string(), 500));
                self.input_ref = intent.input_ref().cloned();
                self.reason = intent.reason.as_deref().map(|reason| brief(reason, 300));
            }
            Payload::ToolValidation(validation) => {
                self.validation = Some(CallValidation {
                    place: place(),
                    ok: validation.ok,
                    layer: validation.layer,
                    code: validation.code,
                    errors: validation
                        .errors
                        .iter()
                        .take(20)
                        .map(|error| brief(&format!("{}: {}", error.path, error.message), 300))
                        .collect(),
                });
            }
            Payload::ToolArgs(args) => {
                self.args_sha256 = Some(args.args_sha256.clone());
                self.args_ref.clone_from(&args.args_ref);
            }
            Payload::PermissionEvaluated(evaluated) => {
                self.permission = Some(CallPermission {
                    place: place(),
                    decision: evaluated.decision,
                    source: evaluated.decision_source,
                    reason: brief(&evaluated.reason, 500),
                    rules: evaluated
                        .matched
                        .iter()
                        .map(|matched| matched.rule.clone())
                        .collect(),
                    resolved: None,
                });
            }
            Payload::PermissionResolved(resolved) => {
                if let Some(permission) = &mut self.permission {
                    permission.resolved = Some(CallResolution {
                        place: place(),
                        decision: resolved.decision,
                        source: resolved.decision_source,
                        scope: resolved.scope,
                        note: resolved.note.clone(),
                    });
                }
            }
            Payload::ActionRequired(required) => {
                if let Some(action_id) = &event.scope.action_id {
                    self.action = Some(CallAction {
                        action_id: action_id.clone(),
                        asked: place(),
                        title: required.title.clone(),
                        answered: None,
                        decision: None,
                        decided_by: None,
                    });
                }
            }
            Payload::ActionResolved(resolved) => {
                if let Some(action) = &mut self.action {
                    action.answered = Some(place());
                    action.decision = Some(resolved.decision);
                    action.decided_by = Some(resolved.decided_by);
                }
            }
            Payload::ArtifactChanged(changed) => self.artifacts.push(changed.artifact_id.clone()),
            _ => self.take_execution(event, place()),
        }
    }

    fn take_execution(&mut self, event: &Event, place: EventPlace) {
        match &event.payload {
            Payload::ToolStarted(started) => {
                self.start = Some(CallStart {
                    place,
                    invocation_id: started.invocation_id.clone(),
                    executor: started.executor.clone(),
                    cwd: started.cwd.clone(),
                    sandboxed: started.sandboxed,
                    permission_ref: started.permission_ref.clone(),
                });
                if self.tool_name.is_empty() {
                    self.tool_name.clone_from(&started.tool_name);
                }
            }
            Payload::SandboxApplied(applied) => {
                self.sandbox = Some(CallSandbox {
                    place,
                    profile_id: applied.profile_id.clone(),
                    mechanism: applied.mechanism.clone(),
                    status: applied.status,
                    network: applied.network.clone(),
                    violations: 0,
                });
            }
            Payload::SandboxViolation(violation) => {
                if let Some(sandbox) = &mut self.sandbox {
                    sandbox.violations = sandbox.violations.saturating_add(violation.count.max(1));
                }
            }
            Payload::ProcessStarted(started) => {
                self.process = Some(CallProcess {
                    place,
                    process_id: started.process_id.clone(),
                    command_summary: brief(&started.command_summary, 300),
                    background: started.background,
                    ended: None,
                    exit_code: None,
                    pipeline_failed: false,
                    signal: None,
                    output_ref: None,
                });
            }
            Payload::ProcessCompleted(completed) => {
                if let Some(process) = &mut self.process {
                    process.ended = Some(place);
                    process.exit_code = completed.exit_code;
                    let statuses = completed.pipe_status.as_deref();
                    process.pipeline_failed = statuses.is_some_and(pipeline_failed);
                    process.signal = completed.signal;
                    process.output_ref.clone_from(&completed.output_ref);
                }
            }
            Payload::ProcessTerminated(terminated) => {
                if let Some(process) = &mut self.process {
                    process.ended = Some(place);
                    process.signal = Some(terminated.signal);
                    process.output_ref.clone_from(&terminated.output_ref);
                }
            }
            Payload::ProcessFailed(_) => {
                if let Some(process) = &mut self.process {
                    process.ended = Some(place);
                }
            }
            _ => self.take_end(event, place),
        }
    }

    fn take_end(&mut self, event: &Event, place: EventPlace) {
        match &event.payload {
            // The first end counts; a second one is the audit's business.
            Payload::ToolResult(_) | Payload::ToolFailed(_) if self.end.is_some() => {}
            Payload::ToolResult(result) => {
                self.end = Some(CallEnd {
                    place,
                    ok: result.ok,
                    code: result.code,
                    phase: Phase::Execute,
                    exit: Some(result.exit),
                    message: None,
                    action_happened: result.code.facts().action_happened,
                    duration_ms: Some(result.metrics.duration_ms),
                });
                self.code = Some(result.code);
                let effects = result.side_effects.iter();
                self.paths_changed
                    .extend(effects.map(|effect| effect.path.clone()));
            }
            Payload::ToolFailed(failed) => {
                let started = self.start.as_ref().map(|start| start.place.timestamp);
                self.end = Some(CallEnd {
                    ok: false,
                    code: failed.code,
                    phase: failed.phase,
                    exit: failed.exit,
                    message: Some(brief(&failed.message, 500)),
                    action_happened: failed.action_happened,
                    duration_ms: started.map(|started| place.timestamp.millis_since(started)),
                    place,
                });
                self.code = Some(failed.code);
                let effects = failed.side_effects.iter();
                self.paths_changed
                    .extend(effects.map(|effect| effect.path.clone()));
            }
            Payload::ToolObservation(observation) => {
                self.observation = Some(CallObservation {
                    place,
                    observation_id: observation.observation_id.clone(),
                    ok: observation.ok,
                    code: observation.code,
                    title: brief(&observation.title, 200),
                    summary: brief(&observation.summary, 500),
                    truncated: observation.truncated,
                    omitted_bytes: observation.omitted_bytes,
                });
                if self.tool_name.is_empty() {
                    self.tool_name.clone_from(&observation.tool_name);
                }
            }
            _ => {}
        }
    }
}
