//! Audit: whether a log is what was written, and whether what it says hangs together.
//!
//! The chain and the anchor show that nothing was changed, removed, moved or cut off; the artifacts
//! are hashed again; every call, command and turn is followed through the states it may have; what
//! was said is held against what the model was sent; changes to files are compared with their images
//! and with each other; verification is computed anew, and claims are held against it; and nothing
//! that should be masked may stand anywhere. Work that a killed session left open is a note, not a
//! finding.

mod artifacts;
mod calls;
mod commands;
mod effects;
mod inputs;
mod meaning;
mod report;
mod sarif;
mod secrets;
mod turns;
mod verification;
mod words;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agent_history::imported_from;
use agent_log::{
    Anchor, AnchorError, AnchorStore, Damage, DamageKind, Head, PlaceError, ReadError, Redactor,
    SessionDirectory, named,
};
use agent_protocol::id::SessionId;
use agent_protocol::{Event, Payload, UnknownReason};
use agent_text::counted;

use artifacts::ArtifactCheck;
use calls::CallCheck;
use commands::CommandCheck;
use effects::EffectCheck;
use inputs::InputCheck;
use secrets::SecretCheck;
use turns::TurnCheck;
use verification::VerificationCheck;
use words::WordCheck;

pub use meaning::{MEANINGS, meaning};
pub use report::{AuditReport, Finding, Severity};
pub use sarif::to_sarif;
pub use verification::{JudgedCheck, ReadClaim, VerificationRun};

/// Why a session could not be audited at all.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Anchor(#[from] AnchorError),
}

/// Finds the sentences of a final text that claim more than the verifications show.
pub type ClaimReader<'a> = &'a dyn Fn(&str, &[VerificationRun]) -> Vec<ReadClaim>;

/// Finds the checks in a command by its exit code and the statuses of its last pipeline.
pub type CheckJudge<'a> = &'a dyn Fn(&str, i32, Option<&[i32]>) -> Vec<JudgedCheck>;

/// What an audit needs beside the session; what is missing is not checked.
#[derive(Clone, Copy, Default)]
pub struct Checks<'a> {
    pub anchors: Option<&'a AnchorStore>,
    /// Knows what should have been masked.
    pub redactor: Option<&'a Redactor>,
    pub claims: Option<ClaimReader<'a>>,
    /// Whether something in a command verifies.
    pub verifies: Option<&'a dyn Fn(&str) -> bool>,
    /// Whether a command's exit code alone says how something in it that verifies ended.
    pub decides: Option<&'a dyn Fn(&str) -> bool>,
    pub judge: Option<CheckJudge<'a>>,
}

/// Audits one session without looking for secrets or claims.
///
/// # Errors
/// When the log cannot be read at all, and no anchor says that there should be one.
pub fn audit(
    session: &SessionDirectory,
    anchors: Option<&AnchorStore>,
) -> Result<AuditReport, AuditError> {
    let checks = Checks {
        anchors,
        ..Checks::default()
    };
    audit_with(session, checks)
}

/// Audits one session. Reads everything, changes nothing.
///
/// # Errors
/// When the log cannot be read at all, and no anchor says that there should be one.
pub fn audit_with(
    session: &SessionDirectory,
    checks: Checks<'_>,
) -> Result<AuditReport, AuditError> {
    let mut report = AuditReport::new(session.id().clone());
    let anchor = match checks.anchors {
        None => None,
        Some(anchors) => match anchors.read(session.id()) {
            Ok(anchor) => anchor,
            Err(error) => {
                report.error("anchor_unreadable", None, error.to_string());
                None
            }
        },
    };
    let reader = match session.reader() {
        Ok(reader) => reader.noting(),
        Err(error) if error.is_not_found() && anchor.is_some() => {
            if let Some(anchor) = &anchor {
                report_deleted(&mut report, anchor);
            }
            return Ok(report);
        }
        Err(error) => return Err(error.into()),
    };
    // Whoever writes the session now may be in the middle of a line.
    let is_live = session.holder().is_some();
    follow(
        session,
        reader,
        anchor.as_ref(),
        is_live,
        checks,
        &mut report,
    )?;
    Ok(report)
}

/// Audits a session whose directory is gone, if an anchor says that it existed.
///
/// # Errors
/// When the anchor cannot be read.
pub fn audit_deleted(
    session_id: &SessionId,
    anchors: &AnchorStore,
) -> Result<Option<AuditReport>, AuditError> {
    Ok(anchors.read(session_id)?.map(|anchor| {
        let mut report = AuditReport::new(session_id.clone());
        report_deleted(&mut report, &anchor);
        report
    }))
}

fn report_deleted(report: &mut AuditReport, anchor: &Anchor) {
    report.error(
        "log_deleted",
        None,
        format!(
            "the log is gone: it was kept in `{}` and had reached event {}",
            anchor.directory.display(),
            anchor.sequence
        ),
    );
}

fn follow(
    session: &SessionDirectory,
    mut reader: agent_log::LogReader,
    anchor: Option<&Anchor>,
    is_live: bool,
    checks: Checks<'_>,
    report: &mut AuditReport,
) -> Result<(), AuditError> {
    let mut calls = CallCheck::default();
    let mut turns = TurnCheck::default();
    let mut commands = CommandCheck::default();
    let mut effects = EffectCheck::default();
    let mut verification = VerificationCheck::default();
    let mut words = WordCheck::default();
    let mut inputs = InputCheck::default();
    let mut secrets = SecretCheck::default();
    let store = session.artifacts().ok();
    // The steps of an imported session are those of another program; they are counted, not judged.
    let mut imported: Option<AuditReport> = None;
    // What is found after an event this version does not understand, and the event's place.
    let mut doubtful: Option<(u64, AuditReport)> = None;
    let mut artifacts = ArtifactCheck::default();
    let mut seen_ids: HashSet<u64> = HashSet::new();
    let mut last_line = (0, 0);
    while let Some(item) = reader.next() {
        let item = item?;
        last_line = (item.line_number, item.offset);
        if let Some(damage) = &item.damage {
            report_damage(report, damage, is_live);
        }
        let Some(event) = &item.event else {
            continue;
        };
        if let Some(Damage {
            kind: DamageKind::RepeatedSequence { .. },
            ..
        }) = item.damage
        {
            // A copy says nothing new about calls and turns.
            continue;
        }
        report.events += 1;
        check_envelope(report, event, &mut seen_ids);
        if let Some(anchor) = anchor
            && anchor.sequence == event.sequence
            && item.damage.is_none()
            && reader.head().hash != anchor.hash
        {
            report.error_at(
                event,
                "anchor_mismatch",
                format!(
                    "line {} (byte {}) has the hash {}, but was anchored with {}: it or a line before it was changed",
                    item.line_number,
                    item.offset,
                    named(&reader.head().hash),
                    named(&anchor.hash)
                ),
            );
        }
        if let Payload::SessionCreated(created) = &event.payload
            && let Some(program) = imported_from(created)
        {
            let message = format!("the session was imported from a record of {program}");
            report.note("imported", Some(event.sequence), message);
            imported = Some(AuditReport::new(session.id().clone()));
        }
        if doubtful.is_none() && is_beyond_us(event) {
            doubtful = Some((event.sequence, AuditReport::new(session.id().clone())));
        }
        let steps = judge(&mut imported, &mut doubtful, report);
        calls.take(event, steps);
        turns.take(event, steps);
        commands.take(event, steps);
        effects.take(event, steps);
        verification.take(event, checks, steps);
        words.take(event, steps);
        inputs.take(event, store.as_ref(), steps);
        artifacts.take(event, report);
        secrets.take(event, &item.line, checks.redactor, report);
    }
    report.notes = reader.notes();
    check_end(report, reader.head(), anchor, last_line);
    note_unknown(report);
    let steps = judge(&mut imported, &mut doubtful, report);
    turns.finish(steps);
    calls.finish(&turns, steps);
    commands.finish(steps);
    effects.finish(steps);
    if let (None, Some((sequence, found))) = (imported, doubtful) {
        report.add_doubtful(sequence, found);
    }
    artifacts.finish(session, report);
    secrets.finish(session, checks.redactor, report);
    report.calls = calls.count();
    report.turns = turns.count();
    Ok(())
}

/// Where findings about calls and turns go.
fn judge<'a>(
    imported: &'a mut Option<AuditReport>,
    doubtful: &'a mut Option<(u64, AuditReport)>,
    report: &'a mut AuditReport,
) -> &'a mut AuditReport {
    let doubtful = doubtful.as_mut().map(|(_, report)| report);
    imported.as_mut().or(doubtful).unwrap_or(report)
}

/// Whether an event may change what calls and turns amount to, in a way this version cannot tell.
fn is_beyond_us(event: &Event) -> bool {
    let Payload::Unknown(unknown) = &event.payload else {
        return false;
    };
    matches!(unknown.reason, UnknownReason::Shape(_))
        || event.scope.turn_id.is_some()
        || event.scope.tool_call_id.is_some()
}

fn report_damage(report: &mut AuditReport, damage: &Damage, is_live: bool) {
    match damage.kind {
        // It was never acknowledged; if it was once whole, the anchor knows.
        DamageKind::TornTail { .. } if is_live => {
            report.note(
                "being_written",
                damage.sequence,
                "the last line is being written now".into(),
            );
        }
        DamageKind::TornTail { .. } => {
            report.note(damage.kind.code(), damage.sequence, damage.to_string());
        }
        _ => report.error(damage.kind.code(), damage.sequence, damage.to_string()),
    }
}

fn check_envelope(report: &mut AuditReport, event: &Event, seen_ids: &mut HashSet<u64>) {
    // Hashes of the ids are enough to find a repeated one, in a fraction of the memory.
    let mut hasher = DefaultHasher::new();
    event.event_id.hash(&mut hasher);
    if !seen_ids.insert(hasher.finish()) {
        report.error_at(
            event,
            "event_id_repeated",
            format!("event id {} occurs twice", event.event_id),
        );
    }
    let is_first = event.sequence == 0;
    if is_first != matches!(event.payload, Payload::SessionCreated(_)) {
        let message = if is_first {
            "a log begins with `session.created`"
        } else {
            "a session is created twice"
        };
        report.error_at(event, "session_created_misplaced", message.into());
    }
}

fn check_end(
    report: &mut AuditReport,
    head: Head,
    anchor: Option<&Anchor>,
    (line, offset): (u64, u64),
) {
    match anchor {
        None => report.note(
            "no_anchor",
            None,
            "no anchor of this session is kept here, so a cut-off end would not be found".into(),
        ),
        Some(anchor) if head.next_sequence <= anchor.sequence => report.error(
            "cut_off",
            head.next_sequence.checked_sub(1),
            format!(
                "the log ends with line {line} (byte {offset}), {} in all, but had reached event {}: its end was cut off",
                counted(head.next_sequence, "event"),
                anchor.sequence
            ),
        ),
        Some(_) => {}
    }
}

fn note_unknown(report: &mut AuditReport) {
    let notes = report.notes.clone();
    for (name, count) in &notes.unknown_types {
        report.note(
            "unknown_type",
            None,
            format!("{} of the unknown class `{name}`", counted(*count, "event")),
        );
    }
    for (name, (count, example)) in &notes.unknown_shapes {
        report.note(
            "unknown_shape",
            None,
            format!(
                "of class `{name}`, {} with another shape, e.g. {example}",
                counted(*count, "event")
            ),
        );
    }
    for (name, count) in &notes.unknown_fields {
        report.note(
            "unknown_field",
            None,
            format!("the unknown field `{name}` in {}", counted(*count, "event")),
        );
    }
    for (version, count) in &notes.other_versions {
        report.note(
            "other_schema_version",
            None,
            format!(
                "schema_version `{version}` in {}; this program writes `1`",
                counted(*count, "event")
            ),
        );
    }
}
