//! `agent demo`: a scripted model fixes a failing test through the real pipeline, in a throw-away
//! project.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_history::workspace::Workspace;
use agent_protocol::id::SessionId;
use agent_protocol::payload::permission::Effect;
use agent_protocol::{Event, Payload};
use agent_provider::models::ModelFacts;
use agent_provider::{ModelRef, ScriptedProvider, Transcript};
use anyhow::Context as _;
use clap::Args;

use super::interactive::ScreenArgs;
use crate::app::App;
use crate::config::{self, Config, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::headless::{self, OutputForm, Task};
use crate::output::own_name::in_own_name;
use crate::output::visible_text;
use crate::screen::{self, Visit};
use crate::session_args::SessionArgs;
use agent_runtime::models::{self, Chosen};
use agent_runtime::{Model, OnAsk, OpenOptions, SessionModels};

/// The project, as it is in the repository.
const FILES: &[(&str, &str)] = &[
    (
        "README.md",
        include_str!("../../../../fixtures/projects/sum/README.md"),
    ),
    (
        "test.sh",
        include_str!("../../../../fixtures/projects/sum/test.sh"),
    ),
    (
        "src/sum.sh",
        include_str!("../../../../fixtures/projects/sum/src/sum.sh"),
    ),
];

/// What the scripted model says.
const TRANSCRIPT: &str = include_str!("../../../../fixtures/transcripts/demo.jsonl");

/// What it says to whoever goes on asking when its part is over.
const OVER: &str = r#"{"text": "I am a script, and this is the end of it. Leave with `/quit`, then run `agent` in your own project to use a real model."}"#;

/// Number of times it says so.
const OVER_TIMES: usize = 100;

/// What the demo may do without asking; the rest of the rules is the user's own.
const RULES: &str = "[permissions]\nallow = [\"bash(sh test.sh)\", \"edit(src/**)\"]\n";

const PROMPT: &str = "Find out why the tests fail, and fix it.";

/// Watch a complete run without a model, an API key or a network
///
/// A scripted model fixes a failing test in a temporary project. Everything else is real:
/// validation, permission rules, sandbox, edits and log. You can audit and export the session like
/// any other.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Create the project here instead of in a new temporary directory; it must not exist
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
    #[command(flatten)]
    screen: ScreenArgs,
}

/// Runs it.
pub(crate) fn run(arguments: &DemoArgs, app: &App) -> Result<Exit, Failure> {
    let directory = make_project(arguments, app)?;
    let app = own_place(app.in_project(&directory), &directory);
    let rules = directory.join("demo-rules.toml");
    let settings = SettingArgs::default();
    let config = config::load(&app.host, &app.project, &settings)?;
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return on_screen(&app, &directory, arguments.screen);
    }
    introduce(&app, &directory).or_fail()?;
    let session = SessionArgs {
        rules: Some(rules),
        ..SessionArgs::default()
    };
    let models = SessionModels::Given(Chosen {
        models: vec![model(&config)?],
        facts: Vec::new(),
    });
    let session = app.open(OpenOptions {
        config: Some(Arc::new(config)),
        on_ask: OnAsk::Deny,
        models,
        ..session.options("agent demo")
    })?;
    session.subscribe(|appended| match told(&appended.event) {
        Some(text) => writeln!(io::stdout(), "{}", visible_text(&text)).is_ok(),
        None => true,
    });
    let session_id = session.id().clone();
    let task = Task {
        prompt: Some(PROMPT.to_owned()),
        attached: Vec::new(),
        form: OutputForm::Quiet,
        include_transient: false,
        require_verified: true,
    };
    let exit = headless::run(&app, session, task)?;
    conclude(&app, &directory, &session_id).or_fail()?;
    Ok(exit)
}

/// The demo on the terminal, in a project of its own.
pub(crate) fn show(app: &App) -> Result<Exit, Failure> {
    let arguments = DemoArgs {
        directory: None,
        screen: ScreenArgs::default(),
    };
    let directory = make_project(&arguments, app)?;
    let app = own_place(app.in_project(&directory), &directory);
    on_screen(&app, &directory, arguments.screen)
}

/// Where the user's own state cannot be written (no home directory, or somebody else's), the demo
/// keeps its state beside its project: it has to work with nothing at all.
fn own_place(mut app: App, directory: &Path) -> App {
    if app.host.runtime_id().is_ok() {
        return app;
    }
    let mut home = directory.as_os_str().to_owned();
    home.push("-home");
    let home = PathBuf::from(home);
    app.output.note(&format!(
        "cannot write to `{}`; this demo keeps its state in `{}` (AGENT_HOME)",
        app.host.directories.state.display(),
        home.display()
    ));
    app.runtime.host.directories.state = home.join("state");
    app
}

/// On a terminal nothing is allowed beforehand: the questions are asked for real.
fn on_screen(app: &App, directory: &Path, screen: ScreenArgs) -> Result<Exit, Failure> {
    app.output
        .print("A demo: the model is a script.\nTools, questions, sandbox and log are real.\n\n")
        .or_fail()?;
    let visit = Visit {
        program: "agent demo",
        settings: screen.over(&SettingArgs::default()),
        session: SessionArgs::default(),
        prompt: Some(PROMPT.to_owned()),
        models: Some(Arc::new(|_: &App, config: &Config| {
            Ok(Chosen {
                models: vec![model(config)?],
                facts: Vec::new(),
            })
        })),
    };
    let left = screen::visit(app, visit)?;
    if let Some(session_id) = left.session_id {
        conclude(app, directory, &session_id).or_fail()?;
    }
    Ok(left.exit)
}

fn make_project(arguments: &DemoArgs, app: &App) -> Result<PathBuf, Failure> {
    let directory = match &arguments.directory {
        Some(asked) => app.host.cwd.join(asked),
        None => app.host.temporary.join(format!(
            "agent-demo-{}",
            app.host.ids.mint::<agent_protocol::id::RunId>()
        )),
    };
    let make = || -> anyhow::Result<()> {
        fs::create_dir(&directory)?;
        for (name, content) in FILES {
            let path = directory.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, content)?;
        }
        fs::write(directory.join("demo-rules.toml"), RULES)?;
        // A project of its own, whatever lies above it.
        fs::create_dir(directory.join(".agent"))?;
        Ok(())
    };
    make()
        .with_context(|| {
            format!(
                "cannot create the demo project in `{}`",
                directory.display()
            )
        })
        .or_usage()?;
    fs::canonicalize(&directory).or_usage()
}

fn model(config: &Config) -> Result<Model, Failure> {
    let over = format!("{OVER}\n").repeat(OVER_TIMES);
    let transcript = Transcript::parse(&format!("{TRANSCRIPT}\n{over}")).or_fail()?;
    let provider = Arc::new(ScriptedProvider::new("demo", transcript));
    let target = ModelRef {
        provider: "demo".to_owned(),
        model: "scripted".to_owned(),
    };
    Ok(models::with_settings(
        config,
        provider,
        &target,
        &ModelFacts::default(),
    ))
}

fn introduce(app: &App, directory: &Path) -> io::Result<()> {
    app.output.print(&format!(
        "This is a demo. The model is a script; everything else is real: the tools, the\n\
         permission rules, the sandbox and the log.\n\n\
         project  {}\nrules    {}\n\n> {PROMPT}\n",
        directory.display(),
        RULES.lines().last().unwrap_or_default(),
    ))
}

fn conclude(app: &App, directory: &Path, session_id: &SessionId) -> io::Result<()> {
    let name = screen::short_name(app, session_id);
    let mut tries = vec![(
        format!("agent replay {name}"),
        "step through it; nothing runs again",
    )];
    if changed_files(app, session_id) {
        tries.push((format!("agent diff {name}"), "the changes it made"));
        tries.push((format!("agent undo {name}"), "undo the changes"));
    }
    tries.push((format!("agent audit {name}"), "check the record"));
    tries.push(("agent --model PROVIDER/MODEL".to_owned(), "a real model"));
    let column = tries.iter().map(|(command, _)| command.len()).max();
    let column = column.unwrap_or_default();
    let mut text = format!(
        "\nEverything above is in the session log. Try:\n\n  cd {}\n",
        directory.display()
    );
    for (command, what) in tries {
        text.push_str(&format!("  {command:column$}  # {what}\n"));
    }
    app.output.print(&in_own_name(&text))
}

/// True if a file is not what it was before the session; a log that cannot be read shows none.
fn changed_files(app: &App, session_id: &SessionId) -> bool {
    let events = || {
        let mut log = app.session(session_id.as_str()).ok()?.index().ok()?;
        let count = log.count();
        log.read(0, usize::try_from(count).ok()?).ok()
    };
    let mut workspace = Workspace::default();
    let mut last = 0;
    for event in events().unwrap_or_default() {
        // The changes of a demo are few: none of them is kept in a list of its own.
        workspace.apply(&event, &|_| None);
        last = event.sequence;
    }
    let mut files = workspace.at(last).into_iter();
    files.any(|file| file.start.same_as(&file.now) != Some(true))
}

/// An event as a line of the story, where it is part of it.
fn told(event: &Event) -> Option<String> {
    match &event.payload {
        Payload::ModelCompleted(said) => {
            let text = said.text.as_deref().filter(|text| !text.is_empty())?;
            Some(format!("\nmodel: {text}"))
        }
        Payload::PermissionEvaluated(decision) => {
            let word = match decision.decision {
                Effect::Allow => "allowed",
                Effect::Ask => "asks",
                Effect::Deny => "denied",
            };
            Some(format!("  {word}: {}", decision.reason))
        }
        Payload::SandboxApplied(sandbox) => Some(format!(
            "  sandbox: {} ({})",
            sandbox.status, sandbox.mechanism
        )),
        Payload::ToolObservation(seen) => Some(format!("  {}: {}", seen.title, seen.summary)),
        Payload::TurnCompleted(done) => {
            let files: Vec<&str> = done
                .files_changed
                .iter()
                .map(|effect| effect.path.as_str())
                .collect();
            let verification = &done.verification;
            let command = verification.command.as_deref().unwrap_or("nothing was run");
            Some(format!(
                "\nverification: {} ({command})\nfiles changed: {}",
                verification.status,
                if files.is_empty() {
                    "none".to_owned()
                } else {
                    files.join(", ")
                }
            ))
        }
        Payload::TurnFailed(failed) => Some(format!("\nthe turn failed: {}", failed.message)),
        Payload::RuntimeWarning(warning) => Some(format!("  warning: {}", warning.message)),
        _ => None,
    }
}
