//! Events of a model's answer, in one vocabulary for all dialects.
//!
//! Every decoder keeps to this order, so that the same conversation gives the same events through
//! any wire format: `Started`, then deltas as they come, then `ToolCallCompleted` for each call in
//! the order the calls began, then at most one `Usage`, then exactly one `Stopped` or `Error`.
//! Calls are completed only when the whole response is known to have ended well, so a stream that
//! is cut can be asked for again without anything having been run.

use crate::conversation::{Opaque, ToolCall};
use crate::cost::Cost;
use crate::error::ModelError;

/// One thing the model said.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The response began. A second one means that the server started over: what came before it
    /// in this response is void.
    Started {
        /// The id in the response body.
        response_id: Option<String>,
        /// The model that answers, as the server names it.
        model: Option<String>,
    },
    /// More text for the user.
    TextDelta {
        /// The text.
        text: String,
    },
    /// More thinking.
    ReasoningDelta {
        /// The text.
        text: String,
    },
    /// Closes the current block of thinking with data that has to be sent back.
    ReasoningOpaque {
        /// The data.
        opaque: Opaque,
    },
    /// A tool call began.
    ToolCallStarted {
        /// The ordinal of the call in this response, from 0.
        index: usize,
        /// The provider's id.
        provider_call_id: String,
        /// The name of the tool.
        name: String,
    },
    /// More of a call's arguments.
    ToolCallDelta {
        /// Index of the call.
        index: usize,
        /// Raw text of the arguments.
        text: String,
    },
    /// A tool call is whole, or as whole as it will get: see its `arguments`.
    ToolCallCompleted {
        /// Index of the call.
        index: usize,
        /// The call.
        call: ToolCall,
    },
    /// The model declines, in words of its own or of its provider.
    Refusal {
        /// The text.
        text: String,
    },
    /// The server sent something we asked nothing about (a block of a server-side tool, say).
    Skipped {
        /// The server's name of it.
        kind: String,
    },
    /// Token usage of the response.
    Usage(Usage),
    /// The response ended as the protocol says it should.
    Stopped {
        /// Reason.
        reason: StopReason,
    },
    /// The response ended in an error.
    Error(ModelError),
}

/// Tokens of one response. `None` means the server did not say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// All input tokens, cached ones included.
    pub input: Option<u64>,
    /// All output tokens, reasoning included.
    pub output: Option<u64>,
    /// Input tokens read from a cache.
    pub cached_input: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// Output tokens spent on reasoning.
    pub reasoning: Option<u64>,
    /// The server's own total, else input and output.
    pub total: Option<u64>,
    /// Cost that the server reports.
    pub reported_cost: Option<Cost>,
}

impl Usage {
    /// True if the server reported nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reason why a response ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The model was done.
    EndTurn,
    /// The model waits for the results of its calls.
    ToolUse,
    /// The output limit or the context window was reached.
    MaxTokens,
    /// The model declined.
    Refusal,
    /// One of the request's stop texts came up.
    StopSequence,
    /// A filter of the provider cut the answer.
    ContentFilter,
    /// The server stopped on the way, and goes on when it is sent what it said so far.
    Paused,
    /// A word we do not know.
    Unknown(String),
}

impl StopReason {
    /// The inverse of [`StopReason::as_str`].
    pub fn from_word(word: &str) -> Self {
        let known = [
            Self::EndTurn,
            Self::ToolUse,
            Self::MaxTokens,
            Self::Refusal,
            Self::StopSequence,
            Self::ContentFilter,
            Self::Paused,
        ];
        let found = known.into_iter().find(|reason| reason.as_str() == word);
        found.unwrap_or_else(|| Self::Unknown(word.to_owned()))
    }

    /// The stable word for logs.
    pub fn as_str(&self) -> &str {
        match self {
            Self::EndTurn => "end_turn",
            Self::ToolUse => "tool_use",
            Self::MaxTokens => "max_tokens",
            Self::Refusal => "refusal",
            Self::StopSequence => "stop_sequence",
            Self::ContentFilter => "content_filter",
            Self::Paused => "pause_turn",
            Self::Unknown(word) => word,
        }
    }
}
