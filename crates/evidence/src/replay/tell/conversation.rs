//! What people, the model and the session itself said: turns, answers, beginnings and ends.

use agent_history::imported_from;
use agent_history::verification::describe_failure;
use agent_protocol::Payload;
use agent_protocol::payload::conversation::{
    EvidenceKind, EvidenceStatus, HistoryStatus, TurnOutcome,
};
use agent_protocol::payload::{SideEffect, Usage};
use agent_protocol::status::{Status, VerificationStatus};
use agent_text::counted;

use super::super::claims::claimed;
use super::{Facts, Kind, Level, Told, Tone, words};

pub(super) fn tell(payload: &Payload) -> Option<Told> {
    Some(match payload {
        Payload::SessionCreated(created) => {
            let mode = created.mode.map_or("unknown", |mode| mode.as_str());
            let mut says = format!(
                "session begins in mode {mode}, agent {}",
                created.agent_version
            );
            if let Some(program) = imported_from(created) {
                says = format!(
                    "imported from {program} ({}); what its record does not say is unknown",
                    created.agent_version
                );
            }
            if let Some(parent) = &created.parent {
                says.push_str(&format!(
                    ", continuing {} after event {}",
                    parent.session_id, parent.sequence
                ));
            }
            let facts = Facts::default()
                .add("title", created.title.as_deref().unwrap_or_default())
                .add("profile", created.profile.as_deref().unwrap_or_default())
                .add("project", &created.project_root_hash)
                .add(
                    "recorded in",
                    created.recorded_in.as_deref().unwrap_or_default(),
                )
                .add(
                    "settings",
                    created.config_hash.as_deref().unwrap_or_default(),
                );
            Told::new(Kind::Record, Level::Headline, "session", says).facts(facts)
        }
        Payload::SessionUpdated(updated) => {
            let changed = &updated.changed;
            let mut says: Vec<String> = Vec::new();
            if let Some(status) = changed.status {
                says.push(match status {
                    Status::Ended => "session ends".into(),
                    other => format!("session is {}", words(other.as_str())),
                });
            }
            says.extend(changed.title.iter().map(|title| format!("title: {title}")));
            says.extend(changed.mode.iter().map(|mode| format!("mode: {mode}")));
            says.extend(changed.model.iter().map(|model| format!("model: {model}")));
            if !updated.reason.is_empty() {
                says.push(updated.reason.clone());
            }
            let level = if changed.mode.is_some() || changed.status == Some(Status::Ended) {
                Level::Headline
            } else {
                Level::Detail
            };
            Told::new(Kind::Record, level, "session", says.join("; "))
        }
        Payload::ThreadStarted(started) => Told::new(
            Kind::Record,
            Level::Record,
            "thread",
            format!("{} thread begins", started.role),
        ),
        Payload::ThreadUpdated(updated) => {
            let mut says = format!("thread is {}", words(updated.status.as_str()));
            if let Some(reason) = &updated.status_reason {
                says.push_str(&format!(": {reason}"));
            }
            Told::new(Kind::Record, Level::Record, "thread", says)
        }
        Payload::SubagentSpawned(spawned) => {
            let name = match spawned.role.as_str() {
                "" => "a sub-agent".to_owned(),
                role => format!("sub-agent {role}"),
            };
            let says = match spawned.objective.as_str() {
                "" => format!("{name} begins"),
                objective => format!("{name} begins: {objective}"),
            };
            Told::new(Kind::Conversation, Level::Headline, "sub-agent", says)
        }
        Payload::SubagentCompleted(_) => Told::new(
            Kind::Conversation,
            Level::Detail,
            "sub-agent",
            "it came back with a result",
        ),
        Payload::SubagentFailed(failed) => Told::new(
            Kind::Problem,
            Level::Headline,
            "sub-agent",
            format!("it failed: {} ({})", failed.message, failed.code),
        )
        .tone(Tone::Bad),
        Payload::TurnSubmitted(submitted) => {
            let text = match (&submitted.text, &submitted.input_ref) {
                (Some(text), _) => text.clone(),
                (None, Some(artifact)) => format!("(in artifact {artifact})"),
                (None, None) => "(no text recorded)".into(),
            };
            let mut told = Told::new(Kind::Conversation, Level::Headline, "you", text);
            let parts = submitted.input_parts.iter().map(|part| {
                format!(
                    "{} {} ({})",
                    part.kind,
                    part.name.as_deref().unwrap_or("without a name"),
                    counted(part.bytes, "byte")
                )
            });
            let parts: Vec<String> = parts.collect();
            told = told.facts(Facts::default().list("with", &parts));
            told
        }
        Payload::TurnStarted(started) => Told::new(
            Kind::Model,
            Level::Detail,
            "turn",
            format!("begins with {} in mode {}", started.model, started.mode),
        ),
        Payload::TurnCompleted(completed) => {
            let (verified, tone) = match completed.verification.status {
                VerificationStatus::Passed => ("verified", Tone::Good),
                VerificationStatus::Failed => ("verification failed", Tone::Bad),
                VerificationStatus::Stale => ("verified before the last change only", Tone::Warn),
                VerificationStatus::Unverified => ("not verified: no check was run", Tone::Warn),
                VerificationStatus::CouldNotBeJudged => ("could not be judged", Tone::Warn),
                VerificationStatus::NotApplicable => ("nothing to verify", Tone::Plain),
            };
            let outcome = match completed.outcome {
                TurnOutcome::Completed => "completed",
                TurnOutcome::Degraded
                    if completed.refused_calls.unwrap_or(0) == 0
                        && matches!(
                            completed.verification.status,
                            VerificationStatus::Failed | VerificationStatus::Stale
                        ) =>
                {
                    "completed, but not verified"
                }
                TurnOutcome::Degraded => "completed, but something needed was refused or missing",
            };
            let tone = match completed.outcome {
                TurnOutcome::Degraded if tone != Tone::Bad => Tone::Warn,
                _ => tone,
            };
            let mut says = format!("{outcome}; {verified}");
            if let Some(command) = &completed.verification.command {
                says.push_str(&format!(": {command}"));
                if let Some(code) = completed.verification.exit_code {
                    says.push_str(&format!(" (exit {code})"));
                }
            }
            let claims = completed.claims.iter().flatten();
            let claims: Vec<String> = claims.map(claimed).collect();
            let facts = Facts::default()
                .add("stopped because", words(&completed.stop_reason))
                .list("claims", &claims)
                .add("files changed", changes(&completed.files_changed))
                .add("tokens", usage(&completed.usage))
                .add("cost", completed.cost.map(money).unwrap_or_default())
                .add(
                    "took",
                    completed.duration_ms.map(millis).unwrap_or_default(),
                );
            Told::new(Kind::Conversation, Level::Headline, "turn ends", says)
                .tone(tone)
                .facts(facts)
        }
        Payload::TurnFailed(failed) => {
            let says = format!(
                "{}, {} ({})",
                words(failed.status.as_str()),
                failed.message,
                failed.code
            );
            let facts = Facts::default().add("files changed", changes(&failed.files_changed));
            Told::new(Kind::Problem, Level::Headline, "turn ends", says)
                .tone(Tone::Bad)
                .facts(facts)
        }
        Payload::RunStatus(status) => {
            let mut says = status.title.clone();
            if let Some(detail) = &status.detail {
                says.push_str(&format!(": {detail}"));
            }
            let level = if status.phase == Status::Retrying {
                Level::Detail
            } else {
                Level::Record
            };
            Told::new(Kind::Record, level, "status", says)
        }
        Payload::QueueChanged(changed) => Told::new(
            Kind::Conversation,
            Level::Detail,
            "queue",
            format!("{}; {} waiting", changed.op, changed.order.len()),
        ),
        Payload::RuntimeWarning(warning) => Told::new(
            Kind::Problem,
            Level::Headline,
            "warning",
            format!("{} ({})", warning.message, warning.code),
        )
        .tone(Tone::Warn),
        Payload::RuntimeError(error) => Told::new(
            Kind::Problem,
            Level::Headline,
            "error",
            format!("{} ({})", error.message, error.code),
        )
        .tone(Tone::Bad),
        _ => return tell_record(payload),
    })
}

fn tell_record(payload: &Payload) -> Option<Told> {
    Some(match payload {
        Payload::EvidenceChanged(evidence) => {
            let tone = match evidence.status {
                EvidenceStatus::Passed => Tone::Good,
                EvidenceStatus::Failed => Tone::Bad,
                EvidenceStatus::Stale
                | EvidenceStatus::Unverified
                | EvidenceStatus::CouldNotBeJudged => Tone::Warn,
                EvidenceStatus::Exported => Tone::Plain,
            };
            let mut says = match evidence.kind {
                EvidenceKind::Verification => {
                    format!("verification {}", words(evidence.status.as_str()))
                }
                other => format!("{} {}", words(other.as_str()), evidence.status),
            };
            if let Some(command) = &evidence.command {
                says.push_str(&format!(": {command}"));
            }
            if let Some(code) = evidence.exit_code {
                says.push_str(&format!(" (exit {code})"));
            }
            let covers = match evidence.covers_edits {
                Some(true) => "ran after the last change",
                Some(false) => "ran before any change it could cover",
                None => "",
            };
            let check = evidence.check.as_deref().unwrap_or_default().join(" ");
            let failures = evidence.failures.iter().flatten();
            let failures: Vec<String> = failures.map(describe_failure).collect();
            let facts = Facts::default()
                .add("covers", covers)
                .add("check", check)
                .add("in", evidence.cwd.as_deref().unwrap_or_default())
                .add("why", evidence.reason.as_deref().unwrap_or_default())
                .list("failed", &failures);
            Told::new(Kind::Evidence, Level::Headline, "check", says)
                .tone(tone)
                .facts(facts)
        }
        Payload::ArtifactChanged(artifact) => {
            let facts = Facts::default()
                .add("artifact", artifact.artifact_id.as_str())
                .add("type", &artifact.media_type)
                .add("masked", if artifact.redacted { "yes" } else { "no" });
            Told::new(
                Kind::Record,
                Level::Record,
                "artifact",
                format!(
                    "{} kept, {}",
                    words(artifact.kind.as_str()),
                    counted(artifact.bytes, "byte")
                ),
            )
            .facts(facts)
        }
        Payload::SnapshotUpdated(snapshot) => Told::new(
            Kind::Record,
            Level::Record,
            "snapshot",
            format!("{} as of event {}", snapshot.name, snapshot.as_of_sequence),
        ),
        Payload::SnapshotRepaired(snapshot) => Told::new(
            Kind::Problem,
            Level::Detail,
            "snapshot",
            format!("{} was rebuilt: {}", snapshot.name, snapshot.reason),
        )
        .tone(Tone::Warn),
        Payload::HistoryReconstructed(history) => {
            let mut says = match history.status {
                HistoryStatus::Complete => "the log was read again, whole".to_owned(),
                HistoryStatus::Degraded => "the log was read again, with gaps".to_owned(),
            };
            if let Some(bytes) = history.cut_bytes {
                says.push_str(&format!(
                    "; {} of an unfinished last line were cut off",
                    counted(bytes, "byte")
                ));
            }
            let tone = match history.status {
                HistoryStatus::Complete => Tone::Plain,
                HistoryStatus::Degraded => Tone::Warn,
            };
            Told::new(Kind::Record, Level::Detail, "resumed", says).tone(tone)
        }
        Payload::HistoryWindowLoaded(window) => Told::new(
            Kind::Record,
            Level::Record,
            "history",
            format!(
                "events {} to {} were read",
                window.from_sequence, window.to_sequence
            ),
        ),
        Payload::HistoryRollbackStarted(rollback) => Told::new(
            Kind::Change,
            Level::Headline,
            "undo",
            format!(
                "{} to be taken back to event {}",
                counted(rollback.files.len() as u64, "file"),
                rollback.target_sequence
            ),
        )
        .tone(Tone::Warn),
        Payload::HistoryRollbackCompleted(rollback) => {
            let refused: Vec<String> = rollback
                .files_refused
                .iter()
                .map(|file| format!("{} ({})", file.path, file.reason))
                .collect();
            let facts = Facts::default()
                .add("taken back", changes(&rollback.files_restored))
                .list("refused", &refused);
            Told::new(
                Kind::Change,
                Level::Headline,
                "undone",
                format!(
                    "{} undone, {} refused",
                    counted(rollback.files_restored.len() as u64, "file"),
                    rollback.files_refused.len()
                ),
            )
            .tone(Tone::Warn)
            .facts(facts)
        }
        _ => return None,
    })
}

/// `src/a.rs (modified), b (created)`.
pub(super) fn changes(effects: &[SideEffect]) -> String {
    let each = effects
        .iter()
        .map(|effect| format!("{} ({})", effect.path, words(effect.kind.as_str())));
    each.collect::<Vec<_>>().join(", ")
}

/// Tokens as far as they were counted.
pub(super) fn usage(usage: &Usage) -> String {
    let part = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
    let parts = [
        part(usage.input, "in"),
        part(usage.output, "out"),
        part(usage.cached_input, "cached"),
        part(usage.reasoning, "reasoning"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub(super) fn money(amount: f64) -> String {
    format!("{amount:.4} USD")
}

/// A span of time as people say it.
pub(super) fn millis(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..60_000 => format!("{:.1} s", millis as f64 / 1000.0),
        _ => format!("{} min {} s", millis / 60_000, millis / 1000 % 60),
    }
}
