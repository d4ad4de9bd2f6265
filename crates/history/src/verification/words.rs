//! Verification in words, for every place that tells it to people.

use agent_protocol::payload::conversation::{TestFailure, Verification};
use agent_protocol::status::VerificationStatus;

/// The state of verification in one clause, e.g. "`sh test.sh` failed (exit 1)".
#[must_use]
pub fn describe(verification: &Verification) -> String {
    let command = verification.command.as_deref();
    let named = |rest: &str| match command {
        Some(command) => format!("`{command}` {rest}"),
        None => format!("a check {rest}"),
    };
    let exit = match verification.exit_code {
        Some(code) if code != 0 => format!(" (exit {code})"),
        _ => String::new(),
    };
    match verification.status {
        VerificationStatus::Passed => named("passed"),
        VerificationStatus::Failed => named(&format!("failed{exit}")),
        VerificationStatus::Stale if verification.exit_code.is_some_and(|code| code != 0) => named(
            &format!("failed{exit} and was not run again after the last change"),
        ),
        VerificationStatus::Stale => match command {
            Some(command) => format!("files changed after `{command}` ran"),
            None => "files changed after the last check".to_owned(),
        },
        VerificationStatus::CouldNotBeJudged => {
            let reason = verification.reason.as_deref();
            let reason = reason.map(|why| format!(": {why}")).unwrap_or_default();
            named(&format!("could not be judged{reason}"))
        }
        VerificationStatus::Unverified => "files changed, and no check was run".to_owned(),
        VerificationStatus::NotApplicable => "nothing to verify".to_owned(),
    }
}

/// A failed test in a few words, e.g. `test_sum (tests/test_sum.py:12)`.
#[must_use]
pub fn describe_failure(failure: &TestFailure) -> String {
    let place = match (&failure.file, failure.line) {
        (Some(file), Some(line)) => Some(format!("{file}:{line}")),
        (Some(file), None) => Some(file.clone()),
        (None, _) => None,
    };
    match (&failure.test, place) {
        (Some(test), Some(place)) => format!("{test} ({place})"),
        (Some(test), None) => test.clone(),
        (None, place) => place.unwrap_or_default(),
    }
}
