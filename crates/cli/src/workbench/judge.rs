//! The gate with the rules in force here, for whoever asks what it would say and runs nothing.

use std::path::PathBuf;

use agent_policy::gate::{
    DiskFacts, Gate, GateRequest, Rule, SandboxLevel, Setting, canonical_tool, semantics_of,
    tool_names,
};
use agent_protocol::payload::permission::PermissionEvaluated;
use agent_protocol::status::Mode;
use agent_tool_runtime::Workspace;
use serde_json::Value;

use super::commands;
use super::work_tree::WorkTree;
use crate::app::App;
use crate::config::Config;
use crate::failure::Failure;

/// Decides as a session started now would.
pub(crate) struct Judge {
    pub(crate) gate: Gate,
    workspace: Workspace,
    work_tree: WorkTree,
    home: PathBuf,
    sandbox: SandboxLevel,
    timeout_ms: Option<u64>,
}

impl Judge {
    /// With the sandbox that this machine can enforce.
    pub(crate) fn new(app: &App, config: &Config, rules: Vec<Rule>) -> Result<Self, Failure> {
        let sandbox = commands::probed_level(app, config)?;
        Ok(Self::with_sandbox(app, config, rules, sandbox))
    }

    pub(crate) fn with_sandbox(
        app: &App,
        config: &Config,
        rules: Vec<Rule>,
        sandbox: SandboxLevel,
    ) -> Self {
        let timeout = config.limits.command_timeout.value.duration();
        Self {
            gate: Gate {
                rules,
                ..Gate::default()
            },
            workspace: Workspace {
                root: app.project.root().to_path_buf(),
                extra_roots: Vec::new(),
            },
            work_tree: WorkTree::new(app),
            home: app.home(),
            sandbox,
            timeout_ms: u64::try_from(timeout.as_millis()).ok(),
        }
    }

    /// What holds around a call.
    pub(crate) fn setting(&self, mode: Mode) -> Setting<'_> {
        Setting {
            workspace: &self.workspace,
            home: &self.home,
            mode,
            sandbox: self.sandbox,
            turn: "",
            hooks: &[],
            timeout_ms: self.timeout_ms,
            output_limit: None,
        }
    }

    /// The decision about one call. Files are looked at, nothing is run or changed.
    pub(crate) fn evaluate(
        &self,
        tool: &str,
        input: &Value,
        mode: Mode,
    ) -> Result<PermissionEvaluated, Failure> {
        let tool = canonical_tool(tool);
        let Some(semantics) = semantics_of(tool, input, &self.workspace) else {
            return Err(self.not_a_call(tool));
        };
        let request = GateRequest {
            tool,
            input,
            semantics: &semantics,
        };
        let facts = DiskFacts {
            dirty: || self.work_tree.is_dirty(),
        };
        let setting = self.setting(mode);
        Ok(self.gate.evaluate(&request, &setting, &facts).evaluated)
    }

    /// An unknown tool, or a known one without the input that says what it is about.
    fn not_a_call(&self, tool: &str) -> Failure {
        // `network` is a word for rules; no tool has that name.
        let known: Vec<&str> = tool_names().filter(|name| *name != "network").collect();
        if known.contains(&tool) {
            let key = if tool == "bash" { "command" } else { "path" };
            return Failure::usage(format!("the input of `{tool}` has no text `{key}`"));
        }
        Failure::usage(format!("there is no tool `{tool}`"))
            .hint(format!("the tools are {}", known.join(", ")))
    }
}
