//! `agent export`: the log byte by byte, or what others understand.

use std::fs;
use std::path::Path;

use agent_test_support::project::TestProject;
use serde_json::Value;

use crate::{agent, assert_schema, sample};

#[test]
fn jsonl_is_the_log_byte_by_byte() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample");
    let log = project.read(format!(".agent/sessions/{id}/events.jsonl"));
    let run = agent(&project, &["export", "last"]).finish().expect_code(0);
    assert_eq!(run.stdout(), log);
    agent(&project, &["export", "last", "-o", "out.jsonl"])
        .finish()
        .expect_code(0);
    assert_eq!(project.read("out.jsonl"), log);
}

#[test]
fn portable_events_follow_the_published_schema() {
    let project = TestProject::new();
    sample::session(&project, 1, "sample");
    let run = agent(&project, &["export", "last", "--format", "portable"]);
    let run = run.finish().expect_code(0);
    let lines: Vec<Value> = run
        .stdout()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.len() > 5);
    assert!(
        lines.iter().all(|line| line["sessionId"].is_string()),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line["type"] != "tool.intent"));

    for line in &lines {
        assert_schema("portable-event", line);
    }

    // Not ours to commit, so it is used where it is present.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let published =
        root.join("../shared/external/agentruntime/schemas/agentruntime-event.schema.json");
    if let Ok(schema) = fs::read_to_string(&published) {
        let schema: Value = serde_json::from_str(&schema).unwrap();
        let validator = jsonschema::options().offline().build(&schema).unwrap();
        for line in &lines {
            let problems: Vec<String> = validator
                .iter_errors(line)
                .map(|error| error.to_string())
                .collect();
            assert!(problems.is_empty(), "{problems:?} in {line}");
        }
    } else {
        println!("the published schema is not here: {}", published.display());
    }
}

#[test]
fn an_export_that_fails_leaves_the_old_file() {
    let project = TestProject::new();
    project.write("out.jsonl", "old");
    agent(&project, &["export", "last", "-o", "out.jsonl"])
        .finish()
        .expect_code(2);
    assert_eq!(project.read("out.jsonl"), "old");
    sample::session(&project, 1, "sample");
    let run = agent(&project, &["export", "last", "-o", "missing/out"])
        .finish()
        .expect_code(2);
    assert!(
        run.stderr().starts_with("error: cannot write `"),
        "{}",
        run.stderr()
    );
}

#[test]
fn a_damaged_log_is_not_exported_silently() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample");
    let log = format!(".agent/sessions/{id}/events.jsonl");
    let text = project.read(&log).replacen("\"type\"", "\"typo\"", 1);
    project.write(&log, text);
    let run = agent(&project, &["export", "last", "--format", "portable"]);
    let run = run.finish().expect_code(1);
    assert!(
        run.stderr()
            .contains("1 line of the log could not be exported"),
        "{}",
        run.stderr()
    );
}
