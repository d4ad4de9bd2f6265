//! Whether the work was checked, computed from recorded commands and exit codes.
//!
//! A verification is a command that runs tests, a build or a linter, by configuration or because its
//! program is a known runner. What it proves is decided by its exit code and by whether project
//! files changed after it; the text it printed and what the model says about it play no part.

pub mod claims;
mod runners;
mod track;

pub use runners::{Runner, recognise};
pub use track::{Shown, Track};

use agent_protocol::id::EvidenceId;
use agent_protocol::payload::conversation::Verification;
use agent_protocol::status::VerificationStatus;

/// The state of verification within one turn, advanced event by event.
///
/// Changes are counted, and a run remembers how many there were when it ended. It is recorded later,
/// when its whole round has ended, and by then another call of the round may have changed a file.
#[derive(Clone, Debug, Default)]
pub struct VerificationState {
    last: Option<LastRun>,
    changes: u64,
    evidence_ids: Vec<EvidenceId>,
}

#[derive(Clone, Debug)]
struct LastRun {
    command: String,
    exit_code: i32,
    changes: u64,
}

impl VerificationState {
    /// A project file changed. A verification's own changes come before the number of changes it is
    /// recorded with: a test run that writes a report does not make itself stale.
    pub fn file_changed(&mut self) {
        self.changes += 1;
    }

    /// How many changes there were so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A verification ran to its end, after `changes` changes.
    pub fn verified(&mut self, evidence: EvidenceId, command: &str, exit_code: i32, changes: u64) {
        self.evidence_ids.push(evidence);
        self.last = Some(LastRun {
            command: command.to_owned(),
            exit_code,
            changes,
        });
    }

    /// What the facts say now.
    #[must_use]
    pub fn status(&self) -> VerificationStatus {
        match &self.last {
            None if self.changes > 0 => VerificationStatus::Unverified,
            None => VerificationStatus::NotApplicable,
            Some(run) if self.changes > run.changes => VerificationStatus::Stale,
            Some(run) if run.exit_code == 0 => VerificationStatus::Passed,
            Some(_) => VerificationStatus::Failed,
        }
    }

    /// The record for the turn's end.
    #[must_use]
    pub fn record(&self) -> Verification {
        Verification {
            status: self.status(),
            evidence_ids: self.evidence_ids.clone(),
            command: self.last.as_ref().map(|run| run.command.clone()),
            exit_code: self.last.as_ref().map(|run| run.exit_code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `e` is an edit, `p` a passing run, `f` a failing one; `P` is a passing run of the same round
    /// as an edit after it, recorded when that edit has been made.
    fn check(story: &str, expected: VerificationStatus) {
        let mut state = VerificationState::default();
        for step in story.chars() {
            let before = state.changes();
            match step {
                'e' => state.file_changed(),
                'P' => {
                    state.file_changed();
                    state.verified(EvidenceId::default(), "sh test.sh", 0, before);
                }
                'p' => state.verified(EvidenceId::default(), "sh test.sh", 0, before),
                _ => state.verified(EvidenceId::default(), "sh test.sh", 1, before),
            }
        }
        assert_eq!(state.status(), expected, "{story}");
    }

    #[test]
    fn the_last_fact_decides() {
        check("", VerificationStatus::NotApplicable);
        check("e", VerificationStatus::Unverified);
        check("p", VerificationStatus::Passed);
        check("fep", VerificationStatus::Passed);
        check("fepf", VerificationStatus::Failed);
        check("pe", VerificationStatus::Stale);
        check("fe", VerificationStatus::Stale);
        check("eP", VerificationStatus::Stale);
        check("ePp", VerificationStatus::Passed);
    }
}
