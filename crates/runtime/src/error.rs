//! The error of everything the runtime does: causes, advice, and if anything was started.

use std::error::Error;
use std::fmt;

/// How far the work had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request, the settings or the session do not allow it; nothing was started.
    NotStarted,
    /// The work was tried and failed.
    Failed,
}

/// Error of the runtime. Its message and its sources are one chain; advice is apart.
#[derive(Debug)]
pub struct RuntimeError {
    kind: ErrorKind,
    cause: Box<dyn Error + Send + Sync>,
    hints: Vec<String>,
}

impl RuntimeError {
    /// Error for something that cannot be done as it was asked for; nothing was started.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::NotStarted,
            cause: message.into().into(),
            hints: Vec::new(),
        }
    }

    /// Error for work that was tried and failed.
    #[must_use]
    pub fn failed(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind: ErrorKind::Failed,
            cause: cause.into(),
            hints: Vec::new(),
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets how far the work had come.
    #[must_use]
    pub fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The advice added here; that of a cause is the cause's own.
    #[must_use]
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// The error as it was reported, with the rest of its chain behind it.
    #[must_use]
    pub fn into_cause(self) -> Box<dyn Error + Send + Sync> {
        self.cause
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for RuntimeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

/// The message of `error` and of everything behind it, joined by colons.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// An error with the work that it stopped.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct While {
    doing: String,
    source: Box<dyn Error + Send + Sync>,
}

impl From<While> for RuntimeError {
    fn from(error: While) -> Self {
        Self::failed(error)
    }
}

/// Names the work that an error stopped.
pub(crate) trait Context<T> {
    fn context(self, doing: impl Into<String>) -> Result<T, While>;

    fn with_context(self, doing: impl FnOnce() -> String) -> Result<T, While>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Context<T> for Result<T, E> {
    fn context(self, doing: impl Into<String>) -> Result<T, While> {
        self.with_context(|| doing.into())
    }

    fn with_context(self, doing: impl FnOnce() -> String) -> Result<T, While> {
        self.map_err(|error| While {
            doing: doing(),
            source: error.into(),
        })
    }
}

/// Turns the error of a part into a [`RuntimeError`].
pub(crate) trait OrFail<T> {
    /// The work was tried and failed.
    fn or_fail(self) -> Result<T, RuntimeError>;

    /// Nothing was started.
    fn or_usage(self) -> Result<T, RuntimeError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrFail<T> for Result<T, E> {
    fn or_fail(self) -> Result<T, RuntimeError> {
        self.map_err(|error| RuntimeError::failed(error))
    }

    fn or_usage(self) -> Result<T, RuntimeError> {
        let not_started = |error: RuntimeError| error.of_kind(ErrorKind::NotStarted);
        self.or_fail().map_err(not_started)
    }
}
