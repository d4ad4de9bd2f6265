//! `agent [PROMPT]`: the screen.

use std::io::{self, IsTerminal as _};

use clap::Args;

use crate::app::App;
use crate::config::SettingArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{self, Visit};
use crate::session_args::SessionArgs;

/// What `agent` without a command takes.
#[derive(Args, Debug, Default)]
pub(crate) struct InteractiveArgs {
    #[command(flatten)]
    pub(super) settings: SettingArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    screen: ScreenArgs,
}

/// How the screen looks, for every command that opens it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ScreenArgs {
    /// Print plain lines and never redraw, for screen readers
    #[arg(long)]
    plain: bool,
}

impl ScreenArgs {
    /// `settings` with what these flags say.
    pub(crate) fn over(self, settings: &SettingArgs) -> SettingArgs {
        SettingArgs {
            plain: self.plain,
            ..settings.clone()
        }
    }
}

/// Resume a past session on the screen
///
/// Without a name, shows the sessions of this project to choose from.
#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    screen: ScreenArgs,
}

/// Opens the screen for a new session.
pub(crate) fn run(
    arguments: &InteractiveArgs,
    prompt: Option<String>,
    app: &App,
) -> Result<Exit, Failure> {
    if let Some(meant) = prompt.as_deref().and_then(mistyped) {
        return Err(Failure::usage(format!(
            "no such command: `{}`",
            prompt.as_deref().unwrap_or_default()
        ))
        .hint(format!("did you mean `agent {meant}`?"))
        .hint("a prompt needs more than one word; for a single word, run `agent` and type it"));
    }
    needs_terminal()?;
    let visit = Visit {
        program: "agent",
        settings: arguments.screen.over(&arguments.settings),
        session: arguments.session.clone(),
        prompt,
        models: None,
    };
    screen::visit(app, visit).map(|left| left.exit)
}

/// The command that was probably meant by a prompt of one word.
fn mistyped(prompt: &str) -> Option<String> {
    use clap::CommandFactory as _;
    if prompt.is_empty() || !prompt.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    let command = crate::arguments::Arguments::command();
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    let names = shown.map(clap::Command::get_name);
    agent_text::nearest(prompt, names).map(str::to_owned)
}

fn needs_terminal() -> Result<(), Failure> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage("the screen needs a terminal").hint("`agent run PROMPT` works without one"))
}

/// Opens the screen for a past session, after a list of them where none is named.
pub(crate) fn resume(arguments: &ResumeArgs, app: &App) -> Result<Exit, Failure> {
    needs_terminal()?;
    let named = match &arguments.session {
        Some(name) => name.clone(),
        None => match screen::choose_session(app, &arguments.screen.over(&arguments.settings))? {
            Ok(chosen) => chosen.to_string(),
            Err(exit) => return Ok(exit),
        },
    };
    let session = SessionArgs {
        session: Some(named),
        ..SessionArgs::default()
    };
    let arguments = InteractiveArgs {
        settings: arguments.settings.clone(),
        session,
        screen: arguments.screen,
    };
    run(&arguments, None, app)
}
