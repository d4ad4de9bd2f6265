//! What a tool got, before anything of it may be seen, and how it can fail.

use agent_protocol::payload::tool::{ContentFormat, ReadMore, ToolData, ValidationError};
use agent_protocol::payload::{ArtifactRef, SideEffect};
use agent_protocol::{ActionHappened, Code};

use crate::journal::JournalError;
use crate::policy::CollectedOutput;

/// What the tool got. It stays in the runtime; model and screen see an observation of it.
#[derive(Debug, Default)]
pub struct RawResult {
    /// `ok`, or how a result differs from success: `file_unchanged`, `exit_nonzero`.
    pub code: Code,
    pub action_happened: ActionHappened,
    pub data: ToolData,
    /// The text of the result, in the order it should be read.
    pub bodies: Vec<Body>,
    /// Content the tool itself left out because the call's own limits said so.
    pub omission: Option<Omission>,
    pub side_effects: Vec<SideEffect>,
    /// Evidence the tool kept: diffs, images, full outputs.
    pub artifacts: Vec<ArtifactRef>,
    /// What held a process, in one word or two, e.g. `landlock full`.
    pub sandbox: Option<String>,
}

impl RawResult {
    /// A success; reading tools set `action_happened` to no.
    #[must_use]
    pub fn ok(action_happened: ActionHappened) -> Self {
        Self {
            code: Code::Ok,
            action_happened,
            ..Self::default()
        }
    }
}

/// A piece of content from outside. All of it is untrusted.
#[derive(Debug)]
pub enum Body {
    /// Complete and small enough to hold; the result policy bounds it and keeps the whole as an
    /// artifact where it cuts.
    Whole {
        /// What it is, e.g. `file src/a.rs`.
        source: String,
        format: ContentFormat,
        bytes: Vec<u8>,
    },
    /// Output that went through the streaming collector.
    Collected {
        source: String,
        output: CollectedOutput,
    },
    /// An image or other content that is shown by reference.
    Artifact {
        source: String,
        format: ContentFormat,
        media_type: String,
        artifact: ArtifactRef,
    },
}

impl Body {
    /// Text from `source`.
    pub fn text(source: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self::Whole {
            source: source.into(),
            format: ContentFormat::Text,
            bytes: text.into(),
        }
    }

    /// A unified diff.
    pub fn diff(source: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self::Whole {
            source: source.into(),
            format: ContentFormat::Diff,
            bytes: text.into(),
        }
    }
}

/// Content left out by the tool, and how to see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Omission {
    pub bytes: u64,
    pub read_more: Option<ReadMore>,
}

/// A raw result in words: facts, no advice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Normalized {
    /// A few words for one line of the screen, e.g. `read src/a.rs`.
    pub title: String,
    /// One or two sentences of fact; the first thing model and user read.
    pub summary: String,
    /// More facts for the model, after the summary and before the bodies.
    pub detail: String,
    /// What the user's screen says instead of the summary, where it differs.
    pub user_text: Option<String>,
}

/// Why an input cannot be carried out as things stand. Nothing happened.
#[derive(Debug, Default)]
pub struct ValidationFailure {
    pub code: Code,
    /// Names the thing and what is wrong with it.
    pub message: String,
    pub errors: Vec<ValidationError>,
    /// Facts from outside that help, e.g. the nearest region of a file.
    pub bodies: Vec<Body>,
    pub read_more: Option<ReadMore>,
}

impl ValidationFailure {
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            ..Self::default()
        }
    }

    /// The same, pointing at a place of the input.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>, message: impl Into<String>) -> Self {
        self.errors.push(ValidationError {
            path: path.into(),
            message: message.into(),
        });
        self
    }

    /// The same, with content that helps.
    #[must_use]
    pub fn with_body(mut self, body: Body) -> Self {
        self.bodies.push(body);
        self
    }
}

/// Why a started call has no result.
#[derive(Debug, Default)]
pub struct ExecutionFailure {
    pub code: Code,
    pub message: String,
    pub action_happened: ActionHappened,
    pub data: ToolData,
    /// What came out until then.
    pub bodies: Vec<Body>,
    pub side_effects: Vec<SideEffect>,
    pub artifacts: Vec<ArtifactRef>,
    pub sandbox: Option<String>,
    /// True if the session could not keep what belongs to the call: it failed as it was written back.
    pub not_stored: bool,
}

impl ExecutionFailure {
    /// A failure with the facts its code has by definition.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            action_happened: code.facts().action_happened,
            ..Self::default()
        }
    }

    /// The same, knowing whether anything changed.
    #[must_use]
    pub fn having(mut self, action_happened: ActionHappened) -> Self {
        self.action_happened = action_happened;
        self
    }
}

/// So that executors can use `?`: evidence that cannot be kept ends the call.
impl From<JournalError> for ExecutionFailure {
    fn from(error: JournalError) -> Self {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self {
            not_stored: true,
            ..Self::new(Code::IoError, message)
        }
    }
}
