//! Sessions, threads, turns and the queue: the containers everything else happens in.

use serde_json::Value;

use crate::id::{ArtifactId, EvidenceId, SessionId, ThreadId, TurnId};
use crate::payload::{ArtifactRef, SideEffect, Usage};
use crate::record::{record, words};
use crate::status::{Mode, Status, Thinking, VerificationStatus};

record! {
    /// The first line of a log: a session exists.
    SessionCreated {
        title?: String,
        /// SHA-256 of the project root's path, so that a log can be matched without naming it.
        project_root_hash: String,
        agent_version: String,
        /// Missing when it is unknown, as in some imported sessions.
        mode?: Mode,
        profile?: String,
        config_hash?: String,
        /// Of an imported session: the directory that its paths are relative to.
        recorded_in?: String,
        /// Event at which a forked session branched off.
        parent?: SessionParent,
    }
}

record! {
    /// The place in another log a session continues from.
    SessionParent {
        session_id: SessionId,
        sequence: u64,
    }
}

record! {
    /// Something about the session changed, or it ended.
    SessionUpdated {
        changed: SessionChanges,
        reason: String,
    }
}

record! {
    /// Changed fields; others are missing.
    SessionChanges {
        title?: String,
        mode?: Mode,
        model?: String,
        /// The directory of the project where commands run and relative paths begin; `.` is the project.
        working_directory?: String,
        thinking?: Thinking,
        status?: Status,
    }
}

words! {
    /// Role of a thread.
    ThreadRole {
        Main = "main",
        Subagent = "subagent",
    }
}

record! {
    /// An ordered context begins.
    ThreadStarted {
        parent_thread_id?: ThreadId,
        role: ThreadRole,
    }
}

record! {
    /// The thread's status changed.
    ThreadUpdated {
        status: Status,
        status_reason?: String,
        active_turn_id?: TurnId,
    }
}

words! {
    /// Source of an input.
    TurnSource {
        Cli = "cli",
        Tui = "tui",
        Queue = "queue",
        Service = "service",
    }
}

record! {
    /// An input was received.
    TurnSubmitted {
        /// The user's text, masked; missing when it is in the artifact `input_ref`.
        text?: String,
        input_ref?: ArtifactId,
        input_parts*: InputPart,
        source: TurnSource,
        status: Status,
        idempotency_key?: String,
    }
}

words! {
    /// Kind of a part of an input.
    InputPartKind {
        Text = "text",
        Image = "image",
        File = "file",
        Stdin = "stdin",
    }
}

record! {
    /// One part of an input besides its text.
    InputPart {
        kind: InputPartKind,
        name?: String,
        media_type?: String,
        bytes: u64,
        artifact?: ArtifactId,
        /// Of an attached file or directory: the call that shows it, made when the input becomes a part
        /// of the conversation. Content and hash are in its observation.
        shown_by?: AttachedCall,
    }
}

record! {
    /// A call that shows what an input attaches.
    AttachedCall {
        tool_name: String,
        input: Value,
    }
}

/// The model of a turn that no model works on: calls that a program or a person made.
pub const NO_MODEL: &str = "none";

record! {
    /// Work on the input begins.
    TurnStarted {
        model: String,
        mode: Mode,
        budget: Budget,
    }
}

record! {
    /// Ceilings of a turn; a missing one is not set.
    Budget {
        max_steps?: u64,
        max_tokens?: u64,
        max_cost?: f64,
        timeout_ms?: u64,
    }
}

words! {
    /// Outcome of a turn that ran to its end.
    TurnOutcome {
        /// Something that was needed was refused or is missing.
        Degraded = "degraded",
        Completed = "completed",
    }
}

record! {
    /// The turn ran to its end, computed from facts that are on disk.
    TurnCompleted {
        outcome: TurnOutcome,
        /// Stop reason of the model, e.g. `end_turn`.
        stop_reason: String,
        final_text?: String,
        final_text_ref?: ArtifactId,
        verification: Verification,
        /// Statements of success in the final text, each with what the log shows of it.
        claims?: Vec<Claim>,
        files_changed*: SideEffect,
        usage: Usage,
        cost?: f64,
        steps?: u64,
        refused_calls?: u64,
        duration_ms?: u64,
    }
}

record! {
    /// Verification of the turn's work, as far as the log shows it.
    Verification {
        status: VerificationStatus,
        evidence_ids*: EvidenceId,
        /// The command that decided, e.g. the one that failed.
        command?: String,
        exit_code?: i32,
        /// Reason why it could not be judged.
        reason?: String,
    }
}

words! {
    /// Verdict of the log on a claim.
    ClaimVerdict {
        /// No command that could show it was run.
        NotRun = "not_run",
        /// One was run, and its exit status is not known.
        CouldNotBeJudged = "could_not_be_judged",
        /// It was shown before the last change.
        Stale = "stale",
        /// The last judged run failed.
        Contradicted = "contradicted",
        /// The last run passed.
        Supported = "supported",
    }
}

record! {
    /// A statement of success and what the log shows of it.
    Claim {
        /// `tests`, `build`, `lint`, `everything` or `command`.
        about?: String,
        text: String,
        verdict: ClaimVerdict,
        /// The verification runs that decide.
        evidence_ids*: EvidenceId,
    }
}

record! {
    /// The turn ended before its end.
    TurnFailed {
        /// `failed`, `cancelled` or `timed_out`.
        status: Status,
        /// Part that failed, e.g. `model`, `runtime`, `limit`, `user`.
        category: String,
        code: String,
        message: String,
        retryable: bool,
        last_stable_sequence?: u64,
        usage?: Usage,
        cost?: f64,
        files_changed*: SideEffect,
    }
}

record! {
    /// Current activity or wait, in words for people.
    RunStatus {
        phase: Status,
        title: String,
        detail?: String,
        checkpoints*: String,
        metadata: RunMetadata,
    }
}

record! {
    /// Facts beside a run status.
    RunMetadata {
        step?: u64,
        attempt?: u64,
        retry_in_ms?: u64,
        waiting_for?: String,
    }
}

words! {
    /// Operation on the queue.
    QueueOperation {
        Added = "added",
        Removed = "removed",
        Promoted = "promoted",
        Started = "started",
        Cleared = "cleared",
    }
}

words! {
    /// Treatment of input that arrives while a turn runs.
    QueuePolicy {
        /// It waits for the turn's end.
        Queue = "queue",
        /// It joins the running turn at the next safe boundary.
        Steer = "steer",
    }
}

record! {
    /// The queue of inputs changed.
    QueueChanged {
        op: QueueOperation,
        queued_turn_id?: TurnId,
        order*: TurnId,
        policy: QueuePolicy,
    }
}

record! {
    /// A read model was written as a cache.
    SnapshotUpdated {
        name: String,
        path: String,
        sha256: String,
        as_of_sequence: u64,
    }
}

record! {
    /// A cached read model disagreed with the log and was rebuilt; the log wins.
    SnapshotRepaired {
        name: String,
        reason: String,
        as_of_sequence: u64,
    }
}

record! {
    /// Something unusual that does not stop the work.
    RuntimeWarning {
        code: String,
        message: String,
        evidence_refs*: String,
    }
}

record! {
    /// Something that stops the work.
    RuntimeError {
        code: String,
        message: String,
        fatal: bool,
        refs*: String,
    }
}

record! {
    /// A part of the log was read for display or resume.
    HistoryWindowLoaded {
        from_sequence: u64,
        to_sequence: u64,
        cursor?: u64,
    }
}

words! {
    /// Completeness of a rebuilt history.
    HistoryStatus {
        Degraded = "degraded",
        Complete = "complete",
    }
}

record! {
    /// The state was rebuilt from the log.
    HistoryReconstructed {
        /// `log`, or the sequence of the cached read model it started from.
        from: String,
        status: HistoryStatus,
        gaps*: HistoryGap,
        /// Bytes of a torn last line that were cut off on opening.
        cut_bytes?: u64,
        reason?: String,
    }
}

record! {
    /// Something the log does not show.
    HistoryGap {
        from_sequence: u64,
        to_sequence: u64,
        reason: String,
    }
}

record! {
    /// An undo of file changes begins.
    HistoryRollbackStarted {
        target_sequence: u64,
        reason: String,
        files*: String,
    }
}

record! {
    /// An undo of file changes ended.
    HistoryRollbackCompleted {
        target_sequence: u64,
        removed_turns*: TurnId,
        files_restored*: SideEffect,
        files_refused*: RefusedFile,
    }
}

record! {
    /// A file that was not undone, and the reason.
    RefusedFile {
        path: String,
        reason: String,
    }
}

record! {
    /// An artifact was written or seen.
    ArtifactChanged {
        artifact_id: ArtifactId,
        kind: ArtifactKind,
        /// Relative to the session directory.
        path: String,
        media_type: String,
        bytes: u64,
        sha256: String,
        /// The event, call or request that made it.
        producer_ref?: String,
        redacted: bool,
    }
}

words! {
    /// Content of an artifact.
    ArtifactKind {
        Other = "other",
        CommandOutput = "command_output",
        /// Ranges of a command output that were stderr.
        OutputIndex = "output_index",
        Diff = "diff",
        Before = "before",
        After = "after",
        ModelInput = "model_input",
        ModelOutput = "model_output",
        Catalog = "catalog",
        ToolInput = "tool_input",
        ToolResult = "tool_result",
        UserInput = "user_input",
        Summary = "summary",
        Report = "report",
        Image = "image",
    }
}

words! {
    /// Subject of an evidence record.
    EvidenceKind {
        Verification = "verification",
        Replay = "replay",
        Review = "review",
        EvidencePack = "evidence_pack",
        Report = "report",
    }
}

words! {
    /// Verdict of an evidence record.
    EvidenceStatus {
        Unverified = "unverified",
        Passed = "passed",
        Failed = "failed",
        Stale = "stale",
        Exported = "exported",
        CouldNotBeJudged = "could_not_be_judged",
    }
}

record! {
    /// A verification ran, or a replay, review or report was made.
    EvidenceChanged {
        evidence_id: EvidenceId,
        kind: EvidenceKind,
        status: EvidenceStatus,
        command?: String,
        /// The directory the check ran in, where that is known.
        cwd?: String,
        /// The exit status of the check itself, which is a part of the command.
        exit_code?: i32,
        /// The words of the check without wrappers, redirects and options that only change what is
        /// printed: a failed check is answered by the same one.
        check?: Vec<String>,
        /// Reason why it could not be judged.
        reason?: String,
        /// The tests its output names as failed. Text of the command: untrusted.
        failures?: Vec<TestFailure>,
        /// Number of further failures that the output names.
        failures_left_out?: u64,
        /// True if it ran after the last change to project files.
        covers_edits?: bool,
        artifacts*: ArtifactRef,
    }
}

record! {
    /// A test that failed, as a runner's output names it.
    TestFailure {
        test?: String,
        file?: String,
        line?: u64,
    }
}
