//! What a repository's own configuration may say before its user has trusted it. Which content is
//! trusted is for the binary to know, which has a place of its own for it.

use agent_protocol::payload::permission::{Effect, Layer};

use super::rule::Rule;

/// The rules in force, and those a repository tried to add without being trusted.
#[derive(Debug, Clone, Default)]
pub struct EffectiveRules {
    pub rules: Vec<Rule>,
    /// Allow rules of an untrusted project: shown, never used.
    pub ignored: Vec<Rule>,
}

/// Takes all rules of all layers. Files in the project, the personal one included, can be written by
/// whoever made the repository: until their exact content is trusted they may only tighten.
pub fn effective_rules(rules: Vec<Rule>, trusted: bool) -> EffectiveRules {
    let (ignored, rules) = rules.into_iter().partition(|rule| {
        !trusted
            && rule.effect == Effect::Allow
            && matches!(rule.origin.layer, Layer::Project | Layer::ProjectLocal)
    });
    EffectiveRules { rules, ignored }
}

#[cfg(test)]
mod tests {
    use agent_protocol::payload::permission::RuleOrigin;

    use super::*;
    use crate::gate::Bases;

    #[test]
    fn an_untrusted_project_only_tightens() {
        let bases = Bases {
            project: "/w".into(),
            home: "/home/u".into(),
        };
        let rule = |effect, layer| {
            let origin = RuleOrigin {
                layer,
                ..RuleOrigin::default()
            };
            Rule::parse(effect, "bash(x *)", origin, &bases, &crate::tool::sample()).unwrap()
        };
        let all = || {
            vec![
                rule(Effect::Allow, Layer::Project),
                rule(Effect::Allow, Layer::ProjectLocal),
                rule(Effect::Deny, Layer::Project),
                rule(Effect::Ask, Layer::Project),
                rule(Effect::Allow, Layer::User),
            ]
        };
        let untrusted = effective_rules(all(), false);
        assert_eq!((untrusted.rules.len(), untrusted.ignored.len()), (3, 2));
        let trusted = effective_rules(all(), true);
        assert_eq!((trusted.rules.len(), trusted.ignored.len()), (5, 0));
    }
}
