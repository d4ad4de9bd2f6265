//! What happens, as it happens, on standard error: one line per step when that is a terminal, and
//! wherever it goes, with what decided each step, for those who asked to be told more.

use std::io::{self, IsTerminal as _, Write as _};

use agent_log::SessionWriter;
use agent_protocol::payload::Usage;
use agent_protocol::payload::model::ModelFailureKind;
use agent_protocol::payload::permission::Effect;
use agent_protocol::payload::process::pipeline_failed;
use agent_protocol::{Event, Payload};

use super::OutputForm;
use crate::app::App;
use crate::output::visible;
use agent_text::clip;

/// Starts showing, where somebody can see it and wants to.
pub(super) fn show(app: &App, writer: &SessionWriter, form: OutputForm) {
    let verbose = app.output.is_verbose();
    let is_terminal = io::stderr().is_terminal();
    let usual = matches!(form, OutputForm::Text | OutputForm::Json) && is_terminal;
    if form == OutputForm::Quiet || app.output.is_quiet() {
        return;
    }
    if !(usual || verbose) {
        if form == OutputForm::Text {
            show_trouble(writer);
        }
        return;
    }
    app.output
        .detail(&format!("log: {}", app.short(writer.log_path())));
    // A line that is kept in a file is not cut for a screen.
    let width = is_terminal.then(|| app.output.width());
    writer.subscribe(move |appended| {
        let told = line(&appended.event).or_else(|| {
            verbose
                .then(|| detail(&appended.event))
                .flatten()
                .map(|text| format!("· {text}"))
        });
        let Some(told) = told.as_deref().map(visible) else {
            return true;
        };
        let told = width.map_or_else(|| told.clone(), |width| clip(&told, width));
        writeln!(io::stderr(), "{told}").is_ok()
    });
}

/// Whoever reads the answer in a file is told what in it the log does not show, and why it takes
/// so long when the model has to be asked again; no more.
fn show_trouble(writer: &SessionWriter) {
    writer.subscribe(|appended| {
        let told = match &appended.event.payload {
            Payload::RuntimeWarning(warning) if warning.code.starts_with("final_answer_") => {
                line(&appended.event)
            }
            Payload::ModelFailed(failed) if failed.retry_in_ms.is_some() => line(&appended.event),
            _ => None,
        };
        told.is_none_or(|told| writeln!(io::stderr(), "{}", visible(&told)).is_ok())
    });
}

fn line(event: &Event) -> Option<String> {
    match &event.payload {
        Payload::PermissionEvaluated(decision) if decision.decision == Effect::Deny => {
            Some(format!("  denied: {}", decision.reason))
        }
        Payload::ToolObservation(seen) => {
            let statuses = seen.facts.data.pipe_status.as_deref();
            let is_well = seen.ok && !statuses.is_some_and(pipeline_failed);
            let mark = if is_well { '+' } else { '!' };
            Some(format!("{mark} {} — {}", seen.title, seen.summary))
        }
        // The end of the turn says who stopped it.
        Payload::ModelFailed(failed) if failed.kind == ModelFailureKind::Cancelled => None,
        Payload::ModelFailed(failed) => Some(match failed.retry_in_words() {
            Some(words) => format!("! {words}"),
            None => format!("! model: {}", failed.message),
        }),
        Payload::ContextCompactionStarted(_) => Some("… compacting the conversation".to_owned()),
        Payload::RuntimeWarning(warning) => Some(format!("! {}", warning.message)),
        _ => None,
    }
}

/// What decided a step, and what it took.
fn detail(event: &Event) -> Option<String> {
    match &event.payload {
        Payload::TurnStarted(turn) => Some(format!("turn: {} in mode {}", turn.model, turn.mode)),
        Payload::RoutingDecided(routed) => Some(format!(
            "model: {}/{} ({})",
            routed.selected.provider, routed.selected.model, routed.reason
        )),
        Payload::RoutingFallbackApplied(applied) => Some(format!(
            "model: switching to {}/{}: {}",
            applied.to.provider, applied.to.model, applied.reason
        )),
        Payload::ModelRequested(asked) => Some(format!(
            "request {}, attempt {}: {} bytes to {}/{}",
            asked.request_no, asked.attempt, asked.input_bytes, asked.provider, asked.model
        )),
        Payload::ModelCompleted(answer) => Some(format!(
            "answer: {} after {} ms, {}",
            answer.stop_reason,
            answer.latency_ms,
            tokens(&answer.usage)
        )),
        Payload::PermissionEvaluated(decision) => {
            Some(format!("{}: {}", decision.decision, decision.reason))
        }
        Payload::SandboxApplied(applied) => Some(format!(
            "sandbox: {}, network {}",
            applied.mechanism, applied.network
        )),
        Payload::EvidenceChanged(evidence) => evidence.command.as_ref().map(|command| {
            let status = evidence.status.as_str().replace('_', " ");
            format!("verification: `{command}` {status}")
        }),
        Payload::TurnCompleted(turn) => {
            let cost = turn
                .cost
                .map_or("cost unknown".to_owned(), |cost| format!("{cost:.4} USD"));
            Some(format!(
                "turn {}: verification {}, {}, {cost}",
                turn.outcome,
                turn.verification.status,
                tokens(&turn.usage)
            ))
        }
        Payload::TurnFailed(turn) => Some(format!(
            "turn {}: {} ({})",
            turn.status, turn.code, turn.category
        )),
        _ => None,
    }
}

fn tokens(usage: &Usage) -> String {
    let count = |tokens: Option<u64>| tokens.map_or("?".to_owned(), |tokens| tokens.to_string());
    let mut text = format!(
        "{} tokens in, {} out",
        count(usage.input),
        count(usage.output)
    );
    if let Some(cached) = usage.cached_input.filter(|cached| *cached > 0) {
        text.push_str(&format!(", {cached} cached"));
    }
    text
}
