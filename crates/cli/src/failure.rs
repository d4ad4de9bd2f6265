//! A command that could not do its work: an error chain, an exit code and perhaps advice.

use std::io;

use agent_protocol::reply::{ControlError, ControlErrorCode};
use agent_runtime::{ErrorKind, RuntimeError};

use crate::exit::Exit;

/// Why a command ended without doing what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
    /// What the user can do about it; never a part of the error itself.
    pub(crate) hints: Vec<String>,
}

impl Failure {
    /// The command line or the configuration is wrong and nothing was started.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            error: anyhow::Error::msg(message.into()),
            hints: Vec::new(),
        }
    }

    /// Adds advice.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Ends with this code instead.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// All advice there is: ours, and that of the part which failed.
    pub(crate) fn advice(&self) -> Vec<&str> {
        let mut advice: Vec<&str> = self.hints.iter().map(String::as_str).collect();
        let of_cause = self.error.chain().find_map(agent_log::hint);
        advice.extend(of_cause.filter(|hint| !self.hints.iter().any(|known| known == hint)));
        advice
    }

    /// The error with its causes, and the advice, as one text.
    pub(crate) fn in_words(&self) -> String {
        let advice = self.advice().into_iter().map(str::to_owned);
        let error = format!("{:#}", self.error);
        std::iter::once(error)
            .chain(advice)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Whether the only thing that went wrong is that nobody reads our output any more.
    pub(crate) fn is_closed_output(&self) -> bool {
        self.error.chain().any(|cause| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        })
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            exit: Exit::Failed,
            error,
            hints: Vec::new(),
        }
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        let exit = match error.kind() {
            ErrorKind::NotStarted => Exit::Usage,
            ErrorKind::Failed => Exit::Failed,
        };
        let hints = error.hints().to_vec();
        Self {
            exit,
            error: anyhow::Error::from_boxed(error.into_cause()),
            hints,
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let exit = match error.code {
            ControlErrorCode::Failed | ControlErrorCode::SessionEnded => Exit::Failed,
            _ => Exit::Usage,
        };
        Self {
            exit,
            hints: error.hints.clone(),
            error: error.into(),
        }
    }
}

/// Turns the error of a library into a [`Failure`].
pub(crate) trait OrFail<T> {
    /// The work was tried and failed.
    fn or_fail(self) -> Result<T, Failure>;

    /// Nothing was started.
    fn or_usage(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::from(error.into()))
    }

    fn or_usage(self) -> Result<T, Failure> {
        self.or_fail().map_err(|failure| failure.exit(Exit::Usage))
    }
}
