//! Read models: what the log says about one question each, folded event by event.
//!
//! A fold is a pure function of the events. Folding a prefix and then the rest gives what folding
//! all gives; an event that comes twice changes nothing. What the log does not show is `unknown`,
//! what a gap made doubtful is `stale`: a read model never infers success.

mod artifact_checkpoint;
mod calls;
mod changed_files;
mod child_threads;
mod context_boundary;
mod evidence;
mod execution_environment;
mod permission_sandbox;
mod queue;
mod routing_limit;
mod served;
mod session_snapshot;
mod thread;
mod tool_inventory;
mod unattended;

use agent_protocol::Event;
use serde::{Deserialize, Serialize};

pub use artifact_checkpoint::{ArtifactCheckpointSummary, ChangedFile};
pub use calls::{
    Call, CallAction, CallEnd, CallObservation, CallPermission, CallProcess, CallResolution,
    CallSandbox, CallStart, CallStatus, CallValidation, Calls, EventPlace,
};
pub use changed_files::{ChangedFiles, is_work};
pub use child_threads::{ChildThreads, Owner};
pub use context_boundary::{CompactionBrief, ContextBoundary, ContextBrief};
pub use evidence::{EvidenceBrief, EvidenceSummary};
pub use execution_environment::{ExecutionEnvironment, ProcessBrief, ProcessState};
pub use permission_sandbox::{
    DecisionCounts, Grant, PendingAction, PermissionSandboxSummary, Refusal, SandboxBrief,
    ViolationBrief,
};
pub use queue::{QueueSnapshot, QueuedTurn};
pub use routing_limit::{CostState, RoutingLimitSummary, UsageTotals};
pub use session_snapshot::{RecentItem, SessionSnapshot, ThreadBrief};
pub use thread::{Incident, ThreadReadModel, Threads, TurnBrief};
pub use tool_inventory::{InventoryTool, ToolInventory};

/// A value with how far it can be relied on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "known", content = "value", rename_all = "snake_case")]
pub enum Fact<T> {
    /// The log does not show it.
    #[default]
    Unknown,
    /// The log shows that there is none.
    Unavailable,
    /// It was so, and something that may have changed it is missing from the log.
    Stale(T),
    Known(T),
}

impl<T> Fact<T> {
    /// The value, also when it is stale.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Known(value) | Self::Stale(value) => Some(value),
            Self::Unknown | Self::Unavailable => None,
        }
    }

    /// The value, unless there is doubt.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            _ => None,
        }
    }

    /// Something that may have changed the value is missing from the log.
    pub(crate) fn doubt(&mut self) {
        *self = match std::mem::take(self) {
            Self::Known(value) => Self::Stale(value),
            other => other,
        };
    }
}

/// How far a read model has read, and whether anything was missing on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The sequence of the next event.
    pub next_sequence: u64,
    /// How many events were missing.
    pub missing_events: u64,
}

pub(crate) enum Step {
    /// The event follows the one before.
    Next,
    /// Events are missing before this one.
    AfterGap,
    /// The event was seen before.
    Again,
}

impl Cursor {
    pub(crate) fn step(&mut self, event: &Event) -> Step {
        if event.sequence < self.next_sequence {
            return Step::Again;
        }
        let missing = event.sequence - self.next_sequence;
        self.missing_events = self.missing_events.saturating_add(missing);
        self.next_sequence = event.sequence.saturating_add(1);
        if missing > 0 {
            Step::AfterGap
        } else {
            Step::Next
        }
    }
}

/// A read model over the events of one session.
pub trait Fold {
    /// Takes the next event.
    fn fold(&mut self, event: &Event);
}

/// Keeps the last `most` entries.
pub(crate) fn push_bounded<T>(list: &mut Vec<T>, entry: T, most: usize) {
    if list.len() >= most {
        list.remove(0);
    }
    list.push(entry);
}

/// All read models of a session. Ended calls are kept only as far as a screen shows them; see
/// [`Calls::all`] for every call of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadModels {
    pub session_snapshot: SessionSnapshot,
    pub threads: Threads,
    pub tool_inventory: ToolInventory,
    pub queue: QueueSnapshot,
    pub permission_sandbox: PermissionSandboxSummary,
    pub execution_environment: ExecutionEnvironment,
    pub context_boundary: ContextBoundary,
    pub artifact_checkpoint: ArtifactCheckpointSummary,
    pub evidence: EvidenceSummary,
    pub routing_limit: RoutingLimitSummary,
    pub calls: Calls,
}

impl Fold for ReadModels {
    fn fold(&mut self, event: &Event) {
        self.session_snapshot.fold(event);
        self.threads.fold(event);
        self.tool_inventory.fold(event);
        self.queue.fold(event);
        self.permission_sandbox.fold(event);
        self.execution_environment.fold(event);
        self.context_boundary.fold(event);
        self.artifact_checkpoint.fold(event);
        self.evidence.fold(event);
        self.routing_limit.fold(event);
        self.calls.fold(event);
    }
}

impl ReadModels {
    /// The sequence of the next event.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.session_snapshot.cursor.next_sequence
    }
}
