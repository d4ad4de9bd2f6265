//! What commands are started with: the sandbox this machine can enforce, the environment, the
//! directories they see.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agent_local_tools::{CommandSettings, ScanLimits};
use agent_protocol::payload::permission::ActionClass;
use agent_sandbox::{Level, Limits, Mode, environment, tool_dirs};
use agent_tool_runtime::gate::{DiskFacts, GateRequest, SandboxLevel};
use agent_tool_runtime::{CommandRequest, Confinement, PermissionSemantics};
use serde_json::json;

use super::{Judge, rules};
use crate::app::App;
use crate::config::{Config, SandboxMode};
use crate::failure::{Failure, OrFail as _};
use crate::private;

/// A command that prints more than this is ended.
const MAX_OUTPUT: u64 = 4 << 30;

/// Settings for the commands of a session whose log is in `session_dir`.
pub(crate) fn settings(
    app: &App,
    config: &Config,
    session_dir: &Path,
) -> Result<CommandSettings, Failure> {
    let set = &config.sandbox;
    let home = app.home();
    let paths = |list: &[crate::config::Setting<String>]| -> Vec<PathBuf> {
        list.iter()
            .map(|set| expand(&home, app.project.root(), &set.value))
            .collect()
    };
    // Not in the project, which commands can write, and not where other users could have been first.
    let name = session_dir.file_name().unwrap_or_default();
    let temporary = app.host.directories.state.join("tmp").join(name);
    private::create_directory(&temporary).or_usage()?;
    let host: Vec<(OsString, OsString)> = app
        .host
        .environment
        .variables()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let path = app.host.environment.get("PATH").unwrap_or_default();
    let tools = tool_dirs::find(&home, path, &paths(&set.readable));
    let passed: Vec<OsString> = set
        .environment
        .iter()
        .map(|set| set.value.clone().into())
        .collect();
    let mut limits = Limits::default();
    if let Some(most) = &set.max_processes {
        limits.processes = Some(most.value);
    }
    if let Some(most) = &set.max_memory {
        limits.memory = Some(most.value.bytes());
    }
    if let Some(most) = &set.max_file_size {
        limits.file_size = Some(most.value.bytes());
    }
    Ok(CommandSettings {
        capabilities: agent_sandbox::probe(&temporary),
        mode: match set.mode.value {
            SandboxMode::Required => Mode::Required,
            SandboxMode::Off => Mode::Off {
                reason: "sandbox = \"off\" in the user's settings".to_owned(),
            },
        },
        environment: environment::build(&host, &passed, &tools.environment),
        home: Some(home.clone()),
        hidden: paths(&set.hidden).into_iter().chain(tools.hidden).collect(),
        readable: tools.readable,
        writable: paths(&set.writable),
        limits,
        session_dir: session_dir.to_path_buf(),
        temporary,
        scan: ScanLimits::default(),
        max_output_bytes: MAX_OUTPUT,
    })
}

/// The reach the gate would give to `script` as a call of the bash tool. Its decision is left aside:
/// whoever types a command has decided.
pub(crate) fn confinement(
    app: &App,
    config: &Config,
    sandbox: SandboxLevel,
    script: &str,
    network: bool,
) -> Result<Confinement, Failure> {
    let judge = Judge::with_sandbox(app, config, rules(app, config, None)?, sandbox);
    let setting = judge.setting(config.permissions.mode.value);
    let semantics = PermissionSemantics {
        action_class: ActionClass::Execute,
        command: Some(CommandRequest {
            text: script.to_owned(),
            cwd: app.host.cwd.clone(),
        }),
        network,
        ..PermissionSemantics::default()
    };
    let request = GateRequest {
        tool: "bash",
        input: &json!({ "command": script, "network": network }),
        semantics: &semantics,
    };
    let facts = DiskFacts { dirty: || None };
    Ok(judge.gate.evaluate(&request, &setting, &facts).confinement)
}

/// The level in the gate's words.
pub(crate) fn level(settings: &CommandSettings) -> SandboxLevel {
    if matches!(settings.mode, Mode::Off { .. }) {
        return SandboxLevel::Off;
    }
    in_gate_words(settings.capabilities.level())
}

/// The same for whoever runs nothing and only wants to know.
pub(crate) fn probed_level(app: &App, config: &Config) -> Result<SandboxLevel, Failure> {
    if config.sandbox.mode.value == SandboxMode::Off {
        return Ok(SandboxLevel::Off);
    }
    let name = format!("probe-{}", std::process::id());
    let scratch = app.host.directories.state.join("tmp").join(name);
    private::create_directory(&scratch).or_usage()?;
    let level = agent_sandbox::probe(&scratch).level();
    // What cannot be removed is only litter.
    let _ = std::fs::remove_dir(&scratch);
    Ok(in_gate_words(level))
}

fn in_gate_words(level: Level) -> SandboxLevel {
    match level {
        Level::Full | Level::NoLandlock | Level::Bubblewrap => SandboxLevel::Full,
        Level::Partial => SandboxLevel::Partial,
        Level::None => SandboxLevel::Unavailable,
    }
}

fn expand(home: &Path, root: &Path, text: &str) -> PathBuf {
    match text.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => root.join(text),
    }
}
