//! Request to a model, in one neutral form that every dialect can encode.

use std::sync::Arc;

use serde_json::Value;

use crate::dialect::Dialect;

/// One request to a model. Nothing in it says which provider or wire format will carry it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelRequest {
    /// The provider's own name of the model, without the `provider/` prefix.
    pub model: String,
    /// Instructions, in order. The stable ones come first, so that caches can keep them.
    pub system: Vec<String>,
    /// The conversation so far, oldest first. Every request repeats it, so its messages are shared.
    pub messages: Vec<Arc<Message>>,
    /// The tools the model may call, in catalogue order.
    pub tools: Vec<ToolSpec>,
    /// `None` leaves the choice out of the request, which every server reads as `auto`.
    pub tool_choice: Option<ToolChoice>,
    /// Replaces `tool_choice` when the last message is a tool result; `None` passes it through.
    pub tool_choice_after_tool_result: Option<ToolChoice>,
    /// The most tokens the answer may have; `None` leaves it to the server where that is allowed.
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature; most reasoning models refuse it, so it is only sent when set.
    pub temperature: Option<f64>,
    /// Reasoning effort, for models that have one.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Use of prompt caches. Prefixes are stable either way.
    pub cache: CachePolicy,
    /// Texts that end the answer.
    pub stop: Vec<String>,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Message of a person, or of the runtime on their behalf.
    User(Vec<UserPart>),
    /// Message of the model, in its own order.
    Assistant(Vec<AssistantPart>),
    /// Result of a tool call.
    ToolResult(ToolResult),
}

/// A part of a user message.
#[derive(Debug, Clone, PartialEq)]
pub enum UserPart {
    /// Plain text.
    Text(String),
    /// A picture; it is passed on as it is and never fetched.
    Image(Image),
}

/// A picture in a user message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// An `https:` or `data:` address.
    pub url: String,
    /// Resolution at which the model should see it.
    pub detail: Option<ImageDetail>,
}

/// Resolution at which the model should see an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageDetail {
    /// The server decides.
    Auto,
    /// Coarse and cheap.
    Low,
    /// Fine and expensive.
    High,
}

impl ImageDetail {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Low => "low",
            Self::High => "high",
        }
    }
}

/// A part of what the model said.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantPart {
    /// Text meant for the user.
    Text(String),
    /// Thinking, shown apart, and whatever the provider wants back with it.
    Reasoning {
        /// The readable part; may be empty.
        text: String,
        /// Signature or encrypted content that only its own dialect can read.
        opaque: Option<Opaque>,
    },
    /// A tool call as the model wrote it.
    ToolCall(ToolCall),
}

/// A tool call as the model wrote it. Nothing has been checked but whether the arguments are JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The provider's id of the call; made up by the decoder when the server sent none.
    pub provider_call_id: String,
    /// The name the model used.
    pub name: String,
    /// The arguments exactly as they came, byte for byte.
    pub arguments_text: String,
    /// State of those bytes, as far as it can be known without the tool.
    pub arguments: Arguments,
    /// Data the provider wants back with this call (Gemini's thought signatures).
    pub opaque: Option<Opaque>,
}

/// State of the text of a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// A JSON object.
    Object,
    /// Nothing was sent, which servers use for a call without arguments; read it as `{}`.
    Empty,
    /// Not a JSON object; the text says where it goes wrong.
    Malformed(String),
    /// The answer ended inside the arguments (length limit); the call must not be run.
    Cut,
}

impl ToolCall {
    /// The arguments as a JSON object, or `None` when they cannot be used.
    pub fn arguments_value(&self) -> Option<Value> {
        match self.arguments {
            Arguments::Object => serde_json::from_str(&self.arguments_text).ok(),
            Arguments::Empty => Some(Value::Object(serde_json::Map::new())),
            Arguments::Malformed(_) | Arguments::Cut => None,
        }
    }
}

/// Provider data that is kept and sent back unread, to the dialect it came from only.
#[derive(Debug, Clone, PartialEq)]
pub struct Opaque {
    /// Dialect it came from.
    pub dialect: Dialect,
    /// The data, in that dialect's own form.
    pub value: Value,
}

/// The result of one tool call, as the model shall see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call it answers.
    pub provider_call_id: String,
    /// The tool's name.
    pub name: String,
    /// The text of the observation.
    pub text: String,
    /// True if the call failed; sent where the dialect has a field for it.
    pub is_error: bool,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub schema: Value,
}

/// Tool that the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No tool.
    None,
    /// Some tool.
    Required,
    /// This tool.
    Tool(String),
}

/// Reasoning effort of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningEffort {
    /// As little as the model allows.
    Minimal,
    /// A little.
    Low,
    /// The usual amount.
    Medium,
    /// A lot.
    High,
}

impl ReasoningEffort {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Use of explicit cache marks, in dialects that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CachePolicy {
    /// Mark the end of the instructions and of the conversation so far, or name the conversation.
    #[default]
    Mark,
    /// Send no marks.
    Off,
}

impl ModelRequest {
    /// A name for the beginning that all requests of a conversation have in common, by which a service finds
    /// the machine that has it cached; none where no cache is wanted.
    pub fn cache_key(&self) -> Option<String> {
        if self.cache == CachePolicy::Off {
            return None;
        }
        let mut beginning = self.system.join("\0");
        if let Some(Message::User(parts)) = self.messages.first().map(Arc::as_ref) {
            for part in parts {
                if let UserPart::Text(text) = part {
                    beginning.push_str(text);
                }
            }
        }
        let mut key = agent_text::sha256_hex(beginning.as_bytes());
        key.truncate(32);
        Some(key)
    }

    /// The tool choice that goes on the wire for this request.
    pub fn effective_tool_choice(&self) -> Option<&ToolChoice> {
        let after_tool = matches!(
            self.messages.last().map(Arc::as_ref),
            Some(Message::ToolResult(_))
        );
        match &self.tool_choice_after_tool_result {
            Some(choice) if after_tool => Some(choice),
            _ => self.tool_choice.as_ref(),
        }
    }
}
