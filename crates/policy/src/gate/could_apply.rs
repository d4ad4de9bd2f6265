//! What a deny rule or a circuit breaker holds back because it could not be excluded.
//!
//! Here nothing is known to run: the candidates are every list of words that a script which is not understood, or
//! code that it hands over, may make a command of.

use super::breakers::{Tripped, tripped_by};
use super::command_facts::shown;
use super::facts::Facts;
use super::rule::Bases;
use super::words::{WordPattern, base_name};
use crate::shell::word::Word;
use crate::shell::{Candidates, Command, Directories, Operands, empty_command};

/// The first candidate that a rule may speak about, or its words in other places.
pub(super) fn candidate_of(pattern: &WordPattern, candidates: &Candidates) -> Option<String> {
    let mut commands = candidates.commands(|name| pattern.may_name(name));
    let found = commands.find(|words| pattern.may_find(words));
    found.map(|words| shown(&words)).or_else(|| {
        let is_scattered = pattern.is_scattered_over(|| candidates.names());
        is_scattered.then(|| pattern.to_string())
    })
}

/// What the candidates would trip. That they run is not known, so none is refused where somebody can be asked.
pub(super) fn may_trip(candidates: &Candidates, bases: &Bases, facts: &dyn Facts) -> Vec<Tripped> {
    let mut found = Vec::new();
    for words in candidates.commands(|name| is_watched(base_name(name))) {
        let command = candidate(words, candidates);
        found.extend(
            tripped_by(&command, bases, facts)
                .into_iter()
                .filter_map(unsure),
        );
    }
    found.extend(scattered(candidates, bases, facts));
    found.extend(scattered_device(candidates, bases, facts));
    found.extend(scattered_git(candidates, bases, facts));
    if candidates.takes_input == Some(Operands::Elsewhere) {
        found.push(Tripped::Unclear(
            "`rm` gets words that are not known until it runs".to_owned(),
        ));
    }
    found.dedup();
    found
}

fn candidate(words: Vec<Word>, candidates: &Candidates) -> Command {
    Command {
        words,
        ..empty_command(Directories::Known(candidates.directories.clone()))
    }
}

/// What is certain of a command may be so of a candidate; what is unclear of one says nothing.
fn unsure(tripped: Tripped) -> Option<Tripped> {
    match tripped {
        Tripped::Deny(why) => Some(Tripped::Unclear(format!("its text may be run as {why}"))),
        Tripped::Ask(why) => Some(Tripped::Ask(format!("its text may be run: {why}"))),
        Tripped::Unclear(_) => None,
    }
}

/// Names of programs that breakers look at.
fn is_watched(name: &str) -> bool {
    const WATCHED: &[&str] = &[
        "rm",
        "srm",
        "rimraf",
        "trash",
        "trash-put",
        "del-cli",
        "gio",
        "shred",
        "unlink",
        "truncate",
        "find",
        "fd",
        "fdfind",
        "rsync",
        "mv",
        "chmod",
        "chown",
        "chgrp",
        "dd",
        "git",
        "wipefs",
        "mkswap",
        "mke2fs",
        "newfs",
        "blkdiscard",
        "tee",
        "cp",
        "python",
        "python3",
        "perl",
        "ruby",
        "node",
    ];
    WATCHED.contains(&name) || name.starts_with("mkfs")
}

/// `echo -rf / | xargs rm`, `x=rm; y=/; $x -rf $y`: the parts of a recursive delete, which only come together when
/// it runs.
fn scattered(candidates: &Candidates, bases: &Bases, facts: &dyn Facts) -> Option<Tripped> {
    let recursive = |word: &str| {
        word.starts_with("--rec")
            || (word.starts_with('-') && !word.starts_with("--") && word.contains(['r', 'R']))
    };
    let words = || candidates.lists.iter().flatten().map(String::as_str);
    let names = |programs: &[&str]| words().any(|word| programs.contains(&base_name(word)));
    let needs_no_flag = names(&["rimraf", "trash", "trash-put", "del-cli"]);
    let flag = words().find(|word| recursive(word));
    let flag = flag.or(needs_no_flag.then_some("-r"))?;
    let has_deleter = needs_no_flag || candidates.takes_input.is_some() || names(&["rm", "srm"]);
    // A program that is not known may be one that deletes.
    let unknown = candidates
        .lists
        .iter()
        .filter(|_| candidates.indirect.is_some());
    let behind_flag = unknown.flat_map(|list| {
        list.windows(2).filter_map(|pair| match pair {
            [flag, path] if recursive(flag) => Some(path.as_str()),
            _ => None,
        })
    });
    // Where a script goes is not what it deletes.
    let operands = candidates.lists.iter().flat_map(|list| {
        let goes = |at: usize| {
            matches!(
                list.get(at).map(String::as_str),
                Some("cd" | "pushd" | "-C")
            )
        };
        let words = list.iter().enumerate();
        words
            .filter(move |(at, _)| !at.checked_sub(1).is_some_and(goes))
            .map(|(_, word)| word.as_str())
    });
    let anywhere = operands.filter(|_| has_deleter);
    let paths: Vec<Word> = behind_flag
        .chain(anywhere)
        .filter(|word| word.starts_with('/'))
        .map(Word::sketched)
        .collect();
    paths.into_iter().find_map(|path| {
        let words = vec![Word::literal("rm"), Word::literal(flag), path];
        let command = candidate(words, candidates);
        tripped_by(&command, bases, facts)
            .into_iter()
            .find_map(unsure)
    })
}

/// `echo of=/dev/sda | xargs dd`
fn scattered_device(candidates: &Candidates, bases: &Bases, facts: &dyn Facts) -> Option<Tripped> {
    let copies =
        candidates.takes_input.is_some() || candidates.names().any(|name| base_name(&name) == "dd");
    if !copies {
        return None;
    }
    let words = candidates.lists.iter().flatten();
    let devices = words.map(|word| word.strip_prefix("of=").unwrap_or(word));
    let mut devices = devices.filter(|word| word.starts_with("/dev/"));
    devices.find_map(|device| {
        let words = vec![Word::literal("dd"), Word::sketched(format!("of={device}"))];
        let command = candidate(words, candidates);
        tripped_by(&command, bases, facts)
            .into_iter()
            .find_map(unsure)
    })
}

/// `set -- reset --hard; git "$@"`: a sub-command that stands elsewhere than behind its program.
fn scattered_git(candidates: &Candidates, bases: &Bases, facts: &dyn Facts) -> Option<Tripped> {
    let is_last = |words: &Vec<Word>| words.get(1).is_none_or(|word| word.text().is_none());
    let mut commands = candidates.commands(|name| base_name(name) == "git");
    let is_split = |words| candidates.renames || is_last(&words);
    if candidates.takes_input.is_none() && !commands.any(is_split) {
        return None;
    }
    candidates.commands(|_| true).find_map(|words| {
        let mut command = vec![Word::literal("git")];
        command.extend(words);
        let command = candidate(command, candidates);
        tripped_by(&command, bases, facts)
            .into_iter()
            .find_map(unsure)
    })
}
