//! `agent respond`: answers a question a run left open.

use agent_log::SessionDirectory;
use agent_protocol::command::{ControlCommand, Peer, PeerKind, RespondAction};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{
    ActionAnswer, ActionDecision, ActionRequired, GrantScope,
};
use agent_protocol::reply::{ControlErrorCode, Reply};
use agent_protocol::{Payload, Timestamp};
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
    /// A session: its number, title, id, or `last`
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

/// Advice for a question that is not found.
const LIST: &str = "`agent actions` lists pending questions; nothing was changed";

/// The answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AnswerChoice {
    Allow,
    Deny,
}

/// A question in the log.
struct Asked {
    action_id: ActionId,
    at: Timestamp,
    required: ActionRequired,
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
    let asked = find(&session, &arguments.action)?;
    let open = app
        .open_at_rest(&session, "agent respond")
        .map_err(|error| {
            let failure = Failure::from(error);
            let doing = format!("cannot answer in session {}", session.id());
            Failure {
                error: failure.error.context(doing),
                ..failure
            }
        })?;
    let (decision, scope) = match (arguments.answer, arguments.for_session) {
        (AnswerChoice::Allow, false) => (ActionDecision::AllowOnce, GrantScope::Once),
        (AnswerChoice::Allow, true) => (ActionDecision::AllowSession, GrantScope::Session),
        (AnswerChoice::Deny, _) => (ActionDecision::Deny, GrantScope::Once),
    };
    let answer = arguments.note.clone().map(|note| ActionAnswer {
        note: Some(note),
        ..ActionAnswer::default()
    });
    let respond = ControlCommand::RespondAction(RespondAction {
        action_id: asked.action_id.clone(),
        decision,
        scope,
        answer,
    });
    let peer = Peer::new(PeerKind::CommandLine, "agent respond");
    let id = session.id();
    match open.handle(respond, &peer) {
        Ok(Reply::Answer(answer)) if answer.reason.is_none() => {}
        // Another terminal was first: between the look and here the question was closed.
        Ok(_) => return Err(no_such(&arguments.action, &session)),
        Err(error) => {
            let code = error.code;
            let failure = Failure::from(error);
            return Err(match code {
                ControlErrorCode::ForeignQuestion => failure.hint(format!(
                    "nothing was answered; `agent run --session {id}` checks the call and asks again"
                )),
                ControlErrorCode::QuestionExpired => Failure::usage(format!(
                    "question {} expired at {} and can no longer be answered",
                    asked.action_id,
                    local_second(asked.required.expires_at(asked.at).unwrap_or(asked.at))
                ))
                .hint(format!(
                    "nothing was run; `agent run --session {id}` resumes and can ask again"
                )),
                _ => failure,
            });
        }
    }
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
    match open.len() {
        1 => Ok(open.swap_remove(0)),
        0 => Err(no_such(asked, session)),
        many => Err(Failure::usage(format!(
            "`{}` matches {many} pending questions",
            visible(asked)
        ))
        .hint(LIST)),
    }
}

fn no_such(asked: &str, session: &SessionDirectory) -> Failure {
    Failure::usage(format!(
        "no pending question `{}` in session {}",
        visible(asked),
        session.id()
    ))
    .hint(LIST)
}
