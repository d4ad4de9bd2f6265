//! Code for an interpreter on the command line: the texts in it, and the commands it would start.
//!
//! This is for detection only. Nothing is ever proven about such code.

use super::word::Word;
use super::wrappers::base_name;

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
        // `python3.12` is `python`.
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let (_, flags) = INTERPRETERS.iter().find(|(program, _)| *program == plain)?;
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
        if text.is_empty() {
            return None;
        }
        let strings = strings(&text);
        Some(Self { text, strings })
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

/// Whether the arguments of this program may be code in which paths stand.
pub(super) fn takes_code(program: &str) -> bool {
    let name = base_name(program).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(name, "awk" | "gawk" | "mawk" | "nawk" | "sed" | "gsed")
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
