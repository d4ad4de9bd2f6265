//! `agent undo`: takes back what a session did to the project's files.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use agent_history::workspace::PathState;
use agent_log::AnchorStore;
use agent_log::SessionDirectory;
use agent_protocol::command::{
    ConflictDecision, ControlCommand, OnConflict, Peer, PeerKind, Undo, UndoExtent,
};
use agent_protocol::id::SessionId;
use agent_protocol::payload::conversation::RefusedFile;
use agent_protocol::reply::{ControlErrorCode, Reply, UndoReport};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;

use super::{damage, lineage};
use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Tone, visible};
use agent_runtime::undo::{Chosen, Entry, Extent, Plan, Verdict};
use agent_text::counted;

/// Undo the changes a session made to the project's files
///
/// Restores contents, modes and deleted files from copies saved with the session, including changes
/// made by commands; it does not need git and runs no command. It shows the plan first, then asks;
/// without a terminal it does nothing unless `--yes` is given (exit 3). Files changed since by
/// something else are kept unless `--on-conflict` says otherwise. The undo is recorded in the
/// session and can itself be undone.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent undo --dry-run             show what would be undone
  agent undo                       undo the whole last session
  agent undo --turn last           undo only its last turn
  agent undo 0a3f --to 41 --yes    go back to event 41, without asking
  agent undo --file src/lib.rs     one file
  agent undo --on-conflict orig    keep your own changes as FILE.orig

Exit codes: 0 done, 1 something could not be restored, 2 nothing was started (for example, the session is in use), 3 not confirmed, or files were kept because something else changed them.")]
pub(crate) struct UndoArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION", default_value = "last")]
    session: String,
    /// Go back to the state after this event [default: the start of the session]
    #[arg(long, value_name = "SEQ", conflicts_with = "turn")]
    to: Option<u64>,
    /// Undo only this turn: its number, its id, or `last`; repeating `last` goes back one more turn
    #[arg(long, value_name = "TURN")]
    turn: Option<String>,
    /// Undo only this file or directory
    #[arg(long = "file", value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    files: Vec<String>,
    /// What to do with a file that something else has changed since [default: ask, or keep]
    #[arg(long, value_name = "WHAT")]
    on_conflict: Option<ConflictChoice>,
    /// Show what would be undone without doing it
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Print one JSON object (docs/schemas/undo.schema.json)
    #[arg(long)]
    json: bool,
}

/// What to do where somebody else changed a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConflictChoice {
    /// Keep the file as it is
    Keep,
    /// Restore the file; the log keeps what is overwritten
    Restore,
    /// Restore the file, and save the current one as `.orig`
    Orig,
}

impl UndoArgs {
    fn on_conflict(&self) -> Option<OnConflict> {
        self.on_conflict.map(|choice| match choice {
            ConflictChoice::Keep => OnConflict::Keep,
            ConflictChoice::Restore => OnConflict::Restore,
            ConflictChoice::Orig => OnConflict::Orig,
        })
    }
}

/// What `agent undo --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UndoOutput {
    session_id: SessionId,
    /// The event whose state is restored; 0 is the start.
    target_sequence: u64,
    /// Whether anything was written, or only would be.
    carried_out: bool,
    files: Vec<UndoFile>,
    /// What the log does not show and which can therefore not be taken back.
    gaps: Vec<UndoGap>,
    /// `agent undo --to` this takes the undo back.
    #[serde(skip_serializing_if = "Option::is_none")]
    undone_by: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UndoFile {
    path: String,
    action: Action,
    status: FileStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UndoGap {
    sequence: u64,
    reason: String,
}

/// What putting a path back means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Other content, and perhaps another mode.
    Restore,
    /// It was made by the session and goes.
    Remove,
    /// It was removed by the session and comes back.
    BringBack,
    /// Only its mode.
    SetMode,
    /// Nothing.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FileStatus {
    Planned,
    Restored,
    AlreadyRestored,
    /// An undo made it to keep what somebody else had written; it stays.
    Kept,
    /// Somebody else changed it.
    Conflict,
    /// It was not or cannot be put back.
    Refused,
}

pub(crate) fn run(arguments: &UndoArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let real = |path: &Path| std::fs::canonicalize(path);
    // A project without sessions has none of its own to take back.
    let own = real(app.sessions().directory());
    let at = real(session.path()).or_usage()?;
    if !own.is_ok_and(|own| at.starts_with(own)) {
        return Err(Failure::usage(format!(
            "session {} belongs to another project; nothing was changed",
            session.id()
        )));
    }
    let extent = match (&arguments.turn, arguments.to) {
        (Some(turn), _) => UndoExtent::Turn { turn: turn.clone() },
        (None, Some(sequence)) => UndoExtent::After { sequence },
        (None, None) => UndoExtent::Session,
    };
    let chosen = Chosen::new(app, &arguments.files)?;
    let root = app.project.root();
    let anchor = AnchorStore::new(&app.host.directories.state).read(session.id());
    let is_known = anchor.is_ok_and(|anchor| anchor.is_some());
    let mut plan = Plan::make(root, &session, &Extent::of(&extent), &chosen)?;
    if !is_known {
        plan.leave_out_protected();
    }
    damage::tell(app, &session);
    let is_asked = !arguments.yes && !arguments.dry_run && !arguments.json && is_interactive();
    if !arguments.json {
        app.output
            .print(&as_text(&plan, app))
            .context("cannot print the plan")?;
        let undo = |parent: &str, _| format!("agent undo {parent}");
        if let Some(note) = lineage::elsewhere(app, &session, "what changed", undo) {
            app.output.note(&note);
        }
    }
    let conflicts = plan.count(|verdict| matches!(verdict, Verdict::Conflict(_)));
    if conflicts > 0 && arguments.on_conflict().is_none() && !is_asked {
        app.output.hint(
            "files changed by something else are kept; `--on-conflict restore` restores them, \
             `--on-conflict orig` also saves a copy of each",
        );
    }
    if arguments.dry_run || !plan.has_work() {
        return finish_without_work(&plan, arguments, app);
    }
    let mut answers = Vec::new();
    if is_asked {
        match ask(&plan, arguments.on_conflict(), app)? {
            Some(given) => answers = given,
            None => {
                app.output.note("nothing was changed");
                return Ok(Exit::Denied);
            }
        }
    } else if !arguments.yes {
        if arguments.json {
            print_json(&plan, None, app)?;
        }
        app.output
            .note("nothing was changed; use `--yes` to undo without asking");
        return Ok(Exit::Denied);
    }
    let outcome = carry_out(arguments, app, &session, extent, &plan, answers)?;
    if arguments.json {
        print_json(&plan, Some(&outcome), app)?;
    } else {
        let text = outcome_text(&outcome, &session, app);
        app.output
            .print(&text)
            .context("cannot print what was done")?;
    }
    tell_unknown(&plan, app);
    Ok(exit_of(&plan, &outcome, arguments))
}

fn finish_without_work(plan: &Plan, arguments: &UndoArgs, app: &App) -> Result<Exit, Failure> {
    if arguments.json {
        print_json(plan, None, app)?;
    }
    let impossible = plan.count(|verdict| matches!(verdict, Verdict::Impossible(_)));
    // What was asked for did not happen; a dry run was asked for a plan, and gave one.
    if arguments.dry_run {
        return Ok(Exit::Done);
    }
    tell_unknown(plan, app);
    if impossible > 0 || !plan.gaps.is_empty() {
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

/// Says that what the log does not list stays as it is.
fn tell_unknown(plan: &Plan, app: &App) {
    if !plan.gaps.is_empty() {
        let events = counted(plan.gaps.len() as u64, "event");
        app.output.note(&format!(
            "the changes of {events} are unknown and were not undone; compare with your version \
             control"
        ));
    }
}

/// Has the session do what was shown, and nothing else.
fn carry_out(
    arguments: &UndoArgs,
    app: &App,
    session: &SessionDirectory,
    extent: UndoExtent,
    shown: &Plan,
    answers: Vec<(String, OnConflict)>,
) -> Result<UndoReport, Failure> {
    let open = app.open_at_rest(session, "agent undo")?;
    let decisions = answers.into_iter();
    let undo = ControlCommand::Undo(Undo {
        extent,
        files: arguments.files.clone(),
        on_conflict: arguments.on_conflict().unwrap_or_default(),
        decisions: decisions
            .map(|(path, on_conflict)| ConflictDecision { path, on_conflict })
            .collect(),
        expected_plan: Some(shown.fingerprint()),
        with_conversation: false,
    });
    let peer = Peer::new(PeerKind::CommandLine, "agent undo");
    match open.handle(undo, &peer) {
        Ok(Reply::Undone(report)) => Ok(report),
        Ok(_) => Err(Failure::from(anyhow::anyhow!(
            "there is nothing to undo any more; nothing was changed"
        ))),
        Err(error) if error.code == ControlErrorCode::PlanChanged => {
            let failure = Failure::from(anyhow::Error::from(error));
            Err(failure.hint("run the command again to see the new plan"))
        }
        Err(error) => Err(error.into()),
    }
}

fn exit_of(plan: &Plan, outcome: &UndoReport, arguments: &UndoArgs) -> Exit {
    let is_conflict = |refused: &RefusedFile| {
        let entry = plan.entries.iter().find(|entry| entry.name == refused.path);
        entry.is_some_and(|entry| matches!(entry.verdict, Verdict::Conflict(_)))
    };
    let (kept, failed): (Vec<_>, Vec<_>) = outcome.refused.iter().partition(|one| is_conflict(one));
    let kept_on_request = arguments.on_conflict() == Some(OnConflict::Keep);
    if !failed.is_empty() || !plan.gaps.is_empty() {
        Exit::Failed
    } else if !kept.is_empty() && !kept_on_request {
        Exit::Denied
    } else {
        Exit::Done
    }
}

fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks what to do with each conflict, and then whether to go on; `None` is a no.
fn ask(
    plan: &Plan,
    on_conflict: Option<OnConflict>,
    app: &App,
) -> Result<Option<Vec<(String, OnConflict)>>, Failure> {
    let mut answers = Vec::new();
    if on_conflict.is_none() {
        for entry in &plan.entries {
            let Verdict::Conflict(why) = &entry.verdict else {
                continue;
            };
            let question = format!(
                "`{}`: {}.\n  [k]eep it, [r]estore it, or restore it and save the current file as \
                 .[o]rig? [k] ",
                visible(&entry.name),
                visible(why)
            );
            let answer = loop {
                match question_answer(&question)?.as_deref() {
                    None | Some("" | "k" | "keep") => break OnConflict::Keep,
                    Some("r" | "restore") => break OnConflict::Restore,
                    Some("o" | "orig") => break OnConflict::Orig,
                    Some(_) => app.output.note("please answer k, r or o"),
                }
            };
            answers.push((entry.name.clone(), answer));
        }
    }
    let wants_it = |entry: &&Entry| match &entry.verdict {
        Verdict::Restore => true,
        Verdict::Done => entry.was_in_hand,
        Verdict::Beside(_) | Verdict::Impossible(_) => false,
        Verdict::Conflict(_) => {
            let given = answers.iter().find(|(name, _)| *name == entry.name);
            let given = given.map(|(_, answer)| *answer).or(on_conflict);
            given.unwrap_or_default() != OnConflict::Keep
        }
    };
    let count = plan.entries.iter().filter(wants_it).count();
    if count == 0 {
        return Ok(None);
    }
    let question = format!("Undo {}? [y/N] ", counted(count as u64, "path"));
    let answer = question_answer(&question)?;
    Ok(matches!(answer.as_deref(), Some("y" | "yes")).then_some(answers))
}

/// One line from the user, in lower case; `None` at the end of input.
fn question_answer(question: &str) -> Result<Option<String>, Failure> {
    let mut stderr = io::stderr().lock();
    let asked = stderr
        .write_all(question.as_bytes())
        .and_then(|()| stderr.flush());
    asked.context("cannot ask").or_fail()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let read = read.context("cannot read the answer").or_fail()?;
    Ok((read > 0).then(|| line.trim().to_lowercase()))
}

fn action(entry: &Entry) -> Action {
    let (now, target) = (&entry.found.state, &entry.target);
    let bytes = |state: &PathState| state.content().and_then(|content| content.sha256.clone());
    if matches!(entry.verdict, Verdict::Done | Verdict::Beside(_)) {
        return Action::None;
    }
    match (now.exists(), target.exists()) {
        (_, false) => Action::Remove,
        (false, true) => Action::BringBack,
        (true, true) => {
            let same_kind = now.file_type() == target.file_type();
            let same_bytes = bytes(now) == bytes(target);
            if same_kind && same_bytes {
                Action::SetMode
            } else {
                Action::Restore
            }
        }
    }
}

/// What a plan would do, one path per line.
pub(crate) fn as_text(plan: &Plan, app: &App) -> String {
    let back_to = match plan.span.from {
        None => "its start".to_owned(),
        Some(sequence) => format!("event {sequence}"),
    };
    let mut text = format!("session {}, back to {back_to}\n", plan.session_id);
    for entry in &plan.entries {
        let shown = visible(&entry.name);
        let slash = match [&entry.found.state, &entry.target]
            .iter()
            .any(|state| matches!(state, PathState::Directory { .. }))
        {
            true => "/",
            false => "",
        };
        let (tone, word, why) = match &entry.verdict {
            Verdict::Done if entry.was_in_hand => (
                Tone::Faint,
                "done",
                Some("already restored by an interrupted undo"),
            ),
            Verdict::Done => (Tone::Faint, "done", Some("it is as it was")),
            Verdict::Beside(why) => (Tone::Faint, "keep", Some(why.as_str())),
            Verdict::Conflict(why) => (Tone::Warn, "conflict", Some(why.as_str())),
            Verdict::Impossible(why) => (Tone::Bad, "cannot", Some(why.as_str())),
            Verdict::Restore => match action(entry) {
                Action::Remove => (Tone::Good, "remove", None),
                Action::BringBack => (Tone::Good, "bring back", None),
                Action::SetMode => (Tone::Good, "mode", None),
                Action::Restore | Action::None => (Tone::Good, "restore", None),
            },
        };
        let mode = match (entry.found.state.mode(), entry.target.mode()) {
            (Some(now), Some(then)) if now != then && entry.verdict == Verdict::Restore => {
                format!("  {now:04o} to {then:04o}")
            }
            _ => String::new(),
        };
        let why = why.map_or_else(String::new, |why| format!("  {}", visible(why)));
        let word = app.output.paint(tone, &format!("{word:<10}"));
        text.push_str(&format!("  {word} {shown}{slash}{mode}{why}\n"));
    }
    for gap in &plan.gaps {
        let reason = app.output.wrap(&visible(&gap.reason), 13);
        let word = app.output.paint(Tone::Warn, "unknown   ");
        text.push_str(&format!("  {word} event {}: {reason}\n", gap.sequence));
    }
    text.push_str(&summary(plan));
    text
}

fn summary(plan: &Plan) -> String {
    let restore = plan.count(|verdict| *verdict == Verdict::Restore);
    let conflicts = plan.count(|verdict| matches!(verdict, Verdict::Conflict(_)));
    let impossible = plan.count(|verdict| matches!(verdict, Verdict::Impossible(_)));
    if restore + conflicts + impossible == 0 {
        return match plan.gaps.is_empty() {
            true => "nothing to undo\n".to_owned(),
            false => "no recorded changes to undo\n".to_owned(),
        };
    }
    let mut text = format!("{} to undo", counted(restore as u64, "path"));
    if conflicts > 0 {
        text.push_str(&format!(", {} changed by something else", conflicts));
    }
    if impossible > 0 {
        text.push_str(&format!(", {impossible} that cannot be undone"));
    }
    text.push('\n');
    text
}

fn outcome_text(outcome: &UndoReport, session: &SessionDirectory, app: &App) -> String {
    let done = format!("{} undone", counted(outcome.paths, "path"));
    let mut text = format!("{}\n", app.output.paint(Tone::Good, &done));
    for beside in &outcome.beside {
        let word = app.output.paint(Tone::Warn, "kept");
        let path = visible(beside);
        text.push_str(&format!("{word} {path}: what was there before the undo\n"));
    }
    for refused in &outcome.refused {
        let word = app.output.paint(Tone::Warn, "left");
        let (path, reason) = (visible(&refused.path), visible(&refused.reason));
        text.push_str(&format!("{word} {path}: {reason}\n"));
    }
    let id = session.id().as_str();
    text.push_str(&format!(
        "to reverse this: `agent undo {id} --to {}`\n",
        outcome.before
    ));
    text
}

fn print_json(plan: &Plan, outcome: Option<&UndoReport>, app: &App) -> Result<(), Failure> {
    let files = plan
        .entries
        .iter()
        .map(|entry| UndoFile::of(entry, outcome));
    let printed = UndoOutput {
        session_id: plan.session_id.clone(),
        target_sequence: plan.target_sequence(),
        carried_out: outcome.is_some(),
        files: files.collect(),
        gaps: plan
            .gaps
            .iter()
            .map(|gap| UndoGap {
                sequence: gap.sequence,
                reason: gap.reason.clone(),
            })
            .collect(),
        undone_by: outcome.map(|outcome| outcome.before),
    };
    app.output.json(&printed).context("cannot print the plan")?;
    Ok(())
}

impl UndoFile {
    fn of(entry: &Entry, outcome: Option<&UndoReport>) -> Self {
        let refused = outcome.and_then(|outcome| {
            let mut refused = outcome.refused.iter();
            refused.find(|refused| refused.path == entry.name)
        });
        let restored = outcome.is_some_and(|outcome| {
            let mut restored = outcome.restored.iter();
            restored.any(|effect| effect.path == entry.name)
        });
        let (status, reason) = match (&entry.verdict, refused) {
            (_, Some(refused)) => (FileStatus::Refused, Some(refused.reason.clone())),
            _ if restored => (FileStatus::Restored, None),
            (Verdict::Done, None) => (FileStatus::AlreadyRestored, None),
            (Verdict::Beside(why), None) => (FileStatus::Kept, Some(why.clone())),
            (Verdict::Restore, None) => (FileStatus::Planned, None),
            (Verdict::Conflict(why), None) => (FileStatus::Conflict, Some(why.clone())),
            (Verdict::Impossible(why), None) => (FileStatus::Refused, Some(why.clone())),
        };
        Self {
            path: entry.name.clone(),
            action: action(entry),
            status,
            reason,
        }
    }
}
