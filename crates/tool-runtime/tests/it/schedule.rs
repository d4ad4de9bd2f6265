//! Who runs beside whom, in which order results are recorded, and how calls are stopped.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use agent_protocol::payload::tool::ToolExit;
use agent_protocol::{Code, Payload, Phase};
use agent_tool_runtime::{Cancel, CancelReason, Outcome, Settings, ToolIntent};
use serde_json::json;

use crate::stage::Stage;

fn meet(stage: &Stage, count: usize) {
    *stage.spy.meeting.lock().unwrap() = Some(Arc::new(Barrier::new(count)));
}

fn execution(stage: &Stage) -> Vec<String> {
    stage
        .spy
        .calls()
        .into_iter()
        .filter(|call| call.starts_with("execute"))
        .collect()
}

#[test]
fn reading_neighbours_run_side_by_side() {
    // Each waits for the other two: this ends only if all three run at once.
    let stage = Stage::new();
    meet(&stage, 3);
    let call = ("look", json!({"behave": "meet"}));
    let outcomes = stage.run(&[call.clone(), call.clone(), call]);
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.observation().unwrap().fact().ok)
    );
}

#[test]
fn a_change_is_a_barrier_for_what_follows() {
    let stage = Stage::new();
    stage.run(&[
        ("look", json!({"label": "1"})),
        ("change", json!({"label": "2"})),
        ("look", json!({"label": "3"})),
        ("command", json!({"label": "4"})),
    ]);
    assert_eq!(
        execution(&stage),
        [
            "execute look 1",
            "executed look 1",
            "execute change 2",
            "executed change 2",
            "execute look 3",
            "executed look 3",
            "execute command 4",
            "executed command 4",
        ]
    );
    // The third was not even validated before the second had its result.
    let events = stage.events();
    let place = |wanted: &str, number: usize| {
        let found = events
            .iter()
            .filter(|event| event.payload.type_name() == wanted);
        found.map(|event| event.sequence).nth(number).unwrap()
    };
    assert!(place("tool.observation", 1) < place("tool.validation", 2));
    let waited: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ToolProgress(progress) => Some((
                progress.phase,
                progress.waited_ms.is_some(),
                progress.lock_key.clone(),
            )),
            _ => None,
        })
        .collect();
    assert!(
        waited.contains(&(Phase::Schedule, true, Some("a.txt".into()))),
        "{waited:?}"
    );
}

#[test]
fn keyed_calls_with_the_same_key_do_not_overlap() {
    let stage = Stage::new();
    meet(&stage, 2);
    stage.run(&[
        ("peek", json!({"path": "a", "behave": "meet"})),
        ("peek", json!({"path": "b", "behave": "meet"})),
        ("peek", json!({"path": "b", "label": "again"})),
    ]);
    let calls = execution(&stage);
    assert_eq!(
        calls[calls.len() - 2..],
        ["execute peek again", "executed peek again"]
    );
}

#[test]
fn results_are_recorded_in_call_order() {
    let stage = Stage::new();
    let (open, gate) = channel();
    *stage.spy.gate.lock().unwrap() = Some(gate);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let batch = stage
        .pipeline
        .batch(stage.scope(), &Cancel::new(), {
            let seen = Arc::clone(&seen);
            move |outcome: &Outcome| {
                seen.lock()
                    .unwrap()
                    .push(outcome.observation().unwrap().fact().title.clone())
            }
        })
        .unwrap();
    batch.submit(ToolIntent::new("peek", &json!({"behave": "deaf"})));
    batch.submit(ToolIntent::new("look", &json!({})));
    while !stage.spy.calls().contains(&"executed look".to_owned()) {
        std::thread::yield_now();
    }
    assert!(seen.lock().unwrap().is_empty());
    open.send(()).unwrap();
    batch.finish().unwrap();
    assert_eq!(*seen.lock().unwrap(), ["peek", "look"]);
}

#[test]
fn reading_starts_while_the_model_still_speaks_and_writing_does_not() {
    let stage = Stage::new();
    let (seen, observed) = channel();
    let batch = stage
        .pipeline
        .batch(stage.scope(), &Cancel::new(), move |outcome: &Outcome| {
            seen.send(outcome.observation().unwrap().fact().tool_name.clone())
                .unwrap();
        })
        .unwrap();
    batch.submit(ToolIntent::new("look", &json!({})));
    assert_eq!(observed.recv().unwrap(), "look");
    batch.submit(ToolIntent::new("change", &json!({})));
    batch.submit(ToolIntent::new("look", &json!({})));
    assert!(observed.recv_timeout(Duration::from_millis(20)).is_err());
    let report = batch.finish().unwrap();
    assert_eq!(report.outcomes.len(), 3);
}

#[test]
fn an_abandoned_batch_leaves_explicit_facts() {
    let stage = Stage::new();
    let batch = stage
        .pipeline
        .batch(stage.scope(), &Cancel::new(), |_| {})
        .unwrap();
    batch.submit(ToolIntent::new("look", &json!({"behave": "wait"})));
    batch.submit(ToolIntent::new("change", &json!({})));
    while !stage.spy.calls().contains(&"execute look".to_owned()) {
        std::thread::yield_now();
    }
    let report = batch.abandon().unwrap();
    let ends: Vec<_> = report
        .outcomes
        .iter()
        .map(|outcome| outcome.observation().unwrap().fact())
        .map(|fact| (fact.phase, fact.code))
        .collect();
    assert_eq!(
        ends,
        [
            (Phase::Execute, Code::Cancelled),
            (Phase::Schedule, Code::Cancelled)
        ]
    );
    assert!(!stage.spy.calls().contains(&"execute change".to_owned()));
    let exits: Vec<_> = stage
        .events()
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ToolFailed(failed) => failed.exit,
            _ => None,
        })
        .collect();
    assert_eq!(exits, [ToolExit::Cancelled, ToolExit::Cancelled]);
}

#[test]
fn a_deaf_call_is_given_up_and_can_write_nothing_more() {
    let stage = Stage::new();
    let (open, gate) = channel();
    *stage.spy.gate.lock().unwrap() = Some(gate);
    let observation = stage.one("look", json!({"behave": "deaf", "timeout_ms": 1}));
    assert_eq!(observation.fact().code, Code::Timeout);
    assert!(observation.model_text().contains("no longer waited for"));
    open.send(()).unwrap();
    while !stage
        .spy
        .calls()
        .iter()
        .any(|call| call == "late write refused: true")
    {
        std::thread::yield_now();
    }
}

#[test]
fn serial_means_one_after_the_other() {
    let stage = Stage::with(Settings {
        serial: true,
        ..Settings::default()
    });
    stage.run(&[
        ("look", json!({"label": "1"})),
        ("look", json!({"label": "2"})),
    ]);
    assert_eq!(
        execution(&stage),
        [
            "execute look 1",
            "executed look 1",
            "execute look 2",
            "executed look 2"
        ]
    );
}

#[test]
fn parallelism_is_bounded() {
    let stage = Stage::with(Settings {
        parallel: 2,
        ..Settings::default()
    });
    meet(&stage, 2);
    let call = ("look", json!({"behave": "meet"}));
    stage.run(&[call.clone(), call.clone(), call.clone(), call]);
    let mut running = 0;
    for call in execution(&stage) {
        running += if call.starts_with("executed") { -1 } else { 1 };
        assert!(running <= 2);
    }
}

#[test]
fn cancelling_reaches_running_and_queued_calls() {
    let stage = Stage::new();
    let cancel = Cancel::new();
    let batch = stage
        .pipeline
        .batch(stage.scope(), &cancel, |_| {})
        .unwrap();
    batch.submit(ToolIntent::new("command", &json!({"behave": "wait"})));
    batch.submit(ToolIntent::new("look", &json!({})));
    let canceller = std::thread::spawn({
        let (spy, cancel) = (Arc::clone(&stage.spy), cancel.clone());
        move || {
            while !spy.calls().contains(&"execute command".to_owned()) {
                std::thread::yield_now();
            }
            cancel.raise(CancelReason::Interrupted);
        }
    });
    let report = batch.finish().unwrap();
    canceller.join().unwrap();
    let codes: Vec<_> = report
        .outcomes
        .iter()
        .map(|outcome| outcome.observation().unwrap().fact().code)
        .collect();
    assert_eq!(codes, [Code::Cancelled, Code::Cancelled]);
}
