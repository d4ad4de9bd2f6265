//! A model that plays a transcript: the demo, tests, offline use. It opens no socket.
//!
//! A transcript is JSON lines, one turn per line; blank lines and lines that begin with `#` are
//! skipped. The scripted model server of the tests reads the same form.
//!
//! ```text
//! {"text": "Let me look.", "tool_calls": [{"name": "read", "arguments": {"path": "src/lib.rs"}}]}
//! {"expect": {"last_contains": ["fn main"]}, "text": "Done.", "usage": {"input": 40, "output": 2}}
//! ```

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Dialect;
use super::reply::Reply;
use crate::conversation::{AssistantPart, Message, ModelRequest, UserPart};
use crate::error::{ErrorKind, ModelError};
use crate::event::{ModelEvent, StopReason, Usage};
use crate::limits::RateLimits;
use crate::provider::{Provider, Signal};
use crate::quirks::GENERIC;
use crate::response::{Response, ResponseBuilder};

/// A list of turns to play.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    /// The turns, in order.
    pub turns: Vec<Turn>,
}

/// One response of the scripted model.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    /// Expectations of the request; any other request is an error.
    pub expect: Expect,
    /// Thinking.
    pub reasoning: String,
    /// Text for the user.
    pub text: String,
    /// Tool calls.
    pub tool_calls: Vec<ScriptedCall>,
    /// Words of a refusal.
    pub refusal: String,
    /// Stop reason; without one it follows from the calls.
    pub stop: Option<String>,
    /// Token usage that it reports.
    pub usage: Option<ScriptedUsage>,
    /// An error instead of an answer.
    pub error: Option<ScriptedError>,
    /// Characters per text delta; 0 sends each text whole.
    pub delta_chars: usize,
    /// Pause before each delta, for a demo that can be followed.
    pub delay_ms: u64,
}

/// Expectations of a turn about the request it answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Texts the last message has to contain.
    pub last_contains: Vec<String>,
    /// Texts that have to be anywhere in the request.
    pub contains: Vec<String>,
    /// Texts that may be nowhere in the request.
    pub absent: Vec<String>,
    /// Tools that have to be offered.
    pub tools: Vec<String>,
}

/// A call of the scripted model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Its id; made up when left out.
    #[serde(default)]
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// An object, or a string that is sent as it is (malformed arguments, say).
    #[serde(default)]
    pub arguments: Value,
}

/// Tokens the scripted model says it used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedUsage {
    /// Input tokens.
    pub input: Option<u64>,
    /// Output tokens.
    pub output: Option<u64>,
    /// Cached input tokens.
    pub cached_input: Option<u64>,
    /// Reasoning tokens.
    pub reasoning: Option<u64>,
}

/// A failure of the scripted model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedError {
    /// The status it would have had.
    pub status: u16,
    /// The message.
    #[serde(default)]
    pub message: String,
}

/// A transcript could not be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the transcript is not a turn")]
pub struct TranscriptError {
    /// The line, from 1.
    pub line: usize,
    /// Syntax error.
    pub source: serde_json::Error,
}

impl Transcript {
    /// Reads the JSON lines of a transcript.
    pub fn parse(text: &str) -> Result<Self, TranscriptError> {
        let mut turns = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            turns.push(
                serde_json::from_str(line).map_err(|source| TranscriptError {
                    line: index + 1,
                    source,
                })?,
            );
        }
        Ok(Self { turns })
    }
}

/// Plays a transcript.
#[derive(Debug)]
pub struct ScriptedProvider {
    name: String,
    transcript: Transcript,
    /// The next turn; set by the first request, so that a resumed session goes on where it was.
    next: Mutex<Option<usize>>,
}

impl ScriptedProvider {
    /// A provider that answers with `transcript`. Its first turn answers a conversation without any
    /// assistant message, its second one with one, and so on; from then on one turn per request.
    pub fn new(name: impl Into<String>, transcript: Transcript) -> Self {
        Self {
            name: name.into(),
            transcript,
            next: Mutex::new(None),
        }
    }

    fn next_turn(&self, request: &ModelRequest) -> Result<(usize, &Turn), ModelError> {
        let mut next = self
            .next
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let said = || {
            request
                .messages
                .iter()
                .filter(|message| matches!(***message, Message::Assistant(_)))
                .count()
        };
        let index = next.unwrap_or_else(said);
        *next = Some(index + 1);
        let turn = self.transcript.turns.get(index).ok_or_else(|| {
            let message = format!(
                "the transcript has {} turns, but turn {} was requested",
                self.transcript.turns.len(),
                index + 1
            );
            ModelError {
                retryable: false,
                ..ModelError::new(ErrorKind::BadRequest, message)
            }
        })?;
        turn.expect.check(index, request)?;
        Ok((index, turn))
    }
}

impl Provider for ScriptedProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn dialect(&self) -> Dialect {
        Dialect::Scripted
    }

    fn exchange<'a>(
        &'a self,
        request: &'a ModelRequest,
        cancel: &'a CancellationToken,
        observe: &'a mut (dyn FnMut(Signal) + Send),
    ) -> BoxFuture<'a, Result<Response, ModelError>> {
        Box::pin(async move {
            let body = super::encode(Dialect::Scripted, request, &GENERIC);
            let body_sha256 = agent_text::sha256_hex(&body);
            observe(Signal::AttemptStarted {
                attempt: 1,
                body: body.into(),
                body_sha256,
            });
            let outcome = match self.next_turn(request) {
                Ok((index, turn)) => {
                    observe(Signal::Answered {
                        attempt: 1,
                        http_status: None,
                        request_id: None,
                        limits: RateLimits::default(),
                    });
                    play(index, turn, &request.model, cancel, observe).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = &outcome {
                observe(Signal::AttemptFailed {
                    attempt: 1,
                    error: error.clone(),
                    retry_in: None,
                    max_attempts: 1,
                });
            }
            outcome
        })
    }
}

async fn play(
    index: usize,
    turn: &Turn,
    model: &str,
    cancel: &CancellationToken,
    observe: &mut (dyn FnMut(Signal) + Send),
) -> Result<Response, ModelError> {
    let mut builder = ResponseBuilder::new();
    for event in turn.events(index, model) {
        if let ModelEvent::Error(error) = event {
            return Err(error);
        }
        let cancelled = || ModelError::new(ErrorKind::Cancelled, "cancelled by the caller");
        if turn.delay_ms > 0 {
            let pause = tokio::time::sleep(Duration::from_millis(turn.delay_ms));
            cancel
                .run_until_cancelled(pause)
                .await
                .ok_or_else(cancelled)?;
        } else if cancel.is_cancelled() {
            return Err(cancelled());
        }
        builder.push(&event);
        observe(Signal::Event(event));
    }
    builder.build().unwrap_or_else(|| {
        Err(ModelError::new(
            ErrorKind::Unknown,
            "the scripted turn has no end",
        ))
    })
}

impl Turn {
    /// The events of this turn, in the order every dialect keeps.
    pub fn events(&self, index: usize, model: &str) -> Vec<ModelEvent> {
        let mut events = Vec::new();
        let mut reply = Reply::default();
        let response_id = format!("scripted_{index}");
        reply.start(
            Some(response_id.clone()),
            Some(model.to_owned()),
            &mut events,
        );
        if let Some(error) = &self.error {
            let body = serde_json::json!({"error": {"message": error.message}}).to_string();
            reply.fail(
                crate::error::classify(Some(error.status), body.as_bytes()),
                &mut events,
            );
            return events;
        }
        pieces(&self.reasoning, self.delta_chars)
            .for_each(|piece| reply.reasoning(piece, &mut events));
        pieces(&self.text, self.delta_chars).for_each(|piece| reply.text(piece, &mut events));
        reply.refusal(&self.refusal, &mut events);
        for (number, call) in self.tool_calls.iter().enumerate() {
            let id = call
                .id
                .clone()
                .unwrap_or_else(|| format!("call_{index}_{number}"));
            let at = reply.calls.begin(None, &id, &call.name);
            reply.calls.announce(at, Some(&response_id), &mut events);
            let arguments = match &call.arguments {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            for piece in pieces(&arguments, self.delta_chars) {
                let _fits = reply.calls.append(at, piece, &mut events);
            }
        }
        if let Some(usage) = &self.usage {
            reply.usage = Usage {
                input: usage.input,
                output: usage.output,
                cached_input: usage.cached_input,
                reasoning: usage.reasoning,
                ..Usage::default()
            };
        }
        let stop = match self.stop.as_deref() {
            None | Some("end_turn" | "tool_use") => StopReason::EndTurn,
            Some("max_tokens") => StopReason::MaxTokens,
            Some("refusal") => StopReason::Refusal,
            Some("stop_sequence") => StopReason::StopSequence,
            Some("content_filter") => StopReason::ContentFilter,
            Some("pause_turn") => StopReason::Paused,
            Some(other) => StopReason::Unknown(other.to_owned()),
        };
        reply.stop(stop, &mut events);
        events
    }
}

impl Expect {
    fn check(&self, index: usize, request: &ModelRequest) -> Result<(), ModelError> {
        let fail = |what: String| {
            let message = format!("turn {} of the transcript {what}", index + 1);
            Err(ModelError {
                retryable: false,
                ..ModelError::new(ErrorKind::BadRequest, message)
            })
        };
        let last = request
            .messages
            .last()
            .map(|message| message_text(message))
            .unwrap_or_default();
        if let Some(missing) = self
            .last_contains
            .iter()
            .find(|text| !last.contains(text.as_str()))
        {
            return fail(format!(
                "expects `{missing}` in the last message, which is `{last}`"
            ));
        }
        let mut all: String = request.system.join("\n");
        for message in &request.messages {
            all.push('\n');
            all.push_str(&message_text(message));
        }
        if let Some(missing) = self
            .contains
            .iter()
            .find(|text| !all.contains(text.as_str()))
        {
            return fail(format!("expects `{missing}` in the request"));
        }
        if let Some(present) = self.absent.iter().find(|text| all.contains(text.as_str())) {
            return fail(format!("expects a request without `{present}`"));
        }
        if let Some(missing) = self
            .tools
            .iter()
            .find(|name| !request.tools.iter().any(|tool| tool.name == **name))
        {
            return fail(format!("expects the tool `{missing}`"));
        }
        Ok(())
    }
}

fn message_text(message: &Message) -> String {
    match message {
        Message::User(parts) => parts
            .iter()
            .map(|part| match part {
                UserPart::Text(text) => text.as_str(),
                UserPart::Image(_) => "",
            })
            .collect(),
        Message::Assistant(parts) => parts
            .iter()
            .map(|part| match part {
                AssistantPart::Text(text) => text.as_str(),
                _ => "",
            })
            .collect(),
        Message::ToolResult(result) => result.text.clone(),
    }
}

/// Cuts `text` into pieces of `size` characters.
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
