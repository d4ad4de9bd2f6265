//! The command line. Each command's own arguments are in its file under [`crate::commands`].

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::output::Volume;
use crate::{commands, exit};

/// A local coding agent that governs each tool call and records every step.
///
/// The model proposes; the runtime decides, confines and records. Everything on the screen comes
/// from the session log in `.agent/sessions` and can be checked against it.
#[derive(Debug, Parser)]
#[command(
    name = "agent",
    version,
    disable_help_subcommand = true,
    max_term_width = 80,
    after_help = exit::HELP,
    mut_args = of_print
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    /// A one-off prompt; without a command or a prompt, opens the screen
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Print the answer and exit, as `agent run` does; takes the options of that command too
    #[arg(short = 'p', long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) interactive: commands::interactive::InteractiveArgs,
    #[command(flatten)]
    pub(crate) run: commands::run::RunOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The options of `run` mean something only where the answer is printed, and its help explains them.
fn of_print(argument: clap::Arg) -> clap::Arg {
    if commands::run::RunOptions::NAMES.contains(&argument.get_id().as_str()) {
        argument.requires("print").hide(true)
    } else {
        argument
    }
}

/// What every command understands.
#[derive(Args, Debug)]
pub(crate) struct GlobalArgs {
    /// Work in this directory instead of the current one
    #[arg(short = 'C', long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) cwd: Option<PathBuf>,
    /// When to use colours; `auto` means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// Print only the result
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more: where settings come from, each step of a run and what decided it
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

impl GlobalArgs {
    /// How much is said beside what was asked for.
    pub(crate) fn volume(&self) -> Volume {
        match (self.quiet, self.verbose) {
            (true, _) => Volume::Quiet,
            (false, true) => Volume::Verbose,
            (false, false) => Volume::Usual,
        }
    }
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(alias = "exec")]
    Run(commands::run::RunArgs),
    Init(commands::init::InitArgs),
    Review(commands::review::ReviewArgs),
    Call(commands::call::CallArgs),
    Tools(commands::tools::ToolsArgs),
    Demo(commands::demo::DemoArgs),
    Resume(commands::interactive::ResumeArgs),
    Fork(commands::fork::ForkArgs),
    Actions(commands::actions::ActionsArgs),
    Respond(commands::respond::RespondArgs),
    Replay(commands::replay::ReplayArgs),
    Permissions(commands::permissions::PermissionsArgs),
    Why(commands::why::WhyArgs),
    Diff(commands::diff::DiffArgs),
    Undo(commands::undo::UndoArgs),
    Rerun(commands::rerun::RerunArgs),
    Sessions(commands::sessions::SessionsArgs),
    Audit(commands::audit::AuditArgs),
    Report(commands::report::ReportArgs),
    Import(commands::import::ImportArgs),
    Export(commands::export::ExportArgs),
    Doctor(commands::doctor::DoctorArgs),
    Models(commands::models::ModelsArgs),
    Sandbox(commands::sandbox::SandboxArgs),
    Config(commands::config::ConfigArgs),
    #[command(hide = true)]
    Complete(commands::complete::CompleteArgs),
    Completions(commands::completions::CompletionsArgs),
    Man(commands::man::ManArgs),
}
