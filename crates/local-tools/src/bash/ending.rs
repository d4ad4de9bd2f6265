//! How a command ended, as facts in the log. Foreground and background commands share this.

use std::path::PathBuf;

use agent_protocol::Payload;
use agent_protocol::id::ProcessId;
use agent_protocol::payload::process::{
    ProcessCompleted, ProcessTerminated, SandboxSummary, TerminatedBy,
};
use agent_sandbox::{ExitStatus, Finished, KilledBy, Violation};
use agent_tool_runtime::JournalError;
use agent_tool_runtime::policy::CollectedOutput;

use super::launch::violation;
use super::scan::Changes;

/// Exit code and signal, one of them.
pub(super) fn status(finished: &Finished) -> (Option<i32>, Option<i32>) {
    match finished.status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
    }
}

/// Why we ended it, in words.
pub(super) fn reason(killed_by: KilledBy) -> &'static str {
    match killed_by {
        KilledBy::Deadline => "its time was over",
        KilledBy::Cancelled => "it was cancelled",
        KilledBy::SessionEnd => "the session ended",
        KilledBy::MemoryLimit => "it used more memory than allowed",
        KilledBy::DiskLimit => "the disk was nearly full",
        KilledBy::Outside => "somebody outside ended the sandbox",
    }
}

/// A command that is over, with what came of it.
pub(super) struct Ended<'a> {
    pub(super) finished: &'a Finished,
    pub(super) output: Option<&'a CollectedOutput>,
    /// Where it left off, if that is known.
    pub(super) cwd_after: Option<PathBuf>,
    /// What it changed, unless the result of its call tells.
    pub(super) changes: Option<Changes>,
}

/// The refusals worth telling: not those that every program of a kind meets and copes with.
fn told(finished: &Finished) -> impl Iterator<Item = &Violation> {
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
    emit(
        ProcessTerminated {
            process_id: process_id.clone(),
            by: match killed_by {
                KilledBy::Cancelled => TerminatedBy::User,
                KilledBy::SessionEnd | KilledBy::Outside => TerminatedBy::Shutdown,
                _ => TerminatedBy::Policy,
            },
            // Which signal it was that reached the first process is not told; both were sent.
            signal: signal.unwrap_or(15),
            reason: reason(killed_by).to_owned(),
            output_ref,
            output_index_ref,
            duration_ms: Some(duration_ms),
            side_effects,
            note,
        }
        .into(),
    )
}
