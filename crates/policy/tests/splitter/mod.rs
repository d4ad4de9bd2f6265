//! A second, independent reading of scripts that the gate understood or let through: a splitter of its own, and
//! bash's own parser. Used by the properties, by the differential test and by the fuzz targets `gate` and `shell`.
//!
//! The splitter cuts the text into words and signs and looks for the words where commands begin. It knows no more of
//! bash than the small language has, and gives up on the rest.

#![allow(dead_code, reason = "each user takes its part of it")]

use std::process::Command;

use agent_policy::shell::prove::program_names;
use agent_policy::shell::{Command as Read, Place};

/// A word as it stands in the script, and the argument it becomes where no expansion decides that.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Split {
    pub(crate) source: String,
    pub(crate) text: Option<String>,
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(Split),
    /// `;`, a newline, `&&`, `||`, `|`, `(` or `)`.
    Sign(&'static str),
    /// A redirection, whose target is the next word.
    Redirect,
    /// `>&1` or `>&2`.
    Duplicate,
    /// `<<` and a name, with the body that came later.
    Document,
}

/// The words of every simple command, those of substitutions in front of those around them; assignments and
/// redirections are left out. `None` for what is not read.
pub(crate) fn split(script: &str) -> Option<Vec<Vec<Split>>> {
    let mut cutter = Cutter {
        text: script,
        commands: Vec::new(),
        waiting: Vec::new(),
    };
    let tokens = cutter.tokens(false)?;
    collect(tokens, &mut cutter.commands)?;
    (cutter.text.is_empty() && cutter.waiting.is_empty()).then_some(cutter.commands)
}

struct Cutter<'a> {
    text: &'a str,
    /// Those of substitutions.
    commands: Vec<Vec<Split>>,
    /// Names of documents that begin behind this line.
    waiting: Vec<String>,
}

impl Cutter<'_> {
    fn take(&mut self, prefix: &str) -> bool {
        let Some(rest) = self.text.strip_prefix(prefix) else {
            return false;
        };
        self.text = rest;
        true
    }

    fn next(&mut self) -> Option<char> {
        let character = self.text.chars().next()?;
        self.text = &self.text[character.len_utf8()..];
        Some(character)
    }

    /// Tokens up to the end, or up to the `)` that closes a substitution.
    fn tokens(&mut self, in_substitution: bool) -> Option<Vec<Token>> {
        let mut tokens = Vec::new();
        let mut open = 0;
        loop {
            while self.take(" ") || self.take("\t") || self.take("\\\n") {}
            if self.text.starts_with('#') {
                let end = self.text.find('\n').unwrap_or(self.text.len());
                self.text = &self.text[end..];
            }
            let Some(first) = self.text.chars().next() else {
                return (!in_substitution && open == 0).then_some(tokens);
            };
            let digits = self.text.bytes().take_while(u8::is_ascii_digit).count();
            let is_redirect =
                self.text[digits..].starts_with(['<', '>']) || self.text.starts_with("&>");
            if is_redirect {
                self.text = &self.text[digits..];
                tokens.push(self.redirect()?);
                continue;
            }
            let signs = ["\n", "&&", "||", ";", "|", "(", ")"];
            let Some(sign) = signs.into_iter().find(|sign| self.take(sign)) else {
                if first == '&' {
                    return None;
                }
                tokens.push(Token::Word(self.word()?));
                continue;
            };
            match sign {
                "\n" => self.documents(in_substitution)?,
                "(" => open += 1,
                ")" if open > 0 => open -= 1,
                ")" => return in_substitution.then_some(tokens),
                ";" if self.text.starts_with([';', '&']) => return None,
                "|" if self.text.starts_with('&') => return None,
                _ => {}
            }
            tokens.push(Token::Sign(sign));
        }
    }

    fn redirect(&mut self) -> Option<Token> {
        if self.take("&>>") || self.take("&>") || self.take("<<<") || self.take(">>") {
            return Some(Token::Redirect);
        }
        if self.take(">&1") || self.take(">&2") {
            // Only what ends the word may follow; a number here belongs to no redirection behind it.
            let ends = [' ', '\t', '\n', ';', '&', '|', '<', '>', ')'];
            let is_whole = self.text.is_empty() || self.text.starts_with(ends);
            return is_whole.then_some(Token::Duplicate);
        }
        if self.take("<<") {
            while self.take(" ") || self.take("\t") {}
            let name = self.word()?.text?;
            self.waiting.push(name);
            return Some(Token::Document);
        }
        let is_plain = self.take("<") || self.take(">");
        (is_plain && !self.text.starts_with(['&', '|', '(', '>', '<'])).then_some(Token::Redirect)
    }

    /// The bodies of documents, behind the newline of the line they are named in.
    fn documents(&mut self, in_substitution: bool) -> Option<()> {
        for name in std::mem::take(&mut self.waiting) {
            loop {
                let (line, rest) = self.text.split_once('\n').unwrap_or((self.text, ""));
                let is_last = line.len() == self.text.len();
                self.text = rest;
                if line == name {
                    break;
                }
                // bash ends it at `E)` in a substitution.
                if is_last || (in_substitution && line.starts_with(&name)) {
                    return None;
                }
            }
        }
        Some(())
    }

    fn word(&mut self) -> Option<Split> {
        let begin = self.text;
        let mut text = Some(String::new());
        let push = |text: &mut Option<String>, character| {
            if let Some(text) = text {
                text.push(character);
            }
        };
        while let Some(first) = self.text.chars().next() {
            match first {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    let (inside, rest) = self.text[1..].split_once('\'')?;
                    inside
                        .chars()
                        .for_each(|character| push(&mut text, character));
                    self.text = rest;
                }
                '"' => {
                    self.next();
                    loop {
                        match self.text.chars().next()? {
                            '"' => break,
                            '`' => return None,
                            '$' => self.dollar(&mut text, true)?,
                            '\\' => {
                                self.next();
                                let escaped = self.text.chars().next()?;
                                if matches!(escaped, '"' | '\\' | '$' | '`') {
                                    self.next();
                                    push(&mut text, escaped);
                                } else if escaped == '\n' {
                                    return None;
                                } else {
                                    push(&mut text, '\\');
                                }
                            }
                            other => {
                                self.next();
                                push(&mut text, other);
                            }
                        }
                    }
                    self.next();
                }
                '\\' => {
                    self.next();
                    let escaped = self.next().filter(|escaped| *escaped != '\n')?;
                    push(&mut text, escaped);
                }
                '$' => self.dollar(&mut text, false)?,
                '`' => return None,
                '~' => {
                    self.next();
                    // It may stand for the home directory.
                    text = None;
                }
                other => {
                    self.next();
                    push(&mut text, other);
                }
            }
        }
        let source = &begin[..begin.len() - self.text.len()];
        (!source.is_empty()).then(|| Split {
            source: source.to_owned(),
            text,
        })
    }

    fn dollar(&mut self, text: &mut Option<String>, quoted: bool) -> Option<()> {
        self.next();
        if self.text.starts_with("((") {
            return None;
        }
        if self.take("(") {
            *text = None;
            // Those of the line around it wait on.
            let waiting = std::mem::take(&mut self.waiting);
            let tokens = self.tokens(true)?;
            let is_whole = self.waiting.is_empty();
            self.waiting = waiting;
            collect(tokens, &mut self.commands)?;
            return is_whole.then_some(());
        }
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        if self.take("{") {
            *text = None;
            let (name, rest) = self.text.split_once('}')?;
            self.text = rest;
            return (!name.is_empty() && name.chars().all(is_name)).then_some(());
        }
        if self.take("?") {
            *text = None;
            return Some(());
        }
        let length = self
            .text
            .find(|character| !is_name(character))
            .unwrap_or(self.text.len());
        if length > 0 {
            *text = None;
            self.text = &self.text[length..];
            return Some(());
        }
        if !quoted && self.text.starts_with(['\'', '"']) {
            return None;
        }
        if let Some(text) = text {
            text.push('$');
        }
        Some(())
    }
}

/// Words of the shell behind which a command begins.
const BEFORE_A_COMMAND: &[&str] = &["if", "then", "elif", "else", "while", "do", "!", "time"];
/// Words of the shell behind which none does.
const BEHIND_A_COMMAND: &[&str] = &["fi", "done"];
/// Words of the shell that are not read.
const NOT_READ: &[&str] = &[
    "case", "esac", "until", "select", "function", "coproc", "in", "{", "}", "[[", "]]",
];

/// What may stand at a place.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// A command, or a word of the shell.
    Start,
    /// A command: an assignment or a redirection was in front.
    Command,
    /// Redirections: a compound command ended.
    End,
}

fn collect(tokens: Vec<Token>, commands: &mut Vec<Vec<Split>>) -> Option<()> {
    let mut command: Vec<Split> = Vec::new();
    let mut at = At::Start;
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            Token::Sign(sign) => {
                commands.extend((!command.is_empty()).then(|| std::mem::take(&mut command)));
                at = if sign == ")" { At::End } else { At::Start };
            }
            Token::Redirect | Token::Duplicate | Token::Document => {
                if token == Token::Redirect && !matches!(tokens.next()?, Token::Word(_)) {
                    return None;
                }
                if at == At::Start {
                    at = At::Command;
                }
            }
            Token::Word(word) if !command.is_empty() => command.push(word),
            Token::Word(_) if at == At::End => return None,
            Token::Word(word) => match word.source.as_str() {
                source if is_assignment(source) => at = At::Command,
                _ if at == At::Command => command.push(word),
                source if NOT_READ.contains(&source) => return None,
                "for" => loop_head(&mut tokens)?,
                source if BEHIND_A_COMMAND.contains(&source) => at = At::End,
                source if BEFORE_A_COMMAND.contains(&source) => {}
                _ => command.push(word),
            },
        }
    }
    commands.extend((!command.is_empty()).then_some(command));
    Some(())
}

/// `for NAME in WORDS` up to the sign behind it.
fn loop_head(tokens: &mut impl Iterator<Item = Token>) -> Option<()> {
    let Token::Word(_) = tokens.next()? else {
        return None;
    };
    let Token::Word(Split { source, .. }) = tokens.next()? else {
        return None;
    };
    if source != "in" {
        return None;
    }
    loop {
        match tokens.next()? {
            Token::Word(_) => {}
            Token::Sign(";" | "\n") => return Some(()),
            _ => return None,
        }
    }
}

fn is_assignment(source: &str) -> bool {
    let name = source
        .split_once('=')
        .map(|(name, _)| name)
        .unwrap_or_default();
    let fits = |character: char| character.is_ascii_alphanumeric() || character == '_';
    !name.is_empty()
        && name.chars().all(fits)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// The difference between the commands that the gate read in a script of the small language and those of the
/// splitter.
pub(crate) fn difference(script: &str, read: &[Read]) -> Option<String> {
    let Some(split) = split(script) else {
        return Some(format!("the splitter gives up on {script:?}"));
    };
    // What `find` starts is read as a command of its own.
    if script.contains("-exec") {
        return None;
    }
    let mut theirs: Vec<Vec<&str>> = split.iter().map(|words| sources(words)).collect();
    let plain = read.iter().filter(|command| command.place == Place::Plain);
    let mut ours: Vec<Vec<&str>> = plain
        .clone()
        .map(|command| {
            command
                .words
                .iter()
                .map(|word| word.source.as_str())
                .collect()
        })
        .collect();
    theirs.retain(|words| counts(words));
    ours.retain(|words| counts(words));
    theirs.sort();
    ours.sort();
    // A loop is read once for each of its words, or not at all if it has none.
    let loops = script.contains("for");
    if loops {
        theirs.dedup();
        ours.dedup();
        theirs.retain(|words| ours.contains(words));
    }
    if ours != theirs {
        return Some(format!(
            "{script:?}: read were {ours:?}, split were {theirs:?}"
        ));
    }
    for word in plain.flat_map(|command| &command.words) {
        let same = split
            .iter()
            .flatten()
            .find(|split| split.source == word.source);
        let text = same.and_then(|split| split.text.as_deref());
        if let (Some(read), Some(split)) = (word.text(), text)
            && read != split
        {
            return Some(format!(
                "{script:?}: {:?} is {read:?} or {split:?}",
                word.source
            ));
        }
    }
    None
}

fn sources(words: &[Split]) -> Vec<&str> {
    words.iter().map(|word| word.source.as_str()).collect()
}

/// Redirections of compound commands are read as commands without words; `read` and `cat` with a document are none.
fn counts(words: &[&str]) -> bool {
    !matches!(words, [":"] | ["cat"] | ["read", ..])
}

/// Commands that may stand in front of a program of the table.
const WRAPPERS: &[&str] = &[
    "timeout", "nice", "env", "command", "builtin", "stdbuf", "ionice", "xargs",
];
/// Commands of the shell that a proof knows.
const OF_THE_SHELL: &[&str] = &["cd", "set", "export", "read"];

/// Checks a script that was allowed by proof: bash can parse it, and every simple command the splitter finds is of a
/// program in the table, or of a wrapper with one behind it.
pub(crate) fn confirm(script: &str) -> Result<(), String> {
    let checked = Command::new("bash")
        .args(["-n", "-c", script])
        .output()
        .map_err(|error| format!("bash cannot be asked: {error}"))?;
    if !checked.status.success() {
        return Err(format!("bash -n refuses what was allowed: {script:?}"));
    }
    let names: Vec<&str> = program_names().collect();
    let commands = split(script).ok_or_else(|| format!("the splitter gives up on {script:?}"))?;
    for words in &commands {
        let Some((name, behind)) = words.split_first() else {
            continue;
        };
        let name = name.source.as_str();
        let is_wrapper = WRAPPERS.contains(&name)
            && (behind.is_empty()
                || behind
                    .iter()
                    .any(|word| names.contains(&word.source.as_str())));
        // `command -v` starts nothing.
        let looks_up = name == "command"
            && behind
                .first()
                .is_some_and(|word| matches!(word.source.as_str(), "-v" | "-V"));
        if !(names.contains(&name) || is_wrapper || looks_up || OF_THE_SHELL.contains(&name)) {
            return Err(format!("`{name}` was allowed in {script:?}"));
        }
    }
    Ok(())
}
