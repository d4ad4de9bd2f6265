//! What a question may offer as a rule, by the table: commands whose further words may vary, and programs of which no
//! rule is narrow.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::table::{OfferText, TABLE, read_offers};

/// The table's offers.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    rows: Vec<Row>,
    never: HashSet<String>,
}

/// A command of which a rule is offered.
#[derive(Debug)]
struct Row {
    /// The words each place may have.
    words: Vec<Vec<String>>,
    /// Whatever follows is covered too.
    is_open: bool,
}

/// What the table says of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offered {
    /// How many of its words say what is meant.
    pub(crate) words: usize,
    /// The others may be any.
    pub(crate) is_open: bool,
}

/// The offers of the table; none when it cannot be read, which a test rules out.
pub(crate) fn offers() -> Option<&'static Offers> {
    static PARSED: OnceLock<Option<Offers>> = OnceLock::new();
    let parsed = PARSED.get_or_init(|| Some(Offers::of(&read_offers(TABLE)?)));
    parsed.as_ref()
}

impl Offers {
    fn of(text: &OfferText) -> Self {
        let row = |line: &str| {
            let mut words: Vec<Vec<String>> = line
                .split_whitespace()
                .map(|word| word.split('|').map(str::to_owned).collect())
                .collect();
            let is_open = words.pop_if(|last| *last == ["*"]).is_some();
            Row { words, is_open }
        };
        Self {
            rows: text
                .rules
                .lines()
                .map(row)
                .filter(|row| !row.words.is_empty())
                .collect(),
            never: text.never.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// What to offer of a command with these words.
    pub(crate) fn of_command(&self, words: &[String]) -> Option<Offered> {
        let row = self.rows.iter().find(|row| row.fits(words))?;
        Some(Offered {
            words: row.words.len(),
            is_open: row.is_open,
        })
    }

    /// True of a program that does whatever it is told. `python3.12` does as much as `python`.
    pub(crate) fn never(&self, program: &str) -> bool {
        let name = program.rsplit('/').next().unwrap_or(program);
        let is_version = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
        self.never.contains(name) || self.never.contains(name.trim_end_matches(is_version))
    }
}

impl Row {
    fn fits(&self, words: &[String]) -> bool {
        let has_all = match self.is_open {
            true => words.len() >= self.words.len(),
            false => words.len() == self.words.len(),
        };
        let fits = |(choices, word): (&Vec<String>, &String)| {
            choices.contains(word)
                || (choices.iter().any(|choice| choice == "?")
                    && is_spelt(word)
                    && !word.starts_with('-'))
        };
        has_all && self.words.iter().zip(words).all(fits)
    }
}

/// True of a word that a pattern can spell: nothing in it is quoted, a star, or a sign of the shell.
pub(crate) fn is_spelt(word: &str) -> bool {
    !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "*()'\"\\$;|&<>`".contains(c))
}
