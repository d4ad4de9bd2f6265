//! The one writer of a session.
//!
//! [`SessionWriter::append`] returns once the event is in the kernel's hands, so that a killed
//! process loses nothing it was told was written; [`SessionWriter::sync`] returns once it would
//! survive a power cut, and many callers share one trip to the disk. Whoever appends several events
//! in a row may hold the writing back until the last of them ([`SessionWriter::gather`]).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::id::{ArtifactId, EventId, Id, IdMint, RuntimeId, SessionId};
use agent_protocol::payload::conversation::{ArtifactKind, RuntimeWarning};
use agent_protocol::payload::permission::DecidedBy;
use agent_protocol::payload::tool::{OutputRedacted, OutputSpilled};
use agent_protocol::persistence::{Persistence, persistence};
use agent_protocol::status::Status;
use agent_protocol::{
    Clock, Event, MAX_LINE_BYTES, Payload, Refs, SCHEMA_VERSION, Scope, Timestamp,
};

use crate::anchor::{Anchor, AnchorStore, OwnEvents};
use crate::artifact::ArtifactStore;
use crate::commit::GroupCommit;
use crate::error::WriteFailure;
pub(crate) use crate::error::{AppendError, SyncError};
use crate::hash::hash_of;
use crate::lease::Lease;
use crate::place::Place;
use crate::reader::Head;
use crate::recorded_artifact::artifact_changed;
use crate::redact::{Redacted, Redactor};
use crate::spill;
use crate::subscribe::{Appended, Listeners};
use crate::tail::{MOST_GATHERED, Tail};

/// Receipt of an appended event.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub event_id: EventId,
    /// The event's place in the log; for a transient event, that of the next durable one.
    pub sequence: u64,
    pub timestamp: Timestamp,
    /// The event as written: masked, and with large texts replaced by references.
    pub payload: Payload,
    /// False for the few classes that are only shown.
    pub is_durable: bool,
}

/// Appends to one session. A cheap handle, to be shared between threads.
#[derive(Clone)]
pub struct SessionWriter {
    pub(super) shared: Arc<Shared>,
}

/// Parts of a writer; see `open`.
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
    pub(crate) own: OwnEvents,
    pub(crate) lease: Lease,
}

pub(super) struct Shared {
    session_id: SessionId,
    runtime_id: RuntimeId,
    clock: Arc<dyn Clock>,
    mint: Arc<IdMint>,
    pub(super) redactor: Arc<Redactor>,
    anchors: Option<AnchorStore>,
    /// Events this installation wrote before this writer.
    own: OwnEvents,
    /// The first event of this writer.
    since: u64,
    pub(super) artifacts: ArtifactStore,
    directory: PathBuf,
    path: PathBuf,
    file: File,
    state: Mutex<State>,
    /// The sequence of the next event; a copy that can be read without the lock.
    accepted: AtomicU64,
    /// Events before this one are in the kernel's hands, and may be told.
    written: AtomicU64,
    commit: GroupCommit,
    /// Directories with names that the next sync has to make safe: those of a new session.
    new_names: Mutex<Vec<Place>>,
    listeners: Listeners,
    /// Held for its lock, which ends with the last handle.
    _lease: Lease,
}

struct State {
    head: Head,
    /// Buffer in which a line is built, kept for its memory.
    buffer: Vec<u8>,
    tail: Tail,
    /// Number of callers that want events to be gathered rather than written one by one.
    gathering: usize,
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
                own: parts.own,
                since: parts.head.next_sequence,
                artifacts: parts.artifacts,
                directory: parts.directory,
                path: parts.path,
                file: parts.file,
                accepted: AtomicU64::new(parts.head.next_sequence),
                written: AtomicU64::new(parts.head.next_sequence),
                commit: GroupCommit::new(parts.head.next_sequence),
                state: Mutex::new(State {
                    head: parts.head,
                    buffer: Vec::with_capacity(4096),
                    tail: Tail::new(parts.head.bytes),
                    gathering: 0,
                    closed: None,
                    anchor_failed: false,
                }),
                new_names: Mutex::default(),
                listeners: Listeners::default(),
                _lease: parts.lease,
            }),
        }
    }

    /// Appends one event and returns once it would survive the death of this process.
    ///
    /// Secrets are masked first, and texts that do not fit into a line go to artifacts; the result
    /// holds the payload as it was written. The end of a turn and of the session, a question and its
    /// answer are also synced and anchored.
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
        let is_anchored = is_anchored(&payload);
        let recorded = self.append_locked(&mut self.lock(), scope, payload, refs)?;
        if is_anchored {
            self.sync_and_anchor()?;
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
        let accepted = || shared.accepted.load(Ordering::Acquire);
        shared
            .commit
            .reach(accepted(), accepted, || self.sync_files())?;
        self.deliver();
        Ok(())
    }

    fn sync_files(&self) -> Result<(), SyncError> {
        let shared = &self.shared;
        // Artifacts are safe before the events that name them.
        shared.artifacts.sync().inspect_err(|_| {
            self.lock().closed = Some("the disk refused an artifact".into());
        })?;
        let path = || shared.path.clone();
        {
            let mut state = self.lock();
            let written = self.flush(&mut state).and_then(|()| {
                // What is promised from here on was looked at: nobody else wrote between our lines.
                state.tail.check(&shared.file)?;
                state.tail.synced();
                Ok(())
            });
            written.map_err(|failure| failure.for_sync(path()))?;
        }
        shared.file.sync_data().map_err(|source| {
            self.lock().closed = Some("the disk refused to sync".into());
            SyncError::Disk {
                path: path(),
                source,
            }
        })?;
        let mut new_names = self.new_names();
        while let Some(place) = new_names.last() {
            place.sync()?;
            new_names.pop();
        }
        Ok(())
    }

    /// The next sync is to make the names in these directories safe too, the last one first.
    pub(super) fn directories_are_new(&self, places: impl IntoIterator<Item = Place>) {
        self.new_names().extend(places);
        // The log has got its name since it was looked at.
        self.lock().tail.synced();
    }

    fn new_names(&self) -> MutexGuard<'_, Vec<Place>> {
        let new_names = &self.shared.new_names;
        new_names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now until the result is dropped, appended events are gathered in memory and written
    /// together: at the end, with the next [`SessionWriter::sync`], or when there are many. Until
    /// then they are told to nobody, and the death of this process would lose them; so nothing may
    /// be done because of them without a sync.
    #[must_use]
    pub fn gather(&self) -> Gathering {
        self.lock().gathering += 1;
        Gathering {
            writer: self.clone(),
        }
    }

    fn flush(&self, state: &mut State) -> Result<(), WriteFailure> {
        let outcome = state.tail.flush(&self.shared.file);
        match &outcome {
            Ok(()) => {
                let written = &self.shared.written;
                written.store(state.head.next_sequence, Ordering::Release);
            }
            Err(WriteFailure::Foreign { .. }) => {
                state.closed = Some("something else changed the log".into());
            }
            Err(_) => {}
        }
        outcome
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

    /// Syncs, and anchors the head, for whoever leaves a session at a place where no turn ends.
    ///
    /// # Errors
    /// When the log could not be synced or written.
    pub fn sync_and_anchor(&self) -> Result<(), AppendError> {
        self.sync()?;
        self.anchor()
    }

    /// Anchors the head in user state, if there is a place for that. A failure is recorded once as
    /// a warning and does not stop the work.
    fn anchor(&self) -> Result<(), AppendError> {
        let Some(anchors) = &self.shared.anchors else {
            return Ok(());
        };
        let head = self.lock().head;
        let shared = &self.shared;
        let anchor = Anchor::of(
            &shared.session_id,
            head,
            &shared.directory,
            &shared.own,
            shared.since,
        );
        let Some(anchor) = anchor else {
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
        if outcome.is_ok() {
            shared.listeners.queue(|| Appended {
                event: event.clone(),
                line: line.clone(),
                is_durable,
            });
        }
        state.buffer = line;
        // The fact that something was masked follows the event it is about.
        for redacted in &outcome? {
            self.record_redaction(state, &event, redacted)?;
        }
        Ok(Recorded {
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
        let redacted = self.shared.redactor.mask_event(event, line);
        if line.len() > MAX_LINE_BYTES {
            self.spill(state, event, line)?;
        }
        if is_durable {
            let path = || self.shared.path.clone();
            self.accept(state, line)
                .map_err(|failure| failure.for_append(path()))?;
        }
        Ok(redacted)
    }

    /// Adds a line to the log; all of it or nothing.
    fn accept(&self, state: &mut State, line: &[u8]) -> Result<(), WriteFailure> {
        let before = (state.head, state.tail.pending_bytes());
        state.tail.push(line);
        state.head = Head {
            next_sequence: state.head.next_sequence + 1,
            hash: hash_of(line),
            bytes: state.head.bytes + line.len() as u64 + 1,
        };
        if state.gathering == 0 || state.tail.pending_bytes() > MOST_GATHERED {
            self.flush(state).inspect_err(|_| {
                // What waited before still waits; this line was never accepted.
                state.head = before.0;
                state.tail.forget(before.1);
            })?;
        }
        let accepted = &self.shared.accepted;
        accepted.store(state.head.next_sequence, Ordering::Release);
        Ok(())
    }

    /// Moves what is large into artifacts, until the line fits.
    fn spill(
        &self,
        state: &mut State,
        event: &mut Event,
        line: &mut Vec<u8>,
    ) -> Result<(), AppendError> {
        let mut scope = event.scope.clone();
        if matches!(event.payload, Payload::ToolIntent(_)) {
            // A call begins with its intent; what was stored for that belongs to the step.
            scope.tool_call_id = None;
        }
        let producer = event.event_id.to_string();
        let mut put = |kind: ArtifactKind, media_type: &str, bytes: &[u8]| {
            let stored = self.shared.artifacts.put(bytes)?;
            let producer = Some(producer.clone());
            let mut changed = artifact_changed(&stored, kind, media_type, producer);
            changed.redacted = self.shared.redactor.is_masked(bytes);
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

    fn deliver(&self) {
        let shared = &self.shared;
        let written = || shared.written.load(Ordering::Acquire);
        shared
            .listeners
            .deliver(|| (written(), shared.commit.safe()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: the head moves in one assignment.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events are gathered while this lives; see [`SessionWriter::gather`].
pub struct Gathering {
    writer: SessionWriter,
}

impl Drop for Gathering {
    fn drop(&mut self) {
        let mut state = self.writer.lock();
        state.gathering -= 1;
        if state.gathering == 0 {
            // A failure is met again, and reported, by the next append or sync: the lines wait.
            let _ = self.writer.flush(&mut state);
        }
        drop(state);
        self.writer.deliver();
    }
}

/// State that a writer hands on.
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

    /// Present end of the log.
    #[must_use]
    pub fn head(&self) -> Head {
        self.lock().head
    }

    /// Number of syncs.
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

/// True for an event behind which the head is anchored: the end of a turn or of the session, so that a
/// cut is found, and a question and a person's answer, which count only as far as the anchor reaches.
pub(crate) fn is_anchored(payload: &Payload) -> bool {
    match payload {
        Payload::TurnCompleted(_) | Payload::TurnFailed(_) | Payload::ActionRequired(_) => true,
        Payload::ActionResolved(resolved) => resolved.decided_by == DecidedBy::User,
        Payload::SessionUpdated(updated) => updated.changed.status == Some(Status::Ended),
        _ => false,
    }
}
