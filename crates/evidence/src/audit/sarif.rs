//! Findings of an audit as SARIF.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::meaning::meaning;
use super::{AuditReport, Finding, Severity};
use crate::sarif::{self, uri};

/// Several audits as one SARIF log. Each report comes with where its log is, as a relative path
/// with slashes.
#[must_use]
pub fn to_sarif<'a>(
    version: &str,
    reports: impl IntoIterator<Item = (&'a AuditReport, String)>,
) -> Value {
    let mut codes: BTreeSet<&str> = BTreeSet::new();
    let mut results = Vec::new();
    for (report, path) in reports {
        for finding in &report.findings {
            codes.insert(&finding.code);
            results.push(result(report, finding, &path));
        }
    }
    let rules: Vec<Value> = codes
        .iter()
        .map(|code| {
            let means = meaning(code);
            json!({
                "id": code,
                "shortDescription": { "text": code.replace('_', " ") },
                "fullDescription": { "text": if means.is_empty() { *code } else { means } },
            })
        })
        .collect();
    sarif::log("agent audit", version, rules, results)
}

fn result(report: &AuditReport, finding: &Finding, path: &str) -> Value {
    let level = match finding.severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let mut location = json!({ "artifactLocation": { "uri": uri(path) } });
    if let Some(sequence) = finding.sequence {
        // A log that is whole has event N on line N + 1; in one that is not, it is near there.
        location["region"] = json!({ "startLine": sequence.saturating_add(1) });
    }
    json!({
        "ruleId": finding.code,
        "level": level,
        "message": { "text": finding.message },
        "locations": [{ "physicalLocation": location }],
        "partialFingerprints": {
            "session/event/code": format!(
                "{}/{}/{}",
                report.session_id,
                finding.sequence.map_or_else(|| "-".into(), |sequence| sequence.to_string()),
                finding.code
            ),
        },
    })
}
