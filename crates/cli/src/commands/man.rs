//! `agent man`: manual pages, one per command, for whoever packages the binary.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use crate::app::App;
use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;

/// Generate man pages
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for `agent.1`, `agent-audit.1` and so on; created if missing
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

pub(crate) fn run(arguments: &ManArgs, app: &App) -> Result<Exit, Failure> {
    let directory = app.host.cwd.join(&arguments.directory);
    let doing = || format!("cannot write the manual pages to `{}`", directory.display());
    fs::create_dir_all(&directory).with_context(doing)?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    clap_mangen::generate_to(command, &directory).with_context(doing)?;
    Ok(Exit::Done)
}
