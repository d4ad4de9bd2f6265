//! What a session's log says about the model's answers and what came of each call.

use std::collections::HashMap;

use crate::error::Context as _;
use agent_history::imported_from;
use agent_log::{ArtifactStore, SessionDirectory};
use agent_protocol::id::{ArtifactId, ModelRequestId, TurnId};
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, DecisionSource, Effect, PermissionResolved,
};
use agent_protocol::status::Mode;
use agent_protocol::{Code, Event, Payload};
use agent_provider::Transcript;
use agent_provider::dialect::scripted::{ScriptedCall, Turn};
use serde_json::Value;

use crate::error::{OrFail as _, RuntimeError};

/// Texts and inputs larger than this are not played again.
const LIMIT: u64 = 64 << 20;

/// What a session's model said, and what came of it.
#[derive(Debug, Default)]
pub struct Recorded {
    turns: Vec<RecordedTurn>,
    calls: Vec<RecordedCall>,
    /// Of the last decision.
    pub mode: Option<Mode>,
    /// The program whose record the session was made from, if it was imported.
    pub imported_from: Option<String>,
    /// Answers that served something else than a turn.
    pub compactions: u64,
    compacting: bool,
}

#[derive(Debug, Default)]
struct RecordedTurn {
    turn_id: Option<TurnId>,
    prompt: String,
    answers: Vec<RecordedAnswer>,
}

#[derive(Debug, Default)]
struct RecordedAnswer {
    request: Option<ModelRequestId>,
    text: String,
    /// Places in the list of calls.
    calls: Vec<usize>,
}

/// One call of the model.
#[derive(Clone, Debug, Default)]
pub struct RecordedCall {
    pub id: String,
    /// The id the model's answer gave it.
    pub provider_call_id: Option<String>,
    pub tool: String,
    pub input: Value,
    pub decision: Option<Effect>,
    pub reason: String,
    pub resolved: Option<PermissionResolved>,
    answer: Option<ActionDecision>,
    pub code: Option<Code>,
    pub text: Option<String>,
}

impl RecordedCall {
    /// Whether a person decided it.
    pub fn by_a_person(&self) -> bool {
        self.answer.is_some()
            || self
                .resolved
                .as_ref()
                .is_some_and(|resolved| resolved.decision_source == DecisionSource::Human)
    }

    /// What was decided in the end.
    pub fn outcome(&self) -> Option<Effect> {
        let resolved = self.resolved.as_ref().map(|resolved| resolved.decision);
        resolved.or(self.decision)
    }
}

impl Recorded {
    pub fn read(session: &SessionDirectory) -> Result<Self, RuntimeError> {
        let doing = || format!("cannot read session {}", session.id());
        let artifacts = session.artifacts().with_context(doing).or_usage()?;
        let mut recorded = Self::default();
        let mut places = HashMap::new();
        for item in session.reader().with_context(doing).or_usage()? {
            if let Some(event) = item.with_context(doing).or_usage()?.event {
                recorded.take(&event, &artifacts, &mut places);
            }
        }
        Ok(recorded)
    }

    pub fn calls(&self) -> &[RecordedCall] {
        &self.calls
    }

    /// What the user asked for, turn by turn.
    pub fn prompts(&self) -> Vec<String> {
        let turns = self.turns.iter().filter(|turn| !turn.answers.is_empty());
        turns.map(|turn| turn.prompt.clone()).collect()
    }

    /// The answers as the scripted model plays them. Calls bear the ids they had then.
    pub fn transcript(&self) -> Transcript {
        let mut turns = Vec::new();
        for turn in self.turns.iter().filter(|turn| !turn.answers.is_empty()) {
            for answer in &turn.answers {
                let calls = answer.calls.iter().map(|index| &self.calls[*index]);
                turns.push(Turn {
                    text: answer.text.clone(),
                    tool_calls: calls
                        .map(|call| ScriptedCall {
                            id: Some(call.id.clone()),
                            name: call.tool.clone(),
                            arguments: call.input.clone(),
                        })
                        .collect(),
                    ..Turn::default()
                });
            }
            // A turn that was cut off has no last word; the loop needs one.
            if turn
                .answers
                .last()
                .is_some_and(|last| !last.calls.is_empty())
            {
                turns.push(Turn {
                    text: "(the recorded turn ends here)".to_owned(),
                    ..Turn::default()
                });
            }
        }
        Transcript { turns }
    }

    /// What people answered, by call.
    pub fn answers(&self) -> Vec<(String, ActionDecision)> {
        let answered = self.calls.iter();
        answered
            .filter_map(|call| Some((call.id.clone(), call.answer?)))
            .collect()
    }

    fn take(
        &mut self,
        event: &Event,
        artifacts: &ArtifactStore,
        places: &mut HashMap<String, usize>,
    ) {
        let text = |text: &Option<String>, id: &Option<ArtifactId>| {
            text.clone().or_else(|| {
                let bytes = artifacts.read(id.as_ref()?, LIMIT).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            })
        };
        let call = event.scope.tool_call_id.as_ref().map(ToString::to_string);
        match &event.payload {
            Payload::SessionCreated(created) => {
                self.imported_from = imported_from(created).map(str::to_owned);
            }
            Payload::TurnSubmitted(submitted) => {
                let prompt = text(&submitted.text, &submitted.input_ref).unwrap_or_default();
                self.turn(event).prompt = prompt;
                return;
            }
            Payload::ContextCompactionStarted(_) => self.compacting = true,
            Payload::ContextCompactionCompleted(_) | Payload::ContextCompactionFailed(_) => {
                self.compacting = false;
            }
            Payload::ModelCompleted(_) if self.compacting => self.compactions += 1,
            Payload::ModelCompleted(completed) => {
                let said = text(&completed.text, &completed.text_ref).unwrap_or_default();
                let request = Some(completed.model_request_id.clone());
                self.answer(event, request.as_ref()).text = said;
            }
            _ => {}
        }
        let Some(id) = call else {
            return;
        };
        if let Payload::ToolIntent(intent) = &event.payload {
            let stored =
                |id: &ArtifactId| serde_json::from_slice(&artifacts.read(id, LIMIT).ok()?).ok();
            let input = intent
                .input()
                .cloned()
                .or_else(|| stored(intent.input_ref()?));
            let index = self.calls.len();
            self.calls.push(RecordedCall {
                id: id.clone(),
                provider_call_id: intent.provider_call_id.clone(),
                tool: intent.tool_name.clone(),
                input: input.unwrap_or_default(),
                ..RecordedCall::default()
            });
            places.insert(id, index);
            let request = intent.model_request_id.as_ref();
            self.answer(event, request).calls.push(index);
            return;
        }
        let Some(call) = places.get(&id).map(|index| &mut self.calls[*index]) else {
            return;
        };
        match &event.payload {
            Payload::PermissionEvaluated(evaluated) => {
                self.mode = Some(evaluated.mode);
                call.decision = Some(evaluated.decision);
                call.reason.clone_from(&evaluated.reason);
            }
            Payload::PermissionResolved(resolved) => call.resolved = Some(resolved.clone()),
            Payload::ActionResolved(resolved) if resolved.decided_by == DecidedBy::User => {
                call.answer = Some(resolved.decision);
            }
            Payload::ToolObservation(seen) => {
                call.code = Some(seen.code);
                call.text = text(&seen.model_text, &seen.model_text_ref);
            }
            _ => {}
        }
    }

    fn turn(&mut self, event: &Event) -> &mut RecordedTurn {
        let turn_id = event.scope.turn_id.clone();
        let found = self.turns.iter().rposition(|turn| turn.turn_id == turn_id);
        let index = found.unwrap_or_else(|| {
            self.turns.push(RecordedTurn {
                turn_id,
                ..RecordedTurn::default()
            });
            self.turns.len() - 1
        });
        &mut self.turns[index]
    }

    /// The answer of a model request. A call that no model asked for is an answer of its own.
    fn answer(&mut self, event: &Event, request: Option<&ModelRequestId>) -> &mut RecordedAnswer {
        let answers = &mut self.turn(event).answers;
        let found = answers
            .iter()
            .rposition(|answer| answer.request.is_some() && answer.request.as_ref() == request);
        let index = found.unwrap_or_else(|| {
            answers.push(RecordedAnswer {
                request: request.cloned(),
                ..RecordedAnswer::default()
            });
            answers.len() - 1
        });
        &mut answers[index]
    }
}
