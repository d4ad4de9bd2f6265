//! `evidence_summary`: what was verified, replayed or reviewed, and what it showed.

use std::collections::{BTreeMap, VecDeque};

use agent_protocol::id::{ArtifactId, EvidenceId};
use agent_protocol::payload::conversation::{
    Claim, EvidenceKind, EvidenceStatus, TestFailure, Verification,
};
use agent_protocol::status::VerificationStatus;
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

use super::changed_files::is_work;
use super::{Cursor, Fact, Fold, Step};
use agent_text::brief;

/// The evidence of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvidenceSummary {
    pub cursor: Cursor,
    pub evidence: BTreeMap<EvidenceId, EvidenceBrief>,
    /// As the latest turn that ended computed it; stale once files changed after it.
    pub verification: Fact<VerificationStatus>,
    /// Whether files were taken back after the latest verification: it was one of other files,
    /// whatever later turns did or left.
    #[serde(default)]
    pub is_undone: bool,
    /// The latest verification run.
    pub last_verification: Option<EvidenceId>,
    /// Statements of the model that a failed check contradicts.
    pub conflicts: u64,
    /// Statements of the model that nothing proves.
    #[serde(default)]
    pub unproven: u64,
    /// Statements of success in the final texts of turns, the newest last.
    #[serde(default)]
    pub claims: VecDeque<Claim>,
    /// The tests that the latest failed verification run names.
    #[serde(default)]
    pub failures: Vec<TestFailure>,
}

/// Claims that are kept.
const MOST_CLAIMS: usize = 64;

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceBrief {
    pub kind: EvidenceKind,
    pub status: EvidenceStatus,
    pub command: Option<String>,
    pub exit_code: Option<i32>,
    pub covers_edits: Option<bool>,
    pub artifacts: Vec<ArtifactId>,
    pub sequence: u64,
}

impl Fold for EvidenceSummary {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => self.verification.doubt(),
            Step::Next => {}
        }
        match &event.payload {
            Payload::EvidenceChanged(changed) => {
                if changed.kind == EvidenceKind::Verification {
                    self.last_verification = Some(changed.evidence_id.clone());
                    self.is_undone = false;
                    self.failures = changed.failures.clone().unwrap_or_default();
                }
                let evidence = EvidenceBrief {
                    kind: changed.kind,
                    status: changed.status,
                    command: changed
                        .command
                        .as_deref()
                        .map(|command| brief(command, 300)),
                    exit_code: changed.exit_code,
                    covers_edits: changed.covers_edits,
                    artifacts: changed
                        .artifacts
                        .iter()
                        .map(|artifact| artifact.artifact_id.clone())
                        .collect(),
                    sequence: event.sequence,
                };
                self.evidence.insert(changed.evidence_id.clone(), evidence);
            }
            Payload::TurnCompleted(completed) => {
                for claim in completed.claims.iter().flatten() {
                    self.claims.push_back(claim.clone());
                    if self.claims.len() > MOST_CLAIMS {
                        self.claims.pop_front();
                    }
                }
                self.verification = Fact::Known(completed.verification.status);
            }
            Payload::ToolResult(result) if !result.side_effects.is_empty() => {
                self.verification.doubt();
            }
            Payload::HistoryRollbackCompleted(rollback)
                if rollback.files_restored.iter().any(is_work) =>
            {
                self.verification.doubt();
                self.is_undone = self.last_verification.is_some();
            }
            Payload::RuntimeWarning(warning) if warning.code == "final_answer_conflict" => {
                self.conflicts += 1;
            }
            Payload::RuntimeWarning(warning) if warning.code == "final_answer_unproven" => {
                self.unproven += 1;
            }
            _ => {}
        }
    }
}

impl EvidenceSummary {
    /// What the verifications of turns, the newest first, are worth now: one of files that have
    /// changed since is stale, also where a later turn had nothing to verify.
    pub fn verification_now<'a>(
        &self,
        turns: impl Iterator<Item = &'a Verification> + Clone,
    ) -> Option<Verification> {
        let mut latest = turns.clone().next()?;
        if self.is_undone && latest.status == VerificationStatus::NotApplicable {
            let mut runs = turns;
            latest = runs.find(|run| run.command.is_some()).unwrap_or(latest);
        }
        let mut latest = latest.clone();
        let is_changed = self.is_undone || matches!(self.verification, Fact::Stale(_));
        let proves = [VerificationStatus::Passed, VerificationStatus::Failed];
        if is_changed && proves.contains(&latest.status) {
            latest.status = VerificationStatus::Stale;
        }
        Some(latest)
    }
}
