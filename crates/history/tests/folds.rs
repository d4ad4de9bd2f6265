//! Read models: the same whatever way the events come, and honest about what is missing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use agent_history::fold::{Calls, Fact, Fold, ProcessState, ReadModels};
use agent_history::{load_read_models, record_repair, store_read_models};
use agent_protocol::CallStatus;
use agent_protocol::Event;
use agent_protocol::payload::permission::ActionDecision;
use agent_protocol::status::{Status, VerificationStatus};
use proptest::prelude::*;
use proptest::sample::Index;
use support::Project;
use support::story::{Teller, whole_story};

fn events_of(project: &Project) -> Vec<Event> {
    let session = project.store().resolve("last").unwrap();
    session
        .reader()
        .unwrap()
        .map(|item| item.unwrap().event.unwrap())
        .collect()
}

fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> ReadModels {
    let mut models = ReadModels::default();
    events.into_iter().for_each(|event| models.fold(event));
    models
}

fn story() -> &'static [Event] {
    static STORY: std::sync::OnceLock<Vec<Event>> = std::sync::OnceLock::new();
    STORY.get_or_init(|| {
        let project = Project::new();
        whole_story(&project.create());
        events_of(&project)
    })
}

#[test]
fn the_models_say_what_happened() {
    let models = fold(story());
    let snapshot = &models.session_snapshot;
    assert_eq!(snapshot.title.as_deref(), Some("a test"));
    assert_eq!(snapshot.status, Fact::Known(Status::Ended));
    assert_eq!(snapshot.turn_count, 2);
    assert_eq!(snapshot.model, Fact::Known("scripted/one".into()));

    let thread = models.threads.main().unwrap();
    assert_eq!(thread.turns.len(), 2);
    assert_eq!(thread.turns[0].status, Status::Completed);
    assert_eq!(thread.turns[0].input, "fix the test");
    assert_eq!(thread.last_outcome, Some(Status::Completed));
    assert!(thread.pending_actions.is_empty() && thread.active_turn_id.is_none());

    assert_eq!(models.tool_inventory.tools[0].tool_name, "read");
    let permissions = &models.permission_sandbox;
    assert_eq!(
        (
            permissions.decisions.allow,
            permissions.decisions.ask,
            permissions.decisions.deny
        ),
        (4, 4, 4)
    );
    assert_eq!(permissions.sandbox.known().unwrap().mechanism, "landlock");
    assert_eq!(permissions.refusals.len(), 4);

    let environment = &models.execution_environment;
    assert_eq!((environment.started_count, environment.ended_count), (2, 2));
    assert_eq!(environment.env_keys, ["PATH"]);
    assert_eq!(
        models
            .context_boundary
            .latest
            .known()
            .unwrap()
            .model_request_no,
        1
    );

    let artifacts = &models.artifact_checkpoint;
    assert_eq!(
        (
            artifacts.inventory.kept_count,
            artifacts.inventory.artifacts.len()
        ),
        (4, 4)
    );
    assert_eq!(artifacts.files_changed["src/lib.rs"].changes, 2);
    assert_eq!(
        models.evidence.verification,
        Fact::Known(VerificationStatus::Failed)
    );
    assert_eq!(models.evidence.evidence.len(), 2);
    let routing = &models.routing_limit;
    assert_eq!((routing.requests, routing.usage.total), (2, 240));
    assert!((routing.cost.amount - 0.5).abs() < 1e-9 && routing.cost.unknown_requests == 0);

    let mut calls = Calls::all();
    story().iter().for_each(|event| calls.fold(event));
    let statuses: Vec<_> = calls
        .iter()
        .take(6)
        .map(|call| (call.tool_name.as_str(), call.status))
        .collect();
    assert_eq!(
        statuses,
        [
            ("read", CallStatus::Ok),
            ("read", CallStatus::Rejected),
            ("write", CallStatus::Denied),
            ("edit", CallStatus::Ok),
            ("edit", CallStatus::Denied),
            ("bash", CallStatus::Failed),
        ]
    );
    let bash = calls.iter().nth(5).unwrap();
    assert_eq!(bash.process.as_ref().unwrap().exit_code, Some(1));
    assert!(
        bash.sandbox.as_ref().unwrap().place.sequence
            < bash.process.as_ref().unwrap().place.sequence
    );
    let edit = calls.iter().nth(3).unwrap();
    assert_eq!(
        edit.action.as_ref().unwrap().decision,
        Some(ActionDecision::AllowOnce)
    );
    assert_eq!(edit.paths_changed, ["src/lib.rs"]);
    assert_eq!((calls.ended_count, calls.refused_count), (12, 4));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_prefix_and_the_rest_are_the_whole(cut: Index, again: Index) {
        let events = story();
        let whole = fold(events);
        let cut = cut.index(events.len() + 1);
        let again = again.index(events.len());
        let mut models = fold(&events[..cut]);
        // Stored and read back in between, as a cache does.
        let text = serde_json::to_string(&models).unwrap();
        models = serde_json::from_str(&text).unwrap();
        events[cut..].iter().for_each(|event| models.fold(event));
        prop_assert_eq!(&models, &whole);
        models.fold(&events[again]);
        prop_assert_eq!(&models, &whole, "a repeated event changed something");
    }

    /// Whatever is missing, nothing is called completed that the log does not show to be so.
    #[test]
    fn a_gap_never_looks_like_success(missing in proptest::collection::vec(any::<Index>(), 1..40)) {
        let events = story();
        let mut kept: Vec<&Event> = events.iter().collect();
        for index in missing {
            kept.remove(index.index(kept.len()));
        }
        let models = fold(kept.iter().copied());
        let has = |name: &str, turn| kept.iter().any(|event| {
            event.payload.type_name() == name && event.scope.turn_id.as_ref() == Some(turn)
        });
        for turn in models.threads.turns() {
            if turn.status == Status::Completed {
                prop_assert!(has("turn.completed", &turn.turn_id));
            }
        }
        for call in models.calls.iter().filter(|call| call.status == CallStatus::Ok) {
            let has_result = kept.iter().any(|event| {
                event.payload.type_name() == "tool.result"
                    && event.scope.tool_call_id.as_ref() == Some(&call.tool_call_id)
            });
            prop_assert!(has_result);
        }
    }
}

#[test]
fn a_gap_makes_doubtful_what_it_may_have_changed() {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.begin_turn("go");
    teller.ask_model(1);
    teller.propose("read", true);
    teller.bash_call();
    let events = events_of(&project);
    let open = fold(&events[..events.len() - 12]);
    assert!(matches!(
        open.session_snapshot.status,
        Fact::Known(Status::Running)
    ));
    let mut gappy = open.clone();
    gappy.fold(events.last().unwrap());
    assert!(matches!(
        gappy.session_snapshot.status,
        Fact::Stale(Status::Running)
    ));
    assert!(matches!(gappy.session_snapshot.mode, Fact::Stale(_)));
    assert_eq!(
        gappy.threads.main().unwrap().turns[0].status,
        Status::Unknown
    );
    assert_eq!(
        gappy.calls.open().next().unwrap().status,
        CallStatus::Unknown
    );
    assert!(gappy.session_snapshot.cursor.missing_events > 0);
    assert_eq!(fold([]).session_snapshot.status, Fact::Unknown);
}

#[test]
fn what_nobody_works_on_is_not_running() {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.begin_turn("go");
    teller.ask_model(1);
    teller.propose("read", true);
    teller.bash_call();
    let events = events_of(&project);
    let started = |event: &Event| event.payload.type_name() == "process.started";
    let place = events.iter().position(started).unwrap();
    let mut models = fold(&events[..=place]);
    assert_eq!(models.execution_environment.active.len(), 1);
    models.nobody_writes();
    assert_eq!(models.session_snapshot.status, Fact::Known(Status::Lost));
    let thread = models.threads.main().unwrap();
    assert_eq!(thread.status, Fact::Known(Status::Lost));
    assert_eq!(thread.turns[0].status, Status::Lost);
    assert!(models.calls.iter().all(|call| call.status.is_terminal()));
    let processes = models.execution_environment.active.values();
    assert!(
        processes
            .into_iter()
            .all(|process| process.state == ProcessState::Unknown)
    );

    // What has ended has ended.
    let mut models = fold(story());
    let before = models.clone();
    models.nobody_writes();
    assert_eq!(models, before);
}

#[test]
fn the_queue_survives_and_keeps_its_order() {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.begin_turn("first");
    let queued = teller.queue_input("second");
    drop(writer);
    let session = project.store().resolve("last").unwrap();
    let opened = session.open_writer(project.session_env()).unwrap();
    // The turn that ran is lost; the one that waited still waits.
    assert_eq!(opened.repairs.closing_events, 1);
    let models = fold(&events_of(&project));
    assert_eq!(models.queue.turns.len(), 1);
    assert_eq!(models.queue.turns[0].turn_id, queued);
    assert_eq!(models.queue.turns[0].text.as_deref(), Some("second"));
}

#[test]
fn only_so_many_ended_calls_are_kept() {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.begin_turn("go");
    teller.ask_model(1);
    for _ in 0..230 {
        teller.invalid_call();
    }
    let models = fold(&events_of(&project));
    assert_eq!(models.calls.iter().count(), 200);
    assert_eq!(
        (models.calls.ended_count, models.calls.dropped_count),
        (230, 30)
    );
}

#[test]
fn a_cache_is_used_only_when_the_log_vouches_for_it() {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.turn("go");
    let session = project.store().resolve("last").unwrap();
    let models = load_read_models(&session).unwrap().models;
    assert!(store_read_models(&writer, &models).unwrap());
    teller.turn("on");
    let whole = fold(&events_of(&project));

    let loaded = load_read_models(&session).unwrap();
    assert!(loaded.cached_up_to.is_some() && loaded.rejected.is_none());
    assert_eq!(loaded.models, whole);

    let path = session.path().join("cache/read-models.json");
    let cache = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, cache.replace("\"a test\"", "\"a lie\"")).unwrap();
    let loaded = load_read_models(&session).unwrap();
    assert!(loaded.cached_up_to.is_none());
    assert_eq!(
        loaded.rejected.as_deref(),
        Some("no event of the log names this cache")
    );
    assert_eq!(loaded.models, whole);
    assert!(record_repair(&writer, &loaded).unwrap());
    assert_eq!(
        events_of(&project).last().unwrap().payload.type_name(),
        "snapshot.repaired"
    );

    std::fs::write(&path, "nonsense").unwrap();
    assert!(load_read_models(&session).unwrap().rejected.is_some());
    std::fs::remove_dir_all(session.path().join("cache")).unwrap();
    assert!(load_read_models(&session).unwrap().rejected.is_none());
}
