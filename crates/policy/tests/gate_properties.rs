//! Random scripts: no panic, no hang, and nothing is allowed that an independent reading does not confirm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a property says which script broke it"
)]

mod gate_support;
mod splitter;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use agent_protocol::payload::permission::Effect;
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

/// Readers, and a word with which each of them writes or runs something.
const HARMFUL: &[(&str, &[&str])] = &[
    ("git diff", &["--output=x", "--ext-diff", "--textconv"]),
    ("git log", &["--output=x", "--ext-diff", "--show-signature"]),
    ("git show", &["--output=x", "--textconv"]),
    ("git grep x", &["-O./x", "--open-files-in-pager=./x"]),
    ("git branch", &["-D", "-f", "--edit-description"]),
    ("git tag", &["-d", "-s", "--delete"]),
    ("rg x", &["--pre=./x", "--hostname-bin=./x"]),
    ("sort", &["-oout", "--compress-program=./x", "--output=x"]),
    ("tree", &["-o", "-Lo", "-R"]),
    ("fd x", &["-x", "--exec=rm", "-X"]),
    ("tar", &["--to-command=./x", "-I./x", "-x"]),
    ("sed", &["-i", "--in-place", "-fx"]),
    ("awk", &["-fx", "-iinplace"]),
    ("diff", &["-l", "--paginate"]),
    ("date", &["-s", "--set=x"]),
];

/// Words that stand between: flags with and without values, values, operands.
const BETWEEN: &[&str] = &[
    "-U",
    "-n",
    "-l",
    "-e",
    "-A",
    "-S",
    "-G",
    "-t",
    "-k",
    "-L",
    "-P",
    "-f",
    "-d",
    "-c",
    "-M",
    "-F",
    "-v",
    "-tf",
    "-p",
    "--format",
    "--unified",
    "--since",
    "--grep",
    "--context",
    "--max-count",
    "--date",
    "--depth",
    "--stat",
    "--oneline",
    "--color",
    "--contains",
    "--list",
    "--abbrev",
    "a",
    "5",
    "p",
    "HEAD",
    "src",
    "1",
    "--sort",
    "--group",
    "--exclude",
];

fn confirm(script: &str) {
    if let Err(problem) = splitter::confirm(script) {
        panic!("{problem}");
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

    /// A flag that harms is found wherever it stands, also where a value might.
    #[test]
    fn no_word_hides_a_harmful_flag(
        (program, flags) in prop::sample::select(HARMFUL.to_vec()),
        which in any::<prop::sample::Index>(),
        before in prop::collection::vec(prop::sample::select(BETWEEN.to_vec()), 0..4),
        after in prop::collection::vec(prop::sample::select(BETWEEN.to_vec()), 0..3),
    ) {
        let words: Vec<&str> = std::iter::once(program)
            .chain(before)
            .chain(std::iter::once(*which.get(flags)))
            .chain(after)
            .collect();
        let script = words.join(" ");
        let evaluated = case(&script, "ask").evaluate().evaluated;
        prop_assert!(evaluated.decision != Effect::Allow, "{script}");
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
        if plain && case.expect == "allow" {
            confirm(&case.subject);
        }
    }
}

/// What this thread has used of a processor, which does not grow while others have it.
fn time_on_processor() -> Duration {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = schedule.split_whitespace().next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
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
                    let start = time_on_processor();
                    with_rules.evaluate();
                    time_on_processor() - start
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
