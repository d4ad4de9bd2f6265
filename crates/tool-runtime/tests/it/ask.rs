//! The question path: what is recorded, what an approval holds for, and what an edited input means.

use agent_protocol::payload::permission::{ActionDecision, DecidedBy, Effect};
use agent_protocol::{Code, Payload};
use agent_tool_runtime::{Answer, Outcome, ToolIntent};
use serde_json::json;

use crate::stage::{Stage, decided, yes};

const ASKED: [&str; 4] = [
    "permission.requested",
    "action.required",
    "action.resolved",
    "permission.resolved",
];

#[test]
fn an_approved_call_walks_the_whole_path() {
    let stage = Stage::new();
    stage.answer([yes()]);
    let observation = stage.one("change", json!({"gate": "ask", "path": "b.txt"}));
    assert!(observation.fact().ok);
    let classes = stage.classes(&observation);
    assert_eq!(
        classes[..4],
        [
            "tool.intent",
            "tool.validation",
            "tool.args",
            "permission.evaluated"
        ]
    );
    let path: Vec<_> = classes
        .iter()
        .filter(|class| *class != "artifact.changed")
        .collect();
    assert_eq!(path[4..8], ASKED);
    assert_eq!(
        path[8..],
        ["tool.started", "tool.result", "tool.observation"]
    );
    let questions = stage.authority.questions.lock().unwrap();
    let required = &questions[0].required;
    assert!(required.prompt.contains("b.txt") && required.diff_ref.is_some());
    assert_eq!(required.tool_name.as_deref(), Some("change"));
    assert!(questions[0].expires_at.unwrap() > questions[0].asked_at);
    let facts = observation.fact().facts.permission.clone().unwrap();
    assert_eq!((&*facts.decision, &*facts.source), ("allow", "human"));
}

#[test]
fn a_refusal_walks_it_too_and_nothing_starts() {
    let stage = Stage::new();
    stage.answer([Answer::Unavailable]);
    let observation = stage.one("change", json!({"gate": "ask"}));
    let classes = stage.classes(&observation);
    let path: Vec<_> = classes
        .iter()
        .filter(|class| *class != "artifact.changed")
        .collect();
    assert_eq!(path[4..8], ASKED);
    assert_eq!(path[8..], ["tool.failed", "tool.observation"]);
    let decided_by = stage
        .events()
        .iter()
        .find_map(|event| match &event.payload {
            Payload::ActionResolved(resolved) => Some((resolved.decision, resolved.decided_by)),
            _ => None,
        });
    assert_eq!(decided_by, Some((ActionDecision::Deny, DecidedBy::Policy)));
}

#[test]
fn what_changed_meanwhile_is_asked_again() {
    let stage = Stage::new();
    stage.answer([yes(), yes()]);
    let spy = std::sync::Arc::clone(&stage.spy);
    let mut changes = 1;
    *stage.authority.meanwhile.lock().unwrap() = Some(Box::new(move || {
        if changes > 0 {
            changes -= 1;
            *spy.version.lock().unwrap() += 1;
        }
    }));
    let observation = stage.one("change", json!({"gate": "ask"}));
    assert!(observation.fact().ok);
    assert_eq!(stage.authority.questions.lock().unwrap().len(), 2);
    let keys: Vec<_> = stage
        .authority
        .questions
        .lock()
        .unwrap()
        .iter()
        .map(|question| question.required.approval_key.clone())
        .collect();
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn a_world_that_never_stands_still_ends_the_asking() {
    let stage = Stage::new();
    stage.answer([yes(), yes(), yes(), yes()]);
    let spy = std::sync::Arc::clone(&stage.spy);
    *stage.authority.meanwhile.lock().unwrap() = Some(Box::new(move || {
        *spy.version.lock().unwrap() += 1;
    }));
    let observation = stage.one("change", json!({"gate": "ask"}));
    assert_eq!(observation.fact().code, Code::ApprovalExpired);
    assert!(!stage.spy.calls().contains(&"execute change".to_owned()));
    assert_eq!(stage.findings(), Vec::<String>::new());
}

#[test]
fn an_edited_input_is_checked_like_any_other() {
    let stage = Stage::new();
    let edit = |input| decided(ActionDecision::AllowOnce, None, Some(input));
    stage.answer([edit(json!({"gate": "ask", "label": "edited"}))]);
    let observation = stage.one("change", json!({"gate": "ask"}));
    assert!(observation.fact().ok, "{}", observation.model_text());
    assert!(
        stage
            .spy
            .calls()
            .contains(&"executed change edited".to_owned())
    );
    assert_eq!(stage.authority.questions.lock().unwrap().len(), 1);
    let last = stage
        .events()
        .iter()
        .rev()
        .find_map(|event| match &event.payload {
            Payload::PermissionEvaluated(evaluated) => Some(evaluated.decision),
            _ => None,
        });
    assert_eq!(last, Some(Effect::Allow));

    for (input, code) in [
        (json!({"colour": "red"}), Code::SchemaInvalid),
        (json!({"check": "no_change"}), Code::NoChange),
        (json!({"gate": "deny"}), Code::PolicyDenied),
    ] {
        stage.answer([edit(input)]);
        assert_eq!(
            stage.one("change", json!({"gate": "ask"})).fact().code,
            code
        );
    }
    assert_eq!(stage.findings(), Vec::<String>::new());
}

#[test]
fn aborting_ends_what_follows() {
    let stage = Stage::new();
    stage.answer([decided(ActionDecision::Abort, None, None)]);
    let intents = [
        ToolIntent::new("change", &json!({"gate": "ask"})),
        ToolIntent::new("look", &json!({})),
    ];
    let cancel = agent_tool_runtime::Cancel::new();
    let report = stage.pipeline.run(stage.scope(), &cancel, intents).unwrap();
    assert!(report.aborted);
    let codes: Vec<_> = report
        .outcomes
        .iter()
        .map(|outcome| outcome.observation().unwrap().fact().code)
        .collect();
    assert_eq!(codes, [Code::UserDenied, Code::Cancelled]);
}

#[test]
fn a_question_can_stay_open() {
    let stage = Stage::new();
    stage.answer([Answer::LeftOpen]);
    let outcomes = stage.run(&[("change", json!({"gate": "ask"})), ("look", json!({}))]);
    assert!(matches!(outcomes[0], Outcome::LeftOpen { .. }));
    assert_eq!(
        outcomes[1].observation().unwrap().fact().code,
        Code::Cancelled
    );
    let events = stage.events();
    assert!(
        !events
            .iter()
            .any(|event| matches!(event.payload, Payload::ActionResolved(_)))
    );
}
