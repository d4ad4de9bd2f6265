//! A request as Chat Completions.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::REASONING_CONTENT;
use crate::conversation::{
    AssistantPart, Image, Message, ModelRequest, ToolCall, ToolChoice, UserPart,
};
use crate::dialect::{Dialect, to_bytes};
use crate::quirks::{CallIdRule, EffortField, EmptyContent, Quirks, ReasoningReplay};

/// The body of `request`. Messages come last, so that a longer conversation begins with the bytes
/// of the shorter one.
pub fn encode(request: &ModelRequest, quirks: &Quirks) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("stream".into(), json!(true));
    if quirks.stream_usage {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if let Some(limit) = request.max_output_tokens {
        body.insert(quirks.max_tokens_field.into(), json!(limit));
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if let Some(effort) = request.reasoning_effort {
        match quirks.effort {
            EffortField::Omit => {}
            EffortField::ReasoningEffort => {
                body.insert("reasoning_effort".into(), json!(effort.as_str()));
            }
            EffortField::ReasoningObject => {
                body.insert("reasoning".into(), json!({"effort": effort.as_str()}));
            }
        }
    }
    if !request.stop.is_empty() {
        body.insert("stop".into(), json!(request.stop));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let mut schema = tool.schema.clone();
            drop_keys(&mut schema, quirks.drop_schema_keys);
            json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": schema}})
        });
        body.insert("tools".into(), tools.collect());
        if let Some(choice) = request.effective_tool_choice() {
            body.insert("tool_choice".into(), tool_choice(choice, quirks));
        }
    }
    body.insert("messages".into(), Value::Array(messages(request, quirks)));
    to_bytes(&Value::Object(body))
}

fn tool_choice(choice: &ToolChoice, quirks: &Quirks) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!(quirks.required_word),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn messages(request: &ModelRequest, quirks: &Quirks) -> Vec<Value> {
    let mut list = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        list.push(json!({"role": "system", "content": request.system.join("\n\n")}));
    }
    let last_user = request
        .messages
        .iter()
        .rposition(|message| matches!(message, Message::User(_)))
        .unwrap_or(0);
    for (position, message) in request.messages.iter().enumerate() {
        list.push(match message {
            Message::User(parts) => json!({"role": "user", "content": user_content(parts)}),
            Message::Assistant(parts) => assistant(parts, position > last_user, quirks),
            Message::ToolResult(result) => {
                json!({"role": "tool", "tool_call_id": call_id(&result.provider_call_id, quirks.call_id), "content": result.text})
            }
        });
    }
    list
}

/// Plain text stays a plain string: older servers know nothing else.
fn user_content(parts: &[UserPart]) -> Value {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            UserPart::Text(text) => Some(text.as_str()),
            UserPart::Image(_) => None,
        })
        .collect();
    if let Some(texts) = texts {
        return json!(texts.join("\n\n"));
    }
    parts
        .iter()
        .map(|part| match part {
            UserPart::Text(text) => json!({"type": "text", "text": text}),
            UserPart::Image(image) => json!({"type": "image_url", "image_url": image_url(image)}),
        })
        .collect()
}

fn image_url(image: &Image) -> Value {
    match image.detail {
        Some(detail) => json!({"url": image.url, "detail": detail.as_str()}),
        None => json!({"url": image.url}),
    }
}

fn assistant(parts: &[AssistantPart], in_current_turn: bool, quirks: &Quirks) -> Value {
    let mut text = String::new();
    let mut reasoning = String::new();
    let mut details = None;
    let mut came_in_field = false;
    let mut calls = Vec::new();
    for part in parts {
        match part {
            AssistantPart::Text(more) => text.push_str(more),
            AssistantPart::Reasoning { text: more, opaque } => {
                reasoning.push_str(more);
                if let Some(opaque) = opaque
                    .as_ref()
                    .filter(|opaque| opaque.dialect == Dialect::OpenAiChat)
                {
                    match &opaque.value {
                        Value::String(field) => came_in_field |= field == REASONING_CONTENT,
                        value => details = Some(value.clone()),
                    }
                }
            }
            AssistantPart::ToolCall(call) => calls.push(tool_call(call, quirks)),
        }
    }
    let mut message = Map::new();
    message.insert("role".into(), json!("assistant"));
    let content = match quirks.empty_content {
        EmptyContent::Null if text.is_empty() && !calls.is_empty() => Value::Null,
        _ => json!(text),
    };
    message.insert("content".into(), content);
    match quirks.replay {
        ReasoningReplay::SinceLastUser if in_current_turn && !reasoning.is_empty() => {
            message.insert(REASONING_CONTENT.into(), json!(reasoning));
        }
        ReasoningReplay::AsItCame if in_current_turn && came_in_field => {
            message.insert(REASONING_CONTENT.into(), json!(reasoning));
        }
        ReasoningReplay::Details => {
            if let Some(details) = details {
                message.insert("reasoning_details".into(), details);
            }
        }
        ReasoningReplay::SinceLastUser | ReasoningReplay::AsItCame | ReasoningReplay::Never => {}
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), Value::Array(calls));
    }
    Value::Object(message)
}

fn tool_call(call: &ToolCall, quirks: &Quirks) -> Value {
    let mut value = json!({
        "id": call_id(&call.provider_call_id, quirks.call_id),
        "type": "function",
        "function": {"name": tool_name(&call.name), "arguments": sent_arguments(call).to_string()},
    });
    if let Some(opaque) = call
        .opaque
        .as_ref()
        .filter(|opaque| opaque.dialect == Dialect::OpenAiChat)
        && let Some(map) = value.as_object_mut()
    {
        map.insert("extra_content".into(), opaque.value.clone());
    }
    value
}

/// The arguments of a past call, always as an object: servers parse them again, and a call that
/// was malformed once must not make every later request fail.
pub(crate) fn sent_arguments(call: &ToolCall) -> Value {
    call.arguments_value()
        .unwrap_or_else(|| json!({"malformed_arguments": call.arguments_text}))
}

/// A tool name every server accepts in a history, whatever the model had called.
pub(crate) fn tool_name(name: &str) -> String {
    let name: String = name
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
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}

fn call_id(id: &str, rule: CallIdRule) -> String {
    match rule {
        CallIdRule::Any => id.to_owned(),
        CallIdRule::NineAlphanumeric
            if id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()) =>
        {
            id.to_owned()
        }
        CallIdRule::NineAlphanumeric => Sha256::digest(id.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()[..9]
            .to_owned(),
    }
}

/// Leaves out schema keywords a server rejects; names of properties are no keywords.
fn drop_keys(schema: &mut Value, keys: &[&str]) {
    if keys.is_empty() {
        return;
    }
    match schema {
        Value::Object(map) => {
            map.retain(|key, _| !keys.contains(&key.as_str()));
            for (key, value) in map.iter_mut() {
                if key == "properties" || key == "$defs" {
                    for property in value
                        .as_object_mut()
                        .into_iter()
                        .flat_map(|map| map.values_mut())
                    {
                        drop_keys(property, keys);
                    }
                } else {
                    drop_keys(value, keys);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| drop_keys(value, keys)),
        _ => {}
    }
}
