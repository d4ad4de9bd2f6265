//! Whether the work was checked, computed from recorded commands and exit codes.
//!
//! A verification is a command that runs tests, a build or a linter, by configuration or because its
//! program is a known runner. What it proves is decided by its exit code and by whether project
//! files changed after it; the text it printed and what the model says about it play no part.

pub mod claims;
mod runners;

pub use runners::{Runner, recognise};

use agent_protocol::id::EvidenceId;
use agent_protocol::payload::conversation::Verification;
use agent_protocol::status::VerificationStatus;

/// The state of verification within one turn, advanced event by event.
#[derive(Clone, Debug, Default)]
pub struct VerificationState {
    last: Option<LastRun>,
    changed_after_last: bool,
    anything_changed: bool,
    evidence_ids: Vec<EvidenceId>,
}

#[derive(Clone, Debug)]
struct LastRun {
    command: String,
    exit_code: i32,
}

impl VerificationState {
    /// Project files changed. Changes made by a verification itself are not passed in: a test run
    /// that writes a report does not make itself stale.
    pub fn files_changed(&mut self) {
        self.anything_changed = true;
        self.changed_after_last = true;
    }

    /// A verification ran to its end.
    pub fn verified(&mut self, evidence: EvidenceId, command: &str, exit_code: i32) {
        self.evidence_ids.push(evidence);
        self.last = Some(LastRun {
            command: command.to_owned(),
            exit_code,
        });
        self.changed_after_last = false;
    }

    /// Whether files changed before the verification that just ran, so that it says something
    /// about them.
    #[must_use]
    pub fn covers_edits(&self) -> bool {
        self.anything_changed
    }

    /// What the facts say now.
    #[must_use]
    pub fn status(&self) -> VerificationStatus {
        match &self.last {
            None if self.anything_changed => VerificationStatus::Unverified,
            None => VerificationStatus::NotApplicable,
            Some(_) if self.changed_after_last => VerificationStatus::Stale,
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

    /// `e` is an edit, `p` a passing run, `f` a failing one.
    fn check(story: &str, expected: VerificationStatus) {
        let mut state = VerificationState::default();
        for step in story.chars() {
            match step {
                'e' => state.files_changed(),
                'p' => state.verified(EvidenceId::default(), "sh test.sh", 0),
                _ => state.verified(EvidenceId::default(), "sh test.sh", 1),
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
    }
}
