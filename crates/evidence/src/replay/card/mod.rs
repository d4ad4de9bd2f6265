//! The audit card of one call: the questions that decide whether it can be answered for, each with
//! what the log says, or `unknown`.

mod answers;

use agent_log::{ArtifactStore, SessionDirectory};
use agent_protocol::id::{ArtifactId, ToolCallId};
use agent_protocol::payload::model::{ContextResolved, ModelRequested};
use agent_protocol::payload::permission::{
    ActionResolved, PermissionEvaluated, PermissionResolved,
};
use agent_protocol::payload::process::{ProcessCompleted, ProcessTerminated, SandboxApplied};
use agent_protocol::payload::tool::{
    CatalogEntry, OutputTruncated, ToolArgs, ToolFailed, ToolIntent, ToolObservation, ToolResult,
    ToolStarted, ToolValidation,
};
use agent_protocol::{Event, Payload};
use serde_json::{Map, Value};

use super::read::{Range, ReplayError};

/// Why there is no card.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("there is no call `{asked}` in session {session}")]
    NotFound { asked: String, session: String },
    #[error("`{asked}` is the beginning of {found} calls of session {session}")]
    Ambiguous {
        asked: String,
        session: String,
        found: usize,
    },
}

/// One question with what the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// A stable word for programs.
    pub key: &'static str,
    pub question: &'static str,
    /// Missing when the log does not tell.
    pub answer: Option<String>,
    /// The events that say so.
    pub events: Vec<u64>,
}

/// The card of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    pub tool_call_id: ToolCallId,
    pub tool_name: String,
    /// The fourteen questions a hosted tool call has to answer, in their order.
    pub answers: Vec<Answer>,
    /// What an auditor asks besides.
    pub more: Vec<Answer>,
}

/// Gathers what a log says about one call.
#[derive(Debug, Clone)]
pub struct Cards {
    call: ToolCallId,
    events: Vec<(u64, String)>,
    catalog: Option<Found<Catalog>>,
    context: Option<Found<ContextResolved>>,
    request: Option<Found<ModelRequested>>,
    asked_by: Option<Found<ModelRequested>>,
    saw: Option<Found<ContextResolved>>,
    intent: Option<Found<ToolIntent>>,
    validation: Option<Found<ToolValidation>>,
    args: Option<Found<ToolArgs>>,
    evaluated: Option<Found<PermissionEvaluated>>,
    answered: Option<Found<ActionResolved>>,
    asked: Option<u64>,
    resolved: Option<Found<PermissionResolved>>,
    started: Option<Found<ToolStarted>>,
    sandbox: Option<Found<SandboxApplied>>,
    violations: Vec<u64>,
    command: Option<Found<String>>,
    completed: Option<Found<ProcessCompleted>>,
    terminated: Option<Found<ProcessTerminated>>,
    truncated: Option<Found<OutputTruncated>>,
    result: Option<Found<ToolResult>>,
    failed: Option<Found<ToolFailed>>,
    observation: Option<Found<ToolObservation>>,
    next_request: Option<Found<u64>>,
}

#[derive(Debug, Clone)]
struct Found<T> {
    sequence: u64,
    what: T,
}

#[derive(Debug, Clone)]
struct Catalog {
    reference: ArtifactId,
    tools: Vec<CatalogEntry>,
}

impl Card {
    /// The card of a call of this session, as far as the events up to the end of the range tell.
    /// `asked` is the call's number in the replay, its id, or a beginning of it.
    ///
    /// # Errors
    /// When the log cannot be read, or does not have exactly one such call.
    pub fn read(session: &SessionDirectory, asked: &str, range: Range) -> Result<Self, CardError> {
        let to = Range {
            from: Some(u64::MAX),
            to: range.to,
        };
        let (timeline, _) = super::replay_each(session, None, to, |_, _| {})?;
        let found = timeline.find_calls(asked);
        let session_id = session.id().to_string();
        let call = match found.as_slice() {
            [call] => (*call).clone(),
            [] => {
                return Err(CardError::NotFound {
                    asked: agent_text::visible_line(asked).into_owned(),
                    session: session_id,
                });
            }
            several => {
                return Err(CardError::Ambiguous {
                    asked: agent_text::visible_line(asked).into_owned(),
                    session: session_id,
                    found: several.len(),
                });
            }
        };
        // Which call is meant is known only at the end, so the log is read again.
        let mut cards = Cards::new(call);
        let reader = session.reader().map_err(ReplayError::from)?;
        for item in reader {
            if let Some(event) = item.map_err(ReplayError::from)?.event
                && range.to.is_none_or(|to| event.sequence <= to)
            {
                cards.take(&event);
            }
        }
        Ok(cards.finish(session.artifacts().ok().as_ref()))
    }

    /// Every answer, the fourteen first.
    pub fn all(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().chain(&self.more)
    }

    /// As `agent replay --call --format json` prints it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let list = |answers: &[Answer]| -> Value {
            let each = answers.iter().map(|answer| {
                let mut fields = Map::new();
                fields.insert("key".into(), answer.key.into());
                fields.insert("question".into(), answer.question.into());
                let text = answer.answer.as_deref().unwrap_or("unknown");
                fields.insert("answer".into(), text.into());
                fields.insert("known".into(), answer.answer.is_some().into());
                fields.insert("events".into(), answer.events.clone().into());
                Value::Object(fields)
            });
            each.collect::<Vec<_>>().into()
        };
        let mut fields = Map::new();
        fields.insert("tool_call_id".into(), self.tool_call_id.as_str().into());
        fields.insert("tool_name".into(), self.tool_name.as_str().into());
        fields.insert("answers".into(), list(&self.answers));
        fields.insert("more".into(), list(&self.more));
        Value::Object(fields)
    }
}

impl Cards {
    #[must_use]
    pub fn new(call: ToolCallId) -> Self {
        Self {
            call,
            events: Vec::new(),
            catalog: None,
            context: None,
            request: None,
            asked_by: None,
            saw: None,
            intent: None,
            validation: None,
            args: None,
            evaluated: None,
            answered: None,
            asked: None,
            resolved: None,
            started: None,
            sandbox: None,
            violations: Vec::new(),
            command: None,
            completed: None,
            terminated: None,
            truncated: None,
            result: None,
            failed: None,
            observation: None,
            next_request: None,
        }
    }

    /// Takes the next event of the log, whatever it is about.
    pub fn take(&mut self, event: &Event) {
        let sequence = event.sequence;
        if event.scope.tool_call_id.as_ref() == Some(&self.call) {
            let class = event.payload.type_name().to_owned();
            self.events.push((sequence, class));
            self.take_own(event);
            return;
        }
        match &event.payload {
            // What came after the call was asked for has nothing to do with it.
            Payload::ToolCatalogResolved(catalog) if self.intent.is_none() => {
                self.catalog = Some(Found {
                    sequence,
                    what: Catalog {
                        reference: catalog.catalog_ref.clone(),
                        tools: catalog.tools.clone(),
                    },
                });
            }
            Payload::ContextResolved(context) if self.intent.is_none() => {
                self.context = found(sequence, context);
            }
            Payload::ModelRequested(requested) => {
                if self.intent.is_none() {
                    self.request = found(sequence, requested);
                } else if self.observation.is_some() && self.next_request.is_none() {
                    self.next_request = found(sequence, &requested.request_no);
                }
            }
            _ => {}
        }
    }

    fn take_own(&mut self, event: &Event) {
        let sequence = event.sequence;
        match &event.payload {
            Payload::ToolIntent(intent) => {
                let by = self.request.take();
                self.asked_by = by.filter(|request| {
                    intent
                        .model_request_id
                        .as_ref()
                        .is_none_or(|id| *id == request.what.model_request_id)
                });
                if self.asked_by.is_some() {
                    self.saw = self.context.take();
                }
                self.intent = found(sequence, intent);
            }
            Payload::ToolValidation(validation) => self.validation = found(sequence, validation),
            Payload::ToolArgs(args) => self.args = found(sequence, args),
            Payload::PermissionEvaluated(evaluated) => self.evaluated = found(sequence, evaluated),
            Payload::ActionRequired(_) => self.asked = Some(sequence),
            Payload::ActionResolved(resolved) => self.answered = found(sequence, resolved),
            Payload::PermissionResolved(resolved) => self.resolved = found(sequence, resolved),
            Payload::ToolStarted(started) => self.started = found(sequence, started),
            Payload::SandboxApplied(applied) => self.sandbox = found(sequence, applied),
            Payload::SandboxViolation(_) => self.violations.push(sequence),
            Payload::ProcessStarted(process) => {
                self.command = found(sequence, &process.command_summary);
            }
            Payload::ProcessCompleted(completed) => self.completed = found(sequence, completed),
            Payload::ProcessTerminated(terminated) => self.terminated = found(sequence, terminated),
            Payload::OutputTruncated(truncated) => self.truncated = found(sequence, truncated),
            Payload::ToolResult(result) => self.result = found(sequence, result),
            Payload::ToolFailed(failed) => self.failed = found(sequence, failed),
            Payload::ToolObservation(observation) => {
                self.observation = found(sequence, observation);
            }
            _ => {}
        }
    }

    /// The card. The artifacts are looked at for the tool's definition as it was then.
    #[must_use]
    pub fn finish(self, artifacts: Option<&ArtifactStore>) -> Card {
        let answers = vec![
            self.exists(),
            self.visible(),
            self.schema(artifacts),
            self.rules(),
            self.concurrency(),
            self.cwd(),
            self.sandbox(),
            self.timeout(),
            self.truncation(),
            self.outcome(),
            self.model_view(),
            self.user_view(),
            self.audit_view(),
            self.replay_view(),
        ];
        let more = vec![
            self.proposer(),
            self.context(),
            self.confirmation(),
            self.ran(),
            self.changed(),
            self.next(),
        ];
        let tool_name = self
            .intent
            .as_ref()
            .map(|intent| intent.what.tool_name.clone())
            .or_else(|| {
                let observation = self.observation.as_ref();
                observation.map(|observation| observation.what.tool_name.clone())
            })
            .unwrap_or_else(|| "unknown".into());
        Card {
            tool_call_id: self.call,
            tool_name,
            answers,
            more,
        }
    }
}

fn found<T: Clone>(sequence: u64, what: &T) -> Option<Found<T>> {
    Some(Found {
        sequence,
        what: what.clone(),
    })
}
