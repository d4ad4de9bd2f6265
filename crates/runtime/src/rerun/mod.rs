//! Playing the recorded answers of a model again, in a copy of the start state, against the build,
//! the rules and the sandbox of today.
//!
//! `record` reads what the model said and what came of each call; `copy` makes the throw-away
//! project; [`compare()`] says where then and now differ. The original project is only read.

mod compare;
mod copy;
mod record;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use agent_engine::{OnAsk, TurnEnd};
use agent_log::Appended;
use agent_protocol::command::{ControlCommand, Peer, PeerKind, RespondAction, SubmitTurn};
use agent_protocol::payload::permission::{ActionDecision, GrantScope};
use agent_protocol::reply::ControlError;
use agent_protocol::{Event, Payload};
use agent_provider::models::ModelFacts;
use agent_provider::{ModelRef, ScriptedProvider};

use crate::Runtime;
use crate::config::Config;
use crate::error::{OrFail as _, RuntimeError};
use crate::models::{self, Chosen};
use crate::session::{OpenOptions, Session, SessionModels};

pub use compare::{CallComparison, compare};
pub use copy::copy_start;
pub use record::{Recorded, RecordedCall};

/// Plays `recorded` in the project at `directory`, and reads the session that came of it.
pub fn play(
    runtime: &Runtime,
    config: &Arc<Config>,
    recorded: &Recorded,
    rules: Option<&Path>,
    on_ask: ActionDecision,
) -> Result<(Recorded, Vec<String>), RuntimeError> {
    let provider = Arc::new(ScriptedProvider::new("recorded", recorded.transcript()));
    let target = ModelRef {
        provider: "recorded".to_owned(),
        model: "scripted".to_owned(),
    };
    let model = models::with_settings(config, provider, &target, &ModelFacts::default());
    let session = Arc::new(runtime.open(OpenOptions {
        program: "agent rerun".to_owned(),
        config: Some(Arc::clone(config)),
        rules: rules.map(Path::to_owned),
        serial: true,
        // Where nobody answered anything then, nobody is there now either.
        on_ask: match (recorded.answers().is_empty(), on_ask) {
            (false, _) => OnAsk::Interactive,
            (true, ActionDecision::AllowOnce) => OnAsk::Allow,
            (true, _) => OnAsk::Deny,
        },
        models: SessionModels::Given(Chosen {
            models: vec![model],
            facts: Vec::new(),
        }),
        ..OpenOptions::default()
    })?);
    let answers = Mutex::new(Answers {
        session: Arc::downgrade(&session),
        peer: peer(),
        given: recorded.answers(),
        otherwise: on_ask,
        calls: Vec::new(),
    });
    session.subscribe(move |appended| {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.take(appended)
    });
    let played = turns(&session, recorded);
    session.close()?;
    played.or_fail()?;
    let notes = session.notes().to_vec();
    Ok((Recorded::read(session.directory())?, notes))
}

fn peer() -> Peer {
    Peer::new(PeerKind::CommandLine, "agent rerun")
}

fn turns(session: &Session, recorded: &Recorded) -> Result<(), ControlError> {
    for prompt in recorded.prompts() {
        let submit = SubmitTurn {
            text: prompt,
            ..SubmitTurn::default()
        };
        session.handle(ControlCommand::SubmitTurn(submit), &peer())?;
        if let Some(TurnEnd::LeftOpen) = session.wait()?.end {
            break;
        }
    }
    Ok(())
}

/// Answers questions as they were answered then.
struct Answers {
    session: Weak<Session>,
    peer: Peer,
    /// By the call's id then.
    given: Vec<(String, ActionDecision)>,
    otherwise: ActionDecision,
    /// Calls, with the id each had then.
    calls: Vec<(String, String)>,
}

impl Answers {
    /// Answers the question in an event, if it is one; `false` when the session is gone.
    fn take(&mut self, appended: &Appended) -> bool {
        let Event { scope, payload, .. } = &appended.event;
        let call = scope.tool_call_id.as_ref().map(ToString::to_string);
        match (payload, call) {
            (Payload::ToolIntent(intent), Some(call)) => {
                let then = intent.provider_call_id.clone();
                self.calls.extend(then.map(|then| (call, then)));
            }
            (Payload::ActionRequired(_), Some(call)) => {
                let then = self.calls.iter().find(|(now, _)| *now == call);
                let given = then.and_then(|(_, then)| {
                    let mut given = self.given.iter();
                    given.find(|(call, _)| call == then)
                });
                let decision = given.map_or(self.otherwise, |(_, decision)| *decision);
                let (Some(action_id), Some(session)) = (&scope.action_id, self.session.upgrade())
                else {
                    return false;
                };
                let answer = ControlCommand::RespondAction(RespondAction {
                    action_id: action_id.clone(),
                    decision,
                    scope: match decision {
                        ActionDecision::AllowSession => GrantScope::Session,
                        _ => GrantScope::Once,
                    },
                    answer: None,
                });
                // The question was registered before it was recorded, so this finds it.
                let _ = session.handle(answer, &self.peer);
            }
            _ => {}
        }
        true
    }
}
