//! The table of reading programs, and the one function that judges arguments by it.
//!
//! The table is data (`programs.toml`); this file knows how to read it, not what is in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Deserialize;

use super::checks::Check;
use super::walk::Directories;
use super::word::{Value, Word};

const TABLE: &str = include_str!("programs.toml");

/// What a path named by an argument is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Its content is shown, searched or compared.
    Content,
    /// Its name, size or existence.
    Metadata,
    /// A revision, a path, or `revision:path`.
    Revision,
}

/// One path a command would look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathUse {
    pub text: String,
    pub is_glob: bool,
    pub usage: Use,
    pub directories: Directories,
}

/// What a proof of one command found out.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub paths: Vec<PathUse>,
    /// Configuration in the project may make the program start others: safe only in the sandbox.
    pub needs_sandbox: bool,
}

/// Whether `words` is a command of the table, used only with flags and operands that read.
/// The error is a clause that can follow "because".
pub(super) fn judge(words: &[Word], directories: &Directories) -> Result<Reading, String> {
    let Some(name) = words.first().and_then(Word::plain_text) else {
        return Err("the name of the program is quoted, escaped or not known".to_owned());
    };
    let program =
        program(name).ok_or_else(|| format!("`{name}` is not a program known only to read"))?;
    let mut arguments = Arguments {
        name: name.to_owned(),
        directories: directories.clone(),
        reading: Reading {
            needs_sandbox: program.needs_sandbox,
            ..Reading::default()
        },
        seen: HashSet::new(),
        values: Vec::new(),
        texts: Vec::new(),
    };
    arguments.judge(program, words.get(1..).unwrap_or_default())?;
    Ok(arguments.reading)
}

/// Whether arguments nobody has seen can be appended to this command without harm.
pub(super) fn tolerates_any_argument(words: &[Word]) -> bool {
    words
        .first()
        .and_then(Word::plain_text)
        .and_then(program)
        .is_some_and(|program| {
            program.harmless_flags
                && program
                    .operands
                    .iter()
                    .all(|operand| operand.kind != Kind::Read)
        })
}

/// The name of every program in the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    table().keys().map(String::as_str)
}

fn program(name: &str) -> Option<&'static Program> {
    let table = table();
    let program = table.get(name)?;
    match &program.same_as {
        Some(other) => table.get(other),
        None => Some(program),
    }
}

fn table() -> &'static BTreeMap<String, Program> {
    static PARSED: OnceLock<BTreeMap<String, Program>> = OnceLock::new();
    // A table that cannot be read proves nothing; a test holds that it can.
    PARSED.get_or_init(|| read_table(TABLE).unwrap_or_default())
}

fn read_table(text: &str) -> Result<BTreeMap<String, Program>, toml::de::Error> {
    let file: File = toml::from_str(text)?;
    Ok(file
        .programs
        .iter()
        .map(|(name, row)| (name.clone(), Program::of(row, &file.group)))
        .collect())
}

#[derive(Deserialize)]
struct File {
    group: HashMap<String, String>,
    #[serde(flatten)]
    programs: BTreeMap<String, Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    #[serde(default)]
    flags: String,
    #[serde(default, rename = "use")]
    groups: Vec<String>,
    operands: Option<String>,
    #[serde(default)]
    first_from: String,
    #[serde(default)]
    alone: String,
    #[serde(default)]
    require: String,
    #[serde(default)]
    require_or_bare: String,
    #[serde(default)]
    operands_need: String,
    #[serde(default)]
    text_operands: String,
    #[serde(default)]
    harmless_flags: bool,
    #[serde(default)]
    needs_sandbox: bool,
    #[serde(default)]
    single_dash: bool,
    #[serde(default)]
    raw: bool,
    check: Option<Check>,
    same_as: Option<String>,
    #[serde(default)]
    sub: BTreeMap<String, Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Read,
    Metadata,
    Revision,
    /// Later relative paths start here.
    Directory,
}

impl Kind {
    fn of(word: &str) -> Self {
        match word {
            "read" => Self::Read,
            "meta" => Self::Metadata,
            "rev" => Self::Revision,
            "dir" => Self::Directory,
            _ => Self::Text,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Flag {
    Alone,
    Optional,
    Value(Kind),
    TwoValues,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Once,
    AtMostOnce,
    Any,
}

#[derive(Debug, Clone, Copy)]
struct Operand {
    kind: Kind,
    repeat: Repeat,
}

#[derive(Debug)]
struct Program {
    flags: HashMap<String, Flag>,
    numbers: bool,
    operands: Vec<Operand>,
    takes_operands: bool,
    first_from: HashSet<String>,
    alone: HashSet<String>,
    require: HashSet<String>,
    require_or_bare: HashSet<String>,
    operands_need: HashSet<String>,
    text_operands: HashSet<String>,
    harmless_flags: bool,
    needs_sandbox: bool,
    single_dash: bool,
    raw: bool,
    check: Option<Check>,
    same_as: Option<String>,
    sub: BTreeMap<String, Program>,
}

impl Program {
    fn of(row: &Row, groups: &HashMap<String, String>) -> Self {
        let set = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let mut flags = HashMap::new();
        let mut numbers = false;
        let listed = row
            .groups
            .iter()
            .filter_map(|group| groups.get(group))
            .chain(std::iter::once(&row.flags));
        for token in listed.flat_map(|list| list.split_whitespace()) {
            if token == "-NUM" {
                numbers = true;
            } else {
                read_flag(token, row.single_dash, &mut flags);
            }
        }
        let operands = row.operands.as_deref().unwrap_or_default();
        Self {
            flags,
            numbers,
            operands: operands.split_whitespace().map(read_operand).collect(),
            takes_operands: row.operands.is_some(),
            first_from: set(&row.first_from),
            alone: set(&row.alone),
            require: set(&row.require),
            require_or_bare: set(&row.require_or_bare),
            operands_need: set(&row.operands_need),
            text_operands: set(&row.text_operands),
            harmless_flags: row.harmless_flags,
            needs_sandbox: row.needs_sandbox,
            single_dash: row.single_dash,
            raw: row.raw,
            check: row.check,
            same_as: row.same_as.clone(),
            sub: row
                .sub
                .iter()
                .map(|(name, row)| (name.clone(), Self::of(row, groups)))
                .collect(),
        }
    }
}

fn read_flag(token: &str, single_dash: bool, flags: &mut HashMap<String, Flag>) {
    let (name, flag) = match token.split_once('=') {
        None => (token, Flag::Alone),
        Some((name, "?")) => (name, Flag::Optional),
        Some((name, "2")) => (name, Flag::TwoValues),
        Some((name, kind)) => (name, Flag::Value(Kind::of(kind))),
    };
    if name.starts_with("--") || single_dash {
        flags.insert(name.to_owned(), flag);
        return;
    }
    let letters: Vec<char> = name.chars().skip(1).collect();
    let last = letters.len().saturating_sub(1);
    for (index, letter) in letters.into_iter().enumerate() {
        let flag = if index == last { flag } else { Flag::Alone };
        flags.insert(format!("-{letter}"), flag);
    }
}

fn read_operand(token: &str) -> Operand {
    let (name, repeat) = match token.strip_suffix('*') {
        Some(name) => (name, Repeat::Any),
        None => match token.strip_suffix('?') {
            Some(name) => (name, Repeat::AtMostOnce),
            None => (token, Repeat::Once),
        },
    };
    Operand {
        kind: Kind::of(name),
        repeat,
    }
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
}

impl Arguments {
    fn judge(&mut self, program: &Program, words: &[Word]) -> Result<(), String> {
        if program.raw {
            return self.judge_raw(program, words);
        }
        let mut operands: Vec<Operand> = program.operands.clone();
        let mut options_end = false;
        let mut at = 0;
        let mut had_operands = false;
        let mut is_first = true;
        while let Some(word) = words.get(at) {
            at += 1;
            let text = match &word.value {
                Value::Literal { text, .. } => text.as_str(),
                Value::Glob { pattern } => {
                    let starts_safely = !pattern.starts_with(['-', '*', '?', '[', '\\']);
                    if !(program.harmless_flags || starts_safely) {
                        return Err(format!("a glob could become a flag of `{}`", self.name));
                    }
                    // A glob may become any number of operands.
                    let Some(last) = operands.last().copied().filter(|o| o.repeat == Repeat::Any)
                    else {
                        return Err(format!("a glob does not fit `{}`", self.name));
                    };
                    let kind = if last.kind == Kind::Text {
                        Kind::Metadata
                    } else {
                        last.kind
                    };
                    self.use_path(pattern, kind, true);
                    had_operands = true;
                    continue;
                }
                Value::Dynamic { why, .. } => {
                    return Err(format!("an argument is {}", why.describe()));
                }
            };
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
                    return Err(format!("`{} {text}` is not known only to read", self.name));
                }
            }
            is_first = false;
            if program
                .first_from
                .iter()
                .any(|flag| self.seen.contains(flag))
                && !had_operands
                && operands
                    .first()
                    .is_some_and(|operand| operand.kind == Kind::Text)
            {
                operands.remove(0);
            }
            had_operands = true;
            self.operand(&mut operands, text, words.len() - at)?;
        }
        self.judge_presence(program, had_operands)?;
        match program.check {
            Some(check) => check.holds(self),
            None => Ok(()),
        }
    }

    fn judge_raw(&mut self, program: &Program, words: &[Word]) -> Result<(), String> {
        for word in words {
            match &word.value {
                Value::Literal { text, .. } => self.texts.push(text.clone()),
                Value::Glob { pattern } if program.harmless_flags => {
                    self.use_path(pattern, Kind::Metadata, true);
                }
                Value::Glob { .. } => {
                    return Err(format!("a glob does not fit `{}`", self.name));
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
            return Err(format!("`{name}` without a sub-command is not known"));
        }
        if !program.require.is_empty() && !any(&program.require) {
            return Err(format!("`{name}` is only known to read with certain flags"));
        }
        let bare = self.seen.is_empty() && !had_operands;
        if !program.require_or_bare.is_empty() && !bare && !any(&program.require_or_bare) {
            return Err(format!("`{name}` may change something here"));
        }
        if had_operands && !program.operands_need.is_empty() && !any(&program.operands_need) {
            return Err(format!("`{name}` with a name may change something"));
        }
        Ok(())
    }

    /// Judges one flag and returns how many of the following words it takes.
    fn flag(&mut self, program: &Program, text: &str, next: &[Word]) -> Result<usize, String> {
        let unknown = || format!("the flag `{text}` of `{}` is not on the list", self.name);
        if program.numbers && text.get(1..).is_some_and(is_number) {
            self.seen.insert("-NUM".to_owned());
            return Ok(0);
        }
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) if text.starts_with("--") => (name, Some(value)),
            _ => (text, None),
        };
        if text.starts_with("--") || program.single_dash {
            let flag = *program.flags.get(name).ok_or_else(unknown)?;
            return self.flag_value(name, flag, attached, next);
        }
        // A bundle of short flags; one with a value takes the rest of the word.
        for (offset, letter) in text.char_indices().skip(1) {
            let name = format!("-{letter}");
            let flag = *program.flags.get(&name).ok_or_else(unknown)?;
            match flag {
                Flag::Alone | Flag::Optional => {
                    self.seen.insert(name);
                }
                Flag::Value(_) | Flag::TwoValues => {
                    let rest = text
                        .get(offset + letter.len_utf8()..)
                        .filter(|rest| !rest.is_empty());
                    return self.flag_value(&name, flag, rest, next);
                }
            }
        }
        Ok(0)
    }

    fn flag_value(
        &mut self,
        name: &str,
        flag: Flag,
        attached: Option<&str>,
        next: &[Word],
    ) -> Result<usize, String> {
        self.seen.insert(name.to_owned());
        let missing = || format!("the flag `{name}` of `{}` has no plain value", self.name);
        match (flag, attached) {
            (Flag::Alone, None) | (Flag::Optional, _) => Ok(0),
            (Flag::Alone, Some(_)) => Err(format!("the flag `{name}` takes no value")),
            (Flag::Value(kind), Some(value)) => {
                self.value(name, kind, value);
                Ok(0)
            }
            (Flag::Value(kind), None) => {
                let value = next.first().and_then(Word::text).ok_or_else(missing)?;
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
            return Err(format!("`{}` has an operand too many", self.name));
        };
        if operand.repeat != Repeat::Any {
            operands.remove(0);
        }
        if operand.kind == Kind::Text {
            self.texts.push(text.to_owned());
        } else {
            self.use_path(text, operand.kind, false);
        }
        Ok(())
    }

    fn use_path(&mut self, text: &str, kind: Kind, is_glob: bool) {
        // A lone dash is standard input.
        if text == "-" {
            return;
        }
        let usage = match kind {
            Kind::Read => Use::Content,
            Kind::Revision => Use::Revision,
            Kind::Metadata | Kind::Directory | Kind::Text => Use::Metadata,
        };
        self.reading.paths.push(PathUse {
            text: text.to_owned(),
            is_glob,
            usage,
            directories: self.directories.clone(),
        });
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        let table = read_table(TABLE).unwrap();
        assert!(table.len() > 90, "{}", table.len());
        for program in table.values() {
            if let Some(other) = &program.same_as {
                assert!(table[other].same_as.is_none(), "{other}");
            }
        }
    }

    fn check(command: &str, expected: bool) {
        let words: Vec<Word> = command.split(' ').map(Word::literal).collect();
        let judged = judge(&words, &Directories::Unknown);
        assert_eq!(judged.is_ok(), expected, "{command}: {judged:?}");
    }

    #[test]
    fn flags_and_operands_decide() {
        for command in [
            "ls -lah crates",
            "head -30 a.rs",
            "head -n 5 a",
            "tail -n50 a",
            "git status -sb",
            "git branch -vv",
            "git branch",
            "git branch --list x*",
            "git log -n 5 --format=%s",
            "git -C sub log",
            "git stash list",
            "git reflog",
            "git show HEAD~2 -- a",
            "git cat-file -p HEAD",
            "find . -name x -o -type f",
            "sort -k 2 a",
            "uniq -c a",
            "grep -rn x a b",
            "grep -e x a",
            "python3 -V",
            "npm ls --depth=0",
            "cargo metadata --no-deps --format-version 1",
            "date +%s",
        ] {
            check(command, true);
        }
        for command in [
            "git branch x",
            "git branch -D x",
            "git branch -m x",
            "git tag v1",
            "git stash",
            "git stash pop",
            "git reflog expire",
            "git -c a=b status",
            "git remote add x y",
            "git config a b",
            "git",
            "find . -delete",
            "find . -exec rm {} ;",
            "find . -fprint x",
            "sort -o a b",
            "sort --output=a b",
            "uniq a b",
            "xxd -r a",
            "xxd a b",
            "rg --pre x y",
            "python3 x.py",
            "python3",
            "npm test",
            "npm",
            "date -s x",
            "date 12312359",
            "node",
            "tail -f a",
        ] {
            check(command, false);
        }
    }
}
