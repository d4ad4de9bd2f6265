//! `agent import`: the session file of another program as a session of this project.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_evidence::import::{SourceClock, read, write};
use agent_protocol::id::SessionId;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use agent_text::counted;

/// The largest file that is read; session files have some megabytes.
const MOST_BYTES: u64 = 512 << 20;

/// The longest first line of a file that is looked at beside it.
const MOST_LINE: u64 = 16 << 20;

const EXAMPLES: &str = "Examples:
  agent import ~/.claude/projects/-home-me-app/0205f437.jsonl
  agent import ~/.codex/sessions/2025/10/29/rollout-019a2d7a.jsonl
  agent replay last
  agent permissions test last          how often would agent have asked?";

/// Import a Claude Code or Codex session file
///
/// You can then replay, audit and report on the session like any other, as far as its facts go. It
/// is marked as imported; what the other program did not record, such as who allowed a call or how
/// it was confined, is shown as unknown. The file is only read, as are the session's sub-agent
/// files next to it. Nothing in it is ever run.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The session file; the format is detected
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
    subagents: u64,
    /// Calls of sub-agents; they are among the calls.
    subagent_calls: u64,
    events: u64,
    /// Lines that were left out, by what they are.
    left_out: BTreeMap<String, u64>,
}

pub(crate) fn run(arguments: &ImportArgs, app: &App) -> Result<Exit, Failure> {
    let path = app.host.cwd.join(&arguments.file);
    let doing = || format!("cannot import `{}`", path.display());
    let text = read_text(&path).with_context(doing).or_usage()?;
    let side_files = side_files(&path);
    let record = read(&text, &side_files, app.project.root())
        .with_context(doing)
        .or_usage()?;
    let clock = SourceClock::new();
    let mut env = app.session_env("agent import")?;
    env.clock = Arc::clone(&clock) as _;
    let imported = write(&record, &app.sessions(), env, &clock)
        .with_context(doing)
        .or_fail()?;
    let output = ImportOutput {
        session_id: imported.session_id,
        program: record.program.as_str(),
        version: record.version,
        turns: imported.turns,
        calls: imported.calls,
        subagents: imported.subagents,
        subagent_calls: imported.subagent_calls,
        events: imported.events,
        left_out: imported.left_out,
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
    if output.subagents > 0 {
        text.push_str(&format!(
            "{} of {}\n",
            counted(output.subagent_calls, "call"),
            counted(output.subagents, "sub-agent")
        ));
    }
    if left_out > 0 {
        text.push_str(&format!(
            "skipped: {} (see the last events of the session)\n",
            counted(left_out, "record")
        ));
    }
    text.push_str(&format!("agent replay {}\n", output.session_id));
    app.output.print(&text).context("cannot print the result")?;
    Ok(Exit::Done)
}

/// A file whole, if it is not too large.
fn read_text(path: &Path) -> io::Result<String> {
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("the file is too large"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The records of a Claude Code session's sub-agents: `SESSION/subagents/agent-*.jsonl`, and in some
/// versions `agent-*.jsonl` beside the session's file. What cannot be read is not there.
fn side_files(path: &Path) -> Vec<String> {
    let (Some(session), Some(parent)) = (path.file_stem(), path.parent()) else {
        return Vec::new();
    };
    let own = parent.join(session).join("subagents");
    let is_own = |file: &PathBuf| {
        file.parent() == Some(&own) || names_session(file, &session.to_string_lossy())
    };
    let mut files: Vec<PathBuf> = [own.as_path(), parent]
        .iter()
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("agent-") && name.ends_with(".jsonl") && file != path
        })
        .filter(is_own)
        .collect();
    files.sort();
    files
        .iter()
        .filter_map(|file| read_text(file).ok())
        .collect()
}

/// True if the first line of a file says that it belongs to this session.
fn names_session(file: &Path, session: &str) -> bool {
    let Ok(file) = fs::File::open(file) else {
        return false;
    };
    let mut line = Vec::new();
    let read = io::BufReader::new(file.take(MOST_LINE)).read_until(b'\n', &mut line);
    let first: Option<serde_json::Value> = serde_json::from_slice(&line).ok();
    let named = first
        .as_ref()
        .and_then(|first| first.get("sessionId")?.as_str());
    read.is_ok() && named == Some(session)
}
