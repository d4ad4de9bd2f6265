//! Appending and reading, as other crates use it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use agent_log::Listener;
use agent_protocol::payload::conversation::{RuntimeWarning, ThreadStarted, TurnStarted};
use agent_protocol::payload::tool::ToolObservation;
use agent_protocol::{Event, Payload, Refs, Scope};
use support::Project;

fn warning(message: &str) -> RuntimeWarning {
    RuntimeWarning {
        code: "test".into(),
        message: message.into(),
        evidence_refs: Vec::new(),
    }
}

#[test]
fn what_is_appended_is_read_back() {
    let project = Project::new();
    let writer = project.create();
    let heard = writer.listen();
    let scope = Scope::default();
    writer
        .append(&scope, ThreadStarted::default(), Refs::default())
        .unwrap();
    let recorded = writer
        .append(&scope, warning("hello"), Refs::default())
        .unwrap();
    writer.sync().unwrap();
    assert_eq!(recorded.sequence, 2);

    let session = project.store().resolve("last").unwrap();
    let items: Vec<_> = session.reader().unwrap().map(Result::unwrap).collect();
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| item.damage.is_none()));
    assert_eq!(items[2].event.as_ref().unwrap().payload, recorded.payload);
    let heard: Vec<_> = heard.try_iter().collect();
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[1].line, items[2].line);
    assert_eq!(session.verify_chain().unwrap().head, writer.head());
}

#[test]
fn an_observation_is_on_disk_before_it_is_heard_of() {
    let project = Project::new();
    let writer = project.create();
    let heard = writer.listen();
    let scope = Scope::default();
    writer
        .append(&scope, ToolObservation::default(), Refs::default())
        .unwrap();
    writer
        .append(&scope, warning("after it"), Refs::default())
        .unwrap();
    assert_eq!(heard.try_iter().count(), 0);
    writer.sync().unwrap();
    let classes: Vec<_> = heard
        .try_iter()
        .map(|heard| heard.event.payload.type_name().to_owned())
        .collect();
    assert_eq!(classes, ["tool.observation", "runtime.warning"]);
}

#[test]
fn secrets_and_large_texts_do_not_reach_the_line() {
    let project = Project::new();
    let writer = project.create();
    let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
    let mut observation = ToolObservation {
        model_text: Some(format!("{} {key}", "x".repeat(100_000))),
        user_text: format!("found {key}"),
        ..ToolObservation::default()
    };
    observation.summary = "y".repeat(80_000);
    let recorded = writer
        .append(&Scope::default(), observation, Refs::default())
        .unwrap();
    let Payload::ToolObservation(written) = &recorded.payload else {
        panic!("{recorded:?}");
    };
    assert!(written.model_text.is_none());
    assert!(
        written
            .user_text
            .starts_with("found [redacted:github-token:"),
        "{}",
        written.user_text
    );
    assert!(
        written.summary.contains("bytes omitted; artifact sha256:"),
        "{}",
        written.summary
    );
    let artifact = written.model_text_ref.as_ref().unwrap();
    let stored = writer.artifacts().read(artifact, 1 << 20).unwrap();
    assert!(!String::from_utf8(stored).unwrap().contains(&key));
    let resolved = writer.redactor();
    let resolved = resolved.resolve(&written.user_text, b"", &mut std::iter::empty());
    assert_eq!(resolved.unwrap().unwrap(), format!("found {key}"));

    let session = project.store().resolve("last").unwrap();
    let log = std::fs::read_to_string(session.log_path()).unwrap();
    assert!(!log.contains(&key));
    let classes: Vec<String> = session
        .reader()
        .unwrap()
        .map(|item| item.unwrap().event.unwrap().payload.type_name().to_owned())
        .collect();
    assert_eq!(
        classes,
        [
            "session.created",
            "artifact.changed",
            "output.spilled",
            "artifact.changed",
            "output.spilled",
            "tool.observation",
            "output.redacted"
        ]
    );
    assert!(session.verify_chain().unwrap().damage.is_empty());
}

/// A tool's output is masked before it is measured and cut, long before it becomes an event.
#[test]
fn what_was_masked_on_the_way_is_told_too() {
    use agent_protocol::payload::conversation::ArtifactKind;
    let project = Project::new();
    let writer = project.create();
    let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
    let text = writer
        .redactor()
        .mask(&format!("1 {key}\n2 {key}"))
        .into_owned();
    let observation = |text: &str| ToolObservation {
        model_text: Some(text.to_owned()),
        user_text: text.to_owned(),
        ..ToolObservation::default()
    };
    for text in [&text, "3 [redacted:github-token:0000]"] {
        writer
            .append(&Scope::default(), observation(text), Refs::default())
            .unwrap();
    }
    for (kind, bytes) in [
        (ArtifactKind::ToolResult, text.as_bytes()),
        (ArtifactKind::Before, text.as_bytes()),
        (ArtifactKind::Other, b"plain"),
    ] {
        writer
            .put_artifact(&Scope::default(), kind, "text/plain", bytes, None)
            .unwrap();
    }
    let session = project.store().resolve("last").unwrap();
    let (mut told, mut artifacts) = (Vec::new(), Vec::new());
    for item in session.reader().unwrap() {
        match item.unwrap().event.unwrap().payload {
            Payload::OutputRedacted(redacted) => told.push(redacted),
            Payload::ArtifactChanged(changed) => artifacts.push(changed.redacted),
            _ => {}
        }
    }
    // A placeholder nobody made here is a text like any other.
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].rule.as_str(), told[0].count), ("github-token", 2));
    assert_eq!(told[0].placeholders.len(), 1);
    assert_eq!(artifacts, [true, false, false]);
}

#[test]
fn a_call_begins_with_its_intent_however_large_that_is() {
    use agent_protocol::payload::tool::ToolIntent;
    let project = Project::new();
    let writer = project.create();
    let scope = Scope {
        step_id: Some(writer.mint()),
        tool_call_id: Some(writer.mint()),
        ..Scope::default()
    };
    let intent = ToolIntent {
        raw_input: Some(serde_json::json!({ "content": "x".repeat(100_000) })),
        ..ToolIntent::default()
    };
    writer.append(&scope, intent, Refs::default()).unwrap();
    let session = project.store().resolve("last").unwrap();
    let of_the_call: Vec<String> = session
        .reader()
        .unwrap()
        .map(|item| item.unwrap().event.unwrap())
        .filter(|event| event.scope.tool_call_id.is_some())
        .map(|event| event.payload.type_name().to_owned())
        .collect();
    assert_eq!(of_the_call, ["tool.intent"]);
}

#[test]
fn whatever_is_large_finds_its_way_into_an_artifact() {
    use agent_protocol::payload::permission::ActionRequired;
    use agent_protocol::payload::tool::{ToolIntent, ToolResult};
    use agent_protocol::payload::{SideEffect, SideEffectKind};
    use serde_json::{Map, Value};

    let project = Project::new();
    let writer = project.create();
    let wide: Map<String, Value> = (0..9000).map(|n| (format!("key{n}"), n.into())).collect();
    let intent = ToolIntent {
        raw_input: Some(wide.clone().into()),
        ..ToolIntent::default()
    };
    let question = ActionRequired {
        safe_args: Some(wide.into()),
        prompt: "p".repeat(40_000),
        ..ActionRequired::default()
    };
    let result = ToolResult {
        side_effects: (0..2000)
            .map(|n| SideEffect {
                kind: SideEffectKind::Created,
                path: format!("generated/file{n}.rs"),
                ..SideEffect::default()
            })
            .collect(),
        ..ToolResult::default()
    };
    let scope = Scope::default();
    writer.append(&scope, intent, Refs::default()).unwrap();
    writer.append(&scope, question, Refs::default()).unwrap();
    let recorded = writer.append(&scope, result, Refs::default()).unwrap();
    let Payload::ToolResult(written) = &recorded.payload else {
        panic!("{recorded:?}");
    };
    assert!(
        (100..2000).contains(&written.side_effects.len()),
        "{}",
        written.side_effects.len()
    );

    let session = project.store().resolve("last").unwrap();
    let events: Vec<_> = session
        .reader()
        .unwrap()
        .map(|item| item.unwrap())
        .collect();
    assert!(
        events
            .iter()
            .all(|item| item.damage.is_none() && item.line.len() <= 65_536)
    );
    let last = events.last().unwrap().event.as_ref().unwrap();
    let artifact = last.refs.artifact_ids().next().unwrap();
    let stored = writer.artifacts().read(&artifact, 1 << 20).unwrap();
    let all: Vec<SideEffect> = serde_json::from_slice(&stored).unwrap();
    assert_eq!(all.len(), 2000, "the artifact has them all");

    // What has no place to go is refused, and the log is as before.
    let huge = Scope {
        trace_id: Some("t".repeat(70_000)),
        ..Scope::default()
    };
    let before = writer.head();
    let error = writer
        .append(&huge, warning("x"), Refs::default())
        .unwrap_err();
    assert!(
        matches!(error, agent_log::AppendError::TooLarge { .. }),
        "{error}"
    );
    assert_eq!(writer.head(), before);
}

#[test]
fn gathered_events_are_written_together_and_told_only_then() {
    let project = Project::new();
    let writer = project.create();
    let session = project.store().resolve("last").unwrap();
    let on_disk = || session.verify_chain().unwrap().head.next_sequence;
    let heard = writer.listen();
    let note = |text: &str| {
        let recorded = writer.append(&Scope::default(), warning(text), Refs::default());
        recorded.unwrap().sequence
    };
    let before = on_disk();
    let gathering = writer.gather();
    assert_eq!(note("one"), before);
    assert_eq!(note("two"), before + 1);
    assert_eq!((on_disk(), heard.try_iter().count()), (before, 0));
    // Acknowledged by the sync, and therefore written.
    writer.sync().unwrap();
    assert_eq!((on_disk(), heard.try_iter().count()), (before + 2, 2));
    note("three");
    assert_eq!((on_disk(), heard.try_iter().count()), (before + 2, 0));
    drop(gathering);
    assert_eq!((on_disk(), heard.try_iter().count()), (before + 3, 1));
    note("four");
    assert_eq!((on_disk(), heard.try_iter().count()), (before + 4, 1));
    // However long it lasts, no more than a bound is kept in memory.
    let gathering = writer.gather();
    for _ in 0..20 {
        note(&"x".repeat(8000));
    }
    assert!(on_disk() > before + 4);
    drop(gathering);
    assert_eq!(on_disk(), before + 24);
    assert!(session.verify_chain().unwrap().damage.is_empty());
}

/// A long log in which some lines are damaged: every piece is what reading all of it gives there.
#[test]
fn any_piece_of_a_log_can_be_read() {
    let project = Project::new();
    let writer = project.create();
    for number in 0..300 {
        let message = format!("number {number}");
        writer
            .append(&Scope::default(), warning(&message), Refs::default())
            .unwrap();
    }
    let path = writer.log_path().to_owned();
    drop(writer);
    let mut log = std::fs::read_to_string(&path).unwrap();
    // One line that is no event at all, one that only looks like one, and one that has no end.
    log = log.replacen("\n", "\nno event\n", 1);
    log = log.replace("\"number 150\"", "number 150");
    log.push_str("{\"type\":\"runtime.warning\"");
    std::fs::write(&path, log).unwrap();

    let session = project.store().resolve("last").unwrap();
    let all: Vec<_> = session
        .reader()
        .unwrap()
        .filter_map(|item| item.unwrap().event)
        .collect();
    assert_eq!(all.len(), 300);
    for most in [1, 7, 64, 1000] {
        let mut index = session.index().unwrap();
        let mut found = Vec::new();
        loop {
            let piece = index.read(found.len() as u64, most).unwrap();
            if piece.is_empty() {
                break;
            }
            found.extend(piece);
        }
        assert_eq!(found, all, "in pieces of {most}");
        assert_eq!(index.count(), 300);
        assert_eq!(index.read(299, 5).unwrap(), all[299..]);
        assert_eq!(index.read(100, 70).unwrap(), all[100..170]);
        assert_eq!(index.read(300, 5).unwrap(), []);
    }
}

/// Whoever goes on with a session hears its log while it is opened, with what opening adds.
#[test]
fn a_log_is_told_while_it_is_opened() {
    let project = Project::new();
    let writer = project.create();
    support::story::whole_story(&writer);
    let scope = Scope {
        turn_id: Some("trn_01m7h6beg00000007242m3jyrx".parse().unwrap()),
        ..Scope::default()
    };
    writer
        .append(&scope, TurnStarted::default(), Refs::default())
        .unwrap();
    drop(writer);

    let session = project.store().resolve("last").unwrap();
    let told = |wants: &dyn Fn(&str) -> bool| {
        let mut told = Vec::new();
        let listener = Listener {
            wants,
            tell: &mut |event| told.push(event.clone()),
        };
        let opened = session
            .open_writer_telling(project.session_env(), listener)
            .unwrap();
        (told, opened.repairs.closing_events)
    };
    let read = || -> Vec<Event> {
        let items = session.reader().unwrap();
        items.filter_map(|item| item.unwrap().event).collect()
    };
    let (all, closing) = told(&|_| true);
    assert_eq!(closing, 1, "the turn that was left open is ended");
    assert_eq!(all, read());
    let (some, _) = told(&|name| name != "artifact.changed");
    let is_other = |event: &Event| !matches!(event.payload, Payload::ArtifactChanged(_));
    let others: Vec<Event> = read().into_iter().filter(is_other).collect();
    assert!(others.len() < all.len());
    assert_eq!(some, others);
}
