//! Commands in the background: their output, their end, and what they change meanwhile.

use agent_protocol::{Code, Payload};
use serde_json::json;

use crate::command::{bash, with};
use crate::effects::told;
use crate::stage::Stage;

#[test]
fn a_background_command_runs_on_and_can_be_ended() {
    let stage = Stage::new();
    let started = stage.call(
        "bash",
        &with("echo ready; exec sleep 600", json!({"background": true})),
    );
    assert_eq!(started.code, Code::Ok, "{}", stage.model_text(&started));
    let id = started.facts.data.process_id.clone().unwrap();
    let shown = stage.call(
        "process_output",
        &json!({"process_id": id, "offset": 0, "wait_ms": 200}),
    );
    assert_eq!(shown.facts.data.process_status.as_deref(), Some("running"));
    let killed = stage.call("process_kill", &json!({"process_id": id}));
    assert_eq!(killed.code, Code::Ok, "{}", stage.model_text(&killed));
    assert_eq!(killed.facts.data.process_status.as_deref(), Some("ended"));
    let again = stage.call("process_kill", &json!({"process_id": id}));
    assert_eq!(again.code, Code::NoChange);
    let all = stage.call("process_output", &json!({"process_id": id, "offset": 0}));
    assert!(stage.model_text(&all).contains("ready"));
    let unknown = stage.call("process_output", &json!({"process_id": "proc_none"}));
    assert_eq!(unknown.code, Code::RuntimePreconditionFailed);
}

#[test]
fn a_short_background_command_reports_its_end() {
    let stage = Stage::new();
    let started = stage.call(
        "bash",
        &with("echo quick; exit 4", json!({"background": true})),
    );
    let id = started.facts.data.process_id.clone().unwrap();
    let ended = stage.call(
        "process_output",
        &json!({"process_id": id, "offset": 0, "wait_ms": 30_000}),
    );
    assert_eq!(
        ended.facts.data.exit_code,
        Some(4),
        "{}",
        stage.model_text(&ended)
    );
    stage.tools.processes.shutdown();
    let completed = stage
        .events()
        .into_iter()
        .any(|event| matches!(event.payload, Payload::ProcessCompleted(_)));
    assert!(completed);
}

#[test]
fn what_a_background_command_changes_is_told_when_it_ends_and_only_that() {
    let stage = Stage::new();
    stage.put("log", "begun\n");
    stage.put("edited", "one\n");
    stage.put("commanded", "one\n");
    stage.call("read", &json!({"path": "edited"}));
    let server = with(
        "echo more >> log; echo made > made; echo ready; while [ ! -e stop ]; do sleep 0.05; done",
        json!({"background": true}),
    );
    let started = stage.call("bash", &server);
    let id = started.facts.data.process_id.clone().unwrap();
    assert_eq!(told(&started.side_effects), [""; 0]);
    // What other calls do meanwhile is theirs.
    let edit = json!({"path": "edited", "old_string": "one", "new_string": "two"});
    assert_eq!(stage.call("edit", &edit).code, Code::Ok);
    let write = json!({"path": "written/new", "content": "x\n"});
    assert_eq!(stage.call("write", &write).code, Code::Ok);
    assert_eq!(
        bash(&stage, "echo two > commanded; touch stop").code,
        Code::Ok
    );
    let waited = json!({"process_id": id, "wait_ms": 60000});
    let waited = stage.call("process_output", &waited);
    assert_eq!(waited.facts.exit_code, Some(0), "{waited:?}");
    let ended: Vec<_> = stage
        .events()
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ProcessCompleted(ended) if ended.process_id.as_str() == id => Some(ended),
            _ => None,
        })
        .collect();
    assert_eq!(
        told(&ended[0].side_effects),
        ["modified file log", "created file made"]
    );
    let image = ended[0].side_effects[0].before_ref.as_ref().unwrap();
    assert_eq!(stage.artifact(image), b"begun\n");
    stage.check_log().unwrap();
}

#[test]
fn what_a_background_command_changed_is_told_at_the_end_of_the_session() {
    let stage = Stage::new();
    let server = with(
        "echo made > made; echo ready; exec sleep 600",
        json!({"background": true}),
    );
    let started = stage.call("bash", &server);
    let id = json!(started.facts.data.process_id.clone().unwrap());
    let output = stage.call(
        "process_output",
        &json!({"process_id": id, "offset": 0, "wait_ms": 1}),
    );
    assert!(output.ok, "{output:?}");
    while !stage.project().join("made").exists() {
        std::thread::yield_now();
    }
    stage.tools.processes.shutdown();
    let told_at_end = stage
        .events()
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::ProcessTerminated(ended) => Some(told(&ended.side_effects)),
            _ => None,
        });
    assert_eq!(told_at_end.unwrap(), ["created file made"]);
    stage.check_log().unwrap();
}
