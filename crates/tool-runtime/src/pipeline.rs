//! The pipeline: what is shared by all calls of a session, and the two ends of a call. Its middle
//! is in `admission` (validation and permission) and [`crate::scheduler`] (order and
//! execution).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_protocol::id::{ActionId, IntentId, InvocationId, ToolCallId};
use agent_protocol::payload::tool::{
    CatalogEntry, PermissionFacts, ToolCatalogResolved, ToolExit, ToolFailed, ToolMetrics,
    ToolResult, ToolValidation, ValidationError, ValidationLayer,
};
use agent_protocol::{ActionHappened, Code, Payload, Phase, Refs, Scope, Timestamp};
use serde_json::Value;

use crate::arguments::{self, BadArguments};
use crate::authority::Authority;
use crate::baseline::Baselines;
use crate::cancel::Cancel;
use crate::context::{NormalizeContext, Workspace};
use crate::escape::visible_line;
use crate::hash::sha256_hex;
use crate::intent::ToolIntent;
use crate::journal::{Journal, JournalError, Recorded};
use crate::observation::{EndFacts, Observation, Outcome, preview_of};
use crate::policy::MAX_MODEL_CHARS;
use crate::policy::project::project;
use crate::registry::{CatalogueRecord, Registered, Registry};
use crate::result::{Body, ExecutionFailure, Normalized, RawResult};
use crate::scheduler::{Batch, BatchReport};
use crate::tool::{Visibility, VisibilityContext, WorkPhase};

/// How calls are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many calls run side by side at most.
    pub parallel: usize,
    /// One call after the other, whatever their metadata says.
    pub serial: bool,
    /// How long a call that was cancelled may take to stop before it is given up.
    pub grace: Duration,
    /// Tools this session does without, by name.
    pub disabled: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parallel: 8,
            serial: false,
            grace: Duration::from_secs(10),
            disabled: Vec::new(),
        }
    }
}

/// What a pipeline is made of.
pub struct PipelineParts {
    pub registry: Arc<Registry>,
    pub journal: Arc<dyn Journal>,
    pub authority: Arc<dyn Authority>,
    pub workspace: Workspace,
    /// Rebuilt from the log when a session goes on.
    pub baselines: Arc<Baselines>,
    pub settings: Settings,
}

/// Takes intents, gives outcomes, and leaves a fact for every step between.
#[derive(Clone)]
pub struct Pipeline {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) settings: Settings,
    phase: Mutex<WorkPhase>,
    catalogue: CatalogueRecord,
}

impl Pipeline {
    #[must_use]
    pub fn new(parts: PipelineParts) -> Self {
        let shared = Shared {
            registry: parts.registry,
            journal: parts.journal,
            authority: parts.authority,
            workspace: Arc::new(parts.workspace),
            baselines: parts.baselines,
            settings: parts.settings,
            phase: Mutex::default(),
            catalogue: CatalogueRecord::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    #[must_use]
    pub fn baselines(&self) -> &Arc<Baselines> {
        &self.shared.baselines
    }

    /// Takes a fact of an earlier run into account. Feed it the log in order before going on with a
    /// session.
    pub fn apply(&self, payload: &Payload) {
        self.shared.baselines.apply(payload);
        self.shared.catalogue.apply(payload);
    }

    /// What the session is doing from now on; visibility may depend on it.
    pub fn set_phase(&self, phase: WorkPhase) {
        *self
            .shared
            .phase
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// The whole catalogue as it is now; what is `unavailable` must not be sent to the model.
    #[must_use]
    pub fn catalogue(&self) -> Vec<CatalogEntry> {
        let shared = &self.shared;
        shared
            .registry
            .catalogue(&shared.visibility(), &*shared.authority)
    }

    /// Records the catalogue if it is new or has changed, and returns the fact in force.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn resolve_catalogue(&self, scope: &Scope) -> Result<ToolCatalogResolved, JournalError> {
        let shared = &self.shared;
        let mode = shared.authority.mode();
        let journal = &*shared.journal;
        shared
            .catalogue
            .resolve(&self.catalogue(), mode, journal, scope)
    }

    /// Opens a batch: the calls of one step. `scope` names turn and step; `sink` gets every outcome
    /// in call order, once it would survive a power cut.
    ///
    /// # Errors
    /// When no thread can be started; nothing has happened then.
    pub fn batch(
        &self,
        scope: Scope,
        cancel: &Cancel,
        sink: impl FnMut(&Outcome) + Send + 'static,
    ) -> std::io::Result<Batch> {
        Batch::start(Arc::clone(&self.shared), scope, cancel, Box::new(sink))
    }

    /// Runs the intents of one step and waits for all of them.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn run(
        &self,
        scope: Scope,
        cancel: &Cancel,
        intents: impl IntoIterator<Item = ToolIntent>,
    ) -> Result<BatchReport, JournalError> {
        Batch::run_here(Arc::clone(&self.shared), scope, cancel, intents)
    }
}

/// One call on its way.
pub(crate) struct Call {
    pub(crate) scope: Scope,
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) intent_id: IntentId,
    /// The tool's own name, or what was asked for when there is no such tool.
    pub(crate) tool_name: String,
    pub(crate) tool: Option<Arc<Registered>>,
    pub(crate) input: Value,
    pub(crate) submitted: Instant,
    /// Whether other calls had to end first.
    pub(crate) held: bool,
}

/// Why a call was not executed.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) phase: Phase,
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) errors: Vec<ValidationError>,
    pub(crate) bodies: Vec<Body>,
    pub(crate) read_more: Option<agent_protocol::payload::tool::ReadMore>,
    pub(crate) permission: Option<PermissionFacts>,
    /// The event that decided.
    pub(crate) decided_by: Option<String>,
}

/// What is known about a call that was started.
#[derive(Debug, Clone)]
pub(crate) struct StartFacts {
    pub(crate) invocation_id: InvocationId,
    pub(crate) started_at: Timestamp,
    pub(crate) permission: PermissionFacts,
}

/// How a call ended, before it is recorded.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per call, and it is moved twice"
)]
pub(crate) enum Ending {
    Refused(Refusal),
    Executed {
        start: StartFacts,
        result: Result<RawResult, ExecutionFailure>,
        ended_at: Timestamp,
    },
    LeftOpen(ActionId),
}

impl Shared {
    pub(crate) fn visibility(&self) -> VisibilityContext {
        VisibilityContext {
            mode: self.authority.mode(),
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
            disabled: self.settings.disabled.clone(),
        }
    }

    /// Appends a fact of a call.
    pub(crate) fn record(
        &self,
        scope: &mut Scope,
        payload: impl Into<Payload>,
        refs: Refs,
    ) -> Result<Recorded, JournalError> {
        let recorded = self.journal.append(scope, payload.into(), refs)?;
        scope.causation_id = Some(recorded.event_id.clone());
        Ok(recorded)
    }

    /// The beginning of a call: records the intent, looks the tool up and checks the shape of the
    /// input. A call that fails here has its ending at once.
    pub(crate) fn open(
        &self,
        batch_scope: &Scope,
        intent: ToolIntent,
    ) -> Result<(Call, Option<Refusal>), JournalError> {
        let tool_call_id = intent
            .tool_call_id
            .unwrap_or_else(|| self.journal.ids().mint());
        let tool = self.registry.resolve(&intent.tool_name).cloned();
        let asked = visible_line(&intent.tool_name, 100);
        let tool_name = tool
            .as_ref()
            .map_or_else(|| asked.clone(), |tool| tool.definition().name.clone());
        let parsed = arguments::parse(&intent.arguments);
        let mut call = Call {
            scope: Scope {
                tool_call_id: Some(tool_call_id.clone()),
                ..batch_scope.clone()
            },
            tool_call_id,
            intent_id: self.journal.ids().mint(),
            tool_name: tool_name.clone(),
            tool,
            input: Value::Null,
            submitted: Instant::now(),
            held: false,
        };
        let raw_input = match &parsed {
            Ok(input) => input.clone(),
            Err(_) => Value::String(intent.arguments.clone()),
        };
        let recorded = agent_protocol::payload::tool::ToolIntent {
            intent_id: call.intent_id.clone(),
            requested_name: (asked != tool_name).then_some(asked),
            tool_version: call
                .tool
                .as_ref()
                .map(|tool| tool.definition().version.clone()),
            definition_hash: call
                .tool
                .as_ref()
                .map(|tool| tool.definition_hash().to_owned()),
            tool_name,
            raw_input: Some(raw_input),
            raw_input_ref: None,
            raw_input_sha256: sha256_hex(intent.arguments.as_bytes()),
            reason: intent.reason,
            provider_call_id: intent.provider_call_id,
            model_request_id: intent.model_request_id,
            assembled_from_chunks: intent.assembled_from_chunks,
        };
        self.record(&mut call.scope, recorded, Refs::default())?;
        let refusal = match self.check_shape(&mut call, parsed) {
            Ok(()) => None,
            Err((layer, refusal)) => {
                self.record_invalid(&mut call, layer, &refusal)?;
                Some(refusal)
            }
        };
        Ok((call, refusal))
    }

    fn check_shape(
        &self,
        call: &mut Call,
        parsed: Result<Value, BadArguments>,
    ) -> Result<(), (ValidationLayer, Refusal)> {
        let Some(tool) = call.tool.clone() else {
            return Err((ValidationLayer::Lookup, self.unknown_tool(&call.tool_name)));
        };
        self.check_visible(&tool)
            .map_err(|refusal| (ValidationLayer::Visibility, refusal))?;
        let checked = parsed.and_then(|input| tool.schema.check(&input).map(|()| input));
        call.input = checked.map_err(|bad| (ValidationLayer::Schema, schema_refusal(bad)))?;
        Ok(())
    }

    fn unknown_tool(&self, name: &str) -> Refusal {
        let meant = match self.registry.nearest(name) {
            Some(meant) => format!("; did you mean `{meant}`?"),
            None => {
                let names: Vec<_> = self
                    .registry
                    .tools()
                    .map(|tool| format!("`{}`", tool.definition().name))
                    .collect();
                format!("; the tools are {}", names.join(", "))
            }
        };
        Refusal {
            phase: Phase::Lookup,
            code: Code::UnknownTool,
            message: format!("there is no tool `{name}`{meant}"),
            ..Refusal::default()
        }
    }

    /// Visibility is the runtime's business, whatever the model was shown.
    pub(crate) fn check_visible(&self, tool: &Registered) -> Result<(), Refusal> {
        let context = self.visibility();
        match tool.visibility(&context) {
            Visibility::Visible => Ok(()),
            Visibility::Hidden { reason } => Err(Refusal {
                phase: Phase::Lookup,
                code: Code::ToolNotVisible,
                message: format!(
                    "the tool `{}` is not available in mode `{}`: {reason}",
                    tool.definition().name,
                    context.mode
                ),
                ..Refusal::default()
            }),
        }
    }

    pub(crate) fn record_invalid(
        &self,
        call: &mut Call,
        layer: ValidationLayer,
        refusal: &Refusal,
    ) -> Result<(), JournalError> {
        let errors = if refusal.errors.is_empty() {
            vec![ValidationError {
                path: String::new(),
                message: refusal.message.clone(),
            }]
        } else {
            refusal.errors.clone()
        };
        let validation = ToolValidation {
            intent_id: call.intent_id.clone(),
            ok: false,
            layer,
            code: Some(refusal.code),
            errors,
            recovery: Some(refusal.code.facts().recovery.to_owned()),
        };
        self.record(&mut call.scope, validation, Refs::default())?;
        Ok(())
    }

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
            message: visible_line(&refusal.message, 2_000),
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
            omission: refusal.read_more.map(|read_more| crate::result::Omission {
                bytes: 0,
                read_more: Some(read_more),
            }),
            ..EndFacts::default()
        };
        let producer = call.intent_id.to_string();
        self.observe(
            call,
            end,
            &refusal.bodies,
            &producer,
            |_, _| failed.into(),
            refs,
        )
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
        let terminal = |projection: &crate::policy::project::Projection, refs: &mut Refs| {
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
                result_ref: projection
                    .artifacts
                    .first()
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
        self.observe(call, end, &raw.bodies, &producer, terminal, Refs::default())
    }

    fn normalize(&self, call: &Call, raw: &RawResult) -> Result<Normalized, String> {
        let Some(tool) = &call.tool else {
            return Err("the tool is gone".to_owned());
        };
        let context = NormalizeContext {
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
        self.conclude_failed_in(call, start, failure, ended_at, Phase::Execute)
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
            message: visible_line(&failure.message, 2_000),
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
        let terminal = |projection: &crate::policy::project::Projection, refs: &mut Refs| {
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
        self.observe(
            call,
            end,
            &failure.bodies,
            &producer,
            terminal,
            Refs::default(),
        )
    }

    /// Bounds the content, records the terminal fact, then the observation.
    fn observe(
        &self,
        call: &mut Call,
        end: EndFacts,
        bodies: &[Body],
        producer: &str,
        terminal: impl FnOnce(&crate::policy::project::Projection, &mut Refs) -> Payload,
        mut refs: Refs,
    ) -> Result<Outcome, JournalError> {
        let journal = &*self.journal;
        let own_limit = call.tool.as_ref().map_or(MAX_MODEL_CHARS, |tool| {
            usize::try_from(tool.definition().max_result_chars).unwrap_or(MAX_MODEL_CHARS)
        });
        let limit = own_limit.clamp(2_000, MAX_MODEL_CHARS);
        let head = end.head(journal);
        let budget = EndFacts::content_budget(&head, limit);
        let projection = project(bodies, budget, journal, &call.scope, producer)?;
        let terminal = self.record(&mut call.scope, terminal(&projection, &mut refs), refs)?;
        self.baselines.apply(&terminal.payload);
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

fn schema_refusal(bad: BadArguments) -> Refusal {
    Refusal {
        phase: Phase::Validate,
        code: bad.code,
        message: bad.message,
        errors: bad.errors,
        ..Refusal::default()
    }
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

/// What a panic said, on one line.
pub(crate) fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".to_owned());
    visible_line(&words, 300)
}
