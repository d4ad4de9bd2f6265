//! The end of a call: the result policy's projection, the terminal fact and the observation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::{ToolExit, ToolFailed, ToolMetrics, ToolResult};
use agent_protocol::{ActionHappened, Code, Payload, Phase, Refs, Timestamp};

use crate::call::{Call, Ending, Refusal, StartFacts, panic_words};
use crate::context::NormalizeContext;
use crate::journal::JournalError;
use crate::observation::{EndFacts, Observation, Outcome, preview_of};
use crate::pipeline::Shared;
use crate::policy::MAX_MODEL_CHARS;
use crate::policy::project::{Projection, project};
use crate::result::{Body, ExecutionFailure, Normalized, Omission, RawResult};
use agent_text::visible_excerpt;

impl Shared {
    /// The end of a call: records its terminal fact and its observation.
    pub(crate) fn conclude(&self, mut call: Call, ending: Ending) -> Result<Outcome, JournalError> {
        match ending {
            Ending::LeftOpen(action_id) => Ok(Outcome::LeftOpen {
                tool_call_id: call.tool_call_id,
                action_id,
            }),
            Ending::Refused(refusal) => self.conclude_refused(&mut call, refusal),
            Ending::Executed {
                start,
                result,
                ended_at,
            } => match result {
                Ok(raw) => self.conclude_result(&mut call, &start, raw, ended_at),
                Err(failure) => self.conclude_failure(&mut call, &start, failure, ended_at),
            },
        }
    }

    fn conclude_refused(&self, call: &mut Call, refusal: Refusal) -> Result<Outcome, JournalError> {
        let mut refs = Refs::default();
        if let Some(event) = &refusal.decided_by {
            refs.add("permission", event);
        }
        let facts = refusal.code.facts();
        let failed = ToolFailed {
            phase: refusal.phase,
            category: category(refusal.phase, refusal.code).to_owned(),
            code: refusal.code,
            message: visible_excerpt(&refusal.message, 2_000),
            retryable: facts.retryable,
            recovery: facts.recovery.to_owned(),
            action_happened: ActionHappened::No,
            exit: (refusal.code == Code::Cancelled).then_some(ToolExit::Cancelled),
            ..ToolFailed::default()
        };
        let end = EndFacts {
            intent_id: call.intent_id.clone(),
            tool_name: call.tool_name.clone(),
            phase: refusal.phase,
            code: refusal.code,
            title: format!("{} {}", call.tool_name, refusal.code),
            summary: refusal.message,
            errors: refusal.errors,
            permission: refusal.permission,
            action_happened: ActionHappened::No,
            omission: refusal.read_more.map(|read_more| Omission {
                bytes: 0,
                read_more: Some(read_more),
            }),
            ..EndFacts::default()
        };
        let producer = call.intent_id.to_string();
        Ok(self.observe(
            call,
            end,
            &refusal.bodies,
            &producer,
            |_, _| failed.into(),
            refs,
        )?)
    }

    fn conclude_result(
        &self,
        call: &mut Call,
        start: &StartFacts,
        raw: RawResult,
        ended_at: Timestamp,
    ) -> Result<Outcome, JournalError> {
        let normalized = self.normalize(call, &raw);
        let normalized = match normalized {
            Ok(normalized) => normalized,
            Err(message) => {
                let mut failure =
                    ExecutionFailure::new(Code::InternalError, message).having(raw.action_happened);
                failure.side_effects = raw.side_effects;
                failure.artifacts = raw.artifacts;
                return self.conclude_failed_in(call, start, failure, ended_at, Phase::Normalize);
            }
        };
        let ok = raw.code.is_ok();
        let metrics = metrics(start, ended_at);
        let end = EndFacts {
            intent_id: call.intent_id.clone(),
            invocation_id: Some(start.invocation_id.clone()),
            tool_name: call.tool_name.clone(),
            ok,
            phase: Phase::Execute,
            code: raw.code,
            title: normalized.title,
            summary: normalized.summary,
            detail: normalized.detail,
            user_text: normalized.user_text,
            side_effects: raw.side_effects.clone(),
            artifacts: raw.artifacts.clone(),
            action_happened: raw.action_happened,
            permission: Some(start.permission.clone()),
            data: raw.data.clone(),
            omission: raw.omission.clone(),
            duration_ms: Some(metrics.duration_ms),
            sandbox: raw.sandbox.clone(),
            ..EndFacts::default()
        };
        let own_omission = raw.omission.as_ref().map_or(0, |omission| omission.bytes);
        let producer = start.invocation_id.to_string();
        let terminal = |projection: &Projection, refs: &mut Refs| {
            let mut artifact_refs = raw.artifacts.clone();
            for artifact in &projection.artifacts {
                if !artifact_refs.contains(artifact) {
                    artifact_refs.push(artifact.clone());
                }
            }
            for artifact in &artifact_refs {
                refs.add("artifact", &artifact.artifact_id);
            }
            let omitted_bytes = projection.omitted_bytes + own_omission;
            ToolResult {
                invocation_id: start.invocation_id.clone(),
                exit: if ok { ToolExit::Ok } else { ToolExit::Error },
                ok,
                code: raw.code,
                result_ref: artifact_refs
                    .iter()
                    .find(|artifact| is_result(artifact.kind))
                    .map(|artifact| artifact.artifact_id.clone()),
                preview: preview_of(&projection.text),
                artifact_refs,
                evidence_refs: Vec::new(),
                side_effects: raw.side_effects.clone(),
                data: raw.data.clone(),
                truncated: omitted_bytes > 0,
                omitted_bytes,
                metrics: ToolMetrics {
                    output_bytes: projection.output_bytes,
                    ..metrics
                },
            }
            .into()
        };
        let observed = self.observe(call, end, &raw.bodies, &producer, terminal, Refs::default());
        match observed {
            Err(NotObserved::Content(error)) => {
                let failure = not_stored(&raw, error);
                self.conclude_failure(call, start, failure, ended_at)
            }
            observed => Ok(observed?),
        }
    }

    fn normalize(&self, call: &Call, raw: &RawResult) -> Result<Normalized, String> {
        let Some(tool) = &call.tool else {
            return Err("the tool is gone".to_owned());
        };
        let context = NormalizeContext {
            input: &call.input,
            workspace: &self.workspace,
            max_result_chars: tool.definition().max_result_chars,
        };
        catch_unwind(AssertUnwindSafe(|| tool.tool.normalize(raw, &context))).map_err(|panic| {
            format!(
                "the tool `{}` failed while its result was put into words: {}",
                call.tool_name,
                panic_words(&*panic)
            )
        })
    }

    fn conclude_failure(
        &self,
        call: &mut Call,
        start: &StartFacts,
        failure: ExecutionFailure,
        ended_at: Timestamp,
    ) -> Result<Outcome, JournalError> {
        let phase = match failure.not_stored {
            true => Phase::WriteBack,
            false => Phase::Execute,
        };
        self.conclude_failed_in(call, start, failure, ended_at, phase)
    }

    fn conclude_failed_in(
        &self,
        call: &mut Call,
        start: &StartFacts,
        failure: ExecutionFailure,
        ended_at: Timestamp,
        phase: Phase,
    ) -> Result<Outcome, JournalError> {
        let facts = failure.code.facts();
        let mut failed = ToolFailed {
            invocation_id: Some(start.invocation_id.clone()),
            exit: Some(match failure.code {
                Code::Timeout => ToolExit::Timeout,
                Code::Cancelled => ToolExit::Cancelled,
                _ => ToolExit::Error,
            }),
            phase,
            category: category(phase, failure.code).to_owned(),
            code: failure.code,
            message: visible_excerpt(&failure.message, 2_000),
            retryable: facts.retryable,
            recovery: facts.recovery.to_owned(),
            action_happened: failure.action_happened,
            partial_refs: failure.artifacts.clone(),
            side_effects: failure.side_effects.clone(),
        };
        let end = EndFacts {
            intent_id: call.intent_id.clone(),
            invocation_id: Some(start.invocation_id.clone()),
            tool_name: call.tool_name.clone(),
            phase,
            code: failure.code,
            title: format!("{} {}", call.tool_name, failure.code),
            summary: failure.message,
            side_effects: failure.side_effects,
            artifacts: failure.artifacts,
            action_happened: failure.action_happened,
            permission: Some(start.permission.clone()),
            data: failure.data,
            duration_ms: Some(metrics(start, ended_at).duration_ms),
            sandbox: failure.sandbox,
            ..EndFacts::default()
        };
        let producer = start.invocation_id.to_string();
        let terminal = |projection: &Projection, refs: &mut Refs| {
            for artifact in &projection.artifacts {
                if !failed.partial_refs.contains(artifact) {
                    failed.partial_refs.push(artifact.clone());
                }
            }
            for artifact in &failed.partial_refs {
                refs.add("artifact", &artifact.artifact_id);
            }
            failed.into()
        };
        Ok(self.observe(
            call,
            end,
            &failure.bodies,
            &producer,
            terminal,
            Refs::default(),
        )?)
    }

    /// Bounds the content, records the terminal fact, then the observation.
    fn observe(
        &self,
        call: &mut Call,
        end: EndFacts,
        bodies: &[Body],
        producer: &str,
        terminal: impl FnOnce(&Projection, &mut Refs) -> Payload,
        mut refs: Refs,
    ) -> Result<Outcome, NotObserved> {
        let journal = &*self.journal;
        let own_limit = call.tool.as_ref().map_or(MAX_MODEL_CHARS, |tool| {
            usize::try_from(tool.definition().max_result_chars).unwrap_or(MAX_MODEL_CHARS)
        });
        let limit = own_limit.clamp(2_000, MAX_MODEL_CHARS);
        let head = end.head(journal);
        let budget = EndFacts::content_budget(&head, limit);
        let registry = self.registry();
        let reader = registry.artifact_reader();
        let projection = project(bodies, budget, reader, journal, &call.scope, producer)
            .map_err(NotObserved::Content)?;
        let terminal = self.record(&mut call.scope, terminal(&projection, &mut refs), refs)?;
        self.baselines
            .apply(Some(&call.tool_call_id), &terminal.payload);
        let draft = end.observe(journal.ids().mint(), &head, projection, limit, journal);
        let mut refs = Refs::default().with("terminal", &terminal.event_id);
        for artifact in &draft.artifact_refs {
            refs.add("artifact", &artifact.artifact_id);
        }
        let recorded = self.record(&mut call.scope, draft.clone(), refs)?;
        let observation = Observation::of(call.tool_call_id.clone(), &recorded, draft);
        Ok(Outcome::Observed(Box::new(observation)))
    }
}

/// Reason why a call has no observation.
enum NotObserved {
    /// Its content could not be kept; no end of the call is recorded yet.
    Content(JournalError),
    /// The log could not be written.
    Log(JournalError),
}

impl From<JournalError> for NotObserved {
    fn from(error: JournalError) -> Self {
        Self::Log(error)
    }
}

impl From<NotObserved> for JournalError {
    fn from(error: NotObserved) -> Self {
        match error {
            NotObserved::Content(error) | NotObserved::Log(error) => error,
        }
    }
}

/// The failure of a call that ran and whose result has no place to be kept.
fn not_stored(raw: &RawResult, error: JournalError) -> ExecutionFailure {
    ExecutionFailure {
        side_effects: raw.side_effects.clone(),
        artifacts: raw.artifacts.clone(),
        data: raw.data.clone(),
        sandbox: raw.sandbox.clone(),
        ..ExecutionFailure::from(error).having(raw.action_happened)
    }
}

/// What a call gave, as opposed to what it changed or what tells about it.
const fn is_result(kind: ArtifactKind) -> bool {
    matches!(kind, ArtifactKind::CommandOutput | ArtifactKind::ToolResult)
}

fn metrics(start: &StartFacts, ended_at: Timestamp) -> ToolMetrics {
    ToolMetrics {
        started_at: start.started_at,
        ended_at,
        duration_ms: ended_at.millis_since(start.started_at),
        output_bytes: 0,
    }
}

/// Which kind of thing failed.
fn category(phase: Phase, code: Code) -> &'static str {
    match (phase, code) {
        (_, Code::Cancelled) => "cancelled",
        (_, Code::InternalError) => "internal",
        (Phase::Lookup, _) => "lookup",
        (Phase::Validate, _) => "validation",
        (Phase::Permission, _) => "permission",
        (Phase::Schedule, _) => "schedule",
        (_, Code::Timeout) => "timeout",
        (_, Code::SandboxUnavailable | Code::SandboxViolation) => "sandbox",
        (_, Code::SpawnFailed | Code::ExitNonzero | Code::OutputLimit) => "process",
        _ => "io",
    }
}
