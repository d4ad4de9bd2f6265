//! Whether anything that should have been masked stands in the record.

use std::collections::BTreeMap;

use agent_log::{Redactor, SessionDirectory};
use agent_protocol::id::ArtifactId;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::{Event, Payload};

use super::{AuditReport, Finding, Severity};

/// How much of an artifact is looked at.
const LOOK: u64 = 8 << 20;

#[derive(Default)]
pub(super) struct SecretCheck {
    /// Artifacts that model or user see, with the event that recorded them.
    shown: BTreeMap<ArtifactId, (ArtifactKind, u64)>,
}

impl SecretCheck {
    pub(super) fn take(
        &mut self,
        event: &Event,
        line: &[u8],
        redactor: Option<&Redactor>,
        report: &mut AuditReport,
    ) {
        if let Payload::ArtifactChanged(artifact) = &event.payload
            && is_shown(artifact.kind)
        {
            self.shown.insert(
                artifact.artifact_id.clone(),
                (artifact.kind, event.sequence),
            );
        }
        let Some(redactor) = redactor else {
            return;
        };
        let Ok(text) = std::str::from_utf8(line) else {
            return;
        };
        if redactor.suspects(line) && redactor.mask(text) != text {
            // What was found is not repeated: a finding is printed, mailed and kept.
            report.error_at(
                event,
                "secret_unmasked",
                format!(
                    "event {} (`{}`) holds something that looks like a secret and was not masked",
                    event.sequence,
                    event.payload.type_name()
                ),
            );
        }
    }

    pub(super) fn finish(
        &self,
        session: &SessionDirectory,
        redactor: Option<&Redactor>,
        report: &mut AuditReport,
    ) {
        let (Some(redactor), Ok(store)) = (redactor, session.artifacts()) else {
            return;
        };
        for (artifact_id, (kind, sequence)) in &self.shown {
            // What is missing or altered is found elsewhere.
            let Ok(bytes) = store.read(artifact_id, LOOK) else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes);
            if redactor.mask(&text) != text {
                report.add(Finding {
                    severity: Severity::Error,
                    code: "secret_unmasked".into(),
                    sequence: Some(*sequence),
                    event_id: None,
                    artifact_id: Some(artifact_id.clone()),
                    message: format!(
                        "the {} {artifact_id} holds something that looks like a secret and was not masked",
                        kind.as_str().replace('_', " ")
                    ),
                });
            }
        }
    }
}

/// Images of files are exact, and command output is kept as it came; what is sent or shown is not.
const fn is_shown(kind: ArtifactKind) -> bool {
    matches!(
        kind,
        ArtifactKind::Diff
            | ArtifactKind::ModelInput
            | ArtifactKind::ModelOutput
            | ArtifactKind::UserInput
            | ArtifactKind::Summary
            | ArtifactKind::Report
    )
}
