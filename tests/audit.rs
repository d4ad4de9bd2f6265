//! `agent audit`: an intact record is found intact, and every kind of damage is named.

use std::fs;
use std::path::PathBuf;

use agent_test_support::project::TestProject;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

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

    /// Another log in place of the recorded one, with a chain of its own and no anchor.
    fn write_chained(&self, events: &mut [Value]) {
        let hash = |bytes: &[u8]| {
            let digest = Sha256::digest(bytes);
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("sha256:{hex}")
        };
        let mut prev = hash(self.id.as_bytes());
        let mut log = String::new();
        for (sequence, event) in events.iter_mut().enumerate() {
            event["sequence"] = sequence.into();
            event["prev"] = prev.into();
            let line = event.to_string();
            prev = hash(line.as_bytes());
            log.push_str(&line);
            log.push('\n');
        }
        fs::write(self.log(), log).unwrap();
        let anchors = self.project.home().join("state/anchors");
        let _ = fs::remove_file(anchors.join(format!("{}.json", self.id)));
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
fn without_a_name_every_session_is_listed() {
    let project = TestProject::new();
    let mut ids = vec![sample::session(&project, 1, "one").to_string()];
    let listed = || {
        let report = agent(&project, &["audit", "--json"])
            .finish()
            .expect_code(0)
            .json();
        assert_schema("audit-all", &report);
        let sessions = report["sessions"].as_array().unwrap();
        let each = sessions
            .iter()
            .map(|session| session["session_id"].as_str().unwrap().to_owned());
        let mut each: Vec<String> = each.collect();
        each.sort();
        each
    };
    assert_eq!(listed(), ids);
    ids.push(sample::session(&project, 2, "two").to_string());
    assert_eq!(listed(), ids);
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

/// One session that cannot be read must not hide what is wrong with the others.
#[test]
fn every_session_is_looked_at_whatever_the_others_are_like() {
    let recorded = Recorded::new();
    let project = &recorded.project;
    let damaged = sample::session(project, 2, "damaged").to_string();
    let linked = sample::session(project, 3, "linked").to_string();
    let sessions = project.root().join(".agent/sessions");
    // A run that was stopped while it made its session.
    let begun = sessions.join("ses_01m7kcvcx50000001cphvm9aaa");
    fs::create_dir(&begun).unwrap();
    let all = |code: i32| {
        let run = agent(project, &["audit", "--json"]).finish();
        let report = run.expect_code(code).json();
        assert_schema("audit-all", &report);
        assert_eq!(report["ok"], code == 0);
        let found = report["sessions"].as_array().unwrap().iter();
        let mut found: Vec<(String, String)> = found
            .map(|session| {
                let id = session["session_id"].as_str().unwrap().to_owned();
                let first = session["findings"][0]["code"].as_str().unwrap_or("");
                (id, first.to_owned())
            })
            .collect();
        found.sort();
        found
    };
    let expected = |linked_code: &str, damaged_code: &str| {
        let mut expected = vec![
            ("ses_01m7kcvcx50000001cphvm9aaa".to_owned(), "no_log".into()),
            (recorded.id.clone(), String::new()),
            (damaged.clone(), damaged_code.to_owned()),
            (linked.clone(), linked_code.to_owned()),
        ];
        expected.sort();
        expected
    };
    assert_eq!(all(0), expected("", ""));

    let log = sessions.join(&linked).join("events.jsonl");
    fs::rename(&log, project.root().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(project.root().join("elsewhere"), &log).unwrap();
    assert_eq!(all(2), expected("unreadable", ""));

    let log = sessions.join(&damaged).join("events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("notes.txt", "other.txt", 1)).unwrap();
    assert_eq!(all(1), expected("unreadable", "bad_hash"));
    let run = agent(project, &["audit"]).finish().expect_code(1);
    assert!(
        run.stdout().contains("4 sessions, 2 not intact"),
        "{}",
        run.stdout()
    );
}

/// What a newer version wrote is not called wrong because this one does not understand it.
#[test]
fn what_is_newer_than_we_are_is_reported_and_not_accused() {
    let recorded = Recorded::new();
    let text = fs::read_to_string(recorded.log()).unwrap();
    let mut events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut future = events[2].clone();
    future["type"] = "future.thing".into();
    future["event_id"] = "ev_future".into();
    future["schema_version"] = "2".into();
    future["mood"] = "good".into();
    future["payload"] = serde_json::json!({"x": [1]});
    events.insert(3, future);
    recorded.write_chained(&mut events);
    let report = recorded.audit(0);
    let codes = |report: &Value| -> Vec<String> {
        let findings = report["findings"].as_array().unwrap().iter();
        let code = |finding: &Value| {
            let word = |key: &str| finding[key].as_str().unwrap().to_owned();
            format!("{} {}", word("severity"), word("code"))
        };
        findings.map(code).collect()
    };
    let expected = [
        "note no_anchor",
        "note unknown_type",
        "note unknown_field",
        "note other_schema_version",
    ];
    assert_eq!(codes(&report), expected);

    let is_start = |event: &&mut Value| event["type"] == "tool.started";
    let started = events.iter_mut().find(is_start).unwrap();
    started["payload"] = serde_json::json!({"begun": true});
    recorded.write_chained(&mut events);
    let report = recorded.audit(0);
    assert!(
        codes(&report).contains(&"note unknown_shape".to_owned()),
        "{report:#}"
    );
    assert!(
        codes(&report).contains(&"warning result_without_start".to_owned()),
        "{report:#}"
    );

    // With `--strict`, what is printed and the exit code agree.
    let run = agent(
        &recorded.project,
        &["audit", "--strict", "--json", &recorded.id],
    );
    assert_eq!(run.finish().expect_code(1).json()["ok"], false);
}
