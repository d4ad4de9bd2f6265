//! `agent review`: the model reads changes and reports findings, each with file and line.

use std::path::PathBuf;
use std::sync::Arc;

use agent_evidence::review::{Finding, Review, Severity};
use agent_protocol::status::Mode;
use agent_runtime::changes::{Changes, Subject};
use agent_runtime::prompts::{self, ReviewForm};
use agent_runtime::{OnAsk, OpenOptions, SessionModels};
use agent_text::counted;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::headless::{self, Ended, OutputForm, RunReport, Task};
use crate::output::file::to_file_or_stdout;
use crate::output::{Tone, visible, visible_text};

/// Review changes and report findings with file and line
///
/// The model works in mode `read-only`: it reads the changes and the code around them and changes
/// nothing. A finding about a file or line that does not exist is dropped and counted. The session
/// is recorded like any other.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent review                               what is not committed yet
  agent review --base main                   everything since `main` was left
  agent review --commit HEAD~1 --format json
  agent review --base main --format sarif -o review.sarif --fail-on high")]
pub(crate) struct ReviewArgs {
    /// Review everything since this branch was left, uncommitted changes included
    #[arg(long, value_name = "BRANCH", conflicts_with = "commit")]
    base: Option<String>,
    /// Review this commit
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
    /// Output format
    #[arg(long, value_name = "FORM", default_value = "text")]
    format: Form,
    /// Exit with code 1 if there is a finding of this severity or a worse one
    #[arg(long, value_name = "SEVERITY")]
    fail_on: Option<FailOn>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    /// One JSON object (docs/schemas/review.schema.json)
    Json,
    /// SARIF 2.1.0
    Sarif,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailOn {
    Critical,
    High,
    Medium,
    Low,
}

impl From<FailOn> for Severity {
    fn from(word: FailOn) -> Self {
        match word {
            FailOn::Critical => Self::Critical,
            FailOn::High => Self::High,
            FailOn::Medium => Self::Medium,
            FailOn::Low => Self::Low,
        }
    }
}

/// What `agent review --format json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReviewOutput {
    /// Session of the review; `null` when there was nothing to review.
    session_id: Option<String>,
    /// Commit that the changes are compared with, or that was reviewed; `null` before the first one.
    commit: Option<String>,
    files: Vec<FileOutput>,
    summary: String,
    /// The worst first.
    findings: Vec<FindingOutput>,
    /// Findings about a file or a line that does not exist.
    dropped: Vec<FindingOutput>,
    /// Entries of the answer that are no findings.
    malformed: u64,
}

/// A file that was reviewed.
#[derive(Debug, Serialize, JsonSchema)]
struct FileOutput {
    path: String,
    added: u64,
    removed: u64,
    /// True if git does not know it yet; its lines are not counted.
    untracked: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FindingOutput {
    file: String,
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_line: Option<u64>,
    /// `critical`, `high`, `medium` or `low`.
    severity: &'static str,
    title: String,
    body: String,
}

impl From<&Finding> for FindingOutput {
    fn from(finding: &Finding) -> Self {
        Self {
            file: finding.file.clone(),
            line: finding.line,
            end_line: finding.end_line,
            severity: finding.severity.as_str(),
            title: finding.title.clone(),
            body: finding.body.clone(),
        }
    }
}

/// Runs it.
pub(crate) fn run(arguments: &ReviewArgs, app: &App) -> Result<Exit, Failure> {
    if let Some(mode) = arguments.settings.mode.filter(|mode| !mode.only_reads()) {
        return Err(Failure::usage(format!(
            "a review only reads: it does not run in mode `{mode}`"
        )));
    }
    let subject = match (&arguments.base, &arguments.commit) {
        (Some(branch), _) => Subject::Since(branch.clone()),
        (None, Some(commit)) => Subject::Commit(commit.clone()),
        (None, None) => Subject::Uncommitted,
    };
    let changes = Changes::read(&app.runtime, subject)?;
    if changes.files.is_empty() {
        app.output.note("no changes to review");
        return print(arguments, app, &changes, None, &Review::default());
    }
    let settings = SettingArgs {
        mode: Some(Mode::ReadOnly),
        ..arguments.settings.clone()
    };
    let config = config::load(&app.host, &app.project, &settings)?;
    app.note_ignored_settings(&config);
    let session = app.open(OpenOptions {
        program: "agent review".to_owned(),
        title: Some(prompts::review_title(&changes)),
        config: Some(Arc::new(config)),
        on_ask: OnAsk::Deny,
        models: SessionModels::FromSettings,
        ..OpenOptions::default()
    })?;
    let task = Task {
        prompt: Some(prompts::review(&changes, ReviewForm::Json)),
        attached: Vec::new(),
        form: OutputForm::Report,
        include_transient: false,
        require_verified: false,
    };
    let report = match headless::work(app, session, task)? {
        Ended::Reported(report, _) => report,
        Ended::Stopped(exit) => return Ok(exit),
    };
    match read(&report, &changes) {
        Ok(review) => print(arguments, app, &changes, Some(&report), &review),
        Err(exit) => {
            app.output.hint(&format!(
                "`agent replay {}` shows how it came to that",
                report.session_id()
            ));
            if let Some(text) = report.final_text() {
                app.output.note(&format!("the answer was:\n{text}"));
            }
            app.output.problem(match report.error() {
                Some(error) => error,
                None => "the answer has no findings in the form that was asked for",
            });
            Ok(exit)
        }
    }
}

/// The findings of an answer. A call that was refused took nothing from an answer that is whole.
fn read(report: &RunReport, changes: &Changes) -> Result<Review, Exit> {
    let usable = matches!(report.exit(), Exit::Done | Exit::Denied);
    let text = report.final_text().filter(|_| usable);
    let review =
        text.and_then(|text| Review::read(text, |file, line| changes.has_line(file, line)));
    review.ok_or(match report.exit() {
        Exit::Done => Exit::Failed,
        exit => exit,
    })
}

fn print(
    arguments: &ReviewArgs,
    app: &App,
    changes: &Changes,
    report: Option<&RunReport>,
    review: &Review,
) -> Result<Exit, Failure> {
    let output = ReviewOutput {
        session_id: report.map(|report| report.session_id().to_owned()),
        commit: changes.commit.clone(),
        files: changes
            .files
            .iter()
            .map(|file| FileOutput {
                path: file.path.clone(),
                added: file.added,
                removed: file.removed,
                untracked: file.untracked,
            })
            .collect(),
        summary: review.summary.clone(),
        findings: review.findings.iter().map(FindingOutput::from).collect(),
        dropped: review.dropped.iter().map(FindingOutput::from).collect(),
        malformed: review.malformed,
    };
    let doing = "cannot print the findings";
    let file = arguments.output.as_ref();
    let file = file.map(|file| app.host.cwd.join(file));
    to_file_or_stdout(file.as_deref(), |out| {
        match arguments.format {
            Form::Text => out.write_all(as_text(app, &output, file.is_none()).as_bytes()),
            Form::Json => app.output.json_to(out, &output),
            Form::Sarif => app
                .output
                .json_to(out, &review.to_sarif(env!("CARGO_PKG_VERSION"))),
        }
        .context(doing)
        .or_fail()
    })?;
    let limit = arguments.fail_on.map(Severity::from);
    let is_too_bad = |limit: Severity| review.worst().is_some_and(|worst| worst >= limit);
    Ok(match limit.is_some_and(is_too_bad) {
        true => Exit::Failed,
        false => Exit::Done,
    })
}

fn as_text(app: &App, review: &ReviewOutput, is_terminal: bool) -> String {
    let paint = |tone: Tone, text: &str| match is_terminal {
        true => app.output.paint(tone, text),
        false => text.to_owned(),
    };
    let found = match review.findings.len() {
        0 => "no findings".to_owned(),
        count => counted(count as u64, "finding"),
    };
    let files = counted(review.files.len() as u64, "changed file");
    let mut text = format!("{}\n", paint(Tone::Heading, &format!("{found} in {files}")));
    if !review.summary.is_empty() {
        text.push_str(&format!("{}\n", wrapped(app, &review.summary, 0)));
    }
    for finding in &review.findings {
        let tone = match finding.severity {
            "critical" | "high" => Tone::Bad,
            "medium" => Tone::Warn,
            _ => Tone::Faint,
        };
        let severity = paint(tone, &format!("{:<8}", finding.severity));
        let place = format!("{}:{}", visible(&finding.file), finding.line);
        let title = wrapped(app, &finding.title, 9);
        text.push_str(&format!("\n{severity} {place}\n         {title}\n"));
        for paragraph in finding.body.lines().filter(|line| !line.trim().is_empty()) {
            text.push_str(&format!("         {}\n", wrapped(app, paragraph, 9)));
        }
    }
    for dropped in &review.dropped {
        let line = format!(
            "dropped: {}:{} does not exist: {}",
            dropped.file, dropped.line, dropped.title
        );
        text.push_str(&format!(
            "\n{}",
            paint(Tone::Faint, &wrapped(app, &line, 2))
        ));
    }
    if review.malformed > 0 {
        let count = counted(review.malformed, "entry").replace("entrys", "entries");
        text.push_str(&format!(
            "\n{}",
            paint(
                Tone::Faint,
                &format!("dropped: {count} without a file or a line")
            )
        ));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if let Some(session_id) = &review.session_id {
        text.push_str(&format!("\nsession {session_id}\n"));
    }
    text
}

fn wrapped(app: &App, text: &str, indent: usize) -> String {
    let lines = visible_text(text);
    let lines = lines.lines().map(|line| app.output.wrap(line, indent));
    let between = format!("\n{:indent$}", "");
    lines.collect::<Vec<_>>().join(&between)
}
