//! Approvals: what a yes holds for and for how long, that a no is remembered, and that a question
//! which expired takes no answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_log::{SessionEnv, SessionStore};
use agent_protocol::Code;
use agent_protocol::payload::permission::{
    ActionDecision, ActionResolved, DecidedBy, DecisionSource, GrantScope,
};
use agent_protocol::{Clock, Event, Payload, Refs, Timestamp};
use agent_test_support::model_server::{ModelServer, RecordedRequest, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;
use serde_json::{Value, json};

use crate::compaction::{self, Shape, asks_for_summary, completed, go_with, reading};
use crate::permissions::project;
use crate::resume::{count, counter, counting, left_open_in, only_action};
use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run, sum_project};
use crate::{agent, assert_schema};

/// Answers the open question of a session.
pub(crate) fn respond(project: &TestProject, session: &str, answer: &[&str]) -> RunOutput {
    let open = agent(project, &["actions", session, "--json"])
        .finish()
        .json();
    let action = open["actions"][0]["action_id"].as_str().unwrap();
    agent(project, &[&["respond", session, action], answer].concat()).finish()
}

/// Asks for `command` in `session` with `--on-ask wait`; the session, and what was decided.
pub(crate) fn ask_for(
    project: &TestProject,
    session: Option<&str>,
    command: &str,
) -> (String, Value) {
    let input = json!({"command": command, "description": "Run"}).to_string();
    let mut arguments = vec!["call", "--json", "--on-ask", "wait", "bash", &input];
    arguments.extend(session.iter().flat_map(|id| ["--session", id]));
    let printed = agent(project, &arguments).finish().json();
    let text = |key: &str| printed[key].as_str().unwrap().to_owned();
    let session = text("session_id");
    let why = agent(project, &["why", &session, &text("tool_call_id"), "--json"]);
    let why = why.finish().expect_code(0).json();
    assert_schema("why", &why);
    (session, why)
}

#[test]
fn a_grant_for_the_session_survives_a_restart_and_covers_exactly_its_call() {
    let project = project();
    project.write("hello.sh", "echo hello\n");
    let (session, asked) = ask_for(&project, None, "sh hello.sh");
    assert_eq!(asked["decision"]["decision"], "ask");
    respond(&project, &session, &["allow", "--for-session"]).expect_code(0);

    let (_, granted) = ask_for(&project, Some(&session), "sh hello.sh");
    assert_eq!(granted["decision"]["decision"], "allow", "{granted}");
    assert_eq!(granted["decision"]["decision_source"], "session_grant");
    let (_, other) = ask_for(&project, Some(&session), "sh hello.sh again");
    assert_eq!(other["decision"]["decision"], "ask", "{other}");

    // The script it was about is part of what was granted.
    project.write("hello.sh", "echo something else\n");
    let (_, changed) = ask_for(&project, Some(&session), "sh hello.sh");
    assert_eq!(changed["decision"]["decision"], "ask", "{changed}");
    let (_, elsewhere) = ask_for(&project, None, "sh hello.sh");
    assert_eq!(elsewhere["decision"]["decision"], "ask", "another session");
}

#[test]
fn a_denial_is_not_forgotten_and_why_tells_who_said_it() {
    let project = project();
    // In this mode the command would run; the person said no.
    project.write_home("config.toml", "[permissions]\nask = [\"bash(uname *)\"]\n");
    let (session, asked) = ask_for(&project, None, "uname -a");
    assert_eq!(asked["decision"]["decision"], "ask");
    let note = ["deny", "--note", "not on this machine"];
    respond(&project, &session, &note).expect_code(0);
    let call = asked["tool_call_id"].as_str().unwrap();
    let why = agent(&project, &["why", &session, call]).env("COLUMNS", "200");
    let text = why.finish().expect_code(0).stdout();
    for part in ["answer      denied by you: not on this machine", "after: "] {
        assert!(text.contains(part), "{part} in {text}");
    }

    // The rule is gone; the denial still makes the same call a question.
    project.write_home("config.toml", "");
    let (_, again) = ask_for(&project, Some(&session), "uname -a");
    assert_eq!(again["decision"]["decision"], "ask", "{again}");
    let (_, fresh) = ask_for(&project, None, "uname -a");
    assert_eq!(fresh["decision"]["decision"], "allow", "{fresh}");
}

#[test]
fn a_question_says_when_it_expires() {
    let project = project();
    project.write_home("config.toml", "[permissions]\nask_timeout = \"5m\"\n");
    let (session, _) = ask_for(&project, None, "node x.js");
    let directory = SessionStore::of_project(&project.root())
        .resolve(&session)
        .unwrap();
    let events: Vec<Event> = directory
        .reader()
        .unwrap()
        .filter_map(|item| item.unwrap().event)
        .collect();
    let requested = events.iter().find_map(|event| match &event.payload {
        Payload::PermissionRequested(requested) => Some((event.timestamp, requested.expires_at)),
        _ => None,
    });
    let (asked, expires) = requested.unwrap();
    let left = expires.unwrap().millis_since(asked);
    assert!((299_000..=300_000).contains(&left), "{left}");
    let timeout = events.iter().find_map(|event| match &event.payload {
        Payload::ActionRequired(required) => required.timeout_ms,
        _ => None,
    });
    assert_eq!(timeout, Some(300_000));
}

/// The codes calls failed with.
fn failures(events: &[Event]) -> Vec<Code> {
    let code = |event: &Event| match &event.payload {
        Payload::ToolFailed(failed) => Some(failed.code),
        _ => None,
    };
    events.iter().filter_map(code).collect()
}

/// A run that left a question open which expires after a second, and that second has passed.
fn expired(server: &ModelServer) -> (TestProject, String) {
    let project = sum_project();
    project.write(
        ".agent/config.toml",
        "[permissions]\nask_timeout = \"1s\"\n",
    );
    let action = left_open_in(&project, server);
    let end = only_action(&project)["expires_at"]
        .as_str()
        .unwrap()
        .to_owned();
    let end = Timestamp::parse(&end).unwrap();
    while let Some(left) = end.millis_since(now()).checked_sub(1) {
        std::thread::sleep(Duration::from_millis(left + 1));
    }
    (project, action)
}

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_unix_millis(i64::try_from(since.as_millis()).unwrap())
}

#[test]
fn an_expired_question_takes_no_answer_and_nothing_runs() {
    let server = ModelServer::start(counting());
    let (project, action) = expired(&server);
    let listed = agent(&project, &["actions"]).finish().expect_code(0);
    assert!(
        listed.stdout().contains(", expired "),
        "{}",
        listed.stdout()
    );

    let late = agent(&project, &["respond", "last", &action, "allow"])
        .finish()
        .expect_code(2);
    for part in [action.as_str(), "expired at", "nothing was run"] {
        assert!(late.stderr().contains(part), "{part} in {}", late.stderr());
    }
    let resolved: Vec<_> = (log(&project).into_iter())
        .filter_map(|event| match event.payload {
            Payload::ActionResolved(resolved) => Some((resolved.decision, resolved.decided_by)),
            _ => None,
        })
        .collect();
    assert_eq!(resolved, [(ActionDecision::Deny, DecidedBy::Timeout)]);
    let again = agent(&project, &["respond", "last", &action, "allow"])
        .finish()
        .expect_code(2);
    assert!(
        again.stderr().contains("no pending question"),
        "{}",
        again.stderr()
    );

    let going_on = ["--session", "last", "--on-ask", "allow"];
    run(&project, &server, Wire::Chat, &going_on)
        .finish()
        .expect_code(3);
    assert_expired_and_told(&project, &server);
}

#[test]
fn a_run_that_goes_on_too_late_refuses_what_it_had_asked_about() {
    let server = ModelServer::start(counting());
    let (project, _) = expired(&server);
    let going_on = ["--session", "last", "--on-ask", "allow"];
    run(&project, &server, Wire::Chat, &going_on)
        .finish()
        .expect_code(3);
    assert_expired_and_told(&project, &server);
}

fn assert_expired_and_told(project: &TestProject, server: &ModelServer) {
    assert_eq!(counter(project), 0);
    let events = log(project);
    assert_eq!(failures(&events), [Code::ApprovalExpired]);
    assert_eq!(count(&events, "tool.started"), 0);
    let decided = events.iter().find_map(|event| match &event.payload {
        Payload::PermissionResolved(resolved) => Some(resolved.decision_source),
        _ => None,
    });
    assert_eq!(decided, Some(DecisionSource::Timeout));
    let told = String::from_utf8_lossy(&server.requests()[1].body).into_owned();
    assert!(
        told.contains("nobody answered the question in time"),
        "{told}"
    );
    assert_audit_is_clean(project);
}

/// Long before any question was asked.
struct LongAgo;

impl Clock for LongAgo {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(0)
    }
}

#[test]
fn an_approval_that_is_too_old_is_asked_for_again() {
    let server = ModelServer::start(counting());
    let project = sum_project();
    let action = left_open_in(&project, &server);
    let session = SessionStore::of_project(&project.root())
        .resolve("last")
        .unwrap();
    let env = SessionEnv {
        clock: Arc::new(LongAgo),
        ..crate::sample::session_env(&project, 77)
    };
    let writer = session.open_writer(env).unwrap().writer;
    let scope = (log(&project).into_iter())
        .find(|event| matches!(event.payload, Payload::ActionRequired(_)))
        .unwrap()
        .scope;
    let resolved = ActionResolved {
        decision: ActionDecision::AllowOnce,
        decided_by: DecidedBy::User,
        scope: GrantScope::Once,
        ..ActionResolved::default()
    };
    writer.append(&scope, resolved, Refs::default()).unwrap();
    writer.sync().unwrap();
    drop(writer);

    let going_on = ["--session", "last", "--on-ask", "wait"];
    run(&project, &server, Wire::Chat, &going_on)
        .finish()
        .expect_code(3);
    assert_eq!(counter(&project), 0);
    assert_ne!(only_action(&project)["action_id"], action.as_str());
    assert_eq!(count(&log(&project), "action.required"), 2);
}

/// What a command can reach is part of what was approved.
#[test]
fn an_approval_for_another_sandbox_is_asked_for_again() {
    let server = ModelServer::start(counting());
    let project = sum_project();
    let action = left_open_in(&project, &server);
    respond(&project, "last", &["allow"]).expect_code(0);
    project.write(
        ".agent/config.toml",
        "[permissions]\ndeny = [\"read(secret/**)\"]\n",
    );
    let going_on = ["--session", "last", "--on-ask", "wait"];
    run(&project, &server, Wire::Chat, &going_on)
        .finish()
        .expect_code(3);
    assert_eq!(counter(&project), 0);
    let asked = only_action(&project)["action_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_ne!(asked, action);

    // The new question is about things as they are now, and its answer holds.
    respond(&project, "last", &["allow"]).expect_code(0);
    run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(counter(&project), 1);
    assert_audit_is_clean(&project);
}

#[test]
fn an_approval_does_not_outlast_a_rule_that_denies() {
    let server = ModelServer::start(counting());
    let project = sum_project();
    left_open_in(&project, &server);
    respond(&project, "last", &["allow"]).expect_code(0);
    project.write(
        ".agent/config.toml",
        "[permissions]\ndeny = [\"bash(echo *)\"]\n",
    );
    run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(3);
    assert_eq!(counter(&project), 0);
    assert_eq!(failures(&log(&project)), [Code::PolicyDenied]);
    assert_audit_is_clean(&project);
}

/// Making room before a question, and between its answer and what follows, changes neither: the call
/// runs once, its result is in the input, and a grant for the session needs no second question.
#[test]
fn an_open_question_and_its_answer_outlast_compactions() {
    for wire in [Wire::Chat, Wire::Responses, Wire::Anthropic] {
        check_question_between_compactions(wire);
    }
}

fn check_question_between_compactions(wire: Wire) {
    const ASKS: [usize; 2] = [9, 14];
    let count_it = json!({"command": "sh count.sh", "description": "Count"});
    let steps = AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        if asks_for_summary(request) {
            return Turn::text("I read the first parts of the file.");
        }
        match steps.fetch_add(1, Ordering::Relaxed) {
            step if ASKS.contains(&step) => Turn::call("bash", count_it.clone()),
            step @ 0..18 => reading(step % 9),
            _ => Turn::text("Read and counted."),
        }
    });
    let server = ModelServer::start(script);
    let project = compaction::project_in(&server, wire, 9_000);
    let words = "word ".repeat(1_500);
    project.write("count.sh", format!("echo ran >> counter\necho '{words}'\n"));
    go_with(&project, &["--on-ask", "wait", "Read all of it."]).expect_code(3);
    let before = completed(&log(&project)).len();
    assert!(before > 0, "room was made before the question");
    assert_eq!(only_action(&project)["tool_name"], "bash");
    assert_eq!(counter(&project), 0);
    let asked = server.requests().len();

    respond(&project, "last", &["allow", "--for-session"]).expect_code(0);
    go_with(&project, &["--session", "last", "--on-ask", "wait"]).expect_code(0);
    assert_eq!(counter(&project), ASKS.len());
    let events = log(&project);
    assert_eq!(count(&events, "action.required"), 1);
    assert!(
        completed(&events).len() > before,
        "room was made after the answer"
    );
    let requests = server.requests();
    for request in &requests {
        Shape::of(wire, &request.json()).assert_well_formed();
    }
    // What the approved call printed came back with the next request of the turn.
    let is_step = |request: &&RecordedRequest| !asks_for_summary(request);
    let next = requests[asked..].iter().find(is_step).unwrap();
    let body = String::from_utf8_lossy(&next.body);
    assert!(body.contains("sh count.sh"), "{body}");
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}
