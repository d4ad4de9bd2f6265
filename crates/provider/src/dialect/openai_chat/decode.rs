//! Chunks of a Chat Completions stream.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::think::{Piece, ThinkTags};
use crate::calls::is_whole_json;
use crate::conversation::Opaque;
use crate::cost::Cost;
use crate::dialect::Dialect;
use crate::dialect::reply::Reply;
use crate::error::{ErrorKind, ModelError, classify};
use crate::event::{ModelEvent, StopReason, Usage};
use crate::quirks::Quirks;
use crate::text::{Text, or_default};

/// Reads the payloads of one Chat Completions response.
#[derive(Debug)]
pub struct ChatDecoder {
    pub(crate) reply: Reply,
    think: ThinkTags,
    /// What the server gave as its reason to stop; the response goes on until `[DONE]` or its end.
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
    #[serde(borrow, default, deserialize_with = "or_default")]
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
    index: Option<u64>,
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
    #[serde(borrow, default, deserialize_with = "or_default")]
    tool_calls: Vec<DeltaCall<'a>>,
}

#[derive(Deserialize)]
struct DeltaCall<'a> {
    #[serde(default)]
    index: Option<u64>,
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
    arguments: ArgumentsPiece<'a>,
}

#[derive(Deserialize)]
struct ChatUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's name for cached input.
    prompt_cache_hit_tokens: Option<u64>,
    /// Moonshot's.
    cached_tokens: Option<u64>,
    /// OpenRouter says what it charged, in dollars.
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
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
            if choice.index.unwrap_or(0) == 0 {
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
        if self.details_matter {
            let value = Value::Array(std::mem::take(&mut self.details));
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
            other => self.finish = Some(StopReason::Unknown(other.chars().take(100).collect())),
        }
    }

    fn delta(&mut self, delta: &Delta<'_>, events: &mut Vec<ModelEvent>) {
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
        for call in &delta.tool_calls {
            self.flush_text(events);
            self.call(call, events);
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

    fn call(&mut self, delta: &DeltaCall<'_>, events: &mut Vec<ModelEvent>) {
        let unnamed = DeltaFunction::default();
        let function = delta.function.as_ref().unwrap_or(&unnamed);
        let (id, name, piece) = (
            delta.id.as_str(),
            function.name.as_str(),
            function.arguments.0.as_ref(),
        );
        let calls = &mut self.reply.calls;
        let known = match delta.index {
            Some(index) => calls.by_wire_index(index),
            None if !id.is_empty() => calls.by_id(id),
            None => calls.last(),
        };
        let same = known.filter(|&at| {
            let other_id =
                !id.is_empty() && !calls.wire_id(at).is_empty() && id != calls.wire_id(at);
            // Servers that number every parallel call 0 and give no id: a name that comes with
            // arguments after whole arguments begins the next call.
            let next_without_id = id.is_empty()
                && !name.is_empty()
                && !piece.is_empty()
                && is_whole_json(calls.arguments(at));
            !other_id && !next_without_id
        });
        let at = match same {
            Some(at) => at,
            None => calls.begin(delta.index, id, name),
        };
        calls.set_id_if_empty(at, id);
        calls.set_name_if_empty(at, name);
        // A delta that repeats the whole call adds nothing to it.
        let repeated = !name.is_empty()
            && !id.is_empty()
            && piece == calls.arguments(at)
            && is_whole_json(piece);
        let response_id = self.reply.response_id.as_deref();
        calls.announce(at, response_id, events);
        if !repeated && !calls.append(at, piece, events) {
            self.reply.fail(
                ModelError::new(
                    ErrorKind::Malformed,
                    "the arguments of the tool calls are too large",
                ),
                events,
            );
            return;
        }
        if let Some(extra) = delta.extra_content
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
            .and_then(|details| details.reasoning_tokens);
        let mut output = usage.completion_tokens;
        // xAI counts reasoning beside the completion; the total tells.
        if let (Some(input), Some(completion), Some(reasoning), Some(total)) =
            (usage.prompt_tokens, output, reasoning, usage.total_tokens)
            && reasoning > 0
            && total == input + completion + reasoning
        {
            output = Some(completion + reasoning);
        }
        let (cached, written) = usage.prompt_tokens_details.map_or((None, None), |details| {
            (details.cached_tokens, details.cache_write_tokens)
        });
        let read = Usage {
            input: usage.prompt_tokens,
            output,
            cached_input: cached
                .or(usage.prompt_cache_hit_tokens)
                .or(usage.cached_tokens),
            cache_write: written,
            reasoning,
            total: usage.total_tokens,
            reported_cost: usage.cost.and_then(Cost::from_dollars),
        };
        if !read.is_empty() {
            self.reply.usage = read;
        }
    }
}

/// Whether `item` goes on with the detail `last`: same block, more of the same text.
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

/// A piece of arguments: text, or an object from servers that parse it for us.
#[derive(Default)]
struct ArgumentsPiece<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for ArgumentsPiece<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PieceVisitor;
        impl<'de> Visitor<'de> for PieceVisitor {
            type Value = ArgumentsPiece<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("arguments as text or an object")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(ArgumentsPiece(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ArgumentsPiece(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(ArgumentsPiece::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let value = Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ArgumentsPiece(Cow::Owned(value.to_string())))
            }
        }
        deserializer.deserialize_any(PieceVisitor)
    }
}
