//! Exports, against the published schema where it is at hand and against our own everywhere.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use std::path::{Path, PathBuf};

use agent_evidence::audit::audit;
use agent_evidence::export::{export_jsonl, export_portable, portable_schema};
use agent_log::SessionDirectory;
use serde_json::Value;
use support::Project;
use support::story::whole_story;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every sample there is: a session told now, and the recorded ones.
fn samples() -> (Project, Vec<SessionDirectory>) {
    let project = Project::new();
    whole_story(&project.create());
    let mut samples = vec![project.store().resolve("last").unwrap()];
    samples.extend(recorded());
    samples.extend(sessions_in(&repository().join(".agent-example/sessions")));
    (project, samples)
}

fn recorded() -> Vec<SessionDirectory> {
    let logs = repository().join("fixtures/logs");
    let mut found = Vec::new();
    let versions = std::fs::read_dir(logs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir());
    for version in versions {
        found.extend(sessions_in(&version));
    }
    assert!(!found.is_empty());
    found
}

fn sessions_in(directory: &Path) -> Vec<SessionDirectory> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| SessionDirectory::at(&entry.unwrap().path()).unwrap())
        .collect()
}

fn portable(session: &SessionDirectory) -> Vec<Value> {
    let mut out = Vec::new();
    let exported = export_portable(session, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(exported.written, lines.len() as u64);
    assert_eq!(exported.unreadable, 0);
    lines
}

fn check_against(schema: &Value) {
    let validator = jsonschema::validator_for(schema).unwrap();
    let (_project, samples) = samples();
    for session in &samples {
        let lines = portable(session);
        assert!(lines.len() > 50);
        for line in &lines {
            let errors: Vec<String> = validator
                .iter_errors(line)
                .map(|error| error.to_string())
                .collect();
            assert!(errors.is_empty(), "{errors:?} in {line}");
        }
    }
    let mut own = portable(&samples[0])[0].clone();
    own["type"] = "tool.intent".into();
    assert!(!validator.is_valid(&own), "the schema lets anything pass");
}

#[test]
fn the_portable_form_is_as_published() {
    let path =
        repository().join("../shared/external/agentruntime/schemas/agentruntime-event.schema.json");
    match std::fs::read_to_string(&path) {
        Ok(text) => check_against(&serde_json::from_str(&text).unwrap()),
        // It is not ours to keep in the repository; the test below holds without it.
        Err(error) => eprintln!("skipped: the published schema is not here ({error})"),
    }
}

#[test]
fn the_portable_form_is_as_we_say() {
    let path = repository().join("docs/schemas/portable-event.schema.json");
    let current = format!(
        "{}\n",
        serde_json::to_string_pretty(&portable_schema()).unwrap()
    );
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == current,
        "docs/schemas is out of date: run this test with UPDATE_SCHEMAS=1"
    );
    check_against(&portable_schema());
}

#[test]
fn own_classes_are_left_out_and_keys_are_renamed() {
    let (_project, samples) = samples();
    let lines = portable(&samples[0]);
    let classes: Vec<&str> = lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    assert!(classes.contains(&"tool.started") && classes.contains(&"permission.evaluated"));
    assert!(!classes.iter().any(|class| matches!(
        *class,
        "tool.intent" | "tool.validation" | "tool.observation"
    )));
    let args = lines
        .iter()
        .find(|line| line["type"] == "tool.args")
        .unwrap();
    assert_eq!(
        args["payload"]["safeArgs"]["old_string"], "a",
        "a tool's own keys stay"
    );
    assert!(args["payload"]["argsSha256"].is_string() && args["toolCallId"].is_string());
    assert!(args.get("prev").is_none());
}

#[test]
fn jsonl_is_the_log() {
    let (_project, samples) = samples();
    for session in &samples {
        let log = std::fs::read(session.log_path()).unwrap();
        let mut out = Vec::new();
        let exported = export_jsonl(session, &mut out).unwrap();
        assert_eq!(out, log);
        assert_eq!(
            exported.written as usize,
            log.iter().filter(|byte| **byte == b'\n').count()
        );
    }
    let session = &samples[0];
    let log = std::fs::read(session.log_path()).unwrap();
    std::fs::write(session.log_path(), &log[..log.len() - 10]).unwrap();
    let mut out = Vec::new();
    export_jsonl(session, &mut out).unwrap();
    assert!(
        out.ends_with(b"}\n") && log.starts_with(&out),
        "half a line was exported"
    );
}

/// A log of every format ever written still opens, and says what it said then.
#[test]
fn old_logs_are_still_readable() {
    for session in recorded() {
        let report = audit(&session, None).unwrap();
        let codes: Vec<&str> = report
            .findings
            .iter()
            .map(|finding| finding.code.as_str())
            .collect();
        assert_eq!(codes, ["no_anchor"], "{:#?}", report.findings);
        assert_eq!((report.turns, report.calls), (2, 12));
    }
}

/// Writes the sample log of the current format once: `RECORD_LOG=1 cargo test -p agent-evidence`.
#[test]
fn the_current_format_has_a_recorded_log() {
    let directory = repository().join("fixtures/logs/v1");
    if std::env::var_os("RECORD_LOG").is_some() {
        let project = Project::new();
        whole_story(&project.create());
        let session = project.store().resolve("last").unwrap();
        let target = directory.join(session.id().as_str());
        std::fs::create_dir_all(target.join("artifacts")).unwrap();
        std::fs::copy(session.log_path(), target.join("events.jsonl")).unwrap();
        for file in session.artifacts().unwrap().list().unwrap() {
            let path = session.artifacts().unwrap().path_of(&file.artifact_id);
            std::fs::copy(
                &path,
                target.join("artifacts").join(path.file_name().unwrap()),
            )
            .unwrap();
        }
    }
    assert!(directory.is_dir());
}
