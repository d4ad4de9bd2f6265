//! Commands: the boundary that really held, and what ran inside it.

use crate::code::Code;
use crate::id::{ArtifactId, InvocationId, ProcessId};
use crate::payload::SideEffect;
use crate::record::{record, words};

words! {
    /// Strength of the sandbox. `unavailable` is no sandbox at all, `reason` says why; `off` stands
    /// in logs of earlier versions only, where it was switched off.
    SandboxStatus {
        Unavailable = "unavailable",
        Partial = "partial",
        Full = "full",
        Off = "off",
    }
}

record! {
    /// The boundary around a command, as enforced, before the command starts.
    SandboxApplied {
        profile_id: String,
        /// Mechanism that enforces it, e.g. `namespaces+landlock+seccomp`, `bubblewrap`, `none`.
        mechanism: String,
        abi?: u32,
        status: SandboxStatus,
        layers*: SandboxLayer,
        read_roots*: String,
        write_roots*: String,
        hidden*: String,
        protected*: String,
        /// `off`, `loopback` or `host`.
        network: String,
        env_keys*: String,
        /// Credentials that the command is shown: variables by name, files and directories by path.
        secrets*: String,
        process_limits: ProcessLimits,
        cwd: String,
        reason?: String,
        /// SHA-256 of the enforcement report.
        report_hash?: String,
    }
}

record! {
    /// One layer and whether it holds.
    SandboxLayer {
        name: String,
        holds: bool,
        detail?: String,
    }
}

record! {
    /// Ceilings for a command; a missing one is not set.
    ProcessLimits {
        processes?: u64,
        open_files?: u64,
        file_bytes?: u64,
        data_bytes?: u64,
        output_bytes?: u64,
        timeout_ms?: u64,
    }
}

words! {
    /// Kind of a refused action.
    ViolationKind {
        Other = "other",
        Read = "read",
        Write = "write",
        Network = "network",
        Exec = "exec",
        Syscall = "syscall",
        ProtectedPath = "protected_path",
        Limit = "limit",
    }
}

words! {
    /// Method of detection. Absence of violations is never claimed.
    Detection {
        Unknown = "unknown",
        Errno = "errno",
        SeccompNotification = "seccomp_notification",
        BeforeAfterComparison = "before_after_comparison",
        /// Counted by the kernel in the command's own network namespace.
        KernelCounter = "kernel_counter",
        InferredFromOutput = "inferred_from_output",
        KernelAudit = "kernel_audit",
    }
}

record! {
    /// Something a command tried was refused or undone.
    SandboxViolation {
        kind: ViolationKind,
        target?: String,
        /// The refused system call, where one is known.
        call?: String,
        count: u64,
        detection: Detection,
        process_id?: ProcessId,
        invocation_id?: InvocationId,
        /// The one rule or setting that would permit it.
        permitted_by?: String,
    }
}

record! {
    /// A command starts.
    ProcessStarted {
        process_id: ProcessId,
        command_summary: String,
        argv0: String,
        cwd: String,
        /// The `sandbox.applied` event.
        sandbox_ref: String,
        tty: bool,
        env_keys*: String,
        network: bool,
        os_pid?: u32,
        background: bool,
    }
}

words! {
    /// Output stream.
    StreamName {
        Stdout = "stdout",
        Stderr = "stderr",
        /// Both, interleaved as they came.
        Mixed = "mixed",
    }
}

record! {
    /// A command printed something; coalesced.
    ProcessOutput {
        process_id: ProcessId,
        stream: StreamName,
        offset: u64,
        bytes: u64,
        preview?: String,
    }
}

record! {
    /// A command was given input.
    ProcessInput {
        process_id: ProcessId,
        bytes: u64,
        sha256: String,
        by: String,
    }
}

/// True if a member of a pipeline failed whose status the exit code does not show. One that was ended
/// because the next one stopped reading did not fail.
#[must_use]
pub fn pipeline_failed(pipe_status: &[i32]) -> bool {
    const CLOSED_PIPE: i32 = 128 + 13;
    let hidden = pipe_status.split_last().map(|(_, earlier)| earlier);
    let mut hidden = hidden.unwrap_or_default().iter();
    hidden.any(|status| *status != 0 && *status != CLOSED_PIPE)
}

record! {
    /// A command ended by itself.
    ProcessCompleted {
        process_id: ProcessId,
        exit_code?: i32,
        signal?: i32,
        duration_ms: u64,
        /// The exit status of every member of the script's last pipeline, where there was more than
        /// one and the shell reported them.
        pipe_status?: Vec<i32>,
        /// Both streams interleaved, the raw bytes as they came.
        output_ref?: ArtifactId,
        /// Ranges of the output that were stderr.
        output_index_ref?: ArtifactId,
        stdout_bytes: u64,
        stderr_bytes: u64,
        cwd_after?: String,
        sandbox: SandboxSummary,
        /// Changes that a background command made while it ran; those of others are in
        /// `tool.result`.
        side_effects*: SideEffect,
        /// Changes that are not in that list, and the reason.
        note?: String,
    }
}

record! {
    /// Violations noticed during the run.
    SandboxSummary {
        violations: u64,
        quarantined*: String,
    }
}

words! {
    /// Reason why a command did not start or could not be followed.
    ProcessFailureCategory {
        Io = "io",
        Spawn = "spawn",
        Sandbox = "sandbox",
        Timeout = "timeout",
        /// The program ended while it ran; what became of it is not known.
        Lost = "lost",
    }
}

record! {
    /// A command did not start, or its end could not be seen.
    ProcessFailed {
        process_id?: ProcessId,
        category: ProcessFailureCategory,
        /// `lost` where its end was not seen.
        code?: Code,
        message: String,
    }
}

words! {
    /// Cause of a command's end.
    TerminatedBy {
        /// A limit that was set for it.
        Policy = "policy",
        /// A person, who stopped the turn or the command.
        User = "user",
        /// A call of the model; `causation_id` is the start of that call.
        Model = "model",
        /// The program, which ended or got a signal to end.
        Runtime = "runtime",
        /// Something outside; in logs of earlier versions also the end of the program.
        Shutdown = "shutdown",
        Parent = "parent",
    }
}

record! {
    /// A command was ended.
    ProcessTerminated {
        process_id: ProcessId,
        by: TerminatedBy,
        signal: i32,
        reason: String,
        output_ref?: ArtifactId,
        output_index_ref?: ArtifactId,
        duration_ms?: u64,
        /// Changes that a background command made while it ran; those of others are in
        /// `tool.failed`.
        side_effects*: SideEffect,
        /// Changes that are not in that list, and the reason.
        note?: String,
    }
}
