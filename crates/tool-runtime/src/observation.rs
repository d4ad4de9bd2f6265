//! What model and screen may see of a call.

use agent_protocol::id::{ActionId, EventId, ToolCallId};
use agent_protocol::payload::tool::ToolObservation;

/// The bounded, escaped and masked projection of a call, exactly as it stands in the log. Handed
/// out only after it would survive a power cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    tool_call_id: ToolCallId,
    event_id: EventId,
    sequence: u64,
    recorded: ToolObservation,
}

impl Observation {
    #[must_use]
    pub fn tool_call_id(&self) -> &ToolCallId {
        &self.tool_call_id
    }

    #[must_use]
    pub fn event_id(&self) -> &EventId {
        &self.event_id
    }

    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// As it stands in the log.
    #[must_use]
    pub fn recorded(&self) -> &ToolObservation {
        &self.recorded
    }
}

/// How a call left the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It ended, with success or without.
    Observed(Observation),
    /// Its question stays open; there is no observation yet.
    LeftOpen {
        tool_call_id: ToolCallId,
        action_id: ActionId,
    },
}
