//! Every control command has a sender among the front ends, or is named here with what it waits for.

#![allow(clippy::unwrap_used, clippy::panic)] // a failure is the report

use std::fs;
use std::path::Path;

use agent_protocol::command::ControlCommand;

/// Commands that no front end of ours sends yet.
const AWAITED: &[(&[&str], &str)] = &[(
    &[
        "get_session",
        "get_thread_read",
        "get_execution_environment",
        "evaluate_permission",
        "export_replay",
        "export_evidence",
        "export_review",
    ],
    "peers in other processes: editors and sockets",
)];

#[test]
fn every_command_has_a_sender_or_a_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut source = String::new();
    for front_end in ["cli/src", "tui/src"] {
        read_sources(&crates.join(front_end), &mut source);
    }
    let mut wrong = Vec::new();
    for name in ControlCommand::NAMES {
        let is_awaited = AWAITED.iter().any(|(names, _)| names.contains(name));
        if is_sent(name, &source) == is_awaited {
            wrong.push(*name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let known = |name: &&str| ControlCommand::NAMES.contains(name);
    assert!(AWAITED.iter().all(|(names, _)| names.iter().all(known)));
}

/// Each command is sent to a session by a test of the runtime or of a front end of its own.
#[test]
fn every_command_has_a_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut source = String::new();
    read_sources(&crates.join("runtime/tests"), &mut source);
    read_sources(&crates.join("../tests/front_end"), &mut source);
    let untried: Vec<_> = ControlCommand::NAMES
        .iter()
        .filter(|name| !is_sent(name, &source))
        .collect();
    assert!(untried.is_empty(), "{untried:?}");
}

/// True if `source` makes the command of this method name.
fn is_sent(name: &str, source: &str) -> bool {
    let words = name
        .split('_')
        .map(|word| word[..1].to_uppercase() + &word[1..]);
    let variant = format!("ControlCommand::{}", words.collect::<String>());
    source.match_indices(&variant).any(|(at, _)| {
        let after = source[at + variant.len()..].chars().next();
        !after.is_some_and(char::is_alphanumeric)
    })
}

fn read_sources(directory: &Path, source: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, source);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            source.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
