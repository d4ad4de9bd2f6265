//! A whole response, folded from its events.

use crate::conversation::{Arguments, AssistantPart, Message, Opaque, ToolCall};
use crate::error::ModelError;
use crate::event::{ModelEvent, StopReason, Usage};

/// Complete answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Text, thinking and calls in the order they began.
    pub parts: Vec<AssistantPart>,
    /// The words of a refusal.
    pub refusal: Option<String>,
    /// Token usage.
    pub usage: Usage,
    /// Reason why it ended.
    pub stop: StopReason,
    /// The id in the body.
    pub response_id: Option<String>,
    /// The id in the headers, which is the one support asks for.
    pub request_id: Option<String>,
    /// The model that answered, as the server names it.
    pub model: Option<String>,
    /// Number of attempts.
    pub attempts: u32,
}

impl Response {
    /// All text for the user, exactly as it came.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                AssistantPart::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The text, or the words of a refusal where there is none.
    pub fn text_or_refusal(&self) -> String {
        let text = self.text();
        match &self.refusal {
            Some(refusal) if text.is_empty() => refusal.clone(),
            _ => text,
        }
    }

    /// Tokens of the answer, estimated from what can be seen of it, for servers that do not count.
    pub fn estimated_tokens(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| match part {
            AssistantPart::Text(text) | AssistantPart::Reasoning { text, .. } => text.len(),
            AssistantPart::ToolCall(call) => call.name.len() + call.arguments_text.len(),
        });
        crate::cost::estimate_tokens(bytes.sum())
    }

    /// All thinking that can be read.
    pub fn reasoning(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                AssistantPart::Reasoning { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            AssistantPart::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// True if the length limit cut the answer inside a call: nothing of it may be run.
    pub fn has_cut_call(&self) -> bool {
        self.tool_calls()
            .any(|call| call.arguments == Arguments::Cut)
    }

    /// The response as a message for the next request.
    pub fn to_message(&self) -> Message {
        Message::Assistant(self.parts.clone())
    }
}

/// Folds events into a [`Response`].
#[derive(Debug, Default)]
pub struct ResponseBuilder {
    parts: Vec<AssistantPart>,
    /// Index in `parts` of each call.
    calls: Vec<usize>,
    refusal: Option<String>,
    usage: Usage,
    response_id: Option<String>,
    model: Option<String>,
    end: Option<Result<StopReason, ModelError>>,
}

impl ResponseBuilder {
    /// Nothing said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event.
    pub fn push(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Started { response_id, model } => {
                *self = Self {
                    response_id: response_id.clone(),
                    model: model.clone(),
                    ..Self::default()
                };
            }
            ModelEvent::TextDelta { text } => match self.parts.last_mut() {
                Some(AssistantPart::Text(so_far)) => so_far.push_str(text),
                _ => self.parts.push(AssistantPart::Text(text.clone())),
            },
            ModelEvent::ReasoningDelta { text } => match self.parts.last_mut() {
                Some(AssistantPart::Reasoning {
                    text: so_far,
                    opaque: None,
                }) => so_far.push_str(text),
                _ => self.parts.push(AssistantPart::Reasoning {
                    text: text.clone(),
                    opaque: None,
                }),
            },
            ModelEvent::ReasoningOpaque { opaque } => self.seal(opaque),
            ModelEvent::ToolCallStarted {
                provider_call_id,
                name,
                ..
            } => {
                self.calls.push(self.parts.len());
                self.parts.push(AssistantPart::ToolCall(ToolCall {
                    provider_call_id: provider_call_id.clone(),
                    name: name.clone(),
                    arguments_text: String::new(),
                    arguments: Arguments::Cut,
                    opaque: None,
                }));
            }
            ModelEvent::ToolCallDelta { index, text } => {
                if let Some(AssistantPart::ToolCall(call)) = self
                    .calls
                    .get(*index)
                    .and_then(|at| self.parts.get_mut(*at))
                {
                    call.arguments_text.push_str(text);
                }
            }
            ModelEvent::ToolCallCompleted { index, call } => {
                if let Some(part) = self
                    .calls
                    .get(*index)
                    .and_then(|at| self.parts.get_mut(*at))
                {
                    *part = AssistantPart::ToolCall(call.clone());
                }
            }
            ModelEvent::Refusal { text } => self.refusal.get_or_insert_default().push_str(text),
            ModelEvent::Skipped { .. } => {}
            ModelEvent::Usage(usage) => self.usage = usage.clone(),
            ModelEvent::Stopped { reason } => self.end = Some(Ok(reason.clone())),
            ModelEvent::Error(error) => self.end = Some(Err(error.clone())),
        }
    }

    /// The text so far, for a caller that was interrupted.
    pub fn partial_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                AssistantPart::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The response, the error it ended in, or `None` while it is still going on.
    pub fn build(self) -> Option<Result<Response, ModelError>> {
        let stop = match self.end? {
            Ok(stop) => stop,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Response {
            parts: self.parts,
            refusal: self.refusal,
            usage: self.usage,
            stop,
            response_id: self.response_id,
            request_id: None,
            model: self.model,
            attempts: 1,
        }))
    }

    /// Joins opaque data to the last thinking that has none; alone it is a block of its own.
    fn seal(&mut self, data: &Opaque) {
        let open = self.parts.iter_mut().rev().find_map(|part| match part {
            AssistantPart::Reasoning { opaque, .. } => Some(opaque),
            _ => None,
        });
        match open {
            Some(opaque @ None) => *opaque = Some(data.clone()),
            _ => self.parts.push(AssistantPart::Reasoning {
                text: String::new(),
                opaque: Some(data.clone()),
            }),
        }
    }
}
