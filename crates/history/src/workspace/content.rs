//! The bytes of a file as it was, from the images a session kept.

use agent_log::{ArtifactError, ArtifactStore};
use agent_protocol::id::ArtifactId;

use super::PathState;

/// The largest image that is read whole.
pub const IMAGE_LIMIT: u64 = 256 << 20;

/// Why the bytes of a file are not known.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("it has no content")]
    NoContent,
    #[error("no image was kept ({reason})")]
    NotKept { reason: String },
    #[error("its image was removed: artifact {artifact_id} is not there")]
    Gone { artifact_id: ArtifactId },
    #[error(transparent)]
    Artifact(ArtifactError),
}

/// The images of one session.
#[derive(Clone, Debug)]
pub struct Images {
    store: ArtifactStore,
}

impl Images {
    #[must_use]
    pub fn new(store: ArtifactStore) -> Self {
        Self { store }
    }

    /// The bytes of a file in this state, or the target of a link; checked against their hash.
    ///
    /// # Errors
    /// When no image was kept, or it is gone or altered.
    pub fn read(&self, state: &PathState) -> Result<Vec<u8>, ContentError> {
        let content = state.content().ok_or(ContentError::NoContent)?;
        let not_kept = || ContentError::NotKept {
            reason: content
                .no_image
                .clone()
                .unwrap_or_else(|| "not recorded".to_owned()),
        };
        let id = content.artifact().ok_or_else(not_kept)?;
        match self.store.read(&id, IMAGE_LIMIT) {
            Ok(bytes) => Ok(bytes),
            // The log promised no image: another event might have kept these bytes, and did not.
            Err(ArtifactError::Missing { .. }) if content.image.is_none() => Err(not_kept()),
            Err(ArtifactError::Missing { artifact_id, .. }) => {
                Err(ContentError::Gone { artifact_id })
            }
            Err(error) => Err(ContentError::Artifact(error)),
        }
    }

    /// Whether the bytes are there, without reading them.
    #[must_use]
    pub fn has(&self, state: &PathState) -> bool {
        let id = state.content().and_then(super::Content::artifact);
        id.is_some_and(|id| self.store.open(&id).is_ok())
    }
}
