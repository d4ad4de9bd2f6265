//! The table of reading programs, and the one function that judges arguments by it.
//!
//! The table is data (`programs.toml`, read by `table`); this file judges by it and does not know
//! what is in it.

mod granted;
mod offers;
mod table;

use std::collections::HashSet;
use std::path::PathBuf;

use super::analysis::Directories;
use super::checks::Check;
use super::word::{Dynamic, Value, Word};
pub(crate) use granted::{Granted, judge_granted};
pub(crate) use offers::{is_spelt, offers};
use table::{Flag, Kind, Operand, Program, Repeat, program, table};

/// Use of a path named by an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Its content is shown, searched or compared.
    Content,
    /// Its name, size or existence.
    Metadata,
    /// A revision, a path, or `revision:path`.
    Revision,
    /// Like its content, and that of whatever is below it.
    Tree {
        /// Symbolic links on the way are followed.
        follows: bool,
    },
    /// Whatever is below it, by names that become words.
    Names {
        /// Its content is shown, and not only names and sizes.
        shows_content: bool,
    },
}

/// One path a command would look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathUse {
    pub text: String,
    pub is_glob: bool,
    pub usage: Use,
    pub directories: Directories,
}

/// Result of a proof of one command.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub paths: Vec<PathUse>,
    /// Configuration in the project may make the program start others: safe only in the sandbox.
    pub needs_sandbox: bool,
}

/// Proof that `words` is a command of the table, used only with flags and operands that read.
/// The error is a clause that can follow "because".
pub(super) fn judge(words: &[Word], directories: &Directories) -> Result<Reading, String> {
    let Some(name) = words.first().and_then(Word::plain_text) else {
        return Err("the program name is quoted, escaped or not known".to_owned());
    };
    let program = program(name).ok_or_else(|| format!("`{name}` is not known to be read-only"))?;
    let mut arguments = Arguments::new(name, directories);
    arguments.reading.needs_sandbox = program.needs_sandbox;
    arguments.judge(program, words.get(1..).unwrap_or_default())?;
    Ok(arguments.reading)
}

/// True if arguments nobody has seen can be appended to this command without harm.
pub(crate) fn tolerates_any_argument(words: &[Word]) -> bool {
    words
        .first()
        .and_then(Word::plain_text)
        .and_then(program)
        .is_some_and(|program| program.any_arguments)
}

/// The use of names that are appended to a program none of whose flags, listed or not, writes, executes or connects.
pub(super) fn use_of_names(words: &[Word]) -> Option<Use> {
    let program = words
        .first()
        .and_then(Word::plain_text)
        .and_then(program)
        .filter(|program| program.harmless_flags)?;
    let last = program.operands.last()?;
    Some(Use::Names {
        shows_content: last.kind != Kind::Metadata,
    })
}

/// The name of every program in the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    table().keys().map(String::as_str)
}

/// An operand that waits until every flag was seen.
enum Later<'a> {
    Text(&'a str),
    Glob { pattern: &'a str, options_end: bool },
}

/// `"$x"` and `"$(…)"` are one word.
fn is_one_quoted_word(word: &Word) -> bool {
    let source = word.source.as_str();
    source.len() >= 2
        && source.starts_with('"')
        && source.ends_with('"')
        && source.matches('"').count() == 2
}

/// The state of one pass over a command's arguments.
pub(super) struct Arguments {
    name: String,
    directories: Directories,
    reading: Reading,
    seen: HashSet<String>,
    /// Values of flags, for the checks.
    pub(super) values: Vec<(String, String)>,
    /// Operands that are not paths, for the checks.
    pub(super) texts: Vec<String>,
    /// Number of operands that are paths to read.
    named: usize,
}

impl Arguments {
    fn new(name: &str, directories: &Directories) -> Self {
        Self {
            name: name.to_owned(),
            directories: directories.clone(),
            reading: Reading::default(),
            seen: HashSet::new(),
            values: Vec::new(),
            texts: Vec::new(),
            named: 0,
        }
    }

    pub(super) fn has(&self, flag: &str) -> bool {
        self.seen.contains(flag)
    }

    /// Operands and values that are paths, as they were written.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.reading.paths.iter().map(|path| path.text.as_str())
    }

    fn judge(&mut self, program: &Program, words: &[Word]) -> Result<(), String> {
        if program.raw {
            return self.judge_raw(program, words);
        }
        let mut operands: Vec<Operand> = program.operands.clone();
        let mut options_end = false;
        let mut at = if program.old_style {
            self.old_style_flags(program, words)?
        } else {
            0
        };
        let mut had_operands = false;
        let mut is_first = true;
        // A flag behind the operands may say that the first of them is no text but a path.
        let mut later: Vec<Later<'_>> = Vec::new();
        while let Some(word) = words.get(at) {
            at += 1;
            let text = match &word.value {
                Value::Literal { text, .. } => text.as_str(),
                Value::Glob { pattern } => {
                    // Behind `--` nothing is a flag any more, whatever it is called.
                    let starts_safely =
                        options_end || !pattern.starts_with(['-', '*', '?', '[', '\\']);
                    if !(program.harmless_flags || starts_safely) {
                        return Err(format!("a glob could expand to a flag of `{}`", self.name));
                    }
                    // A glob may become any number of operands.
                    if !operands
                        .last()
                        .is_some_and(|last| last.repeat == Repeat::Any)
                    {
                        return Err(format!(
                            "`{}` with a glob is not known to be read-only",
                            self.name
                        ));
                    }
                    later.push(Later::Glob {
                        pattern,
                        options_end,
                    });
                    had_operands = true;
                    is_first = false;
                    continue;
                }
                Value::Dynamic { why, .. } => {
                    return Err(format!("an argument is {}", why.describe()));
                }
            };
            options_end |= program.flags_first && had_operands;
            if text == "--" && !options_end {
                options_end = true;
                continue;
            }
            if text.starts_with('-') && text.len() > 1 && !options_end {
                at += self.flag(program, text, words.get(at..).unwrap_or_default())?;
                continue;
            }
            if program.text_operands.contains(text) {
                continue;
            }
            if is_first && !program.sub.is_empty() && !options_end {
                if let Some(sub) = program.sub.get(text) {
                    self.name = format!("{} {text}", self.name);
                    self.seen.clear();
                    return self.judge(sub, words.get(at..).unwrap_or_default());
                }
                if program.operands.is_empty() {
                    return Err(format!(
                        "`{} {text}` is not known to be read-only",
                        self.name
                    ));
                }
            }
            is_first = false;
            had_operands = true;
            later.push(Later::Text(text));
        }
        let given = program
            .first_from
            .iter()
            .any(|flag| self.seen.contains(flag));
        if given
            && operands
                .first()
                .is_some_and(|operand| matches!(operand.kind, Kind::Text | Kind::TextOrRead))
        {
            operands.remove(0);
        }
        self.operands(&mut operands, &later)?;
        self.judge_presence(program, had_operands)?;
        self.use_trees(program);
        match program.check {
            Some(check) => check.holds(self),
            None => Ok(()),
        }
    }

    fn operands(&mut self, operands: &mut Vec<Operand>, later: &[Later<'_>]) -> Result<(), String> {
        for (at, operand) in later.iter().enumerate() {
            match operand {
                Later::Text(text) => self.operand(operands, text, later.len() - at - 1)?,
                Later::Glob {
                    pattern,
                    options_end,
                } => {
                    let last = operands.last().map(|last| last.kind);
                    let kind = match last {
                        Some(Kind::Text) | None => Kind::Metadata,
                        Some(kind) => kind,
                    };
                    // Behind `--` it is no flag, as behind a directory.
                    let shown = if *options_end {
                        format!("./{pattern}")
                    } else {
                        (*pattern).to_owned()
                    };
                    self.use_path(&shown, kind, true);
                    self.named += 1;
                }
            }
        }
        Ok(())
    }

    fn judge_raw(&mut self, program: &Program, words: &[Word]) -> Result<(), String> {
        let prints = program.check == Some(Check::Printf);
        let tests = program.check == Some(Check::Test);
        for (at, word) in words.iter().enumerate() {
            match &word.value {
                Value::Literal { text, .. } => self.texts.push(text.clone()),
                Value::Glob { pattern } if program.harmless_flags => {
                    self.use_path(pattern, Kind::Metadata, true);
                }
                Value::Glob { .. } => {
                    return Err(format!(
                        "`{}` with a glob is not known to be read-only",
                        self.name
                    ));
                }
                Value::Dynamic {
                    why: Dynamic::ExitCode,
                    ..
                } if program.harmless_flags => {}
                Value::Dynamic { .. } if program.any_arguments || (prints && at > 0) => {}
                // One word whatever it is, and neither a flag nor a number to the test.
                Value::Dynamic { sketch, .. } if tests && is_one_quoted_word(word) => {
                    self.texts.push(sketch.clone());
                }
                Value::Dynamic { why, .. } => {
                    return Err(format!("an argument is {}", why.describe()));
                }
            }
        }
        match program.check {
            Some(check) => check.holds(self),
            None => Ok(()),
        }
    }

    fn judge_presence(&self, program: &Program, had_operands: bool) -> Result<(), String> {
        let any = |flags: &HashSet<String>| flags.iter().any(|flag| self.seen.contains(flag));
        let name = &self.name;
        if !program.sub.is_empty() && !program.takes_operands && !any(&program.alone) {
            return Err(format!(
                "`{name}` without a subcommand is not known to be read-only"
            ));
        }
        if !program.require.is_empty() && !any(&program.require) {
            return Err(format!("`{name}` is read-only only with certain flags"));
        }
        let bare = self.seen.is_empty() && !had_operands;
        if !program.require_or_bare.is_empty() && !bare && !any(&program.require_or_bare) {
            return Err(format!("`{name}` may change something here"));
        }
        let alone = program
            .needs
            .iter()
            .find(|(flag, others)| self.seen.contains(*flag) && !any(others));
        if let Some((flag, _)) = alone {
            return Err(format!("`{name} {flag}` may write here"));
        }
        if had_operands && !program.operands_need.is_empty() && !any(&program.operands_need) {
            return Err(format!("`{name}` with an argument may change something"));
        }
        Ok(())
    }

    /// Judges a first word that is a bundle without a dash; values are the next words, in order. Returns
    /// how many words that were.
    fn old_style_flags(&mut self, program: &Program, words: &[Word]) -> Result<usize, String> {
        let Some(bundle) = words.first().and_then(Word::text) else {
            return Ok(0);
        };
        if bundle.starts_with('-') {
            return Ok(0);
        }
        let mut taken = 1;
        for letter in bundle.chars() {
            let name = format!("-{letter}");
            let flag = *program.flags.get(&name).ok_or_else(|| {
                format!(
                    "the flag `{letter}` of `{}` is not known to be read-only",
                    self.name
                )
            })?;
            let next = words.get(taken..).unwrap_or_default();
            taken += self.flag_value(program, &name, flag, None, next)?;
        }
        Ok(taken)
    }

    /// Judges one flag and returns how many of the following words it takes.
    fn flag(&mut self, program: &Program, text: &str, next: &[Word]) -> Result<usize, String> {
        let unknown = || {
            format!(
                "the flag `{text}` of `{}` is not known to be read-only",
                self.name
            )
        };
        if program.numbers && text.get(1..).is_some_and(is_number) {
            self.seen.insert("-NUM".to_owned());
            return Ok(0);
        }
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) if text.starts_with("--") || program.single_dash => {
                (name, Some(value))
            }
            _ => (text, None),
        };
        if text.starts_with("--") || program.single_dash {
            let flag = *program.flags.get(name).ok_or_else(unknown)?;
            return self.flag_value(program, name, flag, attached, next);
        }
        // A bundle of short flags; one with a value takes the rest of the word.
        for (offset, letter) in text.char_indices().skip(1) {
            let name = format!("-{letter}");
            let flag = *program.flags.get(&name).ok_or_else(unknown)?;
            if let Flag::Alone = flag {
                self.seen.insert(name);
                continue;
            }
            let rest = text
                .get(offset + letter.len_utf8()..)
                .filter(|rest| !rest.is_empty());
            if rest.is_some() && program.values_apart {
                return Err(format!(
                    "what follows `{name}` in `{text}` may be more flags of `{}`",
                    self.name
                ));
            }
            return self.flag_value(program, &name, flag, rest, next);
        }
        Ok(0)
    }

    fn flag_value(
        &mut self,
        program: &Program,
        name: &str,
        flag: Flag,
        attached: Option<&str>,
        next: &[Word],
    ) -> Result<usize, String> {
        self.seen.insert(name.to_owned());
        let missing = || format!("the flag `{name}` of `{}` has no literal value", self.name);
        match (flag, attached) {
            (Flag::Alone | Flag::Optional, None) => Ok(0),
            (Flag::Optional, Some(value)) => {
                self.value(name, Kind::Text, value);
                Ok(0)
            }
            (Flag::Alone, Some(_)) => Err(format!("the flag `{name}` takes no value")),
            (Flag::Value(kind), Some(value)) => {
                self.value(name, kind, value);
                Ok(0)
            }
            (Flag::Value(kind), None) => {
                let value = next.first().and_then(Word::text).ok_or_else(missing)?;
                // If the program took no value here, or only one behind `=`, this would be a flag that
                // nobody has looked at.
                if looks_like_a_flag(value) && !(program.harmless_flags || program.sure_values) {
                    return Err(format!(
                        "`{value}` after `{name}` may be a flag of `{}`",
                        self.name
                    ));
                }
                self.value(name, kind, value);
                Ok(1)
            }
            (Flag::TwoValues, _) => {
                let both = next.get(..2).ok_or_else(missing)?;
                if both.iter().any(|word| word.text().is_none()) {
                    return Err(missing());
                }
                Ok(2)
            }
        }
    }

    fn value(&mut self, name: &str, kind: Kind, value: &str) {
        self.values.push((name.to_owned(), value.to_owned()));
        match kind {
            Kind::Text => {}
            Kind::Directory => {
                self.use_path(value, Kind::Metadata, false);
                self.directories = match &self.directories {
                    Directories::Known(directories) => Directories::Known(
                        directories
                            .iter()
                            .map(|directory| directory.join(value))
                            .collect::<Vec<PathBuf>>(),
                    ),
                    Directories::Unknown => Directories::Unknown,
                };
            }
            // `-L 1,9:file` and `-L :function:file` show a part of the file.
            Kind::LineRange => {
                if let Some((_, path)) = value.rsplit_once(':') {
                    self.use_path(path, Kind::Read, false);
                }
            }
            kind => self.use_path(value, kind, false),
        }
    }

    fn operand(
        &mut self,
        operands: &mut Vec<Operand>,
        text: &str,
        words_left: usize,
    ) -> Result<(), String> {
        // An optional operand in front of a required one gives way when only one word is left.
        if let [first, second, ..] = operands.as_slice()
            && first.repeat == Repeat::AtMostOnce
            && second.repeat == Repeat::Once
            && words_left == 0
        {
            operands.remove(0);
        }
        let Some(operand) = operands.first().copied() else {
            return Err(format!(
                "`{} {text}` is not known to be read-only",
                self.name
            ));
        };
        if operand.repeat != Repeat::Any {
            operands.remove(0);
        }
        if matches!(operand.kind, Kind::Text | Kind::TextOrRead) {
            self.texts.push(text.to_owned());
        }
        if operand.kind != Kind::Text {
            self.use_path(text, operand.kind, false);
            self.named += 1;
        }
        Ok(())
    }

    /// Marks what is searched with everything below it. Without a path that is the directory itself, by an
    /// empty name.
    fn use_trees(&mut self, program: &Program) {
        let any = |flags: &HashSet<String>| flags.iter().any(|flag| self.seen.contains(flag));
        let value_recurses = self.values.iter().any(|(flag, value)| {
            // grep takes the beginning of the word too.
            matches!(flag.as_str(), "-d" | "--directories")
                && !matches!(value.as_str(), "read" | "skip")
        });
        let recurses = program.recurse.contains("always")
            || any(&program.recurse)
            || (!program.recurse.is_empty() && value_recurses);
        if !recurses {
            return;
        }
        let follows = any(&program.follow);
        if self.named == 0 {
            self.use_path("", Kind::Read, false);
        }
        let mut trees = Vec::new();
        for path in &mut self.reading.paths {
            let usage = Use::Tree { follows };
            match path.usage {
                Use::Content => path.usage = usage,
                // It may be no path at all, and is judged as what it may be.
                Use::Revision => trees.push(PathUse {
                    usage,
                    ..path.clone()
                }),
                Use::Metadata | Use::Names { .. } | Use::Tree { .. } => {}
            }
        }
        self.reading.paths.extend(trees);
    }

    fn use_path(&mut self, text: &str, kind: Kind, is_glob: bool) {
        // A lone dash is standard input.
        if text == "-" {
            return;
        }
        let usage = match kind {
            Kind::Read | Kind::TextOrRead | Kind::LineRange => Use::Content,
            Kind::Revision => Use::Revision,
            Kind::Metadata | Kind::Directory | Kind::Text => Use::Metadata,
        };
        // Git takes a quoted pattern for one, too.
        let is_glob = is_glob || (usage == Use::Revision && text.contains(['*', '?', '[']));
        self.reading.paths.push(PathUse {
            text: text.to_owned(),
            is_glob,
            usage,
            directories: self.directories.clone(),
        });
    }
}

/// `-1`, `->` and `-` are no flags of any program in the table; `-x` and `--x` may be.
fn looks_like_a_flag(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next() == Some('-')
        && characters
            .next()
            .is_some_and(|second| second == '-' || second.is_alphabetic())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
