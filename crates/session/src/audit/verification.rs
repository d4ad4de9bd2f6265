//! Verification recomputed from the events, and claims held against it.

use std::collections::HashMap;

use agent_protocol::id::{EvidenceId, ToolCallId};
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::conversation::{
    EvidenceChanged, EvidenceKind, EvidenceStatus, TurnCompleted,
};
use agent_protocol::status::VerificationStatus;
use agent_protocol::{Event, Payload};

use super::{AuditReport, Checks};
use crate::fold::is_work;

/// A command the log shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerificationRun {
    pub command: String,
    pub exit_code: i32,
    /// Whether project files changed after it.
    pub stale: bool,
    /// Whether it is recorded as a verification.
    pub is_evidence: bool,
}

/// Runs that a claim is held against; a text speaks of the last ones.
const MOST_RUNS: usize = 256;

#[derive(Default)]
pub(super) struct VerificationCheck {
    turn: Turn,
    /// Commands whose arguments are known and that have not ended.
    open: HashMap<ToolCallId, String>,
    commands: HashMap<ToolCallId, Command>,
    /// The runs of all turns, the newest last.
    runs: Vec<VerificationRun>,
}

/// What a call that ran a command came to.
struct Command {
    command: String,
    exit_code: Option<i32>,
    /// The changes it speaks for: those before its end, or, in the background, before it began.
    changes: u64,
    /// Where its end is recorded.
    sequence: u64,
    has_evidence: bool,
}

/// What the running turn has come to.
#[derive(Default)]
struct Turn {
    last: Option<LastRun>,
    evidence_ids: Vec<EvidenceId>,
    changes: u64,
    is_conflict_recorded: bool,
    /// Commands that ended in it, in this order.
    ended: Vec<ToolCallId>,
}

struct LastRun {
    command: String,
    /// Missing when it could not be read, so that nothing can be recomputed from it.
    exit_code: Option<i32>,
    changes: u64,
}

impl Turn {
    fn status(&self) -> VerificationStatus {
        match &self.last {
            None if self.changes > 0 => VerificationStatus::Unverified,
            None => VerificationStatus::NotApplicable,
            Some(run) if self.changes > run.changes => VerificationStatus::Stale,
            Some(run) if run.exit_code == Some(0) => VerificationStatus::Passed,
            Some(_) => VerificationStatus::Failed,
        }
    }
}

/// Changes of files that the work is about.
fn counted(effects: &[SideEffect]) -> u64 {
    effects.iter().filter(|effect| is_work(effect)).count() as u64
}

impl VerificationCheck {
    pub(super) fn take(&mut self, event: &Event, checks: Checks<'_>, report: &mut AuditReport) {
        let call = event.scope.tool_call_id.as_ref();
        match &event.payload {
            Payload::TurnStarted(_) => {
                // What began in an earlier turn and ends in this one proves nothing here.
                self.commands.clear();
                self.turn = Turn::default();
            }
            Payload::ToolArgs(args) => {
                let command = args.safe_args.as_ref().and_then(|args| args.get("command"));
                let command = command.and_then(serde_json::Value::as_str);
                if let (Some(call), Some(command)) = (call, command) {
                    self.open.insert(call.clone(), command.to_owned());
                }
            }
            Payload::ToolResult(result) => {
                self.changed(&result.side_effects);
                let Some(call) = call else { return };
                if let Some(command) = self.open.remove(call) {
                    let ended = Command {
                        command,
                        exit_code: None,
                        changes: self.turn.changes,
                        sequence: event.sequence,
                        has_evidence: false,
                    };
                    self.commands.insert(call.clone(), ended);
                    self.ended(call, result.data.exit_code, 0, event.sequence);
                }
            }
            Payload::ToolFailed(failed) => {
                self.changed(&failed.side_effects);
                if let Some(call) = call {
                    self.open.remove(call);
                }
            }
            Payload::ProcessTerminated(ended) => {
                self.changed(&ended.side_effects);
            }
            Payload::ProcessCompleted(ended) => {
                let own = self.changed(&ended.side_effects);
                // One whose call ended before it did ran in the background.
                if let Some(call) = call.filter(|call| self.commands.contains_key(*call)) {
                    self.ended(call, ended.exit_code, own, event.sequence);
                }
            }
            Payload::HistoryRollbackCompleted(rollback) => {
                self.changed(&rollback.files_restored);
            }
            Payload::EvidenceChanged(evidence) if evidence.kind == EvidenceKind::Verification => {
                self.verified(event, evidence, checks, report);
            }
            Payload::RuntimeWarning(warning) if warning.code == "final_answer_conflict" => {
                self.turn.is_conflict_recorded = true;
            }
            Payload::TurnCompleted(completed) => {
                let turn = std::mem::take(&mut self.turn);
                turn_ends(event, completed, &turn, report);
                self.tell_unrecorded(&turn, checks, report);
                self.tell_claims(event, completed, &turn, checks, report);
            }
            _ => {}
        }
    }

    /// Takes changes in; gives back how many of them count.
    fn changed(&mut self, effects: &[SideEffect]) -> u64 {
        let more = counted(effects);
        if more > 0 {
            self.runs.iter_mut().for_each(|run| run.stale = true);
        }
        self.turn.changes += more;
        more
    }

    fn ended(&mut self, call: &ToolCallId, exit_code: Option<i32>, own: u64, sequence: u64) {
        let (Some(exit_code), Some(command)) = (exit_code, self.commands.get_mut(call)) else {
            return;
        };
        command.exit_code = Some(exit_code);
        command.changes += own;
        command.sequence = sequence;
        self.turn.ended.push(call.clone());
        let run = VerificationRun {
            command: command.command.clone(),
            exit_code,
            stale: false,
            is_evidence: false,
        };
        self.remember(run);
    }

    fn remember(&mut self, run: VerificationRun) {
        self.runs.push(run);
        if self.runs.len() > MOST_RUNS {
            self.runs.remove(0);
        }
    }

    fn verified(
        &mut self,
        event: &Event,
        evidence: &EvidenceChanged,
        checks: Checks<'_>,
        report: &mut AuditReport,
    ) {
        let call = event.scope.tool_call_id.as_ref();
        let command = call.and_then(|call| self.commands.get_mut(call));
        let (mut exit, mut changes) = (None, self.turn.changes);
        match command {
            None => report.error_at(
                event,
                "evidence_without_command",
                "a verification is recorded of no command that ran".into(),
            ),
            Some(command) => {
                command.has_evidence = true;
                (exit, changes) = (command.exit_code, command.changes);
                let said = evidence.command.as_ref();
                if said.is_some_and(|said| *said != command.command) {
                    report.error_at(
                        event,
                        "evidence_differs",
                        "the verification names another command than the one that ran".into(),
                    );
                }
                let verifies = checks.verifies;
                if verifies.is_some_and(|verifies| !verifies(&command.command)) {
                    report.warn_at(
                        event,
                        "evidence_unrecognised",
                        "the command is none that is known to verify anything, here and now".into(),
                    );
                }
            }
        }
        if let (Some(said), Some(was)) = (evidence.exit_code, exit)
            && said != was
        {
            report.error_at(
                event,
                "evidence_differs",
                format!("the record says exit code {said}, but the command ended with {was}"),
            );
        }
        let exit_code = exit.or(evidence.exit_code);
        let shown = match evidence.status {
            EvidenceStatus::Passed => Some(true),
            EvidenceStatus::Failed => Some(false),
            _ => None,
        };
        if let (Some(shown), Some(exit)) = (shown, exit_code)
            && shown != (exit == 0)
        {
            report.error_at(
                event,
                "evidence_differs",
                format!(
                    "a verification with exit code {exit} is recorded as {}",
                    evidence.status
                ),
            );
        }
        let command = evidence.command.clone().unwrap_or_default();
        self.turn.evidence_ids.push(evidence.evidence_id.clone());
        self.turn.last = Some(LastRun {
            command: command.clone(),
            exit_code,
            changes,
        });
        let run = VerificationRun {
            command,
            exit_code: exit_code.unwrap_or(-1),
            stale: self.turn.changes > changes,
            is_evidence: true,
        };
        self.remember(run);
    }

    /// A check that ran and left no evidence may have failed without anybody being told.
    fn tell_unrecorded(&self, turn: &Turn, checks: Checks<'_>, report: &mut AuditReport) {
        let Some(verifies) = checks.verifies else {
            return;
        };
        for command in turn.ended.iter().filter_map(|call| self.commands.get(call)) {
            if let (Some(exit), false) = (command.exit_code, command.has_evidence)
                && verifies(&command.command)
            {
                report.warning(
                    "evidence_missing",
                    Some(command.sequence),
                    format!(
                        "a verification ended with exit code {exit}, and no evidence records it"
                    ),
                );
            }
        }
    }

    fn tell_claims(
        &self,
        event: &Event,
        completed: &TurnCompleted,
        turn: &Turn,
        checks: Checks<'_>,
        report: &mut AuditReport,
    ) {
        let (Some(read), Some(text)) = (checks.claims, &completed.final_text) else {
            return;
        };
        for sentence in read(text, &self.runs) {
            let sentence = crate::fold::brief(&sentence, 200);
            if turn.is_conflict_recorded {
                report.note(
                    "claim_contradicted",
                    Some(event.sequence),
                    format!("the final text claims what the events do not show, and the runtime said so: \"{sentence}\""),
                );
            } else {
                report.warn_at(
                    event,
                    "claim_unmarked",
                    format!("the final text claims what the events do not show, and nothing marks it: \"{sentence}\""),
                );
            }
        }
    }
}

fn turn_ends(event: &Event, completed: &TurnCompleted, turn: &Turn, report: &mut AuditReport) {
    let said = &completed.verification;
    let shown = turn.status();
    // To say that nothing was verified where there was nothing to verify claims nothing.
    let says_less =
        said.status == VerificationStatus::Unverified && shown == VerificationStatus::NotApplicable;
    let last = turn.last.as_ref();
    let is_unknown = last.is_some_and(|run| run.exit_code.is_none());
    if said.status != shown && !says_less && !is_unknown {
        report.error_at(
            event,
            "verification_differs",
            format!(
                "the turn says `{}`, but its events show `{shown}`",
                said.status
            ),
        );
    }
    let other_command =
        said.command.is_some() && said.command.as_deref() != last.map(|run| run.command.as_str());
    let other_exit =
        said.exit_code.is_some() && said.exit_code != last.and_then(|run| run.exit_code);
    let other_evidence = said
        .evidence_ids
        .iter()
        .any(|said| !turn.evidence_ids.contains(said));
    if other_evidence || other_command || other_exit {
        report.error_at(
            event,
            "verification_differs",
            "the turn names other verifications than its events show".into(),
        );
    }
}
