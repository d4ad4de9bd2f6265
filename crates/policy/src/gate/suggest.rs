//! A rule worth offering: one that covers exactly what was asked, and is no blanket.

use agent_protocol::payload::permission::{
    Access, DecisionSource, Effect, Layer, PermissionEvaluated, RuleOrigin,
};

use super::evaluate::{Gate, GateRequest, Setting};
use super::facts::Facts;
use super::protected::{protected, secret};
use super::rule::{Bases, Rule};
use crate::WebAddress;
use crate::shell::Analysis;
use crate::shell::prove::prove;
use crate::shell::word::{Dynamic, Value};

/// A rule to offer about the tool that asks, and what else it would allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub rule: String,
    pub also_matches: Vec<String>,
}

/// The same without the tool's name.
struct Offer {
    pattern: String,
    also_matches: Vec<String>,
}

/// Programs that run whatever they are told: no rule about them is narrow.
const NEVER: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "rbash",
    "csh",
    "tcsh",
    "login",
    "tmux",
    "screen",
    "sudo",
    "doas",
    "su",
    "rm",
    "eval",
    "exec",
    "source",
    ".",
    "env",
    "xargs",
    "find",
    "ssh",
    "scp",
    "curl",
    "wget",
    "nc",
    "python",
    "python3",
    "node",
    "deno",
    "ruby",
    "perl",
    "php",
    "lua",
    "osascript",
    "npx",
    "bunx",
    "uvx",
    "docker",
    "podman",
    "kubectl",
    "dd",
    "chmod",
    "chown",
    "kill",
    "pkill",
    "killall",
    "tee",
    "awk",
    "gawk",
    "sed",
    "nohup",
    "setsid",
    "watch",
    "export",
    "alias",
    "trap",
    "set",
    "command",
    "builtin",
    "busybox",
    "parallel",
    "declare",
    "typeset",
    "local",
    "readonly",
    "unset",
    "unalias",
    "enable",
    "hash",
    "shopt",
    "complete",
    "compgen",
    "mapfile",
    "readarray",
    "read",
    "bind",
    "let",
    "wait",
    "pkexec",
    "mkfs",
    "crontab",
    "at",
    "batch",
    "ncat",
    "socat",
    "telnet",
    "sftp",
    "vi",
    "vim",
    "nvim",
    "ed",
    "ex",
    "emacs",
    "less",
    "more",
    "man",
    "gdb",
    "psql",
    "mysql",
    "sqlite3",
    "mongo",
    "redis-cli",
    "pypy",
    "nodejs",
    "tclsh",
    "julia",
    "Rscript",
    "ts-node",
    "tsx",
    "passwd",
    "shutdown",
    "reboot",
    "mount",
    "umount",
    "iptables",
];

/// How many words of these programs say what is meant; further words may vary.
const PREFIXES: &[&[&str]] = &[
    &["cargo", "test"],
    &["cargo", "build"],
    &["cargo", "check"],
    &["cargo", "clippy"],
    &["cargo", "fmt"],
    &["cargo", "nextest", "run"],
    &["cargo", "doc"],
    &["cargo", "bench"],
    &["npm", "test"],
    &["npm", "run", "?"],
    &["pnpm", "test"],
    &["pnpm", "run", "?"],
    &["yarn", "test"],
    &["yarn", "run", "?"],
    &["go", "test"],
    &["go", "build"],
    &["go", "vet"],
    &["python", "-m", "pytest"],
    &["python3", "-m", "pytest"],
    &["make", "test"],
    &["make", "check"],
    &["mvn", "test"],
    &["gradle", "test"],
    &["git", "add"],
    &["git", "commit"],
];

/// The rule to offer for a question, if there is a good one.
pub fn suggest(
    gate: &Gate,
    request: &GateRequest<'_>,
    setting: &Setting<'_>,
    facts: &dyn Facts,
    evaluated: &PermissionEvaluated,
    analysis: Option<&Analysis>,
) -> Option<Suggestion> {
    // Breakers, protected paths, secrets, boundaries and ask rules are questions every time.
    if evaluated.decision != Effect::Ask || evaluated.decision_source != DecisionSource::Default {
        return None;
    }
    let offer = match &request.semantics.command {
        Some(_) => for_command(gate, analysis?)?,
        None => for_host(request).or_else(|| for_path(request, setting))?,
    };
    // Offered only if it would really have answered this question.
    let bases = Bases {
        project: setting.workspace.root.clone(),
        home: setting.home.to_owned(),
    };
    let origin = RuleOrigin {
        layer: Layer::Session,
        ..RuleOrigin::default()
    };
    let pattern = Some(offer.pattern.as_str());
    let rule = Rule::of(Effect::Allow, request.tool, pattern, origin, &bases).ok()?;
    let suggestion = Suggestion {
        rule: rule.text.clone(),
        also_matches: offer.also_matches,
    };
    let mut with_rule = gate.clone();
    with_rule.rules.push(rule);
    let decision = with_rule
        .decide(request, setting, facts, analysis)
        .evaluated
        .decision;
    (decision == Effect::Allow).then_some(suggestion)
}

fn for_command(gate: &Gate, analysis: &Analysis) -> Option<Offer> {
    // A rule is not offered for what runs to make a word of another command.
    let has_output = analysis.small.iter().flatten().any(|command| {
        command.words.iter().any(|word| {
            matches!(
                word.value,
                Value::Dynamic {
                    why: Dynamic::CommandSubstitution,
                    ..
                }
            )
        })
    });
    if has_output {
        return None;
    }
    // One command that is not covered yet; two would need two rules.
    let mut uncovered: Vec<Vec<String>> = Vec::new();
    prove(analysis, &mut |command| {
        let covered = gate.rules.iter().any(|rule| {
            rule.effect == Effect::Allow
                && rule
                    .words()
                    .is_some_and(|pattern| pattern.covers(&command.words))
        });
        let is_reader = crate::shell::prove::touched_paths(command).1;
        if covered || is_reader {
            return covered;
        }
        if command.wraps {
            // A rule is about what a wrapper starts; one about a wrapper that adds something, or that
            // starts what nobody can see, would be a blanket.
            if !command.transparent {
                uncovered.push(Vec::new());
            }
            return !command.transparent;
        }
        let words = command
            .words
            .iter()
            .map(|word| word.plain_text().unwrap_or_default().to_owned());
        uncovered.push(words.collect());
        true
    })
    .ok()?;
    let [words] = uncovered.as_slice() else {
        return None;
    };
    // A word that no pattern can spell: quoted, with a star in it, or empty.
    let is_word = |word: &String| {
        !word.is_empty()
            && !word.contains(|c: char| c.is_whitespace() || "*()'\"\\$;|&<>`".contains(c))
    };
    let prefix = PREFIXES.iter().find(|prefix| {
        words.len() >= prefix.len()
            && prefix.iter().zip(words).all(|(expected, word)| {
                expected == word || (*expected == "?" && is_word(word) && !word.starts_with('-'))
            })
    });
    if let Some(prefix) = prefix {
        let shown = words.get(..prefix.len())?.join(" ");
        return Some(Offer {
            pattern: format!("{shown} *"),
            also_matches: vec![format!("`{shown}` with any other arguments")],
        });
    }
    if !words.iter().all(is_word) {
        return None;
    }
    let name = words.first()?;
    let base = name.rsplit('/').next().unwrap_or(name);
    // `python3.12` is an interpreter as much as `python`.
    let family = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let says_nothing = matches!(words.as_slice(), [_] if matches!(base, "git" | "npm" | "make" | "cargo"))
        || matches!(words.as_slice(), [_, sub] if matches!(sub.as_str(), "run" | "exec" | "x" | "dlx"));
    // Options in front of the sub-command change what runs: `git -c alias.x=!id x`.
    let is_option = words.get(1).is_some_and(|word| word.starts_with('-'));
    let is_configured = is_option && matches!(base, "git" | "cargo" | "npm" | "make");
    let is_name = name.is_ascii() && !name.starts_with('-');
    if NEVER.contains(&base) || NEVER.contains(&family) || says_nothing || is_configured || !is_name
    {
        return None;
    }
    Some(Offer {
        pattern: words.join(" "),
        also_matches: Vec::new(),
    })
}

fn for_host(request: &GateRequest<'_>) -> Option<Offer> {
    let mut hosts = request.semantics.hosts();
    let address = WebAddress::parse(hosts.next()?).ok()?;
    hosts.next().is_none().then(|| Offer {
        pattern: address.host().to_owned(),
        also_matches: vec![format!("every page of `{}`", address.host())],
    })
}

fn for_path(request: &GateRequest<'_>, setting: &Setting<'_>) -> Option<Offer> {
    let [resource] = request.semantics.resources.as_slice() else {
        return None;
    };
    if resource.given.starts_with('~') {
        return None;
    }
    let path = setting.workspace.root.join(&resource.given);
    let relative = path.strip_prefix(&setting.workspace.root).ok()?;
    let text = relative.to_str()?;
    let plain =
        !text.is_empty() && !text.contains(|c: char| "*?[]{}()\\!".contains(c) || c.is_control());
    if !plain
        || resource.access != Access::Write
        || protected(&path).is_some()
        || secret(&path).is_some()
    {
        return None;
    }
    // A name without a slash would match in every directory.
    let anchored = if text.contains('/') {
        text.to_owned()
    } else {
        path.to_str()?.to_owned()
    };
    Some(Offer {
        pattern: anchored,
        also_matches: Vec::new(),
    })
}
