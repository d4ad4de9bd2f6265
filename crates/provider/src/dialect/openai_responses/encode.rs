//! A request as OpenAI Responses.

use serde_json::{Value, json};

use crate::conversation::{
    AssistantPart, Message, ModelRequest, ReasoningEffort, ToolChoice, UserPart,
};
use crate::dialect::Dialect;
use crate::dialect::openai_chat::{sent_arguments, tool_name};
use crate::dialect::write::{List, Object, body};

/// The body of `request`, input last. Nothing is stored on the server; encrypted reasoning comes
/// with the answer and is sent back with the conversation.
pub fn encode(request: &ModelRequest) -> Vec<u8> {
    body(request.messages.len(), |body| {
        body.field("model", &request.model)
            .field("stream", &true)
            .field("store", &false);
        if let Some(key) = request.cache_key() {
            body.field("prompt_cache_key", &key);
        }
        if thinks(&request.model) {
            body.field("include", &["reasoning.encrypted_content"]);
        }
        if let Some(limit) = request.max_output_tokens {
            body.field("max_output_tokens", &limit);
        }
        if let Some(temperature) = request.temperature {
            body.field("temperature", &temperature);
        }
        if let Some(effort) = request.reasoning_effort {
            body.field(
                "reasoning",
                &json!({"effort": effort_word(&request.model, effort), "summary": "auto"}),
            );
        }
        if !request.tools.is_empty() {
            body.list("tools", |list| {
                for tool in &request.tools {
                    list.object(|entry| {
                        entry
                            .field("type", "function")
                            .field("name", &tool.name)
                            .field("description", &tool.description)
                            .field("parameters", &tool.schema)
                            .field("strict", &false);
                    });
                }
            });
            if let Some(choice) = request.effective_tool_choice() {
                body.field("tool_choice", &tool_choice(choice));
            }
        }
        if !request.system.is_empty() {
            body.field("instructions", &request.system.join("\n\n"));
        }
        body.list("input", |list| input(request, list));
    })
}

/// Models that do not think refuse to be asked for their encrypted reasoning.
fn thinks(model: &str) -> bool {
    !["gpt-3", "gpt-4", "chatgpt-4"]
        .iter()
        .any(|family| model.starts_with(family))
}

/// The word for an effort. Only the first models of GPT-5 know `minimal`; later ones refuse it.
pub(crate) fn effort_word(model: &str, effort: ReasoningEffort) -> &'static str {
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_later = ["gpt-5.", "gpt-6", "gpt-7"]
        .iter()
        .any(|family| name.starts_with(family));
    match effort {
        ReasoningEffort::Minimal if is_later => ReasoningEffort::Low.as_str(),
        effort => effort.as_str(),
    }
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
    }
}

/// Models that are told of each of their messages whether it was the answer; without it they take what they said
/// on the way for one, and stop early.
fn has_phases(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["gpt-5.3-codex", "gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6"]
        .iter()
        .any(|family| name.starts_with(family))
}

fn input(request: &ModelRequest, items: &mut List<'_>) {
    let has_phases = has_phases(&request.model);
    for message in &request.messages {
        match &**message {
            Message::User(parts) => items.object(|item| {
                item.field("role", "user").list("content", |content| {
                    for part in parts {
                        content.object(|block| user_part(part, block));
                    }
                });
            }),
            Message::Assistant(parts) => assistant_items(parts, has_phases, items),
            Message::ToolResult(result) => items.object(|item| {
                item.field("type", "function_call_output")
                    .field("call_id", &result.provider_call_id)
                    .field("output", &result.text);
            }),
        }
    }
}

fn user_part(part: &UserPart, block: &mut Object<'_>) {
    match part {
        UserPart::Text(text) => block.field("type", "input_text").field("text", text),
        UserPart::Image(image) => {
            let detail = image.detail.map_or("auto", |detail| detail.as_str());
            block
                .field("type", "input_image")
                .field("image_url", &image.url)
                .field("detail", detail)
        }
    };
}

/// One message is several items here. A reasoning item is refused without the item it led to, so
/// one that nothing follows stays out.
fn assistant_items(parts: &[AssistantPart], has_phases: bool, items: &mut List<'_>) {
    let goes_on = parts
        .iter()
        .any(|part| matches!(part, AssistantPart::ToolCall(_)));
    let phase = if goes_on {
        "commentary"
    } else {
        "final_answer"
    };
    for (position, part) in parts.iter().enumerate() {
        match part {
            AssistantPart::Text(text) if text.is_empty() => {}
            AssistantPart::Text(text) => items.object(|item| {
                item.field("role", "assistant");
                if has_phases {
                    item.field("phase", phase);
                }
                item.list("content", |content| {
                    content.object(|block| {
                        block.field("type", "output_text").field("text", text);
                    });
                });
            }),
            AssistantPart::Reasoning { opaque, .. } => {
                let leads_somewhere = parts[position + 1..].iter().any(|later| match later {
                    AssistantPart::Text(text) => !text.is_empty(),
                    AssistantPart::ToolCall(_) => true,
                    AssistantPart::Reasoning { .. } => false,
                });
                if let Some(opaque) = opaque
                    .as_ref()
                    .filter(|opaque| leads_somewhere && opaque.dialect == Dialect::OpenAiResponses)
                {
                    items.value(&opaque.value);
                }
            }
            AssistantPart::ToolCall(call) => items.object(|item| {
                item.field("type", "function_call")
                    .field("call_id", &call.provider_call_id)
                    .field("name", &*tool_name(&call.name))
                    .field("arguments", &*sent_arguments(call));
            }),
        }
    }
}
