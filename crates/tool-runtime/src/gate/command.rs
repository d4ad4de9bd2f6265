//! Shell scripts at the gate: detection first, then the proof, then the mode.

use agent_protocol::payload::permission::{
    ActionClass, CommandParse, DecisionSource, Effect, ParsedCommand,
};
use agent_protocol::status::Mode;

use super::breakers::{Tripped, tripped};
use super::evaluate::{Judging, SandboxLevel};
use super::findings::Findings;
use super::rule::{Pattern, Rule};
use super::words::{Match, without_global_options};
use crate::authority::CommandRequest;
use crate::shell::prove::{PathUse, Proof, Use, prove, touched_paths};
use crate::shell::word::{Value, Word};
use crate::shell::{Analysis, Command, Place, RedirectKind, Start, analyse};

/// What came out about a script besides the findings.
pub(super) struct CommandJudgement {
    pub(super) analysis: Analysis,
    pub(super) action_class: ActionClass,
    pub(super) parse: CommandParse,
    /// Proven to write nothing.
    pub(super) read_only: bool,
    /// Changes what git keeps in `.git`.
    pub(super) writes_git: bool,
}

/// Words of a script that could not be parsed are tried as commands in windows of this size.
const WINDOW: usize = 12;

impl Judging<'_> {
    pub(super) fn judge_command(
        &self,
        findings: &mut Findings,
        command: &CommandRequest,
    ) -> CommandJudgement {
        let analysis = analyse(
            &command.text,
            &Start {
                directory: command.cwd.clone(),
                home: self.setting.home.to_owned(),
                is_directory: &|path| self.facts.is_directory(path),
            },
        );
        // Commands without operands look at the directory they start in.
        self.judge_read(findings, &self.location(&command.cwd), false);
        let trips = tripped(&analysis, &self.bases, self.facts);
        for trip in &trips {
            match trip {
                Tripped::Deny(why) => {
                    findings.add(Effect::Deny, DecisionSource::CircuitBreaker, why.clone())
                }
                Tripped::Ask(why) => {
                    findings.add(Effect::Ask, DecisionSource::CircuitBreaker, why.clone())
                }
            }
        }
        if let Some(why) = &analysis.parse_error {
            findings.add(
                Effect::Ask,
                DecisionSource::CircuitBreaker,
                format!("{why}, and what is not understood is not allowed"),
            );
        }
        self.judge_word_rules(findings, &analysis);
        for command in &analysis.commands {
            self.judge_paths_of(findings, command);
        }
        let proof = self.prove(findings, &analysis);
        let read_only = proof
            .as_ref()
            .is_ok_and(|proof| !proof.by_rule && proof.writes.is_empty());
        let writes_git = analysis.commands.iter().any(writes_git);
        let action_class = class(&analysis, &trips, read_only);
        let parse = parse_fact(&analysis, read_only, proof.as_ref().err());
        self.judge_sandbox(findings, &proof);
        self.judge_command_mode(findings, &analysis, &proof, read_only, writes_git);
        CommandJudgement {
            analysis,
            action_class,
            parse,
            read_only,
            writes_git,
        }
    }

    /// Deny and ask rules, on everything that was found.
    fn judge_word_rules(&self, findings: &mut Findings, analysis: &Analysis) {
        let rules: Vec<&Rule> = self
            .gate
            .rules
            .iter()
            .filter(|rule| rule.tool == "bash" && rule.effect != Effect::Allow)
            .collect();
        for rule in &rules {
            let Pattern::Words(pattern) = &rule.pattern else {
                continue;
            };
            let mut best = (Match::No, String::new());
            for command in &analysis.commands {
                let found = pattern.finds(&command.words);
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
                Match::Maybe => findings.add(
                    Effect::Ask,
                    DecisionSource::Rule,
                    format!(
                        "`{on}` may turn out to be what the rule `{}` {verb}",
                        rule.text
                    ),
                ),
                Match::No => {}
            }
        }
        let opaque = analysis.commands.iter().find_map(|command| command.opaque);
        if let Some(why) = opaque
            && !rules.is_empty()
        {
            findings.add(
                Effect::Ask,
                DecisionSource::Rule,
                format!("{why}, and there are rules about what may not run"),
            );
        }
    }

    fn judge_paths_of(&self, findings: &mut Findings, command: &Command) {
        let (paths, exact) = touched_paths(command);
        let may_write = !exact && !is_harmless_git(command);
        for path in &paths {
            self.judge_touched(findings, path, exact);
            if may_write {
                self.judge_protected_mention(findings, path);
            }
        }
        if let Some(what) = writes_git_config(command) {
            findings.add(
                Effect::Ask,
                DecisionSource::ProtectedPath,
                format!("`{what}` changes git's configuration, which names programs to run"),
            );
        }
        for redirect in &command.redirects {
            if !matches!(redirect.kind, RedirectKind::Read | RedirectKind::Write) {
                continue;
            }
            let Value::Literal { text, .. } = &redirect.target.value else {
                continue;
            };
            let path = PathUse {
                text: text.clone(),
                is_glob: false,
                usage: Use::Content,
                directories: redirect.directories.clone(),
            };
            match self.locations(&path) {
                None => findings.add(
                    Effect::Ask,
                    DecisionSource::PathBoundary,
                    format!("it is not known which directory `{text}` is in"),
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
    }

    /// The proof, with what allow rules cover.
    fn prove(&self, findings: &mut Findings, analysis: &Analysis) -> Result<Proof, String> {
        let allows: Vec<&Rule> = self
            .gate
            .rules
            .iter()
            .filter(|rule| rule.tool == "bash" && rule.effect == Effect::Allow)
            .collect();
        let mut used = Vec::new();
        let proof = prove(analysis, &mut |command| {
            let covering = allows.iter().find(|rule| match &rule.pattern {
                Pattern::Words(pattern) => pattern.covers(&command.words),
                Pattern::Any => command
                    .words
                    .iter()
                    .all(|word| !matches!(word.value, Value::Dynamic { .. })),
                Pattern::Path(_) => false,
            });
            used.extend(covering.map(|rule| rule.matched(shown(&command.words))));
            covering.is_some()
        });
        for matched in used {
            findings.remember(matched);
        }
        proof
    }

    fn judge_sandbox(&self, findings: &mut Findings, proof: &Result<Proof, String>) {
        let mode = self.setting.mode;
        match self.setting.sandbox {
            SandboxLevel::Full => {}
            SandboxLevel::Partial => findings.add(
                Effect::Ask,
                DecisionSource::Sandbox,
                "commands are only partly confined here, so nothing runs without asking",
            ),
            SandboxLevel::Unavailable if matches!(mode, Mode::Auto | Mode::ReadOnly) => findings
                .add(
                    Effect::Deny,
                    DecisionSource::Sandbox,
                    format!("mode {mode} relies on the sandbox, and there is none here"),
                ),
            SandboxLevel::Unavailable => findings.add(
                Effect::Ask,
                DecisionSource::Sandbox,
                "there is no sandbox here",
            ),
            SandboxLevel::Off if mode == Mode::Full => {}
            SandboxLevel::Off => {
                let safe = proof
                    .as_ref()
                    .is_ok_and(|proof| !proof.needs_sandbox && !proof.by_rule);
                if !safe {
                    findings.add(
                        Effect::Ask,
                        DecisionSource::Sandbox,
                        "the sandbox is turned off, and this may start other programs",
                    );
                }
            }
        }
    }

    fn judge_command_mode(
        &self,
        findings: &mut Findings,
        analysis: &Analysis,
        proof: &Result<Proof, String>,
        read_only: bool,
        writes_git: bool,
    ) {
        let mode = self.setting.mode;
        if mode == Mode::ReadOnly {
            match proof {
                _ if read_only => findings.add(
                    Effect::Allow,
                    DecisionSource::Mode,
                    "every command in it is known only to read",
                ),
                Ok(_) => findings.add(
                    Effect::Deny,
                    DecisionSource::Mode,
                    "mode read-only runs only what is proven to read, whatever rules allow",
                ),
                Err(why) => findings.add(
                    Effect::Deny,
                    DecisionSource::Mode,
                    format!("mode read-only runs only what is proven to read: {why}"),
                ),
            }
            return;
        }
        if mode == Mode::Auto {
            if let Some(why) = needs_more_than_the_sandbox(analysis) {
                findings.add(Effect::Ask, DecisionSource::Sandbox, why);
            }
            if writes_git && !proof.as_ref().is_ok_and(|proof| proof.by_rule) {
                findings.add(
                    Effect::Ask,
                    DecisionSource::Sandbox,
                    "it writes to the repository, which the sandbox keeps read-only",
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
                        "every command in it is known only to read",
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
                            format!("`{}` is written inside the project", path.text),
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
                format!("no rule covers it and it is not known only to read: {why}"),
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

pub(super) fn shown(words: &[Word]) -> String {
    let words: Vec<&str> = words.iter().map(|word| word.source.as_str()).collect();
    let mut text = words.join(" ");
    if text.len() > 200 {
        text = text.chars().take(197).collect::<String>() + "…";
    }
    text
}

fn name_of(command: &Command) -> &str {
    let name = command.words.first().map(Word::sketch).unwrap_or_default();
    name.rsplit('/').next().unwrap_or(name)
}

/// `git add .github/x` records a change that was already allowed; it makes none.
fn is_harmless_git(command: &Command) -> bool {
    let words = without_global_options(&command.words);
    name_of(command) == "git"
        && words.get(1).is_some_and(|word| {
            matches!(
                word.sketch(),
                "add" | "commit" | "diff" | "log" | "show" | "push" | "stage"
            )
        })
}

const GIT_READERS: &[&str] = &[
    "status",
    "log",
    "diff",
    "show",
    "blame",
    "ls-files",
    "ls-tree",
    "rev-parse",
    "rev-list",
    "describe",
    "shortlog",
    "cat-file",
    "grep",
    "for-each-ref",
    "show-ref",
    "ls-remote",
    "push",
    "version",
    "help",
    "archive",
    "bundle",
    "format-patch",
    "merge-base",
    "name-rev",
    "count-objects",
    "check-ignore",
    "whatchanged",
    "reflog",
    "var",
    "diff-tree",
    "range-diff",
    "cherry",
];

fn writes_git(command: &Command) -> bool {
    if name_of(command) != "git" || touched_paths(command).1 {
        return false;
    }
    let words = without_global_options(&command.words);
    words
        .get(1)
        .is_none_or(|word| !GIT_READERS.contains(&word.sketch()))
}

/// Sub-commands of git that change its configuration.
fn writes_git_config(command: &Command) -> Option<String> {
    if name_of(command) != "git" || touched_paths(command).1 {
        return None;
    }
    let words = without_global_options(&command.words);
    let sub = words.get(1)?.sketch();
    matches!(
        sub,
        "config"
            | "remote"
            | "init"
            | "submodule"
            | "hook"
            | "worktree"
            | "lfs"
            | "clone"
            | "maintenance"
    )
    .then(|| format!("git {sub}"))
}

/// Privileges, other users, services: nothing a sandbox without them can give.
fn needs_more_than_the_sandbox(analysis: &Analysis) -> Option<String> {
    const MORE: &[&str] = &[
        "sudo",
        "doas",
        "su",
        "pkexec",
        "runuser",
        "mount",
        "umount",
        "systemctl",
        "service",
        "docker",
        "podman",
        "crontab",
        "at",
        "modprobe",
        "insmod",
        "iptables",
        "nft",
        "shutdown",
        "reboot",
        "chroot",
        "nsenter",
        "unshare",
        "kill",
        "pkill",
        "killall",
    ];
    analysis
        .commands
        .iter()
        .map(name_of)
        .find(|name| MORE.contains(name))
        .map(|name| format!("`{name}` needs more than the sandbox gives"))
}

fn class(analysis: &Analysis, trips: &[Tripped], read_only: bool) -> ActionClass {
    if read_only {
        let searches = analysis.plain_commands().any(|command| {
            matches!(
                name_of(command),
                "grep" | "egrep" | "fgrep" | "rg" | "ag" | "find" | "fd"
            )
        });
        return if searches {
            ActionClass::Search
        } else {
            ActionClass::Observe
        };
    }
    if !trips.is_empty() || analysis.commands.iter().any(is_dangerous) {
        ActionClass::Dangerous
    } else {
        ActionClass::Execute
    }
}

fn is_dangerous(command: &Command) -> bool {
    let words = without_global_options(&command.words);
    let second = words.get(1).map(Word::sketch).unwrap_or_default();
    let has_flag = |letters: &str| {
        words.iter().skip(1).map(Word::sketch).any(|word| {
            word.starts_with('-')
                && !word.starts_with("--")
                && word.contains(|c| letters.contains(c))
        })
    };
    match name_of(command) {
        "rm" => has_flag("rRf") || words.iter().any(|word| word.sketch().starts_with("--r")),
        "sudo" | "doas" | "su" | "pkexec" | "dd" | "shred" | "wipefs" | "shutdown" | "reboot"
        | "mkswap" | "fdisk" | "parted" | "mount" | "umount" | "crontab" | "iptables" | "nft"
        | "kill" | "pkill" | "killall" | "chown" | "systemctl" | "eval" => true,
        "chmod" => has_flag("R"),
        "git" => {
            matches!(
                second,
                "reset" | "clean" | "rebase" | "filter-branch" | "filter-repo"
            ) || (second == "push"
                && words
                    .iter()
                    .any(|word| word.sketch().starts_with("--force") || word.sketch() == "-f"))
        }
        "find" => words.iter().any(|word| word.sketch() == "-delete"),
        name => name.starts_with("mkfs"),
    }
}

/// The parser's view for the log, bounded.
fn parse_fact(analysis: &Analysis, read_only: bool, why: Option<&String>) -> CommandParse {
    const MOST_COMMANDS: usize = 50;
    const MOST_CHARACTERS: usize = 12_000;
    let mut left = MOST_CHARACTERS;
    let mut commands = Vec::new();
    for (index, command) in analysis.commands.iter().enumerate() {
        let has_inner = analysis
            .commands
            .iter()
            .skip(index + 1)
            .take(32)
            .any(|inner| inner.place == Place::Wrapped(index));
        if has_inner || command.words.is_empty() {
            continue;
        }
        let words: Vec<String> = command
            .words
            .iter()
            .take(64)
            .map(|word| {
                word.text()
                    .unwrap_or(&word.source)
                    .chars()
                    .take(400)
                    .collect()
            })
            .collect();
        let size: usize = words.iter().map(String::len).sum();
        if commands.len() == MOST_COMMANDS || size > left {
            break;
        }
        left -= size;
        commands.push(ParsedCommand {
            words,
            wrappers: wrappers_of(analysis, command),
            dynamic: command
                .words
                .iter()
                .any(|word| matches!(word.value, Value::Dynamic { .. })),
        });
    }
    let redirects = analysis
        .redirects()
        .take(MOST_COMMANDS)
        .map(|redirect| {
            let sign = match redirect.kind {
                RedirectKind::Read => "<",
                RedirectKind::Write => ">",
                RedirectKind::Duplicate => ">&",
                RedirectKind::HereDocument => return "<< …".to_owned(),
                RedirectKind::HereString => "<<<",
            };
            let target: String = redirect.target.source.chars().take(200).collect();
            format!("{sign} {target}")
        })
        .collect();
    CommandParse {
        ok: analysis.parse_error.is_none(),
        commands,
        redirects,
        read_only,
        why_not_proven: why.cloned(),
    }
}

fn wrappers_of(analysis: &Analysis, command: &Command) -> Vec<String> {
    let mut wrappers = Vec::new();
    let mut place = command.place;
    while let Place::Wrapped(outer) = place
        && wrappers.len() < 8
    {
        let Some(outer) = analysis.commands.get(outer) else {
            break;
        };
        wrappers.insert(0, name_of(outer).to_owned());
        place = outer.place;
    }
    wrappers
}
