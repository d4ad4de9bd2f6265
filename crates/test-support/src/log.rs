//! A second opinion on a log: what the design promises of every line, checked without the code
//! that writes and reads logs.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agent_protocol::EventType;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The most bytes a line may have.
const MOST_BYTES: usize = 65_536;

/// Checks the log of a session directory and returns its events.
///
/// # Panics
/// With everything that is wrong, when anything is.
#[track_caller]
#[must_use]
pub fn check(directory: &Path) -> Vec<Value> {
    let path = directory.join("events.jsonl");
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut problems = Vec::new();
    if !bytes.ends_with(b"\n") {
        problems.push("the last line has no end".to_owned());
    }
    let lines: Vec<&[u8]> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
        .collect();
    let session_id = directory
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let mut prev = named_hash(session_id.as_bytes());
    let mut events: Vec<Value> = Vec::new();
    let mut event_ids = HashSet::new();
    for (index, line) in lines.iter().enumerate() {
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        let mut found = envelope(&event, session_id);
        if event["sequence"] != index {
            found.push(format!("its sequence is {}", event["sequence"]));
        }
        if event["prev"] != prev.as_str() {
            found.push("`prev` is not the hash of the line before".into());
        }
        if line.len() > MOST_BYTES {
            found.push(format!("it has {} bytes", line.len()));
        }
        if !event_ids.insert(event["event_id"].to_string()) {
            found.push("its event id is not its own".into());
        }
        let class = event["type"].as_str().unwrap_or("?").to_owned();
        let place = |problem| format!("event {index}, {class}: {problem}");
        problems.extend(found.into_iter().map(place));
        prev = named_hash(line);
        events.push(event);
    }
    if events
        .first()
        .is_none_or(|first| first["type"] != "session.created")
    {
        problems.push("the first event is not `session.created`".into());
    }
    problems.extend(calls(&events));
    problems.extend(turns(&events));
    problems.extend(artifacts(&events, directory));
    problems.extend(modes(directory));
    assert!(problems.is_empty(), "{}: {problems:#?}", path.display());
    events
}

fn named_hash(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// Problems with the fields that every event has, and with those of its class.
fn envelope(event: &Value, session_id: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let class = event["type"].as_str().unwrap_or_default();
    if EventType::from_name(class).is_none() {
        problems.push("no such class".to_owned());
    }
    if event["schema_version"] != "1" || event["session_id"] != session_id {
        problems.push("another version or session".into());
    }
    let starts = |name: &str, prefix: &str| {
        event[name]
            .as_str()
            .is_some_and(|id| id.starts_with(prefix))
    };
    if !starts("event_id", "ev_") || !starts("runtime_id", "rt_") {
        problems.push("an id is missing or of another kind".into());
    }
    let timestamp = event["timestamp"].as_str().unwrap_or_default();
    let digits = timestamp.bytes().filter(u8::is_ascii_digit).count();
    if !(timestamp.len() == 24 && timestamp.ends_with('Z') && digits == 17) {
        problems.push(format!("its timestamp is {timestamp:?}"));
    }
    if !event["payload"].is_object() {
        problems.push("its payload is no object".into());
    }
    let is_id = |value: &Value| value.as_str().is_some_and(|id| !id.is_empty());
    let is_target =
        |value: &Value| is_id(value) || value.as_array().is_some_and(|ids| ids.iter().all(is_id));
    if !event["refs"]
        .as_object()
        .is_some_and(|refs| refs.values().all(is_target))
    {
        problems.push("`refs` is not an object of ids".into());
    }
    if event["run_id"] != event["attempt_id"] {
        problems.push("`run_id` and `attempt_id` differ".into());
    }
    let native = match class {
        "tool.started" => Some("tool.invocation.started"),
        "tool.result" => Some("tool.invocation.completed"),
        "tool.failed" if event["payload"]["invocation_id"].is_string() => {
            Some("tool.invocation.completed")
        }
        "permission.evaluated" => Some("tool.permission"),
        _ => None,
    };
    if event["native_type"].as_str() != native {
        problems.push(format!("its native type is {}", event["native_type"]));
    }
    for name in belongs_to(class) {
        if !event[name].is_string() {
            problems.push(format!("it has no `{name}`"));
        }
    }
    problems
}

/// The ids an event of this class cannot do without.
fn belongs_to(class: &str) -> &'static [&'static str] {
    let (family, _) = class.split_once('.').unwrap_or((class, ""));
    match (family, class) {
        (_, "tool.catalog.resolved") => &["thread_id", "step_id"],
        ("tool", _) => &["thread_id", "turn_id", "step_id", "tool_call_id"],
        (_, "permission.evaluated") | ("sandbox", _) => &["thread_id", "turn_id", "tool_call_id"],
        ("permission" | "action", _) => &["thread_id", "turn_id", "tool_call_id", "action_id"],
        ("turn", _) => &["thread_id", "turn_id"],
        ("model" | "thread" | "context", _) => &["thread_id"],
        (_, "process.failed") => &["tool_call_id"],
        ("process", _) => &["process_id"],
        _ => &[],
    }
}

/// One end and one observation for every call, in this order; a start if and only if it ran.
fn calls(events: &[Value]) -> Vec<String> {
    let mut calls: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in events {
        if let Some(id) = event["tool_call_id"].as_str() {
            calls.entry(id).or_default().push(event);
        }
    }
    let mut problems = Vec::new();
    for (id, events) in calls {
        let count = |wanted: &[&str]| {
            let is_wanted =
                |event: &&&Value| wanted.contains(&event["type"].as_str().unwrap_or(""));
            events.iter().filter(is_wanted).count()
        };
        let ends = count(&["tool.result", "tool.failed"]);
        let observations = count(&["tool.observation"]);
        if (ends, observations) != (1, 1) || events[0]["type"] != "tool.intent" {
            problems.push(format!(
                "call {id}: {ends} ends, {observations} observations"
            ));
        }
        let phase = |event: &&&Value| event["type"] == "tool.observation";
        let phase = events
            .iter()
            .find(phase)
            .map(|event| &event["payload"]["phase"]);
        let ran = phase.and_then(Value::as_str).is_some_and(|phase| {
            !["lookup", "validate", "permission", "schedule"].contains(&phase)
        });
        if ran != (count(&["tool.started"]) == 1) {
            problems.push(format!("call {id}: it ended in phase {phase:?}"));
        }
    }
    problems
}

/// Every turn is submitted once and ends once.
fn turns(events: &[Value]) -> Vec<String> {
    let mut turns: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for event in events {
        if let Some(id) = event["turn_id"].as_str() {
            let turn = turns.entry(id).or_default();
            match event["type"].as_str() {
                Some("turn.submitted") => turn.0 += 1,
                Some("turn.completed" | "turn.failed") => turn.1 += 1,
                _ => {}
            }
        }
    }
    let wrong = turns.into_iter().filter(|(_, counts)| *counts != (1, 1));
    wrong
        .map(|(id, (submitted, ended))| {
            format!("turn {id}: submitted {submitted}, ended {ended} times")
        })
        .collect()
}

/// Problems with artifacts: each one an event names exists and matches its hash, unless it expired.
fn artifacts(events: &[Value], directory: &Path) -> Vec<String> {
    let expired = |id: &Value| {
        let is_it = |event: &Value| {
            event["type"] == "output.expired" && event["payload"]["artifact_id"] == *id
        };
        events.iter().any(is_it)
    };
    let mut problems = Vec::new();
    for event in events {
        let id = &event["payload"]["artifact_id"];
        if event["type"] != "artifact.changed" || expired(id) {
            continue;
        }
        let hex = id
            .as_str()
            .and_then(|id| id.strip_prefix("sha256:"))
            .unwrap_or("?");
        match fs::read(directory.join("artifacts").join(hex)) {
            Ok(bytes)
                if *id == named_hash(&bytes).as_str()
                    && event["payload"]["bytes"] == bytes.len() => {}
            Ok(_) => problems.push(format!("artifact {id} is not what its name says")),
            Err(error) => problems.push(format!("artifact {id}: {error}")),
        }
    }
    problems
}

/// Directories are 0700, files 0600.
fn modes(directory: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let facts = fs::symlink_metadata(&path).expect("what was listed");
        let mode = facts.permissions().mode() & 0o7777;
        if mode != if facts.is_dir() { 0o700 } else { 0o600 } {
            problems.push(format!("{} has mode {mode:o}", path.display()));
        }
        if facts.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory of ours");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    problems
}
