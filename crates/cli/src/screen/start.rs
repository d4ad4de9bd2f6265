//! Before a session: the project's settings, when they ask for more than they may, and the model,
//! when there is none.

use std::path::PathBuf;
use std::sync::Arc;

use agent_policy::gate::SandboxLevel;
use agent_protocol::Payload;
use agent_protocol::id::SessionId;
use agent_protocol::payload::permission::{DecidedBy, GrantScope, PolicyChanged, PolicyChanges};
use agent_protocol::status::Mode;
use agent_provider::catalog::{BUILT_IN, BuiltIn};
use agent_provider::local::find_local_servers;
use agent_tui::{
    FirstRun, HostRequest, Output, Secret, SessionLine, Settings, Start, TrustQuestion,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

use super::{exit_of, load, settings};
use crate::app::App;
use crate::commands::doctor::other_program;
use crate::config::trust::{self, Proposal, TrustStore};
use crate::config::{ChosenModes, Config, Layer, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use agent_runtime::keys;
use agent_runtime::models::{self, LOCAL_PATIENCE};

/// How to go on.
pub(super) enum Begin {
    /// With these settings, and the decisions that led to them.
    With(Box<Config>, Vec<Payload>),
    Leave(Exit),
    Demo,
}

/// Settles what has to be settled before a session can be opened. `refused` holds the files the
/// user did not want to trust in this visit.
pub(super) async fn begin(
    app: &Arc<App>,
    args: &SettingArgs,
    needs_model: bool,
    is_new: bool,
    refused: &mut Vec<PathBuf>,
) -> Result<Begin, Failure> {
    let mut config = load(app, args)?;
    let mut facts = Vec::new();
    let mut store = TrustStore::open(&app.host.directories.state)?;
    for proposal in trust::proposals(&config.files, &store) {
        if refused.contains(&proposal.path) || !worth_asking(&config, &proposal) {
            continue;
        }
        let question = TrustQuestion {
            file: app.short(&proposal.path),
            is_change: proposal.is_change,
            diff: proposal.diff,
        };
        match ask(app, &config, Start::Trust(question)).await? {
            Said::Request(HostRequest::TrustProject) => {
                store.trust(&proposal.path, &proposal.content)?;
                facts.push(trusted(app, &proposal.path));
            }
            Said::Request(_) => refused.push(proposal.path),
            Said::Exit(exit) => return Ok(Begin::Leave(exit_of(&exit))),
        }
        config = load(app, args)?;
    }
    if needs_model {
        let mut notes = other_program(app).into_iter().collect();
        while let Err(failure) = models::route(app, &config) {
            // A model that was asked for and cannot be used is an error, not a first run.
            if config.model.default.is_some() {
                return Err(failure.into());
            }
            let found = look_around(app, std::mem::take(&mut notes));
            match ask(app, &config, Start::FirstRun(found)).await? {
                Said::Exit(agent_tui::Exit::Demo) => return Ok(Begin::Demo),
                Said::Exit(agent_tui::Exit::LookAgain) => config = load(app, args)?,
                Said::Exit(exit) => return Ok(Begin::Leave(exit_of(&exit))),
                Said::Request(HostRequest::KeepKey(key)) => match keep_key(app, &key) {
                    Ok(()) => config = load(app, args)?,
                    Err(problem) => notes.push(problem),
                },
                Said::Request(_) => {}
            }
        }
    }
    if needs_model && is_new && may_propose_auto(app, &config)? {
        let start = Start::Mode(app.short_or_root(app.project.root()));
        match ask(app, &config, start).await? {
            Said::Request(HostRequest::WorkIn(mode)) => {
                let directories = &app.host.directories;
                ChosenModes::open(&directories.state)?.keep(app.project.root(), mode)?;
                facts.push(chosen(mode));
                config = load(app, args)?;
            }
            Said::Request(_) => {}
            Said::Exit(exit) => return Ok(Begin::Leave(exit_of(&exit))),
        }
    }
    Ok(Begin::With(Box::new(config), facts))
}

/// True where nobody has said anything about the mode, and the sandbox makes mode auto safe. Programs that start this
/// one are not asked.
fn may_propose_auto(app: &App, config: &Config) -> Result<bool, Failure> {
    let is_default = config.permissions.mode.origin.layer == Layer::BuiltIn;
    let in_ci = app.host.environment.get("CI");
    if !is_default || in_ci.is_some_and(|value| !value.is_empty()) {
        return Ok(false);
    }
    let level = agent_runtime::command_settings::probed_level(app, config)?;
    Ok(level == SandboxLevel::Full)
}

fn chosen(mode: Mode) -> Payload {
    PolicyChanged {
        scope: GrantScope::ProjectLocal,
        changed: PolicyChanges {
            mode: Some(mode),
            ..PolicyChanges::default()
        },
        by: DecidedBy::User,
        reason: "chosen for this project at its first start".to_owned(),
    }
    .into()
}

/// The files worth a question: not trusted as they are, and with something that would hold if they
/// were.
fn worth_asking(config: &Config, proposal: &Proposal) -> bool {
    let noted = config
        .notes
        .iter()
        .any(|note| note.until_trusted && note.origin.file().as_ref() == Some(&proposal.path));
    let path = proposal.path.display().to_string();
    let ruled = config
        .ignored_rules
        .iter()
        .any(|rule| rule.origin.file.as_ref() == Some(&path));
    noted || ruled
}

fn trusted(app: &App, path: &std::path::Path) -> Payload {
    PolicyChanged {
        scope: GrantScope::ProjectLocal,
        changed: PolicyChanges::default(),
        by: DecidedBy::User,
        reason: format!("the user trusts `{}` as it is now", app.short(path)),
    }
    .into()
}

/// What there is to work with, and what would be enough.
fn look_around(app: &App, notes: Vec<String>) -> FirstRun {
    let mut found: Vec<(String, bool)> = Vec::new();
    for provider in BUILT_IN {
        if let Some(variable) = provider.key_variables.first() {
            let there = provider
                .key_variables
                .iter()
                .any(|name| app.host.environment.get(name).is_some());
            found.push(((*variable).to_owned(), there));
        }
    }
    let servers = find_local_servers(LOCAL_PATIENCE);
    for provider in BUILT_IN {
        if let Some(port) = provider.local_port {
            let server = servers
                .iter()
                .find(|server| server.provider == provider.name);
            let what = match server {
                Some(_) => format!("{} on port {port}, without a model", provider.name),
                None => format!("{} on port {port}", provider.name),
            };
            found.push((what, server.is_some()));
        }
    }
    let file = app.short(&app.host.directories.user_config);
    FirstRun {
        found,
        to_set: vec![
            "export ANTHROPIC_API_KEY=…".to_owned(),
            "export OPENAI_API_KEY=…".to_owned(),
            "ollama serve, with a model pulled".to_owned(),
            format!("model = \"provider/model\" in {file}"),
        ],
        notes,
    }
}

/// Keeps a key, with its provider before it or by its own beginning.
fn keep_key(app: &App, entered: &Secret) -> Result<(), String> {
    let entered = entered.0.trim();
    let (provider, key) = match entered.split_once(char::is_whitespace) {
        Some((provider, key)) => (Some(provider.trim_end_matches(':')), key.trim()),
        None => (keys::provider_of(entered), entered),
    };
    let Some(provider) = provider else {
        return Err("Nothing in the key says whose it is: write its provider before it, as in `mistral KEY`.".to_owned());
    };
    if BuiltIn::named(provider).is_none_or(|known| known.key_variables.is_empty()) {
        // What was typed may be the key itself, so it is not said again.
        return Err("Keys can be kept for openai, anthropic and the other services in docs/providers.md; the first word was none of them.".to_owned());
    }
    let kept = keys::enter(app, provider, key);
    kept.map(|_| ())
        .map_err(|error| agent_runtime::chain(&error))
}

/// Shows the list of past sessions.
pub(super) async fn choose_session(
    app: &App,
    config: &Config,
    sessions: Vec<SessionLine>,
) -> Result<Result<SessionId, Exit>, Failure> {
    Ok(match ask(app, config, Start::Sessions(sessions)).await? {
        Said::Exit(agent_tui::Exit::Resume(session_id)) => Ok(session_id),
        Said::Exit(exit) => Err(exit_of(&exit)),
        Said::Request(_) => Err(Exit::Done),
    })
}

/// What came of a question.
enum Said {
    Request(HostRequest),
    Exit(agent_tui::Exit),
}

/// Shows one question on a screen without a session.
async fn ask(app: &App, config: &Config, start: Start) -> Result<Said, Failure> {
    let (_inputs, shown) = unbounded_channel();
    let (outputs, mut sent) = unbounded_channel();
    let settings = Settings {
        start,
        ..settings(app, config)
    };
    let shutdown = CancellationToken::new();
    let mut screen = tokio::spawn(agent_tui::run(settings, shown, outputs, shutdown.clone()));
    loop {
        tokio::select! {
            exit = &mut screen => return Ok(Said::Exit(exit.or_fail()?.or_fail()?)),
            Some(output) = sent.recv() => {
                if let Output::Host(
                    request @ (HostRequest::TrustProject
                    | HostRequest::IgnoreProject
                    | HostRequest::WorkIn(_)
                    | HostRequest::KeepKey(_)),
                ) = output
                {
                    shutdown.cancel();
                    screen.await.or_fail()?.or_fail()?;
                    return Ok(Said::Request(request));
                }
            }
        }
    }
}
