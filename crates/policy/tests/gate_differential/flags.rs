//! The table of reading programs against the programs themselves: each flag it lists, and each value such a flag may have,
//! is given to the program and watched. A flag that writes, starts something or connects is a wrong row; so is one whose
//! value the table calls text and the program opens as a file.
//!
//! Flags that several subcommands share are given to the first of them; `AGENT_FLAGS=all` gives them to each.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Scratch, can_trace, complaints, needs_sandbox, proven, scratch, trace};

/// Programs that are here on most machines; of the others the rows are taken on trust.
const REQUIRED: &[&str] = &[
    "git", "find", "sed", "awk", "grep", "sort", "ls", "tar", "diff",
];

/// A file of the project whose name stands where the table expects text.
const VALUE: &str = "zz-value";

/// Operands that are tried until the gate proves one set; together they fit nearly every program.
const OPERANDS: &[&str] = &[
    "a.txt",
    "",
    "x a.txt",
    "HEAD",
    ".",
    "p a.txt",
    "'{print}' a.txt",
    "a b",
    "-t a.txt",
    "-l a.txt",
    "x",
    "HEAD a.txt",
    "--list",
    "-l",
    "1",
    "-tf a.txt",
    "-d a.txt",
    "-c a.txt",
    "status",
    "+%s",
];

/// Programs whose trace is of a kind of its own: shell builtins and what is written into the script.
const NOT_STARTED: &[&str] = &[
    ":", "[", "test", "exit", "type", "help", "ulimit", "sleep", "echo", "printf", "true", "false",
];

struct Row {
    /// The program and its subcommands.
    words: String,
    flag: Flag,
}

struct Flag {
    name: String,
    takes: Takes,
    /// The table says that the value is no path.
    is_text: bool,
}

#[derive(PartialEq)]
enum Takes {
    Nothing,
    Maybe,
    Value,
}

/// The table, read here by itself.
fn rows() -> Vec<Row> {
    let text = include_str!("../../src/shell/programs.toml");
    let table: toml::Table = text.parse().unwrap();
    let groups = &table["group"];
    let all = std::env::var_os("AGENT_FLAGS").is_some_and(|value| value == "all");
    let mut rows = Vec::new();
    for (name, program) in &table {
        if name != "group" && !NOT_STARTED.contains(&name.as_str()) {
            let mut shared = Shared {
                groups,
                all,
                given: HashSet::new(),
            };
            rows_of(name, program, &mut shared, &mut rows);
        }
    }
    rows
}

/// Groups of flags, and those that some subcommand of this program had already.
struct Shared<'a> {
    groups: &'a toml::Value,
    all: bool,
    given: HashSet<String>,
}

fn rows_of(words: &str, program: &toml::Value, shared: &mut Shared<'_>, rows: &mut Vec<Row>) {
    let mut flags = program
        .get("flags")
        .and_then(toml::Value::as_str)
        .unwrap_or_default()
        .to_owned();
    for group in program
        .get("use")
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
    {
        let group = group.as_str().unwrap();
        if shared.given.insert(group.to_owned()) || shared.all {
            flags.push(' ');
            flags.push_str(shared.groups[group].as_str().unwrap());
        }
    }
    for flag in flags.split_whitespace() {
        for flag in read(flag) {
            rows.push(Row {
                words: words.to_owned(),
                flag,
            });
        }
    }
    let subs = program.get("sub").and_then(toml::Value::as_table);
    for (name, sub) in subs.into_iter().flatten() {
        rows_of(&format!("{words} {name}"), sub, shared, rows);
    }
}

fn read(flag: &str) -> Vec<Flag> {
    let (name, value) = match flag.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (flag, None),
    };
    let takes = match value {
        None => Takes::Nothing,
        Some(value) if value.starts_with('?') => Takes::Maybe,
        Some(_) => Takes::Value,
    };
    let is_text = matches!(
        value.map(|value| value.trim_start_matches('?')),
        Some("" | "text")
    );
    if name == "-NUM" {
        return vec![Flag {
            name: "-5".to_owned(),
            takes,
            is_text,
        }];
    }
    // `-abc` is three flags, and the value belongs to the last; `-name` of find is one.
    let letters = name.trim_start_matches('-');
    if name.starts_with("--") || letters.len() < 2 {
        return vec![Flag {
            name: name.to_owned(),
            takes,
            is_text,
        }];
    }
    let mut all = vec![Flag {
        name: name.to_owned(),
        takes: Takes::Nothing,
        is_text: false,
    }];
    let last = letters.chars().count() - 1;
    for (at, letter) in letters.chars().enumerate() {
        let takes = match (at == last, value) {
            (true, Some(value)) if value.starts_with('?') => Takes::Maybe,
            (true, Some(_)) => Takes::Value,
            _ => Takes::Nothing,
        };
        all.push(Flag {
            name: format!("-{letter}"),
            takes,
            is_text,
        });
    }
    all
}

/// Ways to write the flag, with the operands left out.
fn spellings(flag: &Flag) -> Vec<String> {
    let name = &flag.name;
    let long = name.starts_with("--");
    let mut found = Vec::new();
    if flag.takes != Takes::Value {
        found.push(name.clone());
    }
    if flag.takes != Takes::Nothing {
        for value in [VALUE, "1", "a.txt"] {
            found.push(if long {
                format!("{name}={value}")
            } else {
                format!("{name}{value}")
            });
            if flag.takes == Takes::Value {
                found.push(format!("{name} {value}"));
            }
        }
    }
    found
}

/// Commands with this flag that the gate proves, one for each spelling.
fn subjects(row: &Row, scratch: &Scratch) -> Vec<String> {
    let mut found = Vec::new();
    for spelling in spellings(&row.flag) {
        let subject = OPERANDS.iter().find_map(|operands| {
            [
                format!("{} {spelling} {operands}", row.words),
                format!("{} {operands} {spelling}", row.words),
            ]
            .into_iter()
            .find(|subject| proven(subject, &scratch.project, &scratch.home))
        });
        found.extend(subject);
    }
    found
}

/// The complaint about one command.
fn wrong(row: &Row, subject: &str, scratch: &Scratch) -> Option<String> {
    let sandboxed = needs_sandbox(subject, &scratch.project, &scratch.home);
    // Some wait for ever, as `tail -f` does; two seconds are enough to see what they open.
    let (_, text) = trace(subject, scratch, sandboxed, 2);
    let mut found = complaints(subject, &text, scratch, sandboxed);
    if row.flag.is_text && !row.words.starts_with("git") {
        let opened = text.lines().find(|line| {
            line.contains("open")
                && line.contains(&format!("\"{VALUE}\""))
                && !line.contains(" = -1 ")
        });
        found.extend(opened.map(|line| format!("the value is a file to the program: {line}")));
    }
    (!found.is_empty()).then(|| format!("{subject}: {}", found.join("; ")))
}

#[test]
fn each_flag_of_the_table_only_reads() {
    if !can_trace() {
        eprintln!("strace is not here: the table is taken on trust");
        return;
    }
    let scratch = scratch();
    std::fs::write(scratch.project.join(VALUE), "1\n").unwrap();
    let installed = |name: &str| {
        std::env::split_paths(&super::system_path()).any(|directory| directory.join(name).is_file())
    };
    let rows: Vec<Row> = rows()
        .into_iter()
        .filter(|row| installed(row.words.split(' ').next().unwrap()))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut found, mut tried) = (Vec::new(), BTreeMap::<String, usize>::new());
        while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            for subject in subjects(row, &scratch) {
                let name = row.words.split(' ').next().unwrap().to_owned();
                *tried.entry(name).or_default() += 1;
                found.extend(wrong(row, &subject, &scratch));
            }
        }
        (found, tried)
    };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    let (mut found, mut tried) = (Vec::new(), BTreeMap::<String, usize>::new());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in running {
            let (more, counted) = worker.join().unwrap();
            found.extend(more);
            for (name, count) in counted {
                *tried.entry(name).or_default() += count;
            }
        }
    });
    eprintln!("{} commands: {tried:?}", tried.values().sum::<usize>());
    assert!(found.is_empty(), "{}", found.join("\n"));
    for name in REQUIRED {
        assert!(
            tried.get(*name).is_some_and(|count| *count >= 5),
            "{name}: {tried:?}"
        );
    }
}
