//! The record itself: its beginnings and ends, evidence, artifacts, repairs, undo, warnings.

use agent_protocol::payload::conversation::*;
use agent_protocol::status::Status;
use agent_text::counted;

use super::phrases::{changes, spaced};
use super::{Description, Facts, Kind, Level, Tone};
use crate::imported_from;
use crate::verification::describe_failure;

pub(super) fn evidence_changed(evidence: &EvidenceChanged) -> Description {
    let tone = match evidence.status {
        EvidenceStatus::Passed => Tone::Good,
        EvidenceStatus::Failed => Tone::Bad,
        EvidenceStatus::Stale | EvidenceStatus::Unverified | EvidenceStatus::CouldNotBeJudged => {
            Tone::Warn
        }
        EvidenceStatus::Exported => Tone::Plain,
    };
    let mut text = match evidence.kind {
        EvidenceKind::Verification => {
            format!("verification {}", spaced(evidence.status.as_str()))
        }
        other => format!("{} {}", spaced(other.as_str()), evidence.status),
    };
    if let Some(command) = &evidence.command {
        text.push_str(&format!(": {command}"));
    }
    if let Some(code) = evidence.exit_code {
        text.push_str(&format!(" (exit {code})"));
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
    Description::new(Kind::Evidence, Level::Headline, "check", text)
        .tone(tone)
        .facts(facts)
}

pub(super) fn artifact_changed(artifact: &ArtifactChanged) -> Description {
    let facts = Facts::default()
        .add("artifact", artifact.artifact_id.as_str())
        .add("type", &artifact.media_type)
        .add("masked", if artifact.redacted { "yes" } else { "no" });
    Description::new(
        Kind::Record,
        Level::Record,
        "artifact",
        format!(
            "{} kept, {}",
            spaced(artifact.kind.as_str()),
            counted(artifact.bytes, "byte")
        ),
    )
    .facts(facts)
}

pub(super) fn snapshot_updated(snapshot: &SnapshotUpdated) -> Description {
    Description::new(
        Kind::Record,
        Level::Record,
        "snapshot",
        format!("{} as of event {}", snapshot.name, snapshot.as_of_sequence),
    )
}

pub(super) fn snapshot_repaired(snapshot: &SnapshotRepaired) -> Description {
    Description::new(
        Kind::Problem,
        Level::Detail,
        "snapshot",
        format!("{} was rebuilt: {}", snapshot.name, snapshot.reason),
    )
    .tone(Tone::Warn)
}

pub(super) fn history_reconstructed(history: &HistoryReconstructed) -> Description {
    let mut text = match history.status {
        HistoryStatus::Complete => "the log was read again, whole".to_owned(),
        HistoryStatus::Degraded => "the log was read again, with gaps".to_owned(),
    };
    if let Some(bytes) = history.cut_bytes {
        text.push_str(&format!(
            "; {} of an unfinished last line were cut off",
            counted(bytes, "byte")
        ));
    }
    if let Some(reason) = &history.reason {
        text.push_str(&format!(" ({reason})"));
    }
    let tone = match history.status {
        HistoryStatus::Complete => Tone::Plain,
        HistoryStatus::Degraded => Tone::Warn,
    };
    Description::new(Kind::Record, Level::Detail, "resumed", text).tone(tone)
}

pub(super) fn history_window_loaded(window: &HistoryWindowLoaded) -> Description {
    Description::new(
        Kind::Record,
        Level::Record,
        "history",
        format!(
            "events {} to {} were read",
            window.from_sequence, window.to_sequence
        ),
    )
}

pub(super) fn history_rollback_started(rollback: &HistoryRollbackStarted) -> Description {
    let text = format!(
        "restoring {} to event {}",
        counted(rollback.files.len() as u64, "file"),
        rollback.target_sequence
    );
    Description::new(Kind::Change, Level::Headline, "undo", text).tone(Tone::Warn)
}

pub(super) fn history_rollback_completed(rollback: &HistoryRollbackCompleted) -> Description {
    let restored: Vec<&str> = rollback
        .files_restored
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    let mut text = match restored.is_empty() {
        true => "nothing was restored".to_owned(),
        false => format!("restored: {}", restored.join(", ")),
    };
    for refused in &rollback.files_refused {
        text.push_str(&format!(
            "; left alone: {} ({})",
            refused.path, refused.reason
        ));
    }
    Description::new(Kind::Change, Level::Headline, "undone", text)
        .tone(Tone::Warn)
        .facts(Facts::default().add("restored", changes(&rollback.files_restored)))
}

pub(super) fn session_created(created: &SessionCreated) -> Description {
    let mode = created.mode.map_or("unknown", |mode| mode.as_str());
    let mut text = format!(
        "session begins in mode {mode}, agent {}",
        created.agent_version
    );
    if let Some(program) = imported_from(created) {
        text = format!(
            "imported from {program} ({}); what its record does not say is unknown",
            created.agent_version
        );
    }
    if let Some(parent) = &created.parent {
        text.push_str(&format!(
            ", forked from {} after event {}",
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
    Description::new(Kind::Record, Level::Headline, "session", text).facts(facts)
}

pub(super) fn session_updated(updated: &SessionUpdated) -> Description {
    let changed = &updated.changed;
    let mut text: Vec<String> = Vec::new();
    if let Some(status) = changed.status {
        text.push(match status {
            Status::Ended => "session ends".into(),
            other => format!("session is {}", spaced(other.as_str())),
        });
    }
    text.extend(changed.title.iter().map(|title| format!("title: {title}")));
    text.extend(changed.mode.iter().map(|mode| format!("mode: {mode}")));
    text.extend(changed.model.iter().map(|model| format!("model: {model}")));
    let directory = changed.working_directory.iter();
    text.extend(directory.map(|path| format!("working directory: {path}")));
    let thinking = changed.thinking.iter();
    text.extend(thinking.map(|level| format!("thinking: {level}")));
    if !updated.reason.is_empty() {
        text.push(updated.reason.clone());
    }
    let level = if changed.mode.is_some() || changed.status == Some(Status::Ended) {
        Level::Headline
    } else {
        Level::Detail
    };
    Description::new(Kind::Record, level, "session", text.join("; "))
}

pub(super) fn thread_started(started: &ThreadStarted) -> Description {
    Description::new(
        Kind::Record,
        Level::Record,
        "thread",
        format!("{} thread begins", started.role),
    )
}

pub(super) fn thread_updated(updated: &ThreadUpdated) -> Description {
    let mut text = format!("thread is {}", spaced(updated.status.as_str()));
    if let Some(reason) = &updated.status_reason {
        text.push_str(&format!(": {reason}"));
    }
    Description::new(Kind::Record, Level::Record, "thread", text)
}

pub(super) fn runtime_warning(warning: &RuntimeWarning) -> Description {
    Description::new(
        Kind::Problem,
        Level::Headline,
        "warning",
        warning.message.clone(),
    )
    .tone(Tone::Warn)
    .facts(Facts::default().add("code", &warning.code))
}

pub(super) fn runtime_error(error: &RuntimeError) -> Description {
    Description::new(
        Kind::Problem,
        Level::Headline,
        "error",
        error.message.clone(),
    )
    .tone(Tone::Bad)
    .facts(Facts::default().add("code", &error.code))
}

pub(super) fn run_status(status: &RunStatus) -> Description {
    let mut text = status.title.clone();
    if let Some(detail) = &status.detail {
        text.push_str(&format!(": {detail}"));
    }
    let level = if status.phase == Status::Retrying {
        Level::Detail
    } else {
        Level::Record
    };
    Description::new(Kind::Record, level, "status", text)
}
