//! When an input becomes a part of the conversation: when work on it begins, when it joins a turn, or when the session
//! ended before either could be: what the user said is never lost.
//! The record of another program names no such moment, so there it is when the input is given.

use agent_history::imported_from;
use agent_protocol::id::{RuntimeId, TurnId};
use agent_protocol::payload::conversation::{QueueOperation, QueuePolicy};
use agent_protocol::status::Status;
use agent_protocol::{Event, Payload};

/// The one rule for it, shared by whoever folds the user's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entering {
    /// The program run that wrote the record of another program down.
    imported_by: Option<RuntimeId>,
}

impl Entering {
    /// The input that enters with this event. Feed it the events in order.
    pub(crate) fn turn<'a>(&mut self, event: &'a Event) -> Option<&'a TurnId> {
        match &event.payload {
            Payload::SessionCreated(created) if imported_from(created).is_some() => {
                self.imported_by = Some(event.runtime_id.clone());
                None
            }
            Payload::TurnStarted(_) => event.scope.turn_id.as_ref(),
            Payload::TurnFailed(failed) if failed.status != Status::Cancelled => {
                event.scope.turn_id.as_ref()
            }
            Payload::TurnSubmitted(_) if self.is_recorded(event) => event.scope.turn_id.as_ref(),
            Payload::QueueChanged(change)
                if change.op == QueueOperation::Started && change.policy == QueuePolicy::Steer =>
            {
                change.queued_turn_id.as_ref()
            }
            _ => None,
        }
    }

    /// True if another program did what this event tells.
    pub(crate) fn is_recorded(&self, event: &Event) -> bool {
        self.imported_by.as_ref() == Some(&event.runtime_id)
    }
}
