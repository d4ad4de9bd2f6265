//! What commands are started with: the sandbox this machine can enforce, the environment, the
//! directories they see.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_local_tools::{CommandSettings, ScanLimits, ServiceAccess};
use agent_log::AGENT_DIRECTORY;
use agent_policy::gate::{DiskFacts, GateRequest, SandboxLevel};
use agent_sandbox::{Level, Limits, Mode, Sandbox, environment, tool_dirs};
use agent_tool_runtime::{CommandRequest, Confinement, PermissionSemantics};

use crate::Runtime;
use crate::config::{Config, SandboxMode};
use crate::error::{OrFail as _, RuntimeError};
use crate::keys;
use crate::{OfflineGate, Scratch, git_identity, rules};

/// Settings for the commands of a session whose log is in `session_dir`. Their temporary files are not
/// in the project, which commands can write, and not where other users could have been first.
pub fn settings(
    runtime: &Runtime,
    config: &Config,
    session_dir: &Path,
    scratch: &Scratch,
) -> Result<CommandSettings, RuntimeError> {
    let set = &config.sandbox;
    let home = runtime.home();
    let paths = |list: &[crate::config::Setting<String>]| -> Vec<PathBuf> {
        list.iter()
            .map(|set| expand(&home, runtime.project.root(), &set.value))
            .collect()
    };
    let temporary = scratch.path().to_path_buf();
    let host: Vec<(OsString, OsString)> = runtime
        .host
        .environment
        .variables()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let path = runtime.host.environment.get("PATH").unwrap_or_default();
    let variable = |name: &str| runtime.host.environment.get(name).map(Into::into);
    let mut tools = tool_dirs::find(&home, path, &variable, &paths(&set.readable));
    let xdg = runtime
        .host
        .environment
        .get("XDG_CONFIG_HOME")
        .map(Path::new);
    tools
        .environment
        .extend(git_identity::variables(&home, xdg));
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
        sandbox: Arc::new(Sandbox::survey(&temporary)),
        mode: match set.mode.value {
            SandboxMode::Required => Mode::Required,
            SandboxMode::Off => Mode::Off {
                reason: "sandbox = \"off\" in the user's settings".to_owned(),
            },
        },
        environment: environment::build(&host, &passed, &tools.environment),
        home: Some(home.clone()),
        // A command that reads the whole project must not read the record of its own output, and
        // exact images of files are for undo alone.
        hidden: paths(&set.hidden)
            .into_iter()
            .chain(tools.hidden)
            .chain([runtime
                .project
                .root()
                .join(AGENT_DIRECTORY)
                .join("sessions")])
            .chain(own_files(runtime, config))
            .collect(),
        readable: tools.readable,
        services: vec![gh(runtime)],
        writable: paths(&set.writable),
        protected: paths(&set.protected),
        limits,
        session_dir: session_dir.to_path_buf(),
        temporary,
        scan: ScanLimits {
            image_bytes: config.limits.max_undo_file.value.bytes(),
            store_bytes: config.limits.max_undo_total.value.bytes(),
            ..ScanLimits::default()
        },
        max_output_bytes: config.limits.max_command_output.value.bytes(),
        max_total_output_bytes: config.limits.max_session_output.value.bytes(),
        timeout: config.limits.command_timeout.value.duration(),
        max_timeout: config.limits.max_command_timeout.value.duration(),
    })
}

/// The credentials of GitHub's program: in variables, or else in the directory of its settings.
fn gh(runtime: &Runtime) -> ServiceAccess {
    const TOKENS: [&str; 4] = [
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "GH_ENTERPRISE_TOKEN",
        "GITHUB_ENTERPRISE_TOKEN",
    ];
    let set = |name: &str| {
        let value = runtime.host.environment.get(name)?;
        (!value.is_empty()).then(|| (OsString::from(name), OsString::from(value)))
    };
    let variables: Vec<(OsString, OsString)> = TOKENS.into_iter().filter_map(set).collect();
    let own = || {
        let below = |name: &str| set(name).map(|(_, place)| PathBuf::from(place));
        below("GH_CONFIG_DIR")
            .or_else(|| below("XDG_CONFIG_HOME").map(|place| place.join("gh")))
            .unwrap_or_else(|| runtime.home().join(".config/gh"))
    };
    let directory = variables.is_empty().then(own);
    let directory = directory.filter(|place| place.join("hosts.yml").is_file());
    ServiceAccess {
        program: "gh".to_owned(),
        variables,
        directory: directory.map(|place| ("GH_CONFIG_DIR".into(), place)),
    }
}

/// What is the agent's own, wherever it lies: settings, which may hold keys in headers, the state with its
/// anchors and its masking key, and the key files that settings name. No command sees any of it.
fn own_files(runtime: &Runtime, config: &Config) -> Vec<PathBuf> {
    let own = &runtime.host.directories;
    let keys = config.providers.values().filter_map(|settings| {
        let file = settings.provider.api_key_file.as_ref()?;
        Some(keys::place_of(runtime, &file.value))
    });
    let settings = [&own.user_config, &own.managed_config, &own.state];
    settings.into_iter().cloned().chain(keys).collect()
}

/// The reach the gate would give to `script` as a call of the tool that runs commands. Its decision is left aside:
/// the person who typed the command has decided.
pub fn confinement(
    runtime: &Runtime,
    config: &Config,
    sandbox: SandboxLevel,
    script: &str,
    network: bool,
) -> Result<Confinement, RuntimeError> {
    let offline =
        OfflineGate::with_sandbox(runtime, config, rules(runtime, config, None)?, sandbox);
    let setting = offline.setting(config.permissions.mode.value);
    let Some(shell) = offline.tools.shell() else {
        return Err(RuntimeError::usage("there is no tool that runs commands"));
    };
    let mut input = shell.input_about(script);
    if let Some(field) = &shell.network_field {
        input[field] = network.into();
    }
    let semantics = PermissionSemantics {
        action_class: shell.action_class,
        command: Some(CommandRequest::new(script, runtime.host.cwd.clone())),
        network,
        ..PermissionSemantics::default()
    };
    let request = GateRequest {
        tool: shell,
        input: &input,
        semantics: &semantics,
    };
    let facts = DiskFacts { dirty: || None };
    Ok(offline.gate.evaluate(&request, &setting, &facts).allowed)
}

/// The level in the gate's words.
pub fn level(settings: &CommandSettings) -> SandboxLevel {
    if matches!(settings.mode, Mode::Off { .. }) {
        return SandboxLevel::Off;
    }
    in_gate_words(settings.sandbox.capabilities().level())
}

/// The same for whoever runs nothing and only wants to know.
pub fn probed_level(runtime: &Runtime, config: &Config) -> Result<SandboxLevel, RuntimeError> {
    if config.sandbox.mode.value == SandboxMode::Off {
        return Ok(SandboxLevel::Off);
    }
    let name = format!("probe-{}", std::process::id());
    let scratch = Scratch::new(&runtime.host.directories.state, &name).or_usage()?;
    let level = Sandbox::survey(scratch.path()).capabilities().level();
    Ok(in_gate_words(level))
}

fn in_gate_words(level: Level) -> SandboxLevel {
    match level {
        Level::Full | Level::NoLandlock | Level::Bubblewrap => SandboxLevel::Full,
        Level::Partial => SandboxLevel::Partial,
        Level::None => SandboxLevel::Unavailable,
    }
}

pub(super) fn expand(home: &Path, root: &Path, text: &str) -> PathBuf {
    match text.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => root.join(text),
    }
}
