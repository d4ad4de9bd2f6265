//! What the events so far amount to: the end of every form of replay, and the head of a report.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agent_history::fold::{
    CallStatus, ChangedFile, CostState, DecisionCounts, TurnBrief, UsageTotals,
};
use agent_protocol::Timestamp;
use agent_protocol::id::SessionId;
use agent_protocol::payload::conversation::{Claim, SessionParent, TestFailure, Verification};
use agent_protocol::status::{Mode, Status};

use super::timeline::Timeline;

/// A session up to some event. What the events do not show is missing, never guessed.
#[derive(Debug, Clone)]
pub struct Summary {
    pub session_id: Option<SessionId>,
    pub title: Option<String>,
    pub agent_version: Option<String>,
    /// The program whose record this was, if the session was imported.
    pub imported_from: Option<String>,
    pub parent: Option<SessionParent>,
    pub mode: Option<Mode>,
    pub model: Option<String>,
    pub created_at: Option<Timestamp>,
    pub last_event_at: Option<Timestamp>,
    /// How many events were read.
    pub events: u64,
    /// Events that are missing from the log.
    pub missing_events: u64,
    /// Missing when the events do not tell.
    pub status: Option<Status>,
    pub turns: Vec<TurnBrief>,
    /// How many calls ended how, or stand where.
    pub calls: BTreeMap<&'static str, u64>,
    pub call_count: u64,
    pub decisions: DecisionCounts,
    pub violations: u64,
    /// By path relative to the project.
    pub files_changed: BTreeMap<String, ChangedFile>,
    /// Of the latest turn that has one.
    pub verification: Option<Verification>,
    pub usage: UsageTotals,
    pub requests: u64,
    pub cost: CostState,
    /// Statements of the model that a failed check contradicts.
    pub conflicts: u64,
    /// Statements of the model that nothing proves.
    pub unproven: u64,
    /// Statements of success with what the log shows of each.
    pub claims: Vec<Claim>,
    /// The tests that the latest failed check names.
    pub failures: Vec<TestFailure>,
    pub open: OpenWork,
}

/// What had not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenWork {
    pub turns: u64,
    pub calls: u64,
    pub actions: u64,
    pub requests: u64,
    pub processes: u64,
    /// Nobody writes the session, so that none of this goes on; how it ended is unknown.
    pub is_left: bool,
}

impl OpenWork {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.turns + self.calls + self.actions + self.requests + self.processes == 0
    }
}

impl Summary {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let models = timeline.models();
        let open_turns = models.threads.turns().into_iter();
        let open_turns = open_turns.filter(|turn| !turn.status.is_terminal()).count();
        let mut models = Cow::Borrowed(models);
        if timeline.left().is_some() {
            models.to_mut().nobody_writes();
        }
        let session = &models.session_snapshot;
        let turns: Vec<TurnBrief> = models.threads.turns().into_iter().cloned().collect();
        let mut calls: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut open_calls = 0;
        for call in timeline.calls().iter() {
            *calls.entry(status_word(call.status)).or_default() += 1;
            open_calls += u64::from(!call.status.is_terminal());
        }
        let open = OpenWork {
            turns: open_turns as u64,
            calls: timeline.left().unwrap_or(open_calls),
            actions: models.permission_sandbox.pending.len() as u64,
            requests: timeline.open_requests(),
            processes: models.execution_environment.active.len() as u64,
            is_left: timeline.left().is_some(),
        };
        Self {
            session_id: session.session_id.clone(),
            title: session.title.clone(),
            agent_version: session.agent_version.clone(),
            imported_from: timeline.imported_from().map(str::to_owned),
            parent: session.parent.clone(),
            mode: session.mode.value().copied(),
            model: session.model.value().cloned(),
            created_at: session.created_at,
            last_event_at: session.last_event_at,
            events: session.cursor.next_sequence - session.cursor.missing_events,
            missing_events: session.cursor.missing_events,
            status: session.status.known().copied(),
            call_count: calls.values().sum(),
            calls,
            decisions: models.permission_sandbox.decisions.clone(),
            violations: models.permission_sandbox.violation_count,
            files_changed: models.artifact_checkpoint.files_changed.clone(),
            // What another program's turns came to was never computed from facts.
            verification: models
                .evidence
                .verification_now(
                    turns
                        .iter()
                        .rev()
                        .filter_map(|turn| turn.verification.as_ref()),
                )
                .filter(|_| timeline.imported_from().is_none()),
            turns,
            usage: models.routing_limit.usage.clone(),
            // Another program's requests are known by what they counted.
            requests: match timeline.imported_from() {
                Some(_) => models.routing_limit.cost.unknown_requests,
                None => models.routing_limit.requests,
            },
            cost: models.routing_limit.cost.clone(),
            conflicts: models.evidence.conflicts,
            unproven: models.evidence.unproven,
            claims: models.evidence.claims.iter().cloned().collect(),
            failures: models.evidence.failures.clone(),
            open,
        }
    }
}

/// The word for how a call ended or where it stands.
pub(crate) const fn status_word(status: CallStatus) -> &'static str {
    match status {
        CallStatus::Unknown => "unknown",
        CallStatus::Proposed => "proposed",
        CallStatus::Validated => "validated",
        CallStatus::WaitingPermission => "waiting_permission",
        CallStatus::Allowed => "allowed",
        CallStatus::Running => "running",
        CallStatus::Ok => "ok",
        CallStatus::Failed => "failed",
        CallStatus::Rejected => "rejected",
        CallStatus::Denied => "denied",
        CallStatus::Cancelled => "cancelled",
        CallStatus::TimedOut => "timed_out",
        CallStatus::Lost => "lost",
    }
}
