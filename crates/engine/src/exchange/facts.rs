//! A provider's words in the log's.

use agent_protocol::payload::Usage;
use agent_protocol::payload::model::{ModelFailureKind, PromptEvidence};
use agent_provider::conversation::{Message, ModelRequest, ToolChoice, UserPart};
use agent_provider::error::ErrorKind;
use agent_provider::response::Response;

pub(super) fn evidence(request: &ModelRequest, sha256: &str) -> PromptEvidence {
    let mut evidence = PromptEvidence {
        render_mode: "structured_task".to_owned(),
        prompt_hash: format!("sha256:{sha256}"),
        message_count: request.messages.len() as u64,
        ..PromptEvidence::default()
    };
    let mut roles = vec!["system".to_owned()];
    for message in &request.messages {
        let role = match &**message {
            Message::User(parts) => {
                let images = parts
                    .iter()
                    .filter(|part| matches!(part, UserPart::Image(_)))
                    .count() as u64;
                evidence.image_parts += images;
                evidence.text_parts += parts.len() as u64 - images;
                "user"
            }
            Message::Assistant(_) => "assistant",
            Message::ToolResult(_) => {
                evidence.text_parts += 1;
                "tool"
            }
        };
        if !roles.iter().any(|known| known == role) {
            roles.push(role.to_owned());
        }
    }
    evidence.roles = roles;
    evidence.media_count = evidence.image_parts;
    evidence.modalities = if evidence.image_parts > 0 {
        vec!["text".into(), "image".into()]
    } else {
        vec!["text".into()]
    };
    evidence
}

/// The choice in one word, as the log holds it.
pub(super) fn choice_word(choice: &ToolChoice) -> String {
    match choice {
        ToolChoice::Auto => "auto".to_owned(),
        ToolChoice::None => "none".to_owned(),
        ToolChoice::Required => "required".to_owned(),
        ToolChoice::Tool(name) => format!("tool:{name}"),
    }
}

/// The inverse of [`choice_word`].
pub(crate) fn choice_from_word(word: &str) -> Option<ToolChoice> {
    match word {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" => Some(ToolChoice::Required),
        other => other
            .strip_prefix("tool:")
            .map(|name| ToolChoice::Tool(name.to_owned())),
    }
}

pub(super) fn usage_of(response: &Response) -> Usage {
    let usage = &response.usage;
    Usage {
        model: response.model.clone(),
        input: usage.input,
        output: usage.output,
        total: usage.total,
        cached_input: usage.cached_input,
        cache_write: usage.cache_write,
        reasoning: usage.reasoning,
    }
}

pub(super) fn failure_kind(kind: ErrorKind) -> ModelFailureKind {
    kind.as_str().parse().unwrap_or_default()
}
