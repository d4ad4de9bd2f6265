//! The artifacts that the events of a log name, and which of them were removed.

use std::collections::BTreeMap;

use agent_protocol::id::ArtifactId;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

/// Every artifact that the log names, with its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactInventory {
    pub artifacts: BTreeMap<ArtifactId, ArtifactBrief>,
    /// Bytes of the artifacts that are still kept.
    pub kept_bytes: u64,
    pub kept_count: u64,
    pub expired_count: u64,
}

/// State in which the log leaves an artifact.
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

impl ArtifactInventory {
    /// Takes the next event.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::ArtifactChanged(changed) => {
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
            _ => {}
        }
    }
}
