//! A call that waited for an answer when its process ended, and how it is taken up again: the same
//! question if nobody answered it, the answer if somebody did. What was approved has to be so
//! still; otherwise the call goes through the gate anew. A call that was started is never here.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Instant;

use agent_policy::shell::Reading;
use agent_protocol::id::{ActionId, ArtifactId, EventId, IntentId, ModelRequestId, ToolCallId};
use agent_protocol::payload::permission::{
    ActionDecision, ActionRequired, ActionResolved, DecidedBy, Effect, GrantScope,
};
use agent_protocol::{CallState, Code, Event, Payload, Phase, Scope, Timestamp};
use serde_json::Value;

use crate::admission::Admission;
use crate::authority::{Answer, Question};
use crate::call::{Call, Refusal};
use crate::cancel::Cancel;
use crate::intent::IntentOrigin;
use crate::journal::JournalError;
use crate::pipeline::Shared;
use crate::question::{Asked, Resolution};
use crate::registry::Registered;

/// A call that has not started and waits, as the log shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenCall {
    /// Names thread, turn, step and call.
    pub scope: Scope,
    pub tool_call_id: ToolCallId,
    pub intent_id: IntentId,
    pub tool_name: String,
    /// Missing when the user called the tool themselves.
    pub model_request_id: Option<ModelRequestId>,
    /// The question; a call without one was not that far.
    pub question: Option<OpenQuestion>,
    input: Option<Value>,
    input_ref: Option<ArtifactId>,
    args_sha256: String,
    /// What an approval would hold for.
    binding: Option<String>,
    state: CallState,
}

/// A question about a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenQuestion {
    pub action_id: ActionId,
    pub asked_at: Timestamp,
    pub required: ActionRequired,
    pub answer: Option<GivenAnswer>,
    /// Place of the question in the log.
    sequence: u64,
    /// True if the question or its answer was written elsewhere: neither its words nor what was
    /// answered count here.
    is_foreign: bool,
}

/// An answer that was given and not yet acted on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenAnswer {
    pub resolved: ActionResolved,
    sequence: u64,
    answered_at: Timestamp,
    action_event: EventId,
    permission_event: Option<EventId>,
}

/// The fold of a log into the calls that have not started.
#[derive(Clone, Debug, Default)]
pub struct OpenCalls {
    calls: BTreeMap<ToolCallId, OpenCall>,
}

impl OpenCalls {
    /// Takes in one event.
    pub fn apply(&mut self, event: &Event) {
        let Some(call_id) = &event.scope.tool_call_id else {
            return;
        };
        if let Payload::ToolIntent(intent) = &event.payload {
            let call = OpenCall {
                scope: Scope {
                    causation_id: None,
                    ..event.scope.clone()
                },
                tool_call_id: call_id.clone(),
                intent_id: intent.intent_id.clone(),
                tool_name: intent.tool_name.clone(),
                model_request_id: intent.model_request_id.clone(),
                input: intent.input().cloned(),
                input_ref: intent.input_ref().cloned(),
                ..OpenCall::default()
            };
            self.calls.insert(call_id.clone(), call);
        }
        let Some(call) = self.calls.get_mut(call_id) else {
            return;
        };
        call.state.apply(event);
        if call.state.has_started() || !call.state.is_open() {
            self.calls.remove(call_id);
        } else {
            call.apply(event);
        }
    }

    /// The calls whose question was put to somebody, oldest first.
    #[must_use]
    pub fn waiting(&self) -> Vec<OpenCall> {
        let pending = |call: &&OpenCall| call.state.is_pending();
        self.calls.values().filter(pending).cloned().collect()
    }

    /// Marks the questions and answers that `is_own` does not vouch for, by their place in the log.
    /// Their calls go through the gate anew. Returns how many there are.
    pub fn distrust(&mut self, is_own: &dyn Fn(u64) -> bool) -> usize {
        let questions = self
            .calls
            .values_mut()
            .filter_map(|call| call.question.as_mut());
        let mut foreign = 0;
        for question in questions {
            let answered = question.answer.as_ref().map(|answer| answer.sequence);
            question.is_foreign =
                !is_own(question.sequence) || answered.is_some_and(|sequence| !is_own(sequence));
            foreign += usize::from(question.is_foreign);
        }
        foreign
    }
}

impl OpenQuestion {
    /// True if an answer to it counts when it is put again.
    #[must_use]
    pub fn takes_answers(&self) -> bool {
        self.answer.is_none() && !self.is_foreign
    }
}

impl OpenCall {
    fn apply(&mut self, event: &Event) {
        match &event.payload {
            // Another round: what was asked before no longer counts.
            Payload::ToolValidation(_) => self.question = None,
            Payload::ToolArgs(args) => self.args_sha256.clone_from(&args.args_sha256),
            Payload::PermissionEvaluated(evaluated) => self.binding.clone_from(&evaluated.binding),
            Payload::ActionRequired(required) => {
                self.question = event.scope.action_id.clone().map(|action_id| OpenQuestion {
                    action_id,
                    asked_at: event.timestamp,
                    required: required.clone(),
                    answer: None,
                    sequence: event.sequence,
                    is_foreign: false,
                });
            }
            Payload::ActionResolved(resolved) => {
                if let Some(question) = &mut self.question {
                    question.answer = Some(GivenAnswer {
                        resolved: resolved.clone(),
                        sequence: event.sequence,
                        answered_at: event.timestamp,
                        action_event: event.event_id.clone(),
                        permission_event: None,
                    });
                }
            }
            Payload::PermissionResolved(_) => {
                let answer = self
                    .question
                    .as_mut()
                    .and_then(|question| question.answer.as_mut());
                if let Some(answer) = answer {
                    answer.permission_event = Some(event.event_id.clone());
                }
            }
            _ => {}
        }
    }
}

impl Shared {
    /// The call as it was when it began to wait.
    pub(crate) fn reopen(&self, open: &OpenCall) -> Call {
        Call {
            scope: open.scope.clone(),
            tool_call_id: open.tool_call_id.clone(),
            intent_id: open.intent_id.clone(),
            tool_name: open.tool_name.clone(),
            tool: self.registry().resolve(&open.tool_name).cloned(),
            input: self.input_of(open).unwrap_or_default(),
            reading: Reading::default(),
            origin: match open.model_request_id {
                Some(_) => IntentOrigin::Model,
                None => IntentOrigin::Program,
            },
            is_of_model: open.model_request_id.is_some(),
            submitted: Instant::now(),
            held: false,
        }
    }

    fn input_of(&self, open: &OpenCall) -> Option<Value> {
        if let Some(input) = &open.input {
            return Some(input.clone());
        }
        let mut text = Vec::new();
        self.journal
            .open_artifact(open.input_ref.as_ref()?)
            .ok()?
            .read_to_end(&mut text)
            .ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Takes a reopened call through the rest of the gate.
    pub(crate) fn readmit(
        &self,
        call: &mut Call,
        open: &OpenCall,
        cancel: &Cancel,
        before_asking: &mut dyn FnMut() -> Result<(), JournalError>,
    ) -> Result<Admission, JournalError> {
        let (Some(tool), Some(question)) = (call.tool.clone(), &open.question) else {
            return Ok(Admission::Refused(self.lost(
                call,
                open,
                "its tool is gone",
            )));
        };
        let args_sha256 = agent_text::sha256_hex(call.input.to_string().as_bytes());
        if args_sha256 != open.args_sha256 {
            // Masked input cannot be told from the log, and what was not approved is not run.
            let reason = "its input holds a secret, which the log does not keep";
            return Ok(Admission::Refused(self.lost(call, open, reason)));
        }
        call.scope.action_id = Some(question.action_id.clone());
        if question.is_foreign {
            if question.answer.is_none() {
                let note = "the question was written elsewhere; it is put anew";
                let closed = Answer::Decided {
                    decision: ActionDecision::Deny,
                    decided_by: DecidedBy::Policy,
                    scope: GrantScope::Once,
                    note: Some(note.to_owned()),
                    edited_input: None,
                    saved_rule: None,
                };
                self.resolve(call, &question.action_id, question.asked_at, closed)?;
            }
            call.scope.action_id = None;
            return self.admit(call, cancel, before_asking);
        }
        let asked = match &question.answer {
            Some(given) => self.act_on(call, &question.action_id, given)?,
            None => {
                before_asking()?;
                self.ask_again(call, &tool, question, cancel)?
            }
        };
        call.scope.action_id = None;
        let grant = match asked {
            Asked::Granted(grant) => grant,
            Asked::Edited { input, grant } => {
                return self.admit_edited(call, &tool, input, grant, cancel, before_asking);
            }
            Asked::Refused(refusal) => return Ok(Admission::Refused(refusal)),
            Asked::Aborted(refusal) => return Ok(Admission::Aborted(refusal)),
            Asked::LeftOpen(action_id) => return Ok(Admission::LeftOpen(action_id)),
        };
        if let Ok(prepared) = self.validate(call, &tool) {
            let decision = self.decide(call, &tool, &prepared);
            let binding = self.binding(call, &tool, &prepared, &decision.confinement);
            let key = decision.approval_key.as_ref().unwrap_or(&binding);
            let same = self.is_fresh(question)
                && open.binding.as_ref() == Some(&binding)
                && question.required.approval_key.as_ref() == Some(key)
                && decision.evaluated.decision != Effect::Deny;
            if same {
                return Ok(Admission::Admitted(Box::new(self.admitted(
                    call,
                    prepared,
                    decision.confinement,
                    args_sha256,
                    grant,
                ))));
            }
        }
        // Something changed since, or the answer is too old; the gate finds what is so now, and asks.
        self.admit(call, cancel, before_asking)
    }

    /// The end of a call that cannot be taken up; its question takes no answer any more.
    fn lost(&self, call: &Call, open: &OpenCall, reason: &str) -> Refusal {
        if let Some(question) = &open.question {
            let words = format!("its call cannot be continued: {reason}");
            self.authority.withdraw(&question.action_id, &words);
        }
        Refusal {
            phase: Phase::Schedule,
            code: Code::Lost,
            message: format!(
                "{}: it waited for an answer and cannot be continued: {reason}; it did nothing",
                call.tool_name
            ),
            ..Refusal::default()
        }
    }

    /// Whether an answer still counts: it holds for as long as the question could have waited for it.
    fn is_fresh(&self, question: &OpenQuestion) -> bool {
        let end = (question.answer.as_ref())
            .and_then(|given| question.required.expires_at(given.answered_at));
        end.is_none_or(|end| self.journal.now() < end)
    }

    fn ask_again(
        &self,
        call: &mut Call,
        tool: &Registered,
        question: &OpenQuestion,
        cancel: &Cancel,
    ) -> Result<Asked, JournalError> {
        let expires_at = question.required.expires_at(question.asked_at);
        if expires_at.is_some_and(|end| self.journal.now() >= end) {
            return self.resolve(
                call,
                &question.action_id,
                question.asked_at,
                Answer::Expired,
            );
        }
        let put = Question {
            action_id: question.action_id.clone(),
            tool_call_id: call.tool_call_id.clone(),
            asked_at: question.asked_at,
            expires_at,
            required: question.required.clone(),
        };
        if let Ok(prepared) = self.validate(call, tool) {
            let pending = self.pending(call, tool, &prepared, self.authority.mode());
            self.authority.expect_answer(&put.action_id, pending);
        }
        let answer = self.authority.ask(&put, cancel);
        self.resolve(call, &question.action_id, question.asked_at, answer)
    }

    fn act_on(
        &self,
        call: &mut Call,
        action_id: &ActionId,
        given: &GivenAnswer,
    ) -> Result<Asked, JournalError> {
        let payload = given.resolved.payload.clone().unwrap_or_default();
        let resolution = Resolution::of(match given.resolved.decided_by {
            DecidedBy::Timeout => Answer::Expired,
            DecidedBy::Cancel => Answer::Cancelled,
            DecidedBy::User | DecidedBy::Policy => Answer::Decided {
                decision: given.resolved.decision,
                decided_by: given.resolved.decided_by,
                scope: given.resolved.scope,
                note: payload.note,
                edited_input: payload.edited_input,
                saved_rule: payload.saved_rule,
            },
        });
        let permission_event = given.permission_event.clone();
        self.follow(
            call,
            action_id,
            &given.action_event,
            permission_event,
            resolution,
        )
    }
}
