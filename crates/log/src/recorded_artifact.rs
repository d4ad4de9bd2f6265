//! Artifacts on their way into the log: stored whole first, then recorded.

use std::io::Write as _;

use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::{ArtifactChanged, ArtifactKind};
use agent_protocol::{Refs, Scope};

use crate::artifact::{ARTIFACTS, ArtifactError, ArtifactStore, ArtifactWriter, Stored};
use crate::error::AppendError;
use crate::writer::SessionWriter;

impl SessionWriter {
    /// Stores `bytes` as an artifact and records it. Both are done when this returns; the name is
    /// safe from a power cut with the next [`SessionWriter::sync`], like the event.
    ///
    /// # Errors
    /// When the artifact or its event could not be written.
    pub fn put_artifact(
        &self,
        scope: &Scope,
        kind: ArtifactKind,
        media_type: &str,
        bytes: &[u8],
        producer_ref: Option<String>,
    ) -> Result<ArtifactRef, AppendError> {
        let stored = self.shared.artifacts.put(bytes)?;
        let mut event = artifact_changed(&stored, kind, media_type, producer_ref);
        // Images of files are exact, also those of a file that quotes a placeholder.
        let is_image = matches!(kind, ArtifactKind::Before | ArtifactKind::After);
        event.redacted = !is_image && self.shared.redactor.is_masked(bytes);
        self.append_artifact(scope, event)
    }

    /// Starts an artifact whose bytes come bit by bit; hand the result of
    /// [`ArtifactWriter::finish`] to [`SessionWriter::record_artifact`].
    ///
    /// # Errors
    /// When the temporary file could not be made.
    pub fn artifact_writer(&self) -> Result<ArtifactWriter, ArtifactError> {
        self.shared.artifacts.writer()
    }

    /// Records an artifact that was stored.
    ///
    /// # Errors
    /// As [`SessionWriter::append`].
    pub fn record_artifact(
        &self,
        scope: &Scope,
        stored: &Stored,
        kind: ArtifactKind,
        media_type: &str,
        producer_ref: Option<String>,
    ) -> Result<ArtifactRef, AppendError> {
        let event = artifact_changed(stored, kind, media_type, producer_ref);
        self.append_artifact(scope, event)
    }

    /// Stores and records lines that were masked when they were written, however many there are.
    ///
    /// # Errors
    /// The error of reading a line, or of storing or recording them.
    pub(crate) fn put_lines<E: From<AppendError> + From<ArtifactError>>(
        &self,
        media_type: &str,
        producer_ref: &str,
        mut next: impl FnMut(&mut Vec<u8>) -> Result<usize, E>,
    ) -> Result<ArtifactRef, E> {
        let mut copy = self.artifact_writer()?;
        let mut is_masked = false;
        let mut line = Vec::new();
        while next(&mut line)? > 0 {
            is_masked = is_masked || self.shared.redactor.is_masked(&line);
            copy.write_all(&line)
                .map_err(|source| self.shared.artifacts.write_error(source))?;
            line.clear();
        }
        let stored = copy.finish()?;
        let producer = Some(producer_ref.to_owned());
        let mut event = artifact_changed(&stored, ArtifactKind::Other, media_type, producer);
        event.redacted = is_masked;
        Ok(self.append_artifact(&Scope::default(), event)?)
    }

    fn append_artifact(
        &self,
        scope: &Scope,
        event: ArtifactChanged,
    ) -> Result<ArtifactRef, AppendError> {
        let artifact = ArtifactRef {
            artifact_id: event.artifact_id.clone(),
            kind: event.kind,
            bytes: event.bytes,
        };
        let refs = Refs::default().with("artifact", &artifact.artifact_id);
        self.append(scope, event, refs)?;
        Ok(artifact)
    }

    /// The artifacts of this session.
    #[must_use]
    pub fn artifacts(&self) -> &ArtifactStore {
        &self.shared.artifacts
    }
}

/// The event that records an artifact.
pub(super) fn artifact_changed(
    stored: &Stored,
    kind: ArtifactKind,
    media_type: &str,
    producer_ref: Option<String>,
) -> ArtifactChanged {
    ArtifactChanged {
        artifact_id: stored.artifact_id.clone(),
        kind,
        path: format!("{ARTIFACTS}/{}", stored.artifact_id.hex()),
        media_type: media_type.to_owned(),
        bytes: stored.bytes,
        sha256: stored.artifact_id.hex().to_owned(),
        producer_ref,
        redacted: false,
    }
}
