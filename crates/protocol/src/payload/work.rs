//! Tasks, subagents, jobs and channels: work beyond a single turn.

use serde_json::Value;

use crate::id::{
    ActionId, ArtifactId, ChannelId, EvidenceId, JobId, ProcessId, RunId, SubagentId, TaskId,
    ThreadId,
};
use crate::record::{record, words};
use crate::status::{Mode, Status};

record! {
    /// A unit of work exists.
    TaskCreated {
        title: String,
        objective: String,
        owner: String,
        parent_task_id?: TaskId,
        constraints*: String,
        acceptance*: String,
        idempotency_key?: String,
    }
}
record! {
    /// A task was assigned.
    TaskAccepted { assignee: String, }
}
record! {
    /// A task is queued.
    TaskQueued { reason: String, position: u64, }
}
record! {
    /// Work on a task begins.
    TaskStarted { run_id: RunId, thread_id: ThreadId, }
}
record! {
    /// The description of a task changed.
    TaskUpdated { changed: TaskChanges, }
}
record! {
    /// Changed fields; others are missing.
    TaskChanges { title?: String, objective?: String, owner?: String, acceptance*: String, }
}
record! {
    /// A task advanced.
    TaskProgress { phase: String, counters*: Counter, summary: String, output_refs*: ArtifactId, }
}
record! {
    /// A named number.
    Counter { name: String, value: u64, }
}
words! {
    /// Condition that a task waits for.
    WaitingFor {
        Input = "input",
        Permission = "permission",
        Resource = "resource",
        Dependency = "dependency",
    }
}
record! {
    /// A task waits.
    TaskWaiting { waiting_for: WaitingFor, action_id?: ActionId, }
}
record! {
    /// A task is blocked.
    TaskBlocked { blocker: String, required_action_id?: ActionId, }
}
record! {
    /// A task was paused.
    TaskPaused { reason: String, by: String, }
}
record! {
    /// A task was resumed.
    TaskResumed { reason: String, by: String, }
}
record! {
    /// A task is tried again.
    TaskRetrying { reason: String, previous_run_id: RunId, next_run_id: RunId, }
}
record! {
    /// Cancellation of a task was requested.
    TaskCancelRequested { reason: String, by: String, propagate: bool, }
}
record! {
    /// A task was cancelled.
    TaskCancelled { reason: String, children*: TaskId, }
}
record! {
    /// A task ran out of time.
    TaskTimedOut { limit_ms: u64, elapsed_ms: u64, }
}
record! {
    /// A task failed.
    TaskFailed { category: String, code: String, message: String, evidence_ids*: EvidenceId, }
}
record! {
    /// The worker of a task cannot be proven alive.
    TaskLost { last_seen_sequence: u64, reason: String, }
}
record! {
    /// A task is done.
    TaskCompleted {
        acceptance_results*: AcceptanceResult,
        artifact_ids*: ArtifactId,
        evidence_ids*: EvidenceId,
        delivery_state: String,
    }
}
record! {
    /// Result of one acceptance criterion.
    AcceptanceResult { criterion: String, ok: bool, evidence_id?: EvidenceId, }
}
record! {
    /// A task was archived.
    TaskArchived { reason: String, }
}
record! {
    /// Part of a task was delegated.
    TaskDelegated {
        child_task_id?: TaskId,
        subagent_id?: SubagentId,
        job_id?: JobId,
        reason: String,
    }
}
record! {
    /// An edge of the task graph changed.
    TaskDependencyUpdated { edge: TaskEdge, }
}
record! {
    /// An edge of the task graph.
    TaskEdge { kind: String, from: TaskId, to: String, status: String, reason?: String, }
}
record! {
    /// An attempt begins.
    TaskAttemptStarted { run_id: RunId, attempt_no: u64, worker: String, input_refs*: String, }
}
record! {
    /// An attempt succeeded.
    TaskAttemptCompleted { run_id: RunId, output_refs*: String, summary: String, }
}
record! {
    /// An attempt failed.
    TaskAttemptFailed {
        run_id: RunId,
        category: String,
        code: String,
        retryable: bool,
        last_error: String,
    }
}
record! {
    /// A subagent was started.
    SubagentSpawned {
        parent_thread_id: ThreadId,
        child_thread_id: ThreadId,
        role: String,
        objective: String,
        tools*: String,
        /// Missing when it is unknown, as in imported sessions.
        mode?: Mode,
        budget: crate::payload::conversation::Budget,
        context_mode: String,
    }
}
record! {
    /// The status of a subagent changed.
    SubagentStatus { status: Status, detail?: String, }
}
record! {
    /// A subagent received input.
    SubagentInput { input_ref: String, by: String, }
}
record! {
    /// A subagent returned a result.
    SubagentCompleted {
        result_ref: String,
        findings_count: u64,
        unknowns*: String,
        evidence_ids*: EvidenceId,
    }
}
record! {
    /// A subagent failed.
    SubagentFailed { category: String, code: String, message: String, }
}
record! {
    /// A subagent was closed.
    SubagentClosed { reason: String, }
}
record! {
    /// A peer connected.
    ChannelConnected {
        channel_id: ChannelId,
        transport: String,
        peer_role: String,
        capabilities*: String,
    }
}
record! {
    /// A peer disconnected.
    ChannelDisconnected { channel_id: ChannelId, reason: String, }
}
record! {
    /// A peer reconnected.
    ChannelResumed { channel_id: ChannelId, from_sequence: u64, }
}
record! {
    /// A peer sent a message.
    ChannelMessage { channel_id: ChannelId, kind: String, reference?: String, }
}
record! {
    /// A question went to a peer.
    ChannelPermissionForwarded { channel_id: ChannelId, action_id: ActionId, }
}
record! {
    /// A peer answered a question.
    ChannelPermissionReturned { channel_id: ChannelId, action_id: ActionId, decision: String, }
}
words! {
    /// Kind of a job.
    JobKind {
        BackgroundCommand = "background_command",
        Batch = "batch",
    }
}
record! {
    /// A job exists.
    JobCreated { job_id: JobId, task_id?: TaskId, kind: JobKind, item_count?: u64, }
}
record! {
    /// A job runs.
    JobStarted { job_id: JobId, process_id?: ProcessId, }
}
record! {
    /// A job advanced.
    JobProgress { job_id: JobId, done: u64, total?: u64, output_ref?: String, offset: u64, }
}
record! {
    /// An item of a job begins.
    JobItemStarted { job_id: JobId, item_id: String, attempt: u64, }
}
record! {
    /// An item of a job is done.
    JobItemCompleted { job_id: JobId, item_id: String, output_ref?: String, }
}
record! {
    /// An item of a job failed.
    JobItemFailed { job_id: JobId, item_id: String, attempt: u64, error: String, retryable: bool, }
}
record! {
    /// A job is done.
    JobCompleted { job_id: JobId, summary: String, result?: Value, }
}
record! {
    /// A job failed.
    JobFailed { job_id: JobId, error: String, }
}
record! {
    /// A job was stopped.
    JobCancelled { job_id: JobId, by: String, reason: String, }
}
