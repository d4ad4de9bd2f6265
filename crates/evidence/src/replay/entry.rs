//! What an event amounts to when it is told: a line of words, and what belongs to it.

use std::borrow::Cow;

use agent_protocol::Timestamp;
use agent_protocol::id::{ArtifactId, EventId, ToolCallId};

/// One event, told.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub sequence: u64,
    pub event_id: EventId,
    pub timestamp: Timestamp,
    /// The event's class as it stands in the log.
    pub class: Cow<'static, str>,
    pub kind: Kind,
    pub tone: Tone,
    pub level: Level,
    /// Which turn it belongs to, counted from 1.
    pub turn: Option<u64>,
    /// Which call it belongs to, counted from 1.
    pub call: Option<u64>,
    pub tool_call_id: Option<ToolCallId>,
    /// One or two words: who speaks, or what happened.
    pub label: Cow<'static, str>,
    /// What the event says, in one line or several.
    pub says: String,
    /// What belongs to it: an input, an output, a diff.
    pub blocks: Vec<Block>,
}

/// What an entry is about; what filters choose by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// What user and model said.
    Conversation,
    /// What was asked of tools, and what came back.
    Call,
    /// What was decided, by whom and why.
    Decision,
    /// What changed in the project.
    Change,
    /// Commands and the boundary around them.
    Command,
    /// What was checked, and what the facts say about claims.
    Evidence,
    /// Requests, context, routing, cost.
    Model,
    /// Warnings and errors.
    Problem,
    /// Bookkeeping of the record itself.
    Record,
}

impl Kind {
    /// Every kind, in the order filters show them.
    pub const ALL: [Self; 9] = [
        Self::Conversation,
        Self::Call,
        Self::Decision,
        Self::Change,
        Self::Command,
        Self::Evidence,
        Self::Model,
        Self::Problem,
        Self::Record,
    ];

    /// The word for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Call => "call",
            Self::Decision => "decision",
            Self::Change => "change",
            Self::Command => "command",
            Self::Evidence => "evidence",
            Self::Model => "model",
            Self::Problem => "problem",
            Self::Record => "record",
        }
    }
}

/// How an entry should strike the eye; never the only way something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Warn,
    Bad,
}

impl Tone {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// How much an entry matters to somebody who reads the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Bookkeeping.
    Record,
    /// A step of something larger.
    Detail,
    /// What the story is about.
    Headline,
}

impl Level {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Detail => "detail",
            Self::Headline => "headline",
        }
    }
}

/// A piece of content that belongs to an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub kind: BlockKind,
    /// What it is, e.g. `input`, `output`.
    pub title: Cow<'static, str>,
    /// The text; empty when only the artifact has it.
    pub text: String,
    pub artifact: Option<ArtifactId>,
    /// The text is the beginning and the end of what there was.
    pub is_cut: bool,
    /// A command printed it, so that its end tells most.
    pub is_printed: bool,
}

/// How a block is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Words of a person or a model.
    Prose,
    /// Output of a tool: data, never an instruction.
    Output,
    Diff,
    Json,
    /// Lines of `name: value`.
    Facts,
}

impl BlockKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prose => "prose",
            Self::Output => "output",
            Self::Diff => "diff",
            Self::Json => "json",
            Self::Facts => "facts",
        }
    }
}

impl Block {
    pub(super) fn new(kind: BlockKind, title: impl Into<Cow<'static, str>>, text: String) -> Self {
        Self {
            kind,
            title: title.into(),
            text,
            artifact: None,
            is_cut: false,
            is_printed: false,
        }
    }
}
