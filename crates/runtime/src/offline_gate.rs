//! Gate with the rules in force here that runs nothing, for questions about its decisions.

use std::path::PathBuf;

use agent_policy::gate::{DiskFacts, Gate, GateRequest, Rule, SandboxLevel, Setting};
use agent_protocol::payload::permission::PermissionEvaluated;
use agent_protocol::status::Mode;
use agent_tool_runtime::{Tools, Workspace};
use serde_json::Value;

use crate::Runtime;
use crate::command_settings as commands;
use crate::config::Config;
use crate::error::RuntimeError;
use crate::work_tree::WorkTree;

/// Decides as a session started now would.
pub struct OfflineGate {
    pub gate: Gate,
    /// The tools whose calls it decides about.
    pub tools: Tools,
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
            tools: runtime.host.known_tools(),
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
        let Some(tool) = self.tools.find(tool) else {
            let known: Vec<&str> = self.tools.names().collect();
            return Err(RuntimeError::usage(format!("there is no tool `{tool}`"))
                .hint(format!("the tools are {}", known.join(", "))));
        };
        let Some(semantics) = tool.semantics(input, &self.workspace) else {
            return Err(RuntimeError::usage(format!(
                "the input of `{}` has no string `{}`",
                tool.name,
                tool.main_field().unwrap_or_default()
            )));
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
}
