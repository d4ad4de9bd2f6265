//! A rule that somebody writes in a question: whether it can be saved, and what it would let through.

use std::collections::HashSet;
use std::path::Path;

use agent_protocol::payload::permission::{
    DecisionSource, Effect, Layer, PermissionEvaluated, RuleOrigin,
};
use agent_protocol::reply::{RuleExample, RulePreview};
use serde_json::Value;

use super::evaluate::{Gate, GateRequest, Setting, analysed};
use super::facts::{Facts, Remembered};
use super::rule::{Bases, Pattern, Rule};
use super::suggest::too_broad;
use crate::{ToolDefinition, Tools};

/// Examples of a kind that are shown.
const SHOWN: usize = 3;

/// A question, and what rules for its call are tried on.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    pub gate: &'a Gate,
    pub request: &'a GateRequest<'a>,
    pub setting: &'a Setting<'a>,
    pub facts: &'a dyn Facts,
}

/// The rule that `text` is, if it may be saved with a yes to this call: it is about this tool, says what it allows, and
/// answers the question. Otherwise the reason, as a sentence.
///
/// # Errors
/// When it may not.
pub fn accept(trial: Trial<'_>, text: &str) -> Result<Rule, String> {
    let rule = trial.parse(text)?;
    if let Some(why) = trial.too_broad(&rule) {
        return Err(format!("Too broad: {why}."));
    }
    // A rule may name a protected path, or open a place outside; not in passing, with an answer.
    if trial.judged(trial.gate, trial.request).decision_source != DecisionSource::Default {
        return Err("This asks every time; no rule saved here changes that.".to_owned());
    }
    let evaluated = trial.judged(&trial.with(&rule), trial.request);
    match (evaluated.decision, evaluated.decision_source) {
        (Effect::Allow, _) => Ok(rule),
        (_, DecisionSource::Default) => Err("It does not match this call.".to_owned()),
        (Effect::Deny, _) => Err(format!("It would still be denied: {}.", evaluated.reason)),
        (Effect::Ask, _) => Err(format!("It would still ask: {}.", evaluated.reason)),
    }
}

impl Trial<'_> {
    /// What the rule `text` would do to calls like those of the session, the newest last, and to others that it nearly
    /// matches.
    #[must_use]
    pub fn preview(&self, text: &str, session: &[Value]) -> RulePreview {
        let remembered = Remembered::new(self.facts);
        let trial = Trial {
            facts: &remembered,
            ..*self
        };
        match accept(trial, text) {
            Err(problem) => RulePreview {
                rule: text.trim().to_owned(),
                problem: Some(problem),
                ..RulePreview::default()
            },
            Ok(rule) => RulePreview {
                rule: rule.text.clone(),
                problem: None,
                wider: trial.wider(&rule),
                examples: trial.examples(&rule, session),
            },
        }
    }

    fn tool(&self) -> &ToolDefinition {
        self.request.tool
    }

    fn parse(&self, text: &str) -> Result<Rule, String> {
        let origin = RuleOrigin {
            layer: Layer::Session,
            ..RuleOrigin::default()
        };
        let bases = Bases {
            project: self.setting.workspace.root.clone(),
            home: self.setting.home.to_owned(),
        };
        let tools: Tools = [self.tool().clone()].into_iter().collect();
        let rule = Rule::parse(Effect::Allow, text, origin, &bases, &tools);
        let rule = rule.map_err(|problem| format!("Not a rule: {}.", problem.message))?;
        if rule.tool.as_str() != self.tool().name {
            let name = &self.tool().name;
            return Err(format!("It has to be about this tool: `{name}(…)`."));
        }
        Ok(rule)
    }

    fn too_broad(&self, rule: &Rule) -> Option<String> {
        if rule.is_about_every_call() {
            return Some(format!("it would allow every call of `{}`", rule.text));
        }
        if let Some(pattern) = rule.words() {
            return too_broad(pattern.words(), pattern.is_open());
        }
        if let Pattern::Host(host) = &rule.pattern {
            return (host.is_wide()).then(|| "it would allow nearly every host".to_owned());
        }
        let source = rule.path()?.source();
        let root = &self.setting.workspace.root;
        let leaves = source.starts_with('~')
            || source.starts_with('/') && !Path::new(source).starts_with(root);
        leaves.then(|| "it reaches out of the project".to_owned())
    }

    fn with(&self, rule: &Rule) -> Gate {
        let mut gate = self.gate.clone();
        gate.rules.push(rule.clone());
        gate
    }

    fn judged(&self, gate: &Gate, request: &GateRequest<'_>) -> PermissionEvaluated {
        let analysis = analysed(request, self.setting, self.facts);
        gate.decide(request, self.setting, self.facts, analysis.as_deref())
            .evaluated
    }

    /// The rule with its last word, or the last directory, left open.
    fn wider(&self, rule: &Rule) -> Option<String> {
        let name = &rule.tool.as_str();
        let mut patterns: Vec<String> = Vec::new();
        if let Some(pattern) = rule.words() {
            let words = pattern.words();
            let most = words.len() - usize::from(pattern.is_open());
            for count in (1..=most).rev() {
                let kept = &words[..count];
                // A star behind an option would be its value.
                if !kept.last().is_some_and(|word| word.starts_with('-')) {
                    patterns.push(format!("{} *", kept.join(" ")));
                }
            }
        } else {
            let source = rule.path()?.source();
            let root = &self.setting.workspace.root;
            let relative = Path::new(source)
                .strip_prefix(root)
                .unwrap_or(Path::new(source));
            let relative = relative.strip_prefix("**").unwrap_or(relative);
            let below = relative.parent().filter(|_| relative.ends_with("**"));
            for directory in below.unwrap_or(relative).ancestors().skip(1) {
                let directory = directory.to_str()?;
                patterns.push(match directory {
                    "" => "**".to_owned(),
                    directory => format!("{directory}/**"),
                });
            }
        }
        let rules = patterns.iter().map(|pattern| format!("{name}({pattern})"));
        let mut wider = rules.filter(|text| *text != rule.text && accept(*self, text).is_ok());
        wider.next()
    }

    fn examples(&self, rule: &Rule, session: &[Value]) -> Vec<RuleExample> {
        let tool = self.tool();
        let subject = |input: &Value| Some(input.get(tool.main_field()?)?.as_str()?.to_owned());
        let with_rule = self.with(rule);
        let made_up = self
            .near(rule)
            .into_iter()
            .map(|text| (tool.input_about(&text), false));
        let made = session.iter().rev().map(|input| (input.clone(), true));
        // The call of the question is known.
        let mut seen: HashSet<String> = subject(self.request.input).into_iter().collect();
        let (mut allowed, mut held) = (Vec::new(), Vec::new());
        for (input, from_session) in made.chain(made_up) {
            let full = |list: &Vec<RuleExample>| list.len() == SHOWN;
            if full(&allowed) && full(&held) {
                break;
            }
            let Some(call) = subject(&input).filter(|call| seen.insert(call.clone())) else {
                continue;
            };
            let Some(semantics) = tool.semantics(&input, self.setting.workspace) else {
                continue;
            };
            let request = GateRequest {
                tool,
                input: &input,
                semantics: &semantics,
            };
            let decided = self.judged(&with_rule, &request);
            let is_allowed = decided.decision == Effect::Allow;
            // Of what the session did and this rule is not about, there is no end.
            let first = rule.words().and_then(|pattern| pattern.words().first());
            let is_other = first.is_some_and(|first| call.split(' ').next() != Some(first));
            if from_session && !is_allowed && is_other {
                continue;
            }
            let list = if is_allowed { &mut allowed } else { &mut held };
            // What runs without the rule says nothing about it.
            if full(list) || self.judged(self.gate, &request).decision == Effect::Allow {
                continue;
            }
            let held_by = (decided.decision_source == DecisionSource::Rule && !is_allowed)
                .then(|| {
                    decided
                        .matched
                        .iter()
                        .find(|rule| rule.effect == decided.decision)
                })
                .flatten()
                .map(|rule| format!("{} {}", rule.effect, rule.rule));
            list.push(RuleExample {
                call,
                decision: decided.decision,
                from_session,
                held_by,
            });
        }
        allowed.extend(held);
        allowed
    }

    /// Calls that the rule just matches, or just does not.
    fn near(&self, rule: &Rule) -> Vec<String> {
        let mut near = Vec::new();
        // What other rules hold back.
        let others = self.gate.rules.iter();
        let others =
            others.filter(|other| other.effect != Effect::Allow && other.names(self.tool()));
        if let Some(pattern) = rule.words() {
            for other in others.filter_map(Rule::words) {
                let words: Vec<_> = other
                    .words()
                    .iter()
                    .map(|word| word.replace('*', "x"))
                    .collect();
                near.push(words.join(" "));
            }
            let words: Vec<_> = pattern
                .words()
                .iter()
                .map(|word| word.replace('*', "x"))
                .collect();
            let fixed = words.join(" ");
            near.push(format!("{fixed} --verbose"));
            near.push(format!("{fixed} && ./other.sh"));
            if let Some((_, before)) = words.split_last().filter(|(_, before)| !before.is_empty()) {
                near.push(format!("{} other", before.join(" ")));
            }
            near.push(format!("{fixed} > out.txt"));
        } else if let Some(path) =
            (self.request.semantics.resources.first()).filter(|_| rule.path().is_some())
        {
            let given = Path::new(&path.given);
            let ending = given.extension().and_then(|ending| ending.to_str());
            let other = match ending {
                Some(ending) => format!("other.{ending}"),
                None => "other".to_owned(),
            };
            near.extend(given.with_file_name(&other).to_str().map(str::to_owned));
            near.extend([other, ".env".to_owned(), ".git/config".to_owned()]);
        }
        near
    }
}
