//! Questions that wait for an answer. Only [`PendingApprovals::respond`] lets a paused call go on; the log
//! holds both the question and the answer, so nothing is kept here that a restart would miss.
//!
//! A question is registered before it is recorded and stays known until the session ends. It is settled
//! once: by the first answer, by a change of mode or rules that decides it, by time, or by the end of its
//! turn. Whatever comes later is refused with the reason, so that no answer is lost in between.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_protocol::Timestamp;
use agent_protocol::command::RespondAction;
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{
    ActionDecision, ActionType, DecidedBy, Effect, GrantScope, PermissionEvaluated,
};
use agent_protocol::reply::{Acknowledgement, AnswerCode, ControlAnswer};
use agent_tool_runtime::{Answer, Cancel, PendingCall, Question};

/// Policy for questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAsk {
    /// Refuse: there is nobody to ask.
    #[default]
    Deny,
    /// Leave the question open and end, so that it can be answered later.
    Wait,
    /// Answer yes, on the user's explicit word for the whole run.
    Allow,
    /// Wait for the answer.
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
pub struct PendingApprovals {
    on_ask: OnAsk,
    questions: Arc<Mutex<HashMap<ActionId, Approval>>>,
}

/// One question and its settlement.
struct Approval {
    /// The sending half of the oneshot, as long as the question is open.
    answer: Option<SyncSender<Answer>>,
    /// The receiving half, until the call waits on it.
    waiting: Option<Receiver<Answer>>,
    /// The call that a change of mode or rules is judged by, once it is known.
    call: Option<Arc<PendingCall>>,
    /// The reason for those who answer too late; none while the question is open.
    settled: Option<String>,
}

impl Default for Approval {
    fn default() -> Self {
        // One answer fits, so that settling never waits for the call.
        let (answer, waiting) = sync_channel(1);
        Self {
            answer: Some(answer),
            waiting: Some(waiting),
            call: None,
            settled: None,
        }
    }
}

impl Approval {
    /// Settles the question, if it is open.
    fn settle(&mut self, answer: Answer, by: impl FnOnce() -> String) {
        if let Some(sender) = self.answer.take() {
            self.call = None;
            self.settled = Some(by());
            // The call may not wait any more; what became of the question is in the log then.
            let _ = sender.send(answer);
        }
    }
}

impl PendingApprovals {
    #[must_use]
    pub fn new(on_ask: OnAsk) -> Self {
        Self {
            on_ask,
            questions: Arc::default(),
        }
    }

    /// The policy for questions.
    #[must_use]
    pub fn on_ask(&self) -> OnAsk {
        self.on_ask
    }

    /// Registers the question `action`, which takes answers from now on; [`PendingApprovals::ask`]
    /// waits for one. A change of mode or rules can settle it once its `call` is known.
    pub fn register(&self, action: &ActionId, call: Option<Arc<PendingCall>>) {
        if self.on_ask == OnAsk::Interactive {
            let mut questions = self.questions();
            let approval = questions.entry(action.clone()).or_default();
            if approval.settled.is_none() {
                approval.call = call.or_else(|| approval.call.take());
            }
        }
    }

    /// The call that the open question `action` is about.
    pub fn call(&self, action: &ActionId) -> Option<Arc<PendingCall>> {
        self.questions().get(action)?.call.clone()
    }

    /// Closes a question that will not be asked.
    pub fn withdraw(&self, action: &ActionId, reason: &str) {
        if let Some(approval) = self.questions().get_mut(action) {
            approval.settle(Answer::Cancelled, || reason.to_owned());
        }
    }

    /// Waits for an answer to `question`, without waking up in between.
    pub fn ask(&self, question: &Question, now: Timestamp, cancel: &Cancel) -> Answer {
        match self.on_ask {
            // A plan is a result of a run: whoever reads it decides.
            OnAsk::Deny | OnAsk::Allow if question.required.action_type == ActionType::Plan => {
                return Answer::LeftOpen;
            }
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
        let waiting = (self.questions().entry(id.clone()).or_default())
            .waiting
            .take();
        let Some(waiting) = waiting else {
            // Somebody waits for this question already; one answer cannot serve two calls.
            return Answer::Cancelled;
        };
        let (questions, action) = (Arc::clone(&self.questions), id.clone());
        cancel.on_raise(move || {
            if let Some(approval) = lock(&questions).get_mut(&action) {
                approval.settle(Answer::Cancelled, || "its turn was interrupted".to_owned());
            }
        });
        // A year stands for "no limit": the wait ends by an answer or by cancelling.
        let left = question
            .expires_at
            .map_or(Duration::from_secs(31_536_000), |end| {
                Duration::from_millis(end.millis_since(now))
            });
        match waiting.recv_timeout(left) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Answer::Cancelled,
            Err(RecvTimeoutError::Timeout) => {
                let by = || "nobody answered it in time".to_owned();
                if let Some(approval) = self.questions().get_mut(id) {
                    approval.settle(Answer::Expired, by);
                }
                // An answer that is on its way counts.
                waiting.recv().unwrap_or(Answer::Expired)
            }
        }
    }

    /// Answers an open question. One that is settled stays as it is, and the reason says by what.
    ///
    /// `prepare` does what belongs to the answer, such as saving its rule, and may narrow it. It runs only for
    /// the answer that counts: from before it until the answer is delivered nothing else settles the question.
    pub fn respond(
        &self,
        mut response: RespondAction,
        prepare: impl FnOnce(&mut RespondAction),
    ) -> ControlAnswer {
        let action = response.action_id.clone();
        let sender = {
            let mut questions = self.questions();
            let Some(approval) = questions.get_mut(&action) else {
                let reason = format!("there is no open question {action}");
                return ControlAnswer::no_op(AnswerCode::NoSuchQuestion, reason);
            };
            let Some(sender) = approval.answer.take() else {
                let by = approval.settled.as_deref().unwrap_or_default();
                return ControlAnswer {
                    acknowledgement: Acknowledgement::Refused,
                    code: Some(AnswerCode::QuestionClosed),
                    reason: Some(format!("the question {action} is closed: {by}")),
                    ..ControlAnswer::default()
                };
            };
            approval.call = None;
            approval.settled = Some(format!("it was answered: {}", response.decision));
            sender
        };
        // Without the lock: it may write files.
        prepare(&mut response);
        let extra = response.answer.unwrap_or_default();
        let answer = Answer::Decided {
            decision: response.decision,
            decided_by: DecidedBy::User,
            scope: response.scope,
            note: extra.note,
            edited_input: extra.edited_input,
            saved_rule: extra.saved_rule,
        };
        if let Some(approval) = self.questions().get_mut(&action) {
            approval.settled = Some(format!("it was answered: {}", response.decision));
        }
        // The call may not wait any more; what became of the question is in the log then.
        let _ = sender.send(answer);
        ControlAnswer::accepted()
    }

    /// Settles the open questions that need no answer any more after `change`, by which `judge` decides.
    /// The others stay open.
    pub fn reconsider(&self, change: &str, judge: impl Fn(&PendingCall) -> PermissionEvaluated) {
        let calls: Vec<_> = (self.questions().iter())
            .filter_map(|(action, approval)| Some((action.clone(), approval.call.clone()?)))
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
            // A change of mode or rules while the question is open is the user's answer to it.
            let answer = Answer::Decided {
                decision,
                decided_by: DecidedBy::User,
                scope: GrantScope::Once,
                note: Some(by.clone()),
                edited_input: None,
                saved_rule: None,
            };
            let mut questions = self.questions();
            questions.entry(action).or_default().settle(answer, || by);
        }
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<ActionId, Approval>> {
        lock(&self.questions)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(action: &ActionId, decision: ActionDecision) -> RespondAction {
        RespondAction {
            action_id: action.clone(),
            decision,
            ..RespondAction::default()
        }
    }

    /// What belongs to an answer is done for the answer that counts alone, whatever comes meanwhile.
    #[test]
    fn an_answer_is_prepared_only_if_it_counts() {
        let approvals = PendingApprovals::new(OnAsk::Interactive);
        let action = ActionId::default();
        approvals.register(&action, None);
        let allow = answer(&action, ActionDecision::AllowOnce);
        let first = approvals.respond(allow.clone(), |_| {
            approvals.withdraw(&action, "its turn was interrupted");
            let second = approvals.respond(answer(&action, ActionDecision::Deny), |_| {
                panic!("another answer came first");
            });
            assert_eq!(second.acknowledgement, Acknowledgement::Refused);
        });
        assert_eq!(first.acknowledgement, Acknowledgement::Accepted);
        let late = approvals.respond(allow, |_| panic!("the question is closed"));
        assert_eq!(late.acknowledgement, Acknowledgement::Refused);
        let reason = late.reason.unwrap_or_default();
        assert!(reason.contains("it was answered: allow_once"), "{reason}");
    }
}
