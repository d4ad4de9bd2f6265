//! Events of an Anthropic Messages stream.

use serde::Deserialize;
use serde_json::json;

use crate::conversation::Opaque;
use crate::dialect::Dialect;
use crate::dialect::reply::{Reply, unknown_reason};
use crate::error::classify;
use crate::event::{ModelEvent, StopReason};
use crate::text::{JsonText, Number, Text, lenient, list};

/// Reads the payloads of one Anthropic Messages response.
#[derive(Debug, Default)]
pub struct AnthropicDecoder {
    pub(crate) reply: Reply,
    block: Block,
    stop: Option<StopReason>,
    counts: Counts,
    has_content: bool,
}

/// The content block that is open.
#[derive(Debug, Default)]
enum Block {
    #[default]
    None,
    Text,
    Thinking {
        signature: String,
    },
    ToolUse {
        call: usize,
        /// Input that came with the start of the block, for servers that send no deltas.
        given: String,
    },
    Other,
}

/// Anthropic counts uncached, cached and newly cached input apart, in pieces over two events.
#[derive(Debug, Default)]
struct Counts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    message: Option<MessageStart<'a>>,
    #[serde(default)]
    index: Number,
    #[serde(borrow, default)]
    content_block: Option<ContentBlock<'a>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct MessageStart<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct WholeMessage<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default, deserialize_with = "list")]
    content: Vec<ContentBlock<'a>>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    #[serde(default, deserialize_with = "lenient")]
    stop_details: Option<StopDetails>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct ContentBlock<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    data: Text<'a>,
    #[serde(borrow, default)]
    input: JsonText<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    partial_json: JsonText<'a>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    #[serde(default, deserialize_with = "lenient")]
    stop_details: Option<StopDetails>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StopDetails {
    explanation: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireUsage {
    input_tokens: Number,
    cache_read_input_tokens: Number,
    cache_creation_input_tokens: Number,
    output_tokens: Number,
}

impl AnthropicDecoder {
    pub(crate) fn take(
        &mut self,
        name: &str,
        data: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), serde_json::Error> {
        let event: Event<'_> = serde_json::from_slice(data)?;
        // The name of an event repeats its type, and stands in for it where that is missing.
        let kind = if event.kind.is_empty() {
            name
        } else {
            event.kind.as_str()
        };
        match kind {
            "content_block_delta" => {
                if let Some(delta) = &event.delta {
                    self.delta(event.index.0, delta, events);
                }
            }
            "message_start" => self.message_start(event.message.as_ref(), events),
            "content_block_start" => {
                if let Some(block) = &event.content_block {
                    self.block_start(event.index.0, block, events);
                }
            }
            "content_block_stop" => self.block_stop(events),
            "message_delta" => self.message_delta(&event, events),
            "message_stop" => {
                self.block_stop(events);
                let reason = self.stop.take().unwrap_or(StopReason::EndTurn);
                self.reply.stop(reason, events);
            }
            "ping" => {}
            "error" => self.reply.fail(classify(None, data), events),
            "message" if event.message.is_none() => {
                self.whole(&serde_json::from_slice(data)?, events);
            }
            "" => {
                let error = classify(None, data);
                self.reply.fail(error, events);
            }
            other => self.reply.skip(other, events),
        }
        Ok(())
    }

    /// True if the stop reason was given, so that little can still come.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// The body ended without `message_stop`, which is fine when the reason to stop was given.
    pub(crate) fn end(&mut self, events: &mut Vec<ModelEvent>) {
        if let Some(reason) = self.stop.take() {
            self.block_stop(events);
            self.reply.stop(reason, events);
        }
    }

    /// A server that does not stream sends the whole message as one document.
    fn whole(&mut self, message: &WholeMessage<'_>, events: &mut Vec<ModelEvent>) {
        let (id, model) = (&message.id, &message.model);
        self.reply
            .start(id.to_owned_option(), model.to_owned_option(), events);
        for (index, block) in (0..).zip(&message.content) {
            self.block_start(Some(index), block, events);
            self.block_stop(events);
        }
        if let Some(usage) = &message.usage {
            self.count(usage);
        }
        self.stopped(&message.stop_reason, message.stop_details.as_ref(), events);
        self.end(events);
    }

    fn message_start(&mut self, message: Option<&MessageStart<'_>>, events: &mut Vec<ModelEvent>) {
        let (id, model) = message.map_or((None, None), |message| {
            (
                message.id.to_owned_option(),
                message.model.to_owned_option(),
            )
        });
        if self.reply.has_started() {
            // A proxy that repeats the first event, or one that tried again behind our back.
            if !self.has_content {
                return;
            }
            let at_end = self.reply.at_end;
            self.reply.restart();
            self.reply.at_end = at_end;
            self.block = Block::None;
            self.stop = None;
            self.counts = Counts::default();
            self.has_content = false;
        }
        self.reply.start(id, model, events);
        if let Some(usage) = message.and_then(|message| message.usage.as_ref()) {
            self.count(usage);
        }
    }

    fn block_start(
        &mut self,
        index: Option<u64>,
        block: &ContentBlock<'_>,
        events: &mut Vec<ModelEvent>,
    ) {
        self.reply.start(None, None, events);
        self.block_stop(events);
        self.has_content = true;
        match block.kind.as_str() {
            "text" => {
                self.block = Block::Text;
                self.reply.text(block.text.as_str(), events);
            }
            "thinking" => {
                self.block = Block::Thinking {
                    signature: block.signature.as_str().to_owned(),
                };
                self.reply.reasoning(block.thinking.as_str(), events);
            }
            "redacted_thinking" => {
                self.block = Block::Other;
                let value = json!({"type": "redacted_thinking", "data": block.data.as_str()});
                events.push(ModelEvent::ReasoningOpaque {
                    opaque: Opaque {
                        dialect: Dialect::AnthropicMessages,
                        value,
                    },
                });
            }
            "tool_use" => {
                let (id, name) = (block.id.as_str(), block.name.as_str());
                let call = self.reply.begin_call(index, id, name, events);
                // By the book an empty object stands here; compatible servers put a short input
                // here instead of into deltas.
                let given = Some(block.input.as_str()).filter(|input| *input != "{}");
                self.block = Block::ToolUse {
                    call,
                    given: given.unwrap_or_default().to_owned(),
                };
            }
            other => {
                self.block = Block::Other;
                self.reply.skip(other, events);
            }
        }
    }

    fn delta(&mut self, index: Option<u64>, delta: &Delta<'_>, events: &mut Vec<ModelEvent>) {
        match delta.kind.as_str() {
            "text_delta" => self.reply.text(delta.text.as_str(), events),
            "thinking_delta" => self.reply.reasoning(delta.thinking.as_str(), events),
            "signature_delta" => {
                if let Block::Thinking { signature } = &mut self.block {
                    signature.push_str(delta.signature.as_str());
                }
            }
            "input_json_delta" => {
                // Blocks do not overlap in practice, but the index is what the protocol goes by.
                let call = match (
                    &self.block,
                    index.and_then(|index| self.reply.calls.by_wire_index(index)),
                ) {
                    (Block::Other, _) => None,
                    (_, Some(call)) => Some(call),
                    (Block::ToolUse { call, .. }, None) => Some(*call),
                    _ => None,
                };
                if let Some(call) = call {
                    self.reply
                        .append_arguments(call, delta.partial_json.as_str(), events);
                }
            }
            "citations_delta" => {}
            other => self.reply.skip(other, events),
        }
    }

    fn block_stop(&mut self, events: &mut Vec<ModelEvent>) {
        match std::mem::take(&mut self.block) {
            Block::Thinking { signature } if !signature.is_empty() => {
                let value = json!({"type": "thinking", "signature": signature});
                events.push(ModelEvent::ReasoningOpaque {
                    opaque: Opaque {
                        dialect: Dialect::AnthropicMessages,
                        value,
                    },
                });
            }
            // Deltas say it better where there were some.
            Block::ToolUse { call, given } if self.reply.calls.arguments(call).is_empty() => {
                self.reply.append_arguments(call, &given, events);
            }
            _ => {}
        }
    }

    fn message_delta(&mut self, event: &Event<'_>, events: &mut Vec<ModelEvent>) {
        if let Some(usage) = &event.usage {
            self.count(usage);
        }
        if let Some(delta) = &event.delta {
            self.stopped(&delta.stop_reason, delta.stop_details.as_ref(), events);
        }
    }

    fn stopped(
        &mut self,
        reason: &Text<'_>,
        details: Option<&StopDetails>,
        events: &mut Vec<ModelEvent>,
    ) {
        let reason = match reason.as_str() {
            "" => return,
            "end_turn" => StopReason::EndTurn,
            "tool_use" => StopReason::ToolUse,
            "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
            "stop_sequence" => StopReason::StopSequence,
            "pause_turn" => StopReason::Paused,
            "refusal" => {
                if let Some(text) = details.and_then(|details| details.explanation.as_deref()) {
                    self.reply.refusal(text, events);
                }
                StopReason::Refusal
            }
            other => unknown_reason(other),
        };
        self.stop = Some(reason);
    }

    fn count(&mut self, usage: &WireUsage) {
        let counts = &mut self.counts;
        for (count, more) in [
            (&mut counts.input, usage.input_tokens.0),
            (&mut counts.cache_read, usage.cache_read_input_tokens.0),
            (&mut counts.cache_write, usage.cache_creation_input_tokens.0),
            (&mut counts.output, usage.output_tokens.0),
        ] {
            *count = more.or(*count);
        }
        let cached = counts
            .cache_read
            .unwrap_or(0)
            .saturating_add(counts.cache_write.unwrap_or(0));
        self.reply.usage.input = counts.input.map(|input| input.saturating_add(cached));
        self.reply.usage.cached_input = counts.cache_read;
        self.reply.usage.cache_write = counts.cache_write;
        self.reply.usage.output = counts.output;
    }
}
