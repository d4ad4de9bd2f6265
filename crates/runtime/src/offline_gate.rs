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

use crate::Runtime;
use crate::command_settings as commands;
use crate::config::Config;
use crate::error::RuntimeError;
use crate::work_tree::WorkTree;

/// Decides as a session started now would.
pub struct OfflineGate {
    pub gate: Gate,
    workspace: Workspace,
    work_tree: WorkTree,
    home: PathBuf,
    sandbox: SandboxLevel,
    timeout_ms: Option<u64>,
}

impl OfflineGate {
    /// With the sandbox that this machine can enforce.
    pub fn new(runtime: &Runtime, config: &Config, rules: Vec<Rule>) -> Result<Self, RuntimeError> {
        let sandbox = commands::probed_level(runtime, config)?;
        Ok(Self::with_sandbox(runtime, config, rules, sandbox))
    }

    pub fn with_sandbox(
        runtime: &Runtime,
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
                root: runtime.project.root().to_path_buf(),
                extra_roots: Vec::new(),
            },
            work_tree: WorkTree::new(runtime),
            home: runtime.home(),
            sandbox,
            timeout_ms: u64::try_from(timeout.as_millis()).ok(),
        }
    }

    /// What holds around a call.
    pub fn setting(&self, mode: Mode) -> Setting<'_> {
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
    pub fn evaluate(
        &self,
        tool: &str,
        input: &Value,
        mode: Mode,
    ) -> Result<PermissionEvaluated, RuntimeError> {
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
    fn not_a_call(&self, tool: &str) -> RuntimeError {
        // `network` is a word for rules; no tool has that name.
        let known: Vec<&str> = tool_names().filter(|name| *name != "network").collect();
        if known.contains(&tool) {
            let key = if tool == "bash" { "command" } else { "path" };
            return RuntimeError::usage(format!("the input of `{tool}` has no string `{key}`"));
        }
        RuntimeError::usage(format!("there is no tool `{tool}`"))
            .hint(format!("the tools are {}", known.join(", ")))
    }
}
