//! `agent respond`: answers a question a run left open.

use agent_log::{SessionDirectory, SessionWriter};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{
    ActionAnswer, ActionDecision, ActionRequired, ActionResolved, DecidedBy, GrantScope,
};
use agent_protocol::{Payload, Refs, Scope, Timestamp};
use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{local_second, visible};

/// Answer a pending question
///
/// Records the answer in the session; nothing runs yet. `agent run --session SESSION` (or `agent
/// resume`) resumes with exactly that call: it runs if you allowed it and nothing it depends on has
/// changed, and is refused otherwise. An expired question (`permissions.ask_timeout`) cannot be
/// answered.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent actions                              list pending questions
  agent respond last act_01m7h allow         allow this once
  agent respond last act_01m7h allow --for-session
  agent respond last act_01m7h deny --note \"use the staging server\"
  agent run --session last                   resume")]
pub(crate) struct RespondArgs {
    /// Session id, a unique prefix of it, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Id of the question, or a unique prefix of it
    #[arg(value_name = "ACTION")]
    action: String,
    /// The answer
    #[arg(value_name = "ANSWER")]
    answer: AnswerChoice,
    /// A note for the model
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Allow exactly the same call for the rest of the session
    #[arg(long)]
    for_session: bool,
}

/// What can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AnswerChoice {
    Allow,
    Deny,
}

/// A question, and where it stands in the log.
struct Asked {
    action_id: ActionId,
    sequence: u64,
    scope: Scope,
    at: Timestamp,
    required: ActionRequired,
}

/// What is said to a question; no, where nothing is.
struct Reply {
    decision: ActionDecision,
    scope: GrantScope,
    note: Option<String>,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            decision: ActionDecision::Deny,
            scope: GrantScope::Once,
            note: None,
        }
    }
}

impl Asked {
    /// Records what became of the question; it survives a power cut once this returns.
    fn resolve(
        &self,
        writer: &SessionWriter,
        decided_by: DecidedBy,
        reply: Reply,
    ) -> Result<(), Failure> {
        let resolved = ActionResolved {
            decision: reply.decision,
            decided_by,
            payload: reply.note.map(|note| ActionAnswer {
                note: Some(note),
                ..ActionAnswer::default()
            }),
            scope: reply.scope,
            latency_ms: writer.now().millis_since(self.at),
        };
        writer
            .append(&self.scope, resolved, Refs::default())
            .or_fail()?;
        writer.sync_and_anchor().or_fail()
    }
}

/// Runs it.
pub(crate) fn run(arguments: &RespondArgs, app: &App) -> Result<Exit, Failure> {
    if arguments.for_session && arguments.answer == AnswerChoice::Deny {
        return Err(Failure::usage(
            "--for-session needs `allow`; nothing was answered",
        ));
    }
    let session = app.session(&arguments.session)?;
    // Looked up first, so that a wrong id changes nothing.
    find(&session, &arguments.action)?;
    let opened = session
        .open_writer(app.session_env("agent respond")?)
        .with_context(|| format!("cannot answer in session {}", session.id()))
        .or_usage()?;
    // And again under the lease: nobody else answers from here on.
    let asked = find(&session, &arguments.action)?;
    if !opened.own.contains(asked.sequence) {
        let hint = format!(
            "nothing was answered; `agent run --session {}` checks the call and asks again",
            session.id()
        );
        return Err(Failure::usage(format!(
            "question {} was not asked on this machine: the log was written elsewhere and cannot \
             be trusted",
            asked.action_id
        ))
        .hint(hint));
    }
    let now = opened.writer.now();
    let expiry = asked.required.expires_at(asked.at);
    if let Some(end) = expiry.filter(|end| now >= *end) {
        // The question is closed by what happened to it, so that nothing waits for it any more.
        asked.resolve(&opened.writer, DecidedBy::Timeout, Reply::default())?;
        let hint = format!(
            "nothing was run; `agent run --session {}` resumes and can ask again",
            session.id()
        );
        return Err(Failure::usage(format!(
            "question {} expired at {} and can no longer be answered",
            asked.action_id,
            local_second(end)
        ))
        .hint(hint));
    }
    let (decision, scope) = match (arguments.answer, arguments.for_session) {
        (AnswerChoice::Allow, false) => (ActionDecision::AllowOnce, GrantScope::Once),
        (AnswerChoice::Allow, true) => (ActionDecision::AllowSession, GrantScope::Session),
        (AnswerChoice::Deny, _) => (ActionDecision::Deny, GrantScope::Once),
    };
    let reply = Reply {
        decision,
        scope,
        note: arguments.note.clone(),
    };
    asked.resolve(&opened.writer, DecidedBy::User, reply)?;
    let word = match arguments.answer {
        AnswerChoice::Allow => "allowed",
        AnswerChoice::Deny => "denied",
    };
    let text = format!(
        "{word}: {} ({})\nnothing was run; resume with: agent run --session {}",
        visible(&asked.required.title),
        asked.action_id,
        session.id()
    );
    app.output.print(&text).context("cannot print the answer")?;
    Ok(Exit::Done)
}

/// The open question that `asked` names.
fn find(session: &SessionDirectory, asked: &str) -> Result<Asked, Failure> {
    let mut open: Vec<Asked> = Vec::new();
    for item in session.reader().or_usage()? {
        let Some(event) = item.or_usage()?.event else {
            continue;
        };
        let Some(action_id) = event.scope.action_id.clone() else {
            continue;
        };
        match event.payload {
            Payload::ActionRequired(required) => open.push(Asked {
                action_id,
                sequence: event.sequence,
                scope: Scope {
                    causation_id: Some(event.event_id),
                    ..event.scope
                },
                at: event.timestamp,
                required,
            }),
            Payload::ActionResolved(_) => open.retain(|known| known.action_id != action_id),
            _ => {}
        }
    }
    open.retain(|known| {
        let id = known.action_id.as_str();
        let bare = id.split_once('_').map_or(id, |(_, bare)| bare);
        !asked.is_empty() && (id.starts_with(asked) || bare.starts_with(asked))
    });
    let hint = "`agent actions` lists pending questions; nothing was changed";
    match open.len() {
        1 => Ok(open.swap_remove(0)),
        0 => Err(Failure::usage(format!(
            "no pending question `{}` in session {}",
            visible(asked),
            session.id()
        ))
        .hint(hint)),
        many => Err(Failure::usage(format!(
            "`{}` matches {many} pending questions",
            visible(asked)
        ))
        .hint(hint)),
    }
}
