//! `agent sandbox`: what commands are confined by here, and a way to try it.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use agent_protocol::id::ProcessId;
use agent_protocol::status::Mode as PermissionMode;
use agent_sandbox::{
    Capabilities, Command, Detection, ExitStatus, Finished, KilledBy, LaunchError, Level, Mode,
    Stream,
};
use agent_tool_runtime::{Cancel, CancelReason};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use super::call::watch_signals;
use crate::app::App;
use crate::config::{self, Config, SandboxMode, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Tone, visible};
use agent_runtime::{Scratch, command_settings as commands, private};

/// What a shell says when a program is not there, and when it cannot be started.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;

/// Check the sandbox, or run a command in it
#[derive(Args, Debug)]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
enum SandboxCommand {
    Check(CheckArgs),
    Run(RunArgs),
}

/// Show what this machine can enforce, by building a complete sandbox
///
/// Exit code 6 means that commands would be refused.
#[derive(Args, Debug)]
struct CheckArgs {
    /// Print one JSON object (docs/schemas/sandbox-check.schema.json)
    #[arg(long)]
    json: bool,
}

/// Run a program in the same sandbox as the bash tool
///
/// Standard input is closed and nothing is recorded. On a terminal, control characters are shown
/// instead of interpreted. Exits with the program's exit code, with 128 plus the number of the
/// signal that ended it, or with 6 if the sandbox could not be enforced; then nothing was run.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent sandbox run -- cargo test
  agent sandbox run --read-only -- sh -c 'echo x > file'")]
struct RunArgs {
    /// Allow network access
    #[arg(long)]
    network: bool,
    /// Mount the project read-only
    #[arg(long)]
    read_only: bool,
    /// Program and arguments; for a script, `-- sh -c '…'`
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What `agent sandbox check --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckOutput {
    /// full, no_landlock, bubblewrap, partial or none: what this machine can enforce.
    level: &'static str,
    /// `required`, or `off` when the user's settings switch the sandbox off.
    mode: &'static str,
    layers: Vec<LayerFound>,
    /// What happens to commands.
    commands: Treatment,
    /// The same in words, with what stays open.
    meaning: &'static str,
    /// What would make it stronger.
    remedies: Vec<&'static str>,
}

/// One mechanism.
#[derive(Debug, Serialize, JsonSchema)]
struct LayerFound {
    name: &'static str,
    present: bool,
    /// Its version or place, or the reason for its absence.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Treatment {
    /// They run confined, asked about only where rules say so.
    Confined,
    /// Each one is asked about.
    Asked,
    Refused,
    /// They run without confinement, on the word of the settings.
    Unconfined,
}

pub(crate) fn run(arguments: &SandboxArgs, app: &App) -> Result<ExitCode, Failure> {
    match &arguments.command {
        SandboxCommand::Check(arguments) => check(arguments, app).map(ExitCode::from),
        SandboxCommand::Run(arguments) => confined(arguments, app).map(ExitCode::from),
    }
}

/// What can be enforced here, in words.
pub(crate) fn findings(app: &App, config: &Config) -> String {
    let found = agent_sandbox::probe(&app.host.temporary);
    as_text(&report(&found, config.sandbox.mode.value), app)
}

fn check(arguments: &CheckArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &SettingArgs::default())?;
    app.note_ignored_settings(&config);
    let found = agent_sandbox::probe(&app.host.temporary);
    let report = report(&found, config.sandbox.mode.value);
    let doing = "cannot print the findings";
    if arguments.json {
        app.output.json(&report).context(doing)?;
    } else {
        app.output.print(&as_text(&report, app)).context(doing)?;
    }
    Ok(match report.commands {
        Treatment::Refused => Exit::NoSandbox,
        _ => Exit::Done,
    })
}

fn report(found: &Capabilities, mode: SandboxMode) -> CheckOutput {
    let level = found.level();
    let (commands, meaning) = match (mode, level) {
        (SandboxMode::Off, _) => (
            Treatment::Unconfined,
            "commands run unconfined: the sandbox is off in your settings",
        ),
        (_, Level::Full) => (
            Treatment::Confined,
            "commands are confined by every layer; see docs/SECURITY.md",
        ),
        (_, Level::NoLandlock) => (
            Treatment::Confined,
            "commands are confined; not covered without Landlock: FIFOs and device files outside \
             the project that your user can write to",
        ),
        (_, Level::Bubblewrap) => (
            Treatment::Confined,
            "commands are confined, using bubblewrap for mounts; the process limit does not apply \
             to root",
        ),
        (_, Level::Partial) => (
            Treatment::Asked,
            "partial: every command needs approval; not covered: modes and times of your files \
             outside the project, protected paths (changes are reported, not undone), processes \
             that outlive the call in a race; loopback servers do not work",
        ),
        (_, Level::None) => (
            Treatment::Refused,
            "commands are refused because they cannot be confined; file tools work",
        ),
    };
    CheckOutput {
        level: level.name(),
        mode: match mode {
            SandboxMode::Required => "required",
            SandboxMode::Off => "off",
        },
        layers: layers(found),
        commands,
        meaning,
        remedies: remedies(found, mode),
    }
}

fn layers(found: &Capabilities) -> Vec<LayerFound> {
    fn layer<T>(
        name: &'static str,
        finding: &Result<T, String>,
        detail: impl FnOnce(&T) -> Option<String>,
    ) -> LayerFound {
        LayerFound {
            name,
            present: finding.is_ok(),
            detail: match finding {
                Ok(value) => detail(value),
                Err(reason) => Some(reason.clone()),
            },
        }
    }
    let place = |path: &PathBuf| Some(path.display().to_string());
    vec![
        layer("user namespaces", &found.user_namespaces, |()| None),
        layer("landlock", &found.landlock, |abi| {
            Some(format!("ABI {abi}"))
        }),
        layer("seccomp", &found.seccomp, |()| None),
        layer("bubblewrap", &found.bubblewrap, place),
        layer("cgroup", &found.cgroup, place),
    ]
}

/// Only for what the level lacks: bubblewrap and a control group are not needed at level full.
fn remedies(found: &Capabilities, mode: SandboxMode) -> Vec<&'static str> {
    let mut remedies = Vec::new();
    if mode == SandboxMode::Off {
        remedies.push(
            "remove `sandbox = \"off\"` from your settings \
            (`agent config show --origin` shows where it is set)",
        );
    }
    if found.seccomp.is_err() {
        remedies.push("use a kernel with seccomp filters, or a container that allows them");
    }
    if found.user_namespaces.is_err() && found.seccomp.is_ok() {
        remedies.push(
            "allow unprivileged user namespaces: \
            `sysctl kernel.unprivileged_userns_clone=1` or \
            `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, whichever your system has; \
            in a container, use a seccomp profile that permits them",
        );
        if found.bubblewrap.is_err() && found.landlock.is_ok() {
            remedies.push("or install bubblewrap with your package manager");
        }
    }
    if found.landlock.is_err() {
        remedies.push(
            "for Landlock, use Linux 6.2 or later with `landlock` in the list of \
            security modules (boot parameter `lsm=`)",
        );
    }
    remedies
}

fn as_text(report: &CheckOutput, app: &App) -> String {
    let tone = match report.commands {
        Treatment::Confined => Tone::Good,
        Treatment::Asked => Tone::Warn,
        Treatment::Refused | Treatment::Unconfined => Tone::Bad,
    };
    let mut text = format!("level    {}\n", app.output.paint(tone, report.level));
    text.push_str(&format!(
        "meaning  {}\n\n",
        app.output.wrap(report.meaning, 9)
    ));
    for layer in &report.layers {
        let (word, tone) = if layer.present {
            ("yes", Tone::Good)
        } else {
            ("no", Tone::Faint)
        };
        let mark = app.output.paint(tone, &format!("{word:<4}"));
        let detail = visible(layer.detail.as_deref().unwrap_or_default());
        let line = format!("{mark} {:<16} {}", layer.name, app.output.wrap(&detail, 22));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for remedy in &report.remedies {
        text.push_str(&format!("\nremedy   {}\n", app.output.wrap(remedy, 9)));
    }
    text
}

/// The directory that stands for a session's, removed at the end of the run.
struct SessionDirectory {
    session: PathBuf,
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        // What was taken out of the project is somebody's work: a directory that holds it stays.
        let _ = std::fs::remove_dir(self.session.join("quarantine"));
        let _ = std::fs::remove_dir(&self.session);
    }
}

fn confined(arguments: &RunArgs, app: &App) -> Result<u8, Failure> {
    let mut config = config::load(&app.host, &app.project, &SettingArgs::default())?;
    app.note_ignored_settings(&config);
    if arguments.read_only {
        config.permissions.mode.value = PermissionMode::ReadOnly;
    }
    let cancel = Cancel::new();
    let signals = watch_signals(&cancel).or_fail()?;
    let closed = run_confined(arguments, app, &config, &cancel);
    match (signals.exit(), closed) {
        (Some(exit), Ok(_)) => Ok(exit as u8),
        (_, ended) => ended,
    }
}

fn run_confined(
    arguments: &RunArgs,
    app: &App,
    config: &Config,
    cancel: &Cancel,
) -> Result<u8, Failure> {
    let id: ProcessId = app.host.ids.mint();
    let state = &app.host.directories.state;
    let directory = SessionDirectory {
        session: state.join("sandbox-runs").join(id.as_str()),
    };
    private::create_directory(&directory.session).or_usage()?;
    let scratch = Scratch::new(state, id.as_str()).or_usage()?;
    let settings = commands::settings(app, config, &directory.session, &scratch)?;
    let private = settings.temporary.join("command");
    private::create_directory(&private).or_usage()?;
    let level = commands::level(&settings);
    let script = as_script(&arguments.command);
    let confinement = commands::confinement(app, config, level, &script, arguments.network)?;
    let policy = settings
        .policy(
            app.project.root(),
            &app.host.cwd,
            &private,
            program(&arguments.command)?,
            &confinement,
        )
        .context("cannot scan the project; nothing was run")
        .or_fail()?;
    let found = settings.sandbox.capabilities();
    match (&settings.mode, found.level()) {
        (Mode::Off { reason }, _) => app.output.note(&format!("not confined: {reason}")),
        (Mode::Required, Level::Partial) => app.output.note(&format!(
            "partly confined ({}); `agent sandbox check` shows what is not covered",
            found.reasons().join("; ")
        )),
        _ => {}
    }
    let stop = cancel.clone();
    let outlets = Arc::new(Mutex::new([
        Outlet::new(Stream::Stdout),
        Outlet::new(Stream::Stderr),
    ]));
    let shared = Arc::clone(&outlets);
    let sink = Box::new(move |stream: Stream, bytes: &[u8]| {
        let mut outlets = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let [out, error] = &mut *outlets;
        let outlet = match stream {
            Stream::Stdout => out,
            Stream::Stderr => error,
        };
        if outlet.pass(bytes).is_err() {
            stop.raise(CancelReason::Interrupted);
        }
    });
    let running = match settings.sandbox.spawn(&policy, sink) {
        Ok(running) => running,
        Err(error) => return not_started(error, app),
    };
    let raised = cancel.descriptor().or_fail()?;
    let finished = running.wait(None, Some(raised.as_fd()));
    for outlet in &mut *outlets.lock().unwrap_or_else(PoisonError::into_inner) {
        // Whoever closed it has seen enough.
        let _ = outlet.end();
    }
    tell(&finished, app);
    Ok(match (finished.killed_by, finished.status) {
        // A signal has a code of its own, which replaces this one.
        (Some(KilledBy::Cancelled), _) => Exit::OutputClosed as u8,
        (_, ExitStatus::Code(code)) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (_, ExitStatus::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
    })
}

/// One stream of the program. Whoever reads it from a pipe gets it byte by byte; on a terminal it is made
/// harmless, because the program has no right to move the cursor or to hide what it says.
struct Outlet {
    stream: Stream,
    is_terminal: bool,
    /// The beginning of a character, or of a line break, whose rest is still to come.
    begun: Vec<u8>,
}

impl Outlet {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            is_terminal: match stream {
                Stream::Stdout => io::stdout().is_terminal(),
                Stream::Stderr => io::stderr().is_terminal(),
            },
            begun: Vec::new(),
        }
    }

    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_terminal {
            return self.write(bytes);
        }
        self.begun.extend_from_slice(bytes);
        let begun = self.begun.split_off(whole(&self.begun));
        let text = agent_text::visible(&std::mem::replace(&mut self.begun, begun));
        self.write(text.as_bytes())
    }

    fn end(&mut self) -> io::Result<()> {
        let rest = agent_text::visible(&std::mem::take(&mut self.begun));
        self.write(rest.as_bytes())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self.stream {
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Stream::Stderr => io::stderr().lock().write_all(bytes),
        }
    }
}

/// How many bytes end with a whole character and no half line break.
fn whole(bytes: &[u8]) -> usize {
    const LONGEST: usize = 3;
    let tail = bytes.len().saturating_sub(LONGEST);
    for (at, byte) in bytes.iter().enumerate().skip(tail).rev() {
        let wanted = match byte {
            b'\r' => 2,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => 1,
        };
        return if bytes.len() - at < wanted {
            at
        } else {
            bytes.len()
        };
    }
    bytes.len()
}

fn program(command: &[OsString]) -> Result<Command, Failure> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Failure::usage("no command given; nothing was run"))?;
    Ok(Command::Program {
        program: program.clone(),
        arguments: arguments.to_vec(),
    })
}

/// The arguments as a shell script of one command, for the gate to read.
pub(crate) fn as_script(command: &[OsString]) -> String {
    let words = command.iter().map(|word| {
        let word = word.to_string_lossy();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:,+@%".contains(&byte);
        if !word.is_empty() && word.bytes().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn not_started(error: LaunchError, app: &App) -> Result<u8, Failure> {
    if let LaunchError::Command { source, .. } = &error {
        let code = match source.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_STARTED,
        };
        app.output.problem(&format!("{error}: {source}"));
        return Ok(code);
    }
    let failure = Failure::from(anyhow::Error::new(error)).exit(Exit::NoSandbox);
    Err(failure.hint("`agent sandbox check` shows what is missing and how to get it"))
}

/// What the sandbox noticed, after everything the program said.
fn tell(finished: &Finished, app: &App) {
    for violation in finished.violations.iter().filter(|found| !found.expected) {
        let sure = match violation.detection {
            Detection::NamedPath | Detection::InferredFromErrnoText => "may have refused",
            _ => "refused",
        };
        let times = match violation.count {
            1 => String::new(),
            count => format!(" ({count} times)"),
        };
        app.output.note(&format!(
            "the sandbox {sure}: {} {}{times}; it would be permitted by {}",
            violation.kind.name(),
            violation.target,
            violation.permitted_by.name()
        ));
    }
    for item in &finished.quarantined {
        let path = item.path.display();
        app.output.problem(&match &item.moved_to {
            Some(place) => format!(
                "`{path}` is protected; what the command wrote there was moved to `{}`",
                place.display()
            ),
            None => {
                format!("`{path}` is protected; what the command wrote there could not be removed")
            }
        });
    }
    match finished.killed_by {
        None | Some(KilledBy::Cancelled) => {}
        Some(reason) => app
            .output
            .problem(&format!("the command was ended: {}", reason.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Capabilities {
        Capabilities {
            user_namespaces: Ok(()),
            landlock: Ok(6),
            seccomp: Ok(()),
            bubblewrap: Ok("/usr/bin/bwrap".into()),
            cgroup: Err("no version 2 hierarchy".to_owned()),
        }
    }

    #[test]
    fn each_level_says_what_happens_to_commands() {
        use agent_sandbox::Feature::{Bubblewrap, Landlock, Seccomp, UserNamespaces};
        let cases: [(&[agent_sandbox::Feature], &str, Treatment, &str); 5] = [
            (&[], "full", Treatment::Confined, ""),
            (&[Landlock], "no_landlock", Treatment::Confined, "lsm="),
            (
                &[UserNamespaces],
                "bubblewrap",
                Treatment::Confined,
                "userns",
            ),
            (
                &[UserNamespaces, Bubblewrap],
                "partial",
                Treatment::Asked,
                "install bubblewrap",
            ),
            (&[Seccomp], "none", Treatment::Refused, "seccomp"),
        ];
        for (missing, level, commands, remedy) in cases {
            let found = missing
                .iter()
                .fold(machine(), |found, feature| found.without(*feature));
            let report = report(&found, SandboxMode::Required);
            assert_eq!((report.level, report.commands), (level, commands));
            let remedies = report.remedies.join("\n");
            assert_eq!(remedies.is_empty(), remedy.is_empty(), "{remedies}");
            assert!(remedies.contains(remedy), "{remedies}");
        }
    }

    #[test]
    fn switched_off_is_said_whatever_the_machine_can() {
        let report = report(&machine(), SandboxMode::Off);
        assert_eq!((report.level, report.mode), ("full", "off"));
        assert_eq!(report.commands, Treatment::Unconfined);
    }

    #[test]
    fn characters_are_not_taken_apart() {
        for (bytes, expected) in [
            (&b"plain"[..], 5),
            (b"line\r", 4),
            (b"line\r\n", 6),
            (b"\xe2\x80", 0),
            (b"a\xe2\x80\xae", 4),
            (b"a\xf3\xa0\x81", 1),
            (b"\x80\x80\x80\x80", 4),
            (b"", 0),
        ] {
            assert_eq!(whole(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn arguments_become_one_simple_command() {
        let words = ["sh", "-c", "echo 'a' > b", ""].map(OsString::from);
        assert_eq!(as_script(&words), r"sh -c 'echo '\''a'\'' > b' ''");
    }
}
