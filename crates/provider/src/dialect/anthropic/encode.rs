//! A request as Anthropic Messages.

use serde_json::{Map, Value, json};

use crate::conversation::{
    AssistantPart, CachePolicy, Image, Message, ModelRequest, ReasoningEffort, ToolChoice, UserPart,
};
use crate::dialect::openai_chat::{sent_arguments, tool_name};
use crate::dialect::{Dialect, to_bytes};

/// What is asked for when the caller sets no limit; the protocol wants one.
const DEFAULT_MAX_TOKENS: u32 = 8_192;

/// The body of `request`, messages last.
pub fn encode(request: &ModelRequest) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("stream".into(), json!(true));
    let mut limit = request.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    // A forced tool call and a temperature exclude thinking; the former is the stronger wish, the
    // latter the weaker.
    let forced = matches!(
        request.effective_tool_choice(),
        Some(ToolChoice::Required | ToolChoice::Tool(_))
    );
    if let Some(effort) = request.reasoning_effort.filter(|_| !forced)
        && let Some(thinking) = thinking(&request.model, effort)
    {
        // The budget counts against the limit, which has to be larger.
        if let Some(budget) = thinking
            .get("budget_tokens")
            .and_then(Value::as_u64)
            .and_then(|budget| u32::try_from(budget).ok())
            && limit <= budget
        {
            limit = budget.saturating_add(DEFAULT_MAX_TOKENS);
        }
        body.insert("thinking".into(), thinking);
    }
    body.insert("max_tokens".into(), json!(limit));
    if let Some(temperature) = request
        .temperature
        .filter(|_| !body.contains_key("thinking"))
    {
        body.insert("temperature".into(), json!(temperature));
    }
    if !request.stop.is_empty() {
        body.insert("stop_sequences".into(), json!(request.stop));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema}));
        body.insert("tools".into(), tools.collect());
        if let Some(choice) = request.effective_tool_choice() {
            body.insert("tool_choice".into(), tool_choice(choice));
        }
    }
    let mut system: Vec<Value> = request
        .system
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| json!({"type": "text", "text": text}))
        .collect();
    let mut messages = messages(request);
    if request.cache == CachePolicy::Mark {
        // The order of the cache is tools, system, messages: one mark at the end of the system
        // text covers the tools too, two more follow the conversation as it grows.
        mark(system.last_mut());
        let mut marked = 0;
        for message in messages
            .iter_mut()
            .rev()
            .filter(|message| message["role"] == "user")
        {
            mark(
                message["content"]
                    .as_array_mut()
                    .and_then(|content| content.last_mut()),
            );
            marked += 1;
            if marked == 2 {
                break;
            }
        }
    }
    if !system.is_empty() {
        body.insert("system".into(), Value::Array(system));
    }
    body.insert("messages".into(), Value::Array(messages));
    to_bytes(&Value::Object(body))
}

fn mark(block: Option<&mut Value>) {
    if let Some(block) = block.and_then(Value::as_object_mut) {
        block.insert("cache_control".into(), json!({"type": "ephemeral"}));
    }
}

/// Newer models decide themselves how long they think; older ones are given a budget.
fn thinking(model: &str, effort: ReasoningEffort) -> Option<Value> {
    let adaptive = [
        "opus-4-6",
        "opus-4-7",
        "opus-4-8",
        "sonnet-4-6",
        "opus-5",
        "sonnet-5",
        "haiku-5",
        "fable",
        "mythos",
    ]
    .iter()
    .any(|name| model.contains(name));
    if adaptive {
        return Some(json!({"type": "adaptive"}));
    }
    let budget = match effort {
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

/// Tool results are user content here, and neighbours of one role are one message.
fn messages(request: &ModelRequest) -> Vec<Value> {
    let mut list: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in &request.messages {
        let (role, blocks): (_, Vec<Value>) = match message {
            Message::User(parts) => ("user", parts.iter().filter_map(user_block).collect()),
            Message::Assistant(parts) => (
                "assistant",
                parts.iter().filter_map(assistant_block).collect(),
            ),
            Message::ToolResult(result) => {
                let mut block = json!({"type": "tool_result", "tool_use_id": call_id(&result.provider_call_id), "content": result.text});
                if result.is_error {
                    block["is_error"] = json!(true);
                }
                ("user", vec![block])
            }
        };
        match list.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            _ => list.push((role, blocks)),
        }
    }
    list.into_iter()
        .filter(|(_, content)| !content.is_empty())
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect()
}

/// Empty text blocks are refused by the service.
fn user_block(part: &UserPart) -> Option<Value> {
    match part {
        UserPart::Text(text) if text.is_empty() => None,
        UserPart::Text(text) => Some(json!({"type": "text", "text": text})),
        UserPart::Image(image) => Some(json!({"type": "image", "source": image_source(image)})),
    }
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

fn assistant_block(part: &AssistantPart) -> Option<Value> {
    match part {
        AssistantPart::Text(text) if text.trim().is_empty() => None,
        AssistantPart::Text(text) => Some(json!({"type": "text", "text": text})),
        // Thinking without its signature, or with another provider's, would be refused.
        AssistantPart::Reasoning { text, opaque } => {
            let opaque = opaque
                .as_ref()
                .filter(|opaque| opaque.dialect == Dialect::AnthropicMessages)?;
            let mut block = opaque.value.clone();
            if block["type"] == "thinking" {
                block["thinking"] = json!(text);
            }
            Some(block)
        }
        AssistantPart::ToolCall(call) => Some(json!({
            "type": "tool_use",
            "id": call_id(&call.provider_call_id),
            "name": tool_name(&call.name),
            "input": sent_arguments(call),
        })),
    }
}

/// Ids of other providers may have characters this one refuses.
fn call_id(id: &str) -> String {
    let id: String = id
        .chars()
        .take(64)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if id.is_empty() { "call".to_owned() } else { id }
}
