//! One question to a model and its answer, written down as it happens: each attempt on the wire,
//! the text as it streams, the failure or the whole answer, and what it cost.

use std::sync::Arc;

use agent_protocol::id::{ArtifactId, ContextId, ModelRequestId, ToolCallId};
use agent_protocol::payload::Usage;
use agent_protocol::payload::conversation::{ArtifactKind, RunMetadata, RunStatus};
use agent_protocol::payload::model::{
    ContextResolved, ModelCompleted, ModelDelta, ModelFailed, ModelFailureKind, ModelOptions,
    ModelRequested, PromptEvidence, RateLimitHit, ReasoningDelta, ReasoningSummary,
};
use agent_protocol::status::Status;
use agent_protocol::{Payload, Refs, Scope, Timestamp};
use agent_provider::conversation::{Message, ModelRequest, ToolChoice, UserPart};
use agent_provider::error::{ErrorKind, ModelError};
use agent_provider::event::ModelEvent;
use agent_provider::provider::{Provider, Signal};
use agent_provider::response::Response;
use agent_tool_runtime::{Journal, JournalError};
use tokio_util::sync::CancellationToken;

use crate::continuation::Continuation;
use crate::live::{Live, LiveText};

/// How often streamed text is written to the log at most.
const DELTA_INTERVAL_MS: u64 = 250;
/// The most bytes of streamed text one event holds.
const DELTA_BYTES: usize = 16 * 1024;
/// Text of an answer that stands in its event; longer text goes into an artifact.
const INLINE_TEXT: usize = 24 * 1024;

/// Everything about a request that is not in the request itself.
pub(crate) struct Exchange<'a> {
    pub(crate) journal: &'a dyn Journal,
    pub(crate) live: &'a dyn Live,
    pub(crate) scope: Scope,
    pub(crate) request_no: u64,
    pub(crate) model_request_id: ModelRequestId,
    pub(crate) context_id: ContextId,
    pub(crate) catalog: Option<ArtifactId>,
    pub(crate) preamble: Option<ArtifactId>,
    /// What the input holds; its hash is filled in when the bytes are known.
    pub(crate) receipt: ContextResolved,
    /// Whether the exact bytes are kept as an artifact besides their hash.
    pub(crate) keep_input: bool,
}

/// A whole answer, recorded.
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) usage: Usage,
    /// One id per tool call, in order.
    pub(crate) tool_call_ids: Vec<ToolCallId>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("the model request failed: {}", .0.message)]
    Model(ModelError),
    #[error("the log could not be written while the model answered")]
    Journal(#[from] JournalError),
}

impl Exchange<'_> {
    /// Asks `provider` and records every step.
    pub(crate) async fn run(
        &self,
        provider: &dyn Provider,
        request: &ModelRequest,
        cancel: &CancellationToken,
    ) -> Result<Answer, ExchangeError> {
        let started = self.journal.now();
        let inner = cancel.child_token();
        let mut recorder = Recorder {
            exchange: self,
            provider,
            request,
            attempt: 0,
            failed: None,
            text: Stream::new(started),
            reasoning: Stream::new(started),
            first_token: None,
            stop: &inner,
        };
        let outcome = provider
            .exchange(request, &inner, &mut |signal| recorder.take(signal))
            .await;
        recorder.flush();
        let first_token = recorder.first_token;
        if let Some(error) = recorder.failed {
            return Err(error.into());
        }
        match outcome {
            Ok(response) => self.complete(provider, response, started, first_token),
            Err(error) => Err(ExchangeError::Model(error)),
        }
    }

    fn append(&self, payload: impl Into<Payload>, refs: Refs) -> Result<(), JournalError> {
        self.journal
            .append(&self.scope, payload.into(), refs)
            .map(|_| ())
    }

    fn request_sent(
        &self,
        provider: &dyn Provider,
        request: &ModelRequest,
        attempt: u32,
        body: &Arc<[u8]>,
        sha256: &str,
    ) -> Result<(), JournalError> {
        if attempt == 1 {
            let mut refs = Refs::default();
            if let Some(preamble) = &self.preamble {
                refs.add("preamble", preamble);
            }
            let receipt = ContextResolved {
                input_hash: format!("sha256:{sha256}"),
                ..self.receipt.clone()
            };
            self.append(receipt, refs)?;
        }
        let mut refs = Refs::default();
        let mut input_ref = None;
        if self.keep_input {
            let producer = self.model_request_id.as_str();
            let kept = self.journal.put_artifact(
                &self.scope,
                ArtifactKind::ModelInput,
                "application/json",
                body,
                producer,
            )?;
            refs.add("input", &kept.artifact_id);
            input_ref = Some(kept.artifact_id);
        }
        if let Some(catalog) = &self.catalog {
            refs.add("catalog", catalog);
        }
        let requested = ModelRequested {
            request_no: self.request_no,
            attempt: u64::from(attempt),
            provider: provider.name().to_owned(),
            model: request.model.clone(),
            strategy: provider.dialect().as_str().to_owned(),
            model_request_id: self.model_request_id.clone(),
            tool_catalog_ref: self.catalog.clone(),
            tool_catalog_hash: self.catalog.as_ref().map(ToString::to_string),
            context_ref: Some(self.context_id.clone()),
            input_ref,
            input_hash: format!("sha256:{sha256}"),
            input_bytes: body.len() as u64,
            prompt_evidence: evidence(request, sha256),
            options: ModelOptions {
                max_output_tokens: request.max_output_tokens.map(u64::from),
                temperature: request.temperature,
                tool_choice: request.effective_tool_choice().map(choice_word),
                reasoning_effort: request
                    .reasoning_effort
                    .map(|effort| effort.as_str().to_owned()),
            },
        };
        self.append(requested, refs)
    }

    fn attempt_failed(
        &self,
        provider: &dyn Provider,
        attempt: u32,
        error: &ModelError,
        retry_in_ms: Option<u64>,
        partial: &str,
    ) -> Result<(), JournalError> {
        let kind = failure_kind(error.kind);
        if kind == ModelFailureKind::RateLimit {
            let hit = RateLimitHit {
                provider: provider.name().to_owned(),
                retry_after_ms: retry_in_ms,
                scope: Some("model".to_owned()),
            };
            self.append(hit, Refs::default())?;
        }
        let failed = ModelFailed {
            model_request_id: self.model_request_id.clone(),
            attempt: u64::from(attempt),
            kind,
            http_status: error.http_status,
            retryable: error.retryable,
            request_id: error.request_id.clone(),
            message: error.message.clone(),
            hint: error.hint.clone(),
            retry_in_ms,
            partial_text: (!partial.is_empty()).then(|| partial.to_owned()),
        };
        self.append(failed, Refs::default())?;
        if let Some(retry_in_ms) = retry_in_ms {
            let status = RunStatus {
                phase: Status::Retrying,
                title: format!("{}; trying again", error.kind.as_str()),
                detail: Some(error.message.clone()),
                metadata: RunMetadata {
                    attempt: Some(u64::from(attempt) + 1),
                    retry_in_ms: Some(retry_in_ms),
                    ..RunMetadata::default()
                },
                ..RunStatus::default()
            };
            self.append(status, Refs::default())?;
        }
        Ok(())
    }

    fn complete(
        &self,
        provider: &dyn Provider,
        response: Response,
        started: Timestamp,
        first_token: Option<Timestamp>,
    ) -> Result<Answer, ExchangeError> {
        let usage = usage_of(&response);
        if response.has_cut_call() {
            // No intent comes of it, so for the conversation it was not said.
            let failed = ModelFailed {
                model_request_id: self.model_request_id.clone(),
                attempt: u64::from(response.attempts),
                kind: ModelFailureKind::MalformedToolCall,
                retryable: true,
                request_id: response.request_id.clone(),
                message: "the answer was cut by the length limit inside a tool call".to_owned(),
                ..ModelFailed::default()
            };
            self.append(failed, Refs::default())?;
            return Ok(Answer {
                response,
                usage,
                tool_call_ids: Vec::new(),
            });
        }
        let mut refs = Refs::default();
        let producer = self.model_request_id.as_str();
        let keep = |kind, media_type: &str, bytes: &[u8]| {
            self.journal
                .put_artifact(&self.scope, kind, media_type, bytes, producer)
        };
        let reasoning = response.reasoning();
        if !reasoning.is_empty() {
            let mut summary = ReasoningSummary {
                model_request_id: self.model_request_id.clone(),
                ..ReasoningSummary::default()
            };
            if reasoning.len() <= INLINE_TEXT {
                summary.text = Some(reasoning);
            } else {
                let kept = keep(
                    ArtifactKind::ModelOutput,
                    "text/plain",
                    reasoning.as_bytes(),
                )?;
                summary.text_ref = Some(kept.artifact_id);
            }
            self.append(summary, Refs::default())?;
        }
        let continuation = Continuation::of(&response.parts);
        let mut continuation_ref = None;
        if !continuation.is_empty() {
            let kept = keep(
                ArtifactKind::ModelOutput,
                "application/json",
                &continuation.to_bytes(),
            )?;
            refs.add("continuation", &kept.artifact_id);
            continuation_ref = Some(kept.artifact_id);
        }
        let mut text = response.text();
        if let Some(refusal) = &response.refusal
            && text.is_empty()
        {
            text.clone_from(refusal);
        }
        let mut text_ref = None;
        let text = if text.len() <= INLINE_TEXT {
            Some(text)
        } else {
            let kept = keep(ArtifactKind::ModelOutput, "text/plain", text.as_bytes())?;
            refs.add("output", &kept.artifact_id);
            text_ref = Some(kept.artifact_id);
            None
        };
        let tool_call_ids: Vec<ToolCallId> = response
            .tool_calls()
            .map(|_| self.journal.ids().mint())
            .collect();
        let now = self.journal.now();
        let completed = ModelCompleted {
            model_request_id: self.model_request_id.clone(),
            stop_reason: response.stop.as_str().to_owned(),
            text,
            text_ref,
            tool_call_ids: tool_call_ids.clone(),
            usage: usage.clone(),
            request_id: response.request_id.clone(),
            provider: Some(provider.name().to_owned()),
            latency_ms: now.millis_since(started),
            first_token_ms: first_token.map(|first| first.millis_since(started)),
            continuation_ref,
        };
        self.append(completed, refs)?;
        Ok(Answer {
            response,
            usage,
            tool_call_ids,
        })
    }
}

/// Writes signals down as they come.
struct Recorder<'a> {
    exchange: &'a Exchange<'a>,
    provider: &'a dyn Provider,
    request: &'a ModelRequest,
    attempt: u32,
    failed: Option<JournalError>,
    text: Stream,
    reasoning: Stream,
    first_token: Option<Timestamp>,
    stop: &'a CancellationToken,
}

impl Recorder<'_> {
    fn take(&mut self, signal: Signal) {
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
            } => {
                self.write_text(true)?;
                let partial = std::mem::take(&mut self.text.whole);
                self.text.reset();
                self.reasoning.reset();
                let retry_in_ms =
                    retry_in.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                let partial: String = partial.chars().take(4_000).collect();
                self.exchange
                    .attempt_failed(self.provider, attempt, &error, retry_in_ms, &partial)
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
    fn flush(&mut self) {
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

/// Text that is written in pieces, cut at blanks so that a secret is never split over two events
/// and so escapes masking.
struct Stream {
    whole: String,
    pending: String,
    index: u64,
    written: Timestamp,
}

impl Stream {
    fn new(now: Timestamp) -> Self {
        Self {
            whole: String::new(),
            pending: String::new(),
            index: 0,
            written: now,
        }
    }

    fn reset(&mut self) {
        self.whole.clear();
        self.pending.clear();
        self.index = 0;
    }

    fn push(&mut self, text: &str) {
        self.pending.push_str(text);
        self.whole.push_str(text);
    }

    fn due(&self, now: Timestamp) -> bool {
        now.millis_since(self.written) >= DELTA_INTERVAL_MS
    }

    fn take(&mut self, all: bool) -> Option<(u64, String)> {
        let limit = floor_boundary(&self.pending, DELTA_BYTES);
        let end = if all && limit == self.pending.len() {
            limit
        } else {
            self.pending[..limit]
                .rfind(char::is_whitespace)
                .map_or(0, |at| {
                    at + self.pending[at..].chars().next().map_or(1, char::len_utf8)
                })
        };
        let end = if end == 0 && self.pending.len() > DELTA_BYTES {
            limit
        } else {
            end
        };
        if end == 0 {
            return None;
        }
        let rest = self.pending.split_off(end);
        let text = std::mem::replace(&mut self.pending, rest);
        let index = self.index;
        self.index += text.len() as u64;
        Some((index, text))
    }
}

fn floor_boundary(text: &str, limit: usize) -> usize {
    if text.len() <= limit {
        return text.len();
    }
    (0..=limit)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

fn evidence(request: &ModelRequest, sha256: &str) -> PromptEvidence {
    let mut evidence = PromptEvidence {
        render_mode: "structured_task".to_owned(),
        prompt_hash: format!("sha256:{sha256}"),
        message_count: request.messages.len() as u64,
        ..PromptEvidence::default()
    };
    let mut roles = vec!["system".to_owned()];
    for message in &request.messages {
        let role = match message {
            Message::User(parts) => {
                let images = parts
                    .iter()
                    .filter(|part| matches!(part, UserPart::Image(_)))
                    .count() as u64;
                evidence.image_parts += images;
                evidence.text_parts += parts.len() as u64 - images;
                "user"
            }
            Message::Assistant(_) => "assistant",
            Message::ToolResult(_) => {
                evidence.text_parts += 1;
                "tool"
            }
        };
        if !roles.iter().any(|known| known == role) {
            roles.push(role.to_owned());
        }
    }
    evidence.roles = roles;
    evidence.media_count = evidence.image_parts;
    evidence.modalities = if evidence.image_parts > 0 {
        vec!["text".into(), "image".into()]
    } else {
        vec!["text".into()]
    };
    evidence
}

/// The choice in one word, as the log holds it.
fn choice_word(choice: &ToolChoice) -> String {
    match choice {
        ToolChoice::Auto => "auto".to_owned(),
        ToolChoice::None => "none".to_owned(),
        ToolChoice::Required => "required".to_owned(),
        ToolChoice::Tool(name) => format!("tool:{name}"),
    }
}

/// The inverse of [`choice_word`].
pub(crate) fn choice_from_word(word: &str) -> Option<ToolChoice> {
    match word {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" => Some(ToolChoice::Required),
        other => other
            .strip_prefix("tool:")
            .map(|name| ToolChoice::Tool(name.to_owned())),
    }
}

fn usage_of(response: &Response) -> Usage {
    let usage = &response.usage;
    Usage {
        model: response.model.clone(),
        input: usage.input,
        output: usage.output,
        total: usage.total,
        cached_input: usage.cached_input,
        cache_write: usage.cache_write,
        reasoning: usage.reasoning,
    }
}

fn failure_kind(kind: ErrorKind) -> ModelFailureKind {
    kind.as_str().parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_text_is_cut_at_blanks_and_loses_nothing() {
        let mut stream = Stream::new(Timestamp::default());
        stream.push("the key is sk-abc");
        assert_eq!(stream.take(false), Some((0, "the key is ".to_owned())));
        assert_eq!(stream.take(false), None);
        stream.push("def and");
        assert_eq!(stream.take(false), Some((11, "sk-abcdef ".to_owned())));
        assert_eq!(stream.take(true), Some((21, "and".to_owned())));
        assert_eq!(stream.take(true), None);
        let long = "x".repeat(DELTA_BYTES + 5);
        stream.push(&long);
        assert_eq!(
            stream.take(false).map(|(_, text)| text.len()),
            Some(DELTA_BYTES)
        );
        assert_eq!(stream.take(true).map(|(_, text)| text.len()), Some(5));
    }
}
