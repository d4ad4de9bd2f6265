//! An event as it is told: its words, and its place in the session.

use std::borrow::Cow;

use agent_history::Description;
use agent_protocol::Timestamp;
use agent_protocol::id::{EventId, ToolCallId};

/// One event, told.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub sequence: u64,
    pub event_id: EventId,
    pub timestamp: Timestamp,
    /// The event's class as it stands in the log.
    pub class: Cow<'static, str>,
    /// Number of its turn, counted from 1.
    pub turn: Option<u64>,
    /// Number of its call, counted from 1.
    pub call: Option<u64>,
    pub tool_call_id: Option<ToolCallId>,
    pub description: Description,
}
