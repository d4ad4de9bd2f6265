//! Events of an OpenAI Responses stream.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::conversation::Opaque;
use crate::dialect::Dialect;
use crate::dialect::reply::Reply;
use crate::error::{ErrorKind, ModelError, classify, classify_value};
use crate::event::{ModelEvent, StopReason, Usage};
use crate::text::Text;

/// Reads the payloads of one Responses response.
#[derive(Debug, Default)]
pub struct ResponsesDecoder {
    pub(crate) reply: Reply,
    /// Items by their place in the output; ids are no help, some gateways change them per event.
    items: BTreeMap<u64, Item>,
}

#[derive(Debug, Default)]
struct Item {
    /// Text or thinking of this item has come as deltas, so its final form repeats it.
    streamed: bool,
    call: Option<usize>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(default)]
    summary_index: Option<u64>,
    #[serde(borrow, default)]
    delta: Text<'a>,
    #[serde(borrow, default)]
    arguments: Text<'a>,
    #[serde(borrow, default)]
    item: Option<OutputItem<'a>>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct OutputItem<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    call_id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: Text<'a>,
    #[serde(borrow, default)]
    encrypted_content: Text<'a>,
    #[serde(borrow, default)]
    summary: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireResponse<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(borrow, default)]
    incomplete_details: Option<Incomplete<'a>>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow, default)]
    reason: Text<'a>,
}

#[derive(Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl ResponsesDecoder {
    pub(crate) fn take(
        &mut self,
        data: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), serde_json::Error> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_slice(data)?;
        let place = event.output_index.unwrap_or(0);
        match event.kind.as_str() {
            "response.output_text.delta" => {
                self.item(place).streamed = true;
                self.reply.text(event.delta.as_str(), events);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.item(place).streamed = true;
                self.reply.reasoning(event.delta.as_str(), events);
            }
            "response.function_call_arguments.delta" => {
                if let Some(call) = self.item(place).call {
                    self.append(call, event.delta.as_str(), events);
                }
            }
            "response.function_call_arguments.done" => {
                if let Some(call) = self.item(place).call {
                    self.settle(call, event.arguments.as_str(), events);
                }
            }
            "response.refusal.delta" => {
                self.item(place).streamed = true;
                self.reply.refusal(event.delta.as_str(), events);
            }
            // A further paragraph of the summary.
            "response.reasoning_summary_part.added" if event.summary_index.unwrap_or(0) > 0 => {
                self.reply.reasoning("\n\n", events)
            }
            "response.output_item.added" => {
                if let Some(item) = &event.item {
                    self.item_added(place, item, events);
                }
            }
            "response.output_item.done" => {
                if let Some(item) = &event.item {
                    self.item_done(place, item, events);
                }
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                let response = parse_response(event.response)?;
                self.reply.start(
                    response.id.to_owned_option(),
                    response.model.to_owned_option(),
                    events,
                );
            }
            "response.completed" | "response.done" => self.completed(
                &parse_response(event.response)?,
                StopReason::EndTurn,
                events,
            ),
            "response.incomplete" => {
                let response = parse_response(event.response)?;
                let reason = match response
                    .incomplete_details
                    .as_ref()
                    .map_or("", |details| details.reason.as_str())
                {
                    "max_output_tokens" | "" => StopReason::MaxTokens,
                    "content_filter" => StopReason::ContentFilter,
                    other => StopReason::Unknown(other.chars().take(100).collect()),
                };
                self.completed(&response, reason, events);
            }
            "response.failed" => {
                let response = parse_response(event.response)?;
                let error = response.error.as_ref().map_or_else(
                    || ModelError::new(ErrorKind::Unknown, "the response failed without a reason"),
                    classify_value,
                );
                self.reply.fail(error, events);
            }
            "response.cancelled" => self.reply.fail(
                ModelError::new(
                    ErrorKind::StreamInterrupted,
                    "the server cancelled the response",
                ),
                events,
            ),
            // `error` has its fields either inside an object or beside its type.
            "error" | "" => self.reply.fail(classify(None, data), events),
            _ => {}
        }
        Ok(())
    }

    fn item(&mut self, place: u64) -> &mut Item {
        self.items.entry(place).or_default()
    }

    fn item_added(&mut self, place: u64, item: &OutputItem<'_>, events: &mut Vec<ModelEvent>) {
        self.reply.start(None, None, events);
        match item.kind.as_str() {
            "function_call" => {
                let id = if item.call_id.is_empty() {
                    item.id.as_str()
                } else {
                    item.call_id.as_str()
                };
                let call = self.reply.calls.begin(Some(place), id, item.name.as_str());
                self.reply
                    .calls
                    .announce(call, self.reply.response_id.as_deref(), events);
                self.item(place).call = Some(call);
                self.append(call, item.arguments.as_str(), events);
            }
            "message" | "reasoning" => {}
            other => self.reply.skip(other, events),
        }
    }

    fn item_done(&mut self, place: u64, item: &OutputItem<'_>, events: &mut Vec<ModelEvent>) {
        let streamed = self.item(place).streamed;
        match item.kind.as_str() {
            "function_call" => {
                if self.item(place).call.is_none() {
                    self.item_added(place, item, events);
                }
                if let Some(call) = self.item(place).call {
                    self.settle(call, item.arguments.as_str(), events);
                }
            }
            "message" if !streamed => {
                for part in values(item.content) {
                    self.reply
                        .text(part["text"].as_str().unwrap_or_default(), events);
                    self.reply
                        .refusal(part["refusal"].as_str().unwrap_or_default(), events);
                }
            }
            "reasoning" => {
                let summary = values(item.summary);
                if !streamed {
                    for part in summary.iter().chain(&values(item.content)) {
                        self.reply
                            .reasoning(part["text"].as_str().unwrap_or_default(), events);
                    }
                }
                // Without its encrypted content a reasoning item lives on the server only, and we
                // ask the server to keep nothing.
                if !item.encrypted_content.is_empty() {
                    let value = json!({
                        "type": "reasoning",
                        "id": item.id.as_str(),
                        "summary": summary,
                        "encrypted_content": item.encrypted_content.as_str(),
                    });
                    events.push(ModelEvent::ReasoningOpaque {
                        opaque: Opaque {
                            dialect: Dialect::OpenAiResponses,
                            value,
                        },
                    });
                }
            }
            _ => {}
        }
    }

    fn append(&mut self, call: usize, piece: &str, events: &mut Vec<ModelEvent>) {
        if !self.reply.calls.append(call, piece, events) {
            self.too_large(events);
        }
    }

    fn settle(&mut self, call: usize, whole: &str, events: &mut Vec<ModelEvent>) {
        if !self.reply.calls.settle(call, whole, events) {
            self.too_large(events);
        }
    }

    fn too_large(&mut self, events: &mut Vec<ModelEvent>) {
        self.reply.fail(
            ModelError::new(
                ErrorKind::Malformed,
                "the arguments of the tool calls are too large",
            ),
            events,
        );
    }

    fn completed(
        &mut self,
        response: &WireResponse<'_>,
        reason: StopReason,
        events: &mut Vec<ModelEvent>,
    ) {
        self.reply.start(
            response.id.to_owned_option(),
            response.model.to_owned_option(),
            events,
        );
        if let Some(usage) = &response.usage {
            let (cached, written) = usage
                .input_tokens_details
                .as_ref()
                .map_or((None, None), |details| {
                    (details.cached_tokens, details.cache_write_tokens)
                });
            self.reply.usage = Usage {
                input: usage.input_tokens,
                output: usage.output_tokens,
                cached_input: cached,
                cache_write: written,
                reasoning: usage
                    .output_tokens_details
                    .as_ref()
                    .and_then(|details| details.reasoning_tokens),
                total: usage.total_tokens,
                reported_cost: None,
            };
        }
        self.reply.stop(reason, events);
    }
}

fn parse_response(raw: Option<&RawValue>) -> Result<WireResponse<'_>, serde_json::Error> {
    serde_json::from_str(raw.map_or("{}", RawValue::get))
}

fn values(raw: Option<&RawValue>) -> Vec<Value> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}
