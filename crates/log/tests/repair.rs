//! What opening a killed session writes, and what it leaves alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use agent_protocol::payload::model::{ContextResolved, ModelRequested};
use agent_protocol::payload::permission::Effect;
use agent_protocol::payload::tool::{ToolExit, ToolResult};
use agent_protocol::{ActionHappened, Code, Payload, Phase};
use support::Project;
use support::story::Teller;

/// Tells a story that breaks off, opens the session again, and returns what was added.
fn check(tell: impl FnOnce(&mut Teller<'_>), expected: &[&str]) -> Vec<Payload> {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.begin_turn("go");
    tell(&mut teller);
    let before = writer.head().next_sequence;
    drop(writer);
    let session = project.store().resolve("last").unwrap();
    let opened = session.open_writer(project.session_env()).unwrap();
    assert_eq!(opened.repairs.closing_events, expected.len());
    drop(opened);
    let mut added: Vec<Payload> = session
        .reader()
        .unwrap()
        .map(|item| item.unwrap().event.unwrap())
        .filter(|event| event.sequence >= before)
        .map(|event| event.payload)
        .collect();
    // What closes the work is announced.
    if !expected.is_empty() {
        assert_eq!(added.remove(0).type_name(), "history.reconstructed");
    }
    let classes: Vec<&str> = added.iter().map(Payload::type_name).collect();
    assert_eq!(classes, expected);
    let report = agent_evidence::audit::audit(&session, None).unwrap();
    assert!(report.is_ok(), "{:#?}", report.findings);
    // Opening once more finds nothing left to do.
    let again = session.open_writer(project.session_env()).unwrap();
    assert_eq!(again.repairs, agent_log::Repairs::default());
    added
}

#[test]
fn an_open_request_was_interrupted() {
    let added = check(
        |teller| {
            teller.tell(ContextResolved::default());
            teller.tell(ModelRequested {
                model_request_id: teller.writer.mint(),
                attempt: 1,
                ..ModelRequested::default()
            });
        },
        &["model.failed", "turn.failed"],
    );
    let Payload::ModelFailed(failed) = &added[0] else {
        panic!();
    };
    assert_eq!(failed.kind.as_str(), "stream_interrupted");
    let Payload::TurnFailed(failed) = &added[1] else {
        panic!();
    };
    assert_eq!(failed.code, "lost");
}

#[test]
fn a_call_that_had_not_started_did_nothing() {
    let added = check(
        |teller| {
            teller.ask_model(1);
            teller.propose("edit", true);
            teller.decide(Effect::Allow);
        },
        &["tool.failed", "tool.observation", "turn.failed"],
    );
    let Payload::ToolFailed(failed) = &added[0] else {
        panic!();
    };
    assert_eq!(
        (failed.phase, failed.code, failed.action_happened),
        (Phase::Schedule, Code::Lost, ActionHappened::No)
    );
    assert!(failed.invocation_id.is_none());
}

#[test]
fn a_call_that_was_running_may_have_acted() {
    let added = check(
        |teller| {
            teller.ask_model(1);
            let intent = teller.propose("bash", true);
            let permission = teller.decide(Effect::Allow);
            teller.start(&intent, &permission);
        },
        &["tool.failed", "tool.observation", "turn.failed"],
    );
    let Payload::ToolFailed(failed) = &added[0] else {
        panic!();
    };
    assert_eq!(
        (failed.phase, failed.code, failed.action_happened),
        (Phase::Execute, Code::Lost, ActionHappened::Unknown)
    );
    assert!(failed.invocation_id.is_some());
}

#[test]
fn a_result_that_was_not_shown_is_shown() {
    let added = check(
        |teller| {
            teller.ask_model(1);
            let intent = teller.propose("read", true);
            let permission = teller.decide(Effect::Allow);
            let started = teller.start(&intent, &permission);
            teller.tell(ToolResult {
                invocation_id: started.invocation_id,
                exit: ToolExit::Ok,
                ok: true,
                code: Code::Ok,
                ..ToolResult::default()
            });
        },
        &["tool.observation", "turn.failed"],
    );
    let Payload::ToolObservation(observation) = &added[0] else {
        panic!();
    };
    assert!(observation.ok);
}

#[test]
fn an_open_question_stays_open_with_its_call_and_turn() {
    check(
        |teller| {
            teller.ask_model(1);
            teller.ask_for("edit");
        },
        &[],
    );
}

#[test]
fn a_turn_that_ended_needs_nothing() {
    check(
        |teller| {
            teller.ask_model(1);
            teller.read_call();
            teller.end_turn();
        },
        &[],
    );
}

#[test]
fn a_log_without_a_first_event_is_not_continued() {
    let project = Project::new();
    drop(project.create());
    let session = project.store().resolve("last").unwrap();
    let whole = std::fs::read(session.log_path()).unwrap();
    for kept in [0, 1, whole.len() - 1] {
        std::fs::write(session.log_path(), &whole[..kept]).unwrap();
        let mut env = project.session_env();
        env.anchors = None;
        let Err(error) = session.open_writer(env) else {
            panic!("a log of {kept} bytes was opened");
        };
        assert!(matches!(error, agent_log::OpenError::Empty { .. }));
        assert_eq!(std::fs::read(session.log_path()).unwrap(), whole[..kept]);
    }
}

#[test]
fn the_last_session_is_one_that_has_begun() {
    let project = Project::new();
    let writer = project.create();
    let begun = writer.session_id().clone();
    drop(writer);
    let path = project.store().directory().join("sessions");
    let id: agent_protocol::id::SessionId = project.session_env().mint.mint();
    std::fs::create_dir(path.join(id.as_str())).unwrap();
    assert_eq!(project.store().list().unwrap().len(), 2);
    let last = project.store().resolve("last").unwrap();
    assert_eq!(last.id(), &begun);
}
