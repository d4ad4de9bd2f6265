//! What a model says and thinks, as it arrives.

use agent_history::describe;
use agent_protocol::Event;
use agent_protocol::id::ModelRequestId;
use agent_protocol::payload::model::{
    ModelCompleted, ModelDelta, ModelFailed, ModelFailureKind, ReasoningDelta,
};

use super::cell::{AssistantCell, CellKind, KEPT_DIFF, Notice, NoticeLevel, ReasoningCell, clip};
use super::{State, Stream};

impl State {
    pub(super) fn change_text(&mut self, index: usize, change: impl FnOnce(&mut AssistantCell)) {
        self.change(index, |cell| {
            if let CellKind::Assistant(assistant) = &mut cell.kind {
                change(assistant);
            }
        });
    }

    pub(super) fn text_cell(&mut self, request: &ModelRequestId) -> usize {
        if let Some(index) = self
            .streams
            .get(request)
            .and_then(|stream| stream.text_cell)
        {
            return index;
        }
        self.close_reasoning(request);
        self.end_retry();
        let index = self.push(CellKind::Assistant(AssistantCell::default()));
        self.streams.entry(request.clone()).or_default().text_cell = Some(index);
        index
    }

    fn close_reasoning(&mut self, request: &ModelRequestId) {
        let open = self
            .streams
            .get(request)
            .and_then(|stream| stream.reasoning_cell);
        if let Some(index) = open {
            self.change(index, |cell| cell.done = true);
        }
    }

    pub(super) fn model_delta(&mut self, delta: &ModelDelta) {
        if delta.text.is_empty() || self.facts.compacting {
            return;
        }
        let index = self.text_cell(&delta.model_request_id);
        self.change_text(index, |assistant| {
            // What is recorded takes the place of the live text that ran ahead of it.
            let ahead = assistant.text.split_off(assistant.recorded);
            assistant.text.push_str(&delta.text);
            assistant.recorded = assistant.text.len();
            if let Some(still_ahead) = ahead.get(delta.text.len()..) {
                assistant.text.push_str(still_ahead);
            }
        });
        self.activity("the model is answering", None);
    }

    pub(super) fn model_completed(&mut self, completed: &ModelCompleted) {
        self.end_retry();
        let request = &completed.model_request_id;
        let usage = &completed.usage;
        self.facts.input_tokens += usage.input.unwrap_or(0);
        self.facts.output_tokens += usage.output.unwrap_or(0);
        self.facts.cached_tokens += usage.cached_input.unwrap_or(0);
        if let Some(input) = usage.input {
            self.facts.context.used = Some(input + usage.output.unwrap_or(0));
        }
        self.close_reasoning(request);
        if let Some(text) = completed
            .text
            .as_ref()
            .filter(|text| !text.trim().is_empty() && !self.facts.compacting)
        {
            let index = self.text_cell(request);
            self.change(index, |cell| {
                if let CellKind::Assistant(assistant) = &mut cell.kind
                    && assistant.text != *text
                {
                    assistant.text.clone_from(text);
                }
            });
        }
        self.current_request = None;
        if let Some(Stream {
            text_cell: Some(index),
            ..
        }) = self.streams.remove(request)
        {
            self.change(index, |cell| cell.done = true);
        }
        if !completed.tool_call_ids.is_empty() {
            self.activity("checking what the model asked for", None);
        }
    }

    pub(super) fn model_failed(&mut self, event: &Event, failed: &ModelFailed) {
        self.current_request = None;
        // A process that ended in the middle of it says no more about it than this.
        self.facts.compacting &= failed.retryable;
        self.close_reasoning(&failed.model_request_id);
        if let Some(Stream {
            text_cell: Some(index),
            ..
        }) = self.streams.remove(&failed.model_request_id)
        {
            self.change(index, |cell| {
                if let CellKind::Assistant(assistant) = &mut cell.kind {
                    assistant.interrupted = true;
                }
                cell.done = true;
            });
        }
        if failed.kind == ModelFailureKind::Cancelled {
            // The end of the turn says who stopped it.
            self.end_retry();
            return;
        }
        let said = describe(event);
        if failed.retry_in_ms.is_some() {
            self.say_retry(said.text);
            return;
        }
        self.end_retry();
        self.last_failure = Some(failed.message.clone());
        let level = if failed.retryable {
            NoticeLevel::Warning
        } else {
            NoticeLevel::Error
        };
        self.notice(level, said.text, failed.hint.as_deref());
    }

    /// One line says that the model is asked again, however often that is.
    fn say_retry(&mut self, text: String) {
        match self.retry_cell {
            Some(index) => self.change(index, |cell| {
                if let CellKind::Notice(notice) = &mut cell.kind {
                    notice.text = text;
                }
            }),
            None => {
                let notice = Notice {
                    level: NoticeLevel::Warning,
                    text,
                    detail: None,
                };
                self.retry_cell = Some(self.push(CellKind::Notice(notice)));
            }
        }
    }

    /// The model answers, or is asked no more.
    pub(super) fn end_retry(&mut self) {
        if let Some(index) = self.retry_cell.take() {
            self.change(index, |cell| cell.done = true);
        }
    }

    pub(super) fn reasoning_cell(&mut self, request: &ModelRequestId) -> usize {
        if let Some(index) = self
            .streams
            .get(request)
            .and_then(|stream| stream.reasoning_cell)
        {
            return index;
        }
        self.end_retry();
        let index = self.push(CellKind::Reasoning(ReasoningCell::default()));
        self.streams
            .entry(request.clone())
            .or_default()
            .reasoning_cell = Some(index);
        index
    }

    pub(super) fn reasoning_delta(&mut self, delta: &ReasoningDelta) {
        if self.facts.compacting {
            return;
        }
        let index = self.reasoning_cell(&delta.model_request_id);
        self.change(index, |cell| {
            if let CellKind::Reasoning(reasoning) = &mut cell.kind {
                reasoning.record();
                if let Some(text) = &delta.text {
                    let room = KEPT_DIFF.saturating_sub(reasoning.text.len());
                    reasoning.text.push_str(clip(text, room));
                    reasoning.characters += text.chars().count() as u64;
                }
                reasoning.bytes += delta.bytes;
            }
        });
        self.activity("the model is thinking", None);
    }
}
