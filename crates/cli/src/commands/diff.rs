//! `agent diff`: what a session, a turn or a range of events changed, from the images it kept.

use agent_history::workspace::PathState;
use agent_protocol::id::SessionId;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::{damage, lineage};
use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Table, Tone, visible, visible_text};
use agent_runtime::undo::{Chosen, Extent, FileDiff, SessionDiff, Shown};
use agent_text::counted;

/// Show the changes a session made to the project's files
///
/// Prints a unified diff from the file contents saved with the session. It includes changes made by
/// commands, and does not need git. Secrets are masked and control characters are made visible;
/// `--exact` prints the raw bytes, for `git apply` or `patch`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent diff                       all changes of the last session
  agent diff --stat                one line per file
  agent diff --turn last           only its last turn
  agent diff 0a3f --from 12 --to 41 src
  agent diff --exact | git apply -R")]
pub(crate) struct DiffArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION", default_value = "last")]
    session: String,
    /// Limit to these files or directories
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<String>,
    /// Only changes of this turn: its number, its id, or `last`
    #[arg(long, value_name = "TURN", conflicts_with_all = ["from", "to"])]
    turn: Option<String>,
    /// Only changes after this event
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Only changes up to this event
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
    /// Print a summary, one line per file
    #[arg(long)]
    stat: bool,
    /// Print the raw bytes: no masking, escaping or colours
    #[arg(long, conflicts_with_all = ["stat", "json"])]
    exact: bool,
    /// Print one JSON object (docs/schemas/diff.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent diff --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DiffOutput {
    session_id: SessionId,
    /// Changes after this event; missing for the session's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    /// Changes up to this event.
    to: u64,
    added: u64,
    removed: u64,
    files: Vec<DiffFile>,
    /// What may have changed besides.
    gaps: Vec<DiffGap>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DiffFile {
    path: String,
    /// `created`, `changed`, `deleted`, `mode changed`, `changed kind` or `unknown`.
    change: &'static str,
    before: DiffSide,
    after: DiffSide,
    /// Lines, where lines were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<u64>,
    is_binary: bool,
    /// Reason the content cannot be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// Unified diff, masked.
    diff: String,
    first_sequence: u64,
    last_sequence: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DiffSide {
    exists: Option<bool>,
    /// `symlink`, `directory` and the like; missing for a regular file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DiffGap {
    sequence: u64,
    reason: String,
}

pub(crate) fn run(arguments: &DiffArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let extent = match &arguments.turn {
        Some(turn) => Extent::Turn(turn.clone()),
        None => Extent::Between(arguments.from, arguments.to),
    };
    let chosen = Chosen::new(app, &arguments.paths)?;
    let diff = SessionDiff::make(app.project.root(), &session, &extent, &chosen)?;
    damage::tell(app, &session);
    let doing = "cannot print the diff";
    if arguments.exact {
        for file in &diff.files {
            app.output.write_all(&file.exact()).context(doing)?;
        }
    } else if arguments.json {
        let redactor = app.session_env("agent diff")?.redactor;
        let printed = DiffOutput::of(&diff, |text| redactor.mask(text).into_owned());
        app.output.json(&printed).context(doing)?;
        return Ok(Exit::Done);
    } else if arguments.stat {
        print_stat(&diff, app)?;
    } else if !diff.files.is_empty() {
        let redactor = app.session_env("agent diff")?.redactor;
        let text = diff.text();
        let text = colored(&visible_text(&redactor.mask(&text)), app);
        app.output.print(&text).context(doing)?;
    }
    for gap in &diff.gaps {
        app.output
            .note(&format!("event {}: {}", gap.sequence, gap.reason));
    }
    let show = |parent: &str, to: u64| format!("agent diff {parent} --to {to}");
    if let Some(note) = lineage::elsewhere(app, &session, "what changed", show) {
        app.output.note(&note);
    }
    Ok(Exit::Done)
}

fn print_stat(diff: &SessionDiff, app: &App) -> Result<(), Failure> {
    let doing = "cannot print the diff";
    let mut table = Table::new(&["path", "change", ">added", ">removed"]);
    for file in &diff.files {
        let (added, removed) = match (file.counts(), &file.change) {
            (Some((added, removed)), _) => (format!("+{added}"), format!("-{removed}")),
            (None, Shown::Binary) => ("binary".to_owned(), String::new()),
            (None, Shown::Unknown(_)) => ("unknown".to_owned(), String::new()),
            _ => (String::new(), String::new()),
        };
        let path = visible(&file.net.path);
        table.row([path, file.word().to_owned(), added, removed]);
    }
    if !diff.files.is_empty() {
        app.output.table(&table, Tone::Heading).context(doing)?;
    }
    let (added, removed) = diff.totals();
    let files = counted(diff.files.len() as u64, "path");
    let sum = format!("{files} changed, +{added} -{removed}");
    app.output.print(&sum).context(doing)?;
    Ok(())
}

fn colored(text: &str, app: &App) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let tone = match line.as_bytes().first() {
            _ if line.starts_with("+++ ") || line.starts_with("--- ") => Some(Tone::Heading),
            _ if line.starts_with("diff --git ") => Some(Tone::Heading),
            Some(b'+') => Some(Tone::Good),
            Some(b'-') => Some(Tone::Bad),
            Some(b'@') => Some(Tone::Faint),
            Some(b'#') => Some(Tone::Warn),
            _ => None,
        };
        match tone {
            Some(tone) => shown.push_str(&app.output.paint(tone, line)),
            None => shown.push_str(line),
        }
        shown.push_str(end);
    }
    shown
}

impl DiffOutput {
    fn of(diff: &SessionDiff, mask: impl Fn(&str) -> String) -> Self {
        let (added, removed) = diff.totals();
        Self {
            session_id: diff.session_id.clone(),
            from: diff.span.from,
            to: diff.span.to,
            added,
            removed,
            files: diff
                .files
                .iter()
                .map(|file| DiffFile::of(file, &mask))
                .collect(),
            gaps: diff
                .gaps
                .iter()
                .map(|gap| DiffGap {
                    sequence: gap.sequence,
                    reason: gap.reason.clone(),
                })
                .collect(),
        }
    }
}

impl DiffFile {
    fn of(file: &FileDiff, mask: impl Fn(&str) -> String) -> Self {
        let counts = file.counts();
        Self {
            path: file.net.path.to_string(),
            change: file.word(),
            before: DiffSide::of(&file.net.before),
            after: DiffSide::of(&file.net.after),
            added: counts.map(|(added, _)| added),
            removed: counts.map(|(_, removed)| removed),
            is_binary: matches!(file.change, Shown::Binary),
            unknown: match &file.change {
                Shown::Unknown(why) => Some(why.clone()),
                _ => None,
            },
            diff: mask(&file.text()),
            first_sequence: file.net.first_sequence,
            last_sequence: file.net.last_sequence,
        }
    }
}

impl DiffSide {
    fn of(state: &PathState) -> Self {
        let content = state.content();
        Self {
            exists: (*state != PathState::Unknown).then(|| state.exists()),
            file_type: state.file_type().map(str::to_owned),
            sha256: content.and_then(|content| content.sha256.clone()),
            bytes: content.and_then(|content| content.bytes),
            mode: state.mode(),
        }
    }
}
