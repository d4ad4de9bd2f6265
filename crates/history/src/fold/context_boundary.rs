//! `context_boundary`: what the latest model input held, what it left out, what was compacted.

use agent_protocol::id::{ArtifactId, ContextId, TurnId};
use agent_protocol::payload::model::{
    CompactionTrigger, ContextBudget, ContextOmission, FileRef, MissingFact,
};
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

use super::{Cursor, Fact, Fold, Step, push_bounded};
use agent_text::brief;

const COMPACTIONS: usize = 50;
const OMISSIONS: usize = 100;

/// The edge between what the model saw and what it did not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContextBoundary {
    pub cursor: Cursor,
    pub latest: Fact<ContextBrief>,
    /// The latest compactions, the oldest first.
    pub compactions: Vec<CompactionBrief>,
    /// Up to which event history is represented by a summary.
    pub summarised_up_to: Option<u64>,
    pub compaction_running: bool,
    pub compaction_failures: u64,
    pub last_failure: Option<String>,
}

/// One model input.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContextBrief {
    pub context_id: ContextId,
    pub model_request_no: u64,
    pub included_count: u64,
    pub included_tokens: u64,
    pub omitted: Vec<ContextOmission>,
    pub missing: Vec<MissingFact>,
    pub file_refs: Vec<FileRef>,
    pub instruction_refs: Vec<FileRef>,
    pub budget: ContextBudget,
    pub input_hash: String,
    pub sequence: u64,
}

/// One compaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompactionBrief {
    pub trigger: CompactionTrigger,
    pub turns: Vec<TurnId>,
    pub summary_ref: ArtifactId,
    pub summary_preview: String,
    pub up_to_sequence: u64,
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub summarised_by_model: bool,
    /// Why there is no prose, if there should have been some.
    pub error: Option<String>,
    pub sequence: u64,
}

impl Fold for ContextBoundary {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => self.latest.doubt(),
            Step::Next => {}
        }
        match &event.payload {
            Payload::ContextResolved(resolved) => {
                self.latest = Fact::Known(ContextBrief {
                    context_id: resolved.context_id.clone(),
                    model_request_no: resolved.model_request_no,
                    included_count: resolved.included.len() as u64,
                    included_tokens: resolved
                        .included
                        .iter()
                        .fold(0, |sum, item| sum.saturating_add(item.tokens)),
                    omitted: resolved.omitted.iter().take(OMISSIONS).cloned().collect(),
                    missing: resolved.missing.iter().take(OMISSIONS).cloned().collect(),
                    file_refs: resolved.file_refs.iter().take(OMISSIONS).cloned().collect(),
                    instruction_refs: resolved.instruction_refs.clone(),
                    budget: resolved.budget.clone(),
                    input_hash: resolved.input_hash.clone(),
                    sequence: event.sequence,
                });
            }
            Payload::ContextCompactionStarted(_) => self.compaction_running = true,
            Payload::ContextCompactionCompleted(completed) => {
                self.compaction_running = false;
                self.summarised_up_to = Some(completed.up_to_sequence);
                let compaction = CompactionBrief {
                    trigger: completed.trigger,
                    turns: completed.turns.clone(),
                    summary_ref: completed.summary_ref.clone(),
                    summary_preview: brief(&completed.summary_preview, 500),
                    up_to_sequence: completed.up_to_sequence,
                    tokens_before: completed.tokens_before,
                    tokens_after: completed.tokens_after,
                    summarised_by_model: completed.summarised_by_model,
                    error: completed.error.as_deref().map(|error| brief(error, 300)),
                    sequence: event.sequence,
                };
                push_bounded(&mut self.compactions, compaction, COMPACTIONS);
            }
            Payload::ContextCompactionFailed(failed) => {
                self.compaction_running = false;
                self.compaction_failures += 1;
                self.last_failure = Some(brief(&failed.error, 300));
            }
            _ => {}
        }
    }
}
