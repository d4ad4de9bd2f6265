//! What a model claimed and what the log shows of it, in words.

use agent_history::verification::describe_failure;
use agent_text::counted;

use super::summary::Summary;

/// The claims that the log does not show, counted; none is no fact.
pub(crate) fn conflicts(summary: &Summary) -> Option<String> {
    let mut says = Vec::new();
    if summary.conflicts > 0 {
        let claims = counted(summary.conflicts, "claim");
        says.push(format!("{claims} contradicted by a failed check"));
    }
    if summary.unproven > 0 {
        says.push(format!(
            "{} without proof",
            counted(summary.unproven, "claim")
        ));
    }
    (!says.is_empty()).then(|| says.join(", "))
}

/// The tests that the latest failed check names.
pub(crate) fn failures(summary: &Summary) -> String {
    let all: Vec<String> = summary.failures.iter().map(describe_failure).collect();
    all.join(", ")
}
