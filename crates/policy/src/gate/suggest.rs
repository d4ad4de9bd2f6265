//! A rule worth offering: one that covers exactly what was asked, and is no blanket.

use agent_protocol::payload::permission::{
    Access, DecisionSource, Effect, Layer, PermissionEvaluated, RuleOrigin,
};

use super::evaluate::{Gate, GateRequest, Setting};
use super::facts::Facts;
use super::protected::{protected, secret};
use super::rule::{Bases, Rule};
use crate::WebAddress;
use crate::shell::prove::prove;
use crate::shell::word::{Dynamic, Value};
use crate::shell::{Analysis, Start, analyse, is_spelt, offers};

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
    let offers = offers()?;
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
        let words: Vec<String> = command
            .words
            .iter()
            .map(|word| word.plain_text().unwrap_or_default().to_owned())
            .collect();
        if command.wraps && offers.of_command(&words).is_none() {
            // A rule is about what a wrapper starts; one about a wrapper that adds something, or that
            // starts what nobody can see, would be a blanket.
            if !command.transparent {
                uncovered.push(Vec::new());
            }
            return !command.transparent;
        }
        uncovered.push(words);
        true
    })
    .ok()?;
    let [words] = uncovered.as_slice() else {
        return None;
    };
    if let Some(offered) = offers.of_command(words).filter(|offered| offered.is_open) {
        let shown = words.get(..offered.words)?.join(" ");
        return Some(Offer {
            pattern: format!("{shown} *"),
            also_matches: vec![format!("`{shown}` with any other arguments")],
        });
    }
    if !words.iter().all(|word| is_spelt(word)) || too_broad(words, false).is_some() {
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

/// The reason that a rule about a command with these words, and with any more behind them if it `is_open`, would allow
/// more than its words say. A clause.
pub(super) fn too_broad(words: &[String], is_open: bool) -> Option<String> {
    let (Some(offers), Some(name)) = (offers(), words.first()) else {
        return Some("it names no program".to_owned());
    };
    if let Some(offered) = offers.of_command(words)
        && (offered.is_open || !is_open)
    {
        return None;
    }
    if !name.is_ascii() || name.starts_with('-') {
        return Some(format!("`{name}` is not a plain name of a program"));
    }
    if offers.never(name) {
        return Some(format!("`{name}` does whatever it is told"));
    }
    if words.iter().take(2).any(|word| word.contains('*')) {
        return Some(
            "a `*` may stand for what follows the first two words, not for those".to_owned(),
        );
    }
    let base = name.rsplit('/').next().unwrap_or(name);
    let second = words.get(1).map(String::as_str);
    let every = || Some(format!("it would allow every command of `{name}`"));
    // A script of the project is one thing to do.
    let is_script = name.contains('/') && !name.starts_with('/');
    let has_verbs = matches!(base, "git" | "npm" | "make" | "cargo");
    match second {
        None if has_verbs || (is_open && !is_script) => return every(),
        // Options in front of the sub-command change what runs: `git -c alias.x=!id x`.
        Some(option) if option.starts_with('-') && (has_verbs || (is_open && !is_script)) => {
            return Some(format!(
                "`{option}` stands where it should say what `{name}` is to do"
            ));
        }
        Some("run" | "exec" | "x" | "dlx") if words.len() == 2 => {
            return Some(format!("`{}` runs whatever it is told", words.join(" ")));
        }
        _ => {}
    }
    let more = if is_open { " x" } else { "" };
    let start = Start {
        directory: "/".into(),
        home: "/".into(),
        is_directory: &|_| None,
    };
    let read = analyse(&format!("{}{more}", words.join(" ")), &start);
    let starts_another = read.commands.iter().any(|command| command.wraps);
    starts_another.then(|| format!("`{name}` starts another program"))
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
