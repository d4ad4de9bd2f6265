//! The control plane with an engine at work: inputs that steer, wait, are promoted, and come twice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure is the report"
)]

mod answered;
mod questions;
mod stage;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use agent_engine::{Control, Desk, OnAsk, Reply, TurnEnd};
use agent_protocol::command::{
    Acknowledgement, ControlCommand, ExportRequest, InterruptTurn, PermissionQuery,
    ProcessInputRequest, QueuedTurn, RespondAction, ResumeThread, SubmitTurn, ToolInventoryQuery,
    Window,
};
use agent_protocol::id::{ProcessId, TurnId};
use agent_protocol::payload::conversation::{QueuePolicy, TurnSource};
use agent_protocol::status::{Mode, Status};
use agent_protocol::{Event, Payload};
use serde_json::json;

use stage::{TWO_STEPS, session, submit};

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_steers_joins_the_running_turn_between_two_requests() {
    let mut session = session(TWO_STEPS);
    let control = Arc::clone(&session.control);
    session.on_request(1, move || {
        let steer = submit("Mind the tests.", QueuePolicy::Steer);
        let answer = control.submit(steer, TurnSource::Cli).unwrap();
        assert_eq!(answer.acknowledgement, Acknowledgement::Queued);
    });
    let turn = session.submit("Do it.");
    assert!(matches!(session.run(turn).await, TurnEnd::Completed(_)));
    let asked = session.asked();
    assert_eq!(asked[0], ["Do it."]);
    assert_eq!(asked[1], ["Do it.", "Mind the tests."]);
    assert!(session.control.queue().is_empty());
    // The input waits no more: it became a part of the turn and ended with it.
    let directory = session.directory();
    let models = agent_history::load_read_models(&directory).unwrap().models;
    let turns = models.threads.turns();
    assert_eq!(turns[1].joined_into.as_ref(), Some(&turns[0].turn_id));
    assert_eq!(turns[1].status, Status::Completed);
    assert_eq!(turns[1].outcome, turns[0].outcome);
    let audited = agent_evidence::audit::audit(&directory, None).unwrap();
    assert!(
        !audited
            .findings
            .iter()
            .any(|finding| finding.code == "open_turn"),
        "{:?}",
        audited.findings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_waits_does_not_join_and_a_promoted_one_runs_first() {
    let mut session = session(TWO_STEPS);
    let control = Arc::clone(&session.control);
    let queued: Arc<Mutex<Vec<TurnId>>> = Arc::default();
    let noted = Arc::clone(&queued);
    session.on_request(1, move || {
        for text in ["Then this.", "And that."] {
            let waits = submit(text, QueuePolicy::Queue);
            let answer = control.submit(waits, TurnSource::Cli).unwrap();
            noted.lock().unwrap().push(answer.turn_id.unwrap());
        }
    });
    let turn = session.submit("Do it.");
    session.run(turn).await;
    assert_eq!(session.asked()[1], ["Do it."]);
    let queued = queued.lock().unwrap().clone();
    let promote = ControlCommand::PromoteQueuedTurn(QueuedTurn {
        turn_id: queued[1].clone(),
    });
    let reply = session.plane.handle(promote, TurnSource::Cli).unwrap();
    assert!(
        matches!(reply, Reply::Answer(answer) if answer.acknowledgement == Acknowledgement::Accepted)
    );
    let mut ran = Vec::new();
    while let Some(next) = session.control.take_next().unwrap() {
        ran.push(next.clone());
        session.run(next).await;
    }
    assert_eq!(ran, [queued[1].clone(), queued[0].clone()]);
    let asked = session.asked();
    assert_eq!(asked[2].last().unwrap(), "And that.");
    assert_eq!(asked[3].last().unwrap(), "Then this.");
}

/// Neither the end of another turn nor its steps let go what is held; a new input does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_waits_until_it_is_promoted() {
    let mut session = session(TWO_STEPS);
    let control = Arc::clone(&session.control);
    session.on_request(1, move || {
        for policy in [QueuePolicy::Steer, QueuePolicy::Queue] {
            control
                .submit(submit("Later.", policy), TurnSource::Cli)
                .unwrap();
        }
        control.hold_queue();
    });
    let turn = session.submit("Do it.");
    session.run(turn).await;
    assert_eq!(session.asked()[1], ["Do it."]);
    assert_eq!(session.control.take_next().unwrap(), None);
    let new = submit("Something else.", QueuePolicy::Queue);
    let answer = session.control.submit(new, TurnSource::Cli).unwrap();
    assert_eq!(answer.acknowledgement, Acknowledgement::Accepted);
    let last = session.control.queue()[1].turn_id.clone();
    session.control.promote_queued(&last).unwrap();
    assert_eq!(session.control.take_next().unwrap(), Some(last));
    assert_eq!(session.control.take_next().unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_one_turn_also_when_the_log_told_it() {
    let session = session(TWO_STEPS);
    let keyed = || SubmitTurn {
        idempotency_key: Some("job-1".to_owned()),
        ..submit("Do it.", QueuePolicy::Queue)
    };
    let first = session.control.submit(keyed(), TurnSource::Cli).unwrap();
    let second = session.control.submit(keyed(), TurnSource::Cli).unwrap();
    assert_eq!(second.acknowledgement, Acknowledgement::NoOp);
    assert_eq!(second.turn_id, first.turn_id);
    // What another process would read from the log.
    let mut keys = HashMap::new();
    for item in session.directory().reader().unwrap() {
        let event = item.unwrap().event.unwrap();
        if let Payload::TurnSubmitted(submitted) = event.payload {
            keys.insert(
                submitted.idempotency_key.unwrap(),
                event.scope.turn_id.unwrap(),
            );
        }
    }
    let desk = Arc::new(Desk::new(OnAsk::Deny));
    let journal = Arc::clone(&session.plane.journal);
    let thread = session.plane.thread_id.clone();
    let restarted = Control::new(journal, thread, desk, Vec::new()).knowing(keys);
    let third = restarted.submit(keyed(), TurnSource::Cli).unwrap();
    assert_eq!(third.acknowledgement, Acknowledgement::NoOp);
    assert_eq!(third.turn_id, first.turn_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_typed_answer() {
    let mut session = session(TWO_STEPS);
    let turn = session.submit("Do it.");
    session.run(turn.clone()).await;
    let plane = &session.plane;
    let ask = |command| plane.handle(command, TurnSource::Cli).unwrap();
    let Reply::Session(whole) = ask(ControlCommand::GetSession(Window::default())) else {
        panic!("a session");
    };
    assert!(whole.next.is_none());
    let window = Window {
        cursor: Some(1),
        limit: Some(2),
    };
    let Reply::Session(part) = ask(ControlCommand::GetSession(window)) else {
        panic!("a part of a session");
    };
    assert_eq!(part.events[0].sequence, 1);
    assert_eq!((part.events.len(), part.next), (2, Some(3)));
    let threads = whole
        .models
        .threads
        .threads
        .keys()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(matches!(
        ask(ControlCommand::GetThreadRead(threads)),
        Reply::Thread(_)
    ));
    let tools = ControlCommand::GetToolInventory(ToolInventoryQuery::default());
    assert!(matches!(ask(tools), Reply::Tools(tools) if tools.is_empty()));
    assert!(matches!(
        ask(ControlCommand::GetExecutionEnvironment),
        Reply::Environment(_)
    ));
    let query = PermissionQuery {
        tool: "bash".to_owned(),
        input: json!({"command": "rm -rf build"}),
        mode: None,
    };
    let Reply::Permission(evaluated) = ask(ControlCommand::EvaluatePermission(query)) else {
        panic!("a decision");
    };
    assert_eq!(evaluated.decision.to_string(), "ask");
    let replay = ControlCommand::ExportReplay(ExportRequest {
        turn_id: Some(turn.clone()),
        include_images: false,
    });
    let Reply::Replay(replayed) = ask(replay) else {
        panic!("the story of a turn");
    };
    assert!(!replayed.entries.is_empty());
    let of_the_turn = |event: &Event| event.scope.turn_id.as_ref() == Some(&turn);
    assert!(replayed.entries.iter().all(|(_, event)| of_the_turn(event)));
    let review = ask(ControlCommand::ExportReview(ExportRequest::default()));
    assert!(matches!(review, Reply::Review(text) if !text.is_empty()));
    assert!(matches!(
        ask(ControlCommand::ExportEvidence(ExportRequest::default())),
        Reply::Evidence(_)
    ));
    for refused in [
        ControlCommand::WriteProcessStdin(ProcessInputRequest::default()),
        ControlCommand::SetModel("other/m".to_owned()),
        ControlCommand::ResumeThread(ResumeThread::default()),
    ] {
        assert!(matches!(ask(refused), Reply::Unavailable { .. }));
    }
    for nothing in [
        ControlCommand::TerminateProcess(ProcessId::default()),
        ControlCommand::InterruptTurn(InterruptTurn::default()),
        ControlCommand::RespondAction(RespondAction::default()),
        ControlCommand::RemoveQueuedTurn(QueuedTurn::default()),
    ] {
        let Reply::Answer(answer) = ask(nothing) else {
            panic!("an answer");
        };
        assert_eq!(answer.acknowledgement, Acknowledgement::NoOp);
        assert!(answer.reason.is_some());
    }
    let more = SubmitTurn {
        text: "And then?".to_owned(),
        ..SubmitTurn::default()
    };
    for done in [
        ControlCommand::SubmitTurn(more),
        ControlCommand::SetMode(Mode::ReadOnly),
        ControlCommand::Compact,
        ControlCommand::EndSession,
    ] {
        let Reply::Answer(answer) = ask(done) else {
            panic!("an answer");
        };
        assert_eq!(answer.acknowledgement, Acknowledgement::Accepted);
    }
}
