//! Making room: at the threshold and when the server says the input is too long; the facts stay.

use std::sync::atomic::{AtomicUsize, Ordering};

use agent_protocol::payload::model::{
    CompactionTrigger, ContextCompactionCompleted, ContextCompactionFailed,
};
use agent_protocol::{Event, Payload};
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::json;

use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run, sum_project};

fn completed(events: &[Event]) -> Vec<ContextCompactionCompleted> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::ContextCompactionCompleted(completed) => Some(completed.clone()),
        _ => None,
    });
    found.collect()
}

fn failed(events: &[Event]) -> Vec<ContextCompactionFailed> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::ContextCompactionFailed(failed) => Some(failed.clone()),
        _ => None,
    });
    found.collect()
}

/// A project with a file of many long lines, and a model that knows how much it can take.
fn project(server: &ModelServer, window: u64) -> TestProject {
    let project = sum_project();
    project.write("long.txt", format!("{}\n", "word ".repeat(300)).repeat(40));
    drop(run(&project, server, Wire::Chat, &[]));
    let config = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    let facts = format!(
        "[providers.local.models.\"test-model\"]\ncontext_window = {window}\nmax_output_tokens = 100\n"
    );
    project.write_home("config.toml", format!("{config}{facts}"));
    project
}

fn go(project: &TestProject) -> agent_test_support::run::Ran {
    let rules = project.home().join("rules.toml");
    crate::agent(
        project,
        &["run", "--rules", rules.to_str().unwrap(), "Read all of it."],
    )
    .finish()
}

fn reading(part: usize) -> Turn {
    let read = json!({"path": "long.txt", "offset": part * 4 + 1, "limit": 4});
    Turn::call("read", read)
}

#[test]
fn at_the_threshold_facts_stay_and_the_model_summarises_the_rest() {
    // Which request asks for the summary follows from the sizes; it is the one that says so.
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        if request
            .json()
            .to_string()
            .contains("Summarise the conversation so far")
        {
            return Turn::text("I read the first parts of the file.");
        }
        match steps.fetch_add(1, Ordering::Relaxed) {
            0 => {
                let test = json!({"command": "sh test.sh", "description": "Test"});
                Turn::call("bash", test)
            }
            step @ 1..=8 => reading(step - 1),
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server, 9_000);
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let events = log(&project);
    let all = completed(&events);
    assert!(!all.is_empty());
    let first = &all[0];
    assert_eq!(first.trigger, CompactionTrigger::Threshold);
    assert!(first.tokens_after < first.tokens_before);
    assert!(!first.dropped.is_empty());
    assert_eq!(first.preserved.requests.len(), 1);
    // What the model sees afterwards: the user's words and the command with its code.
    let last = server.requests().pop().unwrap();
    let body = String::from_utf8(last.body).unwrap();
    for fact in ["Read all of it.", "sh test.sh", "exited with 1"] {
        assert!(body.contains(fact), "{fact}");
    }
    let receipt = events.iter().rev().find_map(|event| match &event.payload {
        Payload::ContextResolved(receipt) => Some(receipt),
        _ => None,
    });
    let omitted = &receipt.unwrap().omitted[0];
    let up_to = all.last().unwrap().up_to_sequence;
    let source = format!("the conversation up to event {up_to}");
    assert_eq!(omitted.source, source, "the receipt says what is not in it");
    // Everything that was said is still in the log.
    let observations = events
        .iter()
        .filter(|event| event.payload.type_name() == "tool.observation");
    assert_eq!(observations.count(), 9);
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}

/// A turn that began before the first summary is shortened again as often as it needs.
#[test]
fn a_long_turn_never_outgrows_the_window() {
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        let body = String::from_utf8_lossy(&request.body);
        if body.contains("Summarise the conversation so far") {
            return Turn::text("I read some parts of the file.");
        }
        match steps.fetch_add(1, Ordering::Relaxed) {
            step if step < 40 => Turn::call(
                "read",
                json!({"path": "long.txt", "offset": step + 1, "limit": 4}),
            ),
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server, 9_000);
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let rounds = completed(&log(&project)).len();
    assert!(rounds >= 3, "{rounds} times");
    for request in server.requests() {
        // Four bytes a token, and twice that for a server that counts less than we believe.
        assert!(request.body.len() < 9_000 * 8, "{}", request.body.len());
        assert!(String::from_utf8_lossy(&request.body).contains("Read all of it."));
    }
    assert_inputs_can_be_rebuilt(&project, &server);
    assert_audit_is_clean(&project);
}

#[test]
fn a_server_that_finds_the_input_too_long_is_asked_again_with_less() {
    let too_long = Turn::error(400, "This model's maximum context length is 8192 tokens.");
    let mut script = Script::new();
    for part in 0..8 {
        script = script.turn(reading(part));
    }
    let script = script
        .turn(too_long)
        .turn(Turn::text("I read a lot."))
        .turn(Turn::text("Read."));
    let server = ModelServer::start(script);
    let project = project(&server, 1_000_000);
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let all = completed(&log(&project));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].trigger, CompactionTrigger::ContextLength);
    assert!(all[0].summarised_by_model);
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}

/// A turn whose summary is answered by `answer`, which is none.
fn check_without_summary(answer: Turn, reason: &str) {
    let too_long = Turn::error(400, "This model's maximum context length is 8192 tokens.");
    let mut script = Script::new();
    for part in 0..8 {
        script = script.turn(reading(part));
    }
    let script = script.turn(too_long).turn(answer).turn(Turn::text("Read."));
    let server = ModelServer::start(script);
    let project = project(&server, 1_000_000);
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let events = log(&project);
    assert!(failed(&events)[0].error.contains(reason));
    let all = completed(&events);
    assert_eq!(all.len(), 1);
    assert!(!all[0].summarised_by_model);
    let last = String::from_utf8(server.requests().pop().unwrap().body).unwrap();
    assert!(
        last.contains("long.txt"),
        "the file that was read is a fact"
    );
    assert_audit_is_clean(&project);
}

#[test]
fn without_a_summary_the_fact_sheet_stands_alone() {
    let refused = Turn::error(400, "no summaries today");
    check_without_summary(refused, "no summaries today");
    check_without_summary(Turn::text(" "), "the summary has no words");
}
