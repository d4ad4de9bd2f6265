//! `agent init`: asks the model to write the project's AGENTS.md.

use std::io::{self, IsTerminal as _};

use agent_runtime::prompts;
use clap::Args;

use super::run::RunOptions;
use crate::app::App;
use crate::commands::interactive::{self, InteractiveArgs};
use crate::exit::Exit;
use crate::failure::Failure;

/// Write AGENTS.md, the instructions for agents in this project
///
/// Opens the screen and asks the model for it, as `/init` does; the file is written or changed only
/// after the usual question. With --print, or without a terminal, works like `agent run`:
/// `--on-ask allow` answers that question beforehand.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent init
  agent init --print --on-ask allow")]
pub(crate) struct InitArgs {
    /// Work without the screen
    #[arg(short, long)]
    print: bool,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    interactive: InteractiveArgs,
}

/// Runs it.
pub(crate) fn run(arguments: InitArgs, app: &App) -> Result<Exit, Failure> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if arguments.print || !is_terminal {
        let (interactive, options) = (&arguments.interactive, arguments.options);
        super::run::prepared(prompts::INIT, interactive, options, app)
    } else {
        interactive::run(&arguments.interactive, Some(prompts::INIT.to_owned()), app)
    }
}
