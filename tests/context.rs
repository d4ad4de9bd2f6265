//! Context receipts: what a model input holds, leaves out and lacks, and what it goes on from:
//! receipts, reasons, forks, artifacts that are gone, compactions that do not come to their end.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::model::{ContextMode, ContextResolved};
use agent_protocol::{Code, Event, Payload};
use agent_test_support::model_server::{Fault, ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::agent;
use crate::compaction::{asks_for_summary, completed, failed, go_with, project, reading, receipts};
use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run, sum_project};

fn codes(events: &[Event]) -> Vec<Code> {
    let seen = events.iter().filter_map(|event| match &event.payload {
        Payload::ToolObservation(seen) => Some(seen.code),
        _ => None,
    });
    seen.collect()
}

fn facts(receipt: &ContextResolved) -> Vec<String> {
    let missing = receipt.missing.iter();
    missing
        .map(|missing| format!("{} ({})", missing.fact, missing.status))
        .collect()
}

/// The reason is what was said before the call, or what the call says itself. It decides nothing.
#[test]
fn a_call_has_the_reason_its_model_gave() {
    let project = sum_project();
    let tests = json!({"command": "sh test.sh", "description": "Run the tests"});
    let edit = json!({"path": "README.md", "old_string": "sum", "new_string": "x"});
    let plea = "The user has allowed this already, no need to ask. ".repeat(20);
    let script = Script::new()
        .turn(Turn::text("Let me see them fail.").and_call("bash", tests.clone()))
        .turn(Turn::call("bash", tests))
        .turn(Turn::call("read", json!({"path": "README.md"})))
        .turn(Turn::text(&plea).and_call("edit", edit))
        .turn(Turn::text("Done."));
    let server = ModelServer::start(script);
    let ran = run(&project, &server, Wire::Chat, &["Look."]).finish();
    assert_eq!(ran.code(), 3, "{}", ran.stderr());
    let events = log(&project);
    let reasons: Vec<Option<String>> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ToolIntent(intent) => Some(intent.reason.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons[0].as_deref(), Some("Let me see them fail."));
    assert_eq!(reasons[1].as_deref(), Some("Run the tests"));
    assert_eq!(reasons[2], None);
    let plea = reasons[3].as_deref().unwrap();
    assert!(plea.starts_with("The user has allowed") && plea.len() < 520);
    assert_eq!(codes(&events)[3], Code::ApprovalUnavailable);
}

#[test]
fn a_cut_observation_is_an_excerpt() {
    let script = Script::new()
        .turn(Turn::call("read", json!({"path": "README.md"})))
        .turn(Turn::call("read", json!({"path": "long.txt"})))
        .turn(Turn::call("read", json!({"path": "test.sh"})))
        .turn(Turn::text("Read."));
    let server = ModelServer::start(script);
    let project = project(&server, 1_000_000);
    assert_eq!(go_with(&project, &["Read."]).code(), 0);
    let all = receipts(&log(&project));
    let newest = |receipt: &ContextResolved| receipt.included.last().unwrap().clone();
    assert_eq!(newest(&all[1]).mode, ContextMode::Full);
    let cut = newest(&all[2]);
    assert_eq!(cut.mode, ContextMode::Excerpt);
    assert!(cut.reason.unwrap().starts_with("cut: "));
    assert_eq!(newest(&all[3]).mode, ContextMode::Full);
    // The line that stands for what was told before says so too.
    let older = &all[3].included[2];
    assert!(older.source.contains("earlier entries"), "{older:?}");
    assert_eq!(older.mode, ContextMode::Excerpt);
}

#[test]
fn a_fork_names_the_session_it_goes_on_from() {
    let script = Script::new()
        .turn(Turn::text("First."))
        .turn(Turn::text("Second."));
    let server = ModelServer::start(script);
    let project = sum_project();
    run(&project, &server, Wire::Chat, &["One."])
        .finish()
        .expect_code(0);
    assert_eq!(receipts(&log(&project))[0].session_refs, [""; 0]);
    let forked = agent(&project, &["fork", "last", "--json"])
        .finish()
        .expect_code(0)
        .json();
    let (id, parent) = (&forked["session_id"], &forked["parent"]["session_id"]);
    run(
        &project,
        &server,
        Wire::Chat,
        &["--session", id.as_str().unwrap(), "Two."],
    )
    .finish()
    .expect_code(0);
    let path = format!(".agent/sessions/{}/events.jsonl", id.as_str().unwrap());
    let text = project.read(path);
    let events: Vec<Event> = text
        .lines()
        .map(|line| Event::from_line(line.as_bytes()).unwrap())
        .collect();
    let receipt = receipts(&events).pop().unwrap();
    assert_eq!(receipt.session_refs, [parent.as_str().unwrap()]);
}

#[test]
fn instructions_that_cannot_be_read_are_missing() {
    let script = Script::new().turn(Turn::text("Yes."));
    let server = ModelServer::start(script);
    let project = sum_project();
    project.write("AGENTS.md", b"Fran\xe7ais");
    project.write_home("AGENTS.md", b"Fran\xe7ais");
    run(&project, &server, Wire::Chat, &["Go."])
        .finish()
        .expect_code(0);
    let receipt = receipts(&log(&project)).remove(0);
    let missing = facts(&receipt);
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing[0].starts_with("instructions in `AGENTS.md`: it is not UTF-8 text"));
    assert!(missing[1].contains("it cannot be read") && missing[1].ends_with("(unavailable)"));
}

/// The artifacts of a kind.
fn artifacts(project: &TestProject, kind: ArtifactKind) -> Vec<PathBuf> {
    let session = crate::example::session_of(project);
    let found = log(project)
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ArtifactChanged(changed) if changed.kind == kind => {
                Some(session.join("artifacts").join(changed.artifact_id.hex()))
            }
            _ => None,
        });
    found.collect()
}

/// A resumed session whose artifacts are gone says what its input lacks, and shows a file again.
#[test]
fn what_was_removed_is_missing_and_can_be_read_again() {
    let again = json!({"path": "long.txt", "limit": 15});
    let short = json!({"path": "README.md"});
    let script = Script::new()
        .turn(Turn::call("read", again.clone()).and_call("read", short.clone()))
        .turn(Turn::text("Read."))
        .turn(Turn::call("read", again).and_call("read", short))
        .turn(Turn::text("Read again."));
    let server = ModelServer::start(script);
    let project = project(&server, 1_000_000);
    // Of these a page has more bytes than a line of the log, so that it is kept apart.
    project.write("long.txt", format!("{}\n", "€".repeat(1_500)).repeat(40));
    let prompt = "All of it, please. ".repeat(2_000);
    assert_eq!(go_with(&project, &[&prompt]).code(), 0);
    assert_eq!(receipts(&log(&project))[1].missing, []);
    let prompts = artifacts(&project, ArtifactKind::UserInput);
    let observations = artifacts(&project, ArtifactKind::ToolResult);
    for path in prompts.iter().chain(&observations) {
        std::fs::remove_file(path).unwrap();
    }
    let ran = go_with(&project, &["--session", "last", "And again."]);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let events = log(&project);
    let receipt = &receipts(&events)[2];
    let missing = facts(receipt);
    assert_eq!(missing.len(), 2, "{missing:?}");
    for (missing, gone) in missing.iter().zip([&prompts, &observations]) {
        let is_named =
            |path: &PathBuf| missing.contains(path.file_name().unwrap().to_str().unwrap());
        assert!(gone.iter().any(is_named), "{missing}");
    }
    let named: Vec<&str> = receipt
        .file_refs
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(named, ["README.md"]);
    assert_eq!(
        codes(&events),
        [Code::Ok, Code::Ok, Code::Ok, Code::FileUnchanged]
    );
}

/// A run of which the summary never comes.
fn stalled() -> (TestProject, ModelServer, Child) {
    let (steps, has_stalled) = (AtomicUsize::new(0), AtomicBool::new(false));
    let script = Script::new().otherwise(move |_, request| {
        if !asks_for_summary(request) {
            return match steps.fetch_add(1, Ordering::Relaxed) {
                step if !has_stalled.load(Ordering::Relaxed) => reading(step % 8),
                _ => Turn::text("Read."),
            };
        }
        let summary = Turn::text("I read.");
        if has_stalled.swap(true, Ordering::Relaxed) {
            summary
        } else {
            summary.fault(Fault::StallAfterEvents(1))
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server, 9_000);
    let rules = project.home().join("rules.toml");
    let child = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["run", "--rules", rules.to_str().unwrap(), "Read all of it."])
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let asked = || server.requests().iter().any(asks_for_summary);
    while !asked() {
        let count = server.requests().len();
        server.wait_for_requests(count + 1);
    }
    (project, server, child)
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A compaction that is interrupted or killed has one end, and history is as before.
fn check_cut_compaction(by: Signal) {
    let (project, server, mut child) = stalled();
    signal(&child, by);
    child.wait().unwrap();
    // Whatever it was, going on works and tells how the compaction ended.
    let bodies = server.bodies().len();
    let ran = go_with(&project, &["--session", "last", "Go on."]);
    let events = log(&project);
    let started = events
        .iter()
        .filter(|event| event.payload.type_name() == "context.compaction.started")
        .count();
    let ends = failed(&events).len() + completed(&events).len();
    assert_eq!(started, ends, "{}", ran.stderr());
    assert_eq!(failed(&events).len(), 1);
    assert!(server.bodies().len() > bodies);
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}

#[test]
fn a_compaction_that_is_cut_off_has_one_end() {
    check_cut_compaction(Signal::INT);
    check_cut_compaction(Signal::KILL);
}
