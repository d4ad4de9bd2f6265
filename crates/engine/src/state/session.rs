//! State that the threads of a session share.

use std::collections::BTreeMap;

use agent_protocol::id::{ActionId, ThreadId, ToolCallId};
use agent_protocol::{Event, Payload};
use agent_tool_runtime::{OpenCall, OpenCalls};

/// Fold of every event of a session, whichever thread it belongs to.
#[derive(Debug, Default)]
pub struct SessionState {
    /// Model requests of all threads, over all their attempts.
    pub requests: u64,
    /// Cost of all threads so far.
    pub cost: Cost,
    /// Unanswered questions, with the call each belongs to.
    pub open_actions: BTreeMap<ActionId, Option<ToolCallId>>,
    /// Calls that have not started.
    pub open_calls: OpenCalls,
    /// Sessions this one was forked from, the oldest first.
    pub parents: Vec<String>,
}

impl SessionState {
    /// Takes in one event.
    pub fn apply(&mut self, event: &Event) {
        self.open_calls.apply(event);
        match &event.payload {
            // A fork inherits what was said and done, not what was open, allowed or paid.
            Payload::SessionCreated(created) => {
                if let Some(parent) = &created.parent {
                    self.parents.push(parent.session_id.to_string());
                    self.cost = Cost::default();
                    self.open_actions.clear();
                    self.open_calls = OpenCalls::default();
                }
            }
            Payload::ModelRequested(requested) => {
                self.requests = self.requests.max(requested.request_no);
            }
            Payload::CostRecorded(cost) => self.cost.add(cost.amount),
            Payload::ActionRequired(_) => {
                if let Some(action) = &event.scope.action_id {
                    let call = event.scope.tool_call_id.clone();
                    self.open_actions.insert(action.clone(), call);
                }
            }
            Payload::ActionResolved(_) => {
                if let Some(action) = &event.scope.action_id {
                    self.open_actions.remove(action);
                }
            }
            _ => {}
        }
    }

    /// Calls of a thread that wait for an answer, the oldest first.
    #[must_use]
    pub fn waiting_calls(&self, thread_id: &ThreadId) -> Vec<OpenCall> {
        let mut waiting = self.open_calls.waiting();
        waiting.retain(|call| {
            call.scope
                .thread_id
                .as_ref()
                .is_none_or(|id| id == thread_id)
        });
        waiting
    }
}

/// Amount of money; an unknown part makes the sum unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    known: f64,
    unknown: bool,
}

impl Cost {
    pub(super) fn add(&mut self, amount: Option<f64>) {
        match amount {
            Some(amount) => self.known += amount,
            None => self.unknown = true,
        }
    }

    /// The whole sum, if all of it is known.
    #[must_use]
    pub fn total(self) -> Option<f64> {
        (!self.unknown).then_some(self.known)
    }

    /// What is known to have been spent.
    #[must_use]
    pub fn known(self) -> f64 {
        self.known
    }
}
