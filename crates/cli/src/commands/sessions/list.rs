//! `agent sessions list`: the sessions of this project, the one written last first.

use std::path::PathBuf;

use agent_log::SessionDirectory;
use agent_protocol::Timestamp;
use agent_protocol::id::SessionId;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Table, Tone, local_minute, visible};

/// List the sessions of this project, newest first
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
    /// How many events the log has, by its last line.
    events: Option<u64>,
    log_bytes: u64,
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

pub(super) fn run(arguments: &ListArgs, app: &App) -> Result<Exit, Failure> {
    let found = app
        .sessions()
        .list()
        .context("cannot list the sessions")
        .or_fail()?;
    let list = SessionList {
        project: app.project.root().to_path_buf(),
        sessions: found.iter().map(SessionEntry::of).collect(),
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
    let mut table = Table::new(&["session", "last event", ">events", "about"]);
    for session in &list.sessions {
        table.row(session.cells());
    }
    app.output.table(&table, Tone::Heading).context(doing)?;
    Ok(Exit::Done)
}

impl SessionEntry {
    /// A session whose log cannot be read is listed too, with the reason.
    fn of(session: &SessionDirectory) -> Self {
        let (preview, problem) = match session.preview() {
            Ok(preview) => (preview, None),
            Err(error) => (Default::default(), Some(agent_runtime::chain(&error))),
        };
        Self {
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
            events: preview
                .last_sequence
                .map(|sequence| sequence.saturating_add(1)),
            log_bytes: session.log_bytes().unwrap_or(0),
            writer: session.holder().map(|holder| Writer {
                pid: holder.pid,
                program: holder.program,
            }),
            problem,
        }
    }

    fn cells(&self) -> [String; 4] {
        let named = self.title.clone().or_else(|| self.first_input.clone());
        let title = match (&self.problem, &self.parent, named) {
            // The reason is in the JSON, and in what the other commands say; here is no room.
            (Some(_), _, _) => "(cannot be read)".to_owned(),
            (None, _, Some(title)) => title,
            (None, Some(parent), None) => format!("(fork of {parent})"),
            (None, None, None) => String::new(),
        };
        let title = match &self.writer {
            Some(writer) => format!("(open in pid {}) {title}", writer.pid),
            None => title,
        };
        [
            self.session_id.to_string(),
            self.last_event_at.map(local_minute).unwrap_or_default(),
            self.events
                .map(|events| events.to_string())
                .unwrap_or_default(),
            visible(&title),
        ]
    }
}
