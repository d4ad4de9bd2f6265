//! The part of a response that is the same in every dialect: how it starts, ends and fails.

use serde::Deserialize;

use crate::calls::Calls;
use crate::error::{ErrorKind, ModelError};
use crate::event::{ModelEvent, StopReason, Usage};
use crate::text::Number;

/// The most bytes of text and thinking one response may have: many times what any model can say. A
/// server that never ends fills neither memory nor disk.
const SAID_CAP: usize = 16 * 1024 * 1024;

/// A response that is being read.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    started: bool,
    done: bool,
    pub(crate) response_id: Option<String>,
    pub(crate) calls: Calls,
    pub(crate) usage: Usage,
    refused: bool,
    /// Kinds of content that were passed over, so that each is named once.
    skipped: Vec<String>,
    /// Bytes of text and thinking so far, also of beginnings that are void.
    said: usize,
    /// The connection has ended and what is still taken in may be cut.
    pub(crate) at_end: bool,
}

impl Reply {
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    /// Says `Started` once.
    pub(crate) fn start(
        &mut self,
        response_id: Option<String>,
        model: Option<String>,
        events: &mut Vec<ModelEvent>,
    ) {
        if !self.started {
            self.started = true;
            self.response_id.clone_from(&response_id);
            events.push(ModelEvent::Started { response_id, model });
        }
    }

    /// The server began again: what it said so far is void.
    pub(crate) fn restart(&mut self) {
        *self = Self {
            said: self.said,
            ..Self::default()
        };
    }

    pub(crate) fn text(&mut self, text: &str, events: &mut Vec<ModelEvent>) {
        if self.has_room_for(text, events) {
            events.push(ModelEvent::TextDelta {
                text: text.to_owned(),
            });
        }
    }

    pub(crate) fn reasoning(&mut self, text: &str, events: &mut Vec<ModelEvent>) {
        if self.has_room_for(text, events) {
            events.push(ModelEvent::ReasoningDelta {
                text: text.to_owned(),
            });
        }
    }

    pub(crate) fn refusal(&mut self, text: &str, events: &mut Vec<ModelEvent>) {
        if self.has_room_for(text, events) {
            self.refused = true;
            events.push(ModelEvent::Refusal {
                text: text.to_owned(),
            });
        }
    }

    /// True if there is text and it fits; text beyond the limit ends the response.
    fn has_room_for(&mut self, text: &str, events: &mut Vec<ModelEvent>) -> bool {
        self.said = self.said.saturating_add(text.len());
        if self.said > SAID_CAP {
            // The same would come again.
            let error = ModelError {
                retryable: false,
                ..ModelError::new(
                    ErrorKind::Malformed,
                    format!("the response is larger than {SAID_CAP} bytes and was cut off"),
                )
            };
            self.fail(error, events);
        }
        !text.is_empty() && !self.done
    }

    pub(crate) fn skip(&mut self, kind: &str, events: &mut Vec<ModelEvent>) {
        if !self.skipped.iter().any(|seen| seen == kind) && self.skipped.len() < 64 {
            self.skipped.push(kind.to_owned());
            events.push(ModelEvent::Skipped {
                kind: kind.chars().take(100).collect(),
            });
        }
    }

    /// Announces a call and adds the first piece of its arguments.
    pub(crate) fn begin_call(
        &mut self,
        wire_index: Option<u64>,
        id: &str,
        name: &str,
        events: &mut Vec<ModelEvent>,
    ) -> usize {
        let call = self.calls.begin(wire_index, id, name);
        self.calls
            .announce(call, self.response_id.as_deref(), events);
        call
    }

    /// Adds a piece to the arguments of a call; more than can be held ends the response.
    pub(crate) fn append_arguments(
        &mut self,
        call: usize,
        piece: &str,
        events: &mut Vec<ModelEvent>,
    ) {
        if !self.calls.append(call, piece, events) {
            self.fail_for_excess(events);
        }
    }

    /// Takes the arguments of a call as a whole, in place of what came in pieces.
    pub(crate) fn settle_arguments(
        &mut self,
        call: usize,
        whole: &str,
        events: &mut Vec<ModelEvent>,
    ) {
        if !self.calls.settle(call, whole, events) {
            self.fail_for_excess(events);
        }
    }

    /// Ends the response in an error where its calls are more than can be acted on.
    fn fail_for_excess(&mut self, events: &mut Vec<ModelEvent>) {
        if let Some(message) = self.calls.excess() {
            let error = ModelError {
                // The same would come again.
                retryable: false,
                ..ModelError::new(ErrorKind::Malformed, message)
            };
            self.fail(error, events);
        }
    }

    /// Ends the response as the protocol says it should end.
    ///
    /// Servers disagree on whether an answer with calls "stops" or "calls tools"; what is in it
    /// decides. The same goes for a refusal that is reported as an ordinary end.
    pub(crate) fn stop(&mut self, reason: StopReason, events: &mut Vec<ModelEvent>) {
        self.fail_for_excess(events);
        if self.done {
            return;
        }
        let reason = match reason {
            StopReason::EndTurn if !self.calls.is_empty() => StopReason::ToolUse,
            StopReason::ToolUse if self.calls.is_empty() => StopReason::EndTurn,
            other => other,
        };
        let reason = if self.refused && reason == StopReason::EndTurn {
            StopReason::Refusal
        } else {
            reason
        };
        let cut = reason == StopReason::MaxTokens;
        self.calls
            .complete(self.response_id.as_deref(), cut, events);
        self.say_usage(events);
        self.done = true;
        events.push(ModelEvent::Stopped { reason });
    }

    /// Ends the response in an error. Calls are dropped: half an answer is not acted on.
    pub(crate) fn fail(&mut self, error: ModelError, events: &mut Vec<ModelEvent>) {
        if self.done {
            return;
        }
        let mut error = error;
        if error.kind == ErrorKind::Unknown && self.started {
            // It had taken the request and was answering: the trouble is its own.
            error.kind = ErrorKind::ServerError;
            error.retryable = true;
        }
        self.calls.clear();
        self.say_usage(events);
        self.done = true;
        events.push(ModelEvent::Error(error));
    }

    fn say_usage(&mut self, events: &mut Vec<ModelEvent>) {
        let mut usage = std::mem::take(&mut self.usage);
        if usage.is_empty() {
            return;
        }
        if usage.total.is_none()
            && let (Some(input), Some(output)) = (usage.input, usage.output)
        {
            usage.total = Some(input.saturating_add(output));
        }
        events.push(ModelEvent::Usage(usage));
    }
}

/// Breakdown of token counts in the two OpenAI dialects, under names of their own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TokenDetails {
    pub(crate) cached_tokens: Number,
    pub(crate) cache_write_tokens: Number,
    pub(crate) reasoning_tokens: Number,
}

/// Reads a word for the reason to stop that no dialect knows.
pub(crate) fn unknown_reason(word: &str) -> StopReason {
    StopReason::Unknown(word.chars().take(100).collect())
}
