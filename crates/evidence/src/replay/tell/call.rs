//! One call: asked for, checked, started, confined, ended, shown.

use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::process::{SandboxStatus, pipeline_failed};
use agent_protocol::payload::tool::{ContentFormat, ToolObservation};
use agent_protocol::{ActionHappened, Payload, Phase};
use agent_text::counted;
use serde_json::Value;

use super::conversation::{changes, millis};
use super::{Block, BlockKind, Facts, Kind, Level, Told, Tone, words};

pub(super) fn tell(payload: &Payload) -> Option<Told> {
    Some(match payload {
        Payload::ToolIntent(intent) => {
            let says = match (intent.input(), intent.input_ref()) {
                (Some(input), _) => in_one_line(input),
                (None, Some(artifact)) => format!("(input in artifact {artifact})"),
                (None, None) => "(no input recorded)".into(),
            };
            let json = intent
                .raw_input
                .as_ref()
                .and_then(|input| serde_json::to_string_pretty(input).ok())
                .unwrap_or_default();
            let facts = Facts::default()
                .add(
                    "asked for as",
                    intent.requested_name.as_deref().unwrap_or_default(),
                )
                .add("reason given", intent.reason.as_deref().unwrap_or_default());
            Told::new(Kind::Call, Level::Headline, intent.tool_name.clone(), says)
                .block(BlockKind::Json, "input", json)
                .facts(facts)
        }
        Payload::ToolValidation(validation) if validation.ok => Told::new(
            Kind::Call,
            Level::Record,
            "valid",
            format!("checked as far as {}", validation.layer),
        ),
        Payload::ToolValidation(validation) => {
            let errors = validation.errors.iter().map(|error| {
                if error.path.is_empty() {
                    error.message.clone()
                } else {
                    format!("{}: {}", error.path, error.message)
                }
            });
            let mut says = errors.collect::<Vec<_>>().join("; ");
            if let Some(code) = validation.code {
                says = if says.is_empty() {
                    code.to_string()
                } else {
                    format!("{says} ({code})")
                };
            }
            Told::new(Kind::Call, Level::Detail, "not valid", says).tone(Tone::Bad)
        }
        Payload::ToolArgs(args) => {
            let mut told = Told::new(
                Kind::Call,
                Level::Record,
                "arguments",
                if args.changed_by_hook == Some(true) {
                    "as a hook changed them"
                } else {
                    "as they will be used"
                },
            );
            told = told.facts(
                Facts::default()
                    .list("paths", &args.normalised_paths)
                    .add("sha256", &args.args_sha256),
            );
            told
        }
        Payload::ToolStarted(started) => {
            let facts = Facts::default()
                .add("executor", &started.executor)
                .add("in", &started.cwd)
                .add(
                    "time limit",
                    started.timeout_ms.map(millis).unwrap_or_default(),
                )
                .add("runs beside", started.plan.concurrency.as_str())
                .add(
                    "waited",
                    if started.plan.waited_ms > 0 {
                        millis(started.plan.waited_ms)
                    } else {
                        String::new()
                    },
                )
                .add("allowed by", &started.permission_ref);
            Told::new(
                Kind::Call,
                Level::Record,
                "started",
                started.executor.clone(),
            )
            .facts(facts)
        }
        Payload::ToolProgress(progress) => Told::new(
            Kind::Call,
            Level::Record,
            "progress",
            format!("{} for {}", progress.status, millis(progress.elapsed_ms)),
        ),
        Payload::ToolResult(result) => {
            let effects = changes(&result.side_effects);
            let outcome = if result.ok { "ok" } else { "failed" };
            let mut says = format!("{outcome} after {}", millis(result.metrics.duration_ms));
            if !result.ok {
                says.push_str(&format!(" ({})", result.code));
            }
            if !effects.is_empty() {
                says.push_str(&format!("; changed {effects}"));
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
            Told::new(kind, level, "result", says).tone(if result.ok {
                Tone::Plain
            } else {
                Tone::Bad
            })
        }
        Payload::ToolFailed(failed) => {
            let happened = match failed.action_happened {
                ActionHappened::No => "nothing was done",
                ActionHappened::Yes => "it had been done",
                ActionHappened::Unknown => "whether anything was done is unknown",
            };
            let label = match failed.phase {
                Phase::Permission => "refused",
                Phase::Lookup | Phase::Validate => "rejected",
                _ => "failed",
            };
            let effects = changes(&failed.side_effects);
            let mut says = format!("{} ({}); {happened}", failed.message, failed.code);
            if !effects.is_empty() {
                says.push_str(&format!("; changed {effects}"));
            }
            Told::new(Kind::Call, Level::Detail, label, says).tone(Tone::Bad)
        }
        Payload::ToolObservation(observation) => observed(observation),
        _ => return tell_command(payload),
    })
}

fn tell_command(payload: &Payload) -> Option<Told> {
    Some(match payload {
        Payload::SandboxApplied(applied) => {
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
            let mut says = format!(
                "{}: {}, network {}",
                applied.status, applied.mechanism, applied.network
            );
            if !missing.is_empty() {
                says.push_str(&format!("; not in force: {}", missing.join(", ")));
            }
            if let Some(reason) = &applied.reason {
                says.push_str(&format!("; {reason}"));
            }
            let facts = Facts::default()
                .add("profile", &applied.profile_id)
                .add("in", &applied.cwd)
                .list("may write", &applied.write_roots)
                .list("may read besides", &applied.read_roots)
                .list("hidden", &applied.hidden)
                .list("protected", &applied.protected)
                .list("variables", &applied.env_keys);
            Told::new(Kind::Command, Level::Detail, "sandbox", says)
                .tone(tone)
                .facts(facts)
        }
        Payload::SandboxViolation(violation) => {
            let mut says = format!("{} refused", words(violation.kind.as_str()));
            if let Some(target) = &violation.target {
                says.push_str(&format!(": {target}"));
            }
            if violation.count > 1 {
                says.push_str(&format!(" ({} times)", violation.count));
            }
            let facts = Facts::default()
                .add("noticed by", words(violation.detection.as_str()))
                .add("call", violation.call.as_deref().unwrap_or_default())
                .add(
                    "would be permitted by",
                    violation.permitted_by.as_deref().unwrap_or_default(),
                );
            Told::new(Kind::Command, Level::Headline, "violation", says)
                .tone(Tone::Bad)
                .facts(facts)
        }
        Payload::ProcessStarted(started) => {
            let mut says = started.command_summary.clone();
            if started.background {
                says.push_str(" (in the background)");
            }
            let facts = Facts::default()
                .add("process", started.process_id.as_str())
                .add("in", &started.cwd)
                .add("network", if started.network { "yes" } else { "no" });
            Told::new(Kind::Command, Level::Record, "runs", says).facts(facts)
        }
        Payload::ProcessOutput(output) => Told::new(
            Kind::Command,
            Level::Record,
            "output",
            format!("{} on {}", counted(output.bytes, "byte"), output.stream),
        )
        .block(
            BlockKind::Output,
            "output",
            output.preview.clone().unwrap_or_default(),
        ),
        Payload::ProcessInput(input) => Told::new(
            Kind::Command,
            Level::Detail,
            "input",
            format!("{} given by {}", counted(input.bytes, "byte"), input.by),
        ),
        Payload::ProcessCompleted(completed) => {
            let (ended, tone) = match (completed.exit_code, completed.signal) {
                (Some(0), _) => match completed.pipe_status.as_deref() {
                    Some(statuses) if pipeline_failed(statuses) => {
                        let statuses: Vec<String> =
                            statuses.iter().map(ToString::to_string).collect();
                        let all = statuses.join(", ");
                        (format!("exit 0, the pipeline's commands {all}"), Tone::Warn)
                    }
                    _ => ("exit 0".to_owned(), Tone::Good),
                },
                (Some(code), _) => (format!("exit {code}"), Tone::Bad),
                (None, Some(signal)) => (format!("ended by signal {signal}"), Tone::Bad),
                (None, None) => ("ended; exit code unknown".to_owned(), Tone::Warn),
            };
            let mut says = format!(
                "{ended} after {}; {} stdout, {} stderr",
                millis(completed.duration_ms),
                counted(completed.stdout_bytes, "byte"),
                counted(completed.stderr_bytes, "byte")
            );
            if completed.sandbox.violations > 0 {
                says.push_str(&format!(
                    "; {} noticed",
                    counted(completed.sandbox.violations, "violation")
                ));
            }
            Told::new(Kind::Command, Level::Detail, "exit", says).tone(tone)
        }
        Payload::ProcessFailed(failed) => Told::new(
            Kind::Command,
            Level::Detail,
            "not run",
            format!("{} ({})", failed.message, failed.category),
        )
        .tone(Tone::Bad),
        Payload::ProcessTerminated(terminated) => Told::new(
            Kind::Command,
            Level::Detail,
            "ended",
            format!(
                "by {} with signal {}: {}",
                terminated.by, terminated.signal, terminated.reason
            ),
        )
        .tone(Tone::Warn),
        Payload::OutputSpilled(spilled) => Told::new(
            Kind::Call,
            Level::Record,
            "spilled",
            format!("{} went to an artifact", counted(spilled.bytes, "byte")),
        ),
        Payload::OutputTruncated(truncated) => Told::new(
            Kind::Call,
            Level::Record,
            "truncated",
            format!(
                "{} shown, {} omitted",
                counted(truncated.shown_bytes, "byte"),
                counted(truncated.omitted_bytes, "byte")
            ),
        ),
        Payload::OutputRedacted(redacted) => Told::new(
            Kind::Decision,
            Level::Detail,
            "masked",
            format!(
                "{} of {} in {}",
                counted(redacted.count, "value"),
                redacted.rule,
                words(redacted.target.as_str())
            ),
        )
        .tone(Tone::Warn),
        Payload::OutputExpired(expired) => Told::new(
            Kind::Record,
            Level::Detail,
            "removed",
            format!(
                "artifact {} by {}",
                expired.artifact_id, expired.retention_rule
            ),
        ),
        _ => return None,
    })
}

fn observed(observation: &ToolObservation) -> Told {
    let mut says = observation.summary.clone();
    if observation.truncated {
        says.push_str(&format!(
            " [{} omitted]",
            counted(observation.omitted_bytes, "byte")
        ));
    }
    let mut told = Told::new(Kind::Call, Level::Detail, "shown", says).tone(if observation.ok {
        Tone::Plain
    } else {
        Tone::Bad
    });
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
        told = told.block(kind, title, text.clone());
        if let Some(last) = told.blocks.last_mut() {
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
    let has_diff = told
        .blocks
        .iter()
        .any(|block| block.kind == BlockKind::Diff);
    let kept = observation.artifact_refs.iter();
    let mut kept = kept.filter(|artifact| artifact.kind == ArtifactKind::Diff);
    if let Some(diff) = kept.next().filter(|_| !has_diff) {
        // Too long for the event; whoever shows it reads the artifact.
        told.blocks.push(Block {
            kind: BlockKind::Diff,
            title: "diff".into(),
            text: String::new(),
            artifact: Some(diff.artifact_id.clone()),
            is_cut: false,
            is_printed: false,
        });
    }
    if told.blocks.is_empty() {
        let preview = observation.preview.clone().unwrap_or_default();
        told = told.block(BlockKind::Output, "output", preview);
    }
    told
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
    match (field("pattern"), field("path").or(field("file_path"))) {
        (Some(pattern), Some(path)) => format!("{pattern} in {path}"),
        (Some(pattern), None) => pattern.to_owned(),
        (None, Some(path)) => path.to_owned(),
        (None, None) => input.to_string(),
    }
}
