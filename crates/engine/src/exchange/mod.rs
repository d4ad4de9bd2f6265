//! One question to a model and its answer, written down as it happens: each attempt on the wire,
//! the text as it streams, the failure or the whole answer, and what it cost.

mod facts;
mod recorder;
mod stream;

use std::sync::{Mutex, PoisonError};

use agent_log::ModelInputs;
use agent_protocol::id::{ArtifactId, ContextId, ModelRequestId, ToolCallId};
use agent_protocol::payload::Usage;
use agent_protocol::payload::conversation::{ArtifactKind, RunMetadata, RunStatus};
use agent_protocol::payload::model::{
    ContextResolved, ModelCompleted, ModelFailed, ModelFailureKind, ModelOptions, ModelRequested,
    RateLimitHit, ReasoningSummary, RequestPurpose,
};
use agent_protocol::status::Status;
use agent_protocol::{Payload, Refs, Scope, Timestamp};
use agent_provider::conversation::ModelRequest;
use agent_provider::error::ModelError;
use agent_provider::provider::Provider;
use agent_provider::response::Response;
use agent_tool_runtime::{Journal, JournalError};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use self::facts::{choice_word, evidence, failure_kind, usage_of};
use self::recorder::Recorder;
use crate::continuation::Continuation;
use crate::live::StreamSink;

pub(crate) use self::facts::choice_from_word;

/// Text of an answer that stands in its event; longer text goes into an artifact.
const INLINE_TEXT: usize = 24 * 1024;

/// Everything about a request that is not in the request itself.
pub(crate) struct Exchange<'a> {
    pub(crate) journal: &'a dyn Journal,
    pub(crate) live: &'a dyn StreamSink,
    pub(crate) scope: Scope,
    pub(crate) request_no: u64,
    pub(crate) model_request_id: ModelRequestId,
    pub(crate) context_id: ContextId,
    pub(crate) catalog: Option<ArtifactId>,
    pub(crate) preamble: Option<ArtifactId>,
    /// What the input holds; its hash is filled in when the bytes are known.
    pub(crate) receipt: ContextResolved,
    /// What the answer is for, when it is no part of the conversation.
    pub(crate) purpose: Option<RequestPurpose>,
    /// Images were left out of the input, because the model cannot see them.
    pub(crate) without_images: bool,
    /// How the exact bytes are kept besides their hash; they are not when this is missing.
    pub(crate) inputs: Option<&'a Mutex<ModelInputs<Bytes>>>,
}

/// A whole answer, recorded.
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) usage: Usage,
    pub(crate) model_request_id: ModelRequestId,
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
        let mut recorder = Recorder::new(self, provider, request, started, &inner);
        let outcome = provider
            .exchange(request, &inner, &mut |signal| recorder.take(signal))
            .await;
        recorder.flush();
        let first_token = recorder.first_token;
        if let Some(error) = recorder.failed.take() {
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
        body: &Bytes,
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
        let input_ref = self.keep_input(body, sha256)?;
        if let Some(kept) = &input_ref {
            refs.add("input", kept);
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
                images: self.without_images.then_some(false),
            },
            purpose: self.purpose,
        };
        self.append(requested, refs)
    }

    /// Keeps the exact bytes, where that is wanted.
    fn keep_input(&self, body: &Bytes, sha256: &str) -> Result<Option<ArtifactId>, JournalError> {
        let Some(inputs) = self.inputs else {
            return Ok(None);
        };
        let mut inputs = inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = inputs.keep(body, sha256);
        let stored = self.journal.put_artifact(
            &self.scope,
            ArtifactKind::ModelInput,
            kept.media_type,
            &kept.bytes,
            self.model_request_id.as_str(),
        )?;
        let (media_type, bytes) = (kept.media_type, kept.bytes.len() as u64);
        inputs.stored(stored.artifact_id.clone(), media_type, bytes, body.clone());
        Ok(Some(stored.artifact_id))
    }

    fn attempt_failed(
        &self,
        provider: &dyn Provider,
        error: &ModelError,
        failed: ModelFailed,
    ) -> Result<(), JournalError> {
        let (attempt, retry_in_ms) = (failed.attempt, failed.retry_in_ms);
        let kind = failure_kind(error.kind);
        if kind == ModelFailureKind::RateLimit {
            let hit = RateLimitHit {
                provider: provider.name().to_owned(),
                model_request_id: Some(self.model_request_id.clone()),
                retry_after_ms: error
                    .retry_after
                    .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
                    .or(retry_in_ms),
                scope: Some("model".to_owned()),
            };
            self.append(hit, Refs::default())?;
        }
        let failed = ModelFailed {
            model_request_id: self.model_request_id.clone(),
            kind,
            http_status: error.http_status,
            retryable: error.retryable,
            request_id: error.request_id.clone(),
            message: error.message.clone(),
            hint: error.hint.clone(),
            provider: Some(provider.name().to_owned()),
            ..failed
        };
        self.append(failed, Refs::default())?;
        if let Some(retry_in_ms) = retry_in_ms {
            let status = RunStatus {
                phase: Status::Retrying,
                title: format!("{}; trying again", error.kind.as_str()),
                detail: Some(error.message.clone()),
                metadata: RunMetadata {
                    attempt: Some(attempt + 1),
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
                provider: Some(provider.name().to_owned()),
                usage: Some(usage.clone()),
                ..ModelFailed::default()
            };
            self.append(failed, Refs::default())?;
            return Ok(Answer {
                response,
                usage,
                model_request_id: self.model_request_id.clone(),
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
        let continuation = Continuation::of(&response.parts, &|text| self.journal.mask(text));
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
        let text = response.text_or_refusal();
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
            model_request_id: self.model_request_id.clone(),
            tool_call_ids,
        })
    }
}
