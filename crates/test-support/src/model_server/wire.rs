//! A turn in each of the three wire formats.

use serde_json::{Value, json};

use super::script::{Fault, Tokens, Turn};

/// A wire format, chosen by the path of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Anthropic,
}

impl Wire {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Anthropic];

    pub(super) fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else {
            None
        }
    }

    /// The events of `turn`: their name, where the format names them, and their data.
    pub(super) fn events(
        self,
        turn: &Turn,
        number: usize,
        model: &str,
    ) -> Vec<(Option<String>, String)> {
        let mut list = match self {
            Self::Chat => chat(turn, number, model),
            Self::Responses => named(responses(turn, number, model)),
            Self::Anthropic => named(anthropic(turn, number, model)),
        };
        if turn.has(&Fault::NoEnd) {
            let ending = match self {
                Self::Chat => 3,
                Self::Responses => 1,
                Self::Anthropic => 2,
            };
            list.truncate(list.len() - ending);
        }
        if self == Self::Chat && turn.has(&Fault::NoDone) {
            list.pop();
        }
        list
    }

    /// The body of an error answer.
    pub(super) fn error_body(self, status: u16, message: &str) -> String {
        let kind = match status {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        };
        match self {
            Self::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
            Self::Chat | Self::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
            }
        }
        .to_string()
    }

    /// An error inside a running stream.
    pub(super) fn error_event(self) -> (Option<String>, String) {
        match self {
            Self::Chat => (None, json!({"error": {"message": "Overloaded", "type": "overloaded_error", "code": null}}).to_string()),
            Self::Responses => {
                (Some("error".to_owned()), json!({"type": "error", "code": "server_is_overloaded", "message": "Overloaded", "param": null}).to_string())
            }
            Self::Anthropic => (Some("error".to_owned()), json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}).to_string()),
        }
    }
}

fn named(events: Vec<Value>) -> Vec<(Option<String>, String)> {
    events
        .into_iter()
        .map(|event| (event["type"].as_str().map(str::to_owned), event.to_string()))
        .collect()
}

fn chat(turn: &Turn, number: usize, model: &str) -> Vec<(Option<String>, String)> {
    let chunk = |choices: Value, usage: Value| {
        json!({"id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk", "created": 0, "model": model, "choices": choices, "usage": usage})
            .to_string()
    };
    let delta = |delta: Value| {
        chunk(
            json!([{"index": 0, "delta": delta, "finish_reason": null}]),
            Value::Null,
        )
    };
    let mut list = vec![delta(json!({"role": "assistant", "content": ""}))];
    list.extend(
        pieces(&turn.reasoning, turn.delta_chars)
            .map(|piece| delta(json!({"reasoning_content": piece}))),
    );
    list.extend(pieces(&turn.text, turn.delta_chars).map(|piece| delta(json!({"content": piece}))));
    list.extend(
        pieces(&turn.refusal, turn.delta_chars).map(|piece| delta(json!({"refusal": piece}))),
    );
    for (index, call) in turn.calls.iter().enumerate() {
        let id = call_id(turn, number, index);
        list.push(delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": call.name, "arguments": ""}}]})));
        for piece in pieces(&call.arguments, turn.delta_chars) {
            list.push(delta(
                json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
            ));
        }
    }
    let finish = match stop(turn) {
        "end_turn" | "refusal" => "stop",
        "tool_use" => "tool_calls",
        "max_tokens" => "length",
        other => other,
    };
    list.push(chunk(
        json!([{"index": 0, "delta": {}, "finish_reason": finish}]),
        Value::Null,
    ));
    let Tokens {
        input,
        output,
        cached_input,
        reasoning,
    } = turn.usage.unwrap_or_default();
    let usage = json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": cached_input},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    });
    list.push(chunk(
        json!([]),
        if turn.usage.is_some() {
            usage
        } else {
            Value::Null
        },
    ));
    list.push("[DONE]".to_owned());
    list.into_iter().map(|data| (None, data)).collect()
}

fn anthropic(turn: &Turn, number: usize, model: &str) -> Vec<Value> {
    let Tokens {
        input,
        output,
        cached_input,
        ..
    } = turn.usage.unwrap_or_default();
    let counts = json!({"input_tokens": input - cached_input, "cache_read_input_tokens": cached_input, "cache_creation_input_tokens": 0, "output_tokens": 1});
    let mut message = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": null});
    if turn.usage.is_some() {
        message["usage"] = counts;
    }
    let mut list = vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "ping"}),
    ];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        list.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        list.extend(
            deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        list.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !turn.reasoning.is_empty() {
        let mut deltas: Vec<Value> = pieces(&turn.reasoning, turn.delta_chars)
            .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
            .collect();
        deltas.push(json!({"type": "signature_delta", "signature": "c2NyaXB0ZWQ="}));
        block(
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            deltas,
        );
    }
    if !turn.text.is_empty() {
        let deltas = pieces(&turn.text, turn.delta_chars)
            .map(|piece| json!({"type": "text_delta", "text": piece}))
            .collect();
        block(json!({"type": "text", "text": ""}), deltas);
    }
    for (position, call) in turn.calls.iter().enumerate() {
        let deltas = std::iter::once("")
            .chain(pieces(&call.arguments, turn.delta_chars))
            .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}))
            .collect();
        block(
            json!({"type": "tool_use", "id": call_id(turn, number, position), "name": call.name, "input": {}}),
            deltas,
        );
    }
    let mut end = json!({"type": "message_delta", "delta": {"stop_reason": stop(turn), "stop_sequence": null}});
    if !turn.refusal.is_empty() {
        end["delta"]["stop_details"] = json!({"type": "refusal", "explanation": turn.refusal});
    }
    if turn.usage.is_some() {
        end["usage"] = json!({"output_tokens": output});
    }
    list.push(end);
    list.push(json!({"type": "message_stop"}));
    list
}

fn responses(turn: &Turn, number: usize, model: &str) -> Vec<Value> {
    let response = |status: &str| json!({"id": format!("resp_{number}"), "object": "response", "status": status, "model": model, "output": [], "error": null, "usage": null});
    let mut list = vec![
        json!({"type": "response.created", "response": response("in_progress")}),
        json!({"type": "response.in_progress", "response": response("in_progress")}),
    ];
    let mut place = 0;
    let mut item = |added: Value, deltas: Vec<Value>, done: Value| {
        list.push(
            json!({"type": "response.output_item.added", "output_index": place, "item": added}),
        );
        for mut delta in deltas {
            delta["output_index"] = json!(place);
            list.push(delta);
        }
        list.push(
            json!({"type": "response.output_item.done", "output_index": place, "item": done}),
        );
        place += 1;
    };
    let deltas = |kind: &str, text: &str| -> Vec<Value> {
        pieces(text, turn.delta_chars)
            .map(|piece| json!({"type": kind, "delta": piece}))
            .collect()
    };
    if !turn.reasoning.is_empty() {
        let id = format!("rs_{number}");
        item(
            json!({"type": "reasoning", "id": id, "summary": []}),
            deltas("response.reasoning_summary_text.delta", &turn.reasoning),
            json!({"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": turn.reasoning}], "encrypted_content": "c2NyaXB0ZWQ="}),
        );
    }
    if !turn.text.is_empty() || !turn.refusal.is_empty() {
        let id = format!("msg_{number}");
        let mut said = deltas("response.output_text.delta", &turn.text);
        said.extend(deltas("response.refusal.delta", &turn.refusal));
        item(
            json!({"type": "message", "id": id, "role": "assistant", "content": []}),
            said,
            json!({"type": "message", "id": id, "role": "assistant", "content": [{"type": "output_text", "text": turn.text}]}),
        );
    }
    for (index, call) in turn.calls.iter().enumerate() {
        let call_item = |arguments: &str| json!({"type": "function_call", "id": format!("fc_{number}_{index}"), "call_id": call_id(turn, number, index), "name": call.name, "arguments": arguments});
        let mut pieces = deltas("response.function_call_arguments.delta", &call.arguments);
        pieces.push(
            json!({"type": "response.function_call_arguments.done", "arguments": call.arguments}),
        );
        item(call_item(""), pieces, call_item(&call.arguments));
    }
    let stop = stop(turn);
    let (kind, status) = if stop == "max_tokens" || stop == "content_filter" {
        ("response.incomplete", "incomplete")
    } else {
        ("response.completed", "completed")
    };
    let mut last = response(status);
    if status == "incomplete" {
        last["incomplete_details"] =
            json!({"reason": if stop == "max_tokens" { "max_output_tokens" } else { stop }});
    }
    if let Some(Tokens {
        input,
        output,
        cached_input,
        reasoning,
    }) = turn.usage
    {
        last["usage"] = json!({
            "input_tokens": input, "output_tokens": output, "total_tokens": input + output,
            "input_tokens_details": {"cached_tokens": cached_input},
            "output_tokens_details": {"reasoning_tokens": reasoning},
        });
    }
    list.push(json!({"type": kind, "response": last}));
    list
}

fn stop(turn: &Turn) -> &str {
    match &turn.stop {
        Some(reason) => reason,
        None if !turn.calls.is_empty() => "tool_use",
        None if !turn.refusal.is_empty() => "refusal",
        None => "end_turn",
    }
}

fn call_id(turn: &Turn, number: usize, index: usize) -> String {
    turn.calls[index]
        .id
        .clone()
        .unwrap_or_else(|| format!("call_{number}_{index}"))
}

/// Cuts `text` into pieces of `size` characters; 0 is one piece.
fn pieces(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = if size == 0 {
            rest.len()
        } else {
            rest.char_indices()
                .nth(size)
                .map_or(rest.len(), |(at, _)| at)
        };
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        Some(piece)
    })
}
