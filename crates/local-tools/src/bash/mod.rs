//! `bash`: one command in the sandbox.
//!
//! The tool decides nothing about permission: it gives the gate the command's text, turns the reach
//! it was granted into a sandbox policy, records what really holds before the command starts,
//! streams the output into an artifact, and looks at the project before and after to say what
//! changed.

mod background;
mod ending;
mod launch;
mod output;
mod run;
mod scan;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::Code;
use agent_protocol::payload::SideEffectKind;
use agent_protocol::payload::permission::ActionClass;
use agent_protocol::payload::tool::{Capability, Concurrency, InterruptBehavior, Risk};
use agent_tool_runtime::shell::{Start, analyse, prove::prove};
use agent_tool_runtime::{
    CommandRequest, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized,
    PermissionSemantics, Plan, Prepared, RawResult, RuntimeContext, Tool, ToolDefinition,
    ToolInvocation, ValidationFailure, Visibility, VisibilityContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use background::Background;
pub use background::Processes;
pub use launch::CommandSettings;
pub use scan::ScanLimits;

use crate::path::{Access, Found, Roots};
use crate::support::{count, flags, parse, prepared, reading_definition};
use scan::Watch;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// What `bash` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashInput {
    /// The command, as bash reads it.
    #[schemars(length(min = 1))]
    command: String,
    /// What the command is for, in a few words, for the person who reads along.
    #[expect(dead_code, reason = "it is read in the recorded input, by people")]
    description: String,
    /// When the command is ended, in milliseconds; 120000 when not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600_000))]
    timeout_ms: Option<u64>,
    /// Where it runs: relative to the project root, or absolute.
    #[serde(default)]
    cwd: Option<String>,
    /// Let it run on and return at once; for servers and watchers.
    #[serde(default)]
    background: Option<bool>,
    /// Ask for network access, which commands do not have otherwise.
    #[serde(default)]
    network: Option<bool>,
}

pub(crate) struct PreparedCommand {
    command: String,
    cwd: PathBuf,
    background: bool,
}

/// The tool.
pub struct BashTool {
    roots: Arc<Roots>,
    settings: Arc<CommandSettings>,
    processes: Arc<Processes>,
    watch: Watch,
    definition: ToolDefinition,
}

impl BashTool {
    /// Runs commands in the project of `roots`.
    pub fn new(
        roots: Arc<Roots>,
        settings: Arc<CommandSettings>,
        processes: Arc<Processes>,
    ) -> Self {
        let mut definition = reading_definition::<BashInput>(
            "bash",
            "Runs a command with bash in a sandbox: the project can be written, the rest of the system and the home \
             directory cannot, and there is no network unless it is asked for. Use it for tests, builds, git and \
             services. For files use the narrow tools, which are safer and clearer: read instead of cat, edit instead of \
             sed, write instead of echo, grep and glob instead of grep and find. Every call starts a new shell in the \
             project root; stdin is closed, there is no pager and no editor. When the command ends, everything it \
             started ends too, unless background is set.",
            "Both output streams in the order they came, the exit code, and the project files that were created, \
             changed or deleted. Long output keeps its beginning, its end and error lines; the whole is in an artifact.",
        );
        definition.capabilities = vec![Capability::Shell, Capability::Filesystem];
        definition.risk = vec![Risk::Execute, Risk::Write];
        definition.is_read_only = false;
        definition.is_destructive = true;
        definition.concurrency = Concurrency::Exclusive;
        definition.interrupt_behavior = InterruptBehavior::Cancel;
        definition.needs_sandbox = true;
        definition.default_timeout = Some(DEFAULT_TIMEOUT);
        definition.streams_progress = true;
        let watch = Watch::new(&settings.temporary, settings.scan);
        Self {
            roots,
            settings,
            processes,
            watch,
            definition,
        }
    }

    fn cwd(&self, given: Option<&str>) -> Result<crate::path::ProjectPath, ValidationFailure> {
        let given = given.unwrap_or(".");
        let wrong = |message: String| {
            ValidationFailure::new(Code::RuntimePreconditionFailed, message.clone())
                .at("/cwd", message)
        };
        let path = self
            .roots
            .resolve(given, Access::Read)
            .map_err(|problem| wrong(format!("the working directory is not usable: {problem}")))?;
        if path.found() != Found::Directory {
            return Err(wrong(format!(
                "the working directory `{}` is not a directory",
                path.name()
            )));
        }
        Ok(path)
    }
}

impl Tool for BashTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// In read-only mode the gate lets commands pass that provably only read.
    fn visibility(&self, _: &VisibilityContext) -> Visibility {
        Visibility::Visible
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: BashInput = parse(input)?;
        let wrong = |field: &str, message: &str| {
            ValidationFailure::new(Code::RuntimePreconditionFailed, message).at(field, message)
        };
        if input.command.contains('\0') {
            return Err(wrong("/command", "the command holds a NUL character"));
        }
        if input.command.trim().is_empty() {
            return Err(wrong("/command", "the command is empty"));
        }
        let cwd = self.cwd(input.cwd.as_deref())?;
        let background = input.background.unwrap_or(false);
        if background && let Some(refusal) = self.processes.refusal() {
            return Err(wrong("/background", &refusal));
        }
        let timeout = input
            .timeout_ms
            .map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        let mut flags = flags(&self.definition);
        flags.is_read_only = only_reads(
            &input.command,
            cwd.absolute(),
            self.settings.home.as_deref(),
        );
        flags.is_destructive = !flags.is_read_only;
        let name = cwd.name();
        Ok(Prepared {
            normalised_paths: vec![name.clone()],
            semantics: PermissionSemantics {
                action_class: ActionClass::Execute,
                command: Some(CommandRequest {
                    text: input.command.clone(),
                    cwd: cwd.absolute().to_owned(),
                }),
                network: input.network.unwrap_or(false),
                ..PermissionSemantics::default()
            },
            plan: Plan {
                timeout: (!background).then_some(timeout),
                background,
                cwd: Some(name),
                ..Plan::default()
            },
            flags,
            baselines: Vec::new(),
            preview: None,
            input: Box::new(PreparedCommand {
                command: input.command,
                cwd: cwd.absolute().to_owned(),
                background,
            }),
        })
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let confinement = invocation.confinement().clone();
        let timeout = invocation.timeout();
        let command = prepared::<PreparedCommand>(invocation)?;
        run::Call {
            tool: self,
            command: &command,
            confinement: &confinement,
            timeout,
            context,
        }
        .run()
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let data = &raw.data;
        let mut summary = match (data.background, data.exit_code, data.signal) {
            (Some(true), ..) => format!(
                "Started in the background as {}.",
                data.process_id.as_deref().unwrap_or_default()
            ),
            (_, Some(code), _) => format!("Exit code {code}."),
            (_, _, Some(signal)) => format!("Ended by signal {signal}."),
            _ => "Ended.".to_owned(),
        };
        if data.background != Some(true) && raw.bodies.is_empty() {
            summary.push_str(" No output.");
        }
        let mut detail = effects_sentence(raw);
        if let Some(note) = &data.note {
            if !detail.is_empty() {
                detail.push(' ');
            }
            detail.push_str(note);
        }
        Normalized {
            title: "bash".to_owned(),
            summary,
            detail,
            user_text: None,
        }
    }
}

/// `Project files: modified src/a.rs; created b, c.`
fn effects_sentence(raw: &RawResult) -> String {
    const NAMED: usize = 20;
    let mut parts = Vec::new();
    for (kind, word) in [
        (SideEffectKind::Deleted, "deleted"),
        (SideEffectKind::Modified, "modified"),
        (SideEffectKind::ModeChanged, "mode changed"),
        (SideEffectKind::Created, "created"),
    ] {
        let paths: Vec<&str> = raw
            .side_effects
            .iter()
            .filter(|effect| effect.kind == kind)
            .map(|effect| effect.path.as_str())
            .collect();
        if paths.is_empty() {
            continue;
        }
        let mut part = format!("{word} {}", paths[..paths.len().min(NAMED)].join(", "));
        if paths.len() > NAMED {
            part.push_str(&format!(
                " and {}",
                count((paths.len() - NAMED) as u64, "more file")
            ));
        }
        parts.push(part);
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!("Project files: {}.", parts.join("; "))
    }
}

/// Whether the command provably changes nothing: a fact for the gate, which decides itself.
fn only_reads(command: &str, cwd: &Path, home: Option<&Path>) -> bool {
    let start = Start {
        directory: cwd.to_owned(),
        home: home.map_or_else(|| PathBuf::from("/nonexistent"), Path::to_owned),
        is_directory: &|path| Some(path.is_dir()),
    };
    prove(&analyse(command, &start), &mut |_| false).is_ok_and(|proof| proof.writes.is_empty())
}
