//! `agent audit`: whether a session's record is what was written, and hangs together.

use std::path::PathBuf;

use agent_evidence::audit::{AuditReport, Finding, Severity, meaning, to_sarif};
use agent_log::{ResolveError, SessionDirectory};
use agent_protocol::Timestamp;
use agent_protocol::id::{ArtifactId, EventId, SessionId};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::auditor::Auditor;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::file::to_file_or_stdout;
use crate::output::{Tone, visible};
use agent_text::counted;

const EXAMPLES: &str = "Examples:
  agent audit last
  agent audit                                every session in the project
  agent audit --since 7d --format sarif -o audit.sarif
  agent audit last --json | jq '.findings[] | select(.severity == \"error\")'";

/// Check that a session's record is complete and consistent
///
/// Verifies the hash chain against the anchor kept outside the project, rehashes every artifact,
/// checks the order of events in each call and turn, compares recorded changes with the saved file
/// contents, recomputes verification, compares the final text with it, and searches for unmasked
/// secrets. Reads everything, changes nothing. Exit codes: 0 intact, 1 findings, 2 unreadable.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AuditArgs {
    /// Sessions: number, title, id, `last`, or a session directory [default: all of the project]
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
    /// Only sessions written since: `7d`, `24h`, `30m`, or a date such as 2026-11-16
    #[arg(long, value_name = "WHEN", conflicts_with = "sessions")]
    since: Option<String>,
    /// Treat warnings as findings
    #[arg(long)]
    strict: bool,
    /// Print one JSON object (docs/schemas/audit.schema.json; audit-all.schema.json for several)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Output format
    #[arg(long, value_name = "FORM", default_value = "text")]
    format: Form,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
    Sarif,
}

/// What `agent audit SESSION --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditOutput {
    /// Whether nothing is wrong; notes do not count against it, warnings only with `--strict`.
    ok: bool,
    session_id: SessionId,
    events: u64,
    calls: u64,
    turns: u64,
    artifacts: u64,
    errors: u64,
    warnings: u64,
    /// In the order of the log.
    findings: Vec<FindingOutput>,
    /// Findings that were counted but are not listed.
    more_findings: u64,
}

/// What `agent audit --json` prints for several sessions.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditAllOutput {
    /// Whether nothing is wrong with any of them.
    ok: bool,
    /// The one written last first.
    sessions: Vec<AuditOutput>,
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
    /// What it means for whoever has to act on it.
    meaning: &'static str,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SeverityWord {
    /// Worth knowing; nothing is wrong.
    Note,
    /// The record is whole, and what it shows deserves a look.
    Warning,
    /// The log, an artifact or an anchor is not as it should be.
    Error,
}

pub(crate) fn run(arguments: &AuditArgs, app: &App) -> Result<Exit, Failure> {
    let auditor = ProjectAuditor::new(app)?;
    let reports = match arguments.sessions.as_slice() {
        [] => auditor.all(arguments.since.as_deref())?,
        asked => asked
            .iter()
            .map(|asked| auditor.look(asked))
            .collect::<Result<_, _>>()?,
    };
    let is_ok =
        |report: &AuditReport| report.is_ok() && (!arguments.strict || report.warnings == 0);
    let mut broken = reports.iter().filter(|(report, _)| !is_ok(report));
    let exit = match broken.next() {
        None => Exit::Done,
        // What was found weighs more than what could not be looked at.
        Some((first, _))
            if first.is_unreadable() && broken.all(|(other, _)| other.is_unreadable()) =>
        {
            Exit::Usage
        }
        Some(_) => Exit::Failed,
    };
    let form = if arguments.json {
        Form::Json
    } else {
        arguments.format
    };
    let text = match form {
        Form::Text => as_text(&reports, app),
        Form::Sarif => {
            let reports = reports.iter().map(|(report, path)| (report, path.clone()));
            let sarif = to_sarif(env!("CARGO_PKG_VERSION"), reports);
            app.output.json_text(&sarif).or_fail()?
        }
        Form::Json => {
            let is_single = arguments.sessions.len() == 1;
            let outputs: Vec<AuditOutput> = reports
                .into_iter()
                .map(|(report, _)| AuditOutput::of(is_ok(&report), report))
                .collect();
            match outputs.first().filter(|_| is_single) {
                Some(output) => app.output.json_text(output).or_fail()?,
                None => app
                    .output
                    .json_text(&AuditAllOutput {
                        ok: exit == Exit::Done,
                        sessions: outputs,
                    })
                    .or_fail()?,
            }
        }
    };
    let file = arguments
        .output
        .as_ref()
        .map(|file| app.host.cwd.join(file));
    to_file_or_stdout(file.as_deref(), |out| {
        writeln!(out, "{}", text.trim_end())
            .context("cannot print the findings")
            .or_fail()
    })?;
    Ok(exit)
}

/// Audits of the sessions of a project.
struct ProjectAuditor<'a> {
    app: &'a App,
    auditor: Auditor,
}

impl<'a> ProjectAuditor<'a> {
    fn new(app: &'a App) -> Result<Self, Failure> {
        let auditor = Auditor::new(app)?;
        Ok(Self { app, auditor })
    }

    fn audit(&self, session: &SessionDirectory) -> Result<(AuditReport, String), Failure> {
        let report = self
            .auditor
            .audit(session)
            .with_context(|| format!("cannot audit session {}", session.id()))
            .or_usage()?;
        Ok((report, self.path_of(session)))
    }

    fn path_of(&self, session: &SessionDirectory) -> String {
        let root = self.app.project.root();
        let log = session.log_path();
        log.strip_prefix(root).unwrap_or(&log).display().to_string()
    }

    /// The same among others: what cannot be read is a finding, so that it hides nothing else.
    fn audit_among(&self, session: &SessionDirectory) -> (AuditReport, String) {
        self.audit(session).unwrap_or_else(|failure| {
            let log = std::fs::symlink_metadata(session.log_path());
            let is_missing = log.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            let report = if is_missing {
                // Its anchor may know that there was one.
                let known = self.auditor.deleted(session.id());
                let known = known.ok().flatten();
                known.unwrap_or_else(|| AuditReport::of_no_log(session.id()))
            } else {
                let causes = failure.error.chain().skip(1).map(ToString::to_string);
                let why = causes.collect::<Vec<_>>().join(": ");
                AuditReport::of_unreadable(session.id(), why)
            };
            (report, self.path_of(session))
        })
    }

    fn look(&self, asked: &str) -> Result<(AuditReport, String), Failure> {
        if asked.contains('/') {
            return self.audit(&self.app.session(asked)?);
        }
        match self.app.sessions().resolve(asked) {
            Ok(session) => self.audit(&session),
            // What is gone from the project may still be known by its anchor.
            Err(
                ResolveError::NotFound { .. }
                | ResolveError::OutOfRange { .. }
                | ResolveError::Empty { .. },
            ) => match self.deleted(asked)? {
                Some(report) => Ok(report),
                None => Err(self.app.session(asked).err().map_or_else(
                    || {
                        Failure::usage(format!(
                            "session `{asked}` was created during the search; try again"
                        ))
                    },
                    Failure::from,
                )),
            },
            // Said again with what to do about it.
            Err(_) => self.audit(&self.app.session(asked)?),
        }
    }

    /// The audit of a session that only its anchor still knows.
    fn deleted(&self, asked: &str) -> Result<Option<(AuditReport, String)>, Failure> {
        let ids = self.auditor.anchors.session_ids().or_usage()?;
        let begins = |id: &&SessionId| {
            let bare = id.as_str().strip_prefix("ses_").unwrap_or(id.as_str());
            !asked.is_empty() && (id.as_str().starts_with(asked) || bare.starts_with(asked))
        };
        let mut known = ids.iter().filter(begins);
        match (known.next(), known.next()) {
            (Some(id), None) => {
                let report = self.auditor.deleted(id).or_usage()?;
                Ok(report.map(|report| (report, log_of(id))))
            }
            _ => Ok(None),
        }
    }

    /// Every session of the project, those that are gone included.
    fn all(&self, since: Option<&str>) -> Result<Vec<(AuditReport, String)>, Failure> {
        let since = match since {
            None => None,
            Some(text) => Some(moment(text, self.app.host.clock.now()).ok_or_else(|| {
                Failure::usage(format!("`{text}` is not a time"))
                    .hint("use `7d`, `24h`, `30m`, or a date such as 2026-11-16")
            })?),
        };
        let sessions = self.app.sessions().list();
        let sessions = sessions.context("cannot list the sessions").or_fail()?;
        let mut reports = Vec::new();
        for session in &sessions {
            if since.is_none_or(|since| session.modified() >= since) {
                reports.push(self.audit_among(session));
            }
        }
        let here = self.app.sessions().directory().join("sessions");
        for id in self.auditor.anchors.session_ids().or_usage()? {
            let is_here = sessions.iter().any(|session| *session.id() == id);
            let Some(anchor) = self.auditor.anchors.read(&id).ok().flatten() else {
                continue;
            };
            // An id begins with the time it was made, so the anchor's own age is not needed.
            if !is_here
                && anchor.directory.parent() == Some(here.as_path())
                && let Some(report) = self.auditor.deleted(&id).or_usage()?
            {
                reports.push((report, log_of(&id)));
            }
        }
        Ok(reports)
    }
}

fn log_of(id: &SessionId) -> String {
    format!(".agent/sessions/{id}/events.jsonl")
}

/// `7d` before now, or the beginning of a day, or a moment.
fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some(moment) = Timestamp::parse(text) {
        return Some(moment);
    }
    if text.len() == 10 {
        return Timestamp::parse(&format!("{text}T00:00:00Z"));
    }
    let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let millis: i64 = match unit {
        "d" => 86_400_000,
        "h" => 3_600_000,
        "m" => 60_000,
        _ => return None,
    };
    let back = count.parse::<u32>().ok()?;
    Some(Timestamp::from_unix_millis(
        now.unix_millis().saturating_sub(millis * i64::from(back)),
    ))
}

fn as_text(reports: &[(AuditReport, String)], app: &App) -> String {
    if reports.is_empty() {
        return "no sessions to audit".into();
    }
    let mut text = String::new();
    for (at, (report, _)) in reports.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        text.push_str(&one_as_text(report, app));
    }
    if reports.len() > 1 {
        let broken = reports.iter().filter(|(report, _)| !report.is_ok()).count();
        text.push_str(&format!(
            "\n{}, {broken} not intact\n",
            counted(reports.len() as u64, "session")
        ));
    }
    text
}

fn one_as_text(report: &AuditReport, app: &App) -> String {
    let verdict = if report.is_ok() {
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
    let mut told: Vec<&str> = Vec::new();
    for finding in &report.findings {
        let mark = match finding.severity {
            Severity::Note => app.output.paint(Tone::Faint, "note   "),
            Severity::Warning => app.output.paint(Tone::Warn, "warning"),
            Severity::Error => app.output.paint(Tone::Bad, "error  "),
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
        let message = app.output.wrap(&visible(&message), 8);
        text.push_str(&format!("{mark} {message}\n"));
        // Said once per kind is enough.
        if !told.contains(&finding.code.as_str()) {
            told.push(&finding.code);
            let means = app.output.wrap(meaning(&finding.code), 8);
            let means = app.output.paint(Tone::Faint, &means);
            text.push_str(&format!("        {means}\n"));
        }
    }
    if report.more_findings > 0 {
        text.push_str(&format!("and {} more\n", report.more_findings));
    }
    text
}

impl AuditOutput {
    fn of(ok: bool, report: AuditReport) -> Self {
        Self {
            ok,
            session_id: report.session_id,
            events: report.events,
            calls: report.calls,
            turns: report.turns,
            artifacts: report.artifacts,
            errors: report.errors,
            warnings: report.warnings,
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
                Severity::Warning => SeverityWord::Warning,
                Severity::Error => SeverityWord::Error,
            },
            meaning: meaning(&finding.code),
            code: finding.code,
            sequence: finding.sequence,
            event_id: finding.event_id,
            artifact_id: finding.artifact_id,
            message: finding.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_look_back_to() {
        let now = Timestamp::from_unix_millis(1_794_799_680_000);
        let check = |text: &str, expected: Option<&str>| {
            let found = moment(text, now).map(|moment| moment.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("7d", Some("2026-11-09T03:28:00.000Z"));
        check("24h", Some("2026-11-15T03:28:00.000Z"));
        check("2026-11-01", Some("2026-11-01T00:00:00.000Z"));
        check("2026-11-01T10:00:00Z", Some("2026-11-01T10:00:00.000Z"));
        check("yesterday", None);
        check("7", None);
        check("", None);
    }
}
