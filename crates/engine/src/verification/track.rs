//! What ran in a session and how it ended, as far back as a final text may speak of it.

use std::collections::VecDeque;

use agent_history::verification::answers;
use agent_protocol::id::EvidenceId;

use super::CheckStatus;
use super::runners::Runner;

/// Runs that are remembered; a text speaks of the last ones.
const MOST: usize = 128;

/// A verification the log shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub evidence_id: Option<EvidenceId>,
    pub command: String,
    /// The words of the check; empty where the log does not have them.
    pub check: Vec<String>,
    pub cwd: Option<String>,
    pub runner: Runner,
    pub status: CheckStatus,
    /// Why it could not be judged.
    pub reason: Option<String>,
    /// Whether project files changed after it.
    pub stale: bool,
}

impl Shown {
    /// True if this run, having passed, says that `failed` passes now.
    fn answers(&self, failed: &Self) -> bool {
        let is_known = !self.check.is_empty() && !failed.check.is_empty();
        !is_known || (self.cwd == failed.cwd && answers(&self.check, &failed.check))
    }
}

/// Commands and verifications of all turns, the newest last. Failed ones that a later run answered are
/// not kept.
#[derive(Clone, Debug, Default)]
pub struct Track {
    shown: VecDeque<Shown>,
    ran: VecDeque<(String, i32)>,
}

impl Track {
    /// A command ended.
    pub fn ran(&mut self, command: &str, exit_code: i32) {
        self.ran.push_back((command.to_owned(), exit_code));
        if self.ran.len() > MOST {
            self.ran.pop_front();
        }
    }

    /// A verification was recorded.
    pub fn verified(&mut self, shown: Shown) {
        if shown.status == CheckStatus::Passed {
            let is_answered = |run: &Shown| run.status == CheckStatus::Failed && shown.answers(run);
            self.shown.retain(|run| !is_answered(run));
        }
        self.shown.push_back(shown);
        if self.shown.len() > MOST {
            self.shown.pop_front();
        }
    }

    /// Project files changed: what was shown before was shown of other files.
    pub fn files_changed(&mut self) {
        self.shown.iter_mut().for_each(|run| run.stale = true);
    }

    /// The last verification that `fits`.
    pub fn last(&self, fits: impl Fn(&Shown) -> bool) -> Option<&Shown> {
        self.shown.iter().rev().find(|run| fits(run))
    }

    /// The exit code of the last command that contains `command`.
    #[must_use]
    pub fn exit_of(&self, command: &str) -> Option<i32> {
        let ran = self.ran.iter().rev();
        let mut of = ran.filter(|(ran, _)| ran.contains(command));
        of.next().map(|(_, code)| *code)
    }
}
