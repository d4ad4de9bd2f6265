//! Our own short form of an event sequence, for goldens that a person can read.

use std::path::Path;

use agent_provider::{Arguments, ModelError, ModelEvent};

/// One line per event; runs of deltas are one line with their number, length and beginning.
pub(crate) fn of(events: &[ModelEvent]) -> String {
    let mut lines = Vec::new();
    let mut run: Option<(String, usize, String)> = None;
    for event in events {
        let delta = match event {
            ModelEvent::TextDelta { text } => Some(("text".to_owned(), text)),
            ModelEvent::ReasoningDelta { text } => Some(("reasoning".to_owned(), text)),
            ModelEvent::ToolCallDelta { index, text } => {
                Some((format!("call {index} delta"), text))
            }
            _ => None,
        };
        if let Some((kind, text)) = delta {
            match &mut run {
                Some((open, count, so_far)) if *open == kind => {
                    *count += 1;
                    so_far.push_str(text);
                }
                _ => {
                    lines.extend(run.take().map(close));
                    run = Some((kind, 1, text.clone()));
                }
            }
            continue;
        }
        lines.extend(run.take().map(close));
        lines.push(line(event));
    }
    lines.extend(run.take().map(close));
    lines.join("\n") + "\n"
}

fn close((kind, count, text): (String, usize, String)) -> String {
    format!(
        "{kind} x{count}, {} chars: {}",
        text.chars().count(),
        short(&text)
    )
}

fn line(event: &ModelEvent) -> String {
    match event {
        ModelEvent::Started { response_id, model } => format!(
            "started {} {}",
            short(response_id.as_deref().unwrap_or("-")),
            model.as_deref().unwrap_or("-")
        ),
        ModelEvent::ReasoningOpaque { opaque } => {
            format!(
                "opaque {} {} bytes",
                opaque.dialect.as_str(),
                opaque.value.to_string().len()
            )
        }
        ModelEvent::ToolCallStarted {
            index,
            provider_call_id,
            name,
        } => {
            format!("call {index} started {name} {}", short(provider_call_id))
        }
        ModelEvent::ToolCallCompleted { index, call } => {
            let state = match &call.arguments {
                Arguments::Object => "object".to_owned(),
                Arguments::Empty => "empty".to_owned(),
                Arguments::Malformed(why) => format!("malformed ({why})"),
                Arguments::Cut => "cut".to_owned(),
            };
            let opaque = if call.opaque.is_some() {
                " +opaque"
            } else {
                ""
            };
            format!(
                "call {index} completed {} {state}{opaque}: {}",
                call.name,
                short(&call.arguments_text)
            )
        }
        ModelEvent::Refusal { text } => format!("refusal {}", short(text)),
        ModelEvent::Skipped { kind } => format!("skipped {kind}"),
        ModelEvent::Usage(usage) => {
            let counts = [
                ("input", usage.input),
                ("output", usage.output),
                ("cached", usage.cached_input),
                ("written", usage.cache_write),
                ("reasoning", usage.reasoning),
                ("total", usage.total),
            ];
            let counts: Vec<String> = counts
                .iter()
                .filter_map(|(name, count)| count.map(|count| format!("{name} {count}")))
                .collect();
            let cost = usage
                .reported_cost
                .map(|cost| format!(", charged {cost}"))
                .unwrap_or_default();
            format!("usage {}{cost}", counts.join(", "))
        }
        ModelEvent::Stopped { reason } => format!("stopped {}", reason.as_str()),
        ModelEvent::Error(error) => format!("error {}", self::error(error)),
        ModelEvent::TextDelta { .. }
        | ModelEvent::ReasoningDelta { .. }
        | ModelEvent::ToolCallDelta { .. } => {
            unreachable!("deltas are gathered before")
        }
    }
}

/// One line about an error.
pub(crate) fn error(error: &ModelError) -> String {
    let retry = if error.retryable {
        "retryable"
    } else {
        "final"
    };
    let wait = error
        .retry_after
        .map(|wait| format!(" after {wait:?}"))
        .unwrap_or_default();
    format!(
        "{} {retry}{wait} status {:?} code {:?} request {:?}: {}",
        error.kind.as_str(),
        error.http_status,
        error.code,
        error.request_id,
        short(&error.message)
    )
}

fn short(text: &str) -> String {
    let mut kept: String = text.chars().take(48).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    format!("{kept:?}")
}

/// Compares with the golden of this name, or writes it when asked to.
#[allow(dead_code, reason = "not every test file has goldens in that folder")]
pub(crate) fn compare(name: &str, text: &str) {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    compare_file(&goldens.join(name), text);
}

/// Compares with this golden, or writes it when asked to.
pub(crate) fn compare_file(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    let name = path.display();
    for (number, (got, expected)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(got, expected, "line {} of {name}", number + 1);
    }
    assert_eq!(
        text.lines().count(),
        golden.lines().count(),
        "number of lines of {name}"
    );
}
