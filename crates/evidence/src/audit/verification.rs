//! Verification recomputed from the events, and claims held against it.

use std::collections::HashMap;

use agent_history::fold::is_work;
use agent_history::verification::{CheckRun, VerificationState};
use agent_protocol::id::{EvidenceId, ToolCallId};
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::conversation::{
    ClaimVerdict, EvidenceChanged, EvidenceKind, EvidenceStatus, TurnCompleted,
};
use agent_protocol::status::VerificationStatus;
use agent_protocol::{Event, Payload};

use super::{AuditReport, Checks};

/// A command the log shows.
#[derive(Debug, Clone, PartialEq)]
pub struct VerificationRun {
    pub command: String,
    /// Missing for a verification that could not be judged.
    pub exit_code: Option<i32>,
    /// The verification's own record, and what it says of itself.
    pub evidence: Option<EvidenceChanged>,
    /// Whether project files changed after it.
    pub stale: bool,
}

/// A check in a command, as its end tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedCheck {
    /// Its words, as in `evidence.changed`.
    pub check: Vec<String>,
    /// Missing when it could not be judged.
    pub exit_code: Option<i32>,
}

/// A claim of a final text as a reader of claims judges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadClaim {
    pub text: String,
    pub verdict: ClaimVerdict,
    /// The record of the run that decides, where there is one.
    pub evidence_id: Option<EvidenceId>,
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
    pipe_status: Option<Vec<i32>>,
    /// The changes it speaks for: those before its end, or, in the background, before it began.
    changes: u64,
    /// Where its end is recorded.
    sequence: u64,
    has_evidence: bool,
}

/// What the running turn has come to.
#[derive(Default)]
struct Turn {
    state: VerificationState,
    /// The exit code of a run could not be read, so that nothing can be recomputed.
    is_unknown: bool,
    is_conflict_recorded: bool,
    /// Commands that ended in it, in this order.
    ended: Vec<ToolCallId>,
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
                self.turn = Turn {
                    state: self.turn.state.next_turn(),
                    ..Turn::default()
                };
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
                        pipe_status: None,
                        changes: self.turn.state.changes(),
                        sequence: event.sequence,
                        has_evidence: false,
                    };
                    self.commands.insert(call.clone(), ended);
                    let statuses = result.data.pipe_status.clone();
                    self.ended(call, result.data.exit_code, statuses, 0, event.sequence);
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
                    let statuses = ended.pipe_status.clone();
                    self.ended(call, ended.exit_code, statuses, own, event.sequence);
                }
            }
            Payload::HistoryRollbackCompleted(rollback) => {
                self.changed(&rollback.files_restored);
            }
            Payload::EvidenceChanged(evidence) if evidence.kind == EvidenceKind::Verification => {
                self.verified(event, evidence, checks, report);
            }
            Payload::RuntimeWarning(warning)
                if matches!(
                    warning.code.as_str(),
                    "final_answer_conflict" | "final_answer_unproven"
                ) =>
            {
                self.turn.is_conflict_recorded = true;
            }
            Payload::TurnCompleted(completed) => {
                turn_ends(event, completed, &self.turn, report);
                self.tell_unrecorded(checks, report);
                self.tell_claims(event, completed, checks, report);
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
        (0..more).for_each(|_| self.turn.state.file_changed());
        more
    }

    fn ended(
        &mut self,
        call: &ToolCallId,
        exit_code: Option<i32>,
        pipe_status: Option<Vec<i32>>,
        own: u64,
        sequence: u64,
    ) {
        let (Some(exit_code), Some(command)) = (exit_code, self.commands.get_mut(call)) else {
            return;
        };
        command.exit_code = Some(exit_code);
        command.pipe_status = pipe_status;
        command.changes += own;
        command.sequence = sequence;
        self.turn.ended.push(call.clone());
        let run = VerificationRun {
            command: command.command.clone(),
            exit_code: Some(exit_code),
            evidence: None,
            stale: false,
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
        let (mut exits, mut judged) = (None, None);
        let mut changes = self.turn.state.changes();
        match command {
            None => report.error_at(
                event,
                "evidence_without_command",
                "a verification is recorded of no command that ran".into(),
            ),
            Some(command) => {
                command.has_evidence = true;
                exits = command.exit_code.map(|exit| {
                    // One member of a pipeline may be what verifies.
                    let members = command.pipe_status.iter().flatten().copied();
                    members.chain([exit]).collect::<Vec<i32>>()
                });
                changes = command.changes;
                let statuses = command.pipe_status.as_deref();
                let judging = checks.judge.zip(command.exit_code);
                judged = judging.map(|(judge, exit)| judge(&command.command, exit, statuses));
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
        // With a shell's understanding it is known what each check came to; without, a check in a
        // pipeline or a chain has the status of one of its parts.
        let is_told = |said: i32, was: &[i32]| match (&evidence.check, &judged) {
            (Some(check), Some(judged)) => {
                let mut same = judged.iter().filter(|one| one.check == *check).peekable();
                same.peek().is_none() || same.any(|one| one.exit_code == Some(said))
            }
            (Some(_), None) => said == 0 || was.contains(&said),
            (None, _) => was.last() == Some(&said),
        };
        if let (Some(said), Some(was)) = (evidence.exit_code, &exits)
            && !is_told(said, was)
        {
            let was = was.last().copied().unwrap_or_default();
            report.error_at(
                event,
                "evidence_differs",
                format!("the record says exit code {said}, but the command ended with {was}"),
            );
        }
        let whole = exits.as_ref().and_then(|exits| exits.last().copied());
        let exit_code = match evidence.check {
            Some(_) => evidence.exit_code,
            None => whole.or(evidence.exit_code),
        };
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
        self.turn.is_unknown |= exit_code.is_none() && evidence.reason.is_none();
        let mut facts = evidence.clone();
        facts.exit_code = exit_code;
        if let (None, Some(exit)) = (&evidence.check, exit_code) {
            facts.status = match exit {
                0 => EvidenceStatus::Passed,
                _ => EvidenceStatus::Failed,
            };
        }
        let run = CheckRun::of(&facts, changes);
        self.turn.state.verified(evidence.evidence_id.clone(), run);
        let run = VerificationRun {
            command: evidence.command.clone().unwrap_or_default(),
            exit_code,
            evidence: Some(facts),
            stale: self.turn.state.changes() > changes,
        };
        self.remember(run);
    }

    /// A check that ran and left no evidence may have failed without anybody being told.
    fn tell_unrecorded(&self, checks: Checks<'_>, report: &mut AuditReport) {
        let Some(verifies) = checks.decides else {
            return;
        };
        for command in self
            .turn
            .ended
            .iter()
            .filter_map(|call| self.commands.get(call))
        {
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
        checks: Checks<'_>,
        report: &mut AuditReport,
    ) {
        let (Some(read), Some(text)) = (checks.claims, &completed.final_text) else {
            return;
        };
        for claim in read(text, &self.runs) {
            let sentence = agent_text::brief(&claim.text, 200);
            let recorded = completed.claims.iter().flatten();
            let mut recorded = recorded.filter(|recorded| recorded.text == claim.text);
            if recorded.any(|recorded| recorded.verdict != claim.verdict) {
                report.warn_at(
                    event,
                    "claim_differs",
                    format!(
                        "the turn records another verdict than `{}` for the claim \"{sentence}\"",
                        claim.verdict
                    ),
                );
            }
            let (code, finding) = match claim.verdict {
                ClaimVerdict::Supported => {
                    report.note(
                        "claim_supported",
                        Some(event.sequence),
                        match &claim.evidence_id {
                            Some(id) => {
                                format!("{id} shows what the final text claims: \"{sentence}\"")
                            }
                            None => format!(
                                "the events show what the final text claims: \"{sentence}\""
                            ),
                        },
                    );
                    continue;
                }
                ClaimVerdict::Contradicted => (
                    "claim_contradicted",
                    "the final text claims what a failed check contradicts",
                ),
                ClaimVerdict::CouldNotBeJudged => (
                    "claim_could_not_be_judged",
                    "the final text claims what a check was run for whose exit status is not known",
                ),
                ClaimVerdict::Stale => (
                    "claim_stale",
                    "the final text claims what was last checked before a later change",
                ),
                ClaimVerdict::NotRun => (
                    "claim_not_run",
                    "the final text claims what no recorded command proves",
                ),
            };
            if self.turn.is_conflict_recorded {
                report.note(
                    code,
                    Some(event.sequence),
                    format!("{finding}, and the runtime said so: \"{sentence}\""),
                );
            } else {
                report.warn_at(
                    event,
                    "claim_unmarked",
                    format!("{finding}, and nothing marks it: \"{sentence}\""),
                );
            }
        }
    }
}

fn turn_ends(event: &Event, completed: &TurnCompleted, turn: &Turn, report: &mut AuditReport) {
    let said = &completed.verification;
    let shown = turn.state.record();
    // To say that nothing was verified where there was nothing to verify claims nothing.
    let says_less = said.status == VerificationStatus::Unverified
        && shown.status == VerificationStatus::NotApplicable;
    if said.status != shown.status && !says_less && !turn.is_unknown {
        report.error_at(
            event,
            "verification_differs",
            format!(
                "the turn says `{}`, but its events show `{}`",
                said.status, shown.status
            ),
        );
    }
    let other_command = said.command.is_some() && said.command != shown.command;
    let other_exit = said.exit_code.is_some() && said.exit_code != shown.exit_code;
    let other_evidence = said
        .evidence_ids
        .iter()
        .any(|said| !turn.state.evidence_ids().contains(said));
    if other_evidence || other_command || other_exit {
        report.error_at(
            event,
            "verification_differs",
            "the turn names other verifications than its events show".into(),
        );
    }
}
