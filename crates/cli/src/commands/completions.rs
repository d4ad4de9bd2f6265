//! `agent completions`: shell completions from the same definition the parser uses.

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use crate::app::App;
use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;

/// Print shell completions
///
/// For bash: `agent completions bash > ~/.local/share/bash-completion/completions/agent`
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate completions for
    shell: clap_complete::Shell,
}

pub(crate) fn run(arguments: &CompletionsArgs, app: &App) -> Result<Exit, Failure> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "agent",
        &mut script,
    );
    app.output
        .write_all(&script)
        .context("cannot print the completions")?;
    Ok(Exit::Done)
}
