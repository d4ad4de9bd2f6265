//! Reads of a service by its own program (`gh pr view`): a script of nothing but these and of proven reads may get the
//! network and the program's credentials, where somebody says so. No proof and no mode does.

use agent_protocol::payload::permission::{DecisionSource, Effect, Layer, RuleOrigin};

use super::evaluate::{Gate, GateRequest, Judgement, Judging, SandboxLevel, Setting};
use super::facts::Facts;
use super::findings::Findings;
use super::rule::{Bases, NETWORK, Pattern, Rule};
use super::suggest::suggest;
use super::words::Match;
use crate::Tools;
use crate::shell::prove::prove;
use crate::shell::word::{Value, Word};
use crate::shell::{Analysis, Command, Granted, judge_granted};

/// Programs with credentials of their own whose reads are known; rules about the network may name them.
pub(super) const SERVICES: [&str; 1] = ["gh"];

/// A script that does nothing but read, some of it from a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceReads {
    pub(super) service: &'static str,
    /// A rule gives it the network and the credentials.
    pub(super) is_granted: bool,
}

/// The service that the command reads, if each of its words is there to be seen and none leads to another server.
fn service_read_by(command: &Command) -> Option<&'static str> {
    let known = judge_granted(&command.words, &command.directories)?;
    let program = known.name.split(' ').next().unwrap_or_default();
    let service = SERVICES.into_iter().find(|service| *service == program)?;
    let is_literal = |word: &Word| matches!(word.value, Value::Literal { .. });
    let stays = match known.name.as_str() {
        "gh api" => asks_without_changing(&known),
        name if name.starts_with("gh search ") => true,
        _ => known
            .operands
            .iter()
            .all(|text| names_no_other_server(text)),
    };
    let repositories = known
        .values
        .iter()
        .filter(|(flag, _)| matches!(flag.as_str(), "-R" | "--repo"));
    let stays = stays
        && repositories
            .into_iter()
            .all(|(_, text)| names_no_other_server(text));
    let fits = stays && !command.appended_arguments && command.words.iter().all(is_literal);
    fits.then_some(service)
}

/// `https://github.com/o/r/pull/1` and `o/r` name things of the service; `host/o/r` and other addresses name servers.
fn names_no_other_server(text: &str) -> bool {
    let rest = text.strip_prefix("https://github.com/").unwrap_or(text);
    let is_repository =
        |text: &str| text.matches('/').count() < 2 || text.contains(char::is_whitespace);
    !rest.contains("://") && !rest.contains('@') && (rest.len() < text.len() || is_repository(rest))
}

/// One path of the interface, and no method but the one that reads. A query in GraphQL is sent like a change.
fn asks_without_changing(known: &Granted) -> bool {
    let methods = known
        .values
        .iter()
        .filter(|(flag, _)| matches!(flag.as_str(), "-X" | "--method"));
    let path = |text: &String| !text.contains("://") && !text.contains("graphql");
    known.operands.iter().all(path) && methods.into_iter().all(|(_, method)| method == "GET")
}

impl Judging<'_> {
    /// What the script reads of a service, if it is a script that does no more than that and the sandbox holds it.
    pub(super) fn service_reads(&self, analysis: &Analysis) -> Option<ServiceReads> {
        if self.setting.sandbox != SandboxLevel::Full || self.setting.mode.only_reads() {
            return None;
        }
        let mut found: Vec<(&'static str, &Command)> = Vec::new();
        let commands = analysis.small.as_ref().ok()?;
        let reads = commands
            .iter()
            .filter_map(|command| Some((service_read_by(command)?, command)));
        found.extend(reads);
        let (service, _) = *found.first()?;
        let proof = prove(analysis, &mut |command| {
            service_read_by(command) == Some(service)
        });
        proof.ok().filter(|proof| proof.writes.is_empty())?;
        let is_granted = found.iter().all(|(_, command)| {
            let mut rules = self.network_rules(Effect::Allow);
            rules.any(|rule| {
                rule.words()
                    .is_some_and(|words| words.covers(&command.words))
            })
        });
        Some(ServiceReads {
            service,
            is_granted,
        })
    }

    fn network_rules(&self, effect: Effect) -> impl Iterator<Item = &Rule> {
        let rules = self.gate.rules.iter();
        rules.filter(move |rule| rule.names_network() && rule.effect == effect)
    }

    /// Rules that hold the network back from these programs, or from all.
    pub(super) fn judge_service(
        &self,
        findings: &mut Findings,
        analysis: &Analysis,
        reads: &ServiceReads,
    ) {
        for effect in [Effect::Deny, Effect::Ask] {
            for rule in self.network_rules(effect) {
                let applies = match &rule.pattern {
                    Pattern::Words(pattern) => analysis
                        .known_commands()
                        .iter()
                        .any(|command| pattern.finds(&command.words) != Match::No),
                    _ => reads.is_granted,
                };
                if applies && (reads.is_granted || self.request.semantics.network) {
                    let why = format!("the rule `{}` applies to network access", rule.text);
                    findings.rule(rule.matched(NETWORK), why);
                }
            }
        }
        if !reads.is_granted {
            return;
        }
        let allowing = self
            .network_rules(Effect::Allow)
            .find(|rule| rule.words().is_some());
        if let Some(rule) = allowing {
            findings.remember(rule.matched(reads.service));
            findings.add(
                Effect::Allow,
                DecisionSource::Rule,
                format!(
                    "the rule `{}` gives `{}` the network and its token to read with",
                    rule.text, reads.service
                ),
            );
        }
    }
}

impl Gate {
    /// The rule to offer with a question.
    pub(super) fn offered(
        &self,
        request: &GateRequest<'_>,
        setting: &Setting<'_>,
        facts: &dyn Facts,
        judgement: &Judgement,
        analysis: Option<&Analysis>,
    ) -> Option<String> {
        if judgement.allowed.service.is_some() {
            return self.service_rule(request, setting, facts, analysis);
        }
        let evaluated = &judgement.evaluated;
        let suggestion = suggest(self, request, setting, facts, evaluated, analysis);
        suggestion.map(|suggestion| suggestion.rule)
    }

    /// The rule to offer for a script that reads a service, if it would answer the question.
    fn service_rule(
        &self,
        request: &GateRequest<'_>,
        setting: &Setting<'_>,
        facts: &dyn Facts,
        analysis: Option<&Analysis>,
    ) -> Option<String> {
        let bases = Bases {
            project: setting.workspace.root.clone(),
            home: setting.home.to_owned(),
        };
        let origin = RuleOrigin {
            layer: Layer::Session,
            ..RuleOrigin::default()
        };
        SERVICES.into_iter().find_map(|service| {
            let text = format!("{NETWORK}({service} *)");
            let tools = Tools::default();
            let rule = Rule::parse(Effect::Allow, &text, origin.clone(), &bases, &tools).ok()?;
            let mut with_rule = self.clone();
            with_rule.rules.push(rule);
            let judgement = with_rule.decide(request, setting, facts, analysis);
            (judgement.evaluated.decision == Effect::Allow).then_some(text)
        })
    }
}
