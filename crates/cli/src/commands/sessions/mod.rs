//! `agent sessions`: what is recorded in this project, and how much room it takes.

pub(crate) mod list;
pub(crate) mod prune;
pub(crate) mod show;
pub(crate) mod size;

use clap::{Args, Subcommand};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;

/// List, show, measure and prune sessions
///
/// Every command names a session by its number in the list (1 is the newest), words of its title,
/// its id or the beginning of it, `last`, or `last~1` for the one before.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    #[command(flatten)]
    list: list::ListArgs,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Size(size::SizeArgs),
    Prune(prune::PruneArgs),
}

pub(crate) fn run(arguments: &SessionsArgs, app: &App) -> Result<Exit, Failure> {
    match &arguments.command {
        None => list::run(&arguments.list, app),
        Some(SessionsCommand::List(arguments)) => list::run(arguments, app),
        Some(SessionsCommand::Show(arguments)) => show::run(arguments, app),
        Some(SessionsCommand::Prune(arguments)) => prune::run(arguments, app),
        Some(SessionsCommand::Size(arguments)) => size::run(arguments, app),
    }
}
