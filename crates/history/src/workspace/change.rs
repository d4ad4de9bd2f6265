//! Changes to the project's files as values.

use std::sync::Arc;

use agent_protocol::id::{ProcessId, ToolCallId, TurnId};

use super::PathState;

/// One recorded change of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: Arc<str>,
    pub before: PathState,
    pub after: PathState,
    /// Of the event that records it.
    pub sequence: u64,
    pub turn_id: Option<TurnId>,
    pub tool_call_id: Option<ToolCallId>,
    pub by: ChangedBy,
    /// False when the call was cut off: the file is as before or as after.
    pub is_certain: bool,
}

/// Maker of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// The tool of this name.
    Tool(String),
    Undo,
}

/// Something may have changed that the log does not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub sequence: u64,
    pub tool_call_id: Option<ToolCallId>,
    pub turn_id: Option<TurnId>,
    /// The background command that may still change something.
    pub process_id: Option<ProcessId>,
    pub reason: String,
}

/// The events of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnSpan {
    pub turn_id: TurnId,
    pub first: u64,
    pub last: u64,
}

/// An undo that began and did not say how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedUndo {
    pub sequence: u64,
    pub target_sequence: u64,
    pub files: Vec<String>,
}

/// Change of one path over a range of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetChange {
    pub path: Arc<str>,
    /// Before the first change of the range.
    pub before: PathState,
    /// After the last change of the range.
    pub after: PathState,
    /// How many changes the range has.
    pub changes: usize,
    pub first_sequence: u64,
    pub last_sequence: u64,
    /// False when the last change may not have happened.
    pub is_certain: bool,
    /// The event whose before-state is not what the change before it left: between the two, somebody
    /// else changed the file.
    pub foreign_before: Option<u64>,
    /// The next event after the range that changed the path again.
    pub changed_again: Option<u64>,
}

/// A path that was touched, at one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathAt {
    pub path: Arc<str>,
    /// Before the session touched it.
    pub start: PathState,
    pub now: PathState,
    /// Changes up to that event.
    pub changes: usize,
}
