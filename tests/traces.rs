//! Traces of calls: the turn's own account of its changes, and what a command can see of
//! the record it is part of.

use std::fs;

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::conversation::{ALLOWED, Conversation, assert_audit, bash, read, replace};

/// The events of the last session.
fn events(project: &TestProject) -> Vec<Value> {
    let listed = agent(project, &["sessions", "show", "--json", "last"]);
    let session = listed.finish().expect_code(0).json()["session_id"].clone();
    let place = project.root().join(".agent/sessions");
    let log = place.join(session.as_str().unwrap()).join("events.jsonl");
    let lines = fs::read_to_string(log).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_type<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == name)
        .collect()
}

#[test]
fn the_turn_names_the_files_that_differ_in_the_end() {
    let project = TestProject::new();
    project.write("a.txt", "one\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    // New directories are no files; a change that was taken back is none.
    let input = json!({"path": "new/deep/file.txt", "content": "x\n"});
    assert_eq!(talk.call("write", input)["code"], "ok");
    read(&mut talk, "a.txt");
    assert_eq!(replace(&mut talk, "a.txt", "one", "two")["code"], "ok");
    assert_eq!(replace(&mut talk, "a.txt", "two", "one")["code"], "ok");
    assert_eq!(bash(&mut talk, "mkdir d && echo 1 > d/x")["code"], "ok");
    assert_eq!(bash(&mut talk, "rm -r d; echo 2 > y")["code"], "ok");
    // What a command in the background changed counts too, once it has ended.
    let input = json!({"command": "echo 3 > z", "description": "t", "background": true});
    let started = talk.call("bash", input);
    let process = started["facts"]["data"]["process_id"].clone();
    let input = json!({"process_id": process, "wait_ms": 60_000});
    assert_eq!(
        talk.call("process_output", input)["facts"]["data"]["process_status"],
        "ended"
    );
    assert_eq!(talk.end(), Some(0));
    let events = events(&project);
    let ended = of_type(&events, "turn.completed");
    let files = ended[0]["payload"]["files_changed"].as_array().unwrap();
    let paths: Vec<&Value> = files.iter().map(|file| &file["path"]).collect();
    assert_eq!(paths, ["new/deep/file.txt", "y", "z"]);
    assert_audit(&project);
}

#[test]
fn a_command_that_reads_the_whole_project_does_not_read_its_own_record() {
    let project = TestProject::new();
    project.write("a.txt", "needle\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    // Its output goes into the session's directory while it runs: read from there it would never end.
    let found = bash(&mut talk, "grep -r needle . | cat; ls -A .agent/sessions");
    assert_eq!(found["code"], "ok", "{found:#}");
    assert_eq!(found["content"][0]["text"], "./a.txt:needle\n");
    // What is hidden is also out of reach by its name.
    let session = found["session_id"].as_str().unwrap();
    let log = format!(".agent/sessions/{session}/events.jsonl");
    assert_eq!(
        bash(&mut talk, &format!("cat {log}"))["code"],
        "exit_nonzero"
    );
    assert_eq!(talk.end(), Some(1));
    assert_audit(&project);
}
