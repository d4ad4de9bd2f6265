//! `agent sessions`: what is listed, measured and removed.

use agent_test_support::project::TestProject;
use serde_json::Value;

use crate::{agent, assert_schema, sample};

fn list(project: &TestProject) -> Value {
    let run = agent(project, &["sessions", "list", "--json"]);
    let list = run.finish().expect_code(0).json();
    assert_schema("sessions-list", &list);
    list
}

#[test]
fn a_project_without_sessions_has_none() {
    let project = TestProject::new();
    assert_eq!(list(&project)["sessions"], serde_json::json!([]));
    let run = agent(&project, &["sessions"]).finish().expect_code(0);
    assert_eq!(run.stdout(), "");
    assert!(
        !project.root().join(".agent").exists(),
        "looking makes nothing"
    );
}

#[test]
fn the_one_written_last_comes_first() {
    let project = TestProject::new();
    let first = sample::session(&project, 1, "first");
    let second = sample::session(&project, 2, "second");
    let listed = list(&project);
    assert_eq!(listed["sessions"][0]["session_id"], second.as_str());
    assert_eq!(listed["sessions"][1]["session_id"], first.as_str());
    assert_eq!(listed["sessions"][1]["title"], "first");
    assert_eq!(listed["sessions"][0]["writer"], Value::Null);
}

#[test]
fn the_list_fits_80_columns_and_cannot_paint_the_terminal() {
    let project = TestProject::new();
    sample::session(
        &project,
        1,
        "a title \u{1b}[31m that is far too long to be shown in one line",
    );
    let run = agent(&project, &["sessions", "list"])
        .finish()
        .expect_code(0);
    assert!(!run.stdout().contains('\u{1b}'), "{:?}", run.stdout());
    for line in run.stdout().lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_session_that_is_being_written_says_so() {
    let project = TestProject::new();
    let writer = sample::begin(&project, 1, "open");
    let listed = list(&project);
    assert_eq!(listed["sessions"][0]["writer"]["pid"], std::process::id());
    drop(writer);
    assert_eq!(list(&project)["sessions"][0]["writer"], Value::Null);
}

#[test]
fn a_damaged_session_is_listed_too() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "broken");
    let log = format!(".agent/sessions/{id}/events.jsonl");
    project.write(log, "this is no event\n");
    let listed = list(&project);
    assert_eq!(listed["sessions"][0]["session_id"], id.as_str());
    assert_eq!(listed["sessions"][0]["events"], Value::Null);
}

#[test]
fn sizes_add_up() {
    let project = TestProject::new();
    sample::session(&project, 1, "one");
    let id = sample::session(&project, 2, "two");
    let run = agent(&project, &["sessions", "size", "--json"]);
    let sizes = run.finish().expect_code(0).json();
    assert_schema("sessions-size", &sizes);
    let entries = sizes["sessions"].as_array().unwrap();
    let sum: u64 = entries
        .iter()
        .map(|entry| entry["total_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(sizes["total_bytes"], sum);
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0]["artifact_count"], 1);
    assert_eq!(entries[0]["artifact_bytes"], 420);

    let run = agent(&project, &["sessions", "size", "--json", id.as_str()]);
    let one = run.finish().expect_code(0).json();
    assert_eq!(one["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_session_is_named_by_id_beginning_or_last() {
    let project = TestProject::new();
    let run = agent(&project, &["sessions", "size", "last"])
        .finish()
        .expect_code(2);
    assert!(
        run.stderr().starts_with("error: there is no session yet"),
        "{}",
        run.stderr()
    );
    assert!(run.stderr().contains("agent demo"), "{}", run.stderr());

    let first = sample::session(&project, 1, "one");
    let second = sample::session(&project, 2, "two");
    let one = |asked: &str| {
        let run = agent(&project, &["sessions", "size", "--json", asked]);
        let found = run.finish().expect_code(0).json();
        found["sessions"][0]["session_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(one(first.as_str()), first.as_str());
    assert_eq!(one("last"), second.as_str());
    let differs = first.as_str().bytes().zip(second.as_str().bytes());
    let common = differs.take_while(|(a, b)| a == b).count();
    assert_eq!(one(&first.as_str()[..=common]), first.as_str());

    let beginning = &first.as_str()[..common];
    let run = agent(&project, &["sessions", "size", beginning])
        .finish()
        .expect_code(2);
    assert!(
        run.stderr().contains("matches 2 sessions"),
        "{}",
        run.stderr()
    );
    let run = agent(&project, &["sessions", "size", "nothing"])
        .finish()
        .expect_code(2);
    assert!(
        run.stderr().contains("hint: `agent sessions` lists them"),
        "{}",
        run.stderr()
    );
}

#[test]
fn show_says_what_the_log_says() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "look into the notes");
    let shown = agent(&project, &["sessions", "show", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_schema("sessions-show", &shown);
    assert_eq!(shown["session_id"], id.as_str());
    assert_eq!(shown["status"], "ended");
    assert_eq!(shown["outcome"], "completed");
    assert_eq!(shown["turns"][0]["status"], "completed");
    assert_eq!(shown["calls"][0]["tool_name"], "read");
    assert_eq!(shown["calls"][0]["status"], "ok");
    assert_eq!(shown["calls"][0]["code"], "ok");
    assert_eq!(shown["artifact_count"], 1);
    assert_eq!(shown["pending_actions"], serde_json::json!([]));

    let text = agent(&project, &["sessions", "show", "last"])
        .finish()
        .expect_code(0)
        .stdout();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(
        text.contains("what is in the file?") && text.contains("read"),
        "{text}"
    );
}

#[test]
fn show_of_a_damaged_session_says_so() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "broken");
    let log = format!(".agent/sessions/{id}/events.jsonl");
    let text = project.read(&log).replacen("notes.txt", "other.txt", 1);
    project.write(&log, text);
    let run = agent(&project, &["sessions", "show", "--json"])
        .finish()
        .expect_code(0);
    assert_eq!(run.json()["damaged_lines"], 1);
    assert!(run.stderr().contains("agent audit"), "{}", run.stderr());
}

#[test]
fn prune_asks_what_and_needs_a_yes() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample");
    let artifacts = project
        .root()
        .join(format!(".agent/sessions/{id}/artifacts"));
    let count = || std::fs::read_dir(&artifacts).unwrap().count();

    let run = agent(&project, &["sessions", "prune"])
        .finish()
        .expect_code(2);
    assert!(run.stderr().contains("no limit is set"), "{}", run.stderr());

    let dry = ["sessions", "prune", "--max-size", "1B", "--json"];
    let report = agent(&project, &dry).finish().expect_code(0).json();
    assert_schema("sessions-prune", &report);
    assert_eq!((&report["removed"], count()), (&Value::Bool(false), 1));
    assert_eq!(report["bytes"], 420);

    let run = agent(
        &project,
        &["sessions", "prune", "--max-size", "1B", "--yes"],
    );
    let run = run.finish().expect_code(0);
    assert!(run.stdout().contains("420 B removed"), "{}", run.stdout());
    assert_eq!(count(), 0);
    // The record says what went and why, and is still whole.
    let log = project.read(format!(".agent/sessions/{id}/events.jsonl"));
    assert!(log.contains("\"output.expired\""), "{log}");
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

#[test]
fn one_session_that_cannot_be_pruned_does_not_keep_the_others() {
    let project = TestProject::new();
    let idle = sample::session(&project, 1, "idle");
    let writer = sample::begin(&project, 2, "busy");
    sample::turn(&writer);
    project.write(".agent/sessions/ses_01m7kcvcx50000001cphvm9aaa/lease", "");
    let prune = ["sessions", "prune", "--max-size", "1B", "--yes", "--json"];
    let report = agent(&project, &prune).finish().expect_code(1).json();
    assert_schema("sessions-prune", &report);
    assert_eq!(report["sessions"][0]["session_id"], idle.as_str());
    assert_eq!(
        report["failed"][0]["session_id"],
        writer.session_id().as_str()
    );
    assert_eq!(report["failed"].as_array().unwrap().len(), 1);
}

#[test]
fn a_session_without_a_title_is_listed_by_its_first_words() {
    let project = TestProject::new();
    project.write("notes.txt", "hello\n");
    agent(&project, &["call", "read", "{\"path\":\"notes.txt\"}"])
        .finish()
        .expect_code(0);
    let id = list(&project)["sessions"][0]["session_id"].clone();
    assert_eq!(
        list(&project)["sessions"][0]["first_input"],
        "agent call read"
    );
    agent(&project, &["fork", "last"]).finish().expect_code(0);
    let listed = agent(&project, &["sessions", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_eq!(listed["sessions"][0]["parent"], id);
    let text = agent(&project, &["sessions"])
        .finish()
        .expect_code(0)
        .stdout();
    assert!(
        text.contains("agent call read") && text.contains("(fork of ses_"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn prune_follows_the_settings_and_leaves_young_sessions() {
    let project = TestProject::new();
    sample::session(&project, 1, "young");
    project.write_home("config.toml", "[retention]\nmax_age = \"30d\"\n");
    let report = agent(&project, &["sessions", "prune", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_eq!(report["sessions"], serde_json::json!([]));
}

#[test]
fn prune_refuses_a_session_that_is_being_written() {
    let project = TestProject::new();
    let writer = sample::begin(&project, 1, "open");
    sample::turn(&writer);
    let run = agent(
        &project,
        &["sessions", "prune", "--max-size", "1B", "--yes"],
    );
    let run = run.finish().expect_code(1);
    assert!(
        run.stderr().contains("nothing was removed"),
        "{}",
        run.stderr()
    );
}
