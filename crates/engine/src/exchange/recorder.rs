//! Signals of a provider, written down as they come.

use agent_protocol::payload::model::{ModelDelta, ModelFailed, ReasoningDelta};
use agent_protocol::{Refs, Timestamp};
use agent_provider::conversation::ModelRequest;
use agent_provider::event::ModelEvent;
use agent_provider::provider::{Provider, Signal};
use agent_tool_runtime::JournalError;
use tokio_util::sync::CancellationToken;

use super::Exchange;
use super::stream::Stream;
use crate::live::LiveText;

/// Writes signals down as they come.
pub(super) struct Recorder<'a> {
    exchange: &'a Exchange<'a>,
    provider: &'a dyn Provider,
    request: &'a ModelRequest,
    attempt: u32,
    pub(super) failed: Option<JournalError>,
    text: Stream,
    reasoning: Stream,
    pub(super) first_token: Option<Timestamp>,
    stop: &'a CancellationToken,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        exchange: &'a Exchange<'a>,
        provider: &'a dyn Provider,
        request: &'a ModelRequest,
        started: Timestamp,
        stop: &'a CancellationToken,
    ) -> Self {
        Self {
            exchange,
            provider,
            request,
            attempt: 0,
            failed: None,
            text: Stream::new(started),
            reasoning: Stream::new(started),
            first_token: None,
            stop,
        }
    }

    pub(super) fn take(&mut self, signal: Signal) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = self.record(signal) {
            // What cannot be written down must not go on.
            self.failed = Some(error);
            self.stop.cancel();
        }
    }

    fn record(&mut self, signal: Signal) -> Result<(), JournalError> {
        match signal {
            Signal::AttemptStarted {
                attempt,
                body,
                body_sha256,
            } => {
                self.attempt = attempt;
                self.exchange.request_sent(
                    self.provider,
                    self.request,
                    attempt,
                    &body,
                    &body_sha256,
                )
            }
            Signal::Answered { .. } => Ok(()),
            Signal::Event(event) => self.event(event),
            Signal::AttemptFailed {
                attempt,
                error,
                retry_in,
                max_attempts,
            } => {
                self.write_text(true)?;
                let partial = std::mem::take(&mut self.text.whole);
                self.text.reset();
                self.reasoning.reset();
                let retry_in_ms =
                    retry_in.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                let partial: String = partial.chars().take(4_000).collect();
                let failed = ModelFailed {
                    attempt: u64::from(attempt),
                    retry_in_ms,
                    max_attempts: Some(u64::from(max_attempts)),
                    partial_text: (!partial.is_empty()).then_some(partial),
                    ..ModelFailed::default()
                };
                self.exchange.attempt_failed(self.provider, &error, failed)
            }
        }
    }

    fn event(&mut self, event: ModelEvent) -> Result<(), JournalError> {
        let now = self.exchange.journal.now();
        match event {
            ModelEvent::Started { .. } => {
                self.text.reset();
                self.reasoning.reset();
                Ok(())
            }
            ModelEvent::TextDelta { text } | ModelEvent::Refusal { text } => {
                self.first_token.get_or_insert(now);
                self.exchange.live.show(LiveText::Answer(&text));
                self.text.push(&text);
                if self.text.due(now) {
                    self.write_text(false)
                } else {
                    Ok(())
                }
            }
            ModelEvent::ReasoningDelta { text } => {
                self.first_token.get_or_insert(now);
                self.exchange.live.show(LiveText::Reasoning(&text));
                self.reasoning.push(&text);
                if self.reasoning.due(now) {
                    self.write_reasoning(false)
                } else {
                    Ok(())
                }
            }
            ModelEvent::ToolCallStarted { name, .. } => {
                self.first_token.get_or_insert(now);
                self.exchange.live.show(LiveText::Call(&name));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The rest of the streamed text, so that a killed session keeps the text so far.
    pub(super) fn flush(&mut self) {
        if self.failed.is_none() {
            let written = self
                .write_reasoning(true)
                .and_then(|()| self.write_text(true));
            self.failed = written.err();
        }
    }

    fn write_text(&mut self, all: bool) -> Result<(), JournalError> {
        // A stream that was never written piecemeal is in `model.completed` whole.
        if all && self.text.index == 0 {
            return Ok(());
        }
        while let Some((index, text)) = self.text.take(all) {
            let model_request_id = self.exchange.model_request_id.clone();
            self.exchange.append(
                ModelDelta {
                    model_request_id,
                    index,
                    text,
                },
                Refs::default(),
            )?;
        }
        self.text.written = self.exchange.journal.now();
        Ok(())
    }

    fn write_reasoning(&mut self, all: bool) -> Result<(), JournalError> {
        if all && self.reasoning.index == 0 {
            return Ok(());
        }
        while let Some((index, text)) = self.reasoning.take(all) {
            let delta = ReasoningDelta {
                model_request_id: self.exchange.model_request_id.clone(),
                index,
                bytes: text.len() as u64,
                text: Some(text),
            };
            self.exchange.append(delta, Refs::default())?;
        }
        self.reasoning.written = self.exchange.journal.now();
        Ok(())
    }
}
