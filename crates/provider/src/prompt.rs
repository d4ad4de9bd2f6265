//! Prompt messages given as JSON: checked, counted and passed on; never fetched or converted.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::conversation::{AssistantPart, Image, ImageDetail, Message, UserPart};

/// The code of every refusal in this module.
pub const INVALID_PROMPT_MESSAGES: &str = "INVALID_PROMPT_MESSAGES";

/// Messages that cannot be sent. Nothing was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{INVALID_PROMPT_MESSAGES}: {place}: {problem}")]
pub struct InvalidPrompt {
    /// JSON pointer to the problem.
    pub place: String,
    /// Description of the problem.
    pub problem: String,
}

fn invalid<T>(place: &str, problem: impl Into<String>) -> Result<T, InvalidPrompt> {
    Err(InvalidPrompt {
        place: place.to_owned(),
        problem: problem.into(),
    })
}

/// Reads the content of a user message: a string, or a list of `text` and `image_url` parts.
pub fn user_content(content: &Value) -> Result<Vec<UserPart>, InvalidPrompt> {
    parts_at("", content)
}

/// Reads a list of messages `{role, content}` with the roles `user` and `assistant`.
pub fn prompt_messages(list: &Value) -> Result<Vec<Message>, InvalidPrompt> {
    let Some(list) = list.as_array().filter(|list| !list.is_empty()) else {
        return invalid("", "expected a list with at least one message");
    };
    list.iter()
        .enumerate()
        .map(|(index, message)| prompt_message(&format!("/{index}"), message))
        .collect()
}

fn prompt_message(place: &str, message: &Value) -> Result<Message, InvalidPrompt> {
    let Some(map) = message.as_object() else {
        return invalid(place, "expected an object");
    };
    if let Some(unknown) = map
        .keys()
        .find(|key| !matches!(key.as_str(), "role" | "content"))
    {
        return invalid(&format!("{place}/{unknown}"), "unknown field");
    }
    let Some(content) = map.get("content") else {
        return invalid(place, "`content` is missing");
    };
    let place_of_content = format!("{place}/content");
    match map.get("role").and_then(Value::as_str) {
        Some("user") => Ok(Message::User(parts_at(&place_of_content, content)?)),
        Some("assistant") => match content.as_str() {
            Some(text) => Ok(Message::Assistant(vec![AssistantPart::Text(
                text.to_owned(),
            )])),
            None => invalid(&place_of_content, "expected a string"),
        },
        _ => invalid(&format!("{place}/role"), "expected `user` or `assistant`"),
    }
}

fn parts_at(place: &str, content: &Value) -> Result<Vec<UserPart>, InvalidPrompt> {
    match content {
        Value::String(text) => Ok(vec![UserPart::Text(text.clone())]),
        Value::Array(list) if list.is_empty() => invalid(place, "the list of parts is empty"),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(index, part)| part_at(&format!("{place}/{index}"), part))
            .collect(),
        _ => invalid(place, "expected a string or a list of parts"),
    }
}

fn part_at(place: &str, part: &Value) -> Result<UserPart, InvalidPrompt> {
    let Some(map) = part.as_object() else {
        return invalid(place, "expected an object");
    };
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    let field = match kind {
        "text" => "text",
        "image_url" => "image_url",
        other => {
            return invalid(
                &format!("{place}/type"),
                format!("unknown part `{other}`; known are `text` and `image_url`"),
            );
        }
    };
    if let Some(unknown) = map
        .keys()
        .find(|key| key.as_str() != "type" && key.as_str() != field)
    {
        return invalid(&format!("{place}/{unknown}"), "unknown field");
    }
    let value = map.get(field).unwrap_or(&Value::Null);
    if kind == "text" {
        return match value.as_str() {
            Some(text) => Ok(UserPart::Text(text.to_owned())),
            None => invalid(&format!("{place}/text"), "expected a string"),
        };
    }
    image_at(&format!("{place}/image_url"), value).map(UserPart::Image)
}

fn image_at(place: &str, value: &Value) -> Result<Image, InvalidPrompt> {
    let Some(map) = value.as_object() else {
        return invalid(place, "expected an object with `url`");
    };
    if let Some(unknown) = map
        .keys()
        .find(|key| !matches!(key.as_str(), "url" | "detail"))
    {
        return invalid(&format!("{place}/{unknown}"), "unknown field");
    }
    let url = match map.get("url").and_then(Value::as_str) {
        Some(url) if !url.trim().is_empty() => url.to_owned(),
        _ => {
            return invalid(&format!("{place}/url"), "expected a non-empty address");
        }
    };
    let detail = match map.get("detail") {
        None => None,
        Some(Value::String(word)) if word == "auto" => Some(ImageDetail::Auto),
        Some(Value::String(word)) if word == "low" => Some(ImageDetail::Low),
        Some(Value::String(word)) if word == "high" => Some(ImageDetail::High),
        Some(_) => {
            return invalid(
                &format!("{place}/detail"),
                "expected `auto`, `low` or `high`",
            );
        }
    };
    Ok(Image { url, detail })
}

/// Structure of a conversation, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptEvidence {
    /// Messages.
    pub message_count: usize,
    /// Messages by role.
    pub roles: BTreeMap<&'static str, usize>,
    /// Parts by kind.
    pub part_counts: BTreeMap<&'static str, usize>,
    /// Images.
    pub media_count: usize,
}

impl PromptEvidence {
    /// Counts the parts of `messages`.
    pub fn of(messages: &[Message]) -> Self {
        let mut evidence = Self {
            message_count: messages.len(),
            ..Self::default()
        };
        for message in messages {
            let (role, kinds): (_, Vec<&'static str>) = match message {
                Message::User(parts) => ("user", parts.iter().map(user_kind).collect()),
                Message::Assistant(parts) => {
                    ("assistant", parts.iter().map(assistant_kind).collect())
                }
                Message::ToolResult(_) => ("tool", vec!["tool_result"]),
            };
            *evidence.roles.entry(role).or_default() += 1;
            for kind in kinds {
                *evidence.part_counts.entry(kind).or_default() += 1;
                evidence.media_count += usize::from(kind == "image_url");
            }
        }
        evidence
    }

    /// `text`, and `image` when there is one.
    pub fn modalities(&self) -> Vec<&'static str> {
        if self.media_count > 0 {
            vec!["text", "image"]
        } else {
            vec!["text"]
        }
    }
}

fn user_kind(part: &UserPart) -> &'static str {
    match part {
        UserPart::Text(_) => "text",
        UserPart::Image(_) => "image_url",
    }
}

fn assistant_kind(part: &AssistantPart) -> &'static str {
    match part {
        AssistantPart::Text(_) => "text",
        AssistantPart::Reasoning { .. } => "reasoning",
        AssistantPart::ToolCall(_) => "tool_call",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(content: Value, place: &str) {
        let error = user_content(&content).unwrap_err();
        assert_eq!(error.place, place, "{content}: {error}");
        assert!(error.to_string().starts_with(INVALID_PROMPT_MESSAGES));
    }

    #[test]
    fn text_and_images_are_accepted() {
        let image =
            json!({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}});
        assert_eq!(
            user_content(&json!("hi")).unwrap(),
            [UserPart::Text("hi".to_owned())]
        );
        assert_eq!(
            user_content(&json!([{"type": "text", "text": ""}])).unwrap(),
            [UserPart::Text(String::new())]
        );
        assert_eq!(user_content(&json!([image, image])).unwrap().len(), 2);
        let messages = prompt_messages(
            &json!([{"role": "user", "content": [image]}, {"role": "assistant", "content": "a"}]),
        )
        .unwrap();
        let evidence = PromptEvidence::of(&messages);
        assert_eq!(
            (
                evidence.message_count,
                evidence.media_count,
                evidence.modalities()
            ),
            (2, 1, vec!["text", "image"])
        );
    }

    #[test]
    fn everything_else_is_refused_with_its_place() {
        refused(json!([]), "");
        refused(json!(4), "");
        refused(json!([{"type": "text", "text": 4}]), "/0/text");
        refused(json!([{"type": "text", "text": "a", "more": 1}]), "/0/more");
        for kind in ["input_audio", "file", "video", ""] {
            refused(json!([{"type": kind}]), "/0/type");
        }
        refused(
            json!([{"type": "image_url", "image_url": {"url": " "}}]),
            "/0/image_url/url",
        );
        refused(
            json!([{"type": "image_url", "image_url": {"url": "u", "detail": "ultra"}}]),
            "/0/image_url/detail",
        );
        refused(
            json!([{"type": "image_url", "image_url": "u"}]),
            "/0/image_url",
        );
        assert!(prompt_messages(&json!([])).is_err());
        assert!(prompt_messages(&json!([{"role": "system", "content": "x"}])).is_err());
        assert!(prompt_messages(&json!([{"role": "user"}])).is_err());
    }
}
