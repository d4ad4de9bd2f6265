//! A request as Chat Completions.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::REASONING_CONTENT;
use crate::conversation::{
    Arguments, AssistantPart, Image, Message, ModelRequest, ToolCall, ToolChoice, ToolSpec,
    UserPart,
};
use crate::dialect::Dialect;
use crate::dialect::openai_responses::effort_word;
use crate::dialect::write::{List, Object, body};
use crate::quirks::{CacheField, CallIdRule, EffortField, EmptyContent, Quirks, ReasoningReplay};

/// The body of `request`. Messages come last, so that a longer conversation begins with the bytes
/// of the shorter one.
pub fn encode(request: &ModelRequest, quirks: &Quirks) -> Vec<u8> {
    body(request.messages.len(), |body| {
        body.field("model", &request.model).field("stream", &true);
        if quirks.stream_usage {
            body.field("stream_options", &json!({"include_usage": true}));
        }
        if let Some(key) = request.cache_key() {
            match quirks.cache {
                CacheField::Key => {
                    body.field("prompt_cache_key", &key);
                }
                CacheField::Mark if request.model.contains("claude") => {
                    body.field("cache_control", &json!({"type": "ephemeral"}));
                }
                CacheField::Omit | CacheField::Mark => {}
            }
        }
        if let Some(limit) = request.max_output_tokens {
            body.field(quirks.max_tokens_field, &limit);
        }
        if let Some(temperature) = request.temperature {
            body.field("temperature", &temperature);
        }
        if let Some(effort) = request.reasoning_effort {
            let effort = effort_word(&request.model, effort);
            match quirks.effort {
                EffortField::Omit => {}
                EffortField::ReasoningEffort => {
                    body.field("reasoning_effort", effort);
                }
                EffortField::ReasoningObject => {
                    body.field("reasoning", &json!({"effort": effort}));
                }
            }
        }
        if !request.stop.is_empty() {
            body.field("stop", &request.stop);
        }
        if !request.tools.is_empty() {
            body.list("tools", |list| {
                for tool in &request.tools {
                    list.object(|entry| {
                        entry
                            .field("type", "function")
                            .object("function", |function| {
                                function
                                    .field("name", &tool.name)
                                    .field("description", &tool.description)
                                    .field("parameters", &*schema(tool, quirks));
                            });
                    });
                }
            });
            if let Some(choice) = request.effective_tool_choice() {
                body.field("tool_choice", &tool_choice(choice, quirks));
            }
        }
        body.list("messages", |list| messages(request, quirks, list));
    })
}

fn schema<'a>(tool: &'a ToolSpec, quirks: &Quirks) -> Cow<'a, Value> {
    if quirks.drop_schema_keys.is_empty() {
        return Cow::Borrowed(&tool.schema);
    }
    let mut schema = tool.schema.clone();
    drop_keys(&mut schema, quirks.drop_schema_keys);
    Cow::Owned(schema)
}

fn tool_choice(choice: &ToolChoice, quirks: &Quirks) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!(quirks.required_word),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn messages(request: &ModelRequest, quirks: &Quirks, list: &mut List<'_>) {
    if !request.system.is_empty() {
        list.object(|message| {
            message
                .field("role", "system")
                .field("content", &request.system.join("\n\n"));
        });
    }
    let last_user = request
        .messages
        .iter()
        .rposition(|message| matches!(**message, Message::User(_)))
        .unwrap_or(0);
    for (position, message) in request.messages.iter().enumerate() {
        list.object(|object| match &**message {
            Message::User(parts) => {
                object.field("role", "user");
                user_content(parts, object);
            }
            Message::Assistant(parts) => assistant(parts, position > last_user, quirks, object),
            Message::ToolResult(result) => {
                object
                    .field("role", "tool")
                    .field(
                        "tool_call_id",
                        &*call_id(&result.provider_call_id, quirks.call_id),
                    )
                    .field("content", &result.text);
            }
        });
    }
}

/// Plain text stays a plain string: older servers know nothing else.
fn user_content(parts: &[UserPart], message: &mut Object<'_>) {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            UserPart::Text(text) => Some(text.as_str()),
            UserPart::Image(_) => None,
        })
        .collect();
    if let Some(texts) = texts {
        message.field("content", &texts.join("\n\n"));
        return;
    }
    message.list("content", |list| {
        for part in parts {
            list.object(|entry| match part {
                UserPart::Text(text) => {
                    entry.field("type", "text").field("text", text);
                }
                UserPart::Image(image) => {
                    entry
                        .field("type", "image_url")
                        .field("image_url", &image_url(image));
                }
            });
        }
    });
}

fn image_url(image: &Image) -> Value {
    match image.detail {
        Some(detail) => json!({"url": image.url, "detail": detail.as_str()}),
        None => json!({"url": image.url}),
    }
}

fn assistant(
    parts: &[AssistantPart],
    in_current_turn: bool,
    quirks: &Quirks,
    message: &mut Object<'_>,
) {
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
                        value => details = Some(value),
                    }
                }
            }
            AssistantPart::ToolCall(call) => calls.push(call),
        }
    }
    message.field("role", "assistant");
    match quirks.empty_content {
        EmptyContent::Null if text.is_empty() && !calls.is_empty() => {
            message.field("content", &Value::Null);
        }
        _ => {
            message.field("content", &text);
        }
    }
    match quirks.replay {
        ReasoningReplay::SinceLastUser if in_current_turn && !reasoning.is_empty() => {
            message.field(REASONING_CONTENT, &reasoning);
        }
        ReasoningReplay::AsItCame if in_current_turn && came_in_field => {
            message.field(REASONING_CONTENT, &reasoning);
        }
        ReasoningReplay::Details => {
            if let Some(details) = details {
                message.field("reasoning_details", details);
            }
        }
        ReasoningReplay::SinceLastUser | ReasoningReplay::AsItCame | ReasoningReplay::Never => {}
    }
    if !calls.is_empty() {
        message.list("tool_calls", |list| {
            for call in calls {
                list.object(|entry| tool_call(call, quirks, entry));
            }
        });
    }
}

fn tool_call(call: &ToolCall, quirks: &Quirks, entry: &mut Object<'_>) {
    entry
        .field("id", &*call_id(&call.provider_call_id, quirks.call_id))
        .field("type", "function")
        .object("function", |function| {
            function
                .field("name", &*tool_name(&call.name))
                .field("arguments", &*sent_arguments(call));
        });
    if let Some(opaque) = call
        .opaque
        .as_ref()
        .filter(|opaque| opaque.dialect == Dialect::OpenAiChat)
    {
        entry.field("extra_content", &opaque.value);
    }
}

/// The arguments of a past call as JSON text, always of an object: servers parse them again, and a
/// call that was malformed once must not make every later request fail.
pub(crate) fn sent_arguments(call: &ToolCall) -> Cow<'_, str> {
    match call.arguments {
        Arguments::Object if serde_json::from_str::<IgnoredAny>(&call.arguments_text).is_ok() => {
            Cow::Borrowed(&call.arguments_text)
        }
        Arguments::Empty => Cow::Borrowed("{}"),
        _ => Cow::Owned(json!({"malformed_arguments": call.arguments_text}).to_string()),
    }
}

/// A tool name every server accepts in a history, whatever the model had called.
pub(crate) fn tool_name(name: &str) -> Cow<'_, str> {
    plain(name, "unnamed")
}

/// At most 64 letters, digits, `_` and `-`; `otherwise` when there is nothing.
pub(crate) fn plain<'a>(name: &'a str, otherwise: &'static str) -> Cow<'a, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() {
        Cow::Borrowed(otherwise)
    } else if name.len() <= 64 && name.chars().all(is_plain) {
        Cow::Borrowed(name)
    } else {
        let letters = name.chars().take(64);
        letters.map(|c| if is_plain(c) { c } else { '_' }).collect()
    }
}

fn call_id(id: &str, rule: CallIdRule) -> Cow<'_, str> {
    let fits = id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    match rule {
        CallIdRule::NineAlphanumeric if !fits => Sha256::digest(id.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()[..9]
            .to_owned()
            .into(),
        CallIdRule::Any | CallIdRule::NineAlphanumeric => Cow::Borrowed(id),
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
