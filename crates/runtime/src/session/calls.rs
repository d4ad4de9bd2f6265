//! A turn of calls that no model makes: each call is a step of it, validated, decided, run and recorded
//! like any other.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use agent_engine::{Interrupt, SessionAuthority};
use agent_history::fold::ChangedFiles;
use agent_log::Appended;
use agent_protocol::command::{CallTool, InterruptReason, RejectCall};
use agent_protocol::id::{StepId, TurnId};
use agent_protocol::payload::conversation::{
    NO_MODEL, RuntimeWarning, TurnCompleted, TurnFailed, TurnOutcome, TurnSource, TurnStarted,
    TurnSubmitted, Verification,
};
use agent_protocol::reply::{CallReport, ControlError, Reply};
use agent_protocol::status::{Status, VerificationStatus};
use agent_protocol::{Payload, Phase, Refs, Scope, Timestamp};
use agent_text::visible_excerpt;

use super::unavailable;
use agent_tool_runtime::{
    Authority as _, IntentOrigin, Journal, JournalError, Outcome, Pipeline, ToolIntent,
};

/// The turn that is open.
pub(super) struct CallTurn {
    journal: Arc<dyn Journal>,
    pipeline: Pipeline,
    scope: Scope,
    pub(super) interrupt: Interrupt,
    started: Timestamp,
    /// Calls that were made.
    calls: u64,
    failed: u64,
    refused: u64,
    /// A call waits for an answer, and the turn with it.
    left_open: bool,
    files_changed: ChangedFiles,
}

impl CallTurn {
    /// Begins the turn `turn_id` of the thread in `scope`.
    pub(super) fn begin(
        journal: &Arc<dyn Journal>,
        pipeline: &Pipeline,
        authority: &SessionAuthority,
        scope: &Scope,
        turn_id: TurnId,
        interrupt: Interrupt,
        (title, source): (String, TurnSource),
    ) -> Result<Self, JournalError> {
        let turn = Self {
            journal: Arc::clone(journal),
            pipeline: pipeline.clone(),
            scope: Scope {
                turn_id: Some(turn_id.clone()),
                ..scope.clone()
            },
            interrupt,
            started: journal.now(),
            calls: 0,
            failed: 0,
            refused: 0,
            left_open: false,
            files_changed: ChangedFiles::default(),
        };
        turn.record(TurnSubmitted {
            text: Some(title),
            source,
            status: Status::Accepted,
            ..TurnSubmitted::default()
        })?;
        turn.record(TurnStarted {
            model: NO_MODEL.to_owned(),
            mode: authority.mode(),
            ..TurnStarted::default()
        })?;
        authority.turn_begins(turn_id.as_str());
        pipeline.resolve_catalogue(&turn.in_new_step())?;
        Ok(turn)
    }

    /// Makes one call. `events` is what was recorded since, also by commands in the background.
    pub(super) fn call(
        &mut self,
        call: CallTool,
        events: &Receiver<Arc<Appended>>,
    ) -> Result<Option<CallReport>, JournalError> {
        let intent = ToolIntent {
            origin: IntentOrigin::Program,
            tool_name: call.tool,
            arguments: call.arguments,
            reason: call.reason,
            ..ToolIntent::default()
        };
        let step = self.in_new_step();
        let report = self.pipeline.run(step, self.interrupt.cancel(), [intent])?;
        self.catch_up(events);
        self.calls += 1;
        let outcome = report.outcomes.into_iter().next();
        Ok(outcome.map(|outcome| match outcome {
            Outcome::Observed(observed) => {
                let fact = observed.fact();
                self.refused += u64::from(!fact.ok && fact.phase == Phase::Permission);
                self.failed += u64::from(!fact.ok && fact.phase != Phase::Permission);
                CallReport::Observed {
                    tool_call_id: observed.tool_call_id().clone(),
                    observation: Box::new(fact.clone()),
                    model_text: observed.model_text().to_owned(),
                }
            }
            Outcome::LeftOpen {
                tool_call_id,
                action_id,
            } => {
                self.left_open = true;
                CallReport::LeftOpen {
                    tool_call_id,
                    action_id,
                }
            }
        }))
    }

    /// Records a line that is no call.
    pub(super) fn reject(&mut self, rejected: &RejectCall) -> Result<CallReport, JournalError> {
        self.failed += 1;
        let problem = visible_excerpt(&rejected.problem, 400);
        let message = self.journal.mask(&format!(
            "line {} of standard input is not a call {{\"tool\": …, \"input\": {{…}}}}: {problem}; nothing was done",
            rejected.line
        ));
        let warning = RuntimeWarning {
            code: "line_is_no_call".to_owned(),
            message: message.clone(),
            evidence_refs: Vec::new(),
        };
        let step = self.in_new_step();
        self.journal
            .append(&step, warning.into(), Refs::default())?;
        self.journal.sync()?;
        Ok(CallReport::Rejected { message })
    }

    /// Ends the turn by what its calls came to. A turn with an open question stays open with it.
    pub(super) fn end(mut self, events: &Receiver<Arc<Appended>>) -> Result<(), JournalError> {
        if self.left_open {
            return self.journal.sync();
        }
        self.catch_up(events);
        let files_changed = self.files_changed.list();
        let failed = |status, category: &str, code: &str, message: &str| TurnFailed {
            status,
            category: category.to_owned(),
            code: code.to_owned(),
            message: message.to_owned(),
            retryable: status == Status::TimedOut,
            files_changed: files_changed.clone(),
            ..TurnFailed::default()
        };
        let ended: Payload = match self.interrupt.reason() {
            Some(InterruptReason::Timeout) => {
                let message = "the turn reached its time limit";
                failed(Status::TimedOut, "limit", "timeout", message).into()
            }
            Some(_) => failed(Status::Cancelled, "user", "cancelled", "interrupted").into(),
            None => self.completed(files_changed).into(),
        };
        self.record(ended)
    }

    fn completed(&self, files_changed: Vec<agent_protocol::payload::SideEffect>) -> TurnCompleted {
        TurnCompleted {
            outcome: match self.failed + self.refused {
                0 => TurnOutcome::Completed,
                _ => TurnOutcome::Degraded,
            },
            stop_reason: "end_of_calls".to_owned(),
            verification: Verification {
                status: match files_changed.is_empty() {
                    true => VerificationStatus::NotApplicable,
                    false => VerificationStatus::Unverified,
                },
                ..Verification::default()
            },
            files_changed,
            steps: Some(self.calls),
            refused_calls: Some(self.refused),
            duration_ms: Some(self.journal.now().millis_since(self.started)),
            ..TurnCompleted::default()
        }
    }

    /// Takes in what was recorded, and keeps no event.
    fn catch_up(&mut self, events: &Receiver<Arc<Appended>>) {
        for appended in events.try_iter() {
            self.files_changed.take_all(&appended.event.payload);
        }
    }

    /// The turn's scope with a step of its own: every event about tools names one.
    fn in_new_step(&self) -> Scope {
        let step_id: StepId = self.journal.ids().mint();
        Scope {
            step_id: Some(step_id),
            ..self.scope.clone()
        }
    }

    fn record(&self, payload: impl Into<Payload>) -> Result<(), JournalError> {
        self.journal
            .append(&self.scope, payload.into(), Refs::default())
            .map(|_| ())
    }
}

/// The reply to a call.
pub(super) fn called_reply(report: CallReport) -> Reply {
    Reply::Called(Box::new(report))
}

/// The error of a call outside a turn of calls.
pub(super) fn no_calls() -> ControlError {
    unavailable("no turn of calls is open; `begin_calls` begins one")
}
