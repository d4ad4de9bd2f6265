//! Speed of each decoder, next to serde_json parsing the same payloads in the same run.
//!
//! `cargo bench -p agent-provider` prints a table. The body is 50 MB of events of the shapes in
//! `fixtures/streams`, decoded in pieces of 16 KiB as a network would bring them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use agent_provider::quirks::GENERIC;
use agent_provider::{
    Decoder, Dialect, HostCredentials, HttpProvider, ModelEvent, ProviderConfig, resolve_endpoint,
};
use agent_test_support::bench::{Table, median};
use serde_json::{Value, json};

const SIZE: usize = 50 * 1024 * 1024;
const PIECE: usize = 16 * 1024;

fn main() {
    let mut table = Table::new("decoders");
    for dialect in [
        Dialect::OpenAiChat,
        Dialect::OpenAiResponses,
        Dialect::AnthropicMessages,
    ] {
        let (payloads, body) = stream(dialect);
        let decode = best(3, || decode(dialect, &body));
        let parse = best(3, || {
            for payload in &payloads {
                black_box(serde_json::from_slice::<Value>(payload).unwrap());
            }
            0
        });
        let megabytes = |seconds: f64| body.len() as f64 / 1e6 / seconds;
        let what = format!(
            "{}, {:.0} MB in {} events, to `serde_json` on the same payloads",
            dialect.as_str(),
            body.len() as f64 / 1e6,
            payloads.len()
        );
        table.speed(&what, megabytes(decode.0), megabytes(parse.0), "MB/s", 0.5);
        let most = format!("{} events", decode.1);
        table.note(&format!("{}: largest buffer", dialect.as_str()), &most);
    }
    latency(&mut table);
    client(&mut table);
    table.finish();
}

fn best(times: usize, mut run: impl FnMut() -> usize) -> (f64, usize) {
    (0..times)
        .map(|_| {
            let begin = Instant::now();
            let result = run();
            (begin.elapsed().as_secs_f64(), result)
        })
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .unwrap()
}

/// Decodes the whole body and returns the most events that were held at once.
fn decode(dialect: Dialect, body: &[u8]) -> usize {
    let mut decoder = Decoder::new(dialect, &GENERIC);
    let mut events: Vec<ModelEvent> = Vec::new();
    let mut most = 0;
    for piece in body.chunks(PIECE) {
        decoder.feed(piece, &mut events);
        most = most.max(events.len());
        black_box(&events);
        events.clear();
    }
    decoder.finish(&mut events);
    assert!(
        decoder.is_done() && events.is_empty(),
        "the stream is whole"
    );
    most
}

/// First events, one of many deltas, last events.
type Parts = (Vec<Value>, fn(usize) -> Value, Vec<Value>);

/// A long answer as a service sends it: mostly small text deltas, some of them reasoning.
fn stream(dialect: Dialect) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut head, delta, tail): Parts = match dialect {
        Dialect::OpenAiChat | Dialect::Scripted => {
            (vec![], chat_delta, vec![chat(json!({}), json!("stop"))])
        }
        Dialect::OpenAiResponses => (
            vec![
                json!({"type": "response.created", "response": {"id": "resp_1", "model": "m-1", "output": []}}),
            ],
            |number| json!({"type": "response.output_text.delta", "content_index": 0, "delta": word(number), "item_id": "msg_017e85da2ae23b69016a3c12518cc0819da5", "logprobs": [], "obfuscation": "x9s8d7f6", "output_index": 0, "sequence_number": number}),
            vec![
                json!({"type": "response.completed", "response": {"id": "resp_1", "model": "m-1", "output": [], "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}}),
            ],
        ),
        Dialect::AnthropicMessages => (
            vec![
                json!({"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 1, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ],
            |number| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word(number)}}),
            vec![
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ],
        ),
    };
    let mut payloads: Vec<Vec<u8>> = head
        .drain(..)
        .map(|value| value.to_string().into_bytes())
        .collect();
    let mut size = 0;
    let mut number = 0;
    while size < SIZE {
        let payload = delta(number).to_string().into_bytes();
        size += payload.len()
            + if dialect == Dialect::OpenAiChat {
                8
            } else {
                40
            };
        payloads.push(payload);
        number += 1;
    }
    payloads.extend(tail.into_iter().map(|value| value.to_string().into_bytes()));
    let mut body = Vec::with_capacity(size + 4_096);
    for payload in &payloads {
        if dialect != Dialect::OpenAiChat {
            let name: Value = serde_json::from_slice(payload).unwrap();
            body.extend_from_slice(
                format!("event: {}\n", name["type"].as_str().unwrap()).as_bytes(),
            );
        }
        body.extend_from_slice(b"data: ");
        body.extend_from_slice(payload);
        body.extend_from_slice(b"\n\n");
    }
    if dialect == Dialect::OpenAiChat {
        body.extend_from_slice(b"data: [DONE]\n\n");
    }
    (payloads, body)
}

fn chat_delta(number: usize) -> Value {
    let key = if number.is_multiple_of(4) {
        "reasoning_content"
    } else {
        "content"
    };
    chat(json!({key: word(number)}), Value::Null)
}

fn chat(delta: Value, finish: Value) -> Value {
    json!({
        "id": "chatcmpl-DuLe5uYcQLe3hznEQpmI0pr8qyHJ8", "object": "chat.completion.chunk", "created": 1_782_321_945, "model": "m-1",
        "service_tier": "default", "system_fingerprint": null,
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}], "usage": null, "obfuscation": "siIjP86UOiG4",
    })
}

fn word(number: usize) -> &'static str {
    [
        " the",
        " quick \"brown\"",
        " fox\n",
        " größer",
        " jumps over",
        " 世界",
    ][number % 6]
}

/// From the last bytes of a call's arguments to the completed call, for arguments of 10 KB.
fn latency(table: &mut Table) {
    let arguments = json!({"path": "src/lib.rs", "content": "x".repeat(10_000)}).to_string();
    let times: Vec<Duration> = (0..200)
        .map(|_| {
            let call = json!({"tool_calls": [{"index": 0, "id": "call_a", "type": "function", "function": {"name": "write", "arguments": arguments}}]});
            let first = format!("data: {}\n\n", chat(call, Value::Null));
            let last = format!("data: {}\n\ndata: [DONE]\n\n", chat(json!({}), json!("tool_calls")));
            let mut decoder = Decoder::new(Dialect::OpenAiChat, &GENERIC);
            let mut events = Vec::new();
            let begin = Instant::now();
            decoder.feed(first.as_bytes(), &mut events);
            decoder.feed(last.as_bytes(), &mut events);
            assert!(events.iter().any(|event| matches!(event, ModelEvent::ToolCallCompleted { .. })));
            begin.elapsed()
        })
        .collect();
    table.time(
        "last bytes of a 10 KB tool call to its completed event: median",
        median(times),
        Duration::from_millis(1),
    );
}

/// Cost of building the HTTP client: nothing is read for plain HTTP, the system's certificates for HTTPS.
fn client(table: &mut Table) {
    for url in ["http://127.0.0.1:1/v1", "https://127.0.0.1:1/v1"] {
        let config = ProviderConfig {
            base_url: Some(url.to_owned()),
            ..ProviderConfig::default()
        };
        let time = best(3, || {
            let endpoint =
                resolve_endpoint("bench", Some(&config), HostCredentials::default()).unwrap();
            HttpProvider::new(endpoint).unwrap().prepare();
            0
        });
        let time = format!("{:.2} ms", time.0 * 1e3);
        table.note(&format!("client for `{url}`"), &time);
    }
}
