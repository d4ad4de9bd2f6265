//! Chunks of a Chat Completions stream.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::REASONING_CONTENT;
use super::matching::{CallPiece, Matching};
use super::think::{Piece, ThinkTags};
use crate::conversation::Opaque;
use crate::cost::Cost;
use crate::dialect::Dialect;
use crate::dialect::reply::{Reply, TokenDetails, unknown_reason};
use crate::error::{ErrorKind, ModelError, classify};
use crate::event::{ModelEvent, StopReason, Usage};
use crate::quirks::{Quirks, ReasoningReplay};
use crate::text::{JsonText, Number, Text, lenient, list};

/// Reads the payloads of one Chat Completions response.
#[derive(Debug)]
pub struct ChatDecoder {
    pub(crate) reply: Reply,
    think: ThinkTags,
    /// Index of the choice that is read: the first that came. One was requested.
    choice: Option<u64>,
    matching: Matching,
    /// Thinking came in `reasoning_content`, and the server wants it back there.
    reasoning_content: bool,
    keeps_field: bool,
    /// Stop reason that the server gave; the response continues until `[DONE]` or its end.
    finish: Option<StopReason>,
    /// `reasoning_details`, merged, for servers that want them back.
    details: Vec<Value>,
    details_matter: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default, deserialize_with = "list")]
    choices: Vec<Choice<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    x_groq: Option<GroqExtra<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct GroqExtra<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Number,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// Servers that do not stream send the whole message instead of a delta.
    #[serde(borrow, default)]
    message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Content<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    reasoning: Text<'a>,
    #[serde(borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(borrow, default, deserialize_with = "list")]
    tool_calls: Vec<DeltaCall<'a>>,
    /// Older form of `tool_calls`, for a single call.
    #[serde(borrow, default)]
    function_call: Option<DeltaFunction<'a>>,
}

#[derive(Deserialize)]
struct DeltaCall<'a> {
    #[serde(default)]
    index: Number,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    function: Option<DeltaFunction<'a>>,
    #[serde(borrow, default)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct DeltaFunction<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: JsonText<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ChatUsage {
    prompt_tokens: Number,
    completion_tokens: Number,
    total_tokens: Number,
    #[serde(deserialize_with = "lenient")]
    prompt_tokens_details: Option<TokenDetails>,
    #[serde(deserialize_with = "lenient")]
    completion_tokens_details: Option<TokenDetails>,
    /// DeepSeek's name for cached input.
    prompt_cache_hit_tokens: Number,
    /// Moonshot's.
    cached_tokens: Number,
    /// OpenRouter says what it charged, in dollars.
    #[serde(deserialize_with = "lenient")]
    cost: Option<f64>,
}

impl ChatDecoder {
    /// A decoder for one response of a server with these quirks.
    pub fn new(quirks: &Quirks) -> Self {
        Self {
            reply: Reply::default(),
            think: if quirks.think_tags {
                ThinkTags::default()
            } else {
                ThinkTags::off()
            },
            choice: None,
            matching: Matching::default(),
            reasoning_content: false,
            keeps_field: quirks.replay == ReasoningReplay::AsItCame,
            finish: None,
            details: Vec::new(),
            details_matter: false,
        }
    }

    pub(crate) fn take(
        &mut self,
        data: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), serde_json::Error> {
        if data.trim_ascii() == b"[DONE]" {
            let reason = self.finish.take().unwrap_or(StopReason::EndTurn);
            self.stop(reason, events);
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data)?;
        // An error after the reason to stop only explains that reason.
        if chunk.error.is_some() && self.finish.is_none() {
            self.reply.fail(classify(None, data), events);
            return Ok(());
        }
        // Azure opens with a chunk about its filters that has neither id nor model.
        if !chunk.id.is_empty() || !chunk.choices.is_empty() {
            self.reply.start(
                chunk.id.to_owned_option(),
                chunk.model.to_owned_option(),
                events,
            );
        }
        for choice in &chunk.choices {
            let index = choice.index.0.unwrap_or(0);
            if *self.choice.get_or_insert(index) == index {
                self.choice(choice, events);
            }
        }
        let usages = [chunk.x_groq.and_then(|extra| extra.usage), chunk.usage];
        for usage in usages.into_iter().flatten() {
            self.usage(usage);
        }
        Ok(())
    }

    /// The body ended without `[DONE]`, which is fine when the server had said why it stopped.
    pub(crate) fn end(&mut self, events: &mut Vec<ModelEvent>) {
        if let Some(reason) = self.finish.take() {
            self.stop(reason, events);
        }
    }

    fn stop(&mut self, reason: StopReason, events: &mut Vec<ModelEvent>) {
        self.flush_text(events);
        let wanted_back = if self.details_matter {
            Some(Value::Array(std::mem::take(&mut self.details)))
        } else if self.reasoning_content && self.keeps_field {
            Some(Value::String(REASONING_CONTENT.to_owned()))
        } else {
            None
        };
        if let Some(value) = wanted_back {
            events.push(ModelEvent::ReasoningOpaque {
                opaque: Opaque {
                    dialect: Dialect::OpenAiChat,
                    value,
                },
            });
        }
        self.reply.stop(reason, events);
    }

    fn choice(&mut self, choice: &Choice<'_>, events: &mut Vec<ModelEvent>) {
        if let Some(delta) = choice.delta.as_ref().or(choice.message.as_ref()) {
            self.delta(delta, events);
        }
        if let Some(usage) = choice.usage {
            self.usage(usage);
        }
        match choice.finish_reason.as_str() {
            "" => {}
            "stop" | "end_turn" | "eos" | "stop_sequence" => {
                self.finish = Some(StopReason::EndTurn)
            }
            "tool_calls" | "function_call" | "tool_use" => self.finish = Some(StopReason::ToolUse),
            "length" | "model_length" | "max_tokens" => self.finish = Some(StopReason::MaxTokens),
            "content_filter" | "SAFETY" => self.finish = Some(StopReason::ContentFilter),
            "refusal" => self.finish = Some(StopReason::Refusal),
            "error" => self.reply.fail(
                ModelError::new(
                    ErrorKind::ServerError,
                    "the server gave up in the middle of the response",
                ),
                events,
            ),
            other => self.finish = Some(unknown_reason(other)),
        }
    }

    /// True if the stop reason was given, so that little can still come.
    pub(crate) fn is_stopping(&self) -> bool {
        self.finish.is_some()
    }

    fn delta(&mut self, delta: &Delta<'_>, events: &mut Vec<ModelEvent>) {
        self.reasoning_content |= !delta.reasoning_content.is_empty();
        let mut reasoning = if delta.reasoning_content.is_empty() {
            delta.reasoning.as_str()
        } else {
            delta.reasoning_content.as_str()
        };
        let from_details;
        if let Some(details) = delta.reasoning_details {
            from_details = self.details(details);
            if reasoning.is_empty() {
                reasoning = &from_details;
            }
        }
        self.reply.reasoning(reasoning, events);
        match &delta.content {
            Content::Text(text) => self.text(text, events),
            Content::Parts(parts) => {
                for part in parts {
                    self.part(part, events);
                }
            }
        }
        self.reply.refusal(delta.refusal.as_str(), events);
        let unnamed = DeltaFunction::default();
        for (position, call) in delta.tool_calls.iter().enumerate() {
            let function = call.function.as_ref().unwrap_or(&unnamed);
            let piece = CallPiece {
                index: call.index.0,
                id: call.id.as_str(),
                name: function.name.as_str(),
                arguments: function.arguments.as_str(),
                is_later_entry: position > 0,
            };
            self.flush_text(events);
            self.call(piece, call.extra_content, events);
        }
        if let Some(function) = &delta.function_call {
            let piece = CallPiece {
                index: None,
                id: "",
                name: function.name.as_str(),
                arguments: function.arguments.as_str(),
                is_later_entry: false,
            };
            self.flush_text(events);
            self.call(piece, None, events);
        }
    }

    fn text(&mut self, text: &str, events: &mut Vec<ModelEvent>) {
        if self.think.is_past() {
            self.reply.text(text, events);
        } else if !text.is_empty() {
            let pieces = self.think.push(text);
            self.say(pieces, events);
        }
    }

    fn flush_text(&mut self, events: &mut Vec<ModelEvent>) {
        let pieces = self.think.finish();
        self.say(pieces, events);
    }

    fn say(&mut self, pieces: Vec<Piece>, events: &mut Vec<ModelEvent>) {
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => self.reply.reasoning(&text, events),
                Piece::Answer(text) => self.reply.text(&text, events),
            }
        }
    }

    /// Mistral's content parts: text, and thinking that is itself a list of texts.
    fn part(&mut self, part: &Value, events: &mut Vec<ModelEvent>) {
        match part.get("type").and_then(Value::as_str) {
            Some("text") => self.text(
                part.get("text").and_then(Value::as_str).unwrap_or_default(),
                events,
            ),
            Some("thinking") => match part.get("thinking") {
                Some(Value::String(text)) => self.reply.reasoning(text, events),
                Some(Value::Array(thoughts)) => {
                    for thought in thoughts {
                        self.reply.reasoning(
                            thought
                                .get("text")
                                .and_then(Value::as_str)
                                .unwrap_or_default(),
                            events,
                        );
                    }
                }
                _ => {}
            },
            Some("refusal") => self.reply.refusal(
                part.get("refusal")
                    .and_then(Value::as_str)
                    .unwrap_or_default(),
                events,
            ),
            Some(other) => self.reply.skip(other, events),
            None => {}
        }
    }

    /// Keeps `reasoning_details` for sending back and returns the readable text in them.
    fn details(&mut self, raw: &RawValue) -> String {
        let mut readable = String::new();
        let Ok(Value::Array(items)) = serde_json::from_str(raw.get()) else {
            return readable;
        };
        for item in items {
            for key in ["text", "summary"] {
                readable.push_str(item.get(key).and_then(Value::as_str).unwrap_or_default());
            }
            let sealed = |key: &str| {
                item.get(key)
                    .is_some_and(|value| value.as_str().is_some_and(|text| !text.is_empty()))
            };
            self.details_matter |= sealed("signature") || sealed("data");
            let room = self.details.len() < 10_000;
            match self.details.last_mut() {
                Some(last) if continues(last, &item) => extend(last, &item),
                _ if room => self.details.push(item),
                _ => {}
            }
        }
        readable
    }

    fn call(
        &mut self,
        piece: CallPiece<'_>,
        extra: Option<&RawValue>,
        events: &mut Vec<ModelEvent>,
    ) {
        let (at, is_repeated) = self.matching.place(&mut self.reply.calls, piece);
        let response_id = self.reply.response_id.as_deref();
        self.reply.calls.announce(at, response_id, events);
        if !is_repeated {
            self.reply.append_arguments(at, piece.arguments, events);
            if self.reply.is_done() {
                return;
            }
        }
        if let Some(extra) = extra
            && let Ok(value) = serde_json::from_str(extra.get())
        {
            self.reply.calls.set_opaque(
                at,
                Opaque {
                    dialect: Dialect::OpenAiChat,
                    value,
                },
            );
        }
    }

    fn usage(&mut self, raw: &RawValue) {
        // Usage in a form we do not know is no reason to lose the answer.
        let Ok(usage) = serde_json::from_str::<ChatUsage>(raw.get()) else {
            return;
        };
        let reasoning = usage
            .completion_tokens_details
            .and_then(|details| details.reasoning_tokens.0);
        let input = usage.prompt_tokens.0;
        let mut output = usage.completion_tokens.0;
        // xAI counts reasoning beside the completion; the total tells.
        if let (Some(input), Some(completion), Some(reasoning), Some(total)) =
            (input, output, reasoning, usage.total_tokens.0)
            && reasoning > 0
            && let Some(both) = completion.checked_add(reasoning)
            && input.checked_add(both) == Some(total)
        {
            output = Some(both);
        }
        let (cached, written) = usage.prompt_tokens_details.map_or((None, None), |details| {
            (details.cached_tokens.0, details.cache_write_tokens.0)
        });
        let read = Usage {
            input,
            output,
            cached_input: cached
                .or(usage.prompt_cache_hit_tokens.0)
                .or(usage.cached_tokens.0),
            cache_write: written,
            reasoning,
            total: usage.total_tokens.0,
            reported_cost: usage.cost.and_then(Cost::from_dollars),
        };
        if !read.is_empty() {
            self.reply.usage = read;
        }
    }
}

/// True if `item` continues the detail `last`: same block, more of the same text.
fn continues(last: &Value, item: &Value) -> bool {
    let same = |key: &str| last.get(key) == item.get(key);
    same("type")
        && same("index")
        && item.get("type").and_then(Value::as_str) != Some("reasoning.encrypted")
}

fn extend(last: &mut Value, item: &Value) {
    let (Some(last), Some(item)) = (last.as_object_mut(), item.as_object()) else {
        return;
    };
    for (key, value) in item {
        match (last.get_mut(key), value) {
            (Some(Value::String(text)), Value::String(more))
                if key == "text" || key == "summary" =>
            {
                text.push_str(more)
            }
            (Some(Value::Null) | None, _) => {
                last.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
}

/// The text of a message, or Mistral's list of parts.
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Text(Cow::Borrowed(""))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("text or a list of parts")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Content::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Content::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Content::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }
        deserializer.deserialize_any(ContentVisitor)
    }
}
