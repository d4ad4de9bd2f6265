//! A request as OpenAI Responses.

use serde_json::{Map, Value, json};

use crate::conversation::{AssistantPart, Message, ModelRequest, ToolChoice, UserPart};
use crate::dialect::openai_chat::{sent_arguments, tool_name};
use crate::dialect::{Dialect, to_bytes};

/// The body of `request`, input last. Nothing is stored on the server; encrypted reasoning comes
/// with the answer and is sent back with the conversation.
pub fn encode(request: &ModelRequest) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("stream".into(), json!(true));
    body.insert("store".into(), json!(false));
    if thinks(&request.model) {
        body.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if let Some(limit) = request.max_output_tokens {
        body.insert("max_output_tokens".into(), json!(limit));
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if let Some(effort) = request.reasoning_effort {
        body.insert(
            "reasoning".into(),
            json!({"effort": effort.as_str(), "summary": "auto"}),
        );
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema, "strict": false})
        });
        body.insert("tools".into(), tools.collect());
        if let Some(choice) = request.effective_tool_choice() {
            body.insert("tool_choice".into(), tool_choice(choice));
        }
    }
    if !request.system.is_empty() {
        body.insert("instructions".into(), json!(request.system.join("\n\n")));
    }
    body.insert("input".into(), Value::Array(input(request)));
    to_bytes(&Value::Object(body))
}

/// Models that do not think refuse to be asked for their encrypted reasoning.
fn thinks(model: &str) -> bool {
    !["gpt-3", "gpt-4", "chatgpt-4"]
        .iter()
        .any(|family| model.starts_with(family))
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
    }
}

fn input(request: &ModelRequest) -> Vec<Value> {
    let mut items = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        match message {
            Message::User(parts) => items.push(
                json!({"role": "user", "content": parts.iter().map(user_part).collect::<Value>()}),
            ),
            Message::Assistant(parts) => assistant_items(parts, &mut items),
            Message::ToolResult(result) => {
                items.push(json!({"type": "function_call_output", "call_id": result.provider_call_id, "output": result.text}));
            }
        }
    }
    items
}

fn user_part(part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({"type": "input_text", "text": text}),
        UserPart::Image(image) => {
            let detail = image.detail.map_or("auto", |detail| detail.as_str());
            json!({"type": "input_image", "image_url": image.url, "detail": detail})
        }
    }
}

/// One message is several items here. A reasoning item is refused without the item it led to, so
/// one that nothing follows stays out.
fn assistant_items(parts: &[AssistantPart], items: &mut Vec<Value>) {
    for (position, part) in parts.iter().enumerate() {
        match part {
            AssistantPart::Text(text) if text.is_empty() => {}
            AssistantPart::Text(text) => items.push(
                json!({"role": "assistant", "content": [{"type": "output_text", "text": text}]}),
            ),
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
                    items.push(opaque.value.clone());
                }
            }
            AssistantPart::ToolCall(call) => items.push(json!({
                "type": "function_call",
                "call_id": call.provider_call_id,
                "name": tool_name(&call.name),
                "arguments": sent_arguments(call).to_string(),
            })),
        }
    }
}
