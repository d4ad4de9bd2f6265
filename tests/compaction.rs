//! Making room: at the threshold and when the server says the input is too long; the facts stay.

use std::sync::atomic::{AtomicUsize, Ordering};

use agent_protocol::payload::model::{
    CompactionOutcome, CompactionTrigger, ContextCompactionCompleted, ContextCompactionFailed,
    ContextResolved, Trust,
};
use agent_protocol::{Code, Event, Payload};
use agent_test_support::model_server::{ModelServer, RecordedRequest, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;
use serde_json::{Value, json};

use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run, sum_project};

pub(crate) fn completed(events: &[Event]) -> Vec<ContextCompactionCompleted> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::ContextCompactionCompleted(completed) => Some(completed.clone()),
        _ => None,
    });
    found.collect()
}

pub(crate) fn failed(events: &[Event]) -> Vec<ContextCompactionFailed> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::ContextCompactionFailed(failed) => Some(failed.clone()),
        _ => None,
    });
    found.collect()
}

/// A project with a file of many long lines, and a model that knows how much it can take.
pub(crate) fn project(server: &ModelServer, window: u64) -> TestProject {
    project_in(server, Wire::Chat, window)
}

pub(crate) fn project_in(server: &ModelServer, wire: Wire, window: u64) -> TestProject {
    let project = sum_project();
    project.write("long.txt", format!("{}\n", "word ".repeat(300)).repeat(40));
    drop(run(&project, server, wire, &[]));
    let config = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    let facts = format!(
        "[providers.local.models.\"test-model\"]\ncontext_window = {window}\nmax_output_tokens = 100\n"
    );
    project.write_home("config.toml", format!("{config}{facts}"));
    project
}

pub(crate) fn go(project: &TestProject) -> RunOutput {
    go_with(project, &["Read all of it."])
}

pub(crate) fn go_with(project: &TestProject, arguments: &[&str]) -> RunOutput {
    let rules = project.home().join("rules.toml");
    let all = [&["run", "--rules", rules.to_str().unwrap()], arguments].concat();
    crate::agent(project, &all).finish()
}

pub(crate) fn reading(part: usize) -> Turn {
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
    assert_eq!(failed(&events), [], "one compaction has one end");
    let all = completed(&events);
    assert_eq!(all.len(), 1);
    assert!(!all[0].summarised_by_model);
    assert_eq!(all[0].outcome, Some(CompactionOutcome::Degraded));
    assert!(all[0].error.as_ref().unwrap().contains(reason));
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

pub(crate) fn asks_for_summary(request: &RecordedRequest) -> bool {
    String::from_utf8_lossy(&request.body).contains("Summarise the conversation so far")
}

pub(crate) fn receipts(events: &[Event]) -> Vec<ContextResolved> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::ContextResolved(receipt) => Some(receipt.clone()),
        _ => None,
    });
    found.collect()
}

/// A conversation as its roles, with the calls that are asked for and answered, in any dialect.
pub(crate) struct Shape {
    /// `user`, `assistant`, `call` or `result`, in order.
    pub(crate) roles: Vec<&'static str>,
    pub(crate) asked: Vec<String>,
    pub(crate) answered: Vec<String>,
}

impl Shape {
    pub(crate) fn of(wire: Wire, body: &Value) -> Self {
        let (mut roles, mut asked, mut answered) = (Vec::new(), Vec::new(), Vec::new());
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        match wire {
            Wire::Chat => {
                for message in body["messages"].as_array().unwrap() {
                    match message["role"].as_str().unwrap() {
                        "system" => {}
                        "user" => roles.push("user"),
                        "tool" => {
                            roles.push("result");
                            answered.push(id(&message["tool_call_id"]));
                        }
                        _ => {
                            roles.push("assistant");
                            let calls = message["tool_calls"].as_array();
                            asked.extend(calls.into_iter().flatten().map(|call| id(&call["id"])));
                        }
                    }
                }
            }
            Wire::Responses => {
                for item in body["input"].as_array().unwrap() {
                    match item["type"].as_str().unwrap_or("message") {
                        "function_call" => {
                            roles.push("call");
                            asked.push(id(&item["call_id"]));
                        }
                        "function_call_output" => {
                            roles.push("result");
                            answered.push(id(&item["call_id"]));
                        }
                        _ if item["role"] == "user" => roles.push("user"),
                        _ => roles.push("assistant"),
                    }
                }
            }
            Wire::Anthropic => {
                for message in body["messages"].as_array().unwrap() {
                    let is_user = message["role"] == "user";
                    roles.push(if is_user { "user" } else { "assistant" });
                    for block in message["content"].as_array().into_iter().flatten() {
                        match block["type"].as_str().unwrap() {
                            "tool_use" => asked.push(id(&block["id"])),
                            "tool_result" => answered.push(id(&block["tool_use_id"])),
                            _ => {}
                        }
                    }
                }
            }
        }
        Self {
            roles,
            asked,
            answered,
        }
    }

    /// A user begins and a user's side ends it, and every call has its one result.
    #[track_caller]
    pub(crate) fn assert_well_formed(&self) {
        assert_eq!(self.roles.first(), Some(&"user"), "{:?}", self.roles);
        let last = self.roles.last();
        assert!(
            matches!(last, Some(&("user" | "result"))),
            "{:?}",
            self.roles
        );
        assert_eq!(self.asked, self.answered);
    }
}

/// The summary stands in the conversation once, as what it is, and its request is no part of it.
fn check_shape_after_compaction(wire: Wire, too_long: bool) {
    const PROSE: &str = "I read the first parts of the file.";
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        if asks_for_summary(request) {
            return Turn::text(PROSE);
        }
        match steps.fetch_add(1, Ordering::Relaxed) {
            8 if too_long => {
                Turn::error(400, "This model's maximum context length is 8192 tokens.")
            }
            step @ 0..=9 => reading(step % 8),
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let window = if too_long { 1_000_000 } else { 9_000 };
    let project = project_in(&server, wire, window);
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let requests = server.requests();
    let first = requests.iter().position(asks_for_summary).unwrap();
    for (number, request) in requests.iter().enumerate() {
        Shape::of(wire, &request.json()).assert_well_formed();
        let body = String::from_utf8_lossy(&request.body);
        let times = body.matches(PROSE).count();
        let expected = usize::from(number > first);
        assert_eq!(times, expected, "{wire:?}, request {number}: {body}");
        assert!(number == first || asks_for_summary(request) || !body.contains("Summarise the"));
    }
    assert!(requests.len() > first + 1);
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}

#[test]
fn after_compaction_the_conversation_is_well_formed_in_every_dialect() {
    for wire in [Wire::Chat, Wire::Responses, Wire::Anthropic] {
        check_shape_after_compaction(wire, false);
        check_shape_after_compaction(wire, true);
    }
}

/// A prompt of so many bytes with words at its begin, in its middle and at its end.
fn long_prompt(bytes: usize) -> String {
    let half = "All of this counts. ".repeat(bytes / 40);
    format!("BEGIN-OF-PROMPT {half}MIDDLE-OF-PROMPT {half}END-OF-PROMPT")
}

/// After compaction the model has a long prompt whole, or can read back what it lacks of it.
fn check_long_prompt(bytes: usize, window: u64, is_whole: bool) {
    let prompt = long_prompt(bytes);
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        if asks_for_summary(request) {
            return Turn::text("I read.");
        }
        let body = String::from_utf8_lossy(&request.body).into_owned();
        match steps.fetch_add(1, Ordering::Relaxed) {
            step @ 0..=7 => reading(step),
            8 if !body.contains("MIDDLE-OF-PROMPT") => {
                let Some(way) = body.find("whole: read_artifact") else {
                    return Turn::text("There is no way to read it.");
                };
                let way = &body[way..];
                let at = way.find("sha256:").unwrap();
                let wanted = json!({"artifact_id": way[at..at + 71], "around": "MIDDLE-OF-PROMPT"});
                Turn::call("read_artifact", wanted)
            }
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server, window);
    let ran = go_with(&project, &[&prompt]);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let all = completed(&log(&project));
    assert!(!all.is_empty(), "it was compacted");
    let last = server.requests().pop().unwrap();
    let body = String::from_utf8(last.body).unwrap();
    for words in ["BEGIN-OF-PROMPT", "MIDDLE-OF-PROMPT", "END-OF-PROMPT"] {
        assert!(body.contains(words), "{words} of {bytes} bytes");
    }
    assert_eq!(body.contains("word for word ---"), is_whole);
    let preserved = &all.last().unwrap().preserved;
    assert_eq!(preserved.requests.len(), usize::from(is_whole));
    assert_eq!(preserved.excerpts.len(), usize::from(!is_whole));
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}

#[test]
fn a_long_prompt_is_whole_or_can_be_read_back() {
    check_long_prompt(3_000, 14_000, true);
    check_long_prompt(10_000, 14_000, false);
    check_long_prompt(30_000, 20_000, false);
}

#[test]
fn commands_in_the_background_are_named_with_their_ids() {
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        if asks_for_summary(request) {
            return Turn::text("I read.");
        }
        match steps.fetch_add(1, Ordering::Relaxed) {
            0 => Turn::call(
                "bash",
                json!({"command": "sh test.sh", "description": "Serve", "background": true}),
            ),
            step @ 1..=8 => reading(step - 1),
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server, 9_000);
    project.write("test.sh", "until [ -e stop ]; do sleep 0.01; done\n");
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let events = log(&project);
    assert!(!completed(&events).is_empty());
    let id = events.iter().find_map(|event| match &event.payload {
        Payload::ProcessStarted(started) => Some(started.process_id.to_string()),
        _ => None,
    });
    let body = String::from_utf8(server.requests().pop().unwrap().body).unwrap();
    for words in [
        id.unwrap().as_str(),
        "sh test.sh",
        "process_output",
        "process_kill",
    ] {
        let sheet = &body[body.find("Facts from the session log").unwrap()..];
        assert!(sheet.contains(words), "{words}: {sheet}");
    }
    assert_audit_is_clean(&project);
}

/// What is not in the input any more is shown again; what still is, is not.
#[test]
fn a_file_that_was_compacted_away_is_shown_again() {
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        if asks_for_summary(request) {
            return Turn::text("I read.");
        }
        match steps.fetch_add(1, Ordering::Relaxed) {
            step @ 0..=7 => reading(step),
            8 => reading(0),
            9 => reading(0),
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server, 9_000);
    project.write(
        "long.txt",
        (1..=40)
            .map(|line| format!("line {line} {}\n", "word ".repeat(300)))
            .collect::<String>(),
    );
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let events = log(&project);
    assert!(!completed(&events).is_empty());
    let codes: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ToolObservation(seen) => Some(seen.code),
            _ => None,
        })
        .collect();
    assert_eq!(codes[8], Code::Ok, "its text was gone");
    assert_eq!(codes[9], Code::FileUnchanged, "its text is there");
    let body = String::from_utf8(server.requests().pop().unwrap().body).unwrap();
    assert_eq!(body.matches("line 2 word").count(), 1);
    assert_audit_is_clean(&project);
}

#[test]
fn the_receipt_says_what_is_in_the_input() {
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        if asks_for_summary(request) {
            return Turn::text("I read.");
        }
        match steps.fetch_add(1, Ordering::Relaxed) {
            0 => Turn::call("read", json!({"path": "README.md"})),
            step @ 1..=8 => reading(step - 1),
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server, 9_000);
    let ran = go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let events = log(&project);
    let all = receipts(&events);
    let files = |receipt: &ContextResolved| -> Vec<String> {
        let files = receipt.file_refs.iter();
        let named =
            files.map(|file| format!("{} {}", file.path, file.range.clone().unwrap_or_default()));
        named.collect()
    };
    // Before it was compacted: everything that was read so far.
    assert_eq!(files(&all[3])[1..], ["long.txt 1-8"]);
    assert!(files(&all[3])[0].starts_with("README.md 1-"));
    // Afterwards: what is still there, and that is not the first file.
    let compaction = &completed(&events)[0];
    let next = compaction
        .continuation_ref
        .clone()
        .expect("the next context");
    let next = all
        .iter()
        .find(|receipt| receipt.context_id.as_str() == next)
        .expect("a context of that id follows");
    assert!(
        files(next)
            .iter()
            .all(|file| !file.starts_with("README.md"))
    );
    assert!(files(next)[0].starts_with("long.txt "), "{:?}", files(next));
    let find = |source: &str| next.included.iter().find(|item| item.source == source);
    assert_eq!(find("fact sheet").unwrap().trust, Trust::System);
    assert_eq!(find("summary by a model").unwrap().trust, Trust::Model);
}
