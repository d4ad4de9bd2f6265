//! What an audit finds, and what it lets pass.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use agent_evidence::audit::{AuditReport, Severity, audit, audit_deleted};
use agent_log::SessionDirectory;
use agent_protocol::payload::permission::Effect;
use agent_protocol::payload::tool::{ToolExit, ToolResult};
use agent_protocol::{Code, Phase, Refs, Scope};
use proptest::prelude::*;
use proptest::sample::Index;
use support::Project;
use support::story::{Teller, whole_story};

fn told() -> (Project, SessionDirectory) {
    let project = Project::new();
    whole_story(&project.create());
    let session = project.store().resolve("last").unwrap();
    (project, session)
}

fn report(project: &Project, session: &SessionDirectory) -> AuditReport {
    audit(session, Some(&project.anchors())).unwrap()
}

fn errors(report: &AuditReport) -> Vec<&str> {
    let errors = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| finding.code.as_str()).collect()
}

#[test]
fn a_whole_story_has_no_findings() {
    let (project, session) = told();
    let report = report(&project, &session);
    assert!(
        report.is_ok() && report.findings.is_empty(),
        "{:#?}",
        report.findings
    );
    assert_eq!((report.calls, report.turns, report.artifacts), (12, 2, 4));
    assert_eq!(report.to_json()["ok"], true);
}

proptest! {
    // Each case audits a log of some 150 lines; a few hundred find every kind of damage.
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_is_found_and_placed(
        kind in 0..6u8,
        at: Index,
        other: Index,
        flip in 1..=255u8,
    ) {
        static STORY: std::sync::OnceLock<(Project, SessionDirectory, Vec<u8>)> = std::sync::OnceLock::new();
        let (project, session, original) = STORY.get_or_init(|| {
            let (project, session) = told();
            let log = std::fs::read(session.log_path()).unwrap();
            (project, session, log)
        });
        let mut lines: Vec<Vec<u8>> = original.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let mut damaged = match kind {
            0 => {
                let mut bytes = original.clone();
                let place = at.index(bytes.len());
                bytes[place] ^= flip;
                bytes
            }
            1 => {
                lines.remove(at.index(lines.len()));
                lines.concat()
            }
            2 => {
                let (a, b) = (at.index(lines.len()), other.index(lines.len()));
                prop_assume!(a != b);
                lines.swap(a, b);
                lines.concat()
            }
            3 => original[..at.index(original.len())].to_vec(),
            4 => {
                let place = at.index(lines.len());
                let copy = lines[place].clone();
                lines.insert(other.index(lines.len()), copy);
                lines.concat()
            }
            _ => {
                let mut bytes = original.clone();
                bytes.insert(at.index(original.len()), flip);
                bytes
            }
        };
        if damaged == *original {
            damaged.clear();
        }
        std::fs::write(session.log_path(), &damaged).unwrap();
        let report = report(project, session);
        std::fs::write(session.log_path(), original).unwrap();
        prop_assert!(!report.is_ok(), "kind {kind} was not found");
        let placed = report.findings.iter().any(|finding| {
            finding.severity == Severity::Error
                && (finding.message.contains("line ") || finding.sequence.is_some())
        });
        prop_assert!(placed, "{:?}", report.findings);
    }
}

#[test]
fn a_bad_artifact_is_named() {
    let (project, session) = told();
    let artifacts = session.artifacts().unwrap();
    let files = artifacts.list().unwrap();
    let path = artifacts.path_of(&files[0].artifact_id);
    let original = std::fs::read(&path).unwrap();
    let mut altered = original.clone();
    altered[0] ^= 1;
    std::fs::write(&path, altered).unwrap();
    let found = report(&project, &session);
    assert_eq!(errors(&found), ["artifact_altered"]);
    assert_eq!(
        found.findings[0].artifact_id.as_ref(),
        Some(&files[0].artifact_id)
    );
    std::fs::remove_file(&path).unwrap();
    assert_eq!(errors(&report(&project, &session)), ["artifact_missing"]);
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert_eq!(errors(&report(&project, &session)), ["artifact_unreadable"]);
}

#[test]
fn a_deleted_log_is_missed() {
    let (project, session) = told();
    std::fs::remove_file(session.log_path()).unwrap();
    assert_eq!(errors(&report(&project, &session)), ["log_deleted"]);
    std::fs::remove_dir_all(session.path()).unwrap();
    let found = audit_deleted(session.id(), &project.anchors())
        .unwrap()
        .unwrap();
    assert!(!found.is_ok());
    let unknown = "ses_never".parse().unwrap();
    assert!(
        audit_deleted(&unknown, &project.anchors())
            .unwrap()
            .is_none()
    );
}

#[test]
fn without_an_anchor_there_is_a_note() {
    let (_project, session) = told();
    let report = audit(&session, None).unwrap();
    assert!(report.is_ok());
    assert_eq!(report.findings[0].code, "no_anchor");
}

#[test]
fn open_work_of_a_killed_session_is_a_note() {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.begin_turn("go");
    teller.ask_model(1);
    let intent = teller.propose("read", true);
    let permission = teller.decide(Effect::Allow);
    teller.start(&intent, &permission);
    drop(teller);
    drop(writer);
    let session = project.store().resolve("last").unwrap();
    let report = report(&project, &session);
    assert!(report.is_ok(), "{:#?}", report.findings);
    let codes: Vec<&str> = report
        .findings
        .iter()
        .map(|finding| finding.code.as_str())
        .collect();
    assert_eq!(codes, ["no_anchor", "open_turn", "open_call"]);
}

/// Tells something that must not happen, and says which errors the audit finds.
fn check(tell: impl FnOnce(&mut Teller<'_>), expected: &[&str]) {
    let project = Project::new();
    let writer = project.create();
    let mut teller = Teller::new(&writer);
    teller.begin_turn("go");
    teller.ask_model(1);
    tell(&mut teller);
    let session = project.store().resolve("last").unwrap();
    let report = report(&project, &session);
    assert_eq!(errors(&report), expected, "{:#?}", report.findings);
}

fn result(teller: &Teller<'_>, invocation: agent_protocol::id::InvocationId) {
    teller.tell(ToolResult {
        invocation_id: invocation,
        exit: ToolExit::Ok,
        ok: true,
        code: Code::Ok,
        ..ToolResult::default()
    });
}

#[test]
fn calls_that_skip_a_step_are_found() {
    check(
        |teller| {
            let intent = teller.propose("read", true);
            let denied = teller.decide(Effect::Deny);
            let started = teller.start(&intent, &denied);
            result(teller, started.invocation_id.clone());
            teller.observe(&intent, Some(&started), Phase::Execute, Code::Ok);
        },
        &["started_without_permission"],
    );
    check(
        |teller| {
            let intent = teller.propose("read", true);
            teller.decide(Effect::Ask);
            let other = teller.decide(Effect::Ask);
            teller.start(&intent, &other);
        },
        &["started_without_permission"],
    );
    check(
        |teller| {
            let intent = teller.propose("read", true);
            teller.decide(Effect::Allow);
            result(teller, teller.writer.mint());
            teller.observe(&intent, None, Phase::Execute, Code::Ok);
        },
        &["result_without_start"],
    );
    check(
        |teller| {
            let intent = teller.propose("read", true);
            let permission = teller.decide(Effect::Allow);
            let started = teller.start(&intent, &permission);
            result(teller, started.invocation_id.clone());
            result(teller, started.invocation_id.clone());
            teller.observe(&intent, Some(&started), Phase::Execute, Code::ExitNonzero);
        },
        &["second_end", "observation_differs"],
    );
    check(
        |teller| {
            let intent = teller.propose("read", false);
            teller.decide(Effect::Allow);
            teller.observe(&intent, None, Phase::Validate, Code::SchemaInvalid);
        },
        &[
            "permission_without_validation",
            "args_missing",
            "observation_without_end",
        ],
    );
    check(
        |teller| {
            teller.read_call();
            let call = teller.writer.mint();
            let scope = Scope {
                tool_call_id: Some(call),
                ..teller.scope.clone()
            };
            let started = agent_protocol::payload::process::ProcessStarted::default();
            teller
                .writer
                .append(&scope, started, Refs::default())
                .unwrap();
        },
        &[
            "call_without_intent",
            "process_without_start",
            "process_without_sandbox",
        ],
    );
    check(
        |teller| {
            let scope = teller.scope.clone();
            teller.end_turn();
            teller.scope = scope;
            teller.read_call();
            teller.end_turn();
        },
        &[
            "event_after_turn_end",
            "event_after_turn_end",
            "event_after_turn_end",
        ],
    );
    check(
        |teller| {
            teller.propose("read", true);
            teller.decide(Effect::Allow);
            teller.scope.tool_call_id = None;
            teller.end_turn();
        },
        &["call_open_in_ended_turn"],
    );
}
