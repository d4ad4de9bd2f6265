//! The one writer of a session.
//!
//! [`SessionWriter::append`] returns once the event is in the kernel's hands, so that a killed
//! process loses nothing it was told was written; [`SessionWriter::sync`] returns once it would
//! survive a power cut, and many callers share one trip to the disk.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::id::{ArtifactId, EventId, Id, IdMint, RuntimeId, SessionId};
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::{ArtifactChanged, ArtifactKind, RuntimeWarning};
use agent_protocol::payload::tool::{OutputRedacted, OutputSpilled};
use agent_protocol::persistence::{Persistence, persistence};
use agent_protocol::status::Status;
use agent_protocol::{
    Clock, Event, LineError, MAX_LINE_BYTES, Payload, Refs, SCHEMA_VERSION, Scope, Timestamp,
};

use crate::anchor::{Anchor, AnchorStore};
use crate::artifact::{ArtifactError, ArtifactStore, ArtifactWriter, Stored};
use crate::hash::hash_of;
use crate::log::commit::GroupCommit;
use crate::log::lease::Lease;
use crate::log::reader::Head;
use crate::log::spill;
use crate::place::PlaceError;
use crate::redact::{Redacted, Redactor};
use crate::subscribe::{Appended, Listeners};

/// Why an event was not appended. Whatever was acknowledged before stays in the log.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(
        "cannot append `{type_name}`: its line has {bytes} bytes and a line may have {MAX_LINE_BYTES}; nothing was written"
    )]
    TooLarge { type_name: String, bytes: usize },
    #[error("cannot append `{type_name}`; nothing was written")]
    Encode {
        type_name: String,
        source: LineError,
    },
    #[error(
        "cannot append to `{path}`: there is no space left; this event was not recorded, every event before it is kept"
    )]
    Full { path: PathBuf, source: io::Error },
    #[error(
        "cannot append to `{path}`; this event was not recorded, every event before it is kept"
    )]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot append to `{path}`: the log was removed while the session was running")]
    Gone { path: PathBuf },
    #[error(
        "cannot append to `{path}`: something else changed the log (it has {found} bytes, {expected} were written)"
    )]
    Foreign {
        path: PathBuf,
        expected: u64,
        found: u64,
    },
    #[error("cannot append to `{path}`: the session is closed after an earlier failure: {reason}")]
    Closed { path: PathBuf, reason: String },
    #[error("cannot store what belongs to an event")]
    Artifact(#[from] ArtifactError),
    #[error("the event was written but is not yet safe from a power cut")]
    Sync(#[from] SyncError),
}

impl AppendError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Full { .. } => Some(
                "free some space (`agent sessions size` shows what sessions use, `agent sessions prune` reduces it), then go on with the same session",
            ),
            Self::Gone { .. } => Some("the session cannot be continued; start a new one"),
            Self::Foreign { .. } => Some("`agent audit` shows what was changed"),
            Self::Closed { .. } => Some("open the session again; what is on disk will be checked"),
            _ => None,
        }
    }
}

/// Why events are not known to be safe from a power cut.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("cannot sync `{path}` to disk; the last events may be lost if the machine fails now")]
    Disk { path: PathBuf, source: io::Error },
    #[error("cannot sync `{path}`: the log was removed while the session was running")]
    Gone { path: PathBuf },
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub event_id: EventId,
    /// The event's place in the log; for a transient event, that of the next durable one.
    pub sequence: u64,
    pub timestamp: Timestamp,
    /// What was written: masked, and with large texts replaced by references.
    pub payload: Payload,
    /// False for the few classes that are only shown.
    pub is_durable: bool,
}

/// Appends to one session. A cheap handle, to be shared between threads.
#[derive(Clone)]
pub struct SessionWriter {
    shared: Arc<Shared>,
}

/// What a writer is made of; see `open`.
pub(crate) struct Parts {
    pub(crate) session_id: SessionId,
    pub(crate) runtime_id: RuntimeId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mint: Arc<IdMint>,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) anchors: Option<AnchorStore>,
    pub(crate) artifacts: ArtifactStore,
    pub(crate) directory: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) head: Head,
    pub(crate) lease: Lease,
}

struct Shared {
    session_id: SessionId,
    runtime_id: RuntimeId,
    clock: Arc<dyn Clock>,
    mint: Arc<IdMint>,
    redactor: Arc<Redactor>,
    anchors: Option<AnchorStore>,
    artifacts: ArtifactStore,
    directory: PathBuf,
    path: PathBuf,
    file: File,
    state: Mutex<State>,
    /// The sequence of the next event; a copy that can be read without the lock.
    written: AtomicU64,
    commit: GroupCommit,
    listeners: Listeners,
    /// Held for its lock, which ends with the last handle.
    _lease: Lease,
}

struct State {
    head: Head,
    buffer: Vec<u8>,
    /// Bytes of a half-written line are behind the head and have to be cut off first.
    must_cut: bool,
    closed: Option<String>,
    anchor_failed: bool,
}

impl SessionWriter {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            shared: Arc::new(Shared {
                session_id: parts.session_id,
                runtime_id: parts.runtime_id,
                clock: parts.clock,
                mint: parts.mint,
                redactor: parts.redactor,
                anchors: parts.anchors,
                artifacts: parts.artifacts,
                directory: parts.directory,
                path: parts.path,
                file: parts.file,
                written: AtomicU64::new(parts.head.next_sequence),
                commit: GroupCommit::new(parts.head.next_sequence),
                state: Mutex::new(State {
                    head: parts.head,
                    buffer: Vec::with_capacity(4096),
                    must_cut: false,
                    closed: None,
                    anchor_failed: false,
                }),
                listeners: Listeners::default(),
                _lease: parts.lease,
            }),
        }
    }

    /// Appends one event and returns once it would survive the death of this process.
    ///
    /// Secrets are masked first, and texts that do not fit into a line go to artifacts; the result
    /// holds the payload as it was written. The end of a turn and of the session is also synced
    /// and anchored.
    ///
    /// # Errors
    /// When the event was not written whole: then nothing of it is in the log.
    pub fn append(
        &self,
        scope: &Scope,
        payload: impl Into<Payload>,
        refs: Refs,
    ) -> Result<Recorded, AppendError> {
        let payload = payload.into();
        let ends_work = ends_work(&payload);
        let recorded = self.append_locked(&mut self.lock(), scope, payload, refs)?;
        if ends_work {
            self.sync()?;
            self.anchor()?;
        }
        self.deliver();
        Ok(recorded)
    }

    /// Returns once everything appended so far would survive a power cut. Callers that come while
    /// the disk is busy share the next trip.
    ///
    /// # Errors
    /// When the disk refused; the writer then accepts nothing more, because nobody can tell what
    /// is on disk.
    pub fn sync(&self) -> Result<(), SyncError> {
        let shared = &self.shared;
        let wanted = shared.written.load(Ordering::Acquire);
        let written = || shared.written.load(Ordering::Acquire);
        shared.commit.reach(wanted, written, || self.sync_files())?;
        self.deliver();
        Ok(())
    }

    fn sync_files(&self) -> Result<(), SyncError> {
        let shared = &self.shared;
        // Artifacts are safe before the events that name them.
        shared.artifacts.sync_names()?;
        let path = || shared.path.clone();
        shared.file.sync_data().map_err(|source| {
            self.lock().closed = Some("the disk refused to sync".into());
            SyncError::Disk {
                path: path(),
                source,
            }
        })?;
        match rustix::fs::fstat(&shared.file) {
            Ok(stat) if stat.st_nlink == 0 => Err(SyncError::Gone { path: path() }),
            _ => Ok(()),
        }
    }

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
        self.record_artifact(scope, &stored, kind, media_type, producer_ref)
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
        let event = artifact_changed(stored, kind, media_type, producer_ref, false);
        let refs = Refs::default().with("artifact", &stored.artifact_id);
        self.append(scope, event, refs)?;
        Ok(ArtifactRef {
            artifact_id: stored.artifact_id.clone(),
            kind,
            bytes: stored.bytes,
        })
    }

    /// The artifacts of this session.
    #[must_use]
    pub fn artifacts(&self) -> &ArtifactStore {
        &self.shared.artifacts
    }

    /// Calls `listener` with every event from now on, in order, from whichever thread appended it.
    /// Observations, and whatever follows them, are held back until they are synced. A listener
    /// that returns false is not called again.
    pub fn subscribe(&self, listener: impl FnMut(&Arc<Appended>) -> bool + Send + 'static) {
        self.shared.listeners.add(Box::new(listener));
    }

    /// Like [`SessionWriter::subscribe`], as a channel. It has no bound, because a slow reader must
    /// not stop the work; whoever stops reading drops it.
    #[must_use]
    pub fn listen(&self) -> std::sync::mpsc::Receiver<Arc<Appended>> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.subscribe(move |appended| sender.send(appended.clone()).is_ok());
        receiver
    }

    /// Anchors the head in user state, if there is a place for that. A failure is recorded once as
    /// a warning and does not stop the work.
    fn anchor(&self) -> Result<(), AppendError> {
        let Some(anchors) = &self.shared.anchors else {
            return Ok(());
        };
        let head = self.lock().head;
        let Some(anchor) = Anchor::of(&self.shared.session_id, head, &self.shared.directory) else {
            return Ok(());
        };
        if let Err(error) = anchors.write(&anchor) {
            let mut state = self.lock();
            if !std::mem::replace(&mut state.anchor_failed, true) {
                let warning = RuntimeWarning {
                    code: "anchor_not_written".into(),
                    message: format!("{error}; a later truncation of this log would not be found"),
                    evidence_refs: Vec::new(),
                };
                self.append_locked(
                    &mut state,
                    &Scope::default(),
                    warning.into(),
                    Refs::default(),
                )?;
            }
        }
        Ok(())
    }

    fn append_locked(
        &self,
        state: &mut State,
        scope: &Scope,
        payload: Payload,
        refs: Refs,
    ) -> Result<Recorded, AppendError> {
        let shared = &self.shared;
        if let Some(reason) = &state.closed {
            return Err(AppendError::Closed {
                path: shared.path.clone(),
                reason: reason.clone(),
            });
        }
        let is_durable = payload
            .event_type()
            .is_none_or(|class| persistence(class) == Persistence::Durable);
        let mut event = Event {
            event_id: shared.mint.mint(),
            timestamp: shared.clock.now(),
            sequence: state.head.next_sequence,
            schema_version: SCHEMA_VERSION.to_owned(),
            runtime_id: shared.runtime_id.clone(),
            session_id: shared.session_id.clone(),
            scope: scope.clone(),
            payload,
            refs,
            prev: state.head.prev(),
        };
        let mut line = std::mem::take(&mut state.buffer);
        line.clear();
        let outcome = self.write_event(state, &mut event, &mut line, is_durable);
        if let Ok(redacted) = &outcome {
            self.shared.listeners.queue(|| Appended {
                event: event.clone(),
                line: line.clone(),
                is_durable,
            });
            state.buffer = line;
            // The fact that something was masked follows the event it is about.
            for redacted in redacted {
                self.record_redaction(state, &event, redacted)?;
            }
        } else {
            state.buffer = line;
        }
        outcome.map(|_| Recorded {
            event_id: event.event_id,
            sequence: event.sequence,
            timestamp: event.timestamp,
            payload: event.payload,
            is_durable,
        })
    }

    fn write_event(
        &self,
        state: &mut State,
        event: &mut Event,
        line: &mut Vec<u8>,
        is_durable: bool,
    ) -> Result<Vec<Redacted>, AppendError> {
        encode(event, line)?;
        let redacted = if self.shared.redactor.suspects(line) {
            self.shared.redactor.mask_event(event, line)
        } else {
            Vec::new()
        };
        if line.len() > MAX_LINE_BYTES {
            self.spill(state, event, line)?;
        }
        if is_durable {
            line.push(b'\n');
            self.write_line(state, line)?;
            line.pop();
            state.head = Head {
                next_sequence: event.sequence + 1,
                hash: hash_of(line),
                bytes: state.head.bytes + line.len() as u64 + 1,
            };
            self.shared
                .written
                .store(state.head.next_sequence, Ordering::Release);
        }
        Ok(redacted)
    }

    /// Moves what is large into artifacts, until the line fits.
    fn spill(
        &self,
        state: &mut State,
        event: &mut Event,
        line: &mut Vec<u8>,
    ) -> Result<(), AppendError> {
        let scope = event.scope.clone();
        let producer = event.event_id.to_string();
        let mut put = |kind: ArtifactKind, media_type: &str, bytes: &[u8]| {
            let stored = self.shared.artifacts.put(bytes)?;
            let producer = Some(producer.clone());
            let changed = artifact_changed(&stored, kind, media_type, producer, true);
            let refs = Refs::default().with("artifact", &stored.artifact_id);
            self.append_locked(state, &scope, changed.into(), refs)?;
            let spilled = OutputSpilled {
                artifact_id: stored.artifact_id.clone(),
                bytes: stored.bytes,
                threshold: MAX_LINE_BYTES as u64,
            };
            self.append_locked(state, &scope, spilled.into(), Refs::default())?;
            Ok::<ArtifactId, AppendError>(stored.artifact_id)
        };
        spill::known_fields(&mut event.payload, &mut put)?;
        line.clear();
        encode(event, line)?;
        if line.len() > MAX_LINE_BYTES {
            spill::largest_parts(event, line, &mut put)?;
        }
        // Recording the artifacts moved the head.
        event.sequence = state.head.next_sequence;
        event.prev = state.head.prev();
        line.clear();
        encode(event, line)?;
        if line.len() > MAX_LINE_BYTES {
            return Err(AppendError::TooLarge {
                type_name: event.payload.type_name().to_owned(),
                bytes: line.len(),
            });
        }
        Ok(())
    }

    fn record_redaction(
        &self,
        state: &mut State,
        masked: &Event,
        redacted: &Redacted,
    ) -> Result<(), AppendError> {
        let scope = Scope {
            causation_id: Some(masked.event_id.clone()),
            ..masked.scope.clone()
        };
        let event = OutputRedacted {
            rule: redacted.rule.clone(),
            count: redacted.count,
            target: redacted.target,
            placeholders: redacted.placeholders.clone(),
            event_type: Some(masked.payload.type_name().to_owned()),
        };
        self.append_locked(state, &scope, event.into(), Refs::default())?;
        Ok(())
    }

    fn write_line(&self, state: &mut State, line: &[u8]) -> Result<(), AppendError> {
        let path = || self.shared.path.clone();
        let stat = rustix::fs::fstat(&self.shared.file).map_err(|error| AppendError::Write {
            path: path(),
            source: error.into(),
        })?;
        if stat.st_nlink == 0 {
            return Err(AppendError::Gone { path: path() });
        }
        if state.must_cut {
            self.cut_back(state)?;
        } else if u64::try_from(stat.st_size) != Ok(state.head.bytes) {
            let found = u64::try_from(stat.st_size).unwrap_or(0);
            state.closed = Some("something else changed the log".into());
            return Err(AppendError::Foreign {
                path: path(),
                expected: state.head.bytes,
                found,
            });
        }
        let mut file = &self.shared.file;
        let mut rest = line;
        while !rest.is_empty() {
            let failure = match file.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    rest = &rest[count..];
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            if rest.len() < line.len() {
                // A failure to cut now is met again, and reported, by the next append.
                state.must_cut = true;
                let _ = self.cut_back(state);
            }
            return Err(write_error(path(), failure));
        }
        Ok(())
    }

    fn cut_back(&self, state: &mut State) -> Result<(), AppendError> {
        self.shared
            .file
            .set_len(state.head.bytes)
            .map_err(|source| write_error(self.shared.path.clone(), source))?;
        state.must_cut = false;
        Ok(())
    }

    fn deliver(&self) {
        self.shared.listeners.deliver(|| self.shared.commit.safe());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: the head moves in one assignment.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a writer knows and hands on.
impl SessionWriter {
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.shared.session_id
    }

    #[must_use]
    pub fn runtime_id(&self) -> &RuntimeId {
        &self.shared.runtime_id
    }

    /// The session's own directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.shared.path
    }

    /// Masks texts on their way to a screen or a model, and finds the originals again.
    #[must_use]
    pub fn redactor(&self) -> &Arc<Redactor> {
        &self.shared.redactor
    }

    /// Where the log ends now.
    #[must_use]
    pub fn head(&self) -> Head {
        self.lock().head
    }

    /// How often the disk was asked to sync.
    #[must_use]
    pub fn sync_count(&self) -> u64 {
        self.shared.commit.syncs()
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    pub fn mint<I: Id>(&self) -> I {
        self.shared.mint.mint()
    }
}

fn encode(event: &Event, line: &mut Vec<u8>) -> Result<(), AppendError> {
    event
        .write_line(line)
        .map_err(|source| AppendError::Encode {
            type_name: event.payload.type_name().to_owned(),
            source,
        })
}

fn write_error(path: PathBuf, source: io::Error) -> AppendError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
        AppendError::Full { path, source }
    } else {
        AppendError::Write { path, source }
    }
}

fn artifact_changed(
    stored: &Stored,
    kind: ArtifactKind,
    media_type: &str,
    producer_ref: Option<String>,
    redacted: bool,
) -> ArtifactChanged {
    ArtifactChanged {
        artifact_id: stored.artifact_id.clone(),
        kind,
        path: format!(
            "{}/{}",
            crate::artifact::ARTIFACTS,
            stored.artifact_id.hex()
        ),
        media_type: media_type.to_owned(),
        bytes: stored.bytes,
        sha256: stored.artifact_id.hex().to_owned(),
        producer_ref,
        redacted,
    }
}

/// Whether the event is the end of a turn or of the session, where the head is anchored.
fn ends_work(payload: &Payload) -> bool {
    match payload {
        Payload::TurnCompleted(_) | Payload::TurnFailed(_) => true,
        Payload::SessionUpdated(updated) => updated.changed.status == Some(Status::Ended),
        _ => false,
    }
}
