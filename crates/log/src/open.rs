//! Opening a session for writing: take the lease, check what is there, cut a torn tail, close what
//! a killed session left open.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use agent_protocol::id::{IdMint, RuntimeId, SessionId};
use agent_protocol::payload::conversation::{
    HistoryReconstructed, HistoryStatus, RuntimeWarning, SessionCreated,
};
use agent_protocol::{Clock, Event, Refs, Scope};
use rustix::fs::FlockOperation;

use crate::LOG;
use crate::anchor::{Anchor, AnchorError, AnchorStore, OwnEvents};
use crate::artifact::{ARTIFACTS, ArtifactStore};
use crate::error::{AppendError, SyncError};
use crate::lease::{Holder, Lease, LeaseError};
use crate::line::{Lines, quick_type};
use crate::place::{Place, PlaceError};
use crate::reader::{Chain, Damage, DamageKind, Head, LogReader, ReadError};
use crate::redact::Redactor;
use crate::repair::{OpenWork, matters};
use crate::writer::{Parts, SessionWriter};

/// The log's name until its first event is in it.
const STAGED_LOG: &str = "events.jsonl.new";

/// Environment that a library may not find by itself: handed in by the binary or a test.
#[derive(Clone)]
pub struct SessionEnv {
    pub clock: Arc<dyn Clock>,
    pub mint: Arc<IdMint>,
    pub runtime_id: RuntimeId,
    pub redactor: Arc<Redactor>,
    /// Directory of the anchors; without it a cut-off end of a log is not found.
    pub anchors: Option<AnchorStore>,
    /// The writer's name, shown to others who are refused meanwhile.
    pub holder: Holder,
}

/// Reason a session was not opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot continue session {session_id}: its log is damaged at {damage}")]
    Damaged {
        session_id: SessionId,
        damage: Damage,
    },
    #[error(
        "cannot continue session {session_id}: its log ends at event {found}, but had reached event {anchored}"
    )]
    CutOff {
        session_id: SessionId,
        anchored: u64,
        found: String,
    },
    #[error("cannot check session {session_id} against its anchor")]
    Anchor {
        session_id: SessionId,
        source: AnchorError,
    },
    #[error("cannot continue session {session_id}: its log holds no whole event")]
    Empty { session_id: SessionId },
    #[error("cannot cut the torn end off `{path}`; nothing was changed")]
    Cut { path: PathBuf, source: io::Error },
    #[error("cannot record the opening of session {session_id}")]
    Append {
        session_id: SessionId,
        source: AppendError,
    },
    #[error("cannot record the opening of session {session_id}")]
    Sync {
        session_id: SessionId,
        source: SyncError,
    },
}

impl OpenError {
    /// Advice to the user.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Damaged { .. } | Self::CutOff { .. } => Some(
                "nothing was changed; `agent audit` lists all damage, and `agent fork --at` continues from the part that is whole",
            ),
            Self::Lease(LeaseError::Held { .. }) => {
                Some("wait until it ends, or start another session")
            }
            Self::Empty { .. } => {
                Some("nothing was changed and nothing is lost; start another session")
            }
            Self::Append { source, .. } => source.hint(),
            Self::Sync { source, .. } => source.hint(),
            // What is passed on as it is hides the error it passes on.
            Self::Place(error) | Self::Lease(LeaseError::Place(error)) => error.hint(),
            _ => None,
        }
    }
}

/// Whoever wants to hear a log while it is opened, so that it is read and parsed only once.
pub struct Listener<'a> {
    /// True if events of a class are wanted; others are not parsed for its sake. What it may say
    /// no to is only what it would not look at: it is told events of other classes too.
    pub wants: &'a dyn Fn(&str) -> bool,
    /// Gets the events in their order, those that opening adds at last. When opening fails, what was
    /// told before counts for nothing.
    pub tell: &'a mut dyn FnMut(&Event),
}

/// A session that can be written, and what had to be put right first.
pub struct Opened {
    pub writer: SessionWriter,
    pub repairs: Repairs,
    /// The events this installation wrote before. None without a place for anchors: then nothing
    /// tells a log of one's own from one that was brought along.
    pub own: OwnEvents,
}

/// Repairs made when a session was opened; each is also an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Bytes of a line that was being written when the writer died.
    pub cut_bytes: u64,
    /// The holder of the session that died.
    pub stale_holder: Option<Holder>,
    /// Number of events that closed pending calls and turns.
    pub closing_events: usize,
}

/// Makes the log of a new session in `place`, a new name in `sessions`. The first sync makes both,
/// and the first event, safe from a power cut.
pub(crate) fn create(
    sessions: Place,
    place: Place,
    session_id: SessionId,
    created: SessionCreated,
    env: SessionEnv,
) -> Result<SessionWriter, OpenError> {
    let made = begin(&place, &session_id, created, env)?;
    made.directories_are_new([place, sessions]);
    Ok(made)
}

fn begin(
    place: &Place,
    session_id: &SessionId,
    created: SessionCreated,
    env: SessionEnv,
) -> Result<SessionWriter, OpenError> {
    let (lease, _) = take_lease(place, session_id, &env)?;
    let artifacts = ArtifactStore::new(place.child_or_create(ARTIFACTS)?);
    let file = place.create_new(STAGED_LOG)?;
    lock_log(place, &file)?;
    let begun = Begun {
        head: Head::start(session_id),
        own: OwnEvents::default(),
    };
    let writer = assemble(
        place,
        session_id.clone(),
        env,
        lease,
        artifacts,
        file,
        begun,
    );
    writer
        .append(&Scope::default(), created, Refs::default())
        .map_err(|source| OpenError::Append {
            session_id: session_id.clone(),
            source,
        })?;
    // Whoever dies before this point leaves no log at all, never one without its first event.
    place.rename(STAGED_LOG, LOG)?;
    Ok(writer)
}

/// Removes what was made of a session whose log did not come to be.
pub(crate) fn abandon(place: &Place) -> Result<(), PlaceError> {
    let entries = place.entries()?;
    if entries.iter().any(|entry| entry.name == LOG) {
        return Ok(());
    }
    for entry in entries {
        if entry.is_directory {
            place.remove_directory(&entry.name)?;
        } else {
            place.remove_file(&entry.name)?;
        }
    }
    Ok(())
}

/// Opens the log of an existing session.
pub(crate) fn open(
    place: &Place,
    session_id: SessionId,
    env: SessionEnv,
    mut listener: Listener<'_>,
) -> Result<Opened, OpenError> {
    let (lease, stale_holder) = take_lease(place, &session_id, &env)?;
    let artifacts = ArtifactStore::new(place.child_or_create(ARTIFACTS)?);
    let file = place.append(LOG)?;
    lock_log(place, &file)?;
    let anchor = match &env.anchors {
        None => None,
        Some(anchors) => anchors
            .read(&session_id)
            .map_err(|source| OpenError::Anchor {
                session_id: session_id.clone(),
                source,
            })?,
    };
    let checked = check(place, &session_id, &file, anchor.as_ref(), &mut listener)?;
    let found = checked.head;
    if found.next_sequence == 0 {
        return Err(OpenError::Empty { session_id });
    }
    if checked.cut_bytes > 0 {
        let cut = file.set_len(found.bytes).and_then(|()| file.sync_data());
        cut.map_err(|source| OpenError::Cut {
            path: place.path().join(LOG),
            source,
        })?;
    }
    artifacts.remove_staged()?;
    let own = anchor.map(|anchor| anchor.own).unwrap_or_default();
    let begun = Begun {
        head: found,
        own: own.clone(),
    };
    let writer = assemble(
        place,
        session_id.clone(),
        env,
        lease,
        artifacts,
        file,
        begun,
    );
    let mut repairs = Repairs {
        cut_bytes: checked.cut_bytes,
        stale_holder,
        closing_events: 0,
    };
    record_repairs(&writer, &mut repairs, checked).map_err(|source| OpenError::Append {
        session_id: session_id.clone(),
        source,
    })?;
    writer.sync().map_err(|source| OpenError::Sync {
        session_id: session_id.clone(),
        source,
    })?;
    if writer.head() != found {
        tell_added(place, session_id, found, &mut listener)?;
    }
    Ok(Opened {
        writer,
        repairs,
        own,
    })
}

/// Tells what opening has written after `found`.
fn tell_added(
    place: &Place,
    session_id: SessionId,
    found: Head,
    listener: &mut Listener<'_>,
) -> Result<(), OpenError> {
    use std::io::{Seek as _, SeekFrom};
    let path = place.path().join(LOG);
    let mut log = place.read(LOG)?;
    log.seek(SeekFrom::Start(found.bytes))
        .map_err(|source| ReadError {
            path: path.clone(),
            source,
        })?;
    for item in LogReader::continuing(log, session_id, path, found) {
        if let Some(event) = item?.event {
            (listener.tell)(&event);
        }
    }
    Ok(())
}

fn record_repairs(
    writer: &SessionWriter,
    repairs: &mut Repairs,
    checked: Checked,
) -> Result<(), AppendError> {
    if let Some(holder) = &repairs.stale_holder {
        let warning = RuntimeWarning {
            code: "stale_lease".into(),
            message: format!("{holder} held this session and ended without releasing it"),
            evidence_refs: Vec::new(),
        };
        writer.append(&Scope::default(), warning, Refs::default())?;
    }
    if repairs.cut_bytes > 0 {
        let reconstructed = HistoryReconstructed {
            from: "log".into(),
            status: HistoryStatus::Degraded,
            gaps: Vec::new(),
            cut_bytes: Some(repairs.cut_bytes),
            reason: Some(
                "the last line was being written when the writer died; it was never acknowledged"
                    .into(),
            ),
        };
        writer.append(&Scope::default(), reconstructed, Refs::default())?;
    }
    let closing = checked.open_work.closing_events(|| writer.mint());
    repairs.closing_events = closing.len();
    if repairs.cut_bytes == 0 && !closing.is_empty() {
        let reconstructed = HistoryReconstructed {
            from: "log".into(),
            status: HistoryStatus::Complete,
            gaps: Vec::new(),
            cut_bytes: None,
            reason: Some(
                "the program ended in the middle of its work; the events that follow close what was open"
                    .into(),
            ),
        };
        writer.append(&Scope::default(), reconstructed, Refs::default())?;
    }
    for (scope, payload) in closing {
        writer.append(&scope, payload, Refs::default())?;
    }
    Ok(())
}

struct Checked {
    head: Head,
    cut_bytes: u64,
    open_work: OpenWork,
}

/// Reads the whole log once: the chain, the anchor, what is open, and what the listener wants.
fn check(
    place: &Place,
    session_id: &SessionId,
    file: &File,
    anchor: Option<&Anchor>,
    listener: &mut Listener<'_>,
) -> Result<Checked, OpenError> {
    let path = place.path().join(LOG);
    let mut lines = Lines::new(file);
    let mut chain = Chain::new(Head::start(session_id));
    let mut checked = Checked {
        head: chain.head(),
        cut_bytes: 0,
        open_work: OpenWork::default(),
    };
    let mut anchor_found = anchor.is_none();
    let read_error = |source| ReadError {
        path: path.clone(),
        source,
    };
    while let Some(line) = lines.next_line().map_err(read_error)? {
        if !line.is_terminated {
            checked.cut_bytes = line.length;
            break;
        }
        let damaged = |damage| OpenError::Damaged {
            session_id: session_id.clone(),
            damage,
        };
        if let Some(damage) = chain.follow(&line) {
            return Err(damaged(damage));
        }
        if let Some(anchor) = anchor
            && chain.head().next_sequence == anchor.sequence.saturating_add(1)
        {
            anchor_found = chain.head().hash == anchor.hash;
        }
        let text = line.text().unwrap_or_default();
        if quick_type(text).is_none_or(|name| matters(name) || (listener.wants)(name)) {
            let event = Event::from_line(text).map_err(|error| {
                damaged(Damage {
                    line: line.number,
                    offset: line.offset,
                    sequence: None,
                    kind: DamageKind::NotAnEvent {
                        message: error.to_string(),
                    },
                })
            })?;
            checked.open_work.take(&event);
            (listener.tell)(&event);
        }
    }
    checked.head = chain.head();
    if let (false, Some(anchor)) = (anchor_found, anchor) {
        let found = match checked.head.next_sequence.checked_sub(1) {
            None => "none".to_owned(),
            Some(last) if last >= anchor.sequence => format!("{last}, on another chain"),
            Some(last) => last.to_string(),
        };
        return Err(OpenError::CutOff {
            session_id: session_id.clone(),
            anchored: anchor.sequence,
            found,
        });
    }
    Ok(checked)
}

fn take_lease(
    place: &Place,
    session_id: &SessionId,
    env: &SessionEnv,
) -> Result<(Lease, Option<Holder>), LeaseError> {
    let holder = Holder {
        since: Some(env.clock.now()),
        ..env.holder.clone()
    };
    Lease::take(place, session_id.as_str(), &holder)
}

/// The lease file can be deleted by anyone; a second lock on the log itself cannot be got round
/// that way.
fn lock_log(place: &Place, file: &File) -> Result<(), LeaseError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LeaseError::Held {
            session: place.path().display().to_string(),
            holder: Holder::default(),
        }),
        Err(error) => Err(LeaseError::Lock {
            path: place.path().join(LOG),
            source: error.into(),
        }),
    }
}

/// State of a log when a writer takes it over.
struct Begun {
    head: Head,
    own: OwnEvents,
}

fn assemble(
    place: &Place,
    session_id: SessionId,
    env: SessionEnv,
    lease: Lease,
    artifacts: ArtifactStore,
    file: File,
    begun: Begun,
) -> SessionWriter {
    SessionWriter::new(Parts {
        session_id,
        runtime_id: env.runtime_id,
        clock: env.clock,
        mint: env.mint,
        redactor: env.redactor,
        anchors: env.anchors,
        artifacts,
        directory: place.path().to_owned(),
        path: place.path().join(LOG),
        file,
        head: begun.head,
        own: begun.own,
        lease,
    })
}
