//! Shell scripts at the gate: detection first, then the proof, then the mode.

use std::path::PathBuf;

use agent_protocol::payload::permission::{ActionClass, CommandParse, DecisionSource, Effect};
use agent_protocol::status::Mode;

use super::breakers::{Tripped, tripped};
use super::command_facts::{
    class, found_commands, is_harmless_git, needs_more_than_the_sandbox, parse_fact, shown,
    takes_paths, writes_git, writes_git_config,
};
use super::could_apply::{candidate_of, may_trip};
use super::evaluate::{Judging, SandboxLevel};
use super::findings::Findings;
use super::paths::Known;
use super::rule::{Pattern, Rule};
use super::services::ServiceReads;
use super::words::Match;
use crate::CommandRequest;
use crate::shell::prove::{
    PathUse, Proof, Use, is_table_reader, prove, tolerates_any_argument, touched_paths,
};
use crate::shell::word::{UNKNOWN, Value, Word};
use crate::shell::{Analysis, Candidates, Command, Redirect, RedirectKind};

/// What came out about a script besides the findings.
pub(super) struct CommandJudgement {
    pub(super) action_class: ActionClass,
    pub(super) parse: CommandParse,
    /// Proven to write nothing.
    pub(super) read_only: bool,
    /// Proven to read, and to write no more than what redirects name; no rule had to cover a command.
    pub(super) is_proven: bool,
    /// Changes what git keeps in `.git`.
    pub(super) writes_git: bool,
    /// Needs nobody's word for that, while nothing of the repository runs.
    pub(super) commits: bool,
    /// Reads a service, and nothing else but by proof.
    pub(super) service: Option<ServiceReads>,
    /// Searches, and must not come across secrets.
    pub(super) hides_secrets: bool,
    /// Secrets that it reads by name; without a rule about them it is asked about.
    pub(super) named_secrets: Vec<PathBuf>,
    /// What it reads outside the project because rules open it.
    pub(super) opened: Vec<PathBuf>,
}

/// Words of a script that could not be parsed are tried as commands in windows of this size.
const WINDOW: usize = 12;

impl Judging<'_> {
    pub(super) fn judge_command(
        &self,
        findings: &mut Findings,
        command: &CommandRequest,
        analysis: &Analysis,
    ) -> CommandJudgement {
        // Commands without operands look at the directory they start in.
        self.judge_read(findings, &self.location(&command.cwd), false);
        let candidates = Candidates::of(analysis);
        let mut trips = tripped(analysis, &self.bases, self.facts);
        trips.extend(may_trip(&candidates, &self.bases, self.facts));
        for trip in &trips {
            match trip {
                Tripped::Deny(why) => {
                    findings.add(Effect::Deny, DecisionSource::CircuitBreaker, why.clone())
                }
                Tripped::Ask(why) => {
                    findings.add(Effect::Ask, DecisionSource::CircuitBreaker, why.clone())
                }
                Tripped::Unclear(why) if self.setting.mode == Mode::Full => findings.add(
                    Effect::Deny,
                    DecisionSource::CircuitBreaker,
                    format!("{why}; it might be a whole directory tree"),
                ),
                Tripped::Unclear(why) => {
                    findings.add(Effect::Ask, DecisionSource::CircuitBreaker, why.clone())
                }
            }
        }
        if let Some(why) = &analysis.parse_error {
            findings.add(
                Effect::Ask,
                DecisionSource::CircuitBreaker,
                format!("{why}, so it cannot be checked"),
            );
        }
        self.judge_word_rules(findings, analysis, &candidates);
        for command in found_commands(analysis) {
            self.judge_paths_of(findings, command);
        }
        self.judge_paths_from_input(findings, analysis);
        let proof = self.prove(findings, analysis);
        let read_only = proof
            .as_ref()
            .is_ok_and(|proof| !proof.by_rule && proof.writes.is_empty());
        let writes_git = analysis.commands.iter().any(writes_git);
        let action_class = class(analysis, &trips, read_only);
        let parse = parse_fact(analysis, read_only, proof.as_ref().err());
        let hides_secrets = self.judge_searches(findings, analysis, &proof);
        let is_proven = proof.as_ref().is_ok_and(|proof| !proof.by_rule);
        self.judge_sandbox(findings);
        let service = self.service_reads(analysis);
        let is_granted = service.as_ref().is_some_and(|reads| reads.is_granted);
        self.judge_proof(findings, analysis, &command.cwd, is_proven, is_granted);
        let named_secrets = self.named_secrets(&proof);
        let opened = self.opened(&proof);
        let by_rule = proof.as_ref().is_ok_and(|proof| proof.by_rule);
        let mut rules_used = false;
        let objection = (writes_git && !by_rule).then(|| {
            self.objection_to_git(analysis, &mut |command| {
                let covered = self.covering(command).is_some();
                rules_used |= covered;
                covered
            })
        });
        let commits = objection == Some(None) && !rules_used;
        let objection = objection.flatten();
        if let Some(reads) = &service {
            self.judge_service(findings, analysis, reads);
        }
        if !is_granted {
            self.judge_command_mode(findings, analysis, &proof, read_only, objection);
        }
        CommandJudgement {
            action_class,
            parse,
            read_only,
            is_proven,
            writes_git,
            commits,
            service,
            hides_secrets,
            named_secrets,
            opened,
        }
    }

    /// Deny and ask rules, on everything that was found.
    fn judge_word_rules(
        &self,
        findings: &mut Findings,
        analysis: &Analysis,
        candidates: &Candidates,
    ) {
        let rules: Vec<&Rule> = self
            .gate
            .rules
            .iter()
            .filter(|rule| rule.names(self.request.tool) && rule.effect != Effect::Allow)
            .collect();
        for rule in &rules {
            let Some(pattern) = rule.words() else {
                continue;
            };
            let mut best = (Match::No, String::new());
            for command in found_commands(analysis) {
                let found = if command.appended_arguments {
                    // What arrives on standard input may be any words.
                    let mut words = command.words.clone();
                    words.push(Word::unknown());
                    pattern.finds(&words)
                } else {
                    pattern.finds(&command.words)
                };
                if found > best.0 {
                    best = (found, shown(&command.words));
                }
                // Half a parse must not lose the rest: without one, every word may begin a command.
                if analysis.parse_error.is_some() {
                    for start in 1..command.words.len() {
                        let end = command.words.len().min(start + WINDOW);
                        let window = command.words.get(start..end).unwrap_or_default();
                        if pattern.finds(window) == Match::Yes {
                            best = (Match::Yes, shown(window));
                        }
                    }
                }
            }
            if best.0 == Match::No
                && let Some(on) = candidate_of(pattern, candidates)
            {
                best = (Match::Maybe, on);
            }
            let (found, on) = best;
            let verb = if rule.effect == Effect::Deny {
                "denies"
            } else {
                "asks about"
            };
            match found {
                Match::Yes => findings.rule(
                    rule.matched(on.clone()),
                    format!("the rule `{}` {verb} `{on}`", rule.text),
                ),
                // Nobody is asked in mode full, so what cannot be excluded does not run.
                Match::Maybe if rule.effect == Effect::Deny && self.setting.mode == Mode::Full => {
                    findings.add(
                        Effect::Deny,
                        DecisionSource::Rule,
                        format!(
                            "`{on}` might match the deny rule `{}`, which cannot be ruled out",
                            rule.text
                        ),
                    )
                }
                Match::Maybe => findings.add(
                    Effect::Ask,
                    DecisionSource::Rule,
                    format!(
                        "`{on}` might match the rule `{}`, which {verb} it",
                        rule.text
                    ),
                ),
                Match::No => {}
            }
        }
        let Some(why) = candidates.indirect else {
            return;
        };
        let denial = rules.iter().find(|rule| rule.effect == Effect::Deny);
        match denial {
            // Nobody is asked in mode full, so what cannot be excluded does not run.
            Some(rule) if self.setting.mode == Mode::Full => findings.add(
                Effect::Deny,
                DecisionSource::Rule,
                format!("{why}; it might run what the rule `{}` denies", rule.text),
            ),
            _ if rules.is_empty() => {}
            _ => findings.add(
                Effect::Ask,
                DecisionSource::Rule,
                format!("{why}, and some rules restrict what may run"),
            ),
        }
    }

    fn judge_paths_of(&self, findings: &mut Findings, command: &Command) {
        let (paths, exact) = touched_paths(command);
        let may_write = !exact && !is_harmless_git(command);
        let takes_paths = takes_paths(command);
        for path in &paths {
            let is_bare = !takes_paths && !path.text.contains(['/', '.']);
            let known = match exact {
                true => Known::Exactly,
                false if is_bare && self.setting.sandbox == SandboxLevel::Full => Known::AsWord,
                false => Known::Perhaps,
            };
            self.judge_touched(findings, path, known);
            if may_write {
                self.judge_protected_mention(findings, path, takes_paths);
            }
        }
        if let Some(what) = writes_git_config(command) {
            findings.add(
                Effect::Ask,
                DecisionSource::ProtectedPath,
                format!("`{what}` changes git's configuration, which can name programs to run"),
            );
        }
        for redirect in &command.redirects {
            self.judge_redirect(findings, redirect);
        }
    }

    /// `find -name '*.pem' | xargs cat`, `ls .git/hooks | xargs rm`: a command gets the names that another
    /// one prints, so what that one names counts for both.
    fn judge_paths_from_input(&self, findings: &mut Findings, analysis: &Analysis) {
        let takers = analysis.commands.iter().filter(|command| {
            command.appended_arguments && !tolerates_any_argument(&command.words)
        });
        let Some(may_write) = takers
            .map(|command| !is_table_reader(command) && !is_harmless_git(command))
            .reduce(|one, other| one || other)
        else {
            return;
        };
        for command in &analysis.commands {
            for word in command.words.iter().skip(1) {
                let is_glob = word.sketch().contains(['*', '?', '[']);
                let path = PathUse {
                    text: word.sketch().to_owned(),
                    is_glob,
                    // A pattern of find reaches into every directory below, like one of git.
                    usage: if is_glob { Use::Revision } else { Use::Content },
                    directories: command.directories.clone(),
                };
                self.judge_touched(findings, &path, Known::Perhaps);
                if may_write {
                    self.judge_protected_mention(findings, &path, true);
                }
            }
        }
    }

    fn judge_redirect(&self, findings: &mut Findings, redirect: &Redirect) {
        if !matches!(redirect.kind, RedirectKind::Read | RedirectKind::Write) {
            return;
        }
        let text = redirect.target.sketch();
        let path = PathUse {
            text: text.to_owned(),
            is_glob: matches!(redirect.target.value, Value::Glob { .. }),
            usage: Use::Content,
            directories: redirect.directories.clone(),
        };
        // What only the running shell knows is asked about by the names that stand in it.
        if text.contains(UNKNOWN) {
            self.judge_touched(findings, &path, Known::Perhaps);
            if redirect.kind == RedirectKind::Write {
                self.judge_protected_mention(findings, &path, true);
            }
            return;
        }
        match self.locations(&path) {
            None => findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!("the directory of `{text}` is not known"),
            ),
            Some(locations) => {
                for location in &locations {
                    if redirect.kind == RedirectKind::Read {
                        self.judge_read(findings, location, true);
                    } else {
                        self.judge_write(findings, location);
                    }
                }
            }
        }
    }

    /// The allow rule that covers a command, whatever else the script does.
    fn covering(&self, command: &Command) -> Option<&Rule> {
        let mut allows = (self.gate.rules.iter())
            .filter(|rule| rule.names(self.request.tool) && rule.effect == Effect::Allow);
        allows.find(|rule| match &rule.pattern {
            // What xargs appends are further words, which only a final star stands for.
            Pattern::Words(pattern) | Pattern::Either(pattern, _) => {
                pattern.covers(&command.words) && (pattern.is_open() || !command.appended_arguments)
            }
            Pattern::Any => command
                .words
                .iter()
                .all(|word| !matches!(word.value, Value::Dynamic { .. })),
            Pattern::Path(_) | Pattern::Host(_) => false,
        })
    }

    /// The proof, with what allow rules cover.
    fn prove(&self, findings: &mut Findings, analysis: &Analysis) -> Result<Proof, String> {
        let mut used = Vec::new();
        let proof = prove(analysis, &mut |command| {
            let covering = self.covering(command);
            used.extend(covering.map(|rule| rule.matched(shown(&command.words))));
            covering.is_some()
        });
        for matched in used {
            findings.remember(matched);
        }
        proof
    }

    fn judge_sandbox(&self, findings: &mut Findings) {
        match self.setting.sandbox {
            SandboxLevel::Full => {}
            SandboxLevel::Partial => findings.add(
                Effect::Ask,
                DecisionSource::Sandbox,
                "commands are only partly confined here, so each one needs approval",
            ),
            // Nothing to ask about: the tool could not run it after a yes either.
            SandboxLevel::Unavailable => findings.add(
                Effect::Deny,
                DecisionSource::Sandbox,
                "this system has no working sandbox, so commands do not run; see \
                 `agent sandbox check`",
            ),
            SandboxLevel::Off if self.setting.mode == Mode::Full => {}
            SandboxLevel::Off => findings.add(
                Effect::Ask,
                DecisionSource::Sandbox,
                "the sandbox is off, so every command needs approval",
            ),
        }
    }

    fn judge_command_mode(
        &self,
        findings: &mut Findings,
        analysis: &Analysis,
        proof: &Result<Proof, String>,
        read_only: bool,
        objection_to_git: Option<String>,
    ) {
        let mode = self.setting.mode;
        if mode.only_reads() {
            match proof {
                _ if read_only => findings.add(
                    Effect::Allow,
                    DecisionSource::Mode,
                    "every command in it is known to be read-only",
                ),
                Ok(_) => findings.add(
                    Effect::Deny,
                    DecisionSource::Mode,
                    format!(
                        "mode {mode} runs only commands known to be read-only, whatever rules allow"
                    ),
                ),
                Err(why) => findings.add(
                    Effect::Deny,
                    DecisionSource::Mode,
                    format!("mode {mode} runs only commands known to be read-only: {why}"),
                ),
            }
            return;
        }
        if mode == Mode::Auto && !read_only {
            if let Some(why) = needs_more_than_the_sandbox(analysis) {
                findings.add(Effect::Ask, DecisionSource::Sandbox, why);
            }
            if let Some(why) = objection_to_git {
                findings.add(
                    Effect::Ask,
                    DecisionSource::Sandbox,
                    format!("it writes to the repository, and {why}"),
                );
            }
        }
        match proof {
            Ok(proof) if proof.writes.is_empty() => {
                if proof.by_rule {
                    findings.add(
                        Effect::Allow,
                        DecisionSource::Rule,
                        "rules allow every command in it that does more than read",
                    );
                } else {
                    findings.add(
                        Effect::Allow,
                        DecisionSource::Mode,
                        "every command in it is known to be read-only",
                    );
                }
            }
            _ if matches!(mode, Mode::Auto | Mode::Full) => findings.add(
                Effect::Allow,
                DecisionSource::Mode,
                format!("mode {mode} runs commands inside the sandbox"),
            ),
            Ok(proof) => {
                for path in &proof.writes {
                    if mode == Mode::AcceptEdits || self.write_is_allowed_by_rule(path) {
                        findings.add(
                            Effect::Allow,
                            DecisionSource::Mode,
                            format!("it writes `{}`, inside the project", path.text),
                        );
                    } else {
                        findings.add(
                            Effect::Ask,
                            DecisionSource::Default,
                            format!("a redirect writes `{}`", path.text),
                        );
                    }
                }
            }
            Err(why) => findings.add(
                Effect::Ask,
                DecisionSource::Default,
                format!("no rule allows it and it is not known to be read-only: {why}"),
            ),
        }
    }

    fn write_is_allowed_by_rule(&self, path: &PathUse) -> bool {
        let locations = self.locations(path).unwrap_or_default();
        !locations.is_empty()
            && locations.iter().all(|location| {
                let mut own = Findings::default();
                self.judge_write(&mut own, location).allowed.is_some()
            })
    }
}
