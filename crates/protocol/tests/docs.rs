//! The published description of the vocabulary is made from the code and kept current:
//! `AGENT_UPDATE_DOCS=1 cargo test -p agent-protocol --test docs` writes it anew.

#![allow(clippy::unwrap_used, clippy::panic)] // a test: a failure is the report

use std::fmt::Write as _;
use std::path::Path;

use agent_protocol::persistence::{Persistence, persistence};
use agent_protocol::{Code, EventType, schema};
use serde_json::Value;

#[test]
fn the_event_schema_is_current() {
    let mut text = serde_json::to_string_pretty(&schema::event_schema()).unwrap();
    text.push('\n');
    check_document("docs/schemas/event.schema.json", &text);
}

#[test]
fn the_list_of_events_is_current() {
    check_document("docs/events.md", &events_page(&schema::event_schema()));
}

#[test]
fn the_schema_compiles() {
    jsonschema::options()
        .offline()
        .build(&schema::event_schema())
        .unwrap();
}

/// Classes that exist so that other writers' logs are read, folded and exported, and that no part of
/// this program writes yet, with the reason.
const NOT_WRITTEN: &[(&[&str], &str)] = &[
    (
        &["task.", "job.", "channel."],
        "there are no task engine, jobs or channels",
    ),
    (
        &["subagent.status", "subagent.input", "subagent.closed"],
        "there are no subagents; those of imported sessions are started and return",
    ),
    (&["hook."], "there are no hooks"),
    (
        &["process.input"],
        "commands run without standard input, so that none can wait for one",
    ),
    (
        &["limit.changed"],
        "limits hold for a turn: `turn.started` has its `budget`",
    ),
    (
        &["quota.low"],
        "there is no warning before a limit: the request that would break it is `quota.blocked`",
    ),
    (
        &["runtime.error"],
        "an error that ends a turn is in its `turn.failed`, with category, code and message",
    ),
    (
        &["history.window.loaded"],
        "resuming a session reads its whole log, never a part of it",
    ),
];

fn is_not_written(class: &str) -> bool {
    let mut names = NOT_WRITTEN.iter().flat_map(|(names, _)| names.iter());
    names.any(|name| match name.ends_with('.') {
        true => class.starts_with(name),
        false => class == *name,
    })
}

/// The page says of no class that it is not written although it is, and keeps quiet about none.
#[test]
fn reserved_classes_are_exactly_those_without_a_writer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Vec::new();
    for crate_ in std::fs::read_dir(root).unwrap() {
        let directory = crate_.unwrap().path();
        if !directory.ends_with("protocol") && !directory.ends_with("test-support") {
            let mut source = String::new();
            read_sources(&directory.join("src"), &mut source);
            sources.push(source);
        }
    }
    let mut wrong = Vec::new();
    for class in EventType::ALL {
        let payload = format!("{class:?}");
        // A crate may have a type of its own by this name.
        let own = ["struct", "enum"].map(|kind| format!("pub {kind} {payload} {{"));
        let others = sources
            .iter()
            .filter(|source| !own.iter().any(|own| source.contains(own)));
        let is_made = others.into_iter().any(|source| makes(source, &payload));
        if is_made == is_not_written(class.as_str()) {
            wrong.push(class.as_str());
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// True if code makes a value of the type `name`.
fn makes(source: &str, name: &str) -> bool {
    source.match_indices(name).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        let after = &source[at + name.len()..];
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            && (after.starts_with(" {") || after.starts_with("::"))
    })
}

fn read_sources(directory: &Path, source: &mut String) {
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, source);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            source.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

fn check_document(path: &str, expected: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if std::env::var_os("AGENT_UPDATE_DOCS").is_some() {
        std::fs::write(&file, expected).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is not current; run AGENT_UPDATE_DOCS=1 cargo test -p agent-protocol --test docs"
    );
}

fn events_page(schema: &Value) -> String {
    let mut page = String::from(
        "# Events\n\n\
         Every line of `.agent/sessions/<session>/events.jsonl` is one event: an envelope and a payload \
         typed by the event's class. This page and `schemas/event.schema.json` are generated from the code, \
         and a test keeps them current.\n\n\
         ## Envelope\n\n\
         `type`, `native_type?`, `event_id`, `timestamp` (RFC 3339, UTC), `sequence` (contiguous from 0), \
         `schema_version` (`\"1\"`), `runtime_id`, `session_id`, then where they apply `thread_id`, `turn_id`, \
         `task_id`, `run_id` and `attempt_id` (the same value), `step_id`, `tool_call_id`, `action_id`, \
         `subagent_id`, `process_id`, `causation_id`, `trace_id`, `span_id`; then `payload`, `refs` \
         (role → id or list of ids) and `prev`.\n\n\
         `prev` is `sha256:` and the lower-case hex SHA-256 of the previous line without its newline; on the \
         first line, of the session id. A line has at most 65,536 bytes; what is larger is in an artifact, \
         `artifacts/<64 hex digits>`, named by `sha256:<64 hex digits>`.\n\n\
         Other names for the same events: `tool_execution_start` is `tool.started`, `tool_execution_end` is \
         `tool.result` or `tool.failed`; `native_type` carries the names `tool.permission`, \
         `tool.invocation.started` and `tool.invocation.completed`.\n\n\
         ## Classes\n\n\
         A field with `?` may be missing. Everything is written to the log unless marked transient; a class \
         marked *reserved* has no writer in this version.\n\n\
         | class | what it says | payload |\n| --- | --- | --- |\n",
    );
    let classes = schema["allOf"].as_array().unwrap();
    for (class, rule) in EventType::ALL.iter().zip(classes) {
        let reference = rule["then"]["properties"]["payload"]["$ref"]
            .as_str()
            .unwrap();
        let payload = &schema["$defs"][reference.rsplit('/').next().unwrap()];
        let said = payload["description"]
            .as_str()
            .unwrap_or_else(|| panic!("{class:?} has no words"));
        let said = said.replace('\n', " ");
        let required: Vec<&str> = payload["required"]
            .as_array()
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let fields: Vec<String> = payload["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(|name| {
                let list = payload["properties"][name]["type"] == "array";
                let mark = if list {
                    "[]"
                } else if required.contains(&name.as_str()) {
                    ""
                } else {
                    "?"
                };
                format!("`{name}{mark}`")
            })
            .collect();
        let kept = match persistence(*class) {
            Persistence::Durable => "",
            Persistence::Transient => " (transient)",
        };
        let reserved = match is_not_written(class.as_str()) {
            true => " *reserved*",
            false => "",
        };
        let native = class
            .native_name()
            .map(|name| format!(" native: `{name}`."))
            .unwrap_or_default();
        writeln!(
            page,
            "| `{}`{kept}{reserved} | {said}{native} | {} |",
            class.as_str(),
            fields.join(" ")
        )
        .unwrap();
    }
    page.push_str(
        "\n## Reserved classes\n\n\
         These classes are read, folded and exported when a log has them; this version writes none of them.\n\n\
         | class | why |\n| --- | --- |\n",
    );
    for (names, why) in NOT_WRITTEN {
        let names = names.iter().map(|name| match name.ends_with('.') {
            true => format!("`{name}*`"),
            false => format!("`{name}`"),
        });
        let names: Vec<String> = names.collect();
        writeln!(page, "| {} | {why} |", names.join(" ")).unwrap();
    }
    page.push_str(
        "\n## Codes\n\n\
         Every call ends with one of these. `phase` is the phase in which the code normally arises.\n\n\
         | code | phase | action happened | retryable | recovery |\n| --- | --- | --- | --- | --- |\n",
    );
    for code in Code::ALL {
        let facts = code.facts();
        writeln!(
            page,
            "| `{code}` | {} | {} | {} | {} |",
            facts.phase,
            facts.action_happened,
            if facts.retryable { "yes" } else { "no" },
            facts.recovery
        )
        .unwrap();
    }
    page
}
