//! A session, and the one way to change it: [`Session::handle`] takes every control command, from
//! whatever peer, and gives a typed reply. What a command did is in the log before the reply is given,
//! and what it started has its id in the reply; [`Session::subscribe`] tells both event by event.
//!
//! A `LiveSession` has tools, an authority and, where models were given, an engine
//! that works through a queue on a thread of its own. A `SessionAtRest`
//! has the log alone: enough to answer a question and to put files back.

mod at_rest;
mod attach;
mod calls;
mod guard;
mod live;
mod open;
mod options;
mod reading;
mod report;
mod undo;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use agent_log::{Appended, SessionDirectory, SessionWriter};
use agent_protocol::command::{ControlCommand, Peer};
use agent_protocol::id::{ArtifactId, ProcessId, SessionId};
use agent_protocol::payload::conversation::SessionCreated;
use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::reply::{ControlError, ControlErrorCode, Reply};
use agent_protocol::status::Mode;
use sha2::{Digest as _, Sha256};

use crate::Runtime;
use crate::error::{ErrorKind, RuntimeError, chain};
use at_rest::SessionAtRest;
use live::LiveSession;

pub use open::verification_patterns;
pub(crate) use open::{open_parts, registry};
pub use options::{OnFailure, OpenOptions, SessionModels};
pub use report::TurnReport;

/// The first event of a session of this project.
#[must_use]
pub fn created(runtime: &Runtime, mode: Mode) -> SessionCreated {
    use std::os::unix::ffi::OsStrExt as _;
    let root = runtime.project.root().as_os_str().as_bytes();
    let digest: [u8; 32] = Sha256::digest(root).into();
    SessionCreated {
        project_root_hash: ArtifactId::from_digest(&digest).to_string(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: Some(mode),
        ..SessionCreated::default()
    }
}

/// An open session of a project.
pub struct Session(Kind);

enum Kind {
    Live(Box<LiveSession>),
    AtRest(Box<SessionAtRest>),
}

/// A command that was taken, and its reply.
#[must_use = "what became of the command is in its reply"]
pub enum Pending {
    /// It is carried out.
    Ready(Result<Reply, ControlError>),
    /// It waits for its turn in the queue of work.
    Later(Receiver<Result<Reply, ControlError>>),
}

impl Pending {
    /// Waits for the reply.
    ///
    /// # Errors
    /// When the command could not be carried out.
    pub fn wait(self) -> Result<Reply, ControlError> {
        match self {
            Self::Ready(reply) => reply,
            Self::Later(reply) => reply.recv().unwrap_or_else(|_| Err(ended())),
        }
    }
}

impl Runtime {
    /// Opens a session to work in it: a new one, or the one that the options name.
    ///
    /// # Errors
    /// When it cannot be opened, or the models cannot be chosen.
    pub fn open(&self, options: OpenOptions) -> Result<Session, RuntimeError> {
        let live = LiveSession::open(self, options)?;
        Ok(Session(Kind::Live(Box::new(live))))
    }

    /// Opens a session for answers to its questions and for undo, without anything that could work in
    /// it. Nothing is recorded by opening and closing it.
    ///
    /// # Errors
    /// When it cannot be written, because another process holds it for one.
    pub fn open_at_rest(
        &self,
        session: &SessionDirectory,
        program: &str,
    ) -> Result<Session, RuntimeError> {
        let at_rest = SessionAtRest::open(self, session, program)?;
        Ok(Session(Kind::AtRest(Box::new(at_rest))))
    }
}

impl Session {
    /// Carries out a command on behalf of `peer` and waits for its reply. An input is accepted by this
    /// and worked on by the session's own thread; the events tell how.
    ///
    /// # Errors
    /// When it cannot be carried out; nothing has happened then, unless the error says so.
    pub fn handle(&self, command: ControlCommand, peer: &Peer) -> Result<Reply, ControlError> {
        self.dispatch(command, peer).wait()
    }

    /// Takes a command like [`Session::handle`] and does not wait for what has to wait for other work.
    /// Commands of one sender are carried out in the order they are dispatched.
    pub fn dispatch(&self, command: ControlCommand, peer: &Peer) -> Pending {
        match &self.0 {
            Kind::Live(live) => live.dispatch(command, peer),
            Kind::AtRest(at_rest) => Pending::Ready(at_rest.handle(command)),
        }
    }

    /// Calls `listener` with every event from now on, in order, on the thread that wrote it. A listener
    /// that returns false is not called again.
    pub fn subscribe(&self, listener: impl FnMut(&Arc<Appended>) -> bool + Send + 'static) {
        self.writer().subscribe(listener);
    }

    /// Waits until the work is done that was there when this was called, and gives the facts of the
    /// last turn of this run.
    ///
    /// # Errors
    /// When the log could not be written meanwhile, or nothing works in this session.
    pub fn wait(&self) -> Result<TurnReport, ControlError> {
        self.live()
            .map_or_else(|| Err(no_engine()), LiveSession::wait)
    }

    /// Ends the session: what runs is stopped, background commands are ended, the end is recorded. Gives
    /// the background commands that it ended. Closing twice is closing once.
    ///
    /// # Errors
    /// When the end cannot be recorded.
    pub fn close(&self) -> Result<Vec<(ProcessId, String)>, RuntimeError> {
        self.live().map_or(Ok(Vec::new()), LiveSession::close)
    }

    #[must_use]
    pub fn id(&self) -> &SessionId {
        self.writer().session_id()
    }

    /// The session's directory, for reading.
    #[must_use]
    pub fn directory(&self) -> &SessionDirectory {
        match &self.0 {
            Kind::Live(live) => live.directory(),
            Kind::AtRest(at_rest) => at_rest.directory(),
        }
    }

    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.writer().log_path()
    }

    /// The first event that this run wrote or will write.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.live().map_or(0, LiveSession::first_sequence)
    }

    /// The mode in force.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        self.live().map(LiveSession::mode)
    }

    /// The confinement that commands get.
    #[must_use]
    pub fn sandbox(&self) -> Option<SandboxStatus> {
        self.live().map(LiveSession::sandbox)
    }

    /// The permission rules in force, one per line.
    #[must_use]
    pub fn rules(&self) -> String {
        self.live().map(LiveSession::rules).unwrap_or_default()
    }

    /// The directories outside the project that may be read.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        self.live()
            .map(LiveSession::directories)
            .unwrap_or_default()
    }

    /// What opening has to say and was not worth failing for.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.live().map_or(&[], LiveSession::notes)
    }

    fn live(&self) -> Option<&LiveSession> {
        match &self.0 {
            Kind::Live(live) => Some(live),
            Kind::AtRest(_) => None,
        }
    }

    fn writer(&self) -> &SessionWriter {
        match &self.0 {
            Kind::Live(live) => live.writer(),
            Kind::AtRest(at_rest) => at_rest.writer(),
        }
    }
}

/// Guard that ends the session when dropped; an end that cannot be recorded is repaired on resume.
impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn ended() -> ControlError {
    ControlError::new(ControlErrorCode::SessionEnded, "the session has ended")
}

fn unavailable(reason: &str) -> ControlError {
    ControlError::new(ControlErrorCode::Unavailable, reason)
}

fn no_engine() -> ControlError {
    unavailable("this session was opened without a model")
}

/// The error of work that was tried and failed.
fn failed(error: &(dyn std::error::Error + 'static)) -> ControlError {
    let mut hints = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        hints.extend(agent_log::hint(error).map(str::to_owned));
        cause = error.source();
    }
    hints.dedup();
    ControlError {
        code: ControlErrorCode::Failed,
        message: chain(error),
        hints,
    }
}

/// The same for an error that says how far the work had come.
fn refused(error: &RuntimeError) -> ControlError {
    let code = match error.kind() {
        ErrorKind::NotStarted => ControlErrorCode::NotStarted,
        ErrorKind::Failed => ControlErrorCode::Failed,
    };
    let known = failed(error);
    ControlError {
        code,
        hints: [error.hints(), &known.hints].concat(),
        ..known
    }
}
