//! `bash`: one command in the sandbox.
//!
//! The tool decides nothing about permission: it gives the gate the command's text, turns the reach
//! it was granted into a sandbox policy, records what really holds before the command starts,
//! streams the output into an artifact, and looks at the project before and after to say what
//! changed.

mod background;
mod ending;
mod git_index;
mod launch;
mod output;
mod refusals;
mod run;
mod scan;
mod tool_hint;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_policy::shell::{Analysis, Directories, Start, prove::prove};
use agent_protocol::Code;
use agent_protocol::payload::permission::ActionClass;
use agent_protocol::payload::process::pipeline_failed;
use agent_protocol::payload::tool::{Capability, Concurrency, Risk};
use agent_tool_runtime::{
    CommandRequest, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized,
    PermissionSemantics, Plan, Prepared, RawResult, RuntimeContext, Subject, Tool, ToolDefinition,
    ToolInvocation, ValidationFailure, Visibility, VisibilityContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub use background::Processes;
pub(crate) use background::{Background, Ended};
pub(crate) use ending::Stopped;
pub use launch::{CommandSettings, ServiceAccess};
pub(crate) use scan::ChangeTracker;
pub use scan::ScanLimits;

use crate::LocalTool;
use crate::path::{Access, Found, Roots};
use crate::reveal::refuse_placeholder;
use crate::support::{flags, parse, prepared, reading_definition};
use output::Kept;
use tool_hint::tool_hint;

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
    /// When the command is ended, in milliseconds; two minutes unless the user has set another time.
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
    /// A tool that does the same with more to say about it.
    tool_hint: Option<&'static str>,
    /// Working directory of its shell at its end, as far as its text tells.
    ends_in: Option<PathBuf>,
    /// True if bash can be asked for the statuses of a last pipeline.
    ends_in_pipeline: bool,
}

impl PreparedCommand {
    /// Working directory of its shell at its end, if that is known: a script that went elsewhere and failed may have
    /// failed on the way.
    fn cwd_after(&self, succeeded: bool) -> Option<PathBuf> {
        let end = self.ends_in.as_ref();
        let known = end.filter(|end| succeeded || **end == self.cwd);
        known.cloned()
    }
}

/// The tool.
pub(crate) struct BashTool {
    roots: Arc<Roots>,
    settings: Arc<CommandSettings>,
    processes: Arc<Processes>,
    tracker: Arc<ChangeTracker>,
    kept: Arc<Kept>,
    definition: ToolDefinition,
}

impl BashTool {
    /// Runs commands in the project of `roots`.
    pub(crate) fn new(
        roots: Arc<Roots>,
        settings: Arc<CommandSettings>,
        processes: Arc<Processes>,
        tracker: Arc<ChangeTracker>,
    ) -> Self {
        let kept = Arc::new(Kept::new(settings.max_total_output_bytes));
        let definition = ToolDefinition {
            default_timeout: Some(settings.timeout.min(settings.max_timeout)),
            ..definition()
        };
        Self {
            roots,
            settings,
            processes,
            tracker,
            kept,
            definition,
        }
    }

    fn home(&self) -> PathBuf {
        let home = self.settings.home.clone();
        home.unwrap_or_else(|| PathBuf::from("/nonexistent"))
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

/// The line of the table of tools.
pub(crate) const TOOL: LocalTool = LocalTool {
    definition,
    make: |parts| {
        Arc::new(BashTool::new(
            Arc::clone(&parts.roots),
            Arc::clone(&parts.settings),
            Arc::clone(&parts.processes),
            Arc::clone(&parts.tracker),
        ))
    },
};

fn definition() -> ToolDefinition {
    ToolDefinition {
        subject: Subject::Command,
        action_class: ActionClass::Execute,
        command_field: Some("command".to_owned()),
        cwd_field: Some("cwd".to_owned()),
        network_field: Some("network".to_owned()),
        capabilities: vec![Capability::Shell, Capability::Filesystem],
        risk: vec![Risk::Execute, Risk::Write],
        is_read_only: false,
        is_destructive: true,
        concurrency: Concurrency::Exclusive,
        needs_sandbox: true,
        streams_progress: true,
        ..reading_definition::<BashInput>(
            "bash",
            "Runs a command with bash in a sandbox: the project can be written, the rest of the system and the home \
             directory cannot, and there is no network unless it is asked for. Use it for tests, builds, git and \
             services. For files use the narrow tools, which are safer and clearer: read instead of cat, edit instead of \
             sed, write instead of echo, grep and glob instead of grep and find. Every call starts a new shell in the \
             project root; stdin is closed, there is no pager and no editor. When the command ends, everything it \
             started ends too, unless background is set.",
            "Both output streams in the order they came, the exit code, and the project files that were created, \
             changed or deleted. Long output keeps its beginning, its end and error lines; the whole is in an artifact.",
        )
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
        context: &RuntimeContext<'_>,
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
        refuse_placeholder(&input.command, context)?;
        let cwd = self.cwd(input.cwd.as_deref())?;
        let background = input.background.unwrap_or(false);
        if background && let Some(refusal) = self.processes.refusal() {
            return Err(wrong("/background", &refusal));
        }
        let longest = self.settings.max_timeout;
        let timeout = input
            .timeout_ms
            .map_or_else(|| self.settings.timeout.min(longest), Duration::from_millis);
        if timeout > longest {
            let message = format!(
                "a command may take {} ms at most, as the settings say",
                longest.as_millis()
            );
            return Err(wrong("/timeout_ms", &message));
        }
        let mut flags = flags(&self.definition);
        let start = Start {
            directory: cwd.absolute().to_owned(),
            home: self.home(),
            is_directory: &|path| Some(path.is_dir()),
        };
        let analysis = context.reading.analyse(&input.command, &start);
        flags.is_read_only = only_reads(&analysis);
        flags.is_destructive = !flags.is_read_only;
        let name = cwd.name();
        Ok(Prepared {
            normalised_paths: vec![name.clone()],
            semantics: PermissionSemantics {
                action_class: self.definition.action_class,
                command: Some(CommandRequest::analysed(
                    Arc::clone(&analysis),
                    cwd.absolute().to_owned(),
                )),
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
                ends_in: ends_in(&analysis),
                command: input.command,
                cwd: cwd.absolute().to_owned(),
                background,
                tool_hint: tool_hint(&analysis),
                ends_in_pipeline: analysis.ends_in_pipeline,
            }),
        })
    }

    fn syncs_before_effects(&self) -> bool {
        true
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let confinement = self.settings.written_out(invocation.confinement());
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

    fn normalize(&self, raw: &RawResult, context: &NormalizeContext<'_>) -> Normalized {
        let data = &raw.data;
        let mut summary = match (data.background, data.exit_code, data.signal) {
            (Some(true), ..) => format!(
                "Started in the background as {}.{}",
                data.process_id.as_deref().unwrap_or_default(),
                match data.exit_code {
                    Some(code) => format!(" Exit code {code}."),
                    None => String::new(),
                }
            ),
            (_, Some(code), _) => format!("Exit code {code}."),
            (_, _, Some(signal)) => format!("Ended by signal {signal}."),
            _ => "Ended.".to_owned(),
        };
        if let Some(statuses) = data.pipe_status.as_deref().filter(|it| pipeline_failed(it)) {
            let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
            let statuses = statuses.join(", ");
            summary.push_str(&format!(
                " The commands of the pipeline ended with {statuses}."
            ));
        }
        if data.background != Some(true) && raw.bodies.is_empty() {
            summary.push_str(" No output.");
        }
        let command = context.input.get("command").and_then(Value::as_str);
        Normalized {
            title: format!("bash {}", command.unwrap_or_default().trim()),
            summary,
            detail: data.note.clone().unwrap_or_default(),
            user_text: None,
        }
    }
}

/// The directory in which a command behind the script would run, if all of the script was understood
/// and there is only one.
fn ends_in(analysis: &Analysis) -> Option<PathBuf> {
    const NO_TELLING: [&str; 7] = ["eval", "source", ".", "builtin", "command", "trap", "alias"];
    const MOVES: [&str; 3] = ["cd", "pushd", "popd"];
    const LEAVES: [&str; 5] = ["exit", "exec", "return", "set", "kill"];
    if analysis.parse_error.is_some() || analysis.refusal.is_some() {
        return None;
    }
    let programs = analysis.commands.iter().filter_map(|it| it.words.first());
    let programs: Option<Vec<&str>> = programs.map(|word| word.text()).collect();
    let programs = programs?;
    let has = |names: &[&str]| programs.iter().any(|program| names.contains(program));
    if has(&NO_TELLING) || has(&MOVES) && has(&LEAVES) {
        return None;
    }
    match &analysis.ends_in {
        Directories::Known(known) => match &**known {
            [only] => Some(only.clone()),
            _ => None,
        },
        Directories::Unknown => None,
    }
}

/// True if the command provably changes nothing: a fact for the gate, which decides itself.
fn only_reads(analysis: &Analysis) -> bool {
    prove(analysis, &mut |_| false).is_ok_and(|proof| proof.writes.is_empty())
}

#[cfg(test)]
mod tests {
    use agent_policy::shell::analyse;

    use super::*;

    fn check(script: &str, expected: Option<&str>) {
        let start = Start {
            directory: PathBuf::from("/project"),
            home: PathBuf::from("/home"),
            is_directory: &|path| Some(path.starts_with("/project")),
        };
        let found = ends_in(&analyse(script, &start));
        assert_eq!(found, expected.map(PathBuf::from), "{script}");
    }

    #[test]
    fn where_a_shell_leaves_off_is_told_when_it_is_certain() {
        check("make", Some("/project"));
        check("cd src", Some("/project/src"));
        check("cd src && make", Some("/project/src"));
        check("cd src; cd ..; ls", Some("/project"));
        check("(cd src; ls)", Some("/project"));
        check("ls # a comment", Some("/project"));
        check("exit 3", Some("/project"));
        check("cd \"$somewhere\"", None);
        check("cd src; exit; cd ..", None);
        check("eval \"$text\"", None);
        check(". ./script", None);
        check("\"$program\" x", None);
        check("cat <<X", None);
    }
}
