//! Who allowed what, and why.

use agent_protocol::Payload;
use agent_protocol::payload::permission::{
    ActionDecision, Effect, HookDecision, MatchedRule, RuleOrigin,
};
use agent_text::counted;

use super::{BlockKind, Facts, Kind, Level, Told, Tone, words};

pub(super) fn tell(payload: &Payload) -> Option<Told> {
    Some(match payload {
        Payload::PermissionEvaluated(evaluated) => {
            let (label, tone) = match evaluated.decision {
                Effect::Allow => ("allowed", Tone::Good),
                Effect::Ask => ("must ask", Tone::Warn),
                Effect::Deny => ("denied", Tone::Bad),
            };
            let rules: Vec<String> = evaluated.matched.iter().map(rule).collect();
            let facts = Facts::default()
                .add("decided by", words(evaluated.decision_source.as_str()))
                .add("mode", evaluated.mode.as_str())
                .add("class", evaluated.action_class.as_str())
                .list("rules", &rules)
                .list("risk", &evaluated.risk)
                .add(
                    "not proven to only read",
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
            Told::new(
                Kind::Decision,
                Level::Detail,
                label,
                format!(
                    "by {}: {}",
                    words(evaluated.decision_source.as_str()),
                    evaluated.reason
                ),
            )
            .tone(tone)
            .facts(facts)
        }
        Payload::PermissionRequested(requested) => Told::new(
            Kind::Decision,
            Level::Record,
            "asking",
            format!("as {}", requested.action_id),
        ),
        Payload::PermissionResolved(resolved) => {
            let (label, tone) = match resolved.decision {
                Effect::Allow => ("allowed", Tone::Good),
                Effect::Ask => ("must ask", Tone::Warn),
                Effect::Deny => ("denied", Tone::Bad),
            };
            let mut says = format!(
                "by {}, {}",
                words(resolved.decision_source.as_str()),
                scope(resolved.scope.as_str())
            );
            if let Some(saved) = &resolved.rule_saved {
                says.push_str(&format!("; rule saved: {saved}"));
            }
            if let Some(note) = &resolved.note {
                says.push_str(&format!("; note: {note}"));
            }
            Told::new(Kind::Decision, Level::Detail, label, says).tone(tone)
        }
        Payload::ActionRequired(required) => {
            let facts = Facts::default().list("risk", &required.risk_facts).add(
                "suggested rule",
                required.suggested_rule.as_deref().unwrap_or_default(),
            );
            Told::new(
                Kind::Decision,
                Level::Headline,
                "question",
                required.title.clone(),
            )
            .tone(Tone::Warn)
            .block(BlockKind::Prose, "asked", required.prompt.clone())
            .facts(facts)
        }
        Payload::ActionResolved(resolved) => {
            let tone = match resolved.decision {
                ActionDecision::AllowOnce
                | ActionDecision::AllowSession
                | ActionDecision::Answer => Tone::Good,
                ActionDecision::Deny | ActionDecision::Abort => Tone::Bad,
            };
            let mut says = format!(
                "{} by {}, {}",
                words(resolved.decision.as_str()),
                resolved.decided_by,
                scope(resolved.scope.as_str())
            );
            if let Some(answer) = &resolved.payload {
                if let Some(note) = &answer.note {
                    says.push_str(&format!("; note: {note}"));
                }
                if answer.edited_input.is_some() {
                    says.push_str("; the input was edited");
                }
                if let Some(saved) = &answer.saved_rule {
                    says.push_str(&format!("; rule to save: {saved}"));
                }
            }
            Told::new(Kind::Decision, Level::Headline, "answer", says).tone(tone)
        }
        Payload::PolicyChanged(changed) => {
            let changes = &changed.changed;
            let mut says: Vec<String> = Vec::new();
            says.extend(changes.mode.map(|mode| format!("mode {mode}")));
            let rules = changes.rules_added.iter();
            says.extend(rules.map(|rule| format!("rule added: {rule}")));
            let rules = changes.rules_removed.iter();
            says.extend(rules.map(|rule| format!("rule removed: {rule}")));
            says.extend(
                changes
                    .trusted_file
                    .iter()
                    .map(|file| format!("{file} is trusted")),
            );
            says.extend(changes.ignored_grants.map(|count| {
                format!(
                    "{} of an untrusted project not in force",
                    counted(count, "grant")
                )
            }));
            says.push(format!("by {}: {}", changed.by, changed.reason));
            Told::new(Kind::Decision, Level::Detail, "policy", says.join("; "))
        }
        Payload::HookStarted(hook) => Told::new(
            Kind::Decision,
            Level::Record,
            "hook",
            format!("{} runs {}", hook.hook_point, hook.handler_ref),
        ),
        Payload::HookCompleted(hook) => {
            let tone = match hook.decision {
                HookDecision::Block | HookDecision::Deny => Tone::Bad,
                HookDecision::Ask => Tone::Warn,
                HookDecision::Continue | HookDecision::Allow => Tone::Plain,
            };
            Told::new(
                Kind::Decision,
                Level::Detail,
                "hook",
                format!("said {} after {} ms", hook.decision, hook.duration_ms),
            )
            .tone(tone)
        }
        Payload::HookFailed(hook) => Told::new(
            Kind::Decision,
            Level::Detail,
            "hook",
            format!("failed {}: {}", hook.fail_mode, hook.error),
        )
        .tone(Tone::Bad),
        _ => return None,
    })
}

fn scope(word: &str) -> &str {
    match word {
        "once" => "for this call",
        "session" => "for this session",
        "project_local" => "for this project",
        "user" => "for this user",
        other => other,
    }
}

/// A rule with the place it stands.
pub(in super::super) fn rule(matched: &MatchedRule) -> String {
    format!(
        "{} {} from {}",
        matched.effect,
        matched.rule,
        origin(&matched.origin)
    )
}

fn origin(origin: &RuleOrigin) -> String {
    match (&origin.file, origin.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        (None, _) => words(origin.layer.as_str()),
    }
}
