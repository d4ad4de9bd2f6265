//! One file per command. A command gets the [`App`] and its own arguments, and says how it ended.

pub(crate) mod actions;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config;
mod damage;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod fork;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod interactive;
mod key;
mod lineage;
pub(crate) mod man;
pub(crate) mod models;
pub(crate) mod permissions;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod rerun;
pub(crate) mod respond;
pub(crate) mod review;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod sessions;
pub(crate) mod tools;
pub(crate) mod undo;
pub(crate) mod why;

use std::process::ExitCode;

use crate::app::App;
use crate::arguments::Command;
use crate::failure::Failure;

/// Does what was asked for. The code is one of ours, except where a command passes on that of a
/// program it ran.
pub(crate) fn run(command: Command, app: &App) -> Result<ExitCode, Failure> {
    let exit = match command {
        Command::Run(arguments) => run::run(&arguments, app),
        Command::Init(arguments) => init::run(arguments, app),
        Command::Review(arguments) => review::run(&arguments, app),
        Command::Call(arguments) => call::run(&arguments, app),
        Command::Tools(arguments) => tools::run(&arguments, app),
        Command::Demo(arguments) => demo::run(&arguments, app),
        Command::Replay(arguments) => replay::run(&arguments, app),
        Command::Resume(arguments) => interactive::resume(&arguments, app),
        Command::Fork(arguments) => fork::run(&arguments, app),
        Command::Actions(arguments) => actions::run(&arguments, app),
        Command::Respond(arguments) => respond::run(&arguments, app),
        Command::Permissions(arguments) => permissions::run(&arguments, app),
        Command::Why(arguments) => why::run(&arguments, app),
        Command::Diff(arguments) => diff::run(&arguments, app),
        Command::Rerun(arguments) => rerun::run(&arguments, app),
        Command::Undo(arguments) => undo::run(&arguments, app),
        Command::Sessions(arguments) => sessions::run(&arguments, app),
        Command::Audit(arguments) => audit::run(&arguments, app),
        Command::Report(arguments) => report::run(&arguments, app),
        Command::Import(arguments) => import::run(&arguments, app),
        Command::Export(arguments) => export::run(&arguments, app),
        Command::Doctor(arguments) => doctor::run(&arguments, app),
        Command::Models(arguments) => models::run(&arguments, app),
        Command::Sandbox(arguments) => return sandbox::run(&arguments, app),
        Command::Config(arguments) => config::run(&arguments, app),
        Command::Complete(arguments) => complete::run(&arguments, app),
        Command::Completions(arguments) => completions::run(&arguments, app),
        Command::Man(arguments) => man::run(&arguments, app),
    }?;
    Ok(exit.into())
}
