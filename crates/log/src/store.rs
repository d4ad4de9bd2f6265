//! The `.agent` directory: where sessions are kept, found and measured.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use agent_protocol::id::SessionId;
use agent_protocol::payload::conversation::{NO_MODEL, SessionCreated, TurnOutcome};
use agent_protocol::status::Status;
use agent_protocol::{Event, Payload, Timestamp};

use crate::LOG;
use crate::artifact::{ARTIFACTS, ArtifactError, ArtifactStore};
use crate::index::LogIndex;
use crate::lease::{Holder, Lease};
use crate::open::{self, Listener, OpenError, Opened, SessionEnv};
use crate::place::{Place, PlaceError};
use crate::reader::{ChainReport, LogReader, ReadError, verify_chain};
use crate::writer::SessionWriter;
use agent_text::brief;

/// The name of our directory in a project.
pub const AGENT_DIRECTORY: &str = ".agent";

/// The directory, in an evidence pack, of the masked copies of some artifacts.
pub const MASKED_COPIES: &str = "masked";

const SESSIONS: &str = "sessions";
const GITIGNORE: &str = ".gitignore";
const GITIGNORE_TEXT: &str = "\
# Sessions and personal settings stay on this machine; config.toml may be shared.
/sessions/
/exports/
/config.local.toml
/.gitignore
";
/// As earlier versions wrote it.
const GITIGNORE_BEFORE: &str = "\
# Sessions and personal settings stay on this machine; config.toml may be shared.
/sessions/
/config.local.toml
";

/// Reason the store could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The directory the project's files are in: the nearest ancestor with `.agent` or `.git`, else
/// `start` itself.
#[must_use]
pub fn project_root(start: &Path) -> PathBuf {
    start
        .ancestors()
        .find(|directory| {
            [AGENT_DIRECTORY, ".git"]
                .iter()
                .any(|name| directory.join(name).symlink_metadata().is_ok())
        })
        .unwrap_or(start)
        .to_owned()
}

/// The sessions of one project.
#[derive(Debug, Clone)]
pub struct SessionStore {
    directory: PathBuf,
}

impl SessionStore {
    /// The store of the project at `project_root`. Nothing is made until a session is.
    #[must_use]
    pub fn of_project(project_root: &Path) -> Self {
        Self {
            directory: project_root.join(AGENT_DIRECTORY),
        }
    }

    /// The `.agent` directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a session whose first event, `created`, is on disk when this returns.
    ///
    /// # Errors
    /// When the directories or the log could not be made or written.
    pub fn create(
        &self,
        created: SessionCreated,
        env: SessionEnv,
    ) -> Result<SessionWriter, OpenError> {
        let sessions = self.prepare()?;
        let session_id: SessionId = env.mint.mint();
        let place = sessions.create_child(session_id.as_str())?;
        let handles = sessions
            .try_clone()
            .and_then(|sessions| Ok((sessions, place.try_clone()?)));
        let begun = handles
            .map_err(OpenError::from)
            .and_then(|(sessions, place)| {
                open::create(sessions, place, session_id.clone(), created, env)
            });
        begun.inspect_err(|_| {
            // A directory without a log would only be in the way. What cannot be removed stays.
            let _ = open::abandon(&place);
            let _ = sessions.remove_directory(session_id.as_str());
        })
    }

    /// All sessions, the one written last first.
    ///
    /// # Errors
    /// When the directory cannot be read. A project without sessions has none.
    pub fn list(&self) -> Result<Vec<SessionDirectory>, PlaceError> {
        let sessions = match Place::open(&self.directory).and_then(|place| place.child(SESSIONS)) {
            Ok(sessions) => sessions,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in sessions.entries()? {
            let Ok(id) = entry.name.parse::<SessionId>() else {
                continue;
            };
            if !entry.is_directory {
                continue;
            }
            let log = sessions
                .child(&entry.name)
                .and_then(|place| place.entries())
                .ok()
                .and_then(|entries| entries.into_iter().find(|entry| entry.name == LOG));
            found.push(SessionDirectory {
                path: sessions.path().join(&entry.name),
                id,
                log_bytes: log.as_ref().map(|log| log.bytes),
                modified: Timestamp::from_unix_millis(
                    log.map_or(entry.modified_millis, |log| log.modified_millis),
                ),
            });
        }
        found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| b.id.cmp(&a.id)));
        Ok(found)
    }

    /// The directory that sessions are kept in.
    pub(crate) fn sessions_directory(&self) -> PathBuf {
        self.directory.join(SESSIONS)
    }

    /// Makes what is missing of the layout.
    fn prepare(&self) -> Result<Place, PlaceError> {
        use std::io::{Read as _, Write as _};
        let agent = Place::open_or_create(&self.directory)?;
        match agent.create_new(GITIGNORE) {
            Ok(mut file) => {
                file.write_all(GITIGNORE_TEXT.as_bytes())
                    .map_err(|source| PlaceError::Io {
                        operation: "write",
                        path: agent.path().join(GITIGNORE),
                        source,
                    })?;
            }
            // The user's own file stays as it is; one of ours is brought up to date.
            Err(PlaceError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::AlreadyExists =>
            {
                let mut text = String::new();
                let read = agent.read(GITIGNORE).ok().and_then(|file| {
                    let mut file = file.take(GITIGNORE_TEXT.len() as u64 + 1);
                    file.read_to_string(&mut text).ok()
                });
                if read.is_some() && text == GITIGNORE_BEFORE {
                    agent.replace_unsynced(GITIGNORE, GITIGNORE_TEXT.as_bytes())?;
                }
            }
            Err(error) => return Err(error),
        }
        agent.child_or_create(SESSIONS)
    }
}

/// One session on disk.
#[derive(Debug, Clone)]
pub struct SessionDirectory {
    id: SessionId,
    path: PathBuf,
    log_bytes: Option<u64>,
    modified: Timestamp,
}

/// The first and last thing known of a session, without reading all of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionPreview {
    pub created_at: Option<Timestamp>,
    pub last_event_at: Option<Timestamp>,
    pub title: Option<String>,
    /// The first words of the first input, as far as the beginning shows one.
    pub first_input: Option<String>,
    pub created: Option<SessionCreated>,
    /// Sequence of the last event, so that this plus one is their number.
    pub last_sequence: Option<u64>,
    /// The class of the last event.
    pub last_type: Option<String>,
    /// True if a model was asked for something, as far as the beginning shows it.
    pub asks_model: bool,
    /// State of the last turn, as far as the end shows it.
    pub last_turn: Option<LastTurn>,
}

/// State of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastTurn {
    /// It is at work, or the program died in the middle of it.
    Open,
    /// A question waits for its answer.
    Waiting,
    Completed,
    /// It ended with a check that failed or is stale.
    Degraded,
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl SessionPreview {
    /// The title, or the first line of the first input in its place.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        let named = self.title.as_deref().or(self.first_input.as_deref())?;
        let line = named.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.to_owned())
    }

    /// True if there is something to continue. What cannot be read is not passed over.
    #[must_use]
    pub fn is_conversation(&self) -> bool {
        match &self.created {
            Some(created) => self.asks_model || created.parent.is_some(),
            None => true,
        }
    }
}

impl SessionDirectory {
    /// A session directory that was copied elsewhere; its name is its id.
    ///
    /// # Errors
    /// When it is not a directory or not named like a session.
    pub fn at(path: &Path) -> Result<Self, PlaceError> {
        let place = Place::open(path)?;
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let id = name.parse().map_err(|_| PlaceError::WrongKind {
            path: path.to_owned(),
            expected: "named like a session",
        })?;
        let log = place.entries()?.into_iter().find(|entry| entry.name == LOG);
        Ok(Self {
            id,
            path: path.to_owned(),
            log_bytes: log.as_ref().map(|log| log.bytes),
            modified: Timestamp::from_unix_millis(log.map_or(0, |log| log.modified_millis)),
        })
    }

    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// The size of the log; missing when there is none.
    #[must_use]
    pub fn log_bytes(&self) -> Option<u64> {
        self.log_bytes
    }

    /// When the log was last written.
    #[must_use]
    pub fn modified(&self) -> Timestamp {
        self.modified
    }

    /// The present writer of the session, if any.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        Lease::holder(&self.place().ok()?)
    }

    /// Opens the session for writing; see [`Opened`].
    ///
    /// # Errors
    /// When somebody else writes it, or its log is damaged.
    pub fn open_writer(&self, env: SessionEnv) -> Result<Opened, OpenError> {
        let nobody = Listener {
            wants: &|_| false,
            tell: &mut |_| {},
        };
        self.open_writer_telling(env, nobody)
    }

    /// Opens the session for writing, and tells the log meanwhile: it has to be read anyway.
    ///
    /// # Errors
    /// As [`SessionDirectory::open_writer`].
    pub fn open_writer_telling(
        &self,
        env: SessionEnv,
        listener: Listener<'_>,
    ) -> Result<Opened, OpenError> {
        open::open(&self.place()?, self.id.clone(), env, listener)
    }

    /// Reads the log event by event. Changes nothing.
    ///
    /// # Errors
    /// When the log cannot be opened.
    pub fn reader(&self) -> Result<LogReader, PlaceError> {
        let file = self.place()?.read(LOG)?;
        Ok(LogReader::new(file, self.id.clone(), self.log_path()))
    }

    /// Finds the events of the log, so that any of them can be read by its place. Changes nothing.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn index(&self) -> Result<LogIndex, StoreError> {
        let file = self.place()?.read(LOG)?;
        Ok(LogIndex::of(file, self.log_path())?)
    }

    /// The log as a file, for copying it byte by byte.
    ///
    /// # Errors
    /// When the log cannot be opened.
    pub fn open_log(&self) -> Result<std::fs::File, PlaceError> {
        self.place()?.read(LOG)
    }

    /// Follows the chain of the whole log without parsing it.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn verify_chain(&self) -> Result<ChainReport, OpenError> {
        let file = self.open_log()?;
        let report = verify_chain(file, &self.id).map_err(|source| ReadError {
            path: self.log_path(),
            source,
        })?;
        Ok(report)
    }

    /// The artifacts of the session. Changes nothing.
    ///
    /// # Errors
    /// When their directory cannot be opened.
    pub fn artifacts(&self) -> Result<ArtifactStore, PlaceError> {
        Ok(ArtifactStore::new(self.place()?.child(ARTIFACTS)?))
    }

    /// The masked copies that an evidence pack has in place of some artifacts, each under the name
    /// of its original.
    ///
    /// # Errors
    /// When there are none.
    pub fn masked_copies(&self) -> Result<ArtifactStore, PlaceError> {
        Ok(ArtifactStore::new(self.place()?.child(MASKED_COPIES)?))
    }

    /// Looks at the beginning and the end of the log only.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn preview(&self) -> Result<SessionPreview, StoreError> {
        use std::io::{Seek as _, SeekFrom};
        const LOOK: u64 = 2 * (agent_protocol::MAX_LINE_BYTES as u64 + 1);
        let mut file = self.place()?.read(LOG)?;
        let io_error = |source| PlaceError::Io {
            operation: "read",
            path: self.log_path(),
            source,
        };
        let mut preview = SessionPreview::default();
        let mut beginning = Vec::new();
        (&file)
            .take(LOOK)
            .read_to_end(&mut beginning)
            .map_err(io_error)?;
        let mut events = events_in(&beginning);
        if let Some(first) = events.next() {
            preview.created_at = Some(first.timestamp);
            if let Payload::SessionCreated(created) = first.payload {
                preview.title.clone_from(&created.title);
                preview.created = Some(created);
            }
        }
        for event in events {
            match event.payload {
                Payload::TurnSubmitted(submitted) => {
                    let text = submitted.text.map(|text| brief(&text, 200));
                    preview.first_input = preview.first_input.or(text);
                    preview.asks_model = true;
                }
                // Calls that a program made are turns too.
                Payload::TurnStarted(started) if started.model == NO_MODEL => {
                    preview.asks_model = false;
                }
                Payload::TurnStarted(_) => break,
                _ => {}
            }
        }
        let size = file.seek(SeekFrom::End(0)).map_err(io_error)?;
        // What lies between is not looked at, and may hold a request.
        preview.asks_model |= size > LOOK;
        file.seek(SeekFrom::Start(size.saturating_sub(LOOK)))
            .map_err(io_error)?;
        let mut end = Vec::new();
        (&file).take(LOOK).read_to_end(&mut end).map_err(io_error)?;
        for event in events_in(&end) {
            preview.last_event_at = Some(event.timestamp);
            preview.last_sequence = Some(event.sequence);
            preview.last_type = Some(event.payload.type_name().to_owned());
            preview.last_turn = LastTurn::after(preview.last_turn, &event.payload);
            if let Payload::SessionUpdated(updated) = event.payload
                && updated.changed.title.is_some()
            {
                preview.title = updated.changed.title;
            }
        }
        Ok(preview)
    }

    /// True if there is something to continue in it, and not only single calls.
    #[must_use]
    pub fn is_conversation(&self) -> bool {
        self.preview()
            .map_or(true, |preview| preview.is_conversation())
    }

    /// Disk usage of the session.
    ///
    /// # Errors
    /// When its directories cannot be read.
    pub fn size(&self) -> Result<SessionSize, StoreError> {
        let place = self.place()?;
        let mut size = SessionSize::default();
        for entry in place.entries()? {
            if !entry.is_directory {
                if entry.name == LOG {
                    size.log_bytes = entry.bytes;
                }
                continue;
            }
            let child = place.child(&entry.name)?;
            for inner in child.entries()? {
                if entry.name == ARTIFACTS {
                    size.artifact_bytes += inner.bytes;
                    size.artifact_count += 1;
                } else {
                    size.cache_bytes += inner.bytes;
                }
            }
        }
        Ok(size)
    }

    /// True if it stands where sessions are kept, and was not copied elsewhere.
    pub fn is_in_store(&self) -> bool {
        let sessions = self.path.parent().filter(|path| path.ends_with(SESSIONS));
        sessions
            .and_then(Path::parent)
            .is_some_and(|agent| agent.ends_with(AGENT_DIRECTORY))
    }

    pub fn place(&self) -> Result<Place, PlaceError> {
        // From `.agent` on, every step is taken without following links.
        let sessions = self.path.parent().filter(|path| path.ends_with(SESSIONS));
        match sessions.and_then(Path::parent) {
            Some(agent) if agent.ends_with(AGENT_DIRECTORY) => {
                Place::open(agent)?.child(SESSIONS)?.child(self.id.as_str())
            }
            _ => Place::open(&self.path),
        }
    }
}

impl LastTurn {
    fn after(before: Option<Self>, payload: &Payload) -> Option<Self> {
        Some(match payload {
            Payload::TurnSubmitted(_) | Payload::TurnStarted(_) => Self::Open,
            Payload::ActionRequired(_) => Self::Waiting,
            Payload::ActionResolved(_) if before == Some(Self::Waiting) => Self::Open,
            Payload::TurnCompleted(completed) => match completed.outcome {
                TurnOutcome::Completed => Self::Completed,
                TurnOutcome::Degraded => Self::Degraded,
            },
            Payload::TurnFailed(failed) => match failed.status {
                Status::Cancelled => Self::Cancelled,
                Status::WaitingPermission => Self::Waiting,
                _ => Self::Failed,
            },
            _ => return before,
        })
    }
}

/// Disk usage of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionSize {
    pub log_bytes: u64,
    pub artifact_bytes: u64,
    pub artifact_count: u64,
    pub cache_bytes: u64,
}

impl SessionSize {
    #[must_use]
    pub fn total(self) -> u64 {
        self.log_bytes + self.artifact_bytes + self.cache_bytes
    }
}

/// The events among the whole lines of a piece of a log.
fn events_in(piece: &[u8]) -> impl Iterator<Item = Event> + '_ {
    piece
        .split_inclusive(|byte| *byte == b'\n')
        .filter_map(|line| Event::from_line(line.strip_suffix(b"\n")?).ok())
}
