//! `agent actions`: the questions that wait for an answer.

use agent_history::load_read_models;
use agent_log::SessionDirectory;
use agent_protocol::id::{ActionId, SessionId, ToolCallId};
use agent_protocol::{Payload, Timestamp};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Tone, local_second, visible, visible_text};

/// List pending questions
///
/// With `--on-ask wait`, a run ends at a call that needs approval and leaves the question pending.
/// Answer it with `agent respond`; `agent run --session SESSION` then resumes with exactly that
/// call.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent run --on-ask wait \"fix the failing test\" || agent actions
  agent actions last --json | jq -r '.actions[].action_id'
  agent respond last act_01m7h allow && agent run --session last")]
pub(crate) struct ActionsArgs {
    /// A session: its number, title, id, or `last` [default: all sessions]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Print one JSON object (docs/schemas/actions.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent actions --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionsOutput {
    actions: Vec<OpenAction>,
}

/// A question.
#[derive(Debug, Serialize, JsonSchema)]
struct OpenAction {
    session_id: SessionId,
    action_id: ActionId,
    tool_call_id: Option<ToolCallId>,
    tool_name: Option<String>,
    title: String,
    /// The question in words.
    prompt: String,
    /// What a person should know before answering.
    risk_facts: Vec<String>,
    /// The input as the log holds it, masked.
    input: Option<Value>,
    /// A rule that would allow calls like this one.
    suggested_rule: Option<String>,
    asked_at: Timestamp,
    /// From then on no answer counts.
    expires_at: Option<Timestamp>,
    /// The program that has the session open now, and can be answered there.
    held_by: Option<String>,
}

/// Runs it.
pub(crate) fn run(arguments: &ActionsArgs, app: &App) -> Result<Exit, Failure> {
    let asked: Vec<String> = arguments.session.iter().cloned().collect();
    let mut actions = Vec::new();
    for session in app.chosen_sessions(&asked)? {
        match open_actions(&session) {
            Ok(found) => actions.extend(found),
            Err(failure) if arguments.session.is_some() => return Err(failure),
            // One unreadable log must not hide the questions of the others.
            Err(_) => app
                .output
                .note(&format!("cannot read session {}", session.id())),
        }
    }
    let doing = "cannot print the questions";
    if arguments.json {
        app.output.json(&ActionsOutput { actions }).context(doing)?;
        return Ok(Exit::Done);
    }
    if actions.is_empty() {
        app.output.note("no pending questions");
        return Ok(Exit::Done);
    }
    for action in &actions {
        app.output.print(&action.as_text(app)).context(doing)?;
    }
    Ok(Exit::Done)
}

fn open_actions(session: &SessionDirectory) -> Result<Vec<OpenAction>, Failure> {
    let models = load_read_models(session).or_usage()?.models;
    let pending = models.permission_sandbox.pending;
    if pending.is_empty() {
        return Ok(Vec::new());
    }
    let held_by = session.holder().map(|holder| holder.to_string());
    let mut found = Vec::new();
    for item in session.reader().or_usage()? {
        let Some(event) = item.or_usage()?.event else {
            continue;
        };
        let Payload::ActionRequired(required) = event.payload else {
            continue;
        };
        let Some(action_id) = event.scope.action_id else {
            continue;
        };
        if pending.iter().any(|open| open.action_id == action_id) {
            found.push(OpenAction {
                session_id: session.id().clone(),
                action_id,
                tool_call_id: event.scope.tool_call_id,
                expires_at: required.expires_at(event.timestamp),
                tool_name: required.tool_name,
                title: required.title,
                prompt: required.prompt,
                risk_facts: required.risk_facts,
                input: required.safe_args,
                suggested_rule: required.suggested_rule,
                asked_at: event.timestamp,
                held_by: held_by.clone(),
            });
        }
    }
    Ok(found)
}

impl OpenAction {
    fn expiry(&self, app: &App) -> String {
        let word = |end: Timestamp| match app.host.clock.now() >= end {
            true => "expired",
            false => "expires",
        };
        self.expires_at.map_or_else(String::new, |end| {
            format!(", {} {}", word(end), local_second(end))
        })
    }

    fn as_text(&self, app: &App) -> String {
        let title = app.output.paint(Tone::Heading, &visible(&self.title));
        let mut lines = vec![
            title,
            format!("  {}", visible_text(&self.prompt)),
            format!(
                "  asked {}{}",
                local_second(self.asked_at),
                self.expiry(app)
            ),
        ];
        for fact in &self.risk_facts {
            lines.push(format!("  - {}", visible(fact)));
        }
        match &self.held_by {
            Some(holder) => lines.push(format!(
                "  this session is open in {}: answer there",
                visible(holder)
            )),
            None => lines.push(format!(
                "  agent respond {} {} allow|deny",
                self.session_id, self.action_id
            )),
        }
        lines.join("\n")
    }
}
