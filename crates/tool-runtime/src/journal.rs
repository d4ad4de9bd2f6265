//! Where facts go. The engine implements [`Journal`] over the session's log; this crate knows no
//! file of it.

use std::error::Error;
use std::fs::File;
use std::io;
use std::ops::Range;

use agent_protocol::id::{ArtifactId, EventId, IdMint};
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::{Payload, Refs, Scope, Timestamp};

/// The one writer of facts, as the tool runtime sees it.
pub trait Journal: Send + Sync {
    /// Appends a fact; it is masked on the way. Not yet safe from a power cut: see
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// When the log cannot be written; the call must not go on then.
    fn append(&self, scope: &Scope, payload: Payload, refs: Refs)
    -> Result<Recorded, JournalError>;

    /// Returns once everything appended so far would survive a power cut.
    ///
    /// # Errors
    /// When the disk refuses.
    fn sync(&self) -> Result<(), JournalError>;

    /// From now until the result is dropped, appended facts may wait and be written together; the
    /// next [`sync`](Self::sync) writes them in any case, and tells when it cannot. Only for facts
    /// that nothing is done about before that sync.
    #[must_use]
    fn gather(&self) -> Box<dyn Send>;

    /// Keeps bytes under their hash, complete on disk before returning, and says so with
    /// `artifact.changed`. Text kinds are masked; before and after images are exact.
    ///
    /// `producer` is the id of the call, request or event that it came of; empty where there is none.
    ///
    /// # Errors
    /// When the artifact cannot be written.
    fn put_artifact(
        &self,
        scope: &Scope,
        kind: ArtifactKind,
        media_type: &str,
        bytes: &[u8],
        producer: &str,
    ) -> Result<ArtifactRef, JournalError>;

    /// The same, streamed with bounded memory.
    ///
    /// # Errors
    /// When the artifact cannot be created.
    fn artifact_writer(
        &self,
        scope: &Scope,
        kind: ArtifactKind,
        media_type: &str,
        producer: &str,
    ) -> Result<Box<dyn ArtifactWriter>, JournalError>;

    /// Opens an artifact of this session for reading.
    ///
    /// # Errors
    /// When there is none with this id, or it cannot be opened.
    fn open_artifact(&self, id: &ArtifactId) -> Result<File, JournalError>;

    /// Whether an artifact may be shown. The exact images of files may not, because nothing in them
    /// is masked; unless the same bytes are also kept as something else.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn may_be_shown(&self, id: &ArtifactId) -> Result<bool, JournalError>;

    /// `text` with every placeholder of a masked secret replaced by the value it stands for, when
    /// there is one. Values that this process has not met are looked for in `sources` and then in
    /// the artifacts of the session. A text of that form that is no placeholder of a known secret
    /// stays only where `literal`, the content that is changed, has it as well. For matching and
    /// for files only; the result must never be shown, written to the log or sent.
    ///
    /// # Errors
    /// The placeholder whose value was not found.
    fn reveal(
        &self,
        text: &str,
        literal: &[u8],
        sources: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Option<String>, Unrevealed>;

    /// The first text in `text` that has the form of a placeholder.
    fn placeholder_in<'a>(&self, text: &'a str) -> Option<&'a str>;

    /// Where secrets stand in bytes that are mostly text, in order and without overlap, each with
    /// its placeholder.
    fn secrets(&self, bytes: &[u8]) -> Vec<(Range<usize>, String)>;

    /// `text` as it would be written, with secrets masked.
    fn mask(&self, text: &str) -> String;

    fn now(&self) -> Timestamp;

    fn ids(&self) -> &IdMint;
}

/// Takes the bytes of one artifact as they come.
pub trait ArtifactWriter: io::Write + Send {
    /// Completes the artifact on disk and records it.
    ///
    /// # Errors
    /// When it cannot be completed; it then does not exist.
    fn finish(self: Box<Self>) -> Result<ArtifactRef, JournalError>;
}

/// A placeholder that stands for a value nobody knows any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{placeholder}` stands for a secret whose value this session does not know")]
pub struct Unrevealed {
    pub placeholder: String,
}

/// A fact as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub event_id: EventId,
    pub sequence: u64,
    /// After masking: what readers of the log see, and therefore what may be shown.
    pub payload: Payload,
}

/// The log or the artifact store could not do its part.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}")]
pub struct JournalError {
    /// As in "cannot …".
    pub operation: String,
    pub source: Box<dyn Error + Send + Sync>,
}

impl JournalError {
    /// `operation` completes "cannot …".
    pub fn new(
        operation: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            operation: operation.into(),
            source: source.into(),
        }
    }
}
