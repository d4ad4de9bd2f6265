//! `artifact_checkpoint_summary`: the evidence a session keeps and the files it changed.

use std::collections::BTreeMap;

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
    pub artifacts: BTreeMap<ArtifactId, ArtifactBrief>,
    /// Bytes of the artifacts that are still kept.
    pub kept_bytes: u64,
    pub kept_count: u64,
    pub expired_count: u64,
    /// By path relative to the project.
    pub files_changed: BTreeMap<String, ChangedFile>,
    /// The latest diff.
    pub last_diff: Option<ArtifactId>,
    /// How often files were taken back.
    pub rollbacks: u64,
}

/// Whether an artifact should be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactState {
    #[default]
    Kept,
    /// It was removed, and the log says so.
    Expired,
}

/// One artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactBrief {
    pub kind: ArtifactKind,
    pub bytes: u64,
    pub state: ArtifactState,
    /// Of the event that first named it.
    pub sequence: u64,
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
        match &event.payload {
            Payload::ArtifactChanged(changed) => {
                if changed.kind == ArtifactKind::Diff {
                    self.last_diff = Some(changed.artifact_id.clone());
                }
                let known = self.artifacts.get(&changed.artifact_id);
                if known.is_none_or(|artifact| artifact.state == ArtifactState::Expired) {
                    self.expired_count -= u64::from(known.is_some());
                    self.kept_count += 1;
                    self.kept_bytes = self.kept_bytes.saturating_add(changed.bytes);
                    let artifact = ArtifactBrief {
                        kind: changed.kind,
                        bytes: changed.bytes,
                        state: ArtifactState::Kept,
                        sequence: event.sequence,
                    };
                    self.artifacts.insert(changed.artifact_id.clone(), artifact);
                }
            }
            Payload::OutputExpired(expired) => {
                if let Some(artifact) = self.artifacts.get_mut(&expired.artifact_id)
                    && artifact.state == ArtifactState::Kept
                {
                    artifact.state = ArtifactState::Expired;
                    self.kept_count -= 1;
                    self.kept_bytes -= artifact.bytes.min(self.kept_bytes);
                    self.expired_count += 1;
                }
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
