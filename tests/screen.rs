//! The screen: the real binary in a real pseudo-terminal, read back by a terminal emulator.

mod back;
mod care;
mod commands;
mod composer;
mod context;
mod manual;
mod outside;
mod plans;
mod questions;
mod start;
pub(crate) mod terminal;
mod thinking;

use agent_protocol::payload::permission::{ActionDecision, DecidedBy};
use agent_protocol::{Event, Payload};
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::json;

use terminal::Terminal;

const USUAL: (u16, u16) = (80, 24);
const READY: &str = "Ask for something";

/// A project whose model is `script`.
fn project_with(script: Script) -> (TestProject, ModelServer) {
    let server = ModelServer::start(script);
    let project = TestProject::new();
    let base = server.base_url(Wire::Chat);
    project.write_home(
        "config.toml",
        format!("model = \"local/test-model\"\n[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{base}\"\n"),
    );
    (project, server)
}

/// Adds lines to the user's settings.
fn with_setting(project: &TestProject, lines: &str) {
    let before = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    project.write_home("config.toml", format!("{before}\n{lines}\n"));
}

/// The same with `a.txt`, in which the model changes `one` to `two`.
fn project_to_change(content: &str) -> (TestProject, ModelServer) {
    let change = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
    let (project, server) = project_with(
        Script::new()
            .turn(Turn::call("read", json!({"path": "a.txt"})))
            .turn(Turn::call("edit", change))
            .turn(Turn::text("Changed.")),
    );
    project.write("a.txt", content);
    (project, server)
}

fn bash(command: &str) -> Turn {
    Turn::call("bash", json!({"command": command, "description": "a step"}))
}

/// The only session of the project.
fn session_id(project: &TestProject) -> String {
    let mut sessions = std::fs::read_dir(project.root().join(".agent/sessions")).unwrap();
    let session = sessions.next().unwrap().unwrap();
    session.file_name().into_string().unwrap()
}

/// The events of the only session of the project in `directory`.
fn events(project: &TestProject, directory: &str) -> Vec<Event> {
    let sessions = project.root().join(directory).join(".agent/sessions");
    let mut logs: Vec<_> = std::fs::read_dir(sessions)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("events.jsonl"))
        .collect();
    logs.sort();
    let log = std::fs::read_to_string(logs.last().unwrap()).unwrap();
    log.lines()
        .map(|line| Event::from_line(line.as_bytes()).unwrap())
        .collect()
}

fn decisions(events: &[Event]) -> Vec<(ActionDecision, DecidedBy)> {
    let resolved = events.iter().filter_map(|event| match &event.payload {
        Payload::ActionResolved(resolved) => Some((resolved.decision, resolved.decided_by)),
        _ => None,
    });
    resolved.collect()
}

/// Waits until the terminal was taken for the `times`th time, and the composer is there.
fn opened(terminal: &mut Terminal, times: usize) {
    terminal.wait_until_raw("the terminal taken again", |raw| {
        String::from_utf8_lossy(raw).matches("\x1b[?2004h").count() >= times
    });
    terminal.wait_for(READY);
}

/// Leaves by the front door, and looks that it is closed.
fn leave(terminal: &mut Terminal) {
    terminal.wait_for(READY).keys("/quit\r");
    assert_eq!(terminal.exit_code(), 0);
    terminal.assert_given_back();
}
