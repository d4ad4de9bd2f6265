//! The conversation: input, turns and their ends, the queue.

use agent_protocol::payload::conversation::*;
use agent_protocol::status::VerificationStatus;
use agent_text::counted;

use super::phrases::{self, changes, money, spaced, span, usage};
use super::{Description, Facts, Kind, Level, Tone};

pub(super) fn turn_submitted(submitted: &TurnSubmitted) -> Description {
    let text = match (&submitted.text, &submitted.input_ref) {
        (Some(text), _) => text.clone(),
        (None, Some(artifact)) => format!("(in artifact {artifact})"),
        (None, None) => "(no text recorded)".into(),
    };
    let parts = submitted.input_parts.iter().map(|part| {
        format!(
            "{} {} ({})",
            part.kind,
            part.name.as_deref().unwrap_or("without a name"),
            counted(part.bytes, "byte")
        )
    });
    let parts: Vec<String> = parts.collect();
    Description {
        text_ref: submitted
            .input_ref
            .clone()
            .filter(|_| submitted.text.is_none()),
        ..Description::new(Kind::Conversation, Level::Headline, "you", text)
    }
    .facts(Facts::default().list("with", &parts))
}

pub(super) fn turn_started(started: &TurnStarted) -> Description {
    Description::new(
        Kind::Model,
        Level::Detail,
        "turn",
        format!("begins with {} in mode {}", started.model, started.mode),
    )
}

pub(super) fn turn_completed(completed: &TurnCompleted) -> Description {
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
    let mut text = format!("{outcome}; {verified}");
    if let Some(command) = &completed.verification.command {
        text.push_str(&format!(": {command}"));
        if let Some(code) = completed.verification.exit_code {
            text.push_str(&format!(" (exit {code})"));
        }
    }
    let claims = completed.claims.iter().flatten();
    let claims: Vec<String> = claims.map(phrases::claim).collect();
    let facts = Facts::default()
        .add("stopped because", spaced(&completed.stop_reason))
        .list("claims", &claims)
        .add("files changed", changes(&completed.files_changed))
        .add("tokens", usage(&completed.usage))
        .add(
            "cost",
            completed.cost.map_or_else(|| "unknown".into(), money),
        )
        .add("took", completed.duration_ms.map(span).unwrap_or_default());
    Description::new(Kind::Conversation, Level::Headline, "turn ends", text)
        .tone(tone)
        .facts(facts)
}

pub(super) fn turn_failed(failed: &TurnFailed) -> Description {
    let text = format!(
        "{}, {} ({})",
        spaced(failed.status.as_str()),
        failed.message,
        failed.code
    );
    let facts = Facts::default().add("files changed", changes(&failed.files_changed));
    Description::new(Kind::Problem, Level::Headline, "turn ends", text)
        .tone(Tone::Bad)
        .facts(facts)
}

pub(super) fn queue_changed(changed: &QueueChanged) -> Description {
    Description::new(
        Kind::Conversation,
        Level::Detail,
        "queue",
        format!("{}; {} waiting", changed.op, changed.order.len()),
    )
}
