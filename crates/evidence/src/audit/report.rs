//! The findings of an audit, and what they come to.

use agent_log::Notes;
use agent_protocol::Event;
use agent_protocol::id::{ArtifactId, EventId, SessionId};
use serde_json::{Map, Value, json};

use super::meaning;

/// The code of a log that cannot be read.
const UNREADABLE: &str = "unreadable";

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// The record is whole, and what it shows deserves a look.
    Warning,
    /// The log, an artifact or an anchor is not as it should be.
    Error,
}

impl Severity {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// A stable word for programs.
    pub code: String,
    pub sequence: Option<u64>,
    pub event_id: Option<EventId>,
    pub artifact_id: Option<ArtifactId>,
    pub message: String,
}

impl Finding {
    /// As `agent audit --json` prints it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("severity".into(), self.severity.as_str().into());
        fields.insert("code".into(), self.code.as_str().into());
        if let Some(sequence) = self.sequence {
            fields.insert("sequence".into(), sequence.into());
        }
        if let Some(event_id) = &self.event_id {
            fields.insert("event_id".into(), event_id.as_str().into());
        }
        if let Some(artifact_id) = &self.artifact_id {
            fields.insert("artifact_id".into(), artifact_id.as_str().into());
        }
        fields.insert("message".into(), self.message.as_str().into());
        fields.insert("meaning".into(), meaning(&self.code).into());
        Value::Object(fields)
    }
}

/// What an audit found, in the order of the log.
#[derive(Debug, Clone)]
pub struct AuditReport {
    pub session_id: SessionId,
    pub findings: Vec<Finding>,
    /// Findings beyond [`AuditReport::MOST`], which are only counted.
    pub more_findings: u64,
    /// How many of all findings are errors.
    pub errors: u64,
    /// How many are warnings.
    pub warnings: u64,
    pub events: u64,
    pub calls: u64,
    pub turns: u64,
    pub artifacts: u64,
    /// What a newer version may have written.
    pub notes: Notes,
}

impl AuditReport {
    /// How many findings are kept.
    pub const MOST: usize = 1000;

    pub(super) fn new(session_id: SessionId) -> Self {
        Self {
            session_id,
            findings: Vec::new(),
            more_findings: 0,
            errors: 0,
            warnings: 0,
            events: 0,
            calls: 0,
            turns: 0,
            artifacts: 0,
            notes: Notes::default(),
        }
    }

    /// Whether everything is as it should be; notes and warnings do not count against it.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.errors == 0
    }

    /// Of a session whose log is there and cannot be read.
    #[must_use]
    pub fn of_unreadable(session_id: &SessionId, why: String) -> Self {
        let mut report = Self::new(session_id.clone());
        report.error(UNREADABLE, None, why);
        report
    }

    /// Of a session that never began: whoever was making it was stopped before its first event.
    #[must_use]
    pub fn of_no_log(session_id: &SessionId) -> Self {
        let mut report = Self::new(session_id.clone());
        let message = "the directory holds no log, and no anchor says that it ever did";
        report.note("no_log", None, message.into());
        report
    }

    /// Whether nothing is known to be wrong but that it could not be read.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.code == UNREADABLE)
    }

    /// As `agent audit --json` prints it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "ok": self.is_ok(),
            "session_id": self.session_id.as_str(),
            "events": self.events,
            "calls": self.calls,
            "turns": self.turns,
            "artifacts": self.artifacts,
            "findings": self.findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "more_findings": self.more_findings,
        })
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.errors += u64::from(finding.severity == Severity::Error);
        self.warnings += u64::from(finding.severity == Severity::Warning);
        if self.findings.len() < Self::MOST {
            self.findings.push(finding);
        } else {
            self.more_findings += 1;
        }
    }

    /// Takes over what was found after event `sequence`, which a newer version wrote: what looks
    /// wrong may be explained by what that event says.
    pub(super) fn add_doubtful(&mut self, sequence: u64, found: Self) {
        for mut finding in found.findings {
            if finding.severity == Severity::Error {
                finding.severity = Severity::Warning;
                finding.message.push_str(&format!(
                    "; event {sequence}, which this version does not understand, may explain it"
                ));
            }
            self.add(finding);
        }
        self.more_findings += found.more_findings;
    }

    pub(super) fn error_at(&mut self, event: &Event, code: &str, message: String) {
        self.add(Finding {
            severity: Severity::Error,
            code: code.into(),
            sequence: Some(event.sequence),
            event_id: Some(event.event_id.clone()),
            artifact_id: None,
            message,
        });
    }

    pub(super) fn warn_at(&mut self, event: &Event, code: &str, message: String) {
        self.add(Finding {
            severity: Severity::Warning,
            code: code.into(),
            sequence: Some(event.sequence),
            event_id: Some(event.event_id.clone()),
            artifact_id: None,
            message,
        });
    }

    pub(super) fn note(&mut self, code: &str, sequence: Option<u64>, message: String) {
        self.add(Finding {
            severity: Severity::Note,
            code: code.into(),
            sequence,
            event_id: None,
            artifact_id: None,
            message,
        });
    }

    pub(super) fn warning(&mut self, code: &str, sequence: Option<u64>, message: String) {
        self.add(Finding {
            severity: Severity::Warning,
            code: code.into(),
            sequence,
            event_id: None,
            artifact_id: None,
            message,
        });
    }

    pub(super) fn error(&mut self, code: &str, sequence: Option<u64>, message: String) {
        self.add(Finding {
            severity: Severity::Error,
            code: code.into(),
            sequence,
            event_id: None,
            artifact_id: None,
            message,
        });
    }
}
