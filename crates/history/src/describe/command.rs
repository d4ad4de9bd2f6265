//! Commands: their sandbox, their run, their output.

use agent_protocol::payload::process::*;
use agent_protocol::payload::tool::{
    OutputExpired, OutputRedacted, OutputSpilled, OutputTruncated,
};
use agent_text::counted;

use super::phrases::{exit, spaced, span};
use super::{BlockKind, Description, Facts, Kind, Level, Tone};

pub(super) fn sandbox_applied(applied: &SandboxApplied) -> Description {
    let tone = match applied.status {
        SandboxStatus::Full => Tone::Good,
        SandboxStatus::Partial => Tone::Warn,
        SandboxStatus::Off | SandboxStatus::Unavailable => Tone::Bad,
    };
    let missing: Vec<String> = applied
        .layers
        .iter()
        .filter(|layer| !layer.holds)
        .map(|layer| layer.name.clone())
        .collect();
    let mut text = format!(
        "{}: {}, network {}",
        applied.status, applied.mechanism, applied.network
    );
    if !missing.is_empty() {
        text.push_str(&format!("; not in force: {}", missing.join(", ")));
    }
    if let Some(reason) = &applied.reason {
        text.push_str(&format!("; {reason}"));
    }
    let facts = Facts::default()
        .add("profile", &applied.profile_id)
        .add("in", &applied.cwd)
        .list("may write", &applied.write_roots)
        .list("may read besides", &applied.read_roots)
        .list("hidden", &applied.hidden)
        .list("protected", &applied.protected)
        .list("variables", &applied.env_keys)
        .list("credentials shown", &applied.secrets);
    Description::new(Kind::Command, Level::Detail, "sandbox", text)
        .tone(tone)
        .facts(facts)
}

pub(super) fn sandbox_violation(violation: &SandboxViolation) -> Description {
    let mut text = format!("{} refused", spaced(violation.kind.as_str()));
    if let Some(target) = &violation.target {
        text.push_str(&format!(": {target}"));
    }
    if violation.count > 1 {
        text.push_str(&format!(" ({} times)", violation.count));
    }
    let facts = Facts::default()
        .add("noticed by", spaced(violation.detection.as_str()))
        .add("call", violation.call.as_deref().unwrap_or_default())
        .add(
            "would be permitted by",
            violation.permitted_by.as_deref().unwrap_or_default(),
        );
    Description::new(Kind::Command, Level::Headline, "violation", text)
        .tone(Tone::Bad)
        .facts(facts)
}

pub(super) fn process_started(started: &ProcessStarted) -> Description {
    let mut text = started.command_summary.clone();
    if started.background {
        text.push_str(" (in the background)");
    }
    let facts = Facts::default()
        .add("process", started.process_id.as_str())
        .add("in", &started.cwd)
        .add("network", if started.network { "yes" } else { "no" });
    Description::new(Kind::Command, Level::Record, "runs", text).facts(facts)
}

pub(super) fn process_output(output: &ProcessOutput) -> Description {
    Description::new(
        Kind::Command,
        Level::Record,
        "output",
        format!("{} on {}", counted(output.bytes, "byte"), output.stream),
    )
    .block(
        BlockKind::Output,
        "output",
        output.preview.clone().unwrap_or_default(),
    )
}

pub(super) fn process_input(input: &ProcessInput) -> Description {
    Description::new(
        Kind::Command,
        Level::Detail,
        "input",
        format!("{} given by {}", counted(input.bytes, "byte"), input.by),
    )
}

pub(super) fn process_completed(completed: &ProcessCompleted) -> Description {
    let tone = match (completed.exit_code, completed.pipe_status.as_deref()) {
        (Some(0), Some(statuses)) if pipeline_failed(statuses) => Tone::Warn,
        (Some(0), _) => Tone::Good,
        (None, _) if completed.signal.is_none() => Tone::Warn,
        (Some(_) | None, _) => Tone::Bad,
    };
    let ended = exit(completed);
    let mut text = format!(
        "{ended} after {}; {} stdout, {} stderr",
        span(completed.duration_ms),
        counted(completed.stdout_bytes, "byte"),
        counted(completed.stderr_bytes, "byte")
    );
    if completed.sandbox.violations > 0 {
        text.push_str(&format!(
            "; {} noticed",
            counted(completed.sandbox.violations, "violation")
        ));
    }
    Description::new(Kind::Command, Level::Detail, "exit", text).tone(tone)
}

pub(super) fn process_failed(failed: &ProcessFailed) -> Description {
    Description::new(
        Kind::Command,
        Level::Detail,
        "not run",
        format!("{} ({})", failed.message, failed.category),
    )
    .tone(Tone::Bad)
}

pub(super) fn process_terminated(terminated: &ProcessTerminated) -> Description {
    Description::new(
        Kind::Command,
        Level::Detail,
        "ended",
        format!(
            "by {} with signal {}: {}",
            terminated.by, terminated.signal, terminated.reason
        ),
    )
    .tone(Tone::Warn)
}

pub(super) fn output_spilled(spilled: &OutputSpilled) -> Description {
    Description::new(
        Kind::Call,
        Level::Record,
        "spilled",
        format!("{} went to an artifact", counted(spilled.bytes, "byte")),
    )
}

pub(super) fn output_truncated(truncated: &OutputTruncated) -> Description {
    Description::new(
        Kind::Call,
        Level::Record,
        "truncated",
        format!(
            "{} shown, {} omitted",
            counted(truncated.shown_bytes, "byte"),
            counted(truncated.omitted_bytes, "byte")
        ),
    )
}

pub(super) fn output_redacted(redacted: &OutputRedacted) -> Description {
    Description::new(
        Kind::Decision,
        Level::Detail,
        "masked",
        format!(
            "{} of {} in {}",
            counted(redacted.count, "value"),
            redacted.rule,
            spaced(redacted.target.as_str())
        ),
    )
    .tone(Tone::Warn)
}

pub(super) fn output_expired(expired: &OutputExpired) -> Description {
    Description::new(
        Kind::Record,
        Level::Detail,
        "removed",
        format!(
            "artifact {} by {}",
            expired.artifact_id, expired.retention_rule
        ),
    )
}
