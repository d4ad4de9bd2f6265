//! `process_output` and `process_kill`: what goes on in the background.

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::process::TerminatedBy;
use agent_protocol::payload::tool::{Capability, Concurrency, Risk, ToolData};
use agent_protocol::{ActionHappened, Code};
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, PermissionSemantics,
    Plan, Prepared, RawResult, RuntimeContext, Subject, Tool, ToolDefinition, ToolInvocation,
    ValidationFailure, Visibility, VisibilityContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::LocalTool;
use crate::bash::{Background, Ended, Processes, Stopped};
use crate::support::{flags, parse, prepared, reading_definition};
use agent_text::counted;

const DEFAULT_BYTES: usize = 16_000;
const MAX_BYTES: usize = 27_000;
/// TERM, then KILL after two seconds, then a moment for the record.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// What `process_output` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutputInput {
    /// The id that bash gave for a background command.
    process_id: String,
    /// The first byte to show; where the last reading ended when not given.
    #[serde(default)]
    offset: Option<u64>,
    /// Bytes to show; 16000 when not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 27000))]
    limit: Option<usize>,
    /// How long to wait for the command to end, in milliseconds; not at all when not given.
    #[serde(default)]
    #[schemars(range(max = 600_000))]
    wait_ms: Option<u64>,
}

/// What `process_kill` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KillInput {
    /// The id that bash gave for a background command.
    process_id: String,
}

struct Wanted {
    process: Arc<Background>,
    offset: Option<u64>,
    limit: usize,
    wait: Duration,
}

fn find(processes: &Processes, process_id: &str) -> Result<Arc<Background>, ValidationFailure> {
    processes.get(process_id).ok_or_else(|| {
        if processes.is_lost(process_id) {
            let message = format!(
                "`{process_id}` is lost: the program ended while it ran, and how it ended is unknown"
            );
            return ValidationFailure::new(Code::Lost, message.clone()).at("/process_id", message);
        }
        let known = processes.known();
        let known = if known.is_empty() {
            "there are none".to_owned()
        } else {
            format!("known: {}", known.join(", "))
        };
        let message = format!("there is no background command `{process_id}` ({known})");
        ValidationFailure::new(Code::RuntimePreconditionFailed, message.clone())
            .at("/process_id", message)
    })
}

fn ready(definition: &ToolDefinition, wanted: Wanted) -> Prepared {
    Prepared {
        normalised_paths: Vec::new(),
        semantics: PermissionSemantics {
            action_class: definition.action_class,
            ..PermissionSemantics::default()
        },
        plan: Plan::default(),
        flags: flags(definition),
        baselines: Vec::new(),
        preview: None,
        input: Box::new(wanted),
    }
}

fn state_of(process: &Background) -> ToolData {
    let ended = process.ended();
    ToolData {
        process_id: Some(process.process_id().to_string()),
        process_status: Some(if ended.is_some() { "ended" } else { "running" }.to_owned()),
        exit_code: ended.as_ref().and_then(|ended| ended.exit_code),
        signal: ended.as_ref().and_then(|ended| ended.signal),
        background: Some(true),
        note: ended.as_ref().and_then(note),
        ..ToolData::default()
    }
}

/// Notes about a command that ended.
fn note(ended: &Ended) -> Option<String> {
    let mut notes = ended.refusals.clone();
    let output = ended.output.as_ref();
    notes.extend(output.map(|kept| format!("The whole output is artifact {}.", kept.artifact_id)));
    (!notes.is_empty()).then(|| notes.join(" "))
}

/// The artifact with all of it, once there is one.
fn whole_output(process: &Background) -> Vec<ArtifactRef> {
    let output = process.ended().and_then(|ended| ended.output);
    output.into_iter().collect()
}

fn state_words(data: &ToolData) -> String {
    let id = data.process_id.as_deref().unwrap_or_default();
    if data.process_status.as_deref() == Some("running") {
        return format!("{id} is running.");
    }
    let ended = Ended {
        exit_code: data.exit_code,
        signal: data.signal,
        output: None,
        refusals: Vec::new(),
        ran_for: Duration::ZERO,
    };
    ended.words(id)
}

/// Shows what a background command printed.
pub(crate) struct ProcessOutputTool {
    processes: Arc<Processes>,
    definition: ToolDefinition,
}

impl ProcessOutputTool {
    /// For the commands in `processes`.
    pub(crate) fn new(processes: Arc<Processes>) -> Self {
        Self {
            processes,
            definition: output_definition(),
        }
    }
}

/// The line of the table of tools.
pub(crate) const OUTPUT: LocalTool = LocalTool {
    definition: output_definition,
    make: |parts| Arc::new(ProcessOutputTool::new(Arc::clone(&parts.processes))),
};

fn output_definition() -> ToolDefinition {
    ToolDefinition {
        subject: Subject::Session,
        title_field: Some("process_id".to_owned()),
        capabilities: vec![Capability::Read, Capability::Shell],
        ..reading_definition::<OutputInput>(
            "process_output",
            "Shows new output of a background command and whether it still runs. Each call goes on where the last one \
             ended, unless an offset is given.",
            "Output bytes as text, the status, and the exit code once there is one.",
        )
    }
}

impl Tool for ProcessOutputTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: OutputInput = parse(input)?;
        let process = find(&self.processes, &input.process_id)?;
        let wanted = Wanted {
            process,
            offset: input.offset,
            limit: input.limit.unwrap_or(DEFAULT_BYTES).min(MAX_BYTES),
            wait: Duration::from_millis(input.wait_ms.unwrap_or(0)),
        };
        Ok(ready(&self.definition, wanted))
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let wanted = prepared::<Wanted>(invocation)?;
        let process = &wanted.process;
        if !wanted.wait.is_zero() {
            process.wait(wanted.wait, &|| context.cancel().is_raised());
        }
        let journal = context.journal();
        let part = process.read(wanted.offset, wanted.limit, &*journal);
        let part = part.map_err(|error| {
            ExecutionFailure::new(Code::IoError, format!("cannot read the output: {error}"))
                .having(ActionHappened::No)
        })?;
        let mut result = RawResult {
            data: ToolData {
                offset: Some(part.from),
                returned: Some(part.next - part.from),
                ..state_of(process)
            },
            omission: process.omitted_from(part.next),
            artifacts: whole_output(process),
            ..RawResult::ok(ActionHappened::No)
        };
        if !part.shown.is_empty() {
            result.bodies.push(Body::text(
                format!("output of {}", process.process_id()),
                part.shown,
            ));
        }
        Ok(result)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let data = &raw.data;
        let shown = counted(data.returned.unwrap_or(0), "byte");
        Normalized {
            title: "process_output".to_owned(),
            summary: format!(
                "{} {shown} from offset {}.",
                state_words(data),
                data.offset.unwrap_or(0)
            ),
            detail: data.note.clone().unwrap_or_default(),
            user_text: None,
        }
    }
}

/// Ends a background command.
pub(crate) struct ProcessKillTool {
    processes: Arc<Processes>,
    definition: ToolDefinition,
}

impl ProcessKillTool {
    /// For the commands in `processes`.
    pub(crate) fn new(processes: Arc<Processes>) -> Self {
        Self {
            processes,
            definition: kill_definition(),
        }
    }
}

/// The line of the table of tools.
pub(crate) const KILL: LocalTool = LocalTool {
    definition: kill_definition,
    make: |parts| Arc::new(ProcessKillTool::new(Arc::clone(&parts.processes))),
};

fn kill_definition() -> ToolDefinition {
    ToolDefinition {
        subject: Subject::Session,
        title_field: Some("process_id".to_owned()),
        capabilities: vec![Capability::Shell],
        risk: vec![Risk::Execute],
        is_read_only: false,
        concurrency: Concurrency::Exclusive,
        ..reading_definition::<KillInput>(
            "process_kill",
            "Ends a background command and everything it started.",
            "How it ended, and its last output.",
        )
    }
}

impl Tool for ProcessKillTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// It ends only what this session started, so no mode hides it.
    fn visibility(&self, _: &VisibilityContext) -> Visibility {
        Visibility::Visible
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: KillInput = parse(input)?;
        let process = find(&self.processes, &input.process_id)?;
        if process.ended().is_some() {
            let message = state_words(&state_of(&process));
            return Err(
                ValidationFailure::new(Code::NoChange, message.clone()).at("/process_id", message)
            );
        }
        let wanted = Wanted {
            process,
            offset: None,
            limit: DEFAULT_BYTES,
            wait: KILL_PATIENCE,
        };
        Ok(ready(&self.definition, wanted))
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let wanted = prepared::<Wanted>(invocation)?;
        let process = &wanted.process;
        let by = match context.is_of_model() {
            true => TerminatedBy::Model,
            false => TerminatedBy::User,
        };
        process.kill(Stopped {
            cause: context.scope().causation_id.clone(),
            ..Stopped::new(by, "process_kill ended it")
        });
        if process.wait(wanted.wait, &|| false).is_none() {
            return Err(ExecutionFailure::new(
                Code::Timeout,
                format!(
                    "{} was asked to end but is still there",
                    process.process_id()
                ),
            ));
        }
        let mut result = RawResult {
            data: state_of(process),
            artifacts: whole_output(process),
            ..RawResult::ok(ActionHappened::Yes)
        };
        process.show_next(wanted.limit, &*context.journal(), &mut result);
        Ok(result)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        Normalized {
            title: "process_kill".to_owned(),
            summary: state_words(&raw.data),
            detail: raw.data.note.clone().unwrap_or_default(),
            user_text: None,
        }
    }
}
