//! `agent fork`: a new session that begins where another one was.

use agent_log::{SessionDirectory, SessionWriter};
use agent_protocol::id::SessionId;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::config::{self, Config, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::own_name::in_own_name;

/// Create a new session from a past one, at any of its events
///
/// The new session starts with the old conversation up to that event. It is self-contained: the old
/// session is not changed, and you can delete it. Pending questions, queued messages and
/// permissions are not copied, and no files change; use `agent undo` for that.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent fork last               continue from the end; the old session stays
  agent fork 01m7h --at 120     continue as if event 120 had been the last
  id=$(agent fork last --json | jq -r .session_id)
  agent run --session \"$id\" \"try it another way\"")]
pub(crate) struct ForkArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Last event to include (`agent export` shows the sequence numbers)
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// Print one JSON object (docs/schemas/fork.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent fork --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ForkOutput {
    session_id: SessionId,
    parent: Parent,
}

/// Where it came from.
#[derive(Debug, Serialize, JsonSchema)]
struct Parent {
    session_id: SessionId,
    /// The last event that came along.
    sequence: u64,
}

/// Makes the new session, with `parent` up to and with the event `at`.
pub(crate) fn branch(
    app: &App,
    config: &Config,
    parent: &SessionDirectory,
    at: Option<u64>,
) -> Result<SessionWriter, Failure> {
    let title = parent.preview().ok().and_then(|preview| preview.title);
    let created = agent_protocol::payload::conversation::SessionCreated {
        title,
        ..agent_runtime::session::created(app, config.permissions.mode.value)
    };
    let env = app.session_env_with(config, "agent fork")?;
    agent_log::fork::fork(parent, at, &app.sessions(), created, env)
        .with_context(|| format!("cannot fork session {}", parent.id()))
        .or_usage()
}

/// Runs it.
pub(crate) fn run(arguments: &ForkArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let parent = app.session(&arguments.session)?;
    let writer = branch(app, &config, &parent, arguments.at)?;
    let session_id = writer.session_id().clone();
    let begun = app.session(session_id.as_str())?.preview().or_fail()?;
    let sequence = begun
        .created
        .and_then(|created| created.parent)
        .map_or(0, |parent| parent.sequence);
    let doing = "cannot print the fork";
    if arguments.json {
        let output = ForkOutput {
            session_id,
            parent: Parent {
                session_id: parent.id().clone(),
                sequence,
            },
        };
        app.output.json(&output).context(doing)?;
        return Ok(Exit::Done);
    }
    let text = format!(
        "{session_id}\nforked after event {sequence} of {}\n\nto continue:\n  agent resume \
         {session_id}\n  agent run --session {session_id} PROMPT",
        parent.id()
    );
    app.output.print(&in_own_name(&text)).context(doing)?;
    Ok(Exit::Done)
}
