//! Decisions: rules, questions, answers, hooks.

use agent_protocol::payload::permission::*;

use super::phrases::{answer, policy, rule, scope, spaced, span};
use super::{BlockKind, Description, Facts, Kind, Level, Tone};

pub(super) fn permission_evaluated(evaluated: &PermissionEvaluated) -> Description {
    let (label, tone) = match evaluated.decision {
        Effect::Allow => ("allowed", Tone::Good),
        Effect::Ask => ("must ask", Tone::Warn),
        Effect::Deny => ("denied", Tone::Bad),
    };
    let rules = match evaluated.matched.as_slice() {
        [] => vec!["none matches".to_owned()],
        matched => matched.iter().map(rule).collect(),
    };
    let facts = Facts::default()
        .add("mode", evaluated.mode.as_str())
        .add("class", evaluated.action_class.as_str())
        .list("rules", &rules)
        .list("risk", &evaluated.risk)
        .add(
            "not provably read-only",
            evaluated
                .parse
                .as_ref()
                .and_then(|parse| parse.why_not_proven.as_deref())
                .unwrap_or_default(),
        )
        .add(
            "suggested rule",
            evaluated.suggested_rule.as_deref().unwrap_or_default(),
        );
    Description::new(
        Kind::Decision,
        Level::Detail,
        label,
        format!(
            "by {}: {}",
            spaced(evaluated.decision_source.as_str()),
            evaluated.reason
        ),
    )
    .tone(tone)
    .facts(facts)
}

pub(super) fn permission_requested(requested: &PermissionRequested) -> Description {
    Description::new(
        Kind::Decision,
        Level::Record,
        "asking",
        format!("as {}", requested.action_id),
    )
}

pub(super) fn permission_resolved(resolved: &PermissionResolved) -> Description {
    let (label, tone) = match resolved.decision {
        Effect::Allow => ("allowed", Tone::Good),
        Effect::Ask => ("must ask", Tone::Warn),
        Effect::Deny => ("denied", Tone::Bad),
    };
    let mut text = format!(
        "by {}, {}",
        spaced(resolved.decision_source.as_str()),
        scope(resolved.scope)
    );
    if let Some(saved) = &resolved.rule_saved {
        text.push_str(&format!("; rule saved: {saved}"));
    }
    if let Some(note) = &resolved.note {
        text.push_str(&format!("; note: {note}"));
    }
    Description::new(Kind::Decision, Level::Detail, label, text).tone(tone)
}

pub(super) fn action_required(required: &ActionRequired) -> Description {
    let facts = Facts::default().list("risk", &required.risk_facts).add(
        "suggested rule",
        required.suggested_rule.as_deref().unwrap_or_default(),
    );
    Description::new(
        Kind::Decision,
        Level::Headline,
        "question",
        required.title.clone(),
    )
    .tone(Tone::Warn)
    .block(BlockKind::Prose, "asked", required.prompt.clone())
    .facts(facts)
}

pub(super) fn action_resolved(resolved: &ActionResolved) -> Description {
    let tone = match resolved.decision {
        ActionDecision::AllowOnce | ActionDecision::AllowSession | ActionDecision::Answer => {
            Tone::Good
        }
        ActionDecision::Deny | ActionDecision::Abort => Tone::Bad,
    };
    let given = resolved.payload.as_ref();
    let saved = given.and_then(|given| given.saved_rule.as_deref());
    let facts = Facts::default()
        .add("after", span(resolved.latency_ms))
        .maybe("rule to save", saved);
    Description::new(Kind::Decision, Level::Headline, "answer", answer(resolved))
        .tone(tone)
        .facts(facts)
}

pub(super) fn policy_changed(changed: &PolicyChanged) -> Description {
    let mut says = policy(changed);
    says.push(format!("by {}: {}", changed.by, changed.reason));
    Description::new(Kind::Decision, Level::Detail, "policy", says.join("; "))
}

pub(super) fn hook_started(hook: &HookStarted) -> Description {
    Description::new(
        Kind::Decision,
        Level::Record,
        "hook",
        format!("{} runs {}", hook.hook_point, hook.handler_ref),
    )
}

pub(super) fn hook_completed(hook: &HookCompleted) -> Description {
    let tone = match hook.decision {
        HookDecision::Block | HookDecision::Deny => Tone::Bad,
        HookDecision::Ask => Tone::Warn,
        HookDecision::Continue | HookDecision::Allow => Tone::Plain,
    };
    Description::new(
        Kind::Decision,
        Level::Detail,
        "hook",
        format!("said {} after {} ms", hook.decision, hook.duration_ms),
    )
    .tone(tone)
}

pub(super) fn hook_failed(hook: &HookFailed) -> Description {
    let (tone, then) = match hook.fail_mode {
        FailMode::Open => (Tone::Warn, "the work goes on"),
        FailMode::Closed => (Tone::Bad, "the work stops here"),
    };
    let text = format!("failed: {}; {then}", hook.error);
    Description::new(Kind::Decision, Level::Detail, "hook", text).tone(tone)
}
