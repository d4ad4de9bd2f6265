//! A request as Anthropic Messages.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::conversation::{
    AssistantPart, CachePolicy, Image, Message, ModelRequest, ReasoningEffort, ToolChoice,
    ToolResult, UserPart,
};
use crate::dialect::Dialect;
use crate::dialect::openai_chat::{plain, sent_arguments, tool_name};
use crate::dialect::write::{List, Object, body};

/// Output limit when the caller sets none; the protocol requires one.
const DEFAULT_MAX_TOKENS: u32 = 8_192;

/// The body of `request`, messages last.
pub fn encode(request: &ModelRequest) -> Vec<u8> {
    body(request.messages.len(), |body| {
        body.field("model", &request.model).field("stream", &true);
        let mut limit = request.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        // A forced tool call and a temperature exclude thinking; the former is the stronger wish,
        // the latter the weaker.
        let forced = matches!(
            request.effective_tool_choice(),
            Some(ToolChoice::Required | ToolChoice::Tool(_))
        );
        let thinking = thinking(&request.model, request.reasoning_effort).filter(|_| !forced);
        if let Some(thinking) = &thinking {
            // The budget counts against the limit, which has to be larger.
            if let Some(budget) = thinking
                .get("budget_tokens")
                .and_then(Value::as_u64)
                .and_then(|budget| u32::try_from(budget).ok())
                && limit <= budget
            {
                limit = budget.saturating_add(DEFAULT_MAX_TOKENS);
            }
            body.field("thinking", thinking);
        }
        let effort = request.reasoning_effort.filter(|_| thinking.is_some());
        if let Some(effort) = effort.filter(|_| thinks(&request.model) != Thinks::Budget) {
            let word = match effort {
                ReasoningEffort::Minimal => ReasoningEffort::Low.as_str(),
                effort => effort.as_str(),
            };
            body.field("output_config", &json!({"effort": word}));
        }
        body.field("max_tokens", &limit);
        if let Some(temperature) = request.temperature.filter(|_| thinking.is_none()) {
            body.field("temperature", &temperature);
        }
        if !request.stop.is_empty() {
            body.field("stop_sequences", &request.stop);
        }
        if !request.tools.is_empty() {
            body.list("tools", |list| {
                for tool in &request.tools {
                    list.object(|entry| {
                        entry
                            .field("name", &tool.name)
                            .field("description", &tool.description)
                            .field("input_schema", &tool.schema);
                    });
                }
            });
            if let Some(choice) = request.effective_tool_choice() {
                body.field("tool_choice", &tool_choice(choice));
            }
        }
        // The order of the cache is tools, system, messages: one mark at the end of the system
        // text covers the tools too, two more follow the conversation as it grows.
        let marks = request.cache == CachePolicy::Mark;
        let system = request.system.iter().filter(|text| !text.is_empty());
        let system: Vec<&String> = system.collect();
        if let Some((last, others)) = system.split_last() {
            body.list("system", |list| {
                for text in others {
                    list.object(|block| text_block(text, block));
                }
                list.object(|block| {
                    text_block(last, block);
                    mark(block, marks);
                });
            });
        }
        let messages = messages(request);
        let first_marked = if marks { first_marked(&messages) } else { None };
        body.list("messages", |list| {
            for (position, (role, content)) in messages.iter().enumerate() {
                let is_marked =
                    *role == USER && first_marked.is_some_and(|first| position >= first);
                list.object(|message| {
                    message.field("role", role).list("content", |blocks| {
                        for (number, block) in content.iter().enumerate() {
                            let is_last = number + 1 == content.len();
                            write_block(block, is_marked && is_last, blocks);
                        }
                    });
                });
            }
        });
    })
}

const USER: &str = "user";

fn mark(block: &mut Object<'_>, is_marked: bool) {
    if is_marked {
        block.field("cache_control", &json!({"type": "ephemeral"}));
    }
}

/// Index of the second user message from the end, or of the only one.
fn first_marked(messages: &[(&str, Vec<Block<'_>>)]) -> Option<usize> {
    let user = |(position, (role, _)): (usize, &(&str, Vec<Block<'_>>))| {
        (*role == USER).then_some(position)
    };
    messages
        .iter()
        .enumerate()
        .rev()
        .filter_map(user)
        .take(2)
        .last()
}

/// What decides how long a model thinks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thinks {
    /// The number of tokens it is given.
    Budget,
    /// The model, once it is asked to think.
    WhenAsked,
    /// The model; it thinks unasked.
    Unasked,
}

fn thinks(model: &str) -> Thinks {
    let is_one_of = |names: &[&str]| names.iter().any(|name| model.contains(name));
    if is_one_of(&["opus-5", "sonnet-5", "haiku-5", "fable", "mythos"]) {
        Thinks::Unasked
    } else if is_one_of(&["opus-4-6", "opus-4-7", "opus-4-8", "sonnet-4-6"]) {
        Thinks::WhenAsked
    } else {
        Thinks::Budget
    }
}

/// The header that [`binds_thinking`] needs.
pub(crate) const BINDING_CONTROLS: &str = "thinking-binding-controls-2026-08-01";

/// True of models whose thinking counts only behind the very input it was thought about. Compaction, another
/// menu of tools and a resumed session change that input.
pub(crate) fn binds_thinking(model: &str) -> bool {
    ["opus-5-5", "sonnet-5-5", "fable-5-1", "mythos-5-1"]
        .iter()
        .any(|name| model.contains(name))
}

/// Models that decide themselves how long they think give no text of it unless asked for a summary; what
/// they say between calls is in there too.
fn thinking(model: &str, effort: Option<ReasoningEffort>) -> Option<Value> {
    let kind = thinks(model);
    if kind == Thinks::Unasked || kind == Thinks::WhenAsked && effort.is_some() {
        let mut thinking = json!({"type": "adaptive", "display": "summarized"});
        if binds_thinking(model) {
            // Otherwise thinking that does not count any more is an error.
            thinking["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
        }
        return Some(thinking);
    }
    let budget = match effort? {
        ReasoningEffort::Minimal => return None,
        ReasoningEffort::Low => 2_048,
        ReasoningEffort::Medium => 8_192,
        ReasoningEffort::High => 24_576,
    };
    Some(json!({"type": "enabled", "budget_tokens": budget}))
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    }
}

/// A block of a message, still in the conversation's own form.
enum Block<'a> {
    User(&'a UserPart),
    Assistant(&'a AssistantPart),
    Result(&'a ToolResult),
}

/// Tool results are user content here, and neighbours of one role are one message.
fn messages(request: &ModelRequest) -> Vec<(&'static str, Vec<Block<'_>>)> {
    let mut list: Vec<(&str, Vec<Block<'_>>)> = Vec::new();
    for message in &request.messages {
        let (role, blocks): (_, Vec<Block<'_>>) = match &**message {
            Message::User(parts) => (USER, parts.iter().filter_map(user_block).collect()),
            Message::Assistant(parts) => (
                "assistant",
                parts.iter().filter_map(assistant_block).collect(),
            ),
            Message::ToolResult(result) => (USER, vec![Block::Result(result)]),
        };
        match list.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            _ => list.push((role, blocks)),
        }
    }
    list.retain(|(_, content)| !content.is_empty());
    list
}

/// Empty text blocks are refused by the service.
fn user_block(part: &UserPart) -> Option<Block<'_>> {
    let is_empty = matches!(part, UserPart::Text(text) if text.is_empty());
    (!is_empty).then_some(Block::User(part))
}

fn assistant_block(part: &AssistantPart) -> Option<Block<'_>> {
    let is_sent = match part {
        AssistantPart::Text(text) => !text.trim().is_empty(),
        // Thinking without its signature, or with another provider's, would be refused.
        AssistantPart::Reasoning { opaque, .. } => opaque
            .as_ref()
            .is_some_and(|opaque| opaque.dialect == Dialect::AnthropicMessages),
        AssistantPart::ToolCall(_) => true,
    };
    is_sent.then_some(Block::Assistant(part))
}

fn write_block(block: &Block<'_>, is_marked: bool, blocks: &mut List<'_>) {
    if let Block::Assistant(AssistantPart::Reasoning { text, opaque }) = block {
        let Some(opaque) = opaque else { return };
        let mut thinking = opaque.value.clone();
        if thinking["type"] == "thinking" {
            thinking["thinking"] = json!(text);
        }
        blocks.value(&thinking);
        return;
    }
    blocks.object(|object| {
        match block {
            Block::User(UserPart::Text(text)) | Block::Assistant(AssistantPart::Text(text)) => {
                text_block(text, object);
            }
            Block::User(UserPart::Image(image)) => {
                object
                    .field("type", "image")
                    .field("source", &image_source(image));
            }
            Block::Assistant(AssistantPart::ToolCall(call)) => {
                object
                    .field("type", "tool_use")
                    .field("id", &*call_id(&call.provider_call_id))
                    .field("name", &*tool_name(&call.name))
                    .json("input", &sent_arguments(call));
            }
            Block::Result(result) => {
                object
                    .field("type", "tool_result")
                    .field("tool_use_id", &*call_id(&result.provider_call_id))
                    .field("content", &result.text);
                if result.is_error {
                    object.field("is_error", &true);
                }
            }
            // Written above.
            Block::Assistant(AssistantPart::Reasoning { .. }) => {}
        }
        mark(object, is_marked);
    });
}

fn text_block(text: &str, block: &mut Object<'_>) {
    block.field("type", "text").field("text", text);
}

fn image_source(image: &Image) -> Value {
    let inline = image
        .url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    match inline {
        Some((media_type, data)) => {
            json!({"type": "base64", "media_type": media_type, "data": data})
        }
        None => json!({"type": "url", "url": image.url}),
    }
}

/// Ids of other providers may have characters this one refuses.
fn call_id(id: &str) -> Cow<'_, str> {
    plain(id, "call")
}
