//! Code for an interpreter on the command line: the texts in it, and the commands it would start.
//!
//! This is for detection only. Nothing is ever proven about such code.

use super::checks::{awk_only_prints, sed_only_prints};
use super::word::Word;
use super::wrappers::{base_name, is_shell};

/// The code behind `-c`, `-e` and the like, with the texts that stand in it.
pub(crate) struct InlineCode {
    text: String,
    strings: Vec<String>,
}

/// Interpreters, and the flags or sub-commands that code follows.
const INTERPRETERS: &[(&str, &[&str])] = &[
    ("python", &["-c"]),
    ("pypy", &["-c"]),
    ("node", &["-e", "-p", "-pe", "--eval", "--print"]),
    ("nodejs", &["-e", "-p", "--eval", "--print"]),
    ("bun", &["-e", "--eval"]),
    ("deno", &["eval"]),
    ("ruby", &["-e"]),
    ("perl", &["-e", "-E"]),
    ("php", &["-r"]),
    ("lua", &["-e"]),
    ("osascript", &["-e"]),
    ("Rscript", &["-e"]),
    ("julia", &["-e", "-E"]),
];

/// Words in code that start another program.
const STARTS: &[&str] = &[
    "system",
    "popen",
    "exec",
    "spawn",
    "subprocess",
    "child_process",
    "Open3",
    "shell_exec",
    "passthru",
    "proc_open",
    "qx",
    "%x",
    "`",
    "do shell script",
    "Command",
];

impl InlineCode {
    /// The code given to this interpreter, if it is one and gets some.
    pub(crate) fn of(name: &str, arguments: &[&Word]) -> Option<Self> {
        let flags = code_flags(name)?;
        let mut text = String::new();
        for (at, word) in arguments.iter().enumerate() {
            let word = word.sketch();
            let is_flag = flags.contains(&word)
                || (word.starts_with('-')
                    && !word.starts_with("--")
                    && flags
                        .iter()
                        .any(|flag| flag.len() == 2 && word.ends_with(&flag[1..])));
            if is_flag && let Some(code) = arguments.get(at + 1) {
                text.push_str(code.sketch());
                text.push('\n');
            }
        }
        Self::new(text)
    }

    fn new(text: String) -> Option<Self> {
        let strings = strings(&text);
        (!text.is_empty()).then_some(Self { text, strings })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn strings(&self) -> &[String] {
        &self.strings
    }

    /// Scripts that the code may start: its texts, and those without blanks as the words of one command,
    /// when it starts anything at all.
    pub(super) fn started(&self) -> Vec<String> {
        if !STARTS.iter().any(|word| self.text.contains(word)) {
            return Vec::new();
        }
        let (mut scripts, words): (Vec<String>, Vec<String>) = self
            .strings
            .iter()
            .cloned()
            .partition(|text| text.contains(char::is_whitespace));
        scripts.extend((!words.is_empty()).then(|| words.join(" ")));
        scripts
    }
}

/// The scripts that code for `name` may start, whatever its language.
pub(super) fn started_by(name: &str, arguments: &[&Word]) -> Vec<String> {
    if is_awk(name) {
        let unclear = arguments
            .iter()
            .map(|word| word.sketch())
            .filter(|text| !text.starts_with('-') && !awk_only_prints(text))
            .collect::<Vec<_>>()
            .join("\n");
        // `"command" | getline` and `print | "command"` start one too.
        let starts = unclear.contains("system") || unclear.contains('|');
        return InlineCode::new(unclear)
            .filter(|_| starts)
            .map(|code| code.strings)
            .unwrap_or_default();
    }
    if matches!(name, "sed" | "gsed") {
        return sed_scripts(arguments)
            .into_iter()
            .filter(|script| !sed_only_prints(script))
            .flat_map(started_by_sed)
            .collect();
    }
    if EDITORS.contains(&name) {
        let lines = arguments.iter().flat_map(|word| word.sketch().lines());
        return lines
            .filter_map(|line| line.split_once('!'))
            .map(|(_, command)| command.to_owned())
            .collect();
    }
    InlineCode::of(name, arguments)
        .map(|code| code.started())
        .unwrap_or_default()
}

/// Text that `words` would read from its standard input as code: the same as an argument.
pub(super) fn read_from_input(words: &[Word], text: &str) -> Option<Vec<Word>> {
    let name = base_name(words.first()?.sketch());
    let has_file = words.iter().skip(1).any(|word| {
        let word = word.sketch();
        !word.starts_with('-') || code_flags(name).is_some_and(|flags| flags.contains(&word))
    });
    let flag = match code_flags(name) {
        Some(flags) if !has_file => flags.first()?,
        _ if EDITORS.contains(&name) => "-c",
        _ => return None,
    };
    Some(vec![
        Word::literal(name),
        Word::literal(flag),
        Word::literal(text),
    ])
}

/// Editors, in which `!` starts a command.
const EDITORS: &[&str] = &["vi", "vim", "nvim", "view", "gvim", "ex", "ed", "vimdiff"];

/// The flags of this interpreter that code follows.
pub(super) fn code_flags(name: &str) -> Option<&'static [&'static str]> {
    // `python3.12` is `python`.
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let known = INTERPRETERS.iter().find(|(program, _)| *program == plain);
    known.map(|(_, flags)| *flags)
}

pub(super) fn is_awk(name: &str) -> bool {
    matches!(name, "awk" | "gawk" | "mawk" | "nawk")
}

/// The scripts among sed's arguments: behind `-e`, or else the first word that is no flag.
fn sed_scripts<'a>(arguments: &[&'a Word]) -> Vec<&'a str> {
    let texts: Vec<&str> = arguments.iter().map(|word| word.sketch()).collect();
    let is_flag = |text: &str| {
        text == "--expression"
            || (text.starts_with('-') && !text.starts_with("--") && text.ends_with('e'))
    };
    let mut scripts: Vec<&str> = texts
        .windows(2)
        .filter_map(|pair| match pair {
            [flag, script] if is_flag(flag) => Some(*script),
            _ => None,
        })
        .collect();
    scripts.extend(
        texts
            .iter()
            .filter_map(|text| text.strip_prefix("--expression=")),
    );
    if scripts.is_empty() {
        scripts.extend(texts.iter().find(|text| !text.starts_with('-')));
    }
    scripts
}

/// Commands that `e` starts in a sed script: `1e command`, and the replacement of `s/…/command/e`.
fn started_by_sed(script: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in script.lines() {
        for (at, _) in line.match_indices('e') {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let is_command = before.is_none_or(|c| c.is_ascii_digit() || "/$;{}!, |".contains(c));
            found.extend(
                line.get(at + 1..)
                    .filter(|command| is_command && !command.trim().is_empty())
                    .map(|command| command.trim().to_owned()),
            );
        }
        if let Some((_, rest)) = line.split_once('s')
            && let Some(delimiter) = rest.chars().next()
        {
            let unescaped = rest.replace(&format!("\\{delimiter}"), "\u{0}");
            let replacement = unescaped.split(delimiter).nth(2).unwrap_or_default();
            found.push(replacement.replace('\u{0}', &delimiter.to_string()));
        }
    }
    found.retain(|script| !script.is_empty());
    found.truncate(8);
    found
}

/// True if a file among the arguments of this program may be what it runs.
pub(crate) fn runs_scripts(program: &str) -> bool {
    let name = base_name(program);
    is_shell(name)
        || code_flags(name).is_some()
        || is_awk(name)
        || matches!(
            name,
            "source" | "." | "make" | "java" | "tclsh" | "expect" | "Rscript"
        )
}

/// True if the arguments of this program may be code in which paths stand.
pub(super) fn takes_code(program: &str) -> bool {
    let name = base_name(program).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    is_awk(name)
        || matches!(name, "sed" | "gsed")
        || INTERPRETERS.iter().any(|(program, _)| *program == name)
}

/// The texts in quotes of any kind, bounded.
fn strings(code: &str) -> Vec<String> {
    const MOST: usize = 32;
    let mut found = Vec::new();
    let mut characters = code.chars();
    while let Some(quote) = characters.next() {
        if !matches!(quote, '\'' | '"' | '`') {
            continue;
        }
        let mut text = String::new();
        while let Some(character) = characters.next() {
            match character {
                '\\' => text.extend(characters.next()),
                character if character == quote => break,
                other => text.push(other),
            }
        }
        if !text.is_empty() {
            found.push(text);
        }
        if found.len() == MOST {
            break;
        }
    }
    found
}
