//! What speaks for and against a call, and how that becomes one decision.

use agent_protocol::payload::permission::{DecisionSource, Effect, MatchedRule};

use crate::shell::word::UNKNOWN;

/// One thing that was found.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) effect: Effect,
    pub(super) source: DecisionSource,
    pub(super) reason: String,
    /// Whether a person who allowed exactly this call before has answered it for the session.
    pub(super) can_be_settled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) list: Vec<Finding>,
    pub(super) matched: Vec<MatchedRule>,
}

impl Findings {
    pub(super) fn add(
        &mut self,
        effect: Effect,
        source: DecisionSource,
        reason: impl Into<String>,
    ) {
        self.list.push(Finding {
            effect,
            source,
            reason: readable(reason.into()),
            can_be_settled: effect == Effect::Ask && source != DecisionSource::CircuitBreaker,
        });
    }

    pub(super) fn rule(&mut self, matched: MatchedRule, reason: impl Into<String>) {
        let source = if matched.origin.layer == agent_protocol::payload::permission::Layer::Managed
        {
            DecisionSource::HostPolicy
        } else {
            DecisionSource::Rule
        };
        self.add(matched.effect, source, reason);
        self.remember(matched);
    }

    /// Notes a rule that matched without deciding by itself.
    pub(super) fn remember(&mut self, mut matched: MatchedRule) {
        matched.on = matched.on.map(readable);
        if !self.matched.contains(&matched) {
            self.matched.push(matched);
        }
    }

    pub(super) fn has(&self, effect: Effect) -> bool {
        self.list.iter().any(|finding| finding.effect == effect)
    }

    /// Deny beats ask beats allow; nothing at all asks.
    pub(super) fn decide(&self, granted: bool, hook_allows: Option<&str>) -> Finding {
        let first = |effect: Effect| self.list.iter().find(|finding| finding.effect == effect);
        if let Some(deny) = first(Effect::Deny) {
            return deny.clone();
        }
        let open: Vec<&Finding> = self
            .list
            .iter()
            .filter(|finding| finding.effect == Effect::Ask)
            .filter(|finding| !(granted && finding.can_be_settled))
            .collect();
        let strongest = open
            .iter()
            .find(|finding| finding.source != DecisionSource::Default)
            .or(open.first());
        match (strongest, hook_allows) {
            (Some(ask), Some(hook)) if ask.source == DecisionSource::Default => allow(
                DecisionSource::Hook,
                format!("the hook `{hook}` allows it and nothing else objects"),
            ),
            (Some(ask), _) => (*ask).clone(),
            (None, _) if granted && self.has(Effect::Ask) => allow(
                DecisionSource::SessionGrant,
                "this exact call was allowed for the session",
            ),
            (None, _) => first(Effect::Allow).cloned().unwrap_or_else(|| Finding {
                effect: Effect::Ask,
                source: DecisionSource::Default,
                reason: "no rule allows it".to_owned(),
                can_be_settled: true,
            }),
        }
    }
}

/// What is only known when a command runs stands as `…` in a sentence.
fn readable(text: String) -> String {
    if text.contains(UNKNOWN) {
        text.replace(UNKNOWN, "…")
    } else {
        text
    }
}

fn allow(source: DecisionSource, reason: impl Into<String>) -> Finding {
    Finding {
        effect: Effect::Allow,
        source,
        reason: reason.into(),
        can_be_settled: false,
    }
}
