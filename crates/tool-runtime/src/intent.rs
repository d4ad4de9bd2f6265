//! A proposal of a call: a name and unchecked text.

use agent_protocol::id::{ModelRequestId, ToolCallId};
use serde_json::Value;

/// Source of an intent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntentOrigin {
    /// A model proposed it.
    #[default]
    Model,
    /// A program made the call by itself, such as `agent call`.
    Program,
    /// The user typed exactly this. What a mode would ask about then needs no question; rules, limits
    /// and circuit breakers hold as ever.
    User,
}

/// A proposal. It changes nothing, and nothing in it is believed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolIntent {
    /// Runs through all events of this call; minted by the pipeline when missing.
    pub tool_call_id: Option<ToolCallId>,
    pub origin: IntentOrigin,
    /// The name as the model wrote it.
    pub tool_name: String,
    /// The argument text exactly as it came. Parsed under limits by the pipeline.
    pub arguments: String,
    /// What the model gave as its reason; shown, never used to decide.
    pub reason: Option<String>,
    /// The provider's own id of the call.
    pub provider_call_id: Option<String>,
    pub model_request_id: Option<ModelRequestId>,
    /// How many pieces of the stream the arguments came in.
    pub assembled_from_chunks: Option<u64>,
}

impl ToolIntent {
    /// An intent with its input as a value.
    #[must_use]
    pub fn new(tool_name: impl Into<String>, input: &Value) -> Self {
        Self {
            tool_name: tool_name.into(),
            arguments: input.to_string(),
            ..Self::default()
        }
    }
}
