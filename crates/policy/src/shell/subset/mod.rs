//! The small language: the part of bash of which something may be proven.
//!
//! A second reading of all of bash would differ from bash somewhere, so a proof needs none. [`read`] knows a
//! language that is defined here completely, and whatever is not in it is [`Outside`] of it, with the construct
//! and the place named. A differential test holds that bash reads these scripts the same way.
//!
//! ```text
//! script      = list
//! list        = chain { (";" | newline) chain }
//! chain       = pipeline { ("&&" | "||") pipeline }
//! pipeline    = ["time"] ["!"] command { "|" command }
//! command     = simple | "(" list ")" | for | while | if, the last four with redirections behind them
//! for         = "for" NAME "in" { word } separator "do" list "done"
//! while       = "while" list "do" list "done"
//! if          = "if" list "then" list { "elif" list "then" list } ["else" list] "fi"
//! simple      = { NAME=word } { word | redirection }
//! redirection = [1|2] ">" word | [1|2] ">>" word | "&>" word | "&>>" word | [1|2] ">&" (1|2) | "<" word
//!             | "<<<" word | "<<" name, where a body under an unquoted name holds no "$", "`" or "\"
//! word        = plain characters, '…', "…", \x, * and ?, ~ and ~/ in front, $NAME, ${NAME}, $?, $(list),
//!               {}, {name} and @{name}; a here-document in $(list) only as $(cat <<name), and not inside another
//! comment     = "#" where a word could begin, to the end of the line
//! blank       = space, tab
//! ```
//!
//! Not in it, among all else: other braces, `$'…'`, `$"…"`, brackets but for the program `[`, backticks,
//! arithmetic, operators in `${…}`, arrays and subscripts, `[[`, `case`, functions, groups, `&`, `<&`, process
//! substitution, a backslash at the end of a line.

mod flow;
mod names;
mod reader;
mod sites;
mod value;
mod words;

use std::fmt;

pub(super) use flow::commands;
pub use reader::read;

/// A script of the small language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script(pub(super) List);

/// Chains, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List(pub(super) Vec<Chain>);

impl List {
    /// The document, when the list is nothing but `cat` with one.
    fn document(&self) -> Option<usize> {
        let [Chain { first, rest }] = self.0.as_slice() else {
            return None;
        };
        let [node] = first.nodes.as_slice() else {
            return None;
        };
        let Kind::Simple { assignments, words } = &node.kind else {
            return None;
        };
        let [
            Redirection {
                target: Target::Document(index),
            },
        ] = node.redirections.as_slice()
        else {
            return None;
        };
        let is_cat = matches!(words.as_slice(), [word] if word.source == "cat");
        (is_cat && assignments.is_empty() && rest.is_empty() && !first.negated).then_some(*index)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) first: Pipeline,
    pub(super) rest: Vec<(Link, Pipeline)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    And,
    Or,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub(super) negated: bool,
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) redirections: Vec<Redirection>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Simple {
        assignments: Vec<(String, Text)>,
        words: Vec<Text>,
    },
    Subshell(List),
    For {
        name: String,
        values: Vec<Text>,
        body: List,
    },
    While {
        condition: List,
        body: List,
    },
    If {
        branches: Vec<(List, List)>,
        otherwise: Option<List>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirection {
    pub(super) target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Read(Text),
    Write(Text),
    Duplicate(u8),
    HereString(Text),
    /// A document, by its place among those of the script.
    Document(usize),
}

/// A word as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) source: String,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Characters without quotes.
    Plain(String),
    /// Characters in quotes or behind a backslash.
    Quoted(String),
    /// `*`
    Star,
    /// `?`
    Question,
    /// `~` in front
    Home,
    Variable {
        name: String,
        quoted: bool,
    },
    /// `$(…)`
    Output {
        list: List,
        quoted: bool,
    },
    /// `$?`
    ExitCode,
}

/// The reason a script is not in the small language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// A noun phrase: the construct.
    pub construct: &'static str,
    /// Its place in bytes.
    pub at: usize,
}

impl fmt::Display for Outside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "it has {} at byte {}, which is not analysed",
            self.construct, self.at
        )
    }
}

/// A script that was read, with the documents that stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub(super) script: Script,
    pub(super) documents: Vec<String>,
}

#[cfg(test)]
mod tests;
