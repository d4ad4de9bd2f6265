//! `agent doctor`: looks at everything a session needs and says what is missing and how to get it.
//! It changes nothing, and contacts the server of the configured model alone.

mod name;
mod server;

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use agent_provider::ModelRef;
use agent_provider::config::{key_is_optional, key_variables};
use anyhow::Context as _;
use clap::Args;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, Uid, access};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::config::trust::Trust;
use crate::config::{self, Config, FileState, SettingArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::own_name::in_own_name;
use crate::output::{Tone, visible};
use agent_runtime::keys;
use agent_runtime::reach;
use agent_text::counted;

pub(crate) use name::other_program;

/// Check that this machine has what a session needs
///
/// Changes nothing. The server of the configured model is asked for its list of models, which costs
/// nothing, and no other server is contacted. Exit code 1 means that a check failed.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object (docs/schemas/doctor.schema.json)
    #[arg(long)]
    json: bool,
    /// Send a tiny request to the configured model too
    #[arg(long)]
    online: bool,
    /// Contact no server
    #[arg(long, conflicts_with = "online")]
    offline: bool,
}

/// What `agent doctor --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DoctorReport {
    /// True if no check failed.
    ok: bool,
    version: &'static str,
    /// The project's root directory.
    project: PathBuf,
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize, JsonSchema)]
struct Check {
    name: &'static str,
    status: CheckStatus,
    /// What was found.
    message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CheckStatus {
    Ok,
    /// It works, with a limit one should know.
    Warning,
    /// It has to be repaired.
    Failed,
}

impl Check {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self {
            name,
            status: CheckStatus::Ok,
            message: message.into(),
            hint: None,
        }
    }

    fn warning(name: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            status: CheckStatus::Warning,
            hint: Some(hint.into()),
            ..Self::ok(name, message)
        }
    }

    fn failed(name: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            status: CheckStatus::Failed,
            ..Self::warning(name, message, hint)
        }
    }
}

pub(crate) fn run(arguments: &DoctorArgs, app: &App) -> Result<Exit, Failure> {
    let mut checks = vec![
        user(),
        state(&app.host.directories.state),
        project(app),
        disk(app.project.root()),
    ];
    match config::load(&app.host, &app.project, &SettingArgs::default()) {
        Ok(config) => {
            checks.push(settings(&config));
            let asked = asked(app, &config);
            let named = model(app, &config, asked.as_ref());
            let usable = named.status == CheckStatus::Ok;
            checks.push(named);
            if arguments.online {
                checks.push(server::online(app, &config));
            } else if usable {
                let asked = asked.as_ref();
                checks.extend(
                    asked.and_then(|asked| server::server(app, &config, asked, arguments.offline)),
                );
            }
        }
        Err(failure) => {
            let chain: Vec<String> = failure.error.chain().map(ToString::to_string).collect();
            let hint = failure.hints.join("; ");
            checks.push(Check::failed("settings", chain.join(": "), hint));
        }
    }
    checks.push(sandbox(&app.host.temporary));
    checks.push(programs(app));
    checks.push(name::name(app));
    let report = DoctorReport {
        ok: checks
            .iter()
            .all(|check| check.status != CheckStatus::Failed),
        version: env!("CARGO_PKG_VERSION"),
        project: app.project.root().to_path_buf(),
        checks,
    };
    let exit = if report.ok { Exit::Done } else { Exit::Failed };
    let doing = "cannot print the findings";
    if arguments.json {
        app.output.json(&report).context(doing)?;
    } else {
        app.output.print(&as_text(&report, app)).context(doing)?;
    }
    Ok(exit)
}

fn user() -> Check {
    if Uid::effective().is_root() {
        Check::warning(
            "user",
            "running as root",
            "commands are still confined, but use a normal account if you can",
        )
    } else {
        Check::ok("user", format!("running as user {}", Uid::effective()))
    }
}

/// The nearest existing directory decides whether the rest can be made.
fn writable(path: &Path) -> bool {
    let existing = path.ancestors().find(|ancestor| ancestor.exists());
    existing.is_some_and(|directory| access(directory, AccessFlags::W_OK).is_ok())
}

fn state(directory: &Path) -> Check {
    let shown = directory.display();
    if writable(directory) {
        Check::ok("state", format!("`{shown}` is writable"))
    } else {
        Check::failed(
            "state",
            format!("`{shown}` is not writable"),
            "anchors and trust decisions are stored there: fix its owner, or set AGENT_HOME",
        )
    }
}

fn project(app: &App) -> Check {
    let root = app.project.root();
    let shown = root.display();
    if !writable(&app.project.agent_dir()) {
        return Check::failed(
            "project",
            format!("`{shown}` is not writable"),
            "sessions are stored in its `.agent` directory: fix its owner, or work in a copy",
        );
    }
    let marked = root.join(".git").exists() || app.project.agent_dir().is_dir();
    if marked {
        Check::ok("project", format!("`{shown}`"))
    } else {
        Check::warning(
            "project",
            format!("`{shown}` (the current directory; no parent has `.git` or `.agent`)"),
            "run `agent` in your project, or use `--cwd DIR`",
        )
    }
}

fn disk(root: &Path) -> Check {
    const LITTLE: u64 = 256 << 20;
    match statvfs(root) {
        Ok(facts) => {
            let free = facts.blocks_available() * facts.fragment_size();
            let message = format!("{} free", agent_text::words::bytes(free));
            if free < LITTLE {
                let hint = "free some space: a session stops when it cannot write its log";
                Check::warning("disk", message, hint)
            } else {
                Check::ok("disk", message)
            }
        }
        Err(error) => Check::warning(
            "disk",
            format!("cannot determine the free space: {error}"),
            "a session stops when it cannot write its log",
        ),
    }
}

fn settings(config: &Config) -> Check {
    let read = config
        .files
        .iter()
        .filter(|file| file.state != FileState::Absent);
    let message = match read.count() {
        0 => "no settings files; using the defaults".to_owned(),
        1 => "1 file read".to_owned(),
        count => format!("{count} files read"),
    };
    let rules = counted(config.rules.len() as u64, "permission rule");
    let message = format!("{message}, {rules} in force");
    let waiting = config
        .notes
        .iter()
        .filter(|note| note.until_trusted)
        .count();
    let untrusted = config.files.iter().any(|file| {
        matches!(
            file.state,
            FileState::Project(Trust::Unknown | Trust::Changed)
        )
    });
    if untrusted && waiting > 0 {
        Check::warning(
            "settings",
            format!(
                "{message}; ignored: {} from this project",
                counted(waiting as u64, "setting")
            ),
            "review the project's settings, then run `agent config trust`",
        )
    } else {
        Check::ok("settings", message)
    }
}

/// The model that is set, or that would be chosen. No command is run for a key.
fn asked(app: &App, config: &Config) -> Option<ModelRef> {
    if let Some(set) = &config.model.default {
        return ModelRef::parse(&set.value).ok();
    }
    let mut providers = config.providers.values();
    if providers.any(|provider| provider.config().api_key_cmd.is_some()) {
        return None;
    }
    let route = agent_runtime::models::route(app, config).ok()?;
    Some(route.selected()?.target.clone())
}

fn model(app: &App, config: &Config, asked: Option<&ModelRef>) -> Check {
    let environment = &app.host.environment;
    let Some(model) = &config.model.default else {
        if let Some(chosen) = asked {
            return Check::ok(
                "model",
                format!("`{chosen}`; none is set, this one can be used"),
            );
        }
        return Check::warning(
            "model",
            "no model is set",
            "set `model = \"provider/name\"` in your settings file (`agent config path`); \
             `agent models` lists the providers you can use; `agent demo` needs none",
        );
    };
    let asked = match ModelRef::parse(&model.value) {
        Ok(asked) => asked,
        Err(error) => {
            let hint = "write it as `provider/name`, for example `ollama/qwen3-coder`";
            return Check::failed("model", error.to_string(), hint);
        }
    };
    let own = config.providers.get(&asked.provider);
    let own = own.map(|settings| settings.config());
    if let Some(transcript) = own.as_ref().and_then(|own| own.transcript.as_ref()) {
        return match std::fs::File::open(app.host.cwd.join(transcript)) {
            Ok(_) => Check::ok(
                "model",
                format!("`{asked}`, plays `{}`", transcript.display()),
            ),
            Err(error) => Check::failed(
                "model",
                format!("cannot read `{}`: {error}", transcript.display()),
                format!("fix `transcript` under [providers.{}]", asked.provider),
            ),
        };
    }
    if let Err(error) = reach::at_hand(app, config, &asked.provider) {
        let origin = "`agent config show --origin` shows where the model was set".to_owned();
        let hints = error
            .hints()
            .iter()
            .map(|hint| hint.replace("MODEL", &asked.model));
        let hints: Vec<String> = hints.chain([origin]).collect();
        return Check::failed("model", error.to_string(), hints.join("; "));
    }
    let variables = key_variables(&asked.provider, own.as_ref());
    // A command is not run for this: it may ask for a passphrase.
    let file = own.as_ref().and_then(|own| own.api_key_file.as_ref());
    let command = own.as_ref().and_then(|own| own.api_key_cmd.as_ref());
    let program = command.and_then(|words| words.first());
    let unreadable = file.filter(|_| command.is_none()).and_then(|file| {
        let opened = std::fs::File::open(keys::place_of(app, file));
        opened.err().map(|error| (file, error))
    });
    let set = variables
        .iter()
        .find(|name| environment.get(name).is_some());
    match (set, unreadable) {
        (Some(name), _) => Check::ok("model", format!("`{}`, key in {name}", model.value)),
        (None, Some((file, error))) => Check::failed(
            "model",
            format!(
                "`{}` needs a key: cannot read `{}`: {error}",
                model.value,
                file.display()
            ),
            format!(
                "put the key there, or fix `api_key_file` under [providers.{}]",
                asked.provider
            ),
        ),
        (None, None) => match program {
            Some(program) if !is_installed(app, program) => Check::failed(
                "model",
                format!(
                    "`{}` needs a key: program `{program}` not found",
                    model.value
                ),
                format!(
                    "install it, or fix `api_key_cmd` under [providers.{}]",
                    asked.provider
                ),
            ),
            Some(program) => Check::ok(
                "model",
                format!("`{}`, key from `{program}` (not run)", model.value),
            ),
            None if keys::place_of_entered(app, &asked.provider).is_some_and(|it| it.exists()) => {
                Check::ok(
                    "model",
                    format!("`{}`, key entered in `agent`", model.value),
                )
            }
            None if file.is_some() || key_is_optional(&asked.provider, own.as_ref()) => {
                Check::ok("model", format!("`{}`", model.value))
            }
            None => Check::failed(
                "model",
                format!("`{}` needs a key", model.value),
                format!(
                    "set the variable {}, or enter it: `agent config key {}`",
                    variables.join(" or "),
                    asked.provider
                ),
            ),
        },
    }
}

fn sandbox(temporary: &Path) -> Check {
    let found = agent_sandbox::probe(temporary);
    let level = found.level();
    let reasons = found.reasons().join("; ");
    if level == agent_sandbox::Level::Full {
        Check::ok("sandbox", "commands are fully confined")
    } else if level.may_run_unasked() {
        Check::warning(
            "sandbox",
            format!("confinement is `{}`: {reasons}", level.name()),
            "commands still run; docs/SECURITY.md lists what this level does not cover",
        )
    } else {
        Check::warning(
            "sandbox",
            format!("confinement is `{}`: {reasons}", level.name()),
            "commands need approval or are refused; file tools work",
        )
    }
}

fn is_installed(app: &App, program: &str) -> bool {
    let can_run = |file: &Path| access(file, AccessFlags::X_OK).is_ok();
    if program.contains('/') {
        return can_run(&app.project.root().join(program));
    }
    let search = app.host.environment.get("PATH").unwrap_or_default();
    search
        .as_bytes()
        .split(|byte| *byte == b':')
        .map(|directory| Path::new(std::ffi::OsStr::from_bytes(directory)).join(program))
        .any(|file| file.is_absolute() && can_run(&file))
}

fn programs(app: &App) -> Check {
    let missing: Vec<&str> = ["bash", "git"]
        .into_iter()
        .filter(|name| !is_installed(app, name))
        .collect();
    match missing.as_slice() {
        [] => Check::ok("programs", "found bash and git"),
        missing if missing.contains(&"bash") => Check::failed(
            "programs",
            "`bash` not found in PATH",
            "the bash tool needs it; install it with your package manager",
        ),
        _ => Check::warning(
            "programs",
            "`git` not found in PATH",
            "without it, the model does not see the state of the repository",
        ),
    }
}

fn as_text(report: &DoctorReport, app: &App) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let (word, tone) = match check.status {
            CheckStatus::Ok => ("ok", Tone::Good),
            CheckStatus::Warning => ("note", Tone::Warn),
            CheckStatus::Failed => ("FAIL", Tone::Bad),
        };
        let mark = app.output.paint(tone, &format!("{word:<4}"));
        let message = app.output.wrap(&in_own_name(&visible(&check.message)), 15);
        text.push_str(&format!("{mark} {:<9} {message}\n", check.name));
        if let Some(hint) = check.hint.as_deref().filter(|hint| !hint.is_empty()) {
            let hint = app.output.wrap(&in_own_name(&visible(hint)), 15);
            text.push_str(&format!(
                "{:15}{}\n",
                "",
                app.output.paint(Tone::Faint, &hint)
            ));
        }
    }
    text
}
