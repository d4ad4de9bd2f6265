//! The one decision about what is kept.

use crate::payload::EventType;

/// Durability of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Written to the log. Frequent classes (`model.delta`, `process.output`, `tool.progress`) are
    /// coalesced by their emitter before they are written.
    Durable,
    /// Delivered to listeners and not kept.
    Transient,
}

/// Decides for every class. The match is exhaustive on purpose: a new class cannot be added
/// without deciding, and nothing is transient that is not listed here.
#[must_use]
pub const fn persistence(class: EventType) -> Persistence {
    use EventType as E;
    match class {
        // Looking at a log must not change it.
        E::HistoryWindowLoaded => Persistence::Transient,

        E::SessionCreated
        | E::TurnSubmitted
        | E::TurnCompleted
        | E::TurnFailed
        | E::PermissionEvaluated
        | E::PermissionResolved
        | E::ActionRequired
        | E::ActionResolved
        | E::ToolStarted
        | E::ToolProgress
        | E::ToolObservation
        | E::SandboxApplied
        | E::ProcessStarted
        | E::ProcessOutput
        | E::HistoryRollbackStarted
        | E::HistoryRollbackCompleted
        | E::PolicyChanged
        | E::ModelRequested
        | E::ModelCompleted
        | E::QueueChanged
        | E::RuntimeError
        | E::SessionUpdated
        | E::ThreadStarted
        | E::ThreadUpdated
        | E::TurnStarted
        | E::TaskCreated
        | E::TaskAccepted
        | E::TaskQueued
        | E::TaskStarted
        | E::TaskUpdated
        | E::TaskProgress
        | E::TaskWaiting
        | E::TaskBlocked
        | E::TaskPaused
        | E::TaskResumed
        | E::TaskRetrying
        | E::TaskCancelRequested
        | E::TaskCancelled
        | E::TaskTimedOut
        | E::TaskFailed
        | E::TaskLost
        | E::TaskCompleted
        | E::TaskArchived
        | E::RunStatus
        | E::ModelDelta
        | E::ModelFailed
        | E::ReasoningDelta
        | E::ReasoningSummary
        | E::ToolCatalogResolved
        | E::ToolIntent
        | E::ToolValidation
        | E::ToolArgs
        | E::ToolResult
        | E::ToolFailed
        | E::ContextResolved
        | E::ContextCompactionStarted
        | E::ContextCompactionCompleted
        | E::ContextCompactionFailed
        | E::ArtifactChanged
        | E::EvidenceChanged
        | E::SubagentSpawned
        | E::SubagentStatus
        | E::SubagentInput
        | E::SubagentCompleted
        | E::SubagentFailed
        | E::SubagentClosed
        | E::LimitChanged
        | E::SnapshotUpdated
        | E::RuntimeWarning
        | E::PermissionRequested
        | E::SandboxViolation
        | E::HookStarted
        | E::HookCompleted
        | E::HookFailed
        | E::ProcessInput
        | E::ProcessCompleted
        | E::ProcessFailed
        | E::ProcessTerminated
        | E::TaskProfileResolved
        | E::RoutingCandidatesResolved
        | E::RoutingDecided
        | E::RoutingFallbackApplied
        | E::RoutingNotPossible
        | E::RoutingSingleCandidate
        | E::TaskDelegated
        | E::TaskDependencyUpdated
        | E::TaskAttemptStarted
        | E::TaskAttemptCompleted
        | E::TaskAttemptFailed
        | E::CostEstimated
        | E::CostRecorded
        | E::RateLimitHit
        | E::QuotaLow
        | E::QuotaBlocked
        | E::ChannelConnected
        | E::ChannelDisconnected
        | E::ChannelResumed
        | E::ChannelMessage
        | E::ChannelPermissionForwarded
        | E::ChannelPermissionReturned
        | E::JobCreated
        | E::JobStarted
        | E::JobProgress
        | E::JobItemStarted
        | E::JobItemCompleted
        | E::JobItemFailed
        | E::JobCompleted
        | E::JobFailed
        | E::JobCancelled
        | E::OutputSpilled
        | E::OutputTruncated
        | E::OutputRedacted
        | E::OutputExpired
        | E::HistoryReconstructed
        | E::SnapshotRepaired => Persistence::Durable,
    }
}
