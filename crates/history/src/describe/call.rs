//! One call: asked for, checked, started, ended, shown.

use agent_protocol::Phase;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::plan::PlanItem;
use agent_protocol::payload::process::pipeline_failed;
use agent_protocol::payload::tool::*;
use agent_text::counted;
use serde_json::Value;

use super::phrases::{changes, happened, span};
use super::{Block, BlockKind, Description, Facts, Kind, Level, Tone};

pub(super) fn tool_intent(intent: &ToolIntent) -> Description {
    let text = match (intent.input(), intent.input_ref()) {
        (Some(input), _) => in_one_line(input),
        (None, Some(artifact)) => format!("(input in artifact {artifact})"),
        (None, None) => "(no input recorded)".into(),
    };
    let json = intent
        .input()
        .and_then(|input| serde_json::to_string_pretty(input).ok())
        .unwrap_or_default();
    let facts = Facts::default()
        .add(
            "asked for as",
            intent.requested_name.as_deref().unwrap_or_default(),
        )
        .add("reason given", intent.reason.as_deref().unwrap_or_default());
    Description::new(Kind::Call, Level::Headline, intent.tool_name.clone(), text)
        .block(BlockKind::Json, "input", json)
        .facts(facts)
}

pub(super) fn tool_validation(validation: &ToolValidation) -> Description {
    if validation.ok {
        return Description::new(
            Kind::Call,
            Level::Record,
            "valid",
            format!("checked as far as {}", validation.layer),
        );
    }

    let errors = validation.errors.iter().map(|error| {
        if error.path.is_empty() {
            error.message.clone()
        } else {
            format!("{}: {}", error.path, error.message)
        }
    });
    let mut text = errors.collect::<Vec<_>>().join("; ");
    if let Some(code) = validation.code {
        text = if text.is_empty() {
            code.to_string()
        } else {
            format!("{text} ({code})")
        };
    }
    Description::new(Kind::Call, Level::Detail, "not valid", text).tone(Tone::Bad)
}

pub(super) fn tool_args(args: &ToolArgs) -> Description {
    let text = match args.changed_by_hook {
        Some(true) => "as a hook changed them",
        Some(false) | None => "as they will be used",
    };
    let facts = Facts::default()
        .list("paths", &args.normalised_paths)
        .add("sha256", &args.args_sha256);
    Description::new(Kind::Call, Level::Record, "arguments", text).facts(facts)
}

pub(super) fn tool_started(started: &ToolStarted) -> Description {
    let facts = Facts::default()
        .add("executor", &started.executor)
        .add("in", &started.cwd)
        .add(
            "time limit",
            started.timeout_ms.map(span).unwrap_or_default(),
        )
        .add("runs beside", started.plan.concurrency.as_str())
        .add(
            "waited",
            if started.plan.waited_ms > 0 {
                span(started.plan.waited_ms)
            } else {
                String::new()
            },
        )
        .add("allowed by", &started.permission_ref);
    Description::new(
        Kind::Call,
        Level::Record,
        "started",
        started.executor.clone(),
    )
    .facts(facts)
}

pub(super) fn tool_progress(progress: &ToolProgress) -> Description {
    Description::new(
        Kind::Call,
        Level::Record,
        "progress",
        format!("{} for {}", progress.status, span(progress.elapsed_ms)),
    )
}

pub(super) fn tool_result(result: &ToolResult) -> Description {
    let effects = changes(&result.side_effects);
    let outcome = if result.ok { "ok" } else { "failed" };
    let mut text = format!("{outcome} after {}", span(result.metrics.duration_ms));
    if !result.ok {
        text.push_str(&format!(" ({})", result.code));
    }
    if !effects.is_empty() {
        text.push_str(&format!("; changed {effects}"));
    }
    let kind = if effects.is_empty() {
        Kind::Call
    } else {
        Kind::Change
    };
    // What changed is a headline; that nothing did is told by the observation.
    let level = if effects.is_empty() {
        Level::Record
    } else {
        Level::Detail
    };
    Description::new(kind, level, "result", text).tone(if result.ok {
        Tone::Plain
    } else {
        Tone::Bad
    })
}

pub(super) fn tool_failed(failed: &ToolFailed) -> Description {
    let happened = happened(failed.action_happened);
    let label = match failed.phase {
        Phase::Permission => "refused",
        Phase::Lookup | Phase::Validate => "rejected",
        _ => "failed",
    };
    let effects = changes(&failed.side_effects);
    let mut text = format!("{} ({}); {happened}", failed.message, failed.code);
    if !effects.is_empty() {
        text.push_str(&format!("; changed {effects}"));
    }
    Description::new(Kind::Call, Level::Detail, label, text).tone(Tone::Bad)
}

pub(super) fn tool_observation(observation: &ToolObservation) -> Description {
    let mut text = observation.summary.clone();
    if observation.truncated {
        text.push_str(&format!(
            " [{} omitted]",
            counted(observation.omitted_bytes, "byte")
        ));
    }
    let statuses = observation.facts.data.pipe_status.as_deref();
    let tone = match observation.ok {
        true if statuses.is_some_and(pipeline_failed) => Tone::Warn,
        true => Tone::Plain,
        false => Tone::Bad,
    };
    let mut description = Description {
        subject: Some(observation.title.clone()),
        ..Description::new(Kind::Call, Level::Detail, "shown", text)
    }
    .tone(tone);
    for block in &observation.content {
        let Some(text) = &block.text else {
            continue;
        };
        let kind = match block.format {
            ContentFormat::Diff => BlockKind::Diff,
            ContentFormat::Json => BlockKind::Json,
            _ => BlockKind::Output,
        };
        let title = block.source.clone().unwrap_or_else(|| "output".into());
        description = description.block(kind, title, text.clone());
        if let Some(last) = description.blocks.last_mut() {
            last.artifact.clone_from(&block.artifact);
            last.is_cut = block.omitted_bytes.is_some();
            last.is_printed = observation.facts.exit_code.is_some();
            if last.is_cut && kind == BlockKind::Diff {
                let mut refs = observation.artifact_refs.iter();
                let whole = refs.find(|artifact| artifact.kind == ArtifactKind::Diff);
                last.artifact = whole.map(|artifact| artifact.artifact_id.clone());
            }
        }
    }
    let has_diff = description
        .blocks
        .iter()
        .any(|block| block.kind == BlockKind::Diff);
    let kept = observation.artifact_refs.iter();
    let mut kept = kept.filter(|artifact| artifact.kind == ArtifactKind::Diff);
    if let Some(diff) = kept.next().filter(|_| !has_diff) {
        // Too long for the event; a reader that shows it reads the artifact.
        description.blocks.push(Block {
            kind: BlockKind::Diff,
            title: "diff".into(),
            text: String::new(),
            artifact: Some(diff.artifact_id.clone()),
            is_cut: false,
            is_printed: false,
        });
    }
    if let Some(plan) = &observation.facts.data.plan {
        let lines: Vec<String> = plan.iter().map(PlanItem::line).collect();
        description = description.block(BlockKind::Output, "plan", lines.join("\n"));
    }
    if description.blocks.is_empty() {
        let preview = observation.preview.clone().unwrap_or_default();
        description = description.block(BlockKind::Output, "output", preview);
    }
    description
}

/// The part of an input that says what it is about.
fn in_one_line(input: &Value) -> String {
    let field = |name: &str| input.get(name).and_then(Value::as_str);
    if let Some(command) = field("command") {
        return command.to_owned();
    }
    if let Some(words) = input.get("command").and_then(Value::as_array) {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        return words.join(" ");
    }
    if let Some(plan) = field("plan") {
        return plan.to_owned();
    }
    if let Some(items) = input.get("items").and_then(Value::as_array) {
        return counted(items.len() as u64, "item");
    }
    let named = field("path").or(field("file_path")).or(field("url"));
    match (field("pattern"), named) {
        (Some(pattern), Some(path)) => format!("{pattern} in {path}"),
        (Some(pattern), None) => pattern.to_owned(),
        (None, Some(path)) => path.to_owned(),
        (None, None) => input.to_string(),
    }
}
