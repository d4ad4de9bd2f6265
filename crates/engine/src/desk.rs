//! Where questions wait for answers. Only [`Desk::respond`] lets a paused call go on; the log holds
//! both the question and the answer, so the desk keeps nothing that a restart would miss.
//!
//! A question has one place here from before it is recorded until the session ends, and is settled once:
//! by the first answer, by a change of mode or rules that decides it, by time, or by the end of its turn.
//! Whatever comes later is refused with the reason, so that no answer is lost in between.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_protocol::Timestamp;
use agent_protocol::command::{Acknowledgement, ControlAnswer, RespondAction};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, Effect, GrantScope, PermissionEvaluated,
};
use agent_tool_runtime::{Answer, Cancel, CancelReason, PendingCall, Question};

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

/// Questions of one session.
#[derive(Default)]
pub struct Desk {
    on_ask: OnAsk,
    places: Mutex<HashMap<ActionId, Place>>,
}

/// One question's place.
#[derive(Default)]
struct Place {
    /// Wakes who waits for the answer.
    bell: Cancel,
    /// What a change of mode or rules is judged by, once it is known.
    call: Option<Arc<PendingCall>>,
    /// For who waits.
    answer: Option<Answer>,
    /// By what it was settled, for who comes too late; none while it is open.
    settled: Option<String>,
}

impl Place {
    /// Settles an open question.
    fn settle(&mut self, answer: Option<Answer>, by: String) {
        self.call = None;
        self.answer = answer;
        self.settled = Some(by);
        self.bell.raise(CancelReason::Interrupted);
    }
}

impl Desk {
    #[must_use]
    pub fn new(on_ask: OnAsk) -> Self {
        Self {
            on_ask,
            places: Mutex::default(),
        }
    }

    /// The policy for questions.
    #[must_use]
    pub fn on_ask(&self) -> OnAsk {
        self.on_ask
    }

    /// Takes answers to `action` from now on; [`Desk::ask`] waits for one. A change of mode or rules
    /// can settle it once its `call` is known.
    pub fn expect(&self, action: &ActionId, call: Option<Arc<PendingCall>>) {
        if self.on_ask == OnAsk::Interactive {
            let mut places = self.places();
            let place = places.entry(action.clone()).or_default();
            if place.settled.is_none() {
                place.call = call.or_else(|| place.call.take());
            }
        }
    }

    /// Takes no answer any more to a question that will not be asked.
    pub fn withdraw(&self, action: &ActionId, reason: &str) {
        if let Some(place) = self.places().get_mut(action)
            && place.settled.is_none()
        {
            place.settle(None, reason.to_owned());
        }
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
        let bell = self.places().entry(id.clone()).or_default().bell.clone();
        let rung = bell.clone();
        cancel.on_raise(move || rung.raise(CancelReason::Interrupted));
        // A year stands for "no limit": the wait ends by an answer or by cancelling.
        let left = question
            .expires_at
            .map_or(Duration::from_secs(31_536_000), |end| {
                Duration::from_millis(end.millis_since(now))
            });
        let woken = bell.wait(left);
        let mut places = self.places();
        let place = places.entry(id.clone()).or_default();
        if let Some(answer) = place.answer.take() {
            return answer;
        }
        let (answer, by) = match woken || cancel.is_raised() {
            true => (Answer::Cancelled, "its turn was interrupted"),
            false => (Answer::Expired, "nobody answered it in time"),
        };
        place.settle(None, by.to_owned());
        answer
    }

    /// Answers an open question. One that is settled stays as it is, and the reason says by what.
    pub fn respond(&self, response: RespondAction) -> ControlAnswer {
        let action = response.action_id;
        let mut places = self.places();
        let Some(place) = places.get_mut(&action) else {
            return ControlAnswer {
                acknowledgement: Acknowledgement::NoOp,
                reason: Some(format!("there is no open question {action}")),
                ..ControlAnswer::default()
            };
        };
        if let Some(by) = &place.settled {
            return ControlAnswer {
                acknowledgement: Acknowledgement::Refused,
                reason: Some(format!("the question {action} is closed: {by}")),
                ..ControlAnswer::default()
            };
        }
        let extra = response.answer.unwrap_or_default();
        let answer = Answer::Decided {
            decision: response.decision,
            decided_by: DecidedBy::User,
            scope: response.scope,
            note: extra.note,
            edited_input: extra.edited_input,
            saved_rule: extra.saved_rule,
        };
        let by = format!("it was answered: {}", response.decision);
        place.settle(Some(answer), by);
        ControlAnswer {
            acknowledgement: Acknowledgement::Accepted,
            ..ControlAnswer::default()
        }
    }

    /// Settles the open questions that need no answer any more after `change`, which is what `judge`
    /// decides by. The others stay open and notice nothing.
    pub fn reconsider(&self, change: &str, judge: impl Fn(&PendingCall) -> PermissionEvaluated) {
        let calls: Vec<_> = (self.places().iter())
            .filter_map(|(action, place)| Some((action.clone(), place.call.clone()?)))
            .collect();
        for (action, call) in calls {
            // Without the lock: judging may look at files.
            let evaluated = judge(&call);
            let (decision, verb) = match evaluated.decision {
                Effect::Ask => continue,
                Effect::Allow => (ActionDecision::AllowOnce, "allows"),
                Effect::Deny => (ActionDecision::Deny, "denies"),
            };
            let by = format!("{change}, which {verb} it ({})", evaluated.reason);
            let mut places = self.places();
            let place = places.entry(action).or_default();
            if place.settled.is_none() {
                // Whoever changed the mode or the rules while the question was open has answered it.
                let answer = Answer::Decided {
                    decision,
                    decided_by: DecidedBy::User,
                    scope: GrantScope::Once,
                    note: Some(by.clone()),
                    edited_input: None,
                    saved_rule: None,
                };
                place.settle(Some(answer), by);
            }
        }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<ActionId, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
