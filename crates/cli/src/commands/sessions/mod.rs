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
/// Name a session by its id, a unique prefix of it, or `last` for the most recent one.
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
