//! Events of an OpenAI Responses stream.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::conversation::Opaque;
use crate::dialect::Dialect;
use crate::dialect::reply::{Reply, TokenDetails, unknown_reason};
use crate::error::{ErrorKind, ModelError, classify, classify_value};
use crate::event::{ModelEvent, StopReason, Usage};
use crate::text::{JsonText, Number, Text, lenient, list};

/// Reads the payloads of one Responses response.
#[derive(Debug, Default)]
pub struct ResponsesDecoder {
    pub(crate) reply: Reply,
    /// The items of the output, in the order they began.
    items: Vec<Item>,
}

/// An item is known by its place in the output and by its ids. Some servers leave out the places or
/// give every item the same, some gateways change the ids with every event; one of them holds.
#[derive(Debug, Default)]
struct Item {
    place: Option<u64>,
    kind: String,
    id: String,
    call_id: String,
    /// Its final form has come.
    done: bool,
    /// Text or thinking of this item has come as deltas, so its final form repeats it.
    streamed: bool,
    call: Option<usize>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(default)]
    output_index: Number,
    #[serde(default)]
    summary_index: Number,
    #[serde(borrow, default)]
    item_id: Text<'a>,
    #[serde(borrow, default)]
    delta: JsonText<'a>,
    #[serde(borrow, default)]
    arguments: JsonText<'a>,
    #[serde(borrow, default)]
    item: Option<OutputItem<'a>>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    /// `response` when the server does not stream and sends the whole response as one document.
    #[serde(borrow, default)]
    object: Text<'a>,
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
    arguments: JsonText<'a>,
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
    #[serde(default, deserialize_with = "lenient")]
    incomplete_details: Option<Incomplete>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    #[serde(borrow, default)]
    status: Text<'a>,
    /// Needed when the response comes as one document, or as a stream of nothing but its ends; in
    /// other streams the items came before.
    #[serde(borrow, default, deserialize_with = "list")]
    output: Vec<OutputItem<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireUsage {
    input_tokens: Number,
    output_tokens: Number,
    total_tokens: Number,
    #[serde(deserialize_with = "lenient")]
    input_tokens_details: Option<TokenDetails>,
    #[serde(deserialize_with = "lenient")]
    output_tokens_details: Option<TokenDetails>,
}

impl ResponsesDecoder {
    pub(crate) fn take(
        &mut self,
        name: &str,
        data: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), serde_json::Error> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_slice(data)?;
        let place = event.output_index.0;
        // The name of an event repeats its type, and stands in for it where that is missing.
        let kind = if event.kind.is_empty() && event.object.as_str() != "response" {
            name
        } else {
            event.kind.as_str()
        };
        match kind {
            "response.output_text.delta" => {
                self.item(place, &event.item_id).streamed = true;
                self.reply.text(event.delta.as_str(), events);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.item(place, &event.item_id).streamed = true;
                self.reply.reasoning(event.delta.as_str(), events);
            }
            "response.function_call_arguments.delta" => {
                if let Some(call) = self.item(place, &event.item_id).call {
                    self.reply
                        .append_arguments(call, event.delta.as_str(), events);
                }
            }
            "response.function_call_arguments.done" => {
                if let Some(call) = self.item(place, &event.item_id).call {
                    self.reply
                        .settle_arguments(call, event.arguments.as_str(), events);
                }
            }
            "response.refusal.delta" => {
                self.item(place, &event.item_id).streamed = true;
                self.reply.refusal(event.delta.as_str(), events);
            }
            // A further paragraph of the summary.
            "response.reasoning_summary_part.added" if event.summary_index.0.unwrap_or(0) > 0 => {
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
            "response.incomplete" => self.incomplete(&parse_response(event.response)?, events),
            "response.failed" => self.failed(&parse_response(event.response)?, events),
            "response.cancelled" => self.cancelled(events),
            "" if event.object.as_str() == "response" => {
                self.whole(&serde_json::from_slice(data)?, events);
            }
            // `error` has its fields either inside an object or beside its type.
            "error" | "" => self.reply.fail(classify(None, data), events),
            _ => {}
        }
        Ok(())
    }

    /// A response that came as one document.
    fn whole(&mut self, response: &WireResponse<'_>, events: &mut Vec<ModelEvent>) {
        self.reply.start(
            response.id.to_owned_option(),
            response.model.to_owned_option(),
            events,
        );
        match response.status.as_str() {
            "completed" | "" => self.completed(response, StopReason::EndTurn, events),
            "incomplete" => self.incomplete(response, events),
            "cancelled" => self.cancelled(events),
            _ => self.failed(response, events),
        }
    }

    fn incomplete(&mut self, response: &WireResponse<'_>, events: &mut Vec<ModelEvent>) {
        let details = response.incomplete_details.as_ref();
        let reason = details.and_then(|details| details.reason.as_deref());
        let reason = match reason.unwrap_or_default() {
            "max_output_tokens" | "" => StopReason::MaxTokens,
            "content_filter" => StopReason::ContentFilter,
            other => unknown_reason(other),
        };
        self.completed(response, reason, events);
    }

    fn failed(&mut self, response: &WireResponse<'_>, events: &mut Vec<ModelEvent>) {
        let error = response.error.as_ref().map_or_else(
            || ModelError::new(ErrorKind::Unknown, "the response failed without a reason"),
            classify_value,
        );
        self.reply.fail(error, events);
    }

    fn cancelled(&mut self, events: &mut Vec<ModelEvent>) {
        let error = ModelError::new(
            ErrorKind::StreamInterrupted,
            "the server cancelled the response",
        );
        self.reply.fail(error, events);
    }

    /// The item an event is about: the one with its id, else the one in its place, else the last.
    fn item(&mut self, place: Option<u64>, id: &Text<'_>) -> &mut Item {
        let by_id = || {
            let same = |item: &Item| !id.is_empty() && item.id == id.as_str();
            self.items.iter().rposition(same)
        };
        let by_place = || match place {
            Some(_) => self.items.iter().rposition(|item| item.place == place),
            None => self.items.len().checked_sub(1),
        };
        let at = by_id().or_else(by_place).unwrap_or_else(|| {
            self.items.push(Item {
                place,
                id: id.as_str().to_owned(),
                ..Item::default()
            });
            self.items.len() - 1
        });
        &mut self.items[at]
    }

    /// The item whose final form this is, if it was announced or had deltas.
    fn known(&self, place: Option<u64>, item: &OutputItem<'_>) -> Option<usize> {
        let (id, call_id) = (item.id.as_str(), item.call_id.as_str());
        let is_named = |known: &Item| {
            (!call_id.is_empty() && known.call_id == call_id) || (!id.is_empty() && known.id == id)
        };
        let is_placed = |known: &Item| {
            let same_kind = known.kind.is_empty() || known.kind == item.kind.as_str();
            place.is_some() && known.place == place && same_kind && !known.done
        };
        let named = self.items.iter().rposition(is_named);
        named.or_else(|| self.items.iter().rposition(is_placed))
    }

    fn item_added(
        &mut self,
        place: Option<u64>,
        item: &OutputItem<'_>,
        events: &mut Vec<ModelEvent>,
    ) -> usize {
        self.reply.start(None, None, events);
        let mut added = Item {
            place,
            kind: item.kind.as_str().to_owned(),
            id: item.id.as_str().to_owned(),
            call_id: item.call_id.as_str().to_owned(),
            ..Item::default()
        };
        match item.kind.as_str() {
            "function_call" => {
                let id = if item.call_id.is_empty() {
                    item.id.as_str()
                } else {
                    item.call_id.as_str()
                };
                let call = self.reply.begin_call(None, id, item.name.as_str(), events);
                added.call = Some(call);
                self.reply
                    .append_arguments(call, item.arguments.as_str(), events);
            }
            "message" | "reasoning" => {}
            other => self.reply.skip(other, events),
        }
        self.items.push(added);
        self.items.len() - 1
    }

    fn item_done(
        &mut self,
        place: Option<u64>,
        item: &OutputItem<'_>,
        events: &mut Vec<ModelEvent>,
    ) {
        let at = match self.known(place, item) {
            Some(at) => at,
            None => self.item_added(place, item, events),
        };
        let known = &mut self.items[at];
        item.kind.as_str().clone_into(&mut known.kind);
        known.done = true;
        let (streamed, call) = (known.streamed, known.call);
        match item.kind.as_str() {
            "function_call" => {
                if let Some(call) = call {
                    self.reply
                        .settle_arguments(call, item.arguments.as_str(), events);
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
        if self.items.is_empty() {
            for (place, item) in (0..).zip(&response.output) {
                self.item_done(Some(place), item, events);
            }
        }
        if let Some(usage) = &response.usage {
            let (cached, written) = usage
                .input_tokens_details
                .as_ref()
                .map_or((None, None), |details| {
                    (details.cached_tokens.0, details.cache_write_tokens.0)
                });
            self.reply.usage = Usage {
                input: usage.input_tokens.0,
                output: usage.output_tokens.0,
                cached_input: cached,
                cache_write: written,
                reasoning: usage
                    .output_tokens_details
                    .as_ref()
                    .and_then(|details| details.reasoning_tokens.0),
                total: usage.total_tokens.0,
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
