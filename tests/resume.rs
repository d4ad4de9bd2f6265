//! Going on: calls that were left open, answers given from another process, forks, the queue.

use agent_log::SessionStore;
use agent_protocol::payload::conversation::{
    QueueChanged, QueueOperation, TurnSource, TurnSubmitted,
};
use agent_protocol::status::Status;
use agent_protocol::{Code, Event, Payload, Refs, Scope};
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::run::{assert_audit_is_clean, log, run, sum_project};
use crate::{agent, sample};

/// A command that says in a file that it ran; the gate asks about it.
pub(crate) fn counting() -> Script {
    Script::new()
        .turn(Turn::call(
            "bash",
            json!({"command": "echo ran >> counter", "description": "Count"}),
        ))
        .turn(Turn::text("Counted."))
}

pub(crate) fn counter(project: &TestProject) -> usize {
    let path = project.root().join("counter");
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

pub(crate) fn only_action(project: &TestProject) -> Value {
    let listed = agent(project, &["actions", "--json"])
        .finish()
        .expect_code(0)
        .json();
    crate::assert_schema("actions", &listed);
    let actions = listed["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 1, "{listed}");
    actions[0].clone()
}

pub(crate) fn count(events: &[Event], class: &str) -> usize {
    let found = |event: &&Event| event.payload.type_name() == class;
    events.iter().filter(found).count()
}

/// A run that leaves its question open.
fn left_open(server: &ModelServer) -> (TestProject, String) {
    let project = sum_project();
    let action = left_open_in(&project, server);
    (project, action)
}

/// A run in `project` that leaves its question open; the question's id.
pub(crate) fn left_open_in(project: &TestProject, server: &ModelServer) -> String {
    run(project, server, Wire::Chat, &["--on-ask", "wait", "Count."])
        .finish()
        .expect_code(3);
    let action = only_action(project);
    assert_eq!(action["tool_name"], "bash");
    action["action_id"].as_str().unwrap().to_owned()
}

#[test]
fn an_allowed_call_goes_on_and_runs_once() {
    let server = ModelServer::start(counting());
    let (project, action) = left_open(&server);
    assert_eq!(counter(&project), 0);
    agent(&project, &["respond", "last", &action, "allow"])
        .finish()
        .expect_code(0);
    assert_eq!(counter(&project), 0, "an answer runs nothing");
    let again = agent(&project, &["respond", "last", &action, "deny"]).finish();
    assert_eq!(again.code(), 2, "it was answered: {}", again.stderr());
    let ran = run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(ran.stdout().trim(), "Counted.");
    assert_eq!(counter(&project), 1);
    let events = log(&project);
    for (class, times) in [
        ("turn.started", 1),
        ("turn.completed", 1),
        ("action.required", 1),
        ("action.resolved", 1),
        ("permission.resolved", 1),
        ("tool.intent", 1),
        ("tool.started", 1),
        ("tool.observation", 1),
    ] {
        assert_eq!(count(&events, class), times, "{class}");
    }
    assert_audit_is_clean(&project);
    // Nothing is left: going on again does nothing.
    run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(counter(&project), 1);
}

#[test]
fn a_denied_call_goes_on_as_a_refusal_with_its_note() {
    let server = ModelServer::start(counting());
    let (project, action) = left_open(&server);
    let short = &action[..action.len() - 4];
    agent(
        &project,
        &[
            "respond",
            "last",
            short,
            "deny",
            "--note",
            "not on a Monday",
        ],
    )
    .finish()
    .expect_code(0);
    run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(3);
    assert_eq!(counter(&project), 0);
    let sent = server.requests()[1].body.clone();
    assert!(String::from_utf8_lossy(&sent).contains("not on a Monday"));
    let events = log(&project);
    assert_eq!(count(&events, "tool.started"), 0);
    let denied = |event: &Event| matches!(&event.payload, Payload::ToolFailed(failed) if failed.code == Code::UserDenied);
    assert!(events.iter().any(denied));
    assert_audit_is_clean(&project);
}

#[test]
fn an_unanswered_call_is_asked_about_again() {
    let server = ModelServer::start(counting());
    let (project, action) = left_open(&server);
    run(
        &project,
        &server,
        Wire::Chat,
        &["--session", "last", "--on-ask", "wait"],
    )
    .finish()
    .expect_code(3);
    assert_eq!(only_action(&project)["action_id"], action.as_str());
    run(
        &project,
        &server,
        Wire::Chat,
        &["--session", "last", "--on-ask", "allow"],
    )
    .finish()
    .expect_code(0);
    assert_eq!(counter(&project), 1);
    assert_eq!(count(&log(&project), "action.required"), 1);
    assert_audit_is_clean(&project);
}

#[test]
fn an_approved_edit_of_a_file_that_changed_since_is_not_made() {
    let script = Script::new()
        .turn(Turn::call("read", json!({"path": "README.md"})))
        .turn(Turn::call(
            "edit",
            json!({"path": "README.md", "old_string": "Adds", "new_string": "Sums"}),
        ))
        .turn(Turn::text("The file changed; I stopped."));
    let server = ModelServer::start(script);
    let project = sum_project();
    run(
        &project,
        &server,
        Wire::Chat,
        &["--on-ask", "wait", "Reword it."],
    )
    .finish()
    .expect_code(3);
    let action = only_action(&project);
    let id = action["action_id"].as_str().unwrap();
    agent(&project, &["respond", "last", id, "allow"])
        .finish()
        .expect_code(0);
    project.write("README.md", "Adds nothing any more.\n");
    let _ = run(&project, &server, Wire::Chat, &["--session", "last"]).finish();
    assert_eq!(project.read("README.md"), "Adds nothing any more.\n");
    let stale = log(&project).into_iter().any(|event| {
        matches!(event.payload, Payload::ToolFailed(failed) if failed.code.as_str() == "stale_file_baseline")
    });
    assert!(stale);
    assert_audit_is_clean(&project);
}

#[test]
fn a_call_without_a_model_goes_on_too() {
    let project = sum_project();
    let server = ModelServer::start(Script::new());
    let input = json!({"command": "echo ran >> counter", "description": "Count"}).to_string();
    agent(
        &project,
        &["call", "--on-ask", "wait", "bash", input.as_str()],
    )
    .finish()
    .expect_code(3);
    let action = only_action(&project);
    let id = action["action_id"].as_str().unwrap();
    agent(&project, &["respond", "last", id, "allow"])
        .finish()
        .expect_code(0);
    run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(counter(&project), 1);
    assert!(server.requests().is_empty(), "no model was asked");
    assert_audit_is_clean(&project);
}

#[test]
fn a_question_that_is_not_there_is_exit_2() {
    let server = ModelServer::start(counting());
    let (project, _) = left_open(&server);
    let before = log(&project).len();
    let ran = agent(&project, &["respond", "last", "act_nothing", "allow"]).finish();
    assert_eq!(ran.code(), 2);
    assert!(ran.stderr().contains("agent actions"), "{}", ran.stderr());
    assert_eq!(log(&project).len(), before);
}

fn fork(project: &TestProject, arguments: &[&str]) -> (String, u64) {
    let all = [&["fork"], arguments, &["--json"]].concat();
    let forked = agent(project, &all).finish().expect_code(0).json();
    crate::assert_schema("fork", &forked);
    let id = forked["session_id"].as_str().unwrap().to_owned();
    (id, forked["parent"]["sequence"].as_u64().unwrap())
}

#[test]
fn a_fork_has_the_conversation_up_to_its_event_and_stands_alone() {
    let server = ModelServer::start(
        Script::new()
            .turn(Turn::call("read", json!({"path": "README.md"})))
            .turn(Turn::text("First."))
            .turn(Turn::text("Second."))
            .turn(Turn::text("Third."))
            .turn(Turn::text("Fourth.")),
    );
    let project = sum_project();
    run(&project, &server, Wire::Chat, &["one"])
        .finish()
        .expect_code(0);
    let end_of_first = log(&project).len() as u64 - 1;
    run(&project, &server, Wire::Chat, &["--session", "last", "two"])
        .finish()
        .expect_code(0);
    let parent = crate::example::session_of(&project);
    let before = std::fs::read(parent.join("events.jsonl")).unwrap();

    let at = end_of_first.to_string();
    let (forked, sequence) = fork(&project, &["last", "--at", &at]);
    assert_eq!(sequence, end_of_first);
    assert_eq!(std::fs::read(parent.join("events.jsonl")).unwrap(), before);
    // The parent is not needed any more.
    std::fs::rename(&parent, project.home().join("away")).unwrap();
    run(
        &project,
        &server,
        Wire::Chat,
        &["--session", &forked, "three"],
    )
    .finish()
    .expect_code(0);
    // A fork of a fork.
    let (again, _) = fork(&project, &[&forked]);
    run(
        &project,
        &server,
        Wire::Chat,
        &["--session", &again, "four"],
    )
    .finish()
    .expect_code(0);
    for (number, wanted, unwanted) in [
        (3, vec!["one", "First.", "three"], vec!["two", "Second."]),
        (
            4,
            vec!["one", "First.", "three", "Third.", "four"],
            vec!["two"],
        ),
    ] {
        let body = server.bodies().remove(number);
        let said: Vec<&str> = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message["content"].as_str())
            .collect();
        for text in wanted {
            assert!(said.contains(&text), "{text} in {said:?}");
        }
        for text in unwanted {
            assert!(!said.contains(&text), "{text} in {said:?}");
        }
        assert!(
            body.to_string().contains("Adds two numbers"),
            "the file it read"
        );
    }
    for session in [&forked, &again] {
        let audit = agent(&project, &["audit", session, "--json"]).finish();
        assert_eq!(audit.code(), 0, "{}", audit.stdout());
        let codes = audit.json()["findings"].to_string();
        assert!(!codes.contains("artifact_unnamed"), "{codes}");
    }
}

#[test]
fn a_fork_beyond_the_end_is_exit_2_and_makes_nothing() {
    let project = sum_project();
    let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
    run(&project, &server, Wire::Chat, &["hello"])
        .finish()
        .expect_code(0);
    let ran = agent(&project, &["fork", "last", "--at", "100000"]).finish();
    assert_eq!(ran.code(), 2, "{}", ran.stderr());
    crate::example::session_of(&project);
    let sessions = project.root().join(".agent/sessions");
    assert_eq!(std::fs::read_dir(sessions).unwrap().count(), 1);
}

#[test]
fn inputs_that_waited_when_the_process_ended_run_in_order() {
    let project = sum_project();
    let server = ModelServer::start(
        Script::new()
            .turn(Turn::text("First."))
            .turn(Turn::text("Second."))
            .turn(Turn::text("Third.")),
    );
    run(&project, &server, Wire::Chat, &["one"])
        .finish()
        .expect_code(0);
    // Two inputs that came while a turn ran, and a process that ended before it got to them.
    let store = SessionStore::of_project(&project.root());
    let session = store.resolve("last").unwrap();
    let opened = session
        .open_writer(sample::session_env(&project, 9))
        .unwrap();
    let thread = log(&project)[1].scope.thread_id.clone();
    let mut order = Vec::new();
    for text in ["two", "three"] {
        let scope = Scope {
            thread_id: thread.clone(),
            turn_id: Some(opened.writer.mint()),
            ..Scope::default()
        };
        order.extend(scope.turn_id.clone());
        let submitted = TurnSubmitted {
            text: Some(text.to_owned()),
            source: TurnSource::Tui,
            status: Status::Queued,
            ..TurnSubmitted::default()
        };
        let added = QueueChanged {
            op: QueueOperation::Added,
            queued_turn_id: scope.turn_id.clone(),
            order: order.clone(),
            ..QueueChanged::default()
        };
        let writer = &opened.writer;
        writer.append(&scope, submitted, Refs::default()).unwrap();
        writer.append(&scope, added, Refs::default()).unwrap();
    }
    drop(opened);
    let ran = run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(ran.stdout().trim(), "Third.");
    let bodies = server.bodies();
    for (number, wanted) in [(1, "two"), (2, "three")] {
        let messages = bodies[number]["messages"].as_array().unwrap();
        assert_eq!(messages.last().unwrap()["content"], wanted);
    }
    assert_audit_is_clean(&project);
}

/// What a branch inherited is told from its own copy, marked; commands that look at its own events
/// only say where the rest is.
#[test]
fn a_fork_tells_what_it_inherited() {
    let project = TestProject::new();
    sample::session(&project, 1, "parent");
    let parent = sample::session(&project, 2, "parent").to_string();
    let at = ["--at", "10"];
    let (forked, _) = fork(&project, &[&parent, at[0], at[1]]);
    let tell = |arguments: &[&str]| {
        let all = [&["replay", &forked], arguments].concat();
        agent(&project, &all).finish().expect_code(0)
    };
    let text = tell(&[]).stdout().to_owned();
    let (inherited, own) = text.split_once("── this session ").unwrap();
    assert!(inherited.contains(&format!("── inherited from {parent} ")));
    assert!(inherited.contains("── inherited turn 1 "), "{text}");
    assert!(inherited.contains("what is in the file?"), "{text}");
    assert!(inherited.contains("‹#1 read"), "{text}");
    assert!(own.contains("11 events are inherited"), "{text}");
    assert!(!own.contains("what is in the file?"), "{text}");

    let told = tell(&["--format", "json"]).json();
    crate::assert_schema("replay", &told);
    assert_eq!(told["inherited"]["session_id"], parent);
    assert_eq!(told["inherited"]["events"].as_array().unwrap().len(), 11);
    assert_eq!(told["summary"]["calls"], 0, "the branch itself made none");
    let page = tell(&["--format", "html"]).stdout().to_owned();
    assert!(page.contains("<details class=\"past\">"));
    let later = tell(&["--from", "1"]).stdout().to_owned();
    assert!(!later.contains("inherited"), "{later}");

    let note = format!("forked from {parent} after event 10");
    let diff = agent(&project, &["diff", &forked]).finish().expect_code(0);
    assert!(
        diff.stderr().contains(&format!(
            "{note}: for what changed before that, `agent diff {parent} --to 10`"
        )),
        "{}",
        diff.stderr()
    );
    let undo = agent(&project, &["undo", &forked]).finish().expect_code(0);
    assert!(
        undo.stderr().contains(&format!("`agent undo {parent}`")),
        "{}",
        undo.stderr()
    );
    let why = agent(&project, &["why", &forked, "call_1"])
        .finish()
        .expect_code(2);
    assert!(
        why.stderr()
            .contains(&format!("`agent why {parent} call_1`")),
        "{}",
        why.stderr()
    );

    // The parent is not needed for the story; without the copy nothing is claimed.
    let sessions = project.root().join(".agent/sessions");
    std::fs::remove_dir_all(sessions.join(&parent)).unwrap();
    assert_eq!(tell(&[]).stdout(), text);
    let diff = agent(&project, &["diff", &forked]).finish().expect_code(0);
    assert!(
        diff.stderr().contains(&format!(
            "{note}, which is missing: what changed before that is unknown"
        )),
        "{}",
        diff.stderr()
    );
    std::fs::remove_dir_all(sessions.join(&forked).join("artifacts")).unwrap();
    let text = tell(&[]).stdout().to_owned();
    assert!(text.contains("what is inherited is unknown: "), "{text}");
    assert!(!text.contains("what is in the file?"), "{text}");
}

#[test]
fn a_prompt_that_comes_while_a_question_waits_is_not_lost() {
    let server = ModelServer::start(counting().turn(Turn::text("And that too.")));
    let (project, action) = left_open(&server);
    let arguments = ["--session", "last", "--on-ask", "wait", "Then this."];
    run(&project, &server, Wire::Chat, &arguments)
        .finish()
        .expect_code(3);
    let shown = agent(&project, &["sessions", "show", "last", "--json"])
        .finish()
        .json();
    assert_eq!(shown["queue"].as_array().unwrap().len(), 1, "{shown}");
    agent(&project, &["respond", "last", &action, "allow"])
        .finish()
        .expect_code(0);
    let ran = run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(ran.stdout().trim(), "And that too.");
    assert_eq!(counter(&project), 1);
    let last = server.bodies().pop().unwrap();
    let messages = last["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["content"], "Then this.");
    assert_audit_is_clean(&project);
}

#[test]
fn a_call_that_goes_on_is_bound_by_the_time_limit_too() {
    let command = json!({"command": "echo ran >> counter; sleep 60", "description": "Wait"});
    let server = ModelServer::start(Script::new().turn(Turn::call("bash", command)));
    let project = sum_project();
    let action = left_open_in(&project, &server);
    agent(&project, &["respond", "last", &action, "allow"])
        .finish()
        .expect_code(0);
    let arguments = ["--session", "last", "--timeout", "2s"];
    run(&project, &server, Wire::Chat, &arguments)
        .finish()
        .expect_code(5);
    assert_audit_is_clean(&project);
}
