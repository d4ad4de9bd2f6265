//! Reasons an event is not in the log, or not safe there, in words a user can act on.

use std::io;
use std::path::PathBuf;

use agent_protocol::{LineError, MAX_LINE_BYTES};

use crate::artifact::ArtifactError;
use crate::hint::{MAKE_SPACE, is_full};
use crate::place::PlaceError;

/// Reason an event was not appended. Whatever was acknowledged before stays in the log.
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
        "cannot append to `{path}`: there is no space left; nothing was lost: this event was not recorded, every event before it is kept"
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
    /// Advice to the user.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Full { .. } => Some(MAKE_SPACE),
            Self::Gone { .. } => Some("the session cannot be continued; start a new one"),
            Self::Foreign { .. } => Some("`agent audit` shows what was changed"),
            Self::Closed { .. } => Some("open the session again; what is on disk will be checked"),
            Self::Sync(error) => error.hint(),
            _ => None,
        }
    }
}

/// Reason events are not known to be safe from a power cut.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("cannot sync `{path}` to disk; the last events may be lost if the machine fails now")]
    Disk { path: PathBuf, source: io::Error },
    #[error(
        "cannot write the last events to `{path}`: there is no space left; nothing was lost: they are kept in memory and written as soon as there is"
    )]
    Full { path: PathBuf, source: io::Error },
    #[error(
        "cannot write the last events to `{path}`; they are kept in memory and written as soon as that is possible"
    )]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot sync `{path}`: the log was removed while the session was running")]
    Gone { path: PathBuf },
    #[error(
        "cannot sync `{path}`: something else changed the log (it has {found} bytes, {expected} were written)"
    )]
    Foreign {
        path: PathBuf,
        expected: u64,
        found: u64,
    },
    #[error("the last events are not safe from a power cut, because an artifact is not")]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

impl SyncError {
    /// Advice to the user.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Full { .. } => Some(MAKE_SPACE),
            Self::Gone { .. } => Some("the session cannot be continued; start a new one"),
            Self::Foreign { .. } => Some("`agent audit` shows what was changed"),
            _ => None,
        }
    }
}

/// Reason lines did not reach the file; see [`Tail`](super::tail::Tail).
#[derive(Debug)]
pub(super) enum WriteFailure {
    Gone,
    Foreign { expected: u64, found: u64 },
    Io(io::Error),
}

impl WriteFailure {
    /// The error as seen by the event that was to be appended.
    pub(super) fn for_append(self, path: PathBuf) -> AppendError {
        match self {
            Self::Gone => AppendError::Gone { path },
            Self::Foreign { expected, found } => AppendError::Foreign {
                path,
                expected,
                found,
            },
            Self::Io(source) if is_full(&source) => AppendError::Full { path, source },
            Self::Io(source) => AppendError::Write { path, source },
        }
    }

    /// The error as seen by events that wait to be written.
    pub(super) fn for_sync(self, path: PathBuf) -> SyncError {
        match self {
            Self::Gone => SyncError::Gone { path },
            Self::Foreign { expected, found } => SyncError::Foreign {
                path,
                expected,
                found,
            },
            Self::Io(source) if is_full(&source) => SyncError::Full { path, source },
            Self::Io(source) => SyncError::Write { path, source },
        }
    }
}
