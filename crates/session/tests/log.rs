//! Appending and reading, as other crates use it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

mod support;

use agent_protocol::payload::conversation::{RuntimeWarning, ThreadStarted};
use agent_protocol::payload::tool::ToolObservation;
use agent_protocol::{Payload, Refs, Scope};
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
    let unmasked = writer.redactor().unmask(&written.user_text).unwrap();
    assert_eq!(unmasked, format!("found {key}"));

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
        matches!(error, agent_session::AppendError::TooLarge { .. }),
        "{error}"
    );
    assert_eq!(writer.head(), before);
}
