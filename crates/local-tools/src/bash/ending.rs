//! End of a command, as facts in the log. Foreground and background commands share this.

use std::path::PathBuf;

use agent_protocol::Payload;
use agent_protocol::id::{EventId, ProcessId};
use agent_protocol::payload::process::{
    ProcessCompleted, ProcessTerminated, SandboxSummary, TerminatedBy,
};
use agent_sandbox::{Detection, ExitStatus, Finished, KilledBy, Violation};
use agent_tool_runtime::policy::CollectedOutput;
use agent_tool_runtime::{Cancel, CancelReason, JournalError};

use super::launch::violation;
use super::refusals;
use super::scan::Changes;

/// Exit code and signal, one of them.
pub(super) fn status(finished: &Finished) -> (Option<i32>, Option<i32>) {
    match finished.status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
    }
}

/// The reason why we ended it, in words.
pub(super) fn reason(killed_by: KilledBy) -> &'static str {
    match killed_by {
        KilledBy::Deadline => "its time was up",
        KilledBy::Cancelled => "it was cancelled",
        KilledBy::SessionEnd => "the session ended",
        KilledBy::MemoryLimit => "it used more memory than allowed",
        KilledBy::DiskLimit => "the disk was nearly full",
        KilledBy::Outside => "somebody outside ended the sandbox",
    }
}

/// Request that stopped a command, with its reason.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub(crate) by: TerminatedBy,
    pub(crate) reason: String,
    /// The event that brought it about, where there is one.
    pub(crate) cause: Option<EventId>,
}

impl Stopped {
    pub(crate) fn new(by: TerminatedBy, reason: &str) -> Self {
        Self {
            by,
            reason: reason.to_owned(),
            cause: None,
        }
    }

    /// The request behind a cancellation.
    pub(super) fn by_cancel(cancel: &Cancel) -> Self {
        match cancel.reason() {
            Some(CancelReason::Terminated) => {
                Self::new(TerminatedBy::Runtime, "the program was told to end")
            }
            Some(CancelReason::Timeout) => Self::new(TerminatedBy::Policy, "its time was up"),
            Some(CancelReason::Interrupted) | None => {
                Self::new(TerminatedBy::User, "it was cancelled")
            }
        }
    }
}

/// A command that is over, with what came of it.
pub(super) struct Ended<'a> {
    pub(super) finished: &'a Finished,
    pub(super) output: Option<&'a CollectedOutput>,
    /// Its working directory at its end, if that is known.
    pub(super) cwd_after: Option<PathBuf>,
    /// Its changes, unless the result of its call tells them.
    pub(super) changes: Option<Changes>,
    /// The request that stopped it, if there was one.
    pub(super) stopped: Option<Stopped>,
}

/// The refusals worth telling: not those that every program of a kind meets and copes with.
pub(super) fn told(finished: &Finished) -> impl Iterator<Item = &Violation> {
    finished.violations.iter().filter(|group| !group.expected)
}

/// Records the refusals and the end.
pub(super) fn record(
    emit: &dyn Fn(Payload) -> Result<(), JournalError>,
    process_id: &ProcessId,
    ended: &Ended<'_>,
) -> Result<(), JournalError> {
    let (finished, output) = (ended.finished, ended.output);
    let changes = ended.changes.as_ref();
    let side_effects = changes.map_or_else(Vec::new, |changes| changes.effects.clone());
    let note = changes.and_then(|changes| changes.note.clone());
    for group in told(finished) {
        emit(violation(group, process_id).into())?;
    }
    let output_ref = output
        .and_then(|output| output.artifact.as_ref())
        .map(|artifact| artifact.artifact_id.clone());
    let output_index_ref = output
        .and_then(|output| output.index.as_ref())
        .map(|artifact| artifact.artifact_id.clone());
    let duration_ms = u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX);
    let (exit_code, signal) = status(finished);
    let Some(killed_by) = finished.killed_by else {
        return emit(
            ProcessCompleted {
                process_id: process_id.clone(),
                exit_code,
                signal,
                pipe_status: finished.pipe_status.clone(),
                duration_ms,
                output_ref,
                output_index_ref,
                stdout_bytes: finished.stdout_bytes,
                stderr_bytes: finished.stderr_bytes,
                cwd_after: (ended.cwd_after.as_ref()).map(|cwd| cwd.display().to_string()),
                side_effects,
                note,
                sandbox: SandboxSummary {
                    violations: told(finished).map(|group| group.count).sum(),
                    quarantined: finished
                        .quarantined
                        .iter()
                        .map(|item| item.path.display().to_string())
                        .collect(),
                },
            }
            .into(),
        );
    };
    let stopped = match (killed_by, &ended.stopped) {
        (KilledBy::Cancelled, Some(stopped)) => stopped.clone(),
        (KilledBy::Cancelled, None) => Stopped::new(TerminatedBy::User, reason(killed_by)),
        (KilledBy::SessionEnd, _) => Stopped::new(TerminatedBy::Runtime, reason(killed_by)),
        (KilledBy::Outside, _) => Stopped::new(TerminatedBy::Shutdown, reason(killed_by)),
        _ => Stopped::new(TerminatedBy::Policy, reason(killed_by)),
    };
    emit(
        ProcessTerminated {
            process_id: process_id.clone(),
            by: stopped.by,
            // Which signal it was that reached the first process is not told; both were sent.
            signal: signal.unwrap_or(15),
            reason: stopped.reason,
            output_ref,
            output_index_ref,
            duration_ms: Some(duration_ms),
            side_effects,
            note,
        }
        .into(),
    )
}

/// True if the refusal is known and not guessed from the output.
pub(super) fn is_certain(violation: &Violation) -> bool {
    matches!(
        violation.detection,
        Detection::SeccompNotification | Detection::BeforeAfterComparison
    ) && !violation.expected
}

/// Findings of the sandbox, and what is not known of the changes.
pub(super) fn note(finished: &Finished, changes: Option<String>) -> Option<String> {
    let mut notes: Vec<String> = told(finished).take(8).map(refusals::words).collect();
    for item in &finished.quarantined {
        notes.push(format!(
            "`{}` is protected; what the command put there was taken away.",
            item.path.display()
        ));
    }
    notes.extend(changes);
    (!notes.is_empty()).then(|| notes.join(" "))
}
