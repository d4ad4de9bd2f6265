//! `agent import`: the session file of another program as a session of this project.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use agent_protocol::id::SessionId;
use agent_session::import::{SourceClock, read, write};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::counted;

/// The largest file that is read; session files have some megabytes.
const MOST_BYTES: u64 = 512 << 20;

const EXAMPLES: &str = "Examples:
  agent import ~/.claude/projects/-home-me-app/0205f437-f816-4704-b6f3-9cf7b060888c.jsonl
  agent import ~/.codex/sessions/2025/10/29/rollout-2025-10-29T00-59-38-019a2d7a.jsonl
  agent replay last";

/// Import a Claude Code or Codex session file
///
/// The session can then be replayed, explained, audited and counted as far as its facts go. It is
/// marked as imported; what the other program did not record, such as who allowed a call and what
/// confined it, is unknown. The file itself is only read.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The file; its format is recognised
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Print one JSON object (docs/schemas/import.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent import --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ImportOutput {
    session_id: SessionId,
    /// `claude-code` or `codex`.
    program: &'static str,
    version: Option<String>,
    turns: u64,
    calls: u64,
    events: u64,
    /// Lines that were left out, by what they are.
    left_out: BTreeMap<String, u64>,
}

pub(crate) fn run(arguments: &ImportArgs, app: &App) -> Result<Exit, Failure> {
    let path = app.host.cwd.join(&arguments.file);
    let doing = || format!("cannot import `{}`", path.display());
    let file = fs::File::open(&path).with_context(doing).or_usage()?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(doing)
        .or_usage()?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Failure::usage(format!("{}: it is too large", doing())));
    }
    let record = read(&String::from_utf8_lossy(&bytes))
        .with_context(doing)
        .or_usage()?;
    let clock = SourceClock::new();
    let mut rim = app.rim("agent import")?;
    rim.clock = Arc::clone(&clock) as _;
    let imported = write(&record, &app.sessions(), rim, &clock)
        .with_context(doing)
        .or_fail()?;
    let output = ImportOutput {
        session_id: imported.session_id,
        program: record.program.as_str(),
        version: record.version,
        turns: imported.turns,
        calls: imported.calls,
        events: imported.events,
        left_out: record.left_out,
    };
    if arguments.json {
        app.output
            .json(&output)
            .context("cannot print the result")?;
        return Ok(Exit::Done);
    }
    let left_out: u64 = output.left_out.values().sum();
    let mut text = format!(
        "imported {} from {}: {}, {}\n",
        output.session_id,
        output.program,
        counted(output.turns, "turn"),
        counted(output.calls, "call")
    );
    if left_out > 0 {
        text.push_str(&format!(
            "left out: {} (the session's last events name them)\n",
            counted(left_out, "record")
        ));
    }
    text.push_str(&format!("agent replay {}\n", output.session_id));
    app.output.print(&text).context("cannot print the result")?;
    Ok(Exit::Done)
}
