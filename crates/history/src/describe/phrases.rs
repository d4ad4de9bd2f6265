//! Parts of sentences that several readers need, each said in one way.

use agent_protocol::ActionHappened;
use agent_protocol::payload::conversation::Claim;
use agent_protocol::payload::permission::{
    ActionDecision, ActionResolved, DecidedBy, GrantScope, MatchedRule, PolicyChanged, RuleOrigin,
    SESSION_EDITS,
};
use agent_protocol::payload::process::{ProcessCompleted, pipeline_failed};
use agent_protocol::payload::{SideEffect, Usage};
use agent_text::counted;
use serde_json::Value;

/// A word of the log as people write it.
#[must_use]
pub fn spaced(word: &str) -> String {
    word.replace('_', " ")
}

/// A rule with the place it stands: `allow bash(ls *) (user, ~/.agent/config.toml:4)`.
#[must_use]
pub fn rule(matched: &MatchedRule) -> String {
    let place = origin(&matched.origin);
    format!("{} {} ({place})", matched.effect, matched.rule)
}

/// The place of a rule: its layer, and its file and line where it has them.
#[must_use]
pub fn origin(origin: &RuleOrigin) -> String {
    let layer = spaced(origin.layer.as_str());
    match (&origin.file, origin.line) {
        (Some(file), Some(line)) => format!("{layer}, {file}:{line}"),
        (Some(file), None) => format!("{layer}, {file}"),
        (None, _) => layer,
    }
}

/// The reach of a permission.
#[must_use]
pub const fn scope(scope: GrantScope) -> &'static str {
    match scope {
        GrantScope::Once => "for this call",
        GrantScope::Session => "for this session",
        GrantScope::ProjectLocal => "for this project",
        GrantScope::User => "for this user",
    }
}

/// An answer to a question: `allowed by you once`.
#[must_use]
pub fn answer(resolved: &ActionResolved) -> String {
    let who = match resolved.decided_by {
        DecidedBy::User => "you",
        DecidedBy::Policy => "the policy for unanswered questions",
        DecidedBy::Timeout => "the time limit",
        DecidedBy::Cancel => "the interrupt",
    };
    let given = resolved.payload.as_ref();
    let edited = given.and_then(|given| given.edited_input.as_ref());
    let mut text = match resolved.decision {
        ActionDecision::AllowOnce | ActionDecision::AllowSession => {
            let until = match resolved.scope {
                GrantScope::Once => "once",
                GrantScope::Session => "for this session",
                GrantScope::ProjectLocal => "by a new rule of this project",
                GrantScope::User => "by a new rule of yours",
            };
            let how = match edited {
                Some(input) if input.get("network") == Some(&Value::Bool(true)) => ", with network",
                Some(_) => ", as edited by you",
                None => "",
            };
            format!("allowed by {who} {until}{how}")
        }
        ActionDecision::Answer => format!("answered by {who}"),
        ActionDecision::Deny => format!("denied by {who}"),
        ActionDecision::Abort => format!("denied by {who}, and the turn stopped"),
    };
    if let Some(note) = given.and_then(|given| given.note.as_deref()) {
        text.push_str(&format!(": {note}"));
    }
    text
}

/// A change of mode or rules, one sentence each.
#[must_use]
pub fn policy(policy: &PolicyChanged) -> Vec<String> {
    let changed = &policy.changed;
    let until = match policy.scope {
        GrantScope::Once => "once",
        GrantScope::Session => "for this session",
        GrantScope::ProjectLocal => "for you in this project",
        GrantScope::User => "for you everywhere",
    };
    let mut says: Vec<String> = Vec::new();
    says.extend(changed.mode.map(|mode| format!("mode is now {mode}")));
    for rule in &changed.rules_added {
        let edits = SESSION_EDITS.iter().position(|edits| rule.ends_with(edits));
        match (policy.scope, edits) {
            (GrantScope::Session, Some(0)) => {
                says.push("edits in this project no longer ask, for this session".into());
            }
            // The same answer, said already.
            (GrantScope::Session, Some(_)) => {}
            _ => says.push(format!("rule added {until}: {rule}")),
        }
    }
    let directories = changed.directories_added.iter().flatten();
    says.extend(directories.map(|path| format!("{path} can be read, {until}")));
    let removed = changed.rules_removed.iter();
    says.extend(removed.map(|rule| format!("rule removed {until}: {rule}")));
    says.extend(
        changed
            .trusted_file
            .iter()
            .map(|file| format!("trusted: {file}")),
    );
    says.extend(changed.ignored_grants.map(|count| {
        let grants = counted(count, "grant");
        format!("{grants} of an untrusted project not in force")
    }));
    says
}

/// The exit of a command: `exit 1`, `ended by signal 9`.
#[must_use]
pub fn exit(completed: &ProcessCompleted) -> String {
    match (completed.exit_code, completed.signal) {
        (Some(0), _) => match completed.pipe_status.as_deref() {
            Some(statuses) if pipeline_failed(statuses) => {
                let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
                format!("exit 0, the pipeline's commands {}", statuses.join(", "))
            }
            _ => "exit 0".to_owned(),
        },
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended; exit code unknown".to_owned(),
    }
}

/// The effect of a failed call on the world.
#[must_use]
pub const fn happened(happened: ActionHappened) -> &'static str {
    match happened {
        ActionHappened::No => "nothing was done",
        ActionHappened::Yes => "it had been done",
        ActionHappened::Unknown => "whether anything was done is unknown",
    }
}

/// Changed files: `src/a.rs (modified), b (created)`.
#[must_use]
pub fn changes(effects: &[SideEffect]) -> String {
    let each = effects
        .iter()
        .map(|effect| format!("{} ({})", effect.path, spaced(effect.kind.as_str())));
    each.collect::<Vec<_>>().join(", ")
}

/// Tokens as far as they were counted.
#[must_use]
pub fn usage(usage: &Usage) -> String {
    let part = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
    let parts = [
        part(usage.input, "in"),
        part(usage.output, "out"),
        part(usage.cached_input, "cached"),
        part(usage.reasoning, "reasoning"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// An amount with all the digits that a log has use for.
#[must_use]
pub fn money(amount: f64) -> String {
    format!("{amount:.4} USD")
}

/// A span of time as people say it.
#[must_use]
pub fn span(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..60_000 => format!("{:.1} s", millis as f64 / 1000.0),
        60_000..3_600_000 => format!("{} min {} s", millis / 60_000, millis / 1000 % 60),
        _ => format!("{} h {} min", millis / 3_600_000, millis / 60_000 % 60),
    }
}

/// A claim with what the log shows of it.
#[must_use]
pub fn claim(claim: &Claim) -> String {
    let said = agent_text::brief(&claim.text, 200);
    judged(claim, &format!("\"{said}\""))
}

/// The same without the words of the model.
#[must_use]
pub fn claim_about(claim: &Claim) -> String {
    judged(claim, claim.about.as_deref().unwrap_or("something"))
}

fn judged(claim: &Claim, said: &str) -> String {
    let verdict = spaced(claim.verdict.as_str());
    let evidence: Vec<&str> = claim.evidence_ids.iter().map(|id| id.as_str()).collect();
    let by = match evidence.as_slice() {
        [] => String::new(),
        ids => format!(" ({})", ids.join(", ")),
    };
    format!("{verdict}: {said}{by}")
}
