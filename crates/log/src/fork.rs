//! Branching off: a new session that begins where another one was at some event.
//!
//! The fork stands alone. Its first event names the session and the event it came from, and an
//! artifact holds the lines up to there exactly as they were, so that the fork can be folded,
//! audited and continued when its parent is gone. Artifacts those lines name are linked, not
//! copied, where the file system can. The parent is only read.

use std::io::{self, BufRead as _, BufReader, Read as _};

use agent_protocol::id::{ArtifactId, SessionId};
use agent_protocol::payload::conversation::{ArtifactKind, SessionCreated, SessionParent};
use agent_protocol::{Event, Payload};

use crate::artifact::{ArtifactError, ArtifactStore};
use crate::line::Lines;
use crate::open::{OpenError, SessionEnv};
use crate::place::PlaceError;
use crate::reader::{Chain, Damage, Head, ReadError};
use crate::store::{SessionDirectory, SessionStore};
use crate::writer::{AppendError, SessionWriter};

/// Name of the lines before the fork in `artifact.changed`.
const MEDIA_TYPE: &str = "application/jsonl";
/// Their source, as named by the event after `session.created`.
const ROLE: &str = "history";
/// Limit of forks of forks that are followed.
const MOST_GENERATIONS: usize = 64;

/// Reason a session was not forked, or its history not read.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error("session {session_id} has no event {at}: its last whole event is {last}")]
    TooFar {
        session_id: SessionId,
        at: u64,
        last: String,
    },
    #[error("event {at} cannot be read: the log of session {session_id} is damaged at {damage}")]
    Damaged {
        session_id: SessionId,
        at: u64,
        damage: Damage,
    },
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error("cannot share the artifact {artifact_id} with the fork")]
    Share {
        artifact_id: ArtifactId,
        source: io::Error,
    },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot record where the fork came from")]
    Append(#[from] AppendError),
    #[error("the history in {artifact_id} is damaged at {damage}")]
    History {
        artifact_id: ArtifactId,
        damage: Damage,
    },
    #[error("the history in {artifact_id} has {found} events, and event {last} was to be its last")]
    HistoryEnd {
        artifact_id: ArtifactId,
        found: u64,
        last: u64,
    },
}

/// Makes a session in `store` that begins where `parent` was after event `at`, or after its last
/// whole event. `created` is the fork's first event; where it came from is filled in.
///
/// # Errors
/// When the parent has no such event, the lines up to it are damaged, or something cannot be
/// written. The parent is never changed.
pub fn fork(
    parent: &SessionDirectory,
    at: Option<u64>,
    store: &SessionStore,
    created: SessionCreated,
    env: SessionEnv,
) -> Result<SessionWriter, ForkError> {
    let prefix = Prefix::read(parent, at)?;
    let created = SessionCreated {
        parent: Some(SessionParent {
            session_id: parent.id().clone(),
            sequence: prefix.last,
        }),
        ..created
    };
    let writer = store.create(created, env)?;
    let shared = parent.artifacts()?;
    // What the parent inherited itself comes along, too: its history names it.
    let mut earlier = Vec::new();
    inherited(parent, &mut |event| earlier.extend(shared_by(event)))?;
    for artifact_id in earlier.iter().chain(&prefix.artifacts) {
        share(&shared, writer.artifacts(), artifact_id)?;
    }
    let mut lines = BufReader::new(parent.open_log()?.take(prefix.bytes));
    writer.put_lines(MEDIA_TYPE, ROLE, |line| {
        lines.read_until(b'\n', line).map_err(|source| {
            let path = parent.log_path();
            ForkError::from(ReadError { path, source })
        })
    })?;
    writer.sync_and_anchor()?;
    Ok(writer)
}

/// The lines of a log up to an event.
struct Prefix {
    /// Their length together.
    bytes: u64,
    last: u64,
    artifacts: Vec<ArtifactId>,
}

impl Prefix {
    fn read(parent: &SessionDirectory, at: Option<u64>) -> Result<Self, ForkError> {
        let path = parent.log_path();
        let log = parent.open_log()?;
        let mut lines = Lines::new(&log);
        let mut chain = Chain::new(Head::start(parent.id()));
        let mut artifacts = Vec::new();
        let wanted = at.unwrap_or(u64::MAX);
        while chain.head().next_sequence <= wanted {
            let read = lines.next_line().map_err(|source| ReadError {
                path: path.clone(),
                source,
            })?;
            let Some(line) = read.filter(|line| line.is_terminated) else {
                break;
            };
            if let Some(damage) = chain.follow(&line) {
                return Err(ForkError::Damaged {
                    session_id: parent.id().clone(),
                    at: at.unwrap_or(chain.head().next_sequence),
                    damage,
                });
            }
            let event = line.text().and_then(|text| Event::from_line(text).ok());
            artifacts.extend(event.as_ref().and_then(shared_by));
        }
        let head = chain.head();
        let last = head.next_sequence.checked_sub(1);
        let Some(last) = last.filter(|last| at.is_none_or(|at| *last == at)) else {
            return Err(ForkError::TooFar {
                session_id: parent.id().clone(),
                at: at.unwrap_or(0),
                last: last.map_or("none".to_owned(), |last| last.to_string()),
            });
        };
        Ok(Self {
            bytes: head.bytes,
            last,
            artifacts,
        })
    }
}

/// The artifact that an event records, if a fork gets it. What a model was sent follows from the rest.
fn shared_by(event: &Event) -> Option<ArtifactId> {
    match &event.payload {
        Payload::ArtifactChanged(changed) if changed.kind != ArtifactKind::ModelInput => {
            Some(changed.artifact_id.clone())
        }
        _ => None,
    }
}

/// Gives the fork an artifact of its parent. One that expired stays so.
fn share(
    from: &ArtifactStore,
    to: &ArtifactStore,
    artifact_id: &ArtifactId,
) -> Result<(), ForkError> {
    let (source, target) = (from.path_of(artifact_id), to.path_of(artifact_id));
    let failed = |source| ForkError::Share {
        artifact_id: artifact_id.clone(),
        source,
    };
    match std::fs::hard_link(&source, &target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Another file system, or one without links.
        Err(_) => {
            let mut content = from.open(artifact_id)?;
            let mut copy = to.writer()?;
            io::copy(&mut content, &mut copy).map_err(failed)?;
            copy.finish()?;
            Ok(())
        }
    }
}

/// Tells the events a fork inherited, oldest first, and how many there were. A session that is no
/// fork inherited none. The fork's own events follow in its log.
///
/// # Errors
/// When the history is missing, cannot be read, or is not the chain of lines it should be; what was
/// told until then was told.
pub fn inherited(
    session: &SessionDirectory,
    tell: &mut dyn FnMut(&Event),
) -> Result<u64, ForkError> {
    let mut told = 0;
    if let Some(history) = read_history(session)? {
        let artifacts = session.artifacts()?;
        tell_history(&artifacts, &history, tell, &mut told, MOST_GENERATIONS)?;
    }
    Ok(told)
}

/// The artifact that holds what a fork inherited; a session that is no fork has none.
pub(crate) fn history(session: &SessionDirectory) -> Result<Option<ArtifactId>, ForkError> {
    Ok(read_history(session)?.map(|history| history.artifact_id))
}

/// Parent of a fork, and the artifact that holds the lines up to there.
struct History {
    parent: SessionParent,
    artifact_id: ArtifactId,
}

fn read_history(session: &SessionDirectory) -> Result<Option<History>, ForkError> {
    let log = session.open_log()?;
    let found = history_of(BufReader::new(log));
    Ok(found.map_err(|source| ReadError {
        path: session.log_path(),
        source,
    })?)
}

fn tell_history(
    artifacts: &ArtifactStore,
    history: &History,
    tell: &mut dyn FnMut(&Event),
    told: &mut u64,
    generations: usize,
) -> Result<(), ForkError> {
    let artifact_id = &history.artifact_id;
    let read_error = |source| {
        ForkError::Artifact(ArtifactError::Read {
            artifact_id: artifact_id.clone(),
            source,
        })
    };
    artifacts.verify(artifact_id)?;
    let earlier = history_of(BufReader::new(artifacts.open(artifact_id)?)).map_err(read_error)?;
    if let (Some(earlier), true) = (earlier, generations > 0) {
        tell_history(artifacts, &earlier, tell, told, generations - 1)?;
    }
    // Its hash says that it is what the fork was given; only its own chain says that it was a log.
    let mut lines = Lines::new(artifacts.open(artifact_id)?);
    let mut chain = Chain::new(Head::start(&history.parent.session_id));
    while let Some(line) = lines.next_line().map_err(read_error)? {
        if let Some(damage) = chain.follow(&line) {
            return Err(ForkError::History {
                artifact_id: artifact_id.clone(),
                damage,
            });
        }
        if let Some(Ok(event)) = line.text().map(Event::from_line) {
            tell(&event);
            *told += 1;
        }
    }
    let found = chain.head().next_sequence;
    if found.checked_sub(1) == Some(history.parent.sequence) {
        return Ok(());
    }
    Err(ForkError::HistoryEnd {
        artifact_id: artifact_id.clone(),
        found,
        last: history.parent.sequence,
    })
}

/// The artifact that holds the history of a log, if it is that of a fork: the first two events say.
fn history_of(mut log: impl io::BufRead) -> io::Result<Option<History>> {
    let mut next = || -> io::Result<Option<Payload>> {
        let mut line = Vec::new();
        // Longer than any line of ours, so that a damaged log is not read whole.
        (&mut log)
            .take(agent_protocol::MAX_LINE_BYTES as u64 + 1)
            .read_until(b'\n', &mut line)?;
        let event = Event::from_line(line.trim_ascii_end());
        Ok(event.ok().map(|event| event.payload))
    };
    let Some(Payload::SessionCreated(SessionCreated {
        parent: Some(parent),
        ..
    })) = next()?
    else {
        return Ok(None);
    };
    Ok(match next()? {
        Some(Payload::ArtifactChanged(changed))
            if changed.producer_ref.as_deref() == Some(ROLE) =>
        {
            Some(History {
                parent,
                artifact_id: changed.artifact_id,
            })
        }
        _ => None,
    })
}
