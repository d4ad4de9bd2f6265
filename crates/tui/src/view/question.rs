//! What has to be read before a question is answered, in reading order: what exactly would happen,
//! why it asks, what is at stake, and how far an answer would reach. Every character somebody else
//! chose is written out here, in the facts as in the command.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::plan;
use crate::diff;
use crate::keymap::Action;
use crate::safe::{self, Piece};
use crate::state::pending::{Pending, Subject};
use crate::text::{Break, wrap};
use crate::theme::Theme;
use crate::ui::Ui;
use crate::ui::prompt::explain_rule;
use agent_text::words::duration;

/// A script of more parts than this is summed up by the programs it runs; all of it stands above.
const LISTED_PARTS: usize = 8;

/// How the gate's fact about the full sandbox begins, and what that one leaves to whoever is asked.
const SANDBOXED: &str = "runs in the sandbox: ";
const TO_JUDGE: &str = "; review its changes afterwards with /diff";

/// Facts of at most this length share a line.
const SHORT: usize = 24;

/// A question that expires later than this does so when nobody is there any more.
const LONG_MS: u64 = 30 * 60 * 1000;

/// The question in one line, in pieces: what is to happen, to what, and where.
pub(crate) fn title(ui: &Ui, pending: &Pending) -> Vec<Piece> {
    let (verb, what) = match (pending.subject(), pending.path()) {
        (Subject::Words(_), _) => return exact(&pending.title),
        (Subject::Plan(_), _) => return exact("Approve this plan?"),
        // The command itself follows, whole.
        (Subject::Command(_), _) => ("Run this command", ""),
        (Subject::Diff(_) | Subject::Replacements { .. } | Subject::Content { .. }, Some(path)) => {
            match is_new(ui, pending) {
                true => ("Create ", path),
                false => ("Change ", path),
            }
        }
        _ if pending.title.is_empty() => ("Allow ", pending.tool.as_str()),
        _ => ("Allow ", pending.title.as_str()),
    };
    let mut pieces = exact(verb);
    pieces.extend(exact(what));
    if let Some(cwd) = pending.cwd.as_deref().filter(|cwd| *cwd != ".") {
        pieces.extend(exact(" in "));
        pieces.extend(exact(cwd));
    }
    pieces.extend(exact("?"));
    pieces
}

fn is_new(ui: &Ui, pending: &Pending) -> bool {
    match pending.subject() {
        Subject::Diff(artifact) => matches!(
            ui.artifacts.get(&artifact),
            Some(Ok(text)) if text.starts_with("--- /dev/null\n")
        ),
        _ => false,
    }
}

/// Everything that has to be read.
#[must_use]
pub fn body(ui: &Ui, pending: &Pending, columns: usize) -> Vec<Line<'static>> {
    let theme = ui.theme;
    let mut lines = subject(ui, pending, columns);
    let key = |usual: &str| format!("[{}]", ui.settings.keys.answer(usual));
    let mut say = |lead: &str, text: &str| lines.extend(fact(lead, text, columns, theme));
    if let Some(words) = pending.description() {
        say("the model says:", words);
    }
    let why = pending.why.as_deref().unwrap_or_default();
    if !why.is_empty() && pending.plan().is_none() {
        say("needs approval:", why);
    }
    let runs = if pending.understood {
        "runs"
    } else {
        "appears to run"
    };
    for part in parts(pending) {
        say(runs, &part);
    }
    if let Some(unproven) = pending.unproven.as_deref()
        && !why.contains(unproven)
    {
        say("not known to be read-only:", unproven);
    }
    for risk in risks(pending, why) {
        say("•", &risk);
    }
    if pending.wants_network() {
        say("•", "will have network access");
    }
    // A long time needs no mention.
    if let Some(wait) = pending.timeout_ms.filter(|wait| *wait <= LONG_MS) {
        let text = format!("denied if not answered within {}", duration(wait));
        say("•", &text);
    }
    if pending.is_permission() {
        if pending.misses_network() {
            say(&key("w"), "allow once, with network access");
        }
        match &pending.session_rule {
            _ if pending.every_time => {}
            Some(_) => {
                say(
                    &key("s"),
                    "don't ask again for edits in this project this session (protected files still ask)",
                );
                let mode = match ui.settings.plain {
                    true => format!("[/mode {}]", ui.next_mode()),
                    false => format!("[{}]", ui.settings.keys.shown(Action::Mode)),
                };
                say(&mode, &format!("switch to mode {}", ui.next_mode()));
            }
            None => say(
                &key("s"),
                match pending.names_host() {
                    true => "don't ask again for this host this session",
                    false => "don't ask again for this exact call this session",
                },
            ),
        }
        match &pending.suggested_rule {
            Some(rule) => say(
                &key("r"),
                &format!(
                    "save the rule {rule}; it allows {}",
                    explain_rule(rule, matches!(pending.subject(), Subject::Command(_)))
                ),
            ),
            None if pending.every_time => say("•", "asks every time; no rule changes that"),
            None => say("•", "can't be saved as a rule (too broad)"),
        }
    }
    lines
}

/// The facts about the risk. Short ones share a line: a question is easier to read when it fits.
fn risks(pending: &Pending, why: &str) -> Vec<String> {
    let mut risks: Vec<String> = Vec::new();
    let mut short = false;
    for risk in &pending.risk_facts {
        // What the reason says already is not said twice.
        if why.contains(risk) {
            continue;
        }
        let is_short = risk.len() <= SHORT;
        match risks.last_mut() {
            Some(last) if short && is_short => last.push_str(&format!("; {risk}")),
            _ => risks.push(risk.clone()),
        }
        short = is_short;
        if risk.starts_with(SANDBOXED)
            && let Some(last) = risks.last_mut()
        {
            last.push_str(TO_JUDGE);
        }
    }
    risks
}

/// What exactly would happen.
fn subject(ui: &Ui, pending: &Pending, columns: usize) -> Vec<Line<'static>> {
    let theme = ui.theme;
    match pending.subject() {
        Subject::Command(command) => exact_block(&command, "$ ", columns, theme),
        Subject::Diff(artifact) => match ui.artifacts.get(&artifact) {
            Some(Ok(text)) => diff::render_under(pending.path(), text, columns, theme),
            Some(Err(problem)) => {
                let text = format!(
                    "the diff cannot be shown ({}); this is the input:",
                    safe::one_line(problem)
                );
                let problem = Line::styled(text, theme.bad());
                let mut lines = wrap(&problem, columns, 0, Break::Words);
                lines.extend(without_diff(pending, columns, theme));
                lines
            }
            None => vec![Line::styled("loading the diff …", theme.dim())],
        },
        Subject::Words(words) => exact_block(&words, "", columns, theme),
        Subject::Plan(plan) => plan::proposal(ui, &plan, columns),
        _ => without_diff(pending, columns, theme),
    }
}

fn without_diff(pending: &Pending, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let without = Pending {
        diff_ref: None,
        ..pending.clone()
    };
    match without.subject() {
        Subject::Replacements { path, pairs } => {
            let mut lines = Vec::new();
            for (old, new) in pairs {
                let text = diff::between(&path, &with_newline(&old), &with_newline(&new));
                lines.extend(diff::render_under(Some(&path), &text, columns, theme));
            }
            lines
        }
        Subject::Content { path, content } => {
            let text = diff::between(&path, "", &content);
            diff::render_under(Some(&path), &text, columns, theme)
        }
        Subject::Input(text) | Subject::Words(text) | Subject::Plan(text) => {
            exact_block(&text, "", columns, theme)
        }
        Subject::Command(command) => exact_block(&command, "$ ", columns, theme),
        Subject::Diff(_) => Vec::new(),
    }
}

fn with_newline(text: &str) -> String {
    if text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n")
    }
}

/// What a script is made of. A single command says itself what it is.
fn parts(pending: &Pending) -> Vec<String> {
    let parts = &pending.parts;
    if parts.len() <= 1 && pending.redirects.is_empty() {
        return Vec::new();
    }
    let mut listed = if parts.len() <= LISTED_PARTS {
        parts.clone()
    } else {
        vec![summed_up(parts)]
    };
    listed.extend(pending.redirects.iter().take(LISTED_PARTS).cloned());
    listed
}

/// `120 commands: echo (60 times), cp (59 times), rm`, in the order of their first use.
fn summed_up(parts: &[String]) -> String {
    let mut programs: Vec<(&str, usize)> = Vec::new();
    for part in parts {
        let name = part.split(' ').next().unwrap_or_default();
        match programs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => programs.push((name, 1)),
        }
    }
    let named: Vec<String> = programs
        .iter()
        .map(|(name, count)| match count {
            1 => (*name).to_owned(),
            _ => format!("{name} ({count} times)"),
        })
        .collect();
    // The gate names this many of them.
    let least = if parts.len() >= 50 { "at least " } else { "" };
    format!("{least}{} commands: {}", parts.len(), named.join(", "))
}

fn fact(lead: &str, text: &str, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut spans = vec![Span::styled(format!("  {lead} "), theme.dim())];
    spans.extend(styled(exact(text), theme, Style::new()));
    wrap(&Line::from(spans), columns, 4, Break::Words)
}

/// One line of text with what cannot be seen written out.
fn exact(text: &str) -> Vec<Piece> {
    let one_line = text.trim_end_matches('\n').replace('\n', "⏎");
    safe::exact(&one_line)
        .into_iter()
        .next()
        .unwrap_or_default()
}

pub(super) fn styled(
    pieces: Vec<Piece>,
    theme: Theme,
    style: Style,
) -> impl Iterator<Item = Span<'static>> {
    pieces.into_iter().map(move |Piece { text, mark }| {
        Span::styled(text, if mark { theme.mark() } else { style })
    })
}

/// Text as it is, with what cannot be seen written out.
fn exact_block(text: &str, lead: &'static str, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (number, pieces) in safe::exact(text).into_iter().enumerate() {
        let lead = if number == 0 {
            lead.to_owned()
        } else {
            " ".repeat(lead.len())
        };
        let mut spans = vec![Span::styled(format!("  {lead}"), theme.accent())];
        spans.extend(styled(pieces, theme, theme.strong()));
        lines.extend(wrap(&Line::from(spans), columns, 6, Break::Anywhere));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_parts_are_summed_up_by_program() {
        let parts: Vec<String> = ["set -e", "cp a b", "cp c d", "rm a"]
            .map(str::to_owned)
            .into();
        assert_eq!(summed_up(&parts), "4 commands: set, cp (2 times), rm");
        let many = vec!["echo x".to_owned(); 50];
        assert_eq!(summed_up(&many), "at least 50 commands: echo (50 times)");
    }

    #[test]
    fn what_the_sandbox_leaves_open_is_said_once() {
        let asked = agent_protocol::payload::permission::ActionRequired {
            safe_args: Some(serde_json::json!({"command": "curl x"})),
            risk_facts: vec![format!("{SANDBOXED}it can write only to the project")],
            ..Default::default()
        };
        let pending = Pending::new("act_1".parse().unwrap(), None, &asked);
        let said = risks(&pending, "it asks for full network access");
        assert_eq!(said.len(), 1);
        assert!(said[0].ends_with("review its changes afterwards with /diff"));
    }

    #[test]
    fn a_fact_hides_nothing() {
        let drawn = fact(
            "•",
            "writes `a\u{202e}b\np\u{430}ypal`",
            80,
            Theme::default(),
        );
        assert_eq!(
            drawn[0].to_string(),
            "  • writes `a⟨U+202E⟩b⏎p⟨а U+0430⟩ypal`"
        );
    }
}
