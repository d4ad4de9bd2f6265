//! Options of opening a session.

use std::path::PathBuf;
use std::sync::Arc;

use agent_engine::OnAsk;
use agent_engine::live::StreamSink;
use agent_protocol::Payload;
use agent_protocol::reply::ControlError;

use crate::Runtime;
use crate::config::Config;
use crate::error::RuntimeError;
use crate::models::Chosen;

/// Listener for work that could not be recorded, so that no event tells of it.
pub type OnFailure = Arc<dyn Fn(&ControlError) + Send + Sync>;

/// Models of a session.
#[derive(Default)]
pub enum SessionModels {
    /// No model: calls are made by commands.
    #[default]
    Without,
    /// As the settings say.
    FromSettings,
    Given(Chosen),
}

/// A session to open, and how to work in it.
#[derive(Default)]
pub struct OpenOptions {
    /// The process's own words for what it does, shown to others that want the session meanwhile.
    pub program: String,
    /// The session to resume, by a name that the resolver takes; without it a new one.
    pub session: Option<String>,
    /// The title of a new session; without one, its first input stands for it.
    pub title: Option<String>,
    /// The settings in force; without them those of the files and the environment.
    pub config: Option<Arc<Config>>,
    /// A file with further permission rules.
    pub rules: Option<PathBuf>,
    /// Directories outside the project that may be read.
    pub directories: Vec<PathBuf>,
    /// Run one tool call after the other.
    pub serial: bool,
    pub on_ask: OnAsk,
    pub models: SessionModels,
    /// Hold the inputs that an earlier run left waiting, until each is promoted.
    pub hold_queue: bool,
    /// Decisions that led here, to be recorded first.
    pub facts: Vec<Payload>,
    /// Listener for text while it streams.
    pub live: Option<Arc<dyn StreamSink>>,
    pub on_failure: Option<OnFailure>,
}

impl OpenOptions {
    /// Puts the id of the session in place of whatever names it, so that it is looked for once. Calls
    /// without a model may go on where the last calls ended.
    pub(crate) fn find_session(&mut self, runtime: &Runtime) -> Result<(), RuntimeError> {
        if let Some(asked) = &self.session {
            let found = match self.models {
                SessionModels::Without => runtime.session(asked)?,
                SessionModels::FromSettings | SessionModels::Given(_) => {
                    runtime.session_to_continue(asked)?
                }
            };
            self.session = Some(found.id().to_string());
        }
        Ok(())
    }
}
