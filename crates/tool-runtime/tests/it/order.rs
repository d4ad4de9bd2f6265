//! Execution is one method among several, and never the first that is called.

use serde_json::json;

use crate::stage::Stage;

#[test]
fn everything_is_checked_before_anything_is_done() {
    let stage = Stage::new();
    let observation = stage.one("look", json!({"path": "a.txt"}));
    assert_eq!(
        stage.spy.calls(),
        [
            "visibility look",
            "visibility look",
            "validate look",
            "decide look",
            "execute look",
            "executed look",
            "normalize look",
        ]
    );
    assert_eq!(
        stage.classes(&observation),
        [
            "tool.intent",
            "tool.validation",
            "tool.args",
            "permission.evaluated",
            "tool.started",
            "tool.result",
            "tool.observation",
        ]
    );
}

#[test]
fn each_refusal_stops_before_the_next_step() {
    let stage = Stage::new();
    for (name, input, calls) in [
        ("nothing", json!({}), vec![]),
        ("hidden", json!({}), vec!["visibility hidden"]),
        ("look", json!({"path": 7}), vec!["visibility look"]),
        (
            "look",
            json!({"check": "no_change"}),
            vec!["visibility look", "visibility look", "validate look"],
        ),
        (
            "look",
            json!({"gate": "deny"}),
            vec![
                "visibility look",
                "visibility look",
                "validate look",
                "decide look",
            ],
        ),
    ] {
        let before = stage.spy.calls().len();
        let observation = stage.one(name, input);
        assert!(!observation.fact().ok);
        assert_eq!(stage.spy.calls()[before..], calls);
    }
}

#[test]
fn every_event_names_its_call_and_step() {
    let stage = Stage::new();
    stage.answer([crate::stage::yes()]);
    stage.run(&[
        ("look", json!({})),
        ("change", json!({"gate": "ask"})),
        ("nothing", json!({})),
    ]);
    for event in stage.events().iter().skip(1) {
        let name = event.payload.type_name();
        assert!(
            event.scope.tool_call_id.is_some() && event.scope.step_id.is_some(),
            "{name}"
        );
    }
}

#[test]
fn an_alias_is_logged_with_the_name_that_was_asked_for() {
    let stage = Stage::new();
    let observation = stage.one("look_alias", json!({}));
    assert!(observation.fact().ok);
    assert_eq!(observation.fact().tool_name, "look");
    let events = stage.events();
    let intent = events.iter().find_map(|event| match &event.payload {
        agent_protocol::Payload::ToolIntent(intent) => Some(intent),
        _ => None,
    });
    let intent = intent.unwrap();
    assert_eq!(intent.requested_name.as_deref(), Some("look_alias"));
    assert_eq!(intent.tool_name, "look");
    assert!(
        intent
            .definition_hash
            .as_ref()
            .unwrap()
            .starts_with("sha256:")
    );
}

#[test]
fn a_read_costs_one_sync_and_a_change_two() {
    let stage = Stage::new();
    for (name, syncs) in [("look", 1), ("change", 2)] {
        let before = stage.writer.sync_count();
        stage.one(name, json!({}));
        assert_eq!(stage.writer.sync_count() - before, syncs, "{name}");
    }
}
