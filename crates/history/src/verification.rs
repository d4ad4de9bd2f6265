//! The rule by which work counts as verified, a fold over changes and verification runs. The engine
//! writes by it and the audit checks by it.
//!
//! A *check* is a runner with its arguments in a directory. Work is verified when, for every check that
//! ran after the last change to project files, its last run passed, and no failed check is left
//! unanswered. A failed check is answered by the same check passing later, or by a wider run of the same
//! runner: `cargo test` answers `cargo test one_test`. No other check answers it.

use agent_protocol::id::EvidenceId;
use agent_protocol::payload::conversation::{EvidenceChanged, EvidenceStatus, Verification};
use agent_protocol::status::VerificationStatus;

mod wider;
mod words;

pub use wider::answers;
pub use words::{describe, describe_failure};

/// The outcome of one run of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    Passed,
    Failed,
    /// Its exit status is not known.
    NotJudged,
}

/// One run of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRun {
    pub command: String,
    /// The words of the check; `None` in logs that did not record them.
    pub check: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub status: CheckStatus,
    pub exit_code: Option<i32>,
    pub reason: Option<String>,
    /// How many changes of project files it speaks for.
    pub changes: u64,
}

impl CheckRun {
    /// The run that `evidence` records, after `changes` changes.
    #[must_use]
    pub fn of(evidence: &EvidenceChanged, changes: u64) -> Self {
        Self {
            command: evidence.command.clone().unwrap_or_default(),
            check: evidence.check.clone(),
            cwd: evidence.cwd.clone(),
            status: match (evidence.status, evidence.exit_code) {
                (EvidenceStatus::Passed, None | Some(0)) => CheckStatus::Passed,
                (EvidenceStatus::CouldNotBeJudged, _) => CheckStatus::NotJudged,
                _ => CheckStatus::Failed,
            },
            exit_code: evidence.exit_code,
            reason: evidence.reason.clone(),
            changes,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.check == other.check && self.cwd == other.cwd
    }

    /// True if this run, having passed, says that `failed` passes now.
    fn answers(&self, failed: &Self) -> bool {
        let wider = match (&self.check, &failed.check) {
            (Some(wide), Some(narrow)) => answers(wide, narrow),
            _ => true,
        };
        self.changes >= failed.changes && self.cwd == failed.cwd && wider
    }
}

/// What is known in one turn, advanced event by event.
///
/// Changes are counted, and a run remembers how many there were when it ended. It is recorded later,
/// when its whole round has ended, and by then another call of the round may have changed a file.
#[derive(Clone, Debug, Default)]
pub struct VerificationState {
    /// Of each check the last run that counts, the newest last. Failed ones of earlier turns are kept
    /// until they are answered.
    kept: Vec<CheckRun>,
    changes: u64,
    changes_before: u64,
    evidence_ids: Vec<EvidenceId>,
}

impl VerificationState {
    /// The state a following turn begins with.
    #[must_use]
    pub fn next_turn(&self) -> Self {
        let failed = self.kept.iter();
        let failed = failed.filter(|run| run.status == CheckStatus::Failed && run.check.is_some());
        Self {
            kept: failed.cloned().collect(),
            changes: self.changes,
            changes_before: self.changes,
            evidence_ids: Vec::new(),
        }
    }

    /// A project file changed. A verification's own changes come before the number of changes it is
    /// recorded with: a test run that writes a report does not make itself stale.
    pub fn file_changed(&mut self) {
        self.changes += 1;
    }

    /// The number of changes so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The runs recorded in this turn.
    #[must_use]
    pub fn evidence_ids(&self) -> &[EvidenceId] {
        &self.evidence_ids
    }

    /// A check ran to its end.
    pub fn verified(&mut self, evidence: EvidenceId, run: CheckRun) {
        self.evidence_ids.push(evidence);
        if run.check.is_none() {
            // Logs without checks were written by the rule that the last run decides.
            self.kept.clear();
        }
        self.kept.retain(|kept| match (run.status, kept.status) {
            (CheckStatus::Passed, CheckStatus::Failed) => !run.answers(kept),
            (CheckStatus::Passed, _) => !(run.answers(kept) || run.is_same(kept)),
            (CheckStatus::Failed, _) => !run.is_same(kept),
            // It does not say that a failed check passes now.
            (CheckStatus::NotJudged, CheckStatus::NotJudged) => !run.is_same(kept),
            (CheckStatus::NotJudged, _) => true,
        });
        self.kept.push(run);
    }

    /// The status, and the run that decides it.
    fn decided(&self) -> (VerificationStatus, Option<&CheckRun>) {
        if self.evidence_ids.is_empty() {
            let is_changed = self.changes > self.changes_before;
            let status = if is_changed {
                VerificationStatus::Unverified
            } else {
                VerificationStatus::NotApplicable
            };
            return (status, None);
        }
        let last = |is_current: bool, status: CheckStatus| {
            self.kept
                .iter()
                .rev()
                .find(|run| (run.changes >= self.changes) == is_current && run.status == status)
        };
        let in_order = [
            (true, CheckStatus::Failed, VerificationStatus::Failed),
            (
                true,
                CheckStatus::NotJudged,
                VerificationStatus::CouldNotBeJudged,
            ),
            (false, CheckStatus::Failed, VerificationStatus::Stale),
            (true, CheckStatus::Passed, VerificationStatus::Passed),
        ];
        in_order
            .into_iter()
            .find_map(|(is_current, run, status)| Some((status, Some(last(is_current, run)?))))
            .unwrap_or((VerificationStatus::Stale, self.kept.last()))
    }

    /// What the facts say now.
    #[must_use]
    pub fn status(&self) -> VerificationStatus {
        self.decided().0
    }

    /// The record for the turn's end.
    #[must_use]
    pub fn record(&self) -> Verification {
        let (status, run) = self.decided();
        Verification {
            status,
            evidence_ids: self.evidence_ids.clone(),
            command: run.map(|run| run.command.clone()),
            exit_code: run.and_then(|run| run.exit_code),
            reason: run.and_then(|run| run.reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(check: &str, status: CheckStatus, changes: u64) -> CheckRun {
        CheckRun {
            command: check.to_owned(),
            check: Some(check.split(' ').map(str::to_owned).collect()),
            cwd: None,
            status,
            exit_code: None,
            reason: None,
            changes,
        }
    }

    /// `e` is an edit, `/` the end of a turn; `p`, `f` and `u` are a passing, a failing and an unjudged
    /// run of the tests, `l` and `L` a passing and a failing one of the linter, `o` a failing run of one
    /// test. `P` is a passing run of the same round as an edit after it.
    fn check(story: &str, expected: VerificationStatus) {
        let mut state = VerificationState::default();
        for step in story.chars() {
            let before = state.changes();
            let (name, status) = match step {
                'e' => {
                    state.file_changed();
                    continue;
                }
                '/' => {
                    state = state.next_turn();
                    continue;
                }
                'P' => {
                    state.file_changed();
                    ("cargo test", CheckStatus::Passed)
                }
                'p' => ("cargo test", CheckStatus::Passed),
                'f' => ("cargo test", CheckStatus::Failed),
                'u' => ("cargo test", CheckStatus::NotJudged),
                'o' => ("cargo test one", CheckStatus::Failed),
                'l' => ("make lint", CheckStatus::Passed),
                _ => ("make lint", CheckStatus::Failed),
            };
            state.verified(EvidenceId::default(), run(name, status, before));
        }
        assert_eq!(state.status(), expected, "{story}");
    }

    #[test]
    fn the_last_run_of_every_check_decides() {
        use VerificationStatus::*;
        check("", NotApplicable);
        check("e", Unverified);
        check("p", Passed);
        check("fep", Passed);
        check("fepf", Failed);
        check("pe", Stale);
        check("fe", Stale);
        check("eP", Stale);
        check("ePp", Passed);
    }

    #[test]
    fn a_failed_check_is_answered_by_itself_alone() {
        use VerificationStatus::*;
        check("efl", Failed);
        check("eflp", Passed);
        check("epL", Failed);
        check("epLl", Passed);
        check("fel", Stale);
        check("felp", Passed);
        check("pel", Passed);
        check("eop", Passed);
        check("efo", Failed);
    }

    #[test]
    fn what_could_not_be_judged_proves_nothing() {
        use VerificationStatus::*;
        check("eu", CouldNotBeJudged);
        check("eup", Passed);
        check("epu", CouldNotBeJudged);
        check("efu", Failed);
        check("feu", CouldNotBeJudged);
        check("feuel", Stale);
        check("ul", CouldNotBeJudged);
        check("uel", Passed);
    }

    #[test]
    fn a_failed_check_is_remembered_when_a_later_turn_checks_something() {
        use VerificationStatus::*;
        check("ef/", NotApplicable);
        check("ef/e", Unverified);
        check("ef/el", Stale);
        check("ef/l", Failed);
        check("ef/ep", Passed);
        check("ep/el", Passed);
    }
}
