//! `artifact_checkpoint_summary`: the evidence a session keeps and the files it changed.

use std::collections::BTreeMap;

use agent_log::ArtifactInventory;
use agent_protocol::id::ArtifactId;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

use super::{Cursor, Fold, Step};

/// Artifacts and changed files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactCheckpointSummary {
    pub cursor: Cursor,
    pub inventory: ArtifactInventory,
    /// By path relative to the project.
    pub files_changed: BTreeMap<String, ChangedFile>,
    /// The latest diff.
    pub last_diff: Option<ArtifactId>,
    /// How often files were taken back.
    pub rollbacks: u64,
}

/// What became of a file over the session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangedFile {
    pub kind: SideEffectKind,
    pub changes: u64,
    /// Before the first change.
    pub sha256_before: Option<String>,
    /// After the latest change.
    pub sha256_after: Option<String>,
    pub last_sequence: u64,
}

impl Fold for ArtifactCheckpointSummary {
    fn fold(&mut self, event: &Event) {
        if let Step::Again = self.cursor.step(event) {
            return;
        }
        self.inventory.apply(event);
        match &event.payload {
            Payload::ArtifactChanged(changed) if changed.kind == ArtifactKind::Diff => {
                self.last_diff = Some(changed.artifact_id.clone());
            }
            Payload::ToolResult(result) => self.change_files(event, &result.side_effects),
            Payload::ToolFailed(failed) => self.change_files(event, &failed.side_effects),
            Payload::ProcessCompleted(ended) => self.change_files(event, &ended.side_effects),
            Payload::ProcessTerminated(ended) => self.change_files(event, &ended.side_effects),
            Payload::HistoryRollbackCompleted(rollback) => {
                self.rollbacks += 1;
                self.change_files(event, &rollback.files_restored);
            }
            _ => {}
        }
    }
}

impl ArtifactCheckpointSummary {
    fn change_files(&mut self, event: &Event, effects: &[SideEffect]) {
        for effect in effects {
            let file = self
                .files_changed
                .entry(effect.path.clone())
                .or_insert_with(|| ChangedFile {
                    kind: effect.kind,
                    sha256_before: effect.sha256_before.clone(),
                    ..ChangedFile::default()
                });
            // A file that was made in this session stays a new one when it is changed again.
            file.kind = match (file.kind, effect.kind) {
                (SideEffectKind::Created, SideEffectKind::Modified) => SideEffectKind::Created,
                (_, latest) => latest,
            };
            file.changes += 1;
            file.sha256_after.clone_from(&effect.sha256_after);
            file.last_sequence = event.sequence;
        }
    }
}
