//! Whether the work was checked, computed from recorded commands and exit codes.
//!
//! A verification is a command that runs tests, a build or a linter, by configuration or because its
//! program is a known runner. What it proves is decided by its exit status and by whether project
//! files changed after it ([`agent_history::verification`] has the rule); the text it printed and what
//! the model says about it play no part. What failed is read from the output ([`failures`]) for those
//! who want to know more.

pub mod claims;
pub mod failures;
mod runners;
mod track;

use std::path::Path;

use agent_policy::shell::{Outcome, ScriptEnd, judge};

pub use agent_history::verification::{CheckRun, CheckStatus, VerificationState};
pub use runners::{Runner, check_of, recognise};
pub use track::{Shown, Track};

/// The most checks of one command that are recorded.
const MOST_CHECKS: usize = 16;

/// A check in a command that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCheck {
    pub runner: Runner,
    /// Its words, without what only changes the output.
    pub check: Vec<String>,
    /// The directory it ran in, if that is known.
    pub cwd: Option<String>,
    pub status: CheckStatus,
    pub exit_code: Option<i32>,
    /// Why it could not be judged.
    pub reason: Option<&'static str>,
}

/// The checks that ran in a command, with how each ended. `configured` as in [`recognise`].
#[must_use]
pub fn checks_in(
    command: &str,
    exit_code: i32,
    pipe_status: Option<&[i32]>,
    cwd: Option<&str>,
    configured: &[Vec<String>],
) -> Vec<FoundCheck> {
    let end = ScriptEnd {
        exit_code,
        pipe_status,
        directory: Path::new(cwd.unwrap_or("/")),
    };
    let found = judge(command, &end).into_iter().filter_map(|judged| {
        let runner = recognise(&judged.words, configured)?;
        let (status, exit_code, reason) = match judged.outcome {
            Outcome::Status(0) => (CheckStatus::Passed, Some(0), None),
            Outcome::Status(code) => (CheckStatus::Failed, Some(code), None),
            Outcome::Unknown(why) => (CheckStatus::NotJudged, None, Some(why)),
            Outcome::NotRun => return None,
        };
        let directory = judged.directory.filter(|_| cwd.is_some());
        Some(FoundCheck {
            runner,
            check: check_of(&judged.words),
            cwd: directory.map(|path| path.display().to_string()),
            status,
            exit_code,
            reason,
        })
    });
    found.take(MOST_CHECKS).collect()
}
