//! Facts of the running turn of one thread, and the commands and verifications among them.

use std::collections::BTreeSet;

use agent_history::fold::ChangedFiles;
use agent_protocol::id::{ArtifactId, EvidenceId, InvocationId, ToolCallId, TurnId};
use agent_protocol::payload::conversation::{EvidenceChanged, EvidenceKind, EvidenceStatus};
use agent_protocol::payload::{SideEffect, Usage};

use super::session::Cost;
use crate::verification::failures::Failures;
use crate::verification::{CheckRun, CheckStatus, FoundCheck, Shown, VerificationState};

/// The fold of the running (or last) turn.
#[derive(Debug, Default)]
pub struct TurnFacts {
    pub turn_id: Option<TurnId>,
    pub verification: VerificationState,
    pub usage: Usage,
    pub cost: Cost,
    /// Model requests, each counted once over all its attempts.
    pub requests: u64,
    /// Calls that were refused for permission.
    pub refused: u64,
    pub commands: Vec<CommandRun>,
    /// A command was not run because no sandbox could be made.
    pub sandbox_missing: bool,
    files: ChangedFiles,
    /// Calls that changed project files, each with the number of changes when it ended.
    pub(super) changed_by: Vec<(ToolCallId, u64)>,
    /// Calls that were not known only to read.
    pub(super) writers: BTreeSet<InvocationId>,
    /// Verifications that ran and are not yet recorded as evidence.
    pub(super) pending: Vec<VerificationRun>,
}

/// A command and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRun {
    pub command: String,
    pub exit_code: Option<i32>,
}

/// A verification that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationRun {
    pub tool_call_id: ToolCallId,
    /// The name its record will have, where the call's result says so.
    pub evidence_id: Option<EvidenceId>,
    pub command: String,
    pub found: FoundCheck,
    /// All that the command printed.
    pub output: Option<ArtifactId>,
    /// How many changes of project files there were when it ended, its own included.
    pub changes: u64,
}

impl VerificationRun {
    /// The record of it. `covers_edits` says that it ran after the last change.
    #[must_use]
    pub fn record(
        &self,
        evidence_id: EvidenceId,
        covers_edits: bool,
        failed: Failures,
    ) -> EvidenceChanged {
        EvidenceChanged {
            evidence_id,
            kind: EvidenceKind::Verification,
            status: match self.found.status {
                CheckStatus::Passed => EvidenceStatus::Passed,
                CheckStatus::Failed => EvidenceStatus::Failed,
                CheckStatus::NotJudged => EvidenceStatus::CouldNotBeJudged,
            },
            command: Some(self.command.clone()),
            cwd: self.found.cwd.clone(),
            exit_code: self.found.exit_code,
            check: Some(self.found.check.clone()),
            reason: self.found.reason.map(str::to_owned),
            failures: (!failed.found.is_empty()).then_some(failed.found),
            failures_left_out: (failed.left_out > 0).then_some(failed.left_out),
            covers_edits: Some(covers_edits),
            artifacts: Vec::new(),
        }
    }
}

impl TurnFacts {
    /// Facts of the turn that follows this one.
    pub(super) fn next(&self, turn_id: Option<TurnId>) -> Self {
        Self {
            turn_id,
            verification: self.verification.next_turn(),
            ..Self::default()
        }
    }

    /// Verifications that ended and wait to be recorded as evidence, oldest first.
    #[must_use]
    pub fn pending_verifications(&self) -> Vec<VerificationRun> {
        self.pending.clone()
    }

    /// Whether anything came of the turn that an answer without words could leave unsaid: a change,
    /// a command, or a refusal, which has an ending of its own. Looking around is nothing.
    #[must_use]
    pub fn did_something(&self) -> bool {
        !self.changed_by.is_empty()
            || !self.commands.is_empty()
            || self.refused > 0
            || self.sandbox_missing
    }

    /// Files that differ from what they were when the turn began, by path.
    #[must_use]
    pub fn files_changed(&self) -> Vec<SideEffect> {
        self.files.list()
    }

    pub(super) fn changed(&mut self, effect: &SideEffect) {
        if self.files.take(effect) && effect.ignored != Some(true) {
            self.verification.file_changed();
        }
    }

    /// The calls whose changes a run saw that ended after `changes` of them, the newest last.
    #[must_use]
    pub fn changed_by(&self, changes: u64) -> Vec<&ToolCallId> {
        let seen = self.changed_by.iter().filter(|(_, at)| *at <= changes);
        seen.map(|(call, _)| call).collect()
    }

    /// The oldest verification that waited is recorded now.
    pub(super) fn verified(&mut self, evidence: &EvidenceChanged) -> Option<Shown> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = self.pending.remove(0);
        // As it is in the log, so that everyone who reads the log comes to the same.
        let run = CheckRun::of(evidence, pending.changes);
        let shown = Shown {
            evidence_id: Some(evidence.evidence_id.clone()),
            command: run.command.clone(),
            check: run.check.clone().unwrap_or_default(),
            cwd: run.cwd.clone(),
            runner: pending.found.runner,
            status: run.status,
            reason: run.reason.clone(),
            stale: self.verification.changes() > run.changes,
        };
        self.verification
            .verified(evidence.evidence_id.clone(), run);
        Some(shown)
    }

    /// True if a call with this invocation could change something.
    pub(crate) fn may_change(&self, invocation: &InvocationId) -> bool {
        self.writers.contains(invocation)
    }

    pub(super) fn add_usage(&mut self, usage: &Usage) {
        let sum = |total: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0) + more);
            }
        };
        sum(&mut self.usage.input, usage.input);
        sum(&mut self.usage.output, usage.output);
        sum(&mut self.usage.total, usage.total);
        sum(&mut self.usage.cached_input, usage.cached_input);
        sum(&mut self.usage.cache_write, usage.cache_write);
        sum(&mut self.usage.reasoning, usage.reasoning);
    }
}
