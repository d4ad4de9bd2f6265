//! What a model claimed and what the log shows of it, in words.

use agent_history::verification::describe_failure;
use agent_protocol::payload::conversation::Claim;
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

/// A claim with what the log shows of it.
pub(crate) fn claimed(claim: &Claim) -> String {
    let said = agent_text::brief(&claim.text, 200);
    judged(claim, &format!("\"{said}\""))
}

/// The same without the words of the model.
pub(crate) fn claimed_about(claim: &Claim) -> String {
    judged(claim, claim.about.as_deref().unwrap_or("something"))
}

fn judged(claim: &Claim, said: &str) -> String {
    let verdict = claim.verdict.as_str().replace('_', " ");
    let evidence: Vec<&str> = claim.evidence_ids.iter().map(|id| id.as_str()).collect();
    let by = match evidence.as_slice() {
        [] => String::new(),
        ids => format!(" ({})", ids.join(", ")),
    };
    format!("{verdict}: {said}{by}")
}

/// The tests that the latest failed check names.
pub(crate) fn failures(summary: &Summary) -> String {
    let all: Vec<String> = summary.failures.iter().map(describe_failure).collect();
    all.join(", ")
}
