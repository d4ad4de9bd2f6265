//! Where questions wait for answers. Only [`Desk::respond`] lets a paused call go on; the log holds
//! both the question and the answer, so the desk keeps nothing that a restart would miss.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_protocol::Timestamp;
use agent_protocol::command::{Acknowledgement, ControlAnswer, RespondAction};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{ActionDecision, DecidedBy, GrantScope};
use agent_tool_runtime::{Answer, Cancel, CancelReason, Question};

/// What happens to a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAsk {
    /// Nobody is there: refuse.
    #[default]
    Deny,
    /// Leave it open and end, so that it can be answered later.
    Wait,
    /// Answer yes, on the user's explicit word for the whole run.
    Allow,
    /// Somebody is there: wait for the answer.
    Interactive,
}

impl OnAsk {
    /// The word in `context.resolved` and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Wait => "wait",
            Self::Allow => "allow",
            Self::Interactive => "interactive",
        }
    }
}

/// Open questions of one session.
#[derive(Default)]
pub struct Desk {
    on_ask: OnAsk,
    open: Mutex<HashMap<ActionId, Open>>,
}

struct Open {
    wake: Cancel,
    answer: Option<Answer>,
}

impl Desk {
    #[must_use]
    pub fn new(on_ask: OnAsk) -> Self {
        Self {
            on_ask,
            open: Mutex::default(),
        }
    }

    /// The policy for questions.
    #[must_use]
    pub fn on_ask(&self) -> OnAsk {
        self.on_ask
    }

    /// Takes answers to `action` from now on; [`Desk::ask`] waits for one. A question that is asked
    /// without this takes answers from the moment it is asked.
    pub fn expect(&self, action: &ActionId, cancel: &Cancel) {
        if self.on_ask == OnAsk::Interactive {
            self.register(action, cancel);
        }
    }

    fn register(&self, action: &ActionId, cancel: &Cancel) -> Cancel {
        let mut open = self.open();
        let entry = open.entry(action.clone()).or_insert_with(|| Open {
            wake: cancel.child(),
            answer: None,
        });
        entry.wake.clone()
    }

    /// Waits for an answer to `question`, without waking up in between.
    pub fn ask(&self, question: &Question, now: Timestamp, cancel: &Cancel) -> Answer {
        match self.on_ask {
            OnAsk::Deny => return Answer::Unavailable,
            OnAsk::Wait => return Answer::LeftOpen,
            OnAsk::Allow => {
                return Answer::Decided {
                    decision: ActionDecision::AllowOnce,
                    decided_by: DecidedBy::Policy,
                    scope: GrantScope::Once,
                    note: None,
                    edited_input: None,
                    saved_rule: None,
                };
            }
            OnAsk::Interactive => {}
        }
        let id = &question.action_id;
        let wake = self.register(id, cancel);
        // A year stands for "no limit": the wait ends by an answer or by cancelling.
        let left = question
            .expires_at
            .map_or(Duration::from_secs(31_536_000), |end| {
                Duration::from_millis(end.millis_since(now))
            });
        let woken = wake.wait(left);
        let answer = self.open().remove(id).and_then(|open| open.answer);
        match answer {
            Some(answer) => answer,
            None if woken || cancel.is_raised() => Answer::Cancelled,
            None => Answer::Expired,
        }
    }

    /// Answers an open question. A question that is not open, or was answered before, is left alone.
    pub fn respond(&self, response: RespondAction) -> ControlAnswer {
        let mut open = self.open();
        let Some(entry) = open
            .get_mut(&response.action_id)
            .filter(|entry| matches!(entry.answer, None | Some(Answer::Reconsider)))
        else {
            return ControlAnswer {
                acknowledgement: Acknowledgement::NoOp,
                reason: Some(format!("there is no open question {}", response.action_id)),
                ..ControlAnswer::default()
            };
        };
        let extra = response.answer.unwrap_or_default();
        entry.answer = Some(Answer::Decided {
            decision: response.decision,
            decided_by: DecidedBy::User,
            scope: response.scope,
            note: extra.note,
            edited_input: extra.edited_input,
            saved_rule: extra.saved_rule,
        });
        entry.wake.raise(CancelReason::Interrupted);
        ControlAnswer {
            acknowledgement: Acknowledgement::Accepted,
            ..ControlAnswer::default()
        }
    }

    /// Has every open question judged again: what decides has changed.
    pub fn reconsider(&self) {
        for entry in self.open().values_mut() {
            if entry.answer.is_none() {
                entry.answer = Some(Answer::Reconsider);
                entry.wake.raise(CancelReason::Interrupted);
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<ActionId, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
