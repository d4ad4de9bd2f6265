//! The scripted dialect: plays turns in order, checks what it is sent, opens no socket.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use agent_provider::{
    ErrorKind, Message, ScriptedProvider, Signal, StopReason, ToolResult, Transcript,
};
use tokio_util::sync::CancellationToken;

use support::{exchange, exchange_with, request};

const TRANSCRIPT: &str = r#"
# A comment, and a blank line above.
{"expect": {"last_contains": ["fix"], "tools": ["read"], "absent": ["secret"]}, "reasoning": "Hmm.", "text": "Let me look.", "tool_calls": [{"name": "read", "arguments": {"path": "a"}}], "usage": {"input": 9, "output": 3}, "delta_chars": 4}
{"expect": {"last_contains": ["contents"], "contains": ["fix"]}, "text": "Done."}
{"error": {"status": 529, "message": "busy"}}
{"tool_calls": [{"id": "x", "name": "read", "arguments": "{\"pa"}], "stop": "max_tokens"}
"#;

fn provider() -> ScriptedProvider {
    ScriptedProvider::new("demo", Transcript::parse(TRANSCRIPT).unwrap())
}

#[test]
fn turns_are_played_in_order() {
    let provider = provider();
    let mut request = request("please fix it");
    let exchanged = exchange(&provider, &request);
    assert!(matches!(
        exchanged.signals.first(),
        Some(Signal::AttemptStarted { attempt: 1, .. })
    ));
    let response = exchanged.outcome.unwrap();
    assert_eq!(
        (
            response.text().as_str(),
            response.reasoning().as_str(),
            &response.stop
        ),
        ("Let me look.", "Hmm.", &StopReason::ToolUse)
    );
    assert_eq!(response.usage.total, Some(12));
    request.messages.push(response.to_message().into());
    request.messages.push(
        Message::ToolResult(ToolResult {
            provider_call_id: response
                .tool_calls()
                .next()
                .unwrap()
                .provider_call_id
                .clone(),
            name: "read".to_owned(),
            text: "contents".to_owned(),
            is_error: false,
        })
        .into(),
    );
    assert_eq!(
        exchange(&provider, &request).outcome.unwrap().text(),
        "Done."
    );
    let busy = exchange(&provider, &request).outcome.unwrap_err();
    assert_eq!(
        (busy.kind, busy.message.as_str()),
        (ErrorKind::Overloaded, "busy")
    );
    assert!(
        exchange(&provider, &request)
            .outcome
            .unwrap()
            .has_cut_call()
    );
    let over = exchange(&provider, &request).outcome.unwrap_err();
    assert_eq!(
        over.message,
        "the transcript has 4 turns, but turn 5 was requested"
    );

    // A second process that resumes this conversation continues with the second turn.
    request.messages.truncate(3);
    assert_eq!(
        exchange(&self::provider(), &request)
            .outcome
            .unwrap()
            .text(),
        "Done."
    );
}

#[test]
fn expectations_that_fail_are_named() {
    let error = exchange(&provider(), &request("hello"))
        .outcome
        .unwrap_err();
    assert_eq!(
        error.message,
        "turn 1 of the transcript expects `fix` in the last message, which is `hello`"
    );
    let error = exchange(&provider(), &request("fix the secret"))
        .outcome
        .unwrap_err();
    assert_eq!(
        error.message,
        "turn 1 of the transcript expects a request without `secret`"
    );
    let mut toolless = request("fix");
    toolless.tools.clear();
    assert_eq!(
        exchange(&provider(), &toolless)
            .outcome
            .unwrap_err()
            .message,
        "turn 1 of the transcript expects the tool `read`"
    );
}

#[test]
fn a_pause_can_be_cancelled() {
    let slow = Transcript::parse(r#"{"text": "never said", "delay_ms": 3600000}"#).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let exchanged = exchange_with(&ScriptedProvider::new("demo", slow), &request("x"), &cancel);
    assert_eq!(exchanged.outcome.unwrap_err().kind, ErrorKind::Cancelled);
}

#[test]
fn a_broken_transcript_says_where() {
    let error = Transcript::parse("{\"text\": \"a\"}\n\n{\"txet\": \"b\"}").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.source.to_string().contains("txet"));
}
