//! `agent permissions`: what the gate would decide, by which rules, and how other rules would have done.

pub(crate) mod backtest;
pub(crate) mod explain;
pub(crate) mod list;
mod past;

use agent_history::describe::phrases;
use agent_protocol::payload::permission::RuleOrigin;
use clap::{Args, Subcommand};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::visible;

/// Explain decisions, list rules, test rules on a past session
///
/// None of these runs or changes anything.
#[derive(Args, Debug)]
pub(crate) struct PermissionsArgs {
    #[command(subcommand)]
    command: PermissionsCommand,
}

#[derive(Debug, Subcommand)]
enum PermissionsCommand {
    Explain(explain::ExplainArgs),
    List(list::ListArgs),
    Test(backtest::TestArgs),
}

pub(crate) fn run(arguments: &PermissionsArgs, app: &App) -> Result<Exit, Failure> {
    match &arguments.command {
        PermissionsCommand::Explain(arguments) => explain::run(arguments, app),
        PermissionsCommand::List(arguments) => list::run(arguments, app),
        PermissionsCommand::Test(arguments) => backtest::run(arguments, app),
    }
}

/// The place of a rule, safe to print: `user, ~/.agent/config.toml:3`.
pub(crate) fn origin_words(origin: &RuleOrigin) -> String {
    visible(&phrases::origin(origin))
}
