//! The model that really answered: the name the server gave, else the one that was asked for.

use std::collections::BTreeMap;

use agent_protocol::id::ModelRequestId;
use agent_protocol::payload::Usage;
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

/// Requests that have no answer yet, and whether answers belong to the conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Served {
    asked: BTreeMap<ModelRequestId, (String, String)>,
    /// A summary is being written, which is no part of the conversation.
    is_compacting: bool,
}

/// An answer and who gave it.
pub(super) struct Answered<'a> {
    /// `provider/model`.
    pub(super) model: String,
    pub(super) usage: &'a Usage,
    /// True if it is no part of the conversation: a side job such as a summary, or of no use.
    pub(super) is_aside: bool,
}

impl Served {
    pub(super) fn take<'a>(&mut self, event: &'a Event) -> Option<Answered<'a>> {
        match &event.payload {
            Payload::ModelRequested(requested) => {
                let model = (requested.provider.clone(), requested.model.clone());
                self.asked.insert(requested.model_request_id.clone(), model);
            }
            Payload::ModelCompleted(completed) => {
                return self.answered(
                    &completed.model_request_id,
                    &completed.usage,
                    self.is_compacting,
                );
            }
            Payload::ModelFailed(failed) => {
                let usage = failed.usage.as_ref()?;
                return self.answered(&failed.model_request_id, usage, true);
            }
            // What a turn left open has no answer any more.
            Payload::TurnCompleted(_) | Payload::TurnFailed(_) => self.asked.clear(),
            Payload::ContextCompactionStarted(_) => self.is_compacting = true,
            Payload::ContextCompactionCompleted(_) | Payload::ContextCompactionFailed(_) => {
                self.is_compacting = false;
            }
            _ => {}
        }
        None
    }

    fn answered<'a>(
        &mut self,
        request: &ModelRequestId,
        usage: &'a Usage,
        is_aside: bool,
    ) -> Option<Answered<'a>> {
        let model = match (self.asked.remove(request), usage.model.clone()) {
            (Some((provider, _)), Some(served)) => format!("{provider}/{served}"),
            (Some((provider, asked)), None) => format!("{provider}/{asked}"),
            (None, Some(served)) => served,
            (None, None) => return None,
        };
        Some(Answered {
            model,
            usage,
            is_aside,
        })
    }
}
