//! Events of an Anthropic Messages stream.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::conversation::Opaque;
use crate::dialect::Dialect;
use crate::dialect::reply::Reply;
use crate::error::{ErrorKind, ModelError, classify};
use crate::event::{ModelEvent, StopReason};
use crate::text::Text;

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
    index: Option<u64>,
    #[serde(borrow, default)]
    content_block: Option<ContentBlock<'a>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct MessageStart<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(default)]
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
    #[serde(default)]
    input: Option<Value>,
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
    partial_json: Text<'a>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    #[serde(borrow, default)]
    stop_details: Option<StopDetails<'a>>,
}

#[derive(Deserialize)]
struct StopDetails<'a> {
    #[serde(borrow, default)]
    explanation: Text<'a>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

impl AnthropicDecoder {
    pub(crate) fn take(
        &mut self,
        data: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), serde_json::Error> {
        let event: Event<'_> = serde_json::from_slice(data)?;
        match event.kind.as_str() {
            "content_block_delta" => {
                if let Some(delta) = &event.delta {
                    self.delta(event.index, delta, events);
                }
            }
            "message_start" => self.message_start(event.message.as_ref(), events),
            "content_block_start" => {
                if let Some(block) = &event.content_block {
                    self.block_start(event.index, block, events);
                }
            }
            "content_block_stop" => self.block_stop(events),
            "message_delta" => self.message_delta(&event, events),
            "message_stop" => {
                let reason = self.stop.take().unwrap_or(StopReason::EndTurn);
                self.reply.stop(reason, events);
            }
            "ping" => {}
            "error" => self.reply.fail(classify(None, data), events),
            "message" => self.reply.fail(
                ModelError::new(
                    ErrorKind::Unsupported,
                    "the server answered without streaming",
                ),
                events,
            ),
            "" => {
                let error = classify(None, data);
                self.reply.fail(error, events);
            }
            other => self.reply.skip(other, events),
        }
        Ok(())
    }

    /// The body ended without `message_stop`, which is fine when the reason to stop was given.
    pub(crate) fn end(&mut self, events: &mut Vec<ModelEvent>) {
        if let Some(reason) = self.stop.take() {
            self.reply.stop(reason, events);
        }
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
                let call = self
                    .reply
                    .calls
                    .begin(index, block.id.as_str(), block.name.as_str());
                self.reply
                    .calls
                    .announce(call, self.reply.response_id.as_deref(), events);
                self.block = Block::ToolUse { call };
                // Compatible servers put a short input here instead of into deltas.
                if let Some(Value::Object(input)) = &block.input
                    && !input.is_empty()
                {
                    self.append(call, &Value::Object(input.clone()).to_string(), events);
                }
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
                    (Block::ToolUse { call }, None) => Some(*call),
                    _ => None,
                };
                if let Some(call) = call {
                    self.append(call, delta.partial_json.as_str(), events);
                }
            }
            "citations_delta" => {}
            other => self.reply.skip(other, events),
        }
    }

    fn append(&mut self, call: usize, piece: &str, events: &mut Vec<ModelEvent>) {
        if !self.reply.calls.append(call, piece, events) {
            self.reply.fail(
                ModelError::new(
                    ErrorKind::Malformed,
                    "the arguments of the tool calls are too large",
                ),
                events,
            );
        }
    }

    fn block_stop(&mut self, events: &mut Vec<ModelEvent>) {
        if let Block::Thinking { signature } = std::mem::take(&mut self.block)
            && !signature.is_empty()
        {
            let value = json!({"type": "thinking", "signature": signature});
            events.push(ModelEvent::ReasoningOpaque {
                opaque: Opaque {
                    dialect: Dialect::AnthropicMessages,
                    value,
                },
            });
        }
    }

    fn message_delta(&mut self, event: &Event<'_>, events: &mut Vec<ModelEvent>) {
        if let Some(usage) = &event.usage {
            self.count(usage);
        }
        let Some(delta) = &event.delta else { return };
        let reason = match delta.stop_reason.as_str() {
            "" => return,
            "end_turn" => StopReason::EndTurn,
            "tool_use" => StopReason::ToolUse,
            "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
            "stop_sequence" => StopReason::StopSequence,
            "refusal" => {
                if let Some(details) = &delta.stop_details {
                    self.reply.refusal(details.explanation.as_str(), events);
                }
                StopReason::Refusal
            }
            other => StopReason::Unknown(other.chars().take(100).collect()),
        };
        self.stop = Some(reason);
    }

    fn count(&mut self, usage: &WireUsage) {
        let counts = &mut self.counts;
        for (count, more) in [
            (&mut counts.input, usage.input_tokens),
            (&mut counts.cache_read, usage.cache_read_input_tokens),
            (&mut counts.cache_write, usage.cache_creation_input_tokens),
            (&mut counts.output, usage.output_tokens),
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
