//! `programs.toml` as values: programs with their flags and operands, and what each is used for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::shell::checks::Check;

pub(super) const TABLE: &str = include_str!("../programs.toml");
pub(super) const GRANTED: &str = include_str!("../granted.toml");

/// The row of a program, or of the one it is the same as.
pub(super) fn program(name: &str) -> Option<&'static Program> {
    let table = table();
    let program = table.get(name)?;
    match &program.same_as {
        Some(other) => table.get(other),
        None => Some(program),
    }
}

pub(super) fn table() -> &'static BTreeMap<String, Program> {
    static PARSED: OnceLock<BTreeMap<String, Program>> = OnceLock::new();
    // A table that cannot be read proves nothing; a test holds that it can.
    PARSED.get_or_init(|| read_table(TABLE).unwrap_or_default())
}

/// The row of a program that does more than read.
pub(super) fn granted(name: &str) -> Option<&'static Program> {
    static PARSED: OnceLock<BTreeMap<String, Program>> = OnceLock::new();
    let table = PARSED.get_or_init(|| read_table(GRANTED).unwrap_or_default());
    table.get(name)
}

pub(super) fn read_table(text: &str) -> Result<BTreeMap<String, Program>, toml::de::Error> {
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
    offer: Option<OfferText>,
    #[serde(flatten)]
    programs: BTreeMap<String, Row>,
}

/// What a question may offer, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfferText {
    pub(super) rules: String,
    pub(super) never: String,
}

/// The part about offers.
pub(super) fn read_offers(text: &str) -> Option<OfferText> {
    toml::from_str(text).ok().and_then(|file: File| file.offer)
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
    recurse: String,
    #[serde(default)]
    follow: String,
    #[serde(default)]
    harmless_flags: bool,
    #[serde(default)]
    any_arguments: bool,
    #[serde(default)]
    needs: BTreeMap<String, String>,
    #[serde(default)]
    needs_sandbox: bool,
    #[serde(default)]
    single_dash: bool,
    #[serde(default)]
    sure_values: bool,
    #[serde(default)]
    values_apart: bool,
    #[serde(default)]
    old_style: bool,
    #[serde(default)]
    flags_first: bool,
    #[serde(default)]
    raw: bool,
    check: Option<Check>,
    same_as: Option<String>,
    #[serde(default)]
    sub: BTreeMap<String, Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Read,
    /// Text that may be taken for a path to read.
    TextOrRead,
    Metadata,
    Revision,
    /// Later relative paths start here.
    Directory,
    /// The text after the last colon is read.
    LineRange,
}

impl Kind {
    fn of(word: &str) -> Self {
        match word {
            "read" => Self::Read,
            "either" => Self::TextOrRead,
            "meta" => Self::Metadata,
            "rev" => Self::Revision,
            "dir" => Self::Directory,
            "range" => Self::LineRange,
            _ => Self::Text,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Flag {
    Alone,
    Optional,
    Value(Kind),
    TwoValues,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Once,
    AtMostOnce,
    Any,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Operand {
    pub(super) kind: Kind,
    pub(super) repeat: Repeat,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) flags: HashMap<String, Flag>,
    pub(super) numbers: bool,
    pub(super) operands: Vec<Operand>,
    pub(super) takes_operands: bool,
    pub(super) first_from: HashSet<String>,
    pub(super) alone: HashSet<String>,
    pub(super) require: HashSet<String>,
    pub(super) require_or_bare: HashSet<String>,
    pub(super) operands_need: HashSet<String>,
    pub(super) text_operands: HashSet<String>,
    /// Flags with which everything below a directory is read; `always` for without any.
    pub(super) recurse: HashSet<String>,
    /// Flags with which symbolic links on the way are followed.
    pub(super) follow: HashSet<String>,
    pub(super) harmless_flags: bool,
    /// No argument whatever makes it show the content of a file, write or start anything.
    pub(super) any_arguments: bool,
    /// Flags that are fine only together with one of others.
    pub(super) needs: BTreeMap<String, HashSet<String>>,
    pub(super) needs_sandbox: bool,
    pub(super) single_dash: bool,
    /// The program takes the next word as a flag's value whatever it looks like.
    pub(super) sure_values: bool,
    /// A flag's value is always the next word; letters behind the flag are further flags.
    pub(super) values_apart: bool,
    /// The first word may be a bundle of flags without a dash (`tar tvf a.tar`).
    pub(super) old_style: bool,
    /// Behind an operand nothing is a flag any more.
    pub(super) flags_first: bool,
    pub(super) raw: bool,
    pub(super) check: Option<Check>,
    pub(super) same_as: Option<String>,
    pub(super) sub: BTreeMap<String, Program>,
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
            recurse: set(&row.recurse),
            follow: set(&row.follow),
            harmless_flags: row.harmless_flags,
            any_arguments: row.any_arguments,
            needs: row
                .needs
                .iter()
                .map(|(flag, others)| (flag.clone(), set(others)))
                .collect(),
            needs_sandbox: row.needs_sandbox,
            single_dash: row.single_dash,
            sure_values: row.sure_values,
            values_apart: row.values_apart,
            old_style: row.old_style,
            flags_first: row.flags_first,
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
