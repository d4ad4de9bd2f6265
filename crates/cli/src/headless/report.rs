//! The result of a headless run: one object, computed from the events of its last turn.

use std::io;

use agent_history::verification::describe;
use agent_protocol::id::SessionId;
use agent_protocol::payload::conversation::{
    Claim, TurnCompleted, TurnFailed, TurnOutcome, Verification,
};
use agent_protocol::payload::{SideEffect, Usage};
use agent_protocol::status::{Status, VerificationStatus};
use agent_runtime::{TurnEnd, TurnReport};
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::Exit;
use crate::output::{Output, visible_text};

/// The stop reason of a turn that ended with a plan.
const PLAN_PROPOSED: &str = "plan_proposed";

/// `agent run --output json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunReport {
    session_id: String,
    /// `completed`, `degraded`, `failed`, `cancelled`, `timed_out` or `waiting_permission`.
    outcome: String,
    exit_code: u8,
    /// Why it ended: the model's stop reason, or the code of the failure.
    stop_reason: String,
    /// The answer, or the plan that waits for one.
    final_text: Option<String>,
    /// What went wrong, where something did.
    error: Option<String>,
    verification: Verification,
    files_changed: Vec<SideEffect>,
    commands: Vec<CommandReport>,
    refused_calls: u64,
    /// Sentences of the final text that claim what the log does not show.
    claims_not_shown: Vec<String>,
    /// Statements of success in the final text, each with what the log shows of it.
    claims: Vec<Claim>,
    /// Questions that wait for an answer; `agent respond` gives one.
    open_actions: Vec<String>,
    usage: Usage,
    /// In US dollars; missing when it is unknown.
    cost: Option<f64>,
    steps: Option<u64>,
    duration_ms: Option<u64>,
    #[serde(skip)]
    exit: Exit,
}

/// A command that ran.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommandReport {
    command: String,
    /// Missing when it did not end by itself.
    exit_code: Option<i32>,
}

impl RunReport {
    pub(super) fn new(session_id: &SessionId, ended: TurnReport, require_verified: bool) -> Self {
        let commands = ended
            .commands
            .into_iter()
            .map(|run| CommandReport {
                command: run.command,
                exit_code: run.exit_code,
            })
            .collect();
        let (final_text, plan) = (ended.final_text.clone(), ended.plan);
        let empty = Self {
            session_id: session_id.to_string(),
            outcome: "completed".to_owned(),
            exit_code: 0,
            stop_reason: "nothing_to_do".to_owned(),
            final_text: ended.final_text,
            error: None,
            verification: ended.verification,
            files_changed: ended.files_changed,
            commands,
            refused_calls: ended.refused_calls,
            claims_not_shown: ended.claims_not_shown,
            claims: Vec::new(),
            open_actions: ended.open_actions,
            usage: ended.usage,
            cost: ended.cost,
            steps: Some(ended.steps),
            duration_ms: None,
            exit: Exit::Done,
        };
        let sandbox_missing = ended.sandbox_missing;
        let mut report = match ended.end {
            None => empty,
            Some(TurnEnd::LeftOpen) if plan.is_some() => Self {
                outcome: Status::WaitingPermission.as_str().to_owned(),
                stop_reason: PLAN_PROPOSED.to_owned(),
                final_text: plan,
                ..empty
            },
            Some(TurnEnd::LeftOpen) => Self {
                outcome: Status::WaitingPermission.as_str().to_owned(),
                stop_reason: "approval_required".to_owned(),
                error: Some("a question is pending; see `agent actions`".to_owned()),
                exit: Exit::Denied,
                ..empty
            },
            Some(TurnEnd::Completed(mut turn)) => {
                // A long answer is in the log by its hash; a program that waits for it wants its words.
                turn.final_text = turn.final_text.or(final_text);
                // What an earlier turn verified was taken back, and nothing has been verified since.
                if ended.is_undone && turn.verification.status == VerificationStatus::NotApplicable
                {
                    turn.verification.status = VerificationStatus::Stale;
                }
                Self::completed(empty, *turn, sandbox_missing, require_verified)
            }
            Some(TurnEnd::Failed(turn)) => Self::failed(empty, *turn),
        };
        report.exit_code = report.exit as u8;
        report
    }

    fn completed(
        empty: Self,
        turn: TurnCompleted,
        sandbox_missing: bool,
        require_verified: bool,
    ) -> Self {
        let refused = turn.refused_calls.unwrap_or(0);
        let verified = turn.verification.status;
        let whole = matches!(
            turn.stop_reason.as_str(),
            "end_turn" | "stop_sequence" | "tool_use"
        );
        let (exit, error) = if !whole {
            (
                Exit::Failed,
                Some(format!("the model stopped early: {}", turn.stop_reason)),
            )
        } else if sandbox_missing && verified != VerificationStatus::Passed {
            (
                Exit::NoSandbox,
                Some("commands did not run: the sandbox could not be enforced".to_owned()),
            )
        } else if refused > 0 && verified != VerificationStatus::Passed {
            (
                Exit::Denied,
                Some(match refused {
                    1 => "a call was denied".to_owned(),
                    _ => format!("{refused} calls were denied"),
                }),
            )
        } else if require_verified
            && !matches!(
                verified,
                VerificationStatus::Passed | VerificationStatus::NotApplicable
            )
        {
            (
                Exit::Unverified,
                Some(format!("not verified: {}", describe(&turn.verification))),
            )
        } else {
            (Exit::Done, None)
        };
        Self {
            outcome: match turn.outcome {
                TurnOutcome::Completed => "completed",
                TurnOutcome::Degraded => "degraded",
            }
            .to_owned(),
            stop_reason: turn.stop_reason,
            error,
            verification: turn.verification,
            claims: turn.claims.unwrap_or_default(),
            files_changed: turn.files_changed,
            refused_calls: refused,
            usage: turn.usage,
            cost: turn.cost,
            steps: turn.steps,
            duration_ms: turn.duration_ms,
            exit,
            ..empty
        }
    }

    fn failed(empty: Self, turn: TurnFailed) -> Self {
        let exit = match (turn.status, turn.category.as_str(), turn.code.as_str()) {
            (_, "limit", _) => Exit::Limit,
            (_, "user", "aborted") => Exit::Denied,
            (_, _, "terminated") => Exit::Terminated,
            (Status::Cancelled, ..) => Exit::Interrupted,
            _ => Exit::Failed,
        };
        Self {
            outcome: turn.status.as_str().to_owned(),
            stop_reason: turn.code,
            error: Some(turn.message),
            exit,
            ..empty
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The words of the final answer.
    pub(crate) fn final_text(&self) -> Option<&str> {
        self.final_text.as_deref()
    }

    /// What went wrong, where something did.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(crate) fn session_id(&self) -> &str {
        &self.session_id
    }

    /// The final answer for people, unless it is shown already; what went wrong goes to standard error.
    pub(super) fn print(&self, output: &Output, is_shown: bool) -> io::Result<()> {
        let is_plan = self.stop_reason == PLAN_PROPOSED;
        let text = self.final_text.as_deref();
        let text = text.filter(|_| is_plan || !is_shown);
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            output.print(&visible_text(text))?;
        }
        if self.exit != Exit::Unverified && is_in_doubt(self.verification.status) {
            output.warning(&describe(&self.verification));
        }
        if let Some(error) = &self.error {
            output.problem(error);
        }
        if let (true, [action]) = (is_plan, &self.open_actions[..]) {
            let session = &self.session_id;
            output.note("nothing was changed; the plan waits for your answer");
            output.hint(&format!(
                "approve it with `agent respond {session} {action} allow`, or reject it with `deny --note TEXT`; \
                 then `agent run --session {session} --mode auto` carries on"
            ));
        }
        if self.exit == Exit::Denied && self.refused_calls > 0 {
            output.hint(&format!(
                "`agent replay {} --format text` numbers the calls; `agent why {0} NUMBER` \
                 explains one",
                self.session_id
            ));
            output.hint(
                "`--mode accept-edits` allows edits inside the project; for rules that \
                allow commands, see docs/permissions.md",
            );
        }
        Ok(())
    }
}

/// A check was run, and it does not show that the work is right.
fn is_in_doubt(status: VerificationStatus) -> bool {
    matches!(
        status,
        VerificationStatus::Failed
            | VerificationStatus::Stale
            | VerificationStatus::CouldNotBeJudged
    )
}
