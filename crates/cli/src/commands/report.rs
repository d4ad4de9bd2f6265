//! `agent report`: what a session did, decided, verified and spent, without a word of any prompt.

use std::path::PathBuf;

use agent_evidence::report::report;
use agent_log::AnchorStore;
use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::file::to_file_or_stdout;

const EXAMPLES: &str = "Examples:
  agent report last                          Markdown for a pull request
  agent report last --json | jq .status
  gh pr create --body-file <(agent report last)";

/// Summarize a session: status, calls, decisions, verification, cost
///
/// Computed from the events. Contains no text of prompts or answers.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// A session: its number, title, id, `last`, or a session directory
    #[arg(value_name = "SESSION", default_value = "last")]
    session: String,
    /// Output format
    #[arg(long, value_name = "FORM", default_value = "markdown")]
    format: Form,
    /// Print one JSON object (docs/schemas/report.schema.json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Markdown,
    Json,
}

pub(crate) fn run(arguments: &ReportArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let anchors = AnchorStore::new(&app.host.directories.state);
    let report = report(&session, Some(&anchors))
        .with_context(|| format!("cannot report on session {}", session.id()))
        .or_usage()?;
    let text = if arguments.json || arguments.format == Form::Json {
        app.output.json_text(&report.to_json()).or_fail()?
    } else {
        report.to_markdown()
    };
    let file = arguments
        .output
        .as_ref()
        .map(|file| app.host.cwd.join(file));
    to_file_or_stdout(file.as_deref(), |out| {
        writeln!(out, "{}", text.trim_end())
            .context("cannot print the report")
            .or_fail()
    })?;
    Ok(Exit::Done)
}
