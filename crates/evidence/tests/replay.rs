//! Replay says what the log says: at every cut, in every form, and the same as a session that is
//! still being written.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use std::sync::{Arc, Mutex};

use agent_evidence::replay::text::{TextForm, TextWriter};
use agent_evidence::replay::{Card, Range, Streamed, Timeline, html, replay};
use agent_history::fold::{Calls, Fold as _, ReadModels};
use agent_log::SessionDirectory;
use agent_protocol::Event;
use agent_protocol::payload::conversation::ThreadStarted;
use agent_protocol::payload::permission::ActionDecision;
use proptest::prelude::*;
use support::Project;
use support::story::{Teller, whole_story};

fn text_of(session: &SessionDirectory, all: bool) -> String {
    let replayed = replay(session, None, Range::default()).unwrap();
    let mut out = Vec::new();
    let form = TextForm {
        width: 80,
        color: false,
        all,
    };
    let mut writer = TextWriter::new(&mut out, form);
    for (entry, _) in &replayed.entries {
        writer.entry(entry).unwrap();
    }
    writer
        .finish(&replayed.timeline, &replayed.integrity)
        .unwrap();
    String::from_utf8(out).unwrap()
}

/// Words that claim an end, with the classes one of which has to be there for it.
const CLAIMS: &[(&str, &[&str])] = &[
    ("session ends", &["session.updated"]),
    ("turn ends", &["turn.completed", "turn.failed"]),
    ("1 completed", &["turn.completed"]),
    ("2 completed", &["turn.completed"]),
    (
        " allowed  ",
        &["permission.evaluated", "permission.resolved"],
    ),
    (" denied ", &["permission.evaluated", "permission.resolved"]),
    (" answer ", &["action.resolved"]),
    (" exit ", &["process.completed"]),
    (" shown ", &["tool.observation"]),
    (
        "(modified)",
        &["tool.result", "tool.failed", "turn.completed"],
    ),
    (" sandbox ", &["sandbox.applied"]),
    (
        "verification failed",
        &["evidence.changed", "turn.completed"],
    ),
    ("1 ok", &["tool.result"]),
    ("2 ok", &["tool.result"]),
    ("rejected", &["tool.failed"]),
];

/// Cut after each line, the log replays, and says nothing that only a later line shows.
#[test]
fn every_prefix_claims_only_what_it_shows() {
    let project = Project::new();
    whole_story(&project.create());
    let session = project.store().resolve("last").unwrap();
    let whole = std::fs::read_to_string(session.log_path()).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let mut calls_before = 0;
    for cut in 0..=lines.len() {
        let prefix: String = lines[..cut]
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(session.log_path(), &prefix).unwrap();
        let session = project.store().resolve("last").unwrap();
        let text = text_of(&session, false);
        for (words, classes) in CLAIMS {
            let shown = classes
                .iter()
                .any(|class| prefix.contains(&format!("\"type\":\"{class}\"")));
            assert!(
                shown || !text.contains(words),
                "after {cut} lines, `{words}` is claimed:\n{text}"
            );
        }
        // What is open is said to be open, and every event is told once.
        let replayed = replay(&session, None, Range::default()).unwrap();
        let summary = replayed.timeline.summary();
        assert_eq!(replayed.entries.len(), cut);
        let started = prefix.matches("\"type\":\"turn.submitted\"").count() as u64;
        let ended = prefix.matches("\"type\":\"turn.completed\"").count() as u64;
        assert_eq!(summary.open.turns, started - ended, "after {cut} lines");
        let asked = prefix.matches("\"type\":\"action.required\"").count() as u64;
        let answered = prefix.matches("\"type\":\"action.resolved\"").count() as u64;
        assert_eq!(summary.open.actions, asked - answered, "after {cut} lines");
        let ended_calls = summary.call_count - summary.open.calls;
        let ends = prefix.matches("\"type\":\"tool.result\"").count()
            + prefix.matches("\"type\":\"tool.failed\"").count();
        assert_eq!(ended_calls, ends as u64, "after {cut} lines");
        // A torn line adds nothing.
        if cut < lines.len() {
            let torn = format!("{prefix}{}", &lines[cut][..lines[cut].len() / 2]);
            std::fs::write(session.log_path(), torn).unwrap();
            let again = replay(&session, None, Range::default()).unwrap();
            assert_eq!(again.entries.len(), cut);
            assert!(again.integrity.torn_bytes.is_some());
        }
        // The range form of the whole log says the same as the cut log.
        if let Some(last) = cut.checked_sub(1) {
            std::fs::write(session.log_path(), &whole).unwrap();
            let range = Range {
                from: None,
                to: Some(last as u64),
            };
            let ranged = replay(&session, None, range).unwrap();
            assert_eq!(ranged.timeline.models(), replayed.timeline.models());
            if summary.call_count > calls_before {
                calls_before = summary.call_count;
                check_cards(&session, range);
            }
        }
    }
}

/// A card of a call that has only begun knows what was asked, and nothing of its end.
fn check_cards(session: &SessionDirectory, range: Range) {
    let replayed = replay(session, None, range).unwrap();
    for call in replayed.timeline.calls().iter() {
        let card = Card::read(session, call.tool_call_id.as_str(), range).unwrap();
        assert_eq!(card.answers.len(), 14);
        for answer in card.all() {
            let beyond = answer.events.iter().any(|at| Some(*at) > range.to);
            assert!(!beyond, "{answer:?}");
        }
        if call.observation.is_none() {
            let shown = card
                .all()
                .find(|answer| answer.key == "model_view")
                .unwrap();
            assert_eq!(shown.answer, None);
        }
    }
}

/// The steps a random session is made of.
#[derive(Debug, Clone, Copy)]
enum Step {
    Read,
    Invalid,
    Denied,
    EditAllowed,
    EditDenied,
    Bash,
    Ask,
    Queue,
    NewTurn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop::sample::select(vec![
        Step::Read,
        Step::Invalid,
        Step::Denied,
        Step::EditAllowed,
        Step::EditDenied,
        Step::Bash,
        Step::Ask,
        Step::Queue,
        Step::NewTurn,
    ]);
    prop::collection::vec(step, 0..20)
}

fn play(teller: &mut Teller<'_>, steps: &[Step]) {
    teller.tell(ThreadStarted::default());
    teller.begin_turn("begin");
    let mut request = 1;
    teller.ask_model(request);
    for step in steps {
        match step {
            Step::Read => teller.read_call(),
            Step::Invalid => teller.invalid_call(),
            Step::Denied => teller.denied_call(),
            Step::EditAllowed => teller.edit_call(ActionDecision::AllowOnce),
            Step::EditDenied => teller.edit_call(ActionDecision::Deny),
            Step::Bash => teller.bash_call(),
            Step::Ask => {
                request += 1;
                teller.ask_model(request);
            }
            Step::Queue => {
                teller.queue_input("later");
            }
            Step::NewTurn => {
                teller.end_turn();
                teller.begin_turn("again");
                request += 1;
                teller.ask_model(request);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Folded while it was written, folded from the log, and as replay shows it: one state.
    #[test]
    fn live_and_log_and_replay_agree(steps in steps()) {
        let project = Project::new();
        let writer = project.create();
        let live = Arc::new(Mutex::new((ReadModels::default(), Calls::all())));
        let session = project.store().resolve("last").unwrap();
        {
            // The session's first event was written before anybody could listen.
            let mut live = live.lock().unwrap();
            for item in session.reader().unwrap() {
                let event = item.unwrap().event.unwrap();
                live.0.fold(&event);
                live.1.fold(&event);
            }
        }
        let listener = Arc::clone(&live);
        writer.subscribe(move |appended| {
            let mut live = listener.lock().unwrap();
            live.0.fold(&appended.event);
            live.1.fold(&appended.event);
            true
        });
        play(&mut Teller::new(&writer), &steps);
        writer.sync().unwrap();
        let mut read = (ReadModels::default(), Calls::all());
        for item in session.reader().unwrap() {
            let event = item.unwrap().event.unwrap();
            read.0.fold(&event);
            read.1.fold(&event);
        }
        let replayed = replay(&session, None, Range::default()).unwrap();
        let live = live.lock().unwrap();
        prop_assert_eq!(&live.0, &read.0);
        prop_assert_eq!(&read.0, replayed.timeline.models());
        prop_assert_eq!(&live.1, &read.1);
        prop_assert_eq!(&read.1, replayed.timeline.calls());
        // What is shown is that state: the JSON counts, the text and the page name the same calls.
        let told = Streamed::read(&session, None, Range::default()).unwrap();
        let shown = serde_json::to_value(&told).unwrap();
        prop_assert_eq!(shown["calls"].as_array().unwrap().len(), read.1.iter().count());
        prop_assert_eq!(shown["events"].as_array().unwrap().len() as u64, read.0.next_sequence());
        let text = text_of(&session, true);
        let mut page = Vec::new();
        html::write(
            &html::Page { told: &told, audit: None, artifact: &|_| None },
            &mut page,
        ).unwrap();
        let page = String::from_utf8(page).unwrap();
        for number in 1..=read.1.iter().count() {
            let own = format!("#{number} ");
            prop_assert!(text.contains(&own));
            let own = format!("data-call=\"{number}\"");
            prop_assert!(page.contains(&own));
        }
        for (entry, _) in &replayed.entries {
            let own = format!("id=\"e{}\"", entry.sequence);
            prop_assert!(page.contains(&own), "event {} can be linked to", entry.sequence);
        }
    }
}

/// A model that is cut off in the middle of its answer has said so far what it has said.
#[test]
fn an_unfinished_answer_is_shown_as_unfinished() {
    let project = Project::new();
    whole_story(&project.create());
    let session = project.store().resolve("last").unwrap();
    let whole = std::fs::read_to_string(session.log_path()).unwrap();
    let end = whole.find("\"type\":\"model.delta\"").unwrap();
    let end = end + whole[end..].find('\n').unwrap() + 1;
    std::fs::write(session.log_path(), &whole[..end]).unwrap();
    let text = text_of(&session, false);
    assert!(text.contains("model (so far) I will look."), "{text}");
    assert!(text.contains("1 model request"), "{text}");
}

/// Every class of the vocabulary can be told, also when its payload has another shape.
#[test]
fn every_class_has_words() {
    let mut timeline = Timeline::default();
    for (at, class) in agent_protocol::EventType::ALL.iter().enumerate() {
        for payload in ["{}", "[7]", "{\"text\":\"x\",\"code\":\"y\"}"] {
            let line = format!(
                r#"{{"type":"{}","event_id":"ev_1","timestamp":"2026-11-16T00:00:00Z","sequence":{at},"schema_version":"1","runtime_id":"rt_1","session_id":"ses_1","payload":{payload},"refs":{{}},"prev":""}}"#,
                class.as_str()
            );
            let event = Event::from_line(line.as_bytes()).unwrap();
            let entry = timeline.take(&event);
            assert!(!entry.description.label.is_empty() && entry.class == class.as_str());
        }
    }
}
