//! Lease: the right to write a session. The kernel's lock is what counts, so that a killed holder
//! blocks nobody; the text beside it says who it is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use agent_protocol::Timestamp;
use rustix::fs::FlockOperation;
use serde_json::{Value, json};

use crate::place::{Place, PlaceError};

const LEASE: &str = "lease";

/// Holder of a session, as far as it says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    /// The machine, so that a lease on a shared disk is not mistaken for a local one.
    pub host: String,
    /// Its command, e.g. `agent run`.
    pub program: String,
    pub since: Option<Timestamp>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = if self.program.is_empty() {
            "a process"
        } else {
            &self.program
        };
        write!(f, "{program} (pid {}", self.pid)?;
        if !self.host.is_empty() {
            write!(f, " on {}", self.host)?;
        }
        if let Some(since) = self.since {
            write!(f, ", since {since}")?;
        }
        f.write_str(")")
    }
}

/// Reason the lease was not given.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("session {session} is being written by {holder}; nothing was changed")]
    Held { session: String, holder: Holder },
    #[error("cannot lock `{path}`; nothing was changed")]
    Lock { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// The right to write a session. Given back when dropped; a killed holder loses it at once.
#[derive(Debug)]
pub(crate) struct Lease {
    file: File,
}

impl Lease {
    /// Number of tries for the lock: a process that merely looks at a lease holds it for a moment.
    const TRIES: u32 = 5;

    /// Takes the lease. Also returns who had it last and died without releasing it.
    pub(crate) fn take(
        place: &Place,
        session: &str,
        holder: &Holder,
    ) -> Result<(Self, Option<Holder>), LeaseError> {
        let file = place.read_write(LEASE)?;
        let lock_error = |source| LeaseError::Lock {
            path: place.path().join(LEASE),
            source,
        };
        for attempt in 1.. {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if attempt < Self::TRIES => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(LeaseError::Held {
                        session: session.to_owned(),
                        holder: read_holder(&file).unwrap_or_default(),
                    });
                }
                Err(error) => return Err(lock_error(error.into())),
            }
        }
        let stale = read_holder(&file);
        write_holder(&file, Some(holder)).map_err(lock_error)?;
        Ok((Self { file }, stale))
    }

    /// Says whether somebody holds the lease now, without taking it.
    pub(crate) fn holder(place: &Place) -> Option<Holder> {
        let file = place.read(LEASE).ok()?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => Some(read_holder(&file).unwrap_or_default()),
            _ => None,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // An empty file says that the holder left in good order; the lock ends with the handle.
        let _ = write_holder(&self.file, None);
    }
}

fn read_holder(mut file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(4096).read_to_string(&mut text).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let word = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    Some(Holder {
        pid: u32::try_from(value["pid"].as_u64()?).ok()?,
        host: word("host"),
        program: word("program"),
        since: Timestamp::parse(&word("since")),
    })
}

fn write_holder(mut file: &File, holder: Option<&Holder>) -> io::Result<()> {
    let text = match holder {
        None => String::new(),
        Some(holder) => json!({
            "pid": holder.pid,
            "host": holder.host,
            "program": holder.program,
            "since": holder.since.map(|since| since.to_string()),
        })
        .to_string(),
    };
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())
}
