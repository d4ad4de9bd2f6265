//! The decision itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_protocol::payload::permission::{
    Access, ActionClass, DecisionSource, Effect, PermissionEvaluated,
};
use agent_protocol::payload::tool::RuntimeOwner;
use agent_protocol::status::Mode;
use serde_json::Value;

use super::command::CommandJudgement;
use super::facts::{Facts, Remembered};
use super::findings::Findings;
use super::grants::{ApprovalKey, SessionGrants};
use super::proof::run_by_proof;
use super::risk;
use super::rule::{Bases, NETWORK, Rule};
use super::services::ServiceReads;
use crate::shell::{Analysis, Start};
use crate::{
    Confinement, GitWrites, PermissionSemantics, Reveals, Subject, ToolDefinition, Workspace,
};

/// How well commands are confined here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxLevel {
    /// No sandbox can be made: commands that rely on one are refused.
    #[default]
    Unavailable,
    /// Some layers are missing: nothing runs without asking.
    Partial,
    /// The user turned it off.
    Off,
    Full,
}

/// What a hook said about the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookVerdict {
    pub hook: String,
    pub effect: Effect,
    pub reason: String,
}

/// One call, by its meaning.
#[derive(Clone, Copy)]
pub struct GateRequest<'a> {
    pub tool: &'a ToolDefinition,
    pub input: &'a Value,
    pub semantics: &'a PermissionSemantics,
}

/// What holds around the call.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub workspace: &'a Workspace,
    pub home: &'a Path,
    pub mode: Mode,
    pub sandbox: SandboxLevel,
    /// The turn the call belongs to; a denial holds to its end.
    pub turn: &'a str,
    pub hooks: &'a [HookVerdict],
    pub timeout_ms: Option<u64>,
    pub output_limit: Option<u64>,
}

/// The gate's answer.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The fact for the log and for `agent permissions explain`.
    pub evaluated: PermissionEvaluated,
    /// The reach the call gets if it starts.
    pub confinement: Confinement,
    /// The reach it gets if somebody allows it, which is wider than that of a proof.
    pub allowed: Confinement,
    /// What a grant for the session would be bound to.
    pub key: ApprovalKey,
}

/// Rules and grants in force. `rules` are already the effective ones (see
/// [`effective_rules`](super::effective_rules)).
#[derive(Debug, Clone, Default)]
pub struct Gate {
    pub rules: Vec<Rule>,
    pub grants: SessionGrants,
    /// Directories outside the project that the user lets commands see; rules let tools read there.
    pub directories: Vec<PathBuf>,
}

/// Everything one evaluation looks at.
pub(super) struct Judging<'a> {
    pub(super) gate: &'a Gate,
    pub(super) request: &'a GateRequest<'a>,
    pub(super) setting: &'a Setting<'a>,
    pub(super) facts: &'a dyn Facts,
    /// What was read in the command, if the call is one.
    pub(super) analysis: Option<&'a Analysis>,
    pub(super) bases: Bases,
}

/// The reading of a command's script: the one it came with, or a new one.
pub(super) fn analysed(
    request: &GateRequest<'_>,
    setting: &Setting<'_>,
    facts: &dyn Facts,
) -> Option<Arc<Analysis>> {
    let command = request.semantics.command.as_ref()?;
    Some(command.reading(&Start {
        directory: command.cwd.clone(),
        home: setting.home.to_owned(),
        is_directory: &|path| facts.is_directory(path),
    }))
}

impl Gate {
    /// Decides one call. It has no effects and always gives an answer.
    pub fn evaluate(
        &self,
        request: &GateRequest<'_>,
        setting: &Setting<'_>,
        facts: &dyn Facts,
    ) -> Judgement {
        let facts = &Remembered::new(facts);
        let analysis = analysed(request, setting, facts);
        let mut judgement = self.decide(request, setting, facts, analysis.as_deref());
        if judgement.evaluated.decision == Effect::Ask {
            judgement.evaluated.suggested_rule =
                self.offered(request, setting, facts, &judgement, analysis.as_deref());
        }
        judgement
    }

    /// True if an allow rule opens this file, free of links, for reading.
    #[must_use]
    pub fn opens_for_reading(&self, path: &Path) -> bool {
        self.rules.iter().any(|rule| rule.opens(path))
    }

    /// Without looking for a rule to suggest.
    pub(super) fn decide(
        &self,
        request: &GateRequest<'_>,
        setting: &Setting<'_>,
        facts: &dyn Facts,
        analysis: Option<&Analysis>,
    ) -> Judgement {
        let judging = Judging {
            gate: self,
            request,
            setting,
            facts,
            analysis,
            bases: Bases {
                project: setting.workspace.root.clone(),
                home: setting.home.to_owned(),
            },
        };
        judging.run()
    }
}

impl Judging<'_> {
    fn run(&self) -> Judgement {
        let mut findings = Findings::default();
        self.judge_tool_rules(&mut findings);
        let command = self
            .request
            .semantics
            .command
            .as_ref()
            .zip(self.analysis)
            .map(|(command, analysis)| self.judge_command(&mut findings, command, analysis));
        self.judge_resources(&mut findings);
        let service = command.as_ref().and_then(|command| command.service.clone());
        let is_granted = service.as_ref().is_some_and(|reads| reads.is_granted);
        self.judge_reach(&mut findings, is_granted);
        self.judge_hooks(&mut findings);
        self.judge_mode(&mut findings, command.as_ref());
        let confinement = self.confinement(command.as_ref(), service.as_ref());
        let key = ApprovalKey::of(
            &self.request.tool.name,
            self.request.input,
            self.request.semantics,
            &confinement.profile,
            self.facts,
            self.analysis,
        );
        self.judge_denials(&mut findings, &key);
        let hook = self
            .setting
            .hooks
            .iter()
            .find(|verdict| verdict.effect == Effect::Allow)
            .map(|verdict| verdict.hook.as_str());
        let mut decided = findings.decide(self.gate.grants.is_granted(&key), hook);
        if decided.source == DecisionSource::SessionGrant {
            decided.reason = format!("{} was allowed for the session", self.what_is_granted());
        }
        let (allowed, mut confinement) = (confinement.clone(), confinement);
        if command.as_ref().is_some_and(|command| {
            decided.effect == Effect::Allow
                && decided.source == DecisionSource::Mode
                && command.is_proven
                && !matches!(self.setting.mode, Mode::Auto | Mode::Full)
        }) {
            if let Some(command) = &command {
                confinement.shown_secrets.clone_from(&command.named_secrets);
                confinement.read_roots.clone_from(&command.opened);
            }
            run_by_proof(&mut confinement);
        }
        let nobody_asked =
            decided.effect == Effect::Allow && decided.source == DecisionSource::Mode;
        let said = is_granted || decided.source == DecisionSource::SessionGrant;
        if decided.effect == Effect::Allow && service.is_some() && !said {
            confinement = self.confinement(command.as_ref(), None);
        }
        if nobody_asked && command.as_ref().is_some_and(|command| command.commits) {
            confinement.profile = confinement.profile.replace("+git", "+commits");
            confinement.git = GitWrites::Commits;
        }
        let action_class = command
            .as_ref()
            .map_or(self.request.semantics.action_class, |command| {
                command.action_class
            });
        let reach = match decided.effect {
            Effect::Allow => &confinement,
            _ => &allowed,
        };
        let risk = risk::facts(self, command.as_ref(), reach);
        let evaluated = PermissionEvaluated {
            decision: decided.effect,
            action_class,
            risk,
            decision_source: decided.source,
            reason: decided.reason,
            rule_refs: findings
                .matched
                .iter()
                .map(
                    |matched| match (&matched.origin.file, matched.origin.line) {
                        (Some(file), Some(line)) => format!("{file}:{line}"),
                        _ => matched.origin.layer.to_string(),
                    },
                )
                .collect(),
            matched: findings.matched,
            parse: command.map(|command| command.parse),
            mode: self.setting.mode,
            suggested_rule: None,
            binding: Some(key.as_str().to_owned()),
            resources: self
                .request
                .semantics
                .resources
                .iter()
                .map(crate::ResourceAccess::to_resource)
                .collect(),
        };
        Judgement {
            evaluated,
            confinement,
            allowed,
            key,
        }
    }

    /// Deny and ask rules about a tool as a whole.
    fn judge_tool_rules(&self, findings: &mut Findings) {
        for rule in &self.gate.rules {
            let applies = rule.is_about_every_call_of(self.request.tool);
            // Path tools have a path to match even without a pattern; they are judged there.
            let has_path = !self.request.semantics.resources.is_empty();
            if applies && !has_path && rule.effect != Effect::Allow {
                findings.rule(
                    rule.matched(&self.request.tool.name),
                    format!("the rule `{}` applies to every call", rule.text),
                );
            }
        }
    }

    fn judge_resources(&self, findings: &mut Findings) {
        let is_modify = self.request.semantics.action_class == ActionClass::Modify;
        for resource in &self.request.semantics.resources {
            if resource.access == Access::Connect {
                self.judge_host(findings, &resource.given);
                continue;
            }
            let named = self.path_given(&resource.given);
            let mut location = self.location(&named);
            if let Some(resolved) = &resource.resolved {
                // What the tool found and what is there now both count; the later look decides.
                location.resolved = self.facts.resolve(resolved);
            }
            let shows_content = self.request.tool.reveals != Reveals::Names;
            match resource.access {
                Access::Read => {
                    let rules = self.judge_read(findings, &location, shows_content);
                    let shown = self.shown(&location);
                    match rules.allowed {
                        Some(rule) => findings.add(
                            Effect::Allow,
                            DecisionSource::Rule,
                            format!("the rule `{rule}` allows reading `{shown}`"),
                        ),
                        None if self.is_inside(&location) => findings.add(
                            Effect::Allow,
                            DecisionSource::Mode,
                            format!("`{shown}` is inside the project and reading it is free"),
                        ),
                        None => findings.add(
                            Effect::Allow,
                            DecisionSource::Mode,
                            format!(
                                "mode {} allows reading outside the project",
                                self.setting.mode
                            ),
                        ),
                    }
                }
                Access::Write => {
                    let rules = self.judge_write(findings, &location);
                    let shown = self.shown(&location);
                    let mode = self.setting.mode;
                    if mode.only_reads() {
                        findings.add(
                            Effect::Deny,
                            DecisionSource::Mode,
                            format!("mode {mode} does not allow changing `{shown}`"),
                        );
                    } else if let Some(rule) = rules.allowed {
                        findings.add(
                            Effect::Allow,
                            DecisionSource::Rule,
                            format!("the rule `{rule}` allows changing `{shown}`"),
                        );
                    } else if matches!(mode, Mode::AcceptEdits | Mode::Auto | Mode::Full) {
                        findings.add(
                            Effect::Allow,
                            DecisionSource::Mode,
                            format!("mode {mode} accepts edits inside the project"),
                        );
                    } else {
                        findings.add(
                            Effect::Ask,
                            DecisionSource::Default,
                            format!("mode {mode} asks before changing `{shown}`"),
                        );
                    }
                }
                Access::Execute | Access::Connect => findings.add(
                    Effect::Ask,
                    DecisionSource::Default,
                    format!("it runs `{}`", resource.given),
                ),
            }
        }
        if is_modify && self.request.semantics.resources.is_empty() {
            findings.add(
                Effect::Ask,
                DecisionSource::Default,
                "it does not say what it changes",
            );
        }
    }

    /// Network and leaving the sandbox.
    fn judge_reach(&self, findings: &mut Findings, is_granted: bool) {
        let semantics = self.request.semantics;
        if semantics.network {
            let mut allowed = self.setting.mode == Mode::Full || is_granted;
            let about_it = |rule: &&Rule| rule.is_about_network();
            for rule in self.gate.rules.iter().filter(about_it) {
                let matched = rule.matched(NETWORK);
                match rule.effect {
                    Effect::Allow => {
                        allowed = true;
                        findings.remember(matched);
                    }
                    _ => findings.rule(
                        matched,
                        format!("the rule `{}` applies to network access", rule.text),
                    ),
                }
            }
            if self.setting.mode.only_reads() {
                findings.add(
                    Effect::Deny,
                    DecisionSource::Mode,
                    format!("mode {} allows no network access", self.setting.mode),
                );
            } else if !allowed {
                findings.add(
                    Effect::Ask,
                    DecisionSource::Sandbox,
                    "it asks for full network access, which the sandbox blocks",
                );
            }
        }
        if semantics.leaves_sandbox {
            findings.add(
                Effect::Ask,
                DecisionSource::CircuitBreaker,
                "it asks to run outside the sandbox, which needs its own approval",
            );
        }
    }

    fn judge_hooks(&self, findings: &mut Findings) {
        for verdict in self.setting.hooks {
            if verdict.effect != Effect::Allow {
                findings.add(
                    verdict.effect,
                    DecisionSource::Hook,
                    format!("the hook `{}` says: {}", verdict.hook, verdict.reason),
                );
            }
        }
    }

    /// Calls without paths and commands: what the mode says about their class.
    fn judge_mode(&self, findings: &mut Findings, command: Option<&CommandJudgement>) {
        if command.is_some() || !self.request.semantics.resources.is_empty() {
            return;
        }
        let allowed_by = self.gate.rules.iter().find(|rule| {
            rule.effect == Effect::Allow && rule.is_about_every_call_of(self.request.tool)
        });
        if self.request.tool.subject == Subject::Plan {
            findings.add(
                Effect::Ask,
                DecisionSource::Mode,
                "only you can approve a plan",
            );
            return;
        }
        let is_ours = self.request.tool.owner == RuntimeOwner::Local;
        match (self.request.semantics.action_class, allowed_by) {
            // What somebody else's code says of itself opens nothing.
            (ActionClass::Observe | ActionClass::Search, _) if is_ours => findings.add(
                Effect::Allow,
                DecisionSource::Mode,
                "it only reads data the session already has",
            ),
            (_, _) if self.setting.mode.only_reads() => findings.add(
                Effect::Deny,
                DecisionSource::Mode,
                format!("mode {} allows no changes", self.setting.mode),
            ),
            (_, Some(rule)) => findings.rule(
                rule.matched(&self.request.tool.name),
                format!("the rule `{}` allows it", rule.text),
            ),
            // The sandbox that makes mode auto safe does not hold somebody else's code.
            (_, None)
                if self.setting.mode == Mode::Full
                    || is_ours && self.setting.mode == Mode::Auto =>
            {
                findings.add(
                    Effect::Allow,
                    DecisionSource::Mode,
                    format!("mode {} allows it", self.setting.mode),
                )
            }
            (_, None) => findings.add(
                Effect::Ask,
                DecisionSource::Default,
                format!("mode {} asks before running it", self.setting.mode),
            ),
        }
    }

    /// A refusal is not forgotten: to the end of the turn it stands, later it is at least asked again.
    fn judge_denials(&self, findings: &mut Findings, key: &ApprovalKey) {
        let Some(denial) = self.gate.grants.denial(key) else {
            return;
        };
        if denial.turn == self.setting.turn {
            findings.add(
                Effect::Deny,
                DecisionSource::Human,
                format!(
                    "{} was already refused in this turn",
                    self.what_is_granted()
                ),
            );
        } else {
            findings.add(
                Effect::Ask,
                DecisionSource::Human,
                format!(
                    "{} was refused earlier in this session",
                    self.what_is_granted()
                ),
            );
        }
    }

    /// What an answer holds for, in words.
    fn what_is_granted(&self) -> String {
        let host = self.request.semantics.hosts().next();
        host.map_or_else(|| "this exact call".to_owned(), |host| format!("`{host}`"))
    }

    fn names_secret(&self) -> bool {
        self.request.semantics.resources.iter().any(|resource| {
            let named = self.path_given(&resource.given);
            let resolved = resource.resolved.as_deref();
            std::iter::once(named.as_path())
                .chain(resolved)
                .any(|path| self.location(path).is_secret())
        })
    }

    /// The reach of the call; `service` is one that it may read.
    fn confinement(
        &self,
        command: Option<&CommandJudgement>,
        service: Option<&ServiceReads>,
    ) -> Confinement {
        // A plan touches nothing, so that its approval holds whatever mode it leads to.
        let writable = !self.setting.mode.only_reads()
            && self.request.tool.subject != Subject::Plan
            && service.is_none()
            && !command.is_some_and(|command| command.read_only);
        let network = service.is_some() || self.request.semantics.network && command.is_some();
        let mut profile = match (command, self.setting.sandbox) {
            (None, _) => "in-process",
            (Some(_), SandboxLevel::Full) if writable => "workspace",
            (Some(_), SandboxLevel::Full) => "read-only",
            (Some(_), SandboxLevel::Partial) => "partial",
            (Some(_), SandboxLevel::Off) => "off",
            (Some(_), SandboxLevel::Unavailable) => "unavailable",
        }
        .to_owned();
        let git = command.is_some_and(|command| command.writes_git);
        for (named, holds) in [
            ("+network", network),
            ("+git", git),
            ("+unconfined", self.request.semantics.leaves_sandbox),
        ] {
            if holds {
                profile.push_str(named);
            }
        }
        if let Some(reads) = service {
            profile.push('+');
            profile.push_str(reads.service);
        }
        let globs = |is_about: fn(&Rule) -> bool| {
            self.gate
                .rules
                .iter()
                .filter(|rule| rule.effect == Effect::Deny && is_about(rule))
                .filter_map(|rule| Some(rule.path()?.source().to_owned()))
                .collect::<Vec<_>>()
        };
        // A search that names a secret was asked about; any other does not come across one.
        let hide_secrets = match command {
            Some(_) if service.is_some() => true,
            Some(command) => command.hides_secrets,
            None => self.request.tool.reveals == Reveals::Matches && !self.names_secret(),
        };
        let mut deny_write = globs(Rule::writes);
        if command.is_some() && !git {
            deny_write.push(".git/**".to_owned());
        } else if git {
            deny_write.extend([".git/hooks/**".to_owned(), ".git/config".to_owned()]);
        }
        Confinement {
            profile,
            git: match git {
                true => GitWrites::Everything,
                false => GitWrites::Nothing,
            },
            project_writable: writable,
            network,
            reaches_private: self.reaches_private(),
            unconfined: self.request.semantics.leaves_sandbox
                || self.setting.sandbox == SandboxLevel::Off,
            deny_read: globs(Rule::reads),
            by_proof: service.is_some(),
            service: service.map(|reads| reads.service.to_owned()),
            hide_secrets,
            shown_secrets: Vec::new(),
            deny_write,
            write_roots: self.setting.workspace.extra_roots.clone(),
            read_roots: self.gate.directories.clone(),
        }
    }
}
