//! Ids of tool calls that a conversation holds once each.
//!
//! Some servers call every call of a response, or of every response, the same. Sent back like that,
//! a result could belong to any of them, and strict services refuse the whole request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::conversation::{AssistantPart, Message, ModelRequest};

/// `request` with every call named apart. Names are given in order, so that the request for a longer
/// conversation begins with the same ones.
pub(super) fn with_unique_ids(request: &ModelRequest) -> Cow<'_, ModelRequest> {
    if !has_repeated_ids(&request.messages) {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    let mut seen: HashMap<String, usize> = HashMap::new();
    // The new names of the calls of the last answer, by their old one, in order.
    let mut open: HashMap<String, Vec<String>> = HashMap::new();
    for message in &mut request.messages {
        match Arc::make_mut(message) {
            Message::Assistant(parts) => {
                open.clear();
                for part in parts {
                    let AssistantPart::ToolCall(call) = part else {
                        continue;
                    };
                    let times = seen.entry(call.provider_call_id.clone()).or_default();
                    *times += 1;
                    let old = call.provider_call_id.clone();
                    if *times > 1 {
                        call.provider_call_id = format!("{old}_{times}");
                    }
                    let names = open.entry(old).or_default();
                    names.push(call.provider_call_id.clone());
                }
            }
            Message::ToolResult(result) => {
                if let Some(names) = open.get_mut(&result.provider_call_id)
                    && !names.is_empty()
                {
                    result.provider_call_id = names.remove(0);
                }
            }
            Message::User(_) => {}
        }
    }
    Cow::Owned(request)
}

fn has_repeated_ids(messages: &[Arc<Message>]) -> bool {
    let mut seen = std::collections::HashSet::new();
    let calls = messages.iter().flat_map(|message| match &**message {
        Message::Assistant(parts) => parts.as_slice(),
        _ => &[],
    });
    calls
        .filter_map(|part| match part {
            AssistantPart::ToolCall(call) => Some(call.provider_call_id.as_str()),
            _ => None,
        })
        .any(|id| !seen.insert(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Arguments, ToolCall, ToolResult};

    fn answer(ids: &[&str]) -> Message {
        let call = |id: &&str| {
            AssistantPart::ToolCall(ToolCall {
                provider_call_id: (*id).to_owned(),
                name: "read".to_owned(),
                arguments_text: "{}".to_owned(),
                arguments: Arguments::Object,
                opaque: None,
            })
        };
        Message::Assistant(ids.iter().map(call).collect())
    }

    fn result(id: &str) -> Message {
        Message::ToolResult(ToolResult {
            provider_call_id: id.to_owned(),
            name: "read".to_owned(),
            text: String::new(),
            is_error: false,
        })
    }

    fn check(messages: Vec<Message>, expected: &str) {
        let request = ModelRequest {
            messages: messages.into_iter().map(Arc::new).collect(),
            ..ModelRequest::default()
        };
        let mut ids = Vec::new();
        for message in &with_unique_ids(&request).messages {
            match &**message {
                Message::Assistant(parts) => ids.extend(parts.iter().map(|part| match part {
                    AssistantPart::ToolCall(call) => format!("call {}", call.provider_call_id),
                    _ => String::new(),
                })),
                Message::ToolResult(result) => {
                    ids.push(format!("result {}", result.provider_call_id));
                }
                Message::User(_) => {}
            }
        }
        assert_eq!(ids.join(", "), expected);
    }

    #[test]
    fn calls_of_one_name_are_told_apart_with_their_results() {
        check(
            vec![answer(&["a", "b"]), result("b"), result("a")],
            "call a, call b, result b, result a",
        );
        check(
            vec![answer(&["a", "a"]), result("a"), result("a")],
            "call a, call a_2, result a, result a_2",
        );
        check(
            vec![
                answer(&["0"]),
                result("0"),
                answer(&["0", "1"]),
                result("0"),
                result("1"),
            ],
            "call 0, result 0, call 0_2, call 1, result 0_2, result 1",
        );
    }
}
