//! Circuit breakers: what no mode and no rule lets through.
//!
//! They look at everything detection found, whatever syntax it stood in, and would rather trip once too
//! often on something nobody needs. One file per kind of damage: whole trees, devices, git, bombs.

mod bombs;
mod devices;
mod git;
mod trees;

use super::command_facts::found_commands;
use super::facts::Facts;
use super::rule::Bases;
use super::words::{base_name, without_global_options};
use crate::shell::word::Word;
use crate::shell::{Analysis, Command, Place};

/// A breaker that tripped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tripped {
    /// Not in any mode.
    Deny(String),
    /// A person has to look, in every mode.
    Ask(String),
    /// It may be what no mode does, which only shows when it runs: a person has to look, and where nobody is
    /// asked it is refused.
    Unclear(String),
}

/// All breakers that trip on a script.
pub(super) fn tripped(analysis: &Analysis, bases: &Bases, facts: &dyn Facts) -> Vec<Tripped> {
    let mut found = bombs::of_script(analysis);
    let ground = Ground { bases, facts };
    for command in found_commands(analysis) {
        found.extend(devices::of_redirects(command, &ground));
        let mut words = without_global_options(&command.words);
        if takes_arguments_from_input(command, analysis) {
            words.push(Word::unknown());
        }
        let Some(name) = words.first().map(Word::sketch) else {
            continue;
        };
        let act = Act {
            name: base_name(name),
            arguments: words.iter().skip(1).collect(),
            command,
        };
        found.extend(trees::of_unknown_program(&act, &ground));
        found.extend(of_act(&act, &ground));
    }
    found.extend(trees::of_pipelines(analysis, &ground));
    found.dedup();
    found
}

/// The breakers that one command trips by its words.
pub(super) fn tripped_by(command: &Command, bases: &Bases, facts: &dyn Facts) -> Vec<Tripped> {
    let ground = Ground { bases, facts };
    let words = without_global_options(&command.words);
    let Some(name) = words.first().map(Word::sketch) else {
        return Vec::new();
    };
    let act = Act {
        name: base_name(name),
        arguments: words.iter().skip(1).collect(),
        command,
    };
    of_act(&act, &ground).collect()
}

fn of_act(act: &Act<'_>, ground: &Ground<'_>) -> impl Iterator<Item = Tripped> + use<> {
    [
        devices::of_command(act, ground),
        trees::of_command(act, ground),
        git::of_command(act, ground),
        bombs::of_command(act),
    ]
    .into_iter()
    .flatten()
}

/// Where the script would run.
struct Ground<'a> {
    bases: &'a Bases,
    facts: &'a dyn Facts,
}

/// One command: its program without a path, and what follows.
struct Act<'a> {
    name: &'a str,
    arguments: Vec<&'a Word>,
    command: &'a Command,
}

impl Act<'_> {
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|word| word.sketch())
    }

    /// A short flag, alone or in a bundle.
    fn short(&self, letter: char) -> bool {
        self.texts()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    }

    /// A long flag, also cut short or with a value, as programs accept it.
    fn long(&self, name: &str) -> bool {
        self.texts().any(|word| {
            word.strip_prefix("--").is_some_and(|flag| {
                let flag = flag.split('=').next().unwrap_or(flag);
                flag.len() >= 2 && name.starts_with(flag)
            })
        })
    }

    /// Exactly this word.
    fn has(&self, word: &str) -> bool {
        self.texts().any(|text| text == word)
    }

    fn operands(&self) -> impl Iterator<Item = &Word> {
        self.arguments
            .iter()
            .copied()
            .filter(|word| !word.sketch().starts_with('-'))
    }
}

/// Whether words that nobody can see yet are appended when it runs. What `find` appends is known: it
/// is judged by where it starts.
fn takes_arguments_from_input(command: &Command, analysis: &Analysis) -> bool {
    let Place::Wrapped(by) = command.place else {
        return false;
    };
    let wrapper = analysis
        .commands
        .get(by)
        .and_then(|outer| outer.words.first());
    command.appended_arguments && wrapper.is_some_and(|name| base_name(name.sketch()) != "find")
}
