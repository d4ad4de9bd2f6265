//! Directories outside the project that the user lets the session read: by tools and by commands, recorded, and never
//! for writing.

use agent_protocol::payload::permission::{DecidedBy, Effect};
use agent_protocol::{Code, Event, Payload};
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::json;

use crate::agent;
use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run};

fn bash(command: &str) -> Turn {
    Turn::call("bash", json!({"command": command, "description": "a step"}))
}

fn codes(events: &[Event]) -> Vec<Code> {
    let seen = events.iter().filter_map(|event| match &event.payload {
        Payload::ToolObservation(seen) => Some(seen.code),
        _ => None,
    });
    seen.collect()
}

fn decisions(events: &[Event]) -> Vec<Effect> {
    let decided = events.iter().filter_map(|event| match &event.payload {
        Payload::PermissionEvaluated(evaluated) => Some(evaluated.decision),
        _ => None,
    });
    decided.collect()
}

fn added(events: &[Event]) -> Vec<(Vec<String>, DecidedBy)> {
    let changes = events.iter().filter_map(|event| match &event.payload {
        Payload::PolicyChanged(changed) => {
            Some((changed.changed.directories_added.clone()?, changed.by))
        }
        _ => None,
    });
    changes.collect()
}

/// Another place with a file that is one's own to read, and one that holds secrets.
fn library() -> (TestProject, String) {
    let library = TestProject::new();
    library.write("docs/guide.md", "a guide to the library\n");
    library.write(".env", "TOKEN=abc\n");
    let path = library.root().canonicalize().unwrap();
    let path = path.to_str().unwrap().to_owned();
    (library, path)
}

#[test]
fn an_added_directory_is_read_by_tools_and_commands_and_not_written() {
    let (library, path) = library();
    let project = TestProject::new();
    let guide = format!("{path}/docs/guide.md");
    let script = Script::new()
        .turn(Turn::call("read", json!({"path": guide})))
        .turn(Turn::call(
            "grep",
            json!({"pattern": "guide", "path": path}),
        ))
        .turn(bash(&format!("cat {guide}")))
        .turn(Turn::call("read", json!({"path": format!("{path}/.env")})))
        .turn(Turn::call(
            "write",
            json!({"path": format!("{path}/new"), "content": "x"}),
        ))
        .turn(bash(&format!("touch {path}/new")))
        .turn(Turn::text("Done."))
        .turn(Turn::call("read", json!({"path": guide})))
        .turn(Turn::text("Again."));
    let server = ModelServer::start(script);
    let ran = run(
        &project,
        &server,
        Wire::Chat,
        &["--add-dir", &path, "Look."],
    )
    .finish();
    assert_eq!(ran.code(), 3, "{}", ran.stderr());
    let events = log(&project);
    assert_eq!(
        codes(&events),
        [
            Code::Ok,
            Code::Ok,
            Code::Ok,
            Code::ApprovalUnavailable,
            Code::OutsideWorkspace,
            Code::ApprovalUnavailable,
        ]
    );
    assert_eq!(decisions(&events)[..3], [Effect::Allow; 3]);
    assert!(!library.root().join("new").exists());
    assert_eq!(added(&events), [(vec![path.clone()], DecidedBy::User)]);
    let first = server.bodies()[0].to_string();
    assert!(
        first.contains(&format!("outside the project, by absolute paths: {path}")),
        "{first}"
    );
    // The grant is the session's: it holds when the session goes on, and is not recorded twice.
    let again = ["--add-dir", &path, "--session", "last", "Again."];
    let ran = run(&project, &server, Wire::Chat, &again).finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let events = log(&project);
    assert_eq!(codes(&events).last(), Some(&Code::FileUnchanged));
    assert_eq!(added(&events).len(), 1);
    assert_inputs_can_be_rebuilt(&project, &server);
    assert_audit_is_clean(&project);
}

/// In mode auto a command sees it in the sandbox, and the sandbox keeps it from being written.
#[test]
fn a_sandboxed_command_sees_an_added_directory_and_cannot_change_it() {
    let (library, path) = library();
    let project = TestProject::new();
    let script = || {
        let look = format!("cat {path}/docs/guide.md | tr a-z A-Z > here; touch {path}/new");
        let script = Script::new().turn(bash(&look));
        ModelServer::start(script.turn(Turn::text("Done.")))
    };
    let mode = ["--mode", "auto"];
    let server = script();
    let _ = run(
        &project,
        &server,
        Wire::Chat,
        &[&mode[..], &["Look."]].concat(),
    )
    .finish();
    assert_eq!(project.read("here"), "");
    let server = script();
    let arguments = [&mode[..], &["--add-dir", &path, "Look."]].concat();
    let _ = run(&project, &server, Wire::Chat, &arguments).finish();
    assert_eq!(project.read("here"), "A GUIDE TO THE LIBRARY\n");
    assert!(!library.root().join("new").exists());
}

/// A fork begins without the grants of the session it comes from.
#[test]
fn a_fork_does_not_inherit_an_added_directory() {
    let (_library, path) = library();
    let project = TestProject::new();
    let guide = format!("{path}/docs/guide.md");
    let script = Script::new()
        .turn(Turn::text("Ready."))
        .turn(Turn::call("read", json!({"path": guide})))
        .turn(Turn::text("Done."));
    let server = ModelServer::start(script);
    let ran = run(
        &project,
        &server,
        Wire::Chat,
        &["--add-dir", &path, "Look."],
    )
    .finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let forked = agent(&project, &["fork", "last", "--json"]).finish().json();
    let fork = forked["session_id"].as_str().unwrap();
    let ran = run(
        &project,
        &server,
        Wire::Chat,
        &["--session", fork, "Read it."],
    )
    .finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let log = project.root().join(".agent/sessions").join(fork);
    let log = std::fs::read_to_string(log.join("events.jsonl")).unwrap();
    let events: Vec<Event> = log
        .lines()
        .map(|line| Event::from_line(line.as_bytes()).unwrap())
        .collect();
    assert_eq!(codes(&events), [Code::OutsideWorkspace]);
}

#[test]
fn what_is_too_much_or_no_directory_is_refused_and_nothing_begins() {
    let project = TestProject::new();
    project.write("file.txt", "x\n");
    let server = ModelServer::start(Script::new());
    let home = project.home();
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    let hidden = home.join(".ssh");
    for (path, why) in [
        ("/", "it holds your home directory"),
        (home.to_str().unwrap(), "it holds your home directory"),
        (hidden.to_str().unwrap(), "settings and secrets lie there"),
        ("/etc", "settings and secrets lie there"),
        ("file.txt", "it is not a directory"),
        ("gone", "No such file or directory"),
    ] {
        let ran = run(&project, &server, Wire::Chat, &["--add-dir", path, "Look."]).finish();
        assert_eq!(ran.code(), 2, "{path}: {}", ran.stderr());
        assert!(ran.stderr().contains(why), "{path}: {}", ran.stderr());
    }
    assert!(!project.root().join(".agent/sessions").exists());
    assert!(server.bodies().is_empty());
}
