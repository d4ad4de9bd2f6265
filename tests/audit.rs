//! `agent audit`: an intact record is found intact, and every kind of damage is named.

use std::fs;
use std::path::PathBuf;

use agent_test_support::project::TestProject;
use serde_json::Value;

use crate::{agent, assert_schema, sample};

struct Recorded {
    project: TestProject,
    id: String,
}

impl Recorded {
    fn new() -> Self {
        let project = TestProject::new();
        let id = sample::session(&project, 1, "sample").to_string();
        Self { project, id }
    }

    fn directory(&self) -> PathBuf {
        self.project.root().join(".agent/sessions").join(&self.id)
    }

    fn log(&self) -> PathBuf {
        self.directory().join("events.jsonl")
    }

    #[track_caller]
    fn audit(&self, code: i32) -> Value {
        let run = agent(&self.project, &["audit", "--json", &self.id]);
        let report = run.finish().expect_code(code).json();
        assert_schema("audit", &report);
        assert_eq!(report["ok"], code == 0);
        report
    }

    /// The codes of all findings that are errors.
    #[track_caller]
    fn errors(&self) -> Vec<String> {
        let report = self.audit(1);
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .filter(|finding| finding["severity"] == "error")
            .map(|finding| finding["code"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn an_intact_session_is_found_intact() {
    let recorded = Recorded::new();
    let report = recorded.audit(0);
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["calls"], 1);
    assert_eq!(report["turns"], 1);
    assert_eq!(report["artifacts"], 1);
    let run = agent(&recorded.project, &["audit", "last"])
        .finish()
        .expect_code(0);
    assert!(
        run.stdout()
            .starts_with(&format!("{} intact\n", recorded.id)),
        "{}",
        run.stdout()
    );
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let recorded = Recorded::new();
    let whole = fs::read(recorded.log()).unwrap();
    // Every byte would take a while; a prime step meets all kinds of places.
    for at in (0..whole.len()).step_by(197) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x01;
        fs::write(recorded.log(), &damaged).unwrap();
        assert!(!recorded.errors().is_empty(), "byte {at}");
    }
}

#[test]
fn missing_repeated_and_swapped_lines_are_found() {
    let recorded = Recorded::new();
    let text = fs::read_to_string(recorded.log()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let write = |lines: &[&str]| {
        fs::write(recorded.log(), lines.join("\n") + "\n").unwrap();
    };
    for at in 0..lines.len() {
        let mut without = lines.clone();
        without.remove(at);
        write(&without);
        assert!(!recorded.errors().is_empty(), "without line {at}");

        let mut twice = lines.clone();
        twice.insert(at, lines[at]);
        write(&twice);
        assert!(!recorded.errors().is_empty(), "line {at} twice");
    }
    for at in 1..lines.len() {
        let mut swapped = lines.clone();
        swapped.swap(at - 1, at);
        write(&swapped);
        assert!(
            !recorded.errors().is_empty(),
            "lines {at} and the one before swapped"
        );
    }
}

/// The chain cannot show it, so the anchor has to.
#[test]
fn a_cut_end_is_found_by_the_anchor() {
    let recorded = Recorded::new();
    let text = fs::read_to_string(recorded.log()).unwrap();
    let without_last = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(recorded.log(), &text[..without_last]).unwrap();
    assert!(!recorded.errors().is_empty());
}

#[test]
fn a_deleted_session_is_found_by_the_anchor() {
    let recorded = Recorded::new();
    fs::remove_dir_all(recorded.directory()).unwrap();
    assert_eq!(recorded.errors(), ["log_deleted"]);
}

#[test]
fn an_altered_or_missing_artifact_is_found() {
    let recorded = Recorded::new();
    let artifacts = recorded.directory().join("artifacts");
    let entry = fs::read_dir(&artifacts).unwrap().next().unwrap().unwrap();
    let content = fs::read(entry.path()).unwrap();
    fs::remove_file(entry.path()).unwrap();
    let missing = recorded.errors();
    fs::write(entry.path(), [&content[..], b"x"].concat()).unwrap();
    let altered = recorded.errors();
    assert_eq!(
        (missing.len(), altered.len()),
        (1, 1),
        "{missing:?} {altered:?}"
    );
    assert_ne!(missing, altered);
}

#[test]
fn what_cannot_be_read_is_exit_2() {
    let recorded = Recorded::new();
    agent(&recorded.project, &["audit", "nobody"])
        .finish()
        .expect_code(2);
    let other = TestProject::new();
    agent(&other, &["audit", "last"]).finish().expect_code(2);
}

/// A killed session has open work, which is no fault of the record.
#[test]
fn open_work_is_a_note() {
    let project = TestProject::new();
    let writer = sample::begin(&project, 1, "killed");
    sample::turn(&writer);
    let id = writer.session_id().to_string();
    drop(writer);
    let run = agent(&project, &["audit", "--json", &id])
        .finish()
        .expect_code(0);
    assert_eq!(run.json()["ok"], true);
}

#[test]
fn audit_writes_nothing() {
    let recorded = Recorded::new();
    let before = listing(&recorded);
    recorded.audit(0);
    agent(&recorded.project, &["sessions", "show", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(listing(&recorded), before);
}

/// Every file with its size and time.
fn listing(recorded: &Recorded) -> Vec<String> {
    let mut open = vec![recorded.project.root(), recorded.project.home()];
    let mut lines = Vec::new();
    while let Some(path) = open.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        lines.push(format!(
            "{} {} {:?}",
            path.display(),
            facts.len(),
            facts.modified().unwrap()
        ));
        if facts.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    lines.sort();
    lines
}
