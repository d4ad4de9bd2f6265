//! Random scripts: no panic, no hang, and nothing is allowed that an independent reading does not confirm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a property says which script broke it"
)]

mod gate_support;

use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use agent_protocol::payload::permission::Effect;
use agent_tool_runtime::shell::prove::program_names;
use gate_support::{Case, cases};
use proptest::prelude::*;

/// Pieces that make scripts, and pieces that break them.
const PIECES: &[&str] = &[
    "ls",
    "ls -la",
    "cat a",
    "git status",
    "grep x a",
    "echo",
    "wc -l",
    "pwd",
    "true",
    "cd src",
    "sort",
    "find . -name x",
    "head -5 a",
    "jq .",
    "node x.js",
    "rm -rf build",
    "rm -rf /",
    "sudo",
    "env",
    "xargs",
    "timeout 5",
    "bash -c",
    "eval",
    "X=1",
    "LC_ALL=C",
    " ",
    " ",
    " ",
    " ",
    "  ",
    "\t",
    "\n",
    "\n",
    ";",
    "; ",
    " && ",
    " || ",
    " | ",
    "|",
    "&",
    " & ",
    "|&",
    "$(",
    ")",
    "(",
    "((",
    "))",
    "`",
    "'",
    "\"",
    "\\",
    "\\\n",
    "{",
    "}",
    "{a,b}",
    "$X",
    "${X",
    "${X:-",
    "}",
    "$",
    "$((",
    "[",
    "]",
    "[[",
    "]]",
    "*",
    "?",
    "~",
    "#",
    " # c",
    "<",
    ">",
    ">>",
    "2>&1",
    "2>/dev/null",
    "> out",
    "< a",
    "<<E\n",
    "E\n",
    "<<<",
    "<(",
    "&>",
    "!",
    "! ",
    "if ",
    "then ",
    "fi",
    "for x in ",
    "do ",
    "done",
    "while ",
    "case x in ",
    "esac",
    "f() ",
    "function f ",
    "select ",
    "é",
    "\u{200b}",
    "\u{1b}",
    "\r",
    "=",
    "--",
    "-e",
    "-exec",
    ":",
    "::",
    "time ",
    "coproc ",
    "in",
];

fn script() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..24).prop_map(|pieces| pieces.concat()),
        1 => prop::collection::vec(any::<char>(), 0..64).prop_map(String::from_iter),
        // Everyday commands joined and cut: most of what is allowed comes from here.
        3 => (
            prop::sample::select(everyday()),
            prop::sample::select(vec![" && ", "; ", " | ", "\n", " || ", " & ", "$(", " > ", "'", "`"]),
            prop::sample::select(everyday()),
        ).prop_map(|(left, middle, right)| format!("{left}{middle}{right}")),
    ]
}

fn everyday() -> Vec<String> {
    all()
        .iter()
        .filter(|case| case.file == "reading.toml")
        .map(|case| case.subject.clone())
        .collect()
}

/// The table, read once: the properties ask for it thousands of times.
fn all() -> &'static [Case] {
    static ALL: OnceLock<Vec<Case>> = OnceLock::new();
    ALL.get_or_init(cases)
}

fn case(subject: &str, mode: &str) -> Case {
    Case {
        subject: subject.to_owned(),
        mode: mode.to_owned(),
        ..all()
            .iter()
            .find(|case| case.tool == "bash" && case.rules.is_empty() && case.links.is_empty())
            .unwrap()
            .clone()
    }
}

/// A reading of its own: quotes, separators and words of a plain script, or `None`.
fn split(script: &str) -> Option<Vec<Vec<String>>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut characters = script.chars().peekable();
    let mut skip_target = false;
    while let Some(character) = characters.next() {
        let is_end = matches!(character, ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>');
        if is_end && let Some(finished) = word.take() {
            // The number in front of a redirect and the word behind it are not arguments.
            let is_descriptor =
                matches!(character, '<' | '>') && finished.bytes().all(|b| b.is_ascii_digit());
            if skip_target {
                skip_target = false;
            } else if !is_descriptor {
                commands.last_mut()?.push(finished);
            }
        }
        match character {
            ' ' | '\t' => {}
            '&' if characters.peek() == Some(&'>') => {
                while characters.next_if(|next| *next == '>').is_some() {}
                skip_target = true;
            }
            '&' if characters.peek() != Some(&'&') => return None,
            '\n' | ';' | '|' | '&' => {
                characters.next_if(|next| matches!(next, '|' | '&'));
                commands.push(Vec::new());
            }
            '<' | '>' => {
                while characters
                    .next_if(|next| matches!(next, '<' | '>' | '&' | '|'))
                    .is_some()
                {}
                skip_target = true;
            }
            '#' if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        other => text.push(other),
                    }
                }
            }
            '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' if matches!(characters.peek(), Some('"' | '\\' | '$' | '`')) => {
                            text.extend(characters.next());
                        }
                        other => text.push(other),
                    }
                }
            }
            '\\' => match characters.next()? {
                '\n' => {}
                other => word.get_or_insert_default().push(other),
            },
            other => word.get_or_insert_default().push(other),
        }
    }
    if let Some(finished) = word
        && !skip_target
    {
        commands.last_mut()?.push(finished);
    }
    commands.retain(|words| !words.is_empty());
    Some(commands)
}

/// Wrappers and keywords that may stand in front of a program of the table.
const IN_FRONT: &[&str] = &[
    "!", "time", "timeout", "nice", "env", "command", "builtin", "stdbuf", "ionice", "xargs", "cd",
];

fn confirm(script: &str) {
    let checked = Command::new("bash")
        .args(["-n", "-c", script])
        .output()
        .unwrap();
    assert!(
        checked.status.success(),
        "bash -n refuses what was allowed: {script:?}"
    );
    let names: Vec<&str> = program_names().collect();
    for words in split(script).unwrap_or_else(|| panic!("the splitter gives up on {script:?}")) {
        let name = words
            .iter()
            .find(|word| !word.contains('=') || word.starts_with('='))
            .unwrap_or_else(|| panic!("only assignments in {script:?}"));
        assert!(
            names.contains(&name.as_str()) || IN_FRONT.contains(&name.as_str()),
            "`{name}` was allowed in {script:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_allowed_is_confirmed(script in script()) {
        let start = Instant::now();
        let evaluated = case(&script, "ask").evaluate().evaluated;
        prop_assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        if evaluated.decision == Effect::Allow {
            confirm(&script);
        }
    }

    /// A mode with more freedom never allows a script that no reading understands.
    #[test]
    fn what_cannot_be_parsed_is_allowed_in_no_mode(script in script()) {
        let evaluated = case(&script, "full").evaluate().evaluated;
        let parsed = evaluated.parse.as_ref().is_some_and(|parse| parse.ok);
        prop_assert!(parsed || evaluated.decision != Effect::Allow, "{script:?}");
    }

    /// Denying more never allows more.
    #[test]
    fn a_deny_rule_never_softens(script in script()) {
        let before = case(&script, "ask").evaluate().evaluated.decision;
        let mut denied = case(&script, "ask");
        denied.rules = vec!["deny bash(node *)".to_owned(), "deny read(**/secret)".to_owned()];
        let after = denied.evaluate().evaluated.decision;
        prop_assert!(before == after || after != Effect::Allow, "{script:?}: {before} became {after}");
    }
}

#[test]
fn every_allowed_row_is_confirmed() {
    for case in all() {
        let plain = case.tool == "bash" && case.mode == "ask" && case.rules.is_empty();
        // ANSI quotes are beyond the splitter, which does not know them.
        if plain && case.expect == "allow" && !case.subject.contains("$'") {
            confirm(&case.subject);
        }
    }
}

/// Twice the length takes about twice the time, whatever the text repeats.
#[test]
fn time_is_linear_in_length() {
    for unit in [
        "ls; ",
        "echo a ",
        "'x' ",
        "$x ",
        "$(ls) ",
        "{} ",
        "[a] ",
        "a=b ",
        "\\x",
        "; rm x",
        "`ls` ",
        "~ ",
        "ls | wc && ",
        "if ls; then ls; fi; ",
        "\"$x\" ",
        "x ",
        "*",
    ] {
        let time = |length: usize| {
            let script: String = unit.chars().cycle().take(length).collect();
            let mut with_rules = case(&script, "ask");
            with_rules.rules = vec![
                "deny bash(terraform apply *)".into(),
                "allow bash(npm *)".into(),
            ];
            // The fastest of some runs, and room for a busy machine: a quadratic step takes seconds here.
            (0..6)
                .map(|_| {
                    let start = Instant::now();
                    with_rules.evaluate();
                    start.elapsed()
                })
                .min()
                .unwrap()
        };
        let short = time(2_400);
        let long = time(9_600);
        assert!(
            long < short * 10 + Duration::from_millis(250),
            "{unit:?}: {short:?} for 2,400 characters, {long:?} for 9,600"
        );
    }
}
