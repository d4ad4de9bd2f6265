//! State machine of a tool call: intent → validation → decision → (question → answer) → start → end → observation.
//!
//! Read models, audit, repair, resume, import, the audit card and the screen all move a [`CallState`] by a call's
//! events, so that they cannot disagree about it. It stands here because all of them can reach this crate, and it
//! is a value like the rest: no file, no clock.
//!
//! The machine takes every event in every state. What the order of a call forbids is a [`CallFault`]; the
//! state then follows the event as far as that is safe: a call that ended stays ended, an observed one stays as it is.

use serde::{Deserialize, Serialize};

use crate::payload::permission::{ActionDecision, Effect};
use crate::payload::tool::{ToolExit, ToolFailed, ToolResult};
use crate::record::words;
use crate::{Code, Event, Payload, Phase};

words! {
    /// Stage of a call, or its end.
    CallStatus {
        Proposed = "proposed",
        Validated = "validated",
        WaitingPermission = "waiting_permission",
        Allowed = "allowed",
        Running = "running",
        Ok = "ok",
        Failed = "failed",
        /// It was not valid, so nothing was tried.
        Rejected = "rejected",
        /// It was refused, so nothing was tried.
        Denied = "denied",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
        Lost = "lost",
        /// Events that would tell are missing.
        Unknown = "unknown",
    }
}

impl CallStatus {
    /// True if the call has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Proposed
            | Self::Validated
            | Self::WaitingPermission
            | Self::Allowed
            | Self::Running
            | Self::Unknown => false,
            Self::Ok
            | Self::Failed
            | Self::Rejected
            | Self::Denied
            | Self::Cancelled
            | Self::TimedOut
            | Self::Lost => true,
        }
    }

    /// The end that a result says.
    #[must_use]
    pub const fn of_result(result: &ToolResult) -> Self {
        match result.exit {
            ToolExit::Cancelled => Self::Cancelled,
            ToolExit::Timeout => Self::TimedOut,
            _ if result.ok => Self::Ok,
            _ => Self::Failed,
        }
    }

    /// The end that a failure says.
    #[must_use]
    pub const fn of_failure(failed: &ToolFailed) -> Self {
        match (failed.code, failed.phase) {
            (Code::Lost, _) => Self::Lost,
            (Code::Cancelled, _) => Self::Cancelled,
            (Code::Timeout, _) => Self::TimedOut,
            (_, Phase::Lookup | Phase::Validate) => Self::Rejected,
            (_, Phase::Permission) => Self::Denied,
            _ => Self::Failed,
        }
    }
}

/// Move of a call from one state to the next: an event without what only its readers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    Intent,
    Validation {
        ok: bool,
    },
    Args,
    Decision(Effect),
    /// `permission.requested`: the decision to ask was made.
    Request,
    /// `action.required`: the question was put.
    Question,
    /// `action.resolved`; an answer that is no permission has no effect.
    Answer(Option<Effect>),
    /// `permission.resolved`: what came of the answer.
    Resolution(Effect),
    Start,
    Progress,
    Sandbox,
    Process,
    Result(CallStatus),
    Failure {
        status: CallStatus,
        phase: Phase,
    },
    Observation,
}

impl CallStep {
    /// The step that an event is; most events are none. A question that has no id cannot be answered and is none.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        if matches!(event.payload, Payload::ActionRequired(_)) && event.scope.action_id.is_none() {
            return None;
        }
        Self::of_payload(&event.payload)
    }

    /// The step that an event with this payload is.
    #[must_use]
    pub fn of_payload(payload: &Payload) -> Option<Self> {
        Some(match payload {
            Payload::ToolIntent(_) => Self::Intent,
            Payload::ToolValidation(validation) => Self::Validation { ok: validation.ok },
            Payload::ToolArgs(_) => Self::Args,
            Payload::PermissionEvaluated(evaluated) => Self::Decision(evaluated.decision),
            Payload::PermissionRequested(_) => Self::Request,
            Payload::ActionRequired(_) => Self::Question,
            Payload::ActionResolved(answer) => Self::Answer(match answer.decision {
                ActionDecision::AllowOnce | ActionDecision::AllowSession => Some(Effect::Allow),
                ActionDecision::Deny | ActionDecision::Abort => Some(Effect::Deny),
                ActionDecision::Answer => None,
            }),
            Payload::PermissionResolved(resolved) => Self::Resolution(resolved.decision),
            Payload::ToolStarted(_) => Self::Start,
            Payload::ToolProgress(_) => Self::Progress,
            Payload::SandboxApplied(_) => Self::Sandbox,
            Payload::ProcessStarted(_) => Self::Process,
            Payload::ToolResult(result) => Self::Result(CallStatus::of_result(result)),
            Payload::ToolFailed(failed) => Self::Failure {
                status: CallStatus::of_failure(failed),
                phase: failed.phase,
            },
            Payload::ToolObservation(_) => Self::Observation,
            _ => return None,
        })
    }

    /// True if the step may come after the observation: a command in the background goes on.
    #[must_use]
    pub const fn may_follow_observation(self) -> bool {
        matches!(self, Self::Progress)
    }
}

/// Breach of the order that a call's events have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallFault {
    IntentMissing,
    IntentRepeated,
    ValidationTooLate,
    ValidationRepeated,
    ArgsWithoutValidation,
    DecisionWithoutValidation,
    DecisionWithoutArgs,
    DecisionTooLate,
    RequestWithoutNeed,
    QuestionWithoutRequest,
    AnswerWithoutQuestion,
    ResolutionWithoutAnswer,
    ResolutionContradictsAnswer,
    ResolutionTooLate,
    StartWithoutPermission,
    StartRepeated,
    StartAfterEnd,
    SandboxWithoutStart,
    ProcessWithoutStart,
    EndRepeated,
    ResultWithoutStart,
    PhaseContradictsStart,
    PhaseContradictsValidation,
    PhaseContradictsPermission,
    ObservationWithoutEnd,
    AfterObservation,
}

/// State of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallState {
    has_intent: bool,
    /// [`CallFault::IntentMissing`] was reported; once is enough.
    is_intent_missed: bool,
    validation: Option<bool>,
    round: Round,
    has_started: bool,
    end: Option<CallStatus>,
    is_observed: bool,
    /// Events are missing since the last step.
    is_doubtful: bool,
}

/// Facts that a new validation makes void. An answer may bring another input, or come when the project has changed:
/// then the call is validated and decided once more, and the earlier answer alone lets nothing through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Round {
    has_args: bool,
    decision: Option<Effect>,
    is_requested: bool,
    is_asked: bool,
    is_answered: bool,
    answer: Option<Effect>,
    resolution: Option<Effect>,
}

impl CallState {
    /// Moves the call by an event of its own and says what the event breaches.
    pub fn apply(&mut self, event: &Event) -> Vec<CallFault> {
        CallStep::of(event).map_or_else(Vec::new, |step| self.step(step))
    }

    /// Moves the call by one step and says what it breaches.
    pub fn step(&mut self, step: CallStep) -> Vec<CallFault> {
        let mut faults = Vec::new();
        if self.is_observed {
            if !step.may_follow_observation() {
                faults.push(CallFault::AfterObservation);
            }
            return faults;
        }
        if !self.has_intent && !self.is_intent_missed && step != CallStep::Intent {
            faults.push(CallFault::IntentMissing);
            self.is_intent_missed = true;
        }
        let mut breach = |is_breach: bool, fault: CallFault| {
            if is_breach {
                faults.push(fault);
            }
        };
        match step {
            CallStep::Intent => {
                let is_known = self.has_intent || self.is_intent_missed;
                breach(is_known, CallFault::IntentRepeated);
                self.has_intent = true;
            }
            CallStep::Validation { ok } => {
                let is_decided = self.round.decision.is_some() && !self.round.is_answered;
                let is_late = is_decided || self.has_started;
                breach(is_late, CallFault::ValidationTooLate);
                let is_again = self.validation == Some(false);
                breach(is_again, CallFault::ValidationRepeated);
                if !self.has_started {
                    self.round = Round::default();
                }
                self.validation = Some(ok);
            }
            CallStep::Args => {
                breach(!self.is_valid(), CallFault::ArgsWithoutValidation);
                self.round.has_args = true;
            }
            CallStep::Decision(effect) => {
                breach(!self.is_valid(), CallFault::DecisionWithoutValidation);
                breach(!self.round.has_args, CallFault::DecisionWithoutArgs);
                breach(self.has_started, CallFault::DecisionTooLate);
                self.round.decision = Some(effect);
            }
            CallStep::Request => {
                let is_needed = self.round.decision == Some(Effect::Ask);
                breach(!is_needed, CallFault::RequestWithoutNeed);
                self.round.is_requested = true;
            }
            CallStep::Question => {
                let is_needed = self.round.decision == Some(Effect::Ask);
                let is_missing = is_needed && !self.round.is_requested;
                breach(is_missing, CallFault::QuestionWithoutRequest);
                self.round.is_asked = true;
            }
            CallStep::Answer(effect) => {
                breach(!self.round.is_asked, CallFault::AnswerWithoutQuestion);
                self.round.is_answered = true;
                self.round.answer = effect;
            }
            CallStep::Resolution(effect) => {
                breach(!self.round.is_answered, CallFault::ResolutionWithoutAnswer);
                let differs = self.round.answer.is_some_and(|answer| answer != effect);
                breach(differs, CallFault::ResolutionContradictsAnswer);
                breach(self.has_started, CallFault::ResolutionTooLate);
                self.round.resolution = Some(effect);
            }
            CallStep::Start => {
                breach(!self.is_allowed(), CallFault::StartWithoutPermission);
                breach(self.has_started, CallFault::StartRepeated);
                breach(self.end.is_some(), CallFault::StartAfterEnd);
                self.has_started = true;
            }
            CallStep::Progress => {}
            CallStep::Sandbox => breach(!self.has_started, CallFault::SandboxWithoutStart),
            CallStep::Process => breach(!self.has_started, CallFault::ProcessWithoutStart),
            CallStep::Result(status) => {
                breach(self.end.is_some(), CallFault::EndRepeated);
                let is_unstarted = self.end.is_none() && !self.has_started;
                breach(is_unstarted, CallFault::ResultWithoutStart);
                self.end.get_or_insert(status);
            }
            CallStep::Failure { status, phase } => {
                breach(self.end.is_some(), CallFault::EndRepeated);
                let contradiction = self.has_started == is_before_execution(phase);
                breach(contradiction, CallFault::PhaseContradictsStart);
                let is_of_input = matches!(phase, Phase::Lookup | Phase::Validate);
                let is_not_invalid = is_of_input && self.validation != Some(false);
                breach(is_not_invalid, CallFault::PhaseContradictsValidation);
                let is_not_refused = phase == Phase::Permission
                    && (self.round.decision.is_none() || self.is_allowed());
                breach(is_not_refused, CallFault::PhaseContradictsPermission);
                self.end.get_or_insert(status);
            }
            CallStep::Observation => {
                breach(self.end.is_none(), CallFault::ObservationWithoutEnd);
                self.is_observed = true;
            }
        }
        self.is_doubtful &= !settles(step);
        faults
    }

    /// Records that events may be missing; the next step that tells the state ends the doubt.
    pub fn doubt(&mut self) {
        self.is_doubtful = self.end.is_none();
    }

    /// The stage or the end of the call.
    #[must_use]
    pub fn status(&self) -> CallStatus {
        if let Some(end) = self.end {
            return end;
        }
        let round = &self.round;
        if self.is_doubtful {
            CallStatus::Unknown
        } else if self.has_started {
            CallStatus::Running
        } else if self.is_allowed() {
            CallStatus::Allowed
        } else if round.decision == Some(Effect::Ask) || round.is_asked {
            CallStatus::WaitingPermission
        } else {
            match self.validation {
                Some(true) => CallStatus::Validated,
                Some(false) => CallStatus::Proposed,
                None if self.has_intent => CallStatus::Proposed,
                None => CallStatus::Unknown,
            }
        }
    }

    /// True if gate and answer let the call start.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        let round = &self.round;
        match round.decision {
            Some(Effect::Allow) => round.resolution != Some(Effect::Deny),
            Some(Effect::Ask) => round.resolution == Some(Effect::Allow) && round.is_answered,
            Some(Effect::Deny) | None => false,
        }
    }

    /// True if the call was asked about and has not started: it can be resumed, with its answer or for one.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.round.is_asked && !self.has_started && self.is_open()
    }

    /// True if the call was asked about and has no answer.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.is_pending() && !self.round.is_answered
    }

    /// True if the call was asked about since it was last validated.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.round.is_asked
    }

    /// The permission that the answer gave or refused.
    #[must_use]
    pub fn answer(&self) -> Option<Effect> {
        self.round.answer
    }

    /// True if the tool was started.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// True if the call has a result or a failure.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// True if the call was observed, which is its last step.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// True if the call has neither ended nor been observed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end.is_none() && !self.is_observed
    }

    fn is_valid(&self) -> bool {
        self.validation == Some(true)
    }
}

/// True if a call that fails in this phase has not been started.
#[must_use]
pub const fn is_before_execution(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Lookup | Phase::Validate | Phase::Permission | Phase::Schedule
    )
}

/// True if the state is known after this step, whatever is missing before it.
const fn settles(step: CallStep) -> bool {
    match step {
        CallStep::Intent
        | CallStep::Validation { .. }
        | CallStep::Decision(_)
        | CallStep::Question
        | CallStep::Resolution(Effect::Allow)
        | CallStep::Start
        | CallStep::Result(_)
        | CallStep::Failure { .. } => true,
        CallStep::Args
        | CallStep::Request
        | CallStep::Answer(_)
        | CallStep::Resolution(Effect::Ask | Effect::Deny)
        | CallStep::Progress
        | CallStep::Sandbox
        | CallStep::Process
        | CallStep::Observation => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::EventType;

    /// Classes about calls, decisions and questions: each is a step, but for the catalogue.
    const ABOUT_CALLS: &[&str] = &[
        "tool.catalog.resolved",
        "tool.intent",
        "tool.validation",
        "tool.args",
        "tool.started",
        "tool.progress",
        "tool.result",
        "tool.failed",
        "tool.observation",
        "action.required",
        "action.resolved",
        "permission.evaluated",
        "permission.requested",
        "permission.resolved",
    ];

    /// A new class is no step until `CallStep::of_payload` and this list know it.
    #[test]
    fn every_class_about_calls_is_known_to_the_machine() {
        let prefixes = ["tool.", "permission.", "action."];
        let names = EventType::ALL.iter().map(|class| class.as_str());
        let found: Vec<&str> = names
            .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
            .collect();
        assert_eq!(found, ABOUT_CALLS);
    }
}
