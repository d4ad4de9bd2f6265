//! `agent [PROMPT]`: the screen.

use std::io::{self, IsTerminal as _};

use agent_engine::OnAsk;
use clap::Args;

use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{self, Beginning};
use crate::workbench::{self, SessionArgs, Wanted, models};

/// What `agent` without a command takes.
#[derive(Args, Debug, Default)]
pub(crate) struct InteractiveArgs {
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// Go on with a past session on the screen
#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// An id, a unique beginning of one, or `last`
    #[arg(value_name = "SESSION", default_value = "last")]
    session: String,
    #[command(flatten)]
    settings: SettingArgs,
}

/// Opens the screen for a new session.
pub(crate) fn run(
    arguments: &InteractiveArgs,
    prompt: Option<String>,
    app: &App,
) -> Result<Exit, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage("the screen needs a terminal")
            .hint("`agent run PROMPT` works without one"));
    }
    let config = config::load(&app.host, &app.project, &arguments.settings)?;
    app.note_ignored_settings(&config);
    let chosen = models::choose(app, &config)?;
    let wanted = Wanted {
        program: "agent",
        arguments: &arguments.session,
        on_ask: OnAsk::Interactive,
    };
    let bench = workbench::open(app, &config, &wanted)?;
    let begin = Beginning {
        prompt,
        models: chosen.models,
        facts: chosen.facts,
    };
    screen::run(app, &config, bench, begin)
}

/// Opens the screen for a past session.
pub(crate) fn resume(arguments: &ResumeArgs, app: &App) -> Result<Exit, Failure> {
    let session = SessionArgs {
        session: Some(arguments.session.clone()),
        ..SessionArgs::default()
    };
    let arguments = InteractiveArgs {
        settings: arguments.settings.clone(),
        session,
    };
    run(&arguments, None, app)
}
