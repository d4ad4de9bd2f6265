//! The model: requests, answers, its context, routing, limits and cost.

use agent_protocol::payload::model::*;
use agent_protocol::payload::tool::ToolCatalogResolved;

use super::phrases::{money, spaced, span, usage};
use super::{BlockKind, Description, Facts, Kind, Level, Tone};

pub(super) fn model_requested(requested: &ModelRequested) -> Description {
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
    Description::new(
        Kind::Model,
        Level::Record,
        "asked",
        format!(
            "{}/{}, request {}{attempt}, {} bytes",
            requested.provider, requested.model, requested.request_no, requested.input_bytes
        ),
    )
    .facts(facts)
}

pub(super) fn model_delta(delta: &ModelDelta) -> Description {
    Description::new(Kind::Model, Level::Record, "streams", delta.text.clone())
}

pub(super) fn model_completed(completed: &ModelCompleted) -> Description {
    let text = match (&completed.text, &completed.text_ref) {
        (Some(text), _) if !text.trim().is_empty() => Some(text.clone()),
        (_, Some(artifact)) => Some(format!("(text in artifact {artifact})")),
        _ => None,
    };
    let facts = Facts::default()
        .add("stopped because", spaced(&completed.stop_reason))
        .add("tokens", usage(&completed.usage))
        .add("took", span(completed.latency_ms))
        .add(
            "provider's id",
            completed.request_id.as_deref().unwrap_or_default(),
        );
    match text {
        Some(text) => Description {
            text_ref: completed
                .text_ref
                .clone()
                .filter(|_| completed.text.is_none()),
            ..Description::new(Kind::Conversation, Level::Headline, "model", text)
        },
        None => Description::new(
            Kind::Model,
            Level::Record,
            "model",
            format!("(no text; {})", spaced(&completed.stop_reason)),
        ),
    }
    .facts(facts)
}

pub(super) fn model_failed(failed: &ModelFailed) -> Description {
    let kind = spaced(failed.kind.as_str());
    let mut facts = Facts::default();
    let text = match failed.retry_in_words() {
        Some(words) => {
            facts = facts.add("failure", format!("{kind}: {}", failed.message));
            words
        }
        None => format!("the model request failed ({kind}): {}", failed.message),
    };
    let (tone, again) = match failed.retryable {
        true => (Tone::Warn, "yes"),
        false => (Tone::Bad, "no"),
    };
    let used = failed.usage.as_ref().map(usage).unwrap_or_default();
    let facts = facts
        .add("can be tried again", again)
        .add("tokens", used)
        .maybe("hint", failed.hint.as_deref());
    let said = failed.partial_text.clone().unwrap_or_default();
    Description::new(Kind::Problem, Level::Headline, "model", text)
        .tone(tone)
        .facts(facts)
        .block(BlockKind::Prose, "had said", said)
}

pub(super) fn reasoning_delta(delta: &ReasoningDelta) -> Description {
    Description::new(
        Kind::Model,
        Level::Record,
        "reasons",
        delta.text.clone().unwrap_or_default(),
    )
}

pub(super) fn reasoning_summary(summary: &ReasoningSummary) -> Description {
    let text = match (&summary.text, &summary.text_ref) {
        (Some(text), _) => text.clone(),
        (None, Some(artifact)) => format!("(in artifact {artifact})"),
        (None, None) => "(not recorded)".into(),
    };
    Description::new(Kind::Model, Level::Record, "reasoning", text)
}

pub(super) fn tool_catalog_resolved(catalog: &ToolCatalogResolved) -> Description {
    let names: Vec<String> = catalog
        .tools
        .iter()
        .map(|tool| format!("{} ({})", tool.tool_name, tool.policy))
        .collect();
    Description::new(
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

pub(super) fn context_resolved(context: &ContextResolved) -> Description {
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
    Description::new(
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

pub(super) fn context_compaction_started(compaction: &ContextCompactionStarted) -> Description {
    Description::new(
        Kind::Model,
        Level::Detail,
        "compaction",
        format!(
            "begins at {} tokens ({})",
            compaction.tokens_before, compaction.trigger
        ),
    )
}

pub(super) fn context_compaction_completed(compaction: &ContextCompactionCompleted) -> Description {
    let mut text = format!(
        "{} tokens became {}; events up to {} are summarised",
        compaction.tokens_before, compaction.tokens_after, compaction.up_to_sequence
    );
    let mut tone = Tone::Plain;
    if let Some(error) = &compaction.error {
        text.push_str(&format!("; there is no summary: {error}"));
        tone = Tone::Warn;
    }
    Description::new(Kind::Model, Level::Headline, "compaction", text)
        .tone(tone)
        .block(
            BlockKind::Prose,
            "summary",
            compaction.summary_preview.clone(),
        )
}

pub(super) fn context_compaction_failed(compaction: &ContextCompactionFailed) -> Description {
    let text = format!("failed, the history is as before: {}", compaction.error);
    Description::new(Kind::Problem, Level::Detail, "compaction", text).tone(Tone::Warn)
}

pub(super) fn routing_candidates_resolved(resolved: &RoutingCandidatesResolved) -> Description {
    Description::new(
        Kind::Model,
        Level::Record,
        "routing",
        candidates(&resolved.candidates),
    )
}

pub(super) fn routing_single_candidate(single: &RoutingSingleCandidate) -> Description {
    Description::new(
        Kind::Model,
        Level::Record,
        "routing",
        format!(
            "{}/{} is the only model that can serve",
            single.selected.provider, single.selected.model
        ),
    )
}

pub(super) fn routing_decided(decided: &RoutingDecided) -> Description {
    Description::new(Kind::Model, Level::Record, "routing", decision(decided))
}

pub(super) fn routing_fallback_applied(fallback: &RoutingFallbackApplied) -> Description {
    let text = format!(
        "{}/{} took over from {}/{}: {}",
        fallback.to.provider,
        fallback.to.model,
        fallback.from.provider,
        fallback.from.model,
        fallback.reason
    );
    Description::new(Kind::Model, Level::Detail, "routing", text).tone(Tone::Warn)
}

pub(super) fn routing_not_possible(routing: &RoutingNotPossible) -> Description {
    let missing = routing.missing.join(", ");
    let mut text = format!("no model can serve: {missing}");
    if !routing.required_action.is_empty() {
        text.push_str(&format!("; {}", routing.required_action));
    }
    Description::new(Kind::Problem, Level::Headline, "routing", text).tone(Tone::Bad)
}

pub(super) fn cost_recorded(cost: &CostRecorded) -> Description {
    Description::new(
        Kind::Model,
        Level::Record,
        "cost",
        cost.amount
            .map_or_else(|| "unknown, which is not free".into(), money),
    )
}

pub(super) fn cost_estimated(cost: &CostEstimated) -> Description {
    Description::new(
        Kind::Model,
        Level::Record,
        "cost",
        cost.amount.map_or_else(
            || "cannot be estimated".into(),
            |amount| format!("at most {}", money(amount)),
        ),
    )
}

pub(super) fn rate_limit_hit(hit: &RateLimitHit) -> Description {
    Description::new(
        Kind::Problem,
        Level::Detail,
        "limit",
        format!("{} says to slow down", hit.provider),
    )
    .tone(Tone::Warn)
}

pub(super) fn quota_blocked(blocked: &QuotaBlocked) -> Description {
    let text = format!(
        "stopped at the {} limit: {}",
        blocked.limit, blocked.required_action
    );
    Description::new(Kind::Problem, Level::Headline, "limit", text).tone(Tone::Bad)
}

pub(super) fn quota_low(low: &QuotaLow) -> Description {
    let text = format!("the {} limit is near: {} left", low.limit, low.remaining);
    Description::new(Kind::Model, Level::Detail, "limit", text).tone(Tone::Warn)
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

pub(super) fn limit_changed(changed: &LimitChanged) -> Description {
    let amount =
        |amount: Option<f64>| amount.map_or("none".to_owned(), |amount| amount.to_string());
    let text = format!(
        "{} from {} to {}, by {}",
        spaced(changed.limit.as_str()),
        amount(changed.old),
        amount(changed.new),
        changed.source
    );
    Description::new(Kind::Model, Level::Detail, "limit", text)
}
