//! `agent sessions size`: how much room the sessions take, the largest first.

use agent_protocol::id::SessionId;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Table, Tone};

/// Show the disk usage of sessions, largest first
#[derive(Args, Debug)]
pub(crate) struct SizeArgs {
    /// Only these sessions
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
    /// Print one JSON object (docs/schemas/sessions-size.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent sessions size --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionSizes {
    total_bytes: u64,
    /// The largest first.
    sessions: Vec<SizeEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SizeEntry {
    session_id: SessionId,
    total_bytes: u64,
    log_bytes: u64,
    artifact_bytes: u64,
    artifact_count: u64,
    /// Read models that can be computed again.
    cache_bytes: u64,
}

pub(super) fn run(arguments: &SizeArgs, app: &App) -> Result<Exit, Failure> {
    let mut sessions = Vec::new();
    for session in app.chosen_sessions(&arguments.sessions)? {
        let size = session
            .size()
            .with_context(|| format!("cannot measure session {}", session.id()))
            .or_fail()?;
        sessions.push(SizeEntry {
            session_id: session.id().clone(),
            total_bytes: size.total(),
            log_bytes: size.log_bytes,
            artifact_bytes: size.artifact_bytes,
            artifact_count: size.artifact_count,
            cache_bytes: size.cache_bytes,
        });
    }
    sessions.sort_by_key(|session| std::cmp::Reverse(session.total_bytes));
    let sizes = SessionSizes {
        total_bytes: sessions.iter().map(|session| session.total_bytes).sum(),
        sessions,
    };
    let doing = "cannot print the sizes";
    if arguments.json {
        app.output.json(&sizes).context(doing)?;
        return Ok(Exit::Done);
    }
    let headings = [
        "session",
        ">total",
        ">log",
        ">artifacts",
        ">number",
        ">cache",
    ];
    let mut table = Table::new(&headings);
    for entry in &sizes.sessions {
        table.row([
            entry.session_id.to_string(),
            agent_text::words::bytes(entry.total_bytes),
            agent_text::words::bytes(entry.log_bytes),
            agent_text::words::bytes(entry.artifact_bytes),
            entry.artifact_count.to_string(),
            agent_text::words::bytes(entry.cache_bytes),
        ]);
    }
    table.row([
        "all".into(),
        agent_text::words::bytes(sizes.total_bytes),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ]);
    app.output.table(&table, Tone::Heading).context(doing)?;
    Ok(Exit::Done)
}
