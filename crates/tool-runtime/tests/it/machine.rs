//! Random scripts of calls, and the state machine of a call checked on the log they leave.

use std::collections::BTreeMap;

use agent_protocol::payload::permission::{ActionDecision, Effect};
use agent_protocol::{Event, Payload, Phase};
use agent_tool_runtime::{Answer, Cancel, CancelReason, ToolIntent};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::{Stage, decided, yes};

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Proposed,
    Invalid,
    Valid,
    Denied,
    Asked,
    Allowed,
    Started,
    Terminal,
    Observed,
}

fn check_machine(events: &[Event]) {
    let mut calls: BTreeMap<String, State> = BTreeMap::new();
    for event in events {
        let Some(id) = &event.scope.tool_call_id else {
            continue;
        };
        let state = calls.get(id.as_str()).copied();
        let class = event.payload.type_name();
        let next = match (&event.payload, state) {
            (Payload::ToolIntent(_), None) => State::Proposed,
            (Payload::ToolValidation(v), Some(State::Proposed | State::Allowed)) => {
                if v.ok {
                    State::Valid
                } else {
                    State::Invalid
                }
            }
            (Payload::ToolArgs(_), Some(State::Valid)) => State::Valid,
            (Payload::PermissionEvaluated(p), Some(State::Valid | State::Allowed)) => {
                match p.decision {
                    Effect::Allow => State::Allowed,
                    Effect::Deny => State::Denied,
                    Effect::Ask => State::Asked,
                }
            }
            (
                Payload::PermissionRequested(_)
                | Payload::ActionRequired(_)
                | Payload::ActionResolved(_),
                Some(State::Asked),
            ) => State::Asked,
            (Payload::PermissionResolved(p), Some(State::Asked)) => match p.decision {
                Effect::Allow => State::Allowed,
                _ => State::Denied,
            },
            (Payload::ToolProgress(p), Some(State::Allowed)) if p.phase == Phase::Schedule => {
                State::Allowed
            }
            (Payload::ToolStarted(started), Some(State::Allowed)) => {
                assert!(!started.permission_ref.is_empty());
                State::Started
            }
            (Payload::ToolProgress(_), Some(State::Started)) => State::Started,
            (Payload::ToolResult(_), Some(State::Started)) => State::Terminal,
            (Payload::ToolFailed(f), Some(before)) => {
                let fits = match before {
                    State::Invalid => matches!(f.phase, Phase::Lookup | Phase::Validate),
                    State::Denied => f.phase == Phase::Permission,
                    State::Started => matches!(
                        f.phase,
                        Phase::Execute | Phase::Normalize | Phase::WriteBack
                    ),
                    State::Proposed => f.phase == Phase::Schedule,
                    State::Allowed => matches!(f.phase, Phase::Schedule | Phase::Permission),
                    _ => false,
                };
                assert!(fits, "{:?} after {before:?}", f.phase);
                assert_eq!(f.invocation_id.is_some(), before == State::Started);
                State::Terminal
            }
            (
                Payload::ArtifactChanged(_)
                | Payload::OutputSpilled(_)
                | Payload::OutputTruncated(_)
                | Payload::OutputRedacted(_),
                Some(state),
            ) => state,
            (Payload::ToolObservation(_), Some(State::Terminal)) => State::Observed,
            (_, state) => panic!("{class} in {state:?}"),
        };
        calls.insert(id.to_string(), next);
    }
    for (id, state) in calls {
        assert!(
            matches!(state, State::Observed | State::Asked),
            "{id} ended {state:?}"
        );
    }
}

fn intent() -> impl Strategy<Value = (String, Value)> {
    let tool = prop::sample::select(vec![
        "look", "look", "peek", "hidden", "mute", "change", "command", "nothing",
    ]);
    let input = prop::sample::select(vec![
        json!({}),
        json!({"text": "some output\n", "repeat": 3000}),
        json!({"unknown": 1}),
        json!({"check": "stale_file_baseline"}),
        json!({"check": "panic"}),
        json!({"gate": "deny"}),
        json!({"gate": "ask"}),
        json!({"gate": "ask"}),
        json!({"behave": "panic"}),
        json!({"behave": "wait", "timeout_ms": 1}),
        json!({"behave": "fail", "code": "io_error"}),
        json!({"result": "exit_nonzero"}),
    ]);
    (tool.prop_map(str::to_owned), input)
}

fn answer() -> impl Strategy<Value = Answer> {
    prop::sample::select(vec![
        yes(),
        yes(),
        decided(ActionDecision::Deny, Some("no"), None),
        decided(
            ActionDecision::AllowOnce,
            None,
            Some(json!({"path": "other"})),
        ),
        decided(ActionDecision::AllowOnce, None, Some(json!({"colour": 1}))),
        decided(ActionDecision::Abort, None, None),
        Answer::Unavailable,
        Answer::Expired,
        Answer::LeftOpen,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_script_leaves_a_log_that_adds_up(
        intents in prop::collection::vec(intent(), 0..10),
        answers in prop::collection::vec(answer(), 10),
        cancel_after in prop::option::of(0usize..12),
        abandon: bool,
    ) {
        let stage = Stage::new();
        stage.answer(answers);
        let cancel = Cancel::new();
        // Cancelled after so many events of any kind: at every point of some call.
        if let Some(count) = cancel_after {
            let cancel = cancel.clone();
            let mut left = count * 5;
            stage.writer.subscribe(move |_| {
                if left == 0 {
                    cancel.raise(CancelReason::Interrupted);
                }
                left = left.saturating_sub(1);
                true
            });
        }
        let batch = stage.pipeline.batch(stage.scope(), &cancel, |_| {}).unwrap();
        for (name, input) in &intents {
            batch.submit(ToolIntent::new(name.clone(), input));
        }
        let report = if abandon { batch.abandon() } else { batch.finish() }.unwrap();
        prop_assert_eq!(report.outcomes.len(), intents.len());
        let events = stage.events();
        check_machine(&events);
        prop_assert_eq!(stage.findings(), Vec::<String>::new());
        let observed = events.iter().filter(|event| matches!(event.payload, Payload::ToolObservation(_))).count();
        let open = report.outcomes.iter().filter(|outcome| outcome.observation().is_none()).count();
        prop_assert_eq!(observed + open, intents.len());
        let order: Vec<_> = report.outcomes.iter().filter_map(|outcome| outcome.observation()).map(|observation| observation.sequence()).collect();
        prop_assert!(order.is_sorted());
    }
}
