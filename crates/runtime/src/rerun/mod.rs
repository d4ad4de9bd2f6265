//! Playing the recorded answers of a model again, in a copy of the start state, against the build,
//! the rules and the sandbox of today.
//!
//! [`record`] reads what the model said and what came of each call; [`copy`] makes the throw-away
//! project; [`compare()`] says where then and now differ. The original project is only read.

mod compare;
mod copy;
mod record;

use std::path::Path;
use std::sync::Arc;

use agent_engine::live::NullSink;
use agent_engine::{Control, Interrupt, Model, OnAsk, TurnEnd};
use agent_log::Appended;
use agent_protocol::command::{RespondAction, SubmitTurn};
use agent_protocol::payload::conversation::TurnSource;
use agent_protocol::payload::permission::{ActionDecision, GrantScope};
use agent_protocol::{Event, Payload};
use agent_provider::models::ModelFacts;
use agent_provider::{ModelRef, ScriptedProvider};

use crate::Runtime;
use crate::config::Config;
use crate::error::{OrFail as _, RuntimeError};
use crate::models;
use crate::session::{self, OpenOptions};

pub use compare::{CallComparison, compare};
pub use copy::copy_start;
pub use record::{Recorded, RecordedCall};

/// Plays `recorded` in the project at `directory`, and reads the session that came of it.
pub fn play(
    runtime: &Runtime,
    config: &Config,
    recorded: &Recorded,
    rules: Option<&Path>,
    on_ask: ActionDecision,
    small: Option<Model>,
) -> Result<Recorded, RuntimeError> {
    let wanted = OpenOptions {
        program: "agent rerun".to_owned(),
        rules: rules.map(Path::to_owned),
        serial: true,
        session: None,
        // Where nobody answered anything then, nobody is there now either.
        on_ask: match (recorded.answers().is_empty(), on_ask) {
            (false, _) => OnAsk::Interactive,
            (true, ActionDecision::AllowOnce) => OnAsk::Allow,
            (true, _) => OnAsk::Deny,
        },
    };
    let bench = session::open(runtime, config, &wanted)?;
    let session_id = bench.writer.session_id().to_string();
    let control = Arc::clone(&bench.control);
    let provider = Arc::new(ScriptedProvider::new("recorded", recorded.transcript()));
    let target = ModelRef {
        provider: "recorded".to_owned(),
        model: "scripted".to_owned(),
    };
    let model = models::with_settings(config, provider, &target, &ModelFacts::default());
    let answers = Answers {
        control: Arc::clone(&control),
        given: recorded.answers(),
        otherwise: on_ask,
    };
    let events = bench.writer.listen();
    // The thread ends with the writer, when the session is closed.
    std::thread::spawn(move || answers.serve(&events));
    let closer = bench.closer();
    // One thread: the connection and the engine hand each piece of an answer over without waking
    // anybody. Tools have threads of their own.
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail()?;
    let prompts = recorded.prompts();
    let ended = tokio.block_on(async {
        let mut engine = bench.engine(runtime, config, vec![model], small, Arc::new(NullSink));
        let interrupt = Interrupt::new();
        for prompt in prompts {
            let submit = SubmitTurn {
                text: prompt,
                ..SubmitTurn::default()
            };
            let answer = control.submit(submit, TurnSource::Cli).or_fail()?;
            let Some(turn_id) = answer.turn_id else {
                continue;
            };
            let end = engine.run_turn(turn_id, config.turn_budget(), &interrupt);
            if let TurnEnd::LeftOpen = end.await.or_fail()? {
                break;
            }
        }
        Ok::<(), RuntimeError>(())
    });
    closer.close()?;
    tokio.shutdown_background();
    ended?;
    let replayed = runtime.sessions().resolve(&session_id).or_fail()?;
    Recorded::read(&replayed)
}

/// Answers questions as they were answered then.
struct Answers {
    control: Arc<Control>,
    /// By the call's id then.
    given: Vec<(String, ActionDecision)>,
    otherwise: ActionDecision,
}

impl Answers {
    fn serve(&self, events: &std::sync::mpsc::Receiver<Arc<Appended>>) {
        let mut calls: Vec<(String, String)> = Vec::new();
        for appended in events {
            let Event { scope, payload, .. } = &appended.event;
            let call = scope.tool_call_id.as_ref().map(ToString::to_string);
            match (payload, call) {
                (Payload::ToolIntent(intent), Some(call)) => {
                    calls.extend(intent.provider_call_id.clone().map(|then| (call, then)));
                }
                (Payload::ActionRequired(_), Some(call)) => {
                    let then = calls.iter().find(|(now, _)| *now == call);
                    let given = then.and_then(|(_, then)| {
                        let mut given = self.given.iter();
                        given.find(|(call, _)| call == then)
                    });
                    let decision = given.map_or(self.otherwise, |(_, decision)| *decision);
                    if let Some(action_id) = &scope.action_id {
                        self.control.respond(RespondAction {
                            action_id: action_id.clone(),
                            decision,
                            scope: match decision {
                                ActionDecision::AllowSession => GrantScope::Session,
                                _ => GrantScope::Once,
                            },
                            answer: None,
                        });
                    }
                }
                _ => {}
            }
        }
    }
}
