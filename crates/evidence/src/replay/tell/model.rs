//! What a model was asked, what it answered, what it was shown and what it cost.

use agent_protocol::Payload;
use agent_protocol::payload::model::{ModelChoice, RoutingCandidate, RoutingDecided};

use super::conversation::{millis, money, usage};
use super::{BlockKind, Facts, Kind, Level, Told, Tone, words};

pub(super) fn tell(payload: &Payload) -> Option<Told> {
    Some(match payload {
        Payload::ModelRequested(requested) => {
            let attempt = if requested.attempt > 1 {
                format!(", attempt {}", requested.attempt)
            } else {
                String::new()
            };
            let facts = Facts::default()
                .add("wire format", &requested.strategy)
                .add("sha256 of the input", &requested.input_hash)
                .add(
                    "input",
                    requested
                        .input_ref
                        .as_ref()
                        .map_or("not kept", |artifact| artifact.as_str()),
                )
                .add(
                    "catalogue",
                    requested.tool_catalog_hash.as_deref().unwrap_or_default(),
                );
            Told::new(
                Kind::Model,
                Level::Record,
                "asked",
                format!(
                    "{}/{}, request {}{attempt}, {} bytes",
                    requested.provider,
                    requested.model,
                    requested.request_no,
                    requested.input_bytes
                ),
            )
            .facts(facts)
        }
        Payload::ModelDelta(delta) => {
            Told::new(Kind::Model, Level::Record, "streams", delta.text.clone())
        }
        Payload::ModelCompleted(completed) => {
            let text = match (&completed.text, &completed.text_ref) {
                (Some(text), _) if !text.trim().is_empty() => Some(text.clone()),
                (_, Some(artifact)) => Some(format!("(text in artifact {artifact})")),
                _ => None,
            };
            let facts = Facts::default()
                .add("stopped because", words(&completed.stop_reason))
                .add("tokens", usage(&completed.usage))
                .add("took", millis(completed.latency_ms))
                .add(
                    "provider's id",
                    completed.request_id.as_deref().unwrap_or_default(),
                );
            match text {
                Some(text) => Told::new(Kind::Conversation, Level::Headline, "model", text),
                None => Told::new(
                    Kind::Model,
                    Level::Record,
                    "model",
                    format!("(no text; {})", words(&completed.stop_reason)),
                ),
            }
            .facts(facts)
        }
        Payload::ModelFailed(failed) => {
            let mut says = format!("{}: {}", words(failed.kind.as_str()), failed.message);
            if failed.retryable {
                says.push_str("; can be tried again");
            }
            let took = failed.usage.as_ref().map(usage).unwrap_or_default();
            Told::new(Kind::Problem, Level::Headline, "model", says)
                .tone(Tone::Bad)
                .facts(Facts::default().add("tokens", took))
                .block(
                    BlockKind::Prose,
                    "had said",
                    failed.partial_text.clone().unwrap_or_default(),
                )
        }
        Payload::ReasoningDelta(delta) => Told::new(
            Kind::Model,
            Level::Record,
            "reasons",
            delta.text.clone().unwrap_or_default(),
        ),
        Payload::ReasoningSummary(summary) => {
            let says = match (&summary.text, &summary.text_ref) {
                (Some(text), _) => text.clone(),
                (None, Some(artifact)) => format!("(in artifact {artifact})"),
                (None, None) => "(not recorded)".into(),
            };
            Told::new(Kind::Model, Level::Record, "reasoning", says)
        }
        Payload::ToolCatalogResolved(catalog) => {
            let names: Vec<String> = catalog
                .tools
                .iter()
                .map(|tool| format!("{} ({})", tool.tool_name, tool.policy))
                .collect();
            Told::new(
                Kind::Model,
                Level::Record,
                "tools",
                format!("{} in mode {}", names.len(), catalog.mode),
            )
            .facts(
                Facts::default()
                    .list("tools", &names)
                    .add("catalogue", &catalog.catalog_hash),
            )
        }
        Payload::ContextResolved(context) => {
            let included: Vec<String> = context
                .included
                .iter()
                .map(|item| format!("{} ({})", item.source, item.mode))
                .collect();
            let omitted: Vec<String> = context
                .omitted
                .iter()
                .map(|item| format!("{} ({})", item.source, item.reason))
                .collect();
            let missing: Vec<String> = context
                .missing
                .iter()
                .map(|item| format!("{} ({})", item.fact, item.status))
                .collect();
            Told::new(
                Kind::Model,
                Level::Record,
                "context",
                format!(
                    "{} parts, about {} tokens",
                    context.included.len(),
                    context.budget.estimated_tokens
                ),
            )
            .facts(
                Facts::default()
                    .list("included", &included)
                    .list("left out", &omitted)
                    .list("missing", &missing)
                    .add("sandbox", &context.policy_facts.sandbox),
            )
        }
        Payload::ContextCompactionStarted(compaction) => Told::new(
            Kind::Model,
            Level::Detail,
            "compaction",
            format!(
                "begins at {} tokens ({})",
                compaction.tokens_before, compaction.trigger
            ),
        ),
        Payload::ContextCompactionCompleted(compaction) => Told::new(
            Kind::Model,
            Level::Headline,
            "compaction",
            format!(
                "{} tokens became {}; events up to {} are summarised",
                compaction.tokens_before, compaction.tokens_after, compaction.up_to_sequence
            ),
        )
        .facts(Facts::default().add(
            "no summary",
            compaction.error.as_deref().unwrap_or_default(),
        ))
        .block(
            BlockKind::Prose,
            "summary",
            compaction.summary_preview.clone(),
        ),
        Payload::ContextCompactionFailed(compaction) => Told::new(
            Kind::Problem,
            Level::Detail,
            "compaction",
            format!("failed: {}", compaction.error),
        )
        .tone(Tone::Bad),
        Payload::RoutingCandidatesResolved(resolved) => Told::new(
            Kind::Model,
            Level::Record,
            "routing",
            candidates(&resolved.candidates),
        ),
        Payload::RoutingSingleCandidate(single) => Told::new(
            Kind::Model,
            Level::Record,
            "routing",
            format!(
                "{}/{} is the only model that can serve",
                single.selected.provider, single.selected.model
            ),
        ),
        Payload::RoutingDecided(decided) => {
            Told::new(Kind::Model, Level::Record, "routing", decision(decided))
        }
        Payload::RoutingFallbackApplied(fallback) => Told::new(
            Kind::Model,
            Level::Detail,
            "routing",
            format!(
                "{}/{} took over: {}",
                fallback.to.provider, fallback.to.model, fallback.reason
            ),
        )
        .tone(Tone::Warn),
        Payload::RoutingNotPossible(routing) => Told::new(
            Kind::Problem,
            Level::Headline,
            "routing",
            format!("no model can serve: {}", routing.missing.join(", ")),
        )
        .tone(Tone::Bad),
        Payload::CostRecorded(cost) => Told::new(
            Kind::Model,
            Level::Record,
            "cost",
            cost.amount
                .map_or_else(|| "unknown, which is not free".into(), money),
        ),
        Payload::CostEstimated(cost) => Told::new(
            Kind::Model,
            Level::Record,
            "cost",
            cost.amount.map_or_else(
                || "cannot be estimated".into(),
                |amount| format!("at most {}", money(amount)),
            ),
        ),
        Payload::RateLimitHit(hit) => Told::new(
            Kind::Problem,
            Level::Detail,
            "limit",
            format!("{} says to slow down", hit.provider),
        )
        .tone(Tone::Warn),
        Payload::QuotaBlocked(blocked) => Told::new(
            Kind::Problem,
            Level::Headline,
            "limit",
            format!("{} reached: {}", blocked.limit, blocked.required_action),
        )
        .tone(Tone::Bad),
        Payload::QuotaLow(low) => Told::new(
            Kind::Model,
            Level::Detail,
            "limit",
            format!("{} left of {}", low.remaining, low.limit),
        )
        .tone(Tone::Warn),
        _ => return None,
    })
}

/// The models that were thought of, and why some cannot serve.
fn candidates(candidates: &[RoutingCandidate]) -> String {
    let name = |candidate: &RoutingCandidate| format!("{}/{}", candidate.provider, candidate.model);
    let (excluded, usable): (Vec<_>, Vec<_>) = candidates
        .iter()
        .partition(|candidate| candidate.excluded_reason.is_some());
    let usable: Vec<String> = usable.into_iter().map(name).collect();
    let mut said = match usable.len() {
        0 => "no model can serve".to_owned(),
        1 => format!("1 model can serve: {}", usable[0]),
        count => format!("{count} models can serve: {}", usable.join(", ")),
    };
    for candidate in excluded {
        let reason = candidate.excluded_reason.as_deref().unwrap_or_default();
        said.push_str(&format!("; not {}: {reason}", name(candidate)));
    }
    said
}

/// Why the model of a turn is the one it is.
fn decision(decided: &RoutingDecided) -> String {
    let name = |choice: &ModelChoice| format!("{}/{}", choice.provider, choice.model);
    let mut said = format!("{} is asked", name(&decided.selected));
    said.push_str(&match (decided.reason.as_str(), decided.source.as_str()) {
        ("requested", source) => format!(", as {} says", source_words(source)),
        ("fallback", _) if decided.requested != decided.selected => {
            format!(" in place of {}", name(&decided.requested))
        }
        (reason, _) => format!(": {reason}"),
    });
    let next: Vec<String> = decided.fallback_chain.iter().map(name).collect();
    if !next.is_empty() {
        said.push_str(&format!("; {} would be next", next.join(", then ")));
    }
    if decided.limit_state.as_deref() == Some("limited") {
        said.push_str("; its provider limits requests");
    }
    said
}

fn source_words(source: &str) -> &str {
    match source {
        "command_line" => "the command line",
        "environment" => "the environment",
        "config" => "the configuration",
        "local_server" => "the server that was found here",
        "default" => "the default",
        other => other,
    }
}
