//! `agent audit`: whether a session's record is what was written, and hangs together.

use agent_protocol::id::{ArtifactId, EventId, SessionId};
use agent_session::audit::{AuditReport, Finding, Severity, audit, audit_deleted};
use agent_session::{AnchorStore, ResolveError};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Tone, counted, visible};

/// Check that a session's record is whole and makes sense
///
/// Follows the hash chain and the anchor kept outside of the project, hashes every artifact again,
/// and follows each call and each turn through the states it may have. Reads everything, changes
/// nothing. Exit codes: 0 intact, 1 findings, 2 unreadable.
#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// Id, a beginning of it that only one session has, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Print one JSON object (docs/schemas/audit.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent audit --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditOutput {
    /// Whether nothing is wrong; notes do not count against it.
    ok: bool,
    session_id: SessionId,
    events: u64,
    calls: u64,
    turns: u64,
    artifacts: u64,
    /// In the order of the log.
    findings: Vec<FindingOutput>,
    /// Findings that were counted but are not listed.
    more_findings: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FindingOutput {
    severity: SeverityWord,
    /// A stable word for programs.
    code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<EventId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_id: Option<ArtifactId>,
    message: String,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SeverityWord {
    /// Worth knowing; nothing is wrong.
    Note,
    /// The log, an artifact or an anchor is not as it should be.
    Error,
}

pub(crate) fn run(arguments: &AuditArgs, app: &App) -> Result<Exit, Failure> {
    let report = AuditOutput::of(look(&arguments.session, app)?);
    let exit = if report.ok { Exit::Done } else { Exit::Failed };
    let doing = "cannot print the findings";
    if arguments.json {
        app.output.json(&report).context(doing)?;
    } else {
        app.output.print(&as_text(&report, app)).context(doing)?;
    }
    Ok(exit)
}

fn look(asked: &str, app: &App) -> Result<AuditReport, Failure> {
    let anchors = AnchorStore::new(&app.host.directories.state);
    match app.sessions().resolve(asked) {
        Ok(session) => audit(&session, Some(&anchors))
            .with_context(|| format!("cannot audit session {}", session.id()))
            .or_usage(),
        // What is gone from the project may still be known by its anchor.
        Err(ResolveError::NotFound { .. } | ResolveError::Empty { .. }) => {
            match deleted(asked, &anchors)? {
                Some(report) => Ok(report),
                None => Err(app.session(asked).err().unwrap_or_else(|| {
                    Failure::usage(format!(
                        "session `{asked}` appeared while it was looked for"
                    ))
                })),
            }
        }
        Err(error) => Err(error).or_usage(),
    }
}

/// The audit of a session that only its anchor still knows.
fn deleted(asked: &str, anchors: &AnchorStore) -> Result<Option<AuditReport>, Failure> {
    let ids = anchors.session_ids().or_usage()?;
    let begins = |id: &&SessionId| {
        let bare = id.as_str().strip_prefix("ses_").unwrap_or(id.as_str());
        !asked.is_empty() && (id.as_str().starts_with(asked) || bare.starts_with(asked))
    };
    let mut known = ids.iter().filter(begins);
    match (known.next(), known.next()) {
        (Some(id), None) => audit_deleted(id, anchors).or_usage(),
        _ => Ok(None),
    }
}

fn as_text(report: &AuditOutput, app: &App) -> String {
    let verdict = if report.ok {
        app.output.paint(Tone::Good, "intact")
    } else {
        app.output.paint(Tone::Bad, "NOT INTACT")
    };
    let mut text = format!(
        "{} {verdict}\n{}, {}, {}, {}\n",
        report.session_id,
        counted(report.events, "event"),
        counted(report.turns, "turn"),
        counted(report.calls, "call"),
        counted(report.artifacts, "artifact"),
    );
    for finding in &report.findings {
        let mark = match finding.severity {
            SeverityWord::Note => app.output.paint(Tone::Faint, "note "),
            SeverityWord::Error => app.output.paint(Tone::Bad, "error"),
        };
        let place = match finding.sequence {
            Some(sequence) => format!("event {sequence}: "),
            None => String::new(),
        };
        let artifact = match &finding.artifact_id {
            Some(id) if !finding.message.contains(id.as_str()) => format!(" ({id})"),
            _ => String::new(),
        };
        let message = format!("{place}{}{artifact} [{}]", finding.message, finding.code);
        let message = app.output.wrap(&visible(&message), 6);
        text.push_str(&format!("{mark} {message}\n"));
    }
    if report.more_findings > 0 {
        text.push_str(&format!("and {} more\n", report.more_findings));
    }
    text
}

impl AuditOutput {
    fn of(report: AuditReport) -> Self {
        Self {
            ok: report.is_ok(),
            session_id: report.session_id,
            events: report.events,
            calls: report.calls,
            turns: report.turns,
            artifacts: report.artifacts,
            findings: report.findings.into_iter().map(FindingOutput::of).collect(),
            more_findings: report.more_findings,
        }
    }
}

impl FindingOutput {
    fn of(finding: Finding) -> Self {
        Self {
            severity: match finding.severity {
                Severity::Note => SeverityWord::Note,
                Severity::Error => SeverityWord::Error,
            },
            code: finding.code,
            sequence: finding.sequence,
            event_id: finding.event_id,
            artifact_id: finding.artifact_id,
            message: finding.message,
        }
    }
}
