//! `agent sessions list`: the sessions of this project, the one written last first.

use std::path::PathBuf;

use agent_log::{LastTurn, SessionDirectory};
use agent_protocol::Timestamp;
use agent_protocol::id::SessionId;
use agent_text::words::ago;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Table, Tone, visible};

/// List the sessions of this project, newest first
///
/// Every command takes the number of a session in this list as its name. `--verbose` adds the ids.
#[derive(Args, Debug, Default)]
pub(crate) struct ListArgs {
    /// Print one JSON object (docs/schemas/sessions-list.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent sessions list --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionList {
    /// The project's root directory.
    project: PathBuf,
    /// The one written last first.
    sessions: Vec<SessionEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SessionEntry {
    /// Its place in the list, by which commands name it; 1 is the one written last.
    number: usize,
    session_id: SessionId,
    path: PathBuf,
    /// `null` when the log does not say.
    title: Option<String>,
    /// The first words of the first input.
    first_input: Option<String>,
    /// The session it branched off from.
    parent: Option<SessionId>,
    created_at: Option<Timestamp>,
    last_event_at: Option<Timestamp>,
    /// `open`, `waiting` for an answer, `completed`, `degraded`, `failed` or `cancelled`; `null` when
    /// there was no turn.
    last_turn: Option<&'static str>,
    /// False if it has calls without a model alone: `last` passes over it where a session is continued.
    is_conversation: bool,
    /// How many events the log has, by its last line.
    events: Option<u64>,
    log_bytes: u64,
    /// The title, or what stands for it.
    #[serde(skip)]
    name: Option<String>,
    /// The process that writes it now.
    writer: Option<Writer>,
    /// Why the log could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Writer {
    pid: u32,
    program: String,
}

pub(crate) fn run(arguments: &ListArgs, app: &App) -> Result<Exit, Failure> {
    let found = app
        .sessions()
        .list()
        .context("cannot list the sessions")
        .or_fail()?;
    let list = SessionList {
        project: app.project.root().to_path_buf(),
        sessions: found.iter().zip(1..).map(SessionEntry::of).collect(),
    };
    let doing = "cannot print the sessions";
    if arguments.json {
        app.output.json(&list).context(doing)?;
        return Ok(Exit::Done);
    }
    if list.sessions.is_empty() {
        app.output.note("no sessions in this project yet");
        return Ok(Exit::Done);
    }
    let ids = app.output.is_verbose();
    let mut headings = vec![">#", "last used", ">events", "state", "about"];
    if ids {
        headings.insert(1, "session");
    }
    let mut table = Table::new(&headings);
    for session in &list.sessions {
        let mut cells = session.cells(app);
        if ids {
            cells.insert(1, session.session_id.to_string());
        }
        table.row(cells);
    }
    app.output.table(&table, Tone::Heading).context(doing)?;
    Ok(Exit::Done)
}

impl SessionEntry {
    /// A session whose log cannot be read is listed too, with the reason.
    fn of((session, number): (&SessionDirectory, usize)) -> Self {
        let (preview, problem) = match session.preview() {
            Ok(preview) => (preview, None),
            Err(error) => (Default::default(), Some(agent_runtime::chain(&error))),
        };
        let is_conversation = preview.is_conversation();
        let name = preview.name();
        Self {
            number,
            session_id: session.id().clone(),
            path: session.path().to_path_buf(),
            title: preview.title,
            first_input: preview.first_input,
            parent: preview
                .created
                .and_then(|created| created.parent)
                .map(|parent| parent.session_id),
            created_at: preview.created_at,
            last_event_at: preview.last_event_at,
            last_turn: preview.last_turn.map(turn_in_words),
            is_conversation,
            events: preview
                .last_sequence
                .map(|sequence| sequence.saturating_add(1)),
            log_bytes: session.log_bytes().unwrap_or(0),
            name,
            writer: session.holder().map(|holder| Writer {
                pid: holder.pid,
                program: holder.program,
            }),
            problem,
        }
    }

    fn cells(&self, app: &App) -> Vec<String> {
        let title = match (&self.problem, &self.parent, &self.name) {
            // The reason is in the JSON, and in what the other commands say; here is no room.
            (Some(_), _, _) => "(cannot be read)".to_owned(),
            (None, _, Some(title)) => title.clone(),
            (None, Some(parent), None) => format!("(fork of {parent})"),
            (None, None, None) => String::new(),
        };
        // A program that has it open says more than how its last turn ended.
        let state = match (&self.writer, self.last_turn) {
            (Some(_), Some("waiting")) => "asking",
            (Some(_), _) => "in use",
            (None, Some("completed")) => "done",
            (None, Some("open")) => "cut off",
            (None, other) => other.unwrap_or_default(),
        };
        let age = self.last_event_at.map(|moment| app.millis_since(moment));
        vec![
            self.number.to_string(),
            age.map(ago).unwrap_or_default(),
            self.events
                .map(|events| events.to_string())
                .unwrap_or_default(),
            state.to_owned(),
            visible(&title),
        ]
    }
}

/// The word for programs.
pub(crate) fn turn_in_words(turn: LastTurn) -> &'static str {
    match turn {
        LastTurn::Open => "open",
        LastTurn::Waiting => "waiting",
        LastTurn::Completed => "completed",
        LastTurn::Degraded => "degraded",
        LastTurn::Failed => "failed",
        LastTurn::Cancelled => "cancelled",
    }
}
