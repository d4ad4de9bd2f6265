//! `agent replay`: the story from the record, and nothing but the record; nothing is run, written or
//! connected.

use std::fs;
use std::path::Path;
use std::process::Command;

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::files::scripted;
use crate::{agent, assert_schema, sample};

/// The recorded sample session, copied into a project of its own.
fn recorded() -> (TestProject, String) {
    let project = TestProject::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.agent-example/sessions");
    let entry = fs::read_dir(root).unwrap().next().unwrap().unwrap();
    let id = entry.file_name().into_string().unwrap();
    copy(
        &entry.path(),
        &project.root().join(".agent/sessions").join(&id),
    );
    (project, id)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn text_of_the_recorded_session() {
    let (project, id) = recorded();
    let run = agent(&project, &["replay", &id]).finish().expect_code(0);
    let text = run.stdout();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    insta::assert_snapshot!("replay_text", text);
}

#[test]
fn json_of_the_recorded_session() {
    let (project, id) = recorded();
    let run = agent(&project, &["replay", &id, "--format", "json"]);
    let replay = run.finish().expect_code(0).json();
    assert_schema("replay", &replay);
    // Payloads are the log's own; the rest is ours to keep stable.
    let mut brief = replay;
    for event in brief["events"].as_array_mut().unwrap() {
        event.as_object_mut().unwrap().remove("payload");
    }
    insta::assert_snapshot!("replay_json", serde_json::to_string_pretty(&brief).unwrap());
}

#[test]
fn the_card_answers_fourteen_questions() {
    let (project, id) = recorded();
    let replay = agent(&project, &["replay", &id, "--format", "json"]);
    let replay = replay.finish().expect_code(0).json();
    for call in replay["calls"].as_array().unwrap() {
        let call = call["tool_call_id"].as_str().unwrap();
        let card = agent(
            &project,
            &["replay", &id, "--call", call, "--format", "json"],
        );
        let card = card.finish().expect_code(0).json();
        assert_schema("replay-card", &card);
        let answers = card["answers"].as_array().unwrap();
        assert_eq!(answers.len(), 14);
        assert!(
            answers.iter().all(|answer| answer["answer"] != ""),
            "{card:#}"
        );
    }
    agent(&project, &["replay", &id, "--call", "1"])
        .finish()
        .expect_code(0);
    let missing = agent(&project, &["replay", &id, "--call", "999"]);
    missing.finish().expect_code(2);
}

/// A fact that is taken out of the log is unknown on the card, and nothing else is.
#[test]
fn what_is_taken_from_the_log_is_unknown_on_the_card() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample");
    let log = project
        .root()
        .join(format!(".agent/sessions/{id}/events.jsonl"));
    let whole = fs::read_to_string(&log).unwrap();
    let unknown = |text: &str| -> Vec<String> {
        fs::write(&log, text).unwrap();
        let run = agent(
            &project,
            &["replay", "last", "--call", "1", "--format", "json"],
        );
        let card = run.finish().expect_code(0).json();
        let answers = card["answers"].as_array().unwrap().iter();
        let unknown = answers.filter(|answer| answer["known"] == false);
        unknown
            .map(|answer| answer["key"].as_str().unwrap().to_owned())
            .collect()
    };
    let known_before = unknown(&whole);
    for (class, key) in [
        ("permission.evaluated", "rules"),
        ("tool.observation", "model_view"),
        ("tool.observation", "truncation"),
        ("tool.started", "timeout"),
        ("tool.result", "outcome"),
        ("tool.validation", "schema"),
    ] {
        let without: String = whole
            .lines()
            .filter(|line| !line.contains(&format!("\"type\":\"{class}\"")))
            .map(|line| format!("{line}\n"))
            .collect();
        let now = unknown(&without);
        assert!(
            now.contains(&key.to_owned()),
            "{class} is gone, {key} is known: {now:?}"
        );
        assert!(known_before.iter().all(|key| now.contains(key)), "{class}");
    }
}

#[test]
fn a_place_in_the_log_shows_what_was_known_there() {
    let (project, id) = recorded();
    let all = agent(&project, &["replay", &id, "--format", "json"]);
    let all = all.finish().expect_code(0).json();
    let last = all["session"]["events"].as_u64().unwrap() - 1;
    let middle = (last / 2).to_string();
    let run = agent(
        &project,
        &["replay", &id, "--format", "json", "--at", &middle],
    );
    let half = run.finish().expect_code(0).json();
    assert_eq!(
        half["events"].as_array().unwrap().len() as u64,
        last / 2 + 1
    );
    let run = agent(
        &project,
        &["replay", &id, "--format", "json", "--from", &middle],
    );
    let rest = run.finish().expect_code(0).json();
    assert_eq!(rest["events"][0]["sequence"], last / 2);
    assert_eq!(
        rest["summary"], all["summary"],
        "what came before still counts"
    );
    let run = agent(&project, &["replay", &id, "--from", "9", "--to", "3"]);
    run.finish().expect_code(2);
}

#[test]
fn a_session_that_was_copied_elsewhere_is_told_the_same() {
    let (project, id) = recorded();
    let here = agent(&project, &["replay", &id]).finish().expect_code(0);
    let other = TestProject::new();
    let from = project.root().join(".agent/sessions").join(&id);
    copy(&from, &other.root().join("copied").join(&id));
    let there = agent(&other, &["replay", &format!("copied/{id}")]);
    assert_eq!(there.finish().expect_code(0).stdout(), here.stdout());
}

#[test]
fn damage_is_told_and_what_is_whole_is_shown() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample");
    let log = format!(".agent/sessions/{id}/events.jsonl");
    let text = project.read(&log).replacen("notes.txt", "other.txt", 1);
    project.write(&log, text);
    let run = agent(&project, &["replay", "last"]).finish().expect_code(0);
    assert!(run.stderr().contains("not intact"), "{}", run.stderr());
    assert!(
        run.stdout().contains("chain broken in 1 place"),
        "{}",
        run.stdout()
    );
    let run = agent(&project, &["replay", "last", "--format", "json"]);
    assert_eq!(run.finish().expect_code(0).json()["integrity"]["ok"], false);
    agent(&project, &["replay", "last", "--verify"])
        .finish()
        .expect_code(1);
    let html = agent(&project, &["replay", "last", "--format", "html"]);
    assert!(
        html.finish()
            .expect_code(0)
            .stdout()
            .contains("Record NOT intact")
    );
}

#[test]
fn those_who_ask_for_a_part_are_told_of_damage_too() {
    let (project, id) = recorded();
    let log = format!(".agent/sessions/{id}/events.jsonl");
    let told = |arguments: &[&str]| agent(&project, arguments).finish().stderr().to_owned();
    let questions: [&[&str]; 4] = [
        &["why", "last", "1"],
        &["why", "last", "no-such-call"],
        &["diff", "last"],
        &["undo", "last", "--dry-run"],
    ];
    for question in questions {
        let whole = told(question);
        assert!(!whole.contains("damaged"), "{question:?}: {whole}");
    }
    // A tail that a crash cut off is no damage.
    let whole = project.read(&log);
    project.write(&log, format!("{whole}{{\"sequence\":"));
    for question in questions {
        let torn = told(question);
        assert!(!torn.contains("damaged"), "{question:?}: {torn}");
    }
    project.write(
        &log,
        whole.replacen("\"timestamp\":\"2", "\"timestamp\":\"1", 1),
    );
    for question in questions {
        let said = told(question);
        assert!(
            said.contains("the log is damaged at line"),
            "{question:?}: {said}"
        );
        assert!(
            said.contains(&format!("`agent audit {id}`")),
            "{question:?}: {said}"
        );
    }
}

/// Every form, watched by the kernel: one program, no connection, one file written.
#[test]
fn nothing_is_run_written_or_connected() {
    if Command::new("strace").arg("-V").output().is_err() {
        assert!(
            std::env::var_os("AGENT_REQUIRE_STRACE").is_none(),
            "strace is required here and is missing"
        );
        println!("strace is not installed: replay was not watched");
        return;
    }
    let project = TestProject::new();
    agent(&project, &["demo", "--directory", "demo"])
        .finish()
        .expect_code(0);
    let root = project.root().join("demo");
    for (form, arguments) in [
        (
            "text",
            vec!["replay", "last", "--format", "text", "-o", "out"],
        ),
        (
            "json",
            vec!["replay", "last", "--format", "json", "-o", "out"],
        ),
        (
            "html",
            vec!["replay", "last", "--format", "html", "-o", "out"],
        ),
        ("card", vec!["replay", "last", "--call", "3", "-o", "out"]),
        (
            "verify",
            vec![
                "replay", "last", "--verify", "--format", "text", "-o", "out",
            ],
        ),
        ("audit", vec!["audit", "last", "-o", "out"]),
        ("report", vec!["report", "last", "-o", "out"]),
        (
            "evidence",
            vec!["export", "last", "--format", "evidence", "-o", "out"],
        ),
    ] {
        let before = tree(&project);
        let trace = project.home().join("trace");
        let status = Command::new("strace")
            .args([
                "-f",
                "-qq",
                "-e",
                "trace=%process,%network,%file,%desc,io_uring_setup",
                "-o",
            ])
            .arg(&trace)
            .arg(env!("CARGO_BIN_EXE_agent"))
            .args(&arguments)
            .current_dir(&root)
            .env_clear()
            .env("AGENT_HOME", project.home())
            .env("HOME", project.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .output()
            .unwrap();
        assert!(
            status.status.success(),
            "{form}: {}",
            String::from_utf8_lossy(&status.stderr)
        );
        let calls = fs::read_to_string(&trace).unwrap();
        fs::remove_file(&trace).unwrap();
        let mut programs = 0;
        for call in calls.lines().map(|line| {
            line.split_once(' ')
                .map_or(line, |(_, call)| call.trim_start())
        }) {
            let name = call.split('(').next().unwrap_or_default();
            match name {
                "execve" | "execveat" => programs += 1,
                "socket" | "connect" | "bind" | "sendto" | "sendmsg" | "io_uring_setup"
                | "fork" | "vfork" => {
                    panic!("{form}: {call}");
                }
                "unlink" | "unlinkat" | "mkdir" | "mkdirat" | "truncate" | "ftruncate"
                | "chmod" | "fchmodat" | "link" | "linkat" | "symlink" | "symlinkat" => {
                    panic!("{form}: {call}");
                }
                "open" | "openat" | "openat2" | "creat" => {
                    let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"]
                        .iter()
                        .any(|flag| call.contains(flag));
                    // Standard streams are checked at the start, and opened there if missing.
                    let is_own = call.contains("/out.")
                        || call.contains("\"out.")
                        || call.contains("/dev/null");
                    assert!(!writes || is_own, "{form}: {call}");
                }
                "rename" | "renameat" | "renameat2" => {
                    assert!(call.contains("out."), "{form}: {call}");
                }
                _ => {}
            }
        }
        assert_eq!(programs, 1, "{form}");
        let mut after = tree(&project);
        assert!(after.remove("demo/out").is_some(), "{form}");
        fs::remove_file(root.join("out")).unwrap();
        assert_eq!(after, before, "{form}");
    }
}

/// Every file with its content.
fn tree(project: &TestProject) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    let mut open = vec![project.root(), project.home()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            let name = path.strip_prefix(project.root()).unwrap_or(&path);
            files.insert(name.display().to_string(), fs::read(&path).unwrap());
        }
    }
    files
}

/// The tools are told as they were defined then, not as they are now.
#[test]
fn definitions_are_those_of_the_recording() {
    let project = TestProject::new();
    agent(&project, &["demo", "--directory", "demo"])
        .finish()
        .expect_code(0);
    let run = agent(
        &project,
        &[
            "-C", "demo", "replay", "last", "--call", "3", "--format", "json",
        ],
    );
    let card: Value = run.finish().expect_code(0).json();
    let schema = card["answers"][2]["answer"].as_str().unwrap();
    assert!(
        schema.contains("the schema then: command (required)"),
        "{schema}"
    );
    // Without the catalogue's artifact the definition is not made up from today's.
    let sessions = project.root().join("demo/.agent/sessions");
    let session = fs::read_dir(sessions)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::remove_dir_all(session.join("artifacts")).unwrap();
    let run = agent(
        &project,
        &[
            "-C", "demo", "replay", "last", "--call", "3", "--format", "json",
        ],
    );
    let card: Value = run.finish().expect_code(0).json();
    let schema = card["answers"][2]["answer"].as_str().unwrap();
    assert!(!schema.contains("the schema then"), "{schema}");
}

/// Words that are too long for a line of the log are kept beside it, and told all the same.
#[test]
fn long_words_are_told_too() {
    let project = TestProject::new();
    let answer = format!(
        "{}and that is the end of it.",
        "a long story, ".repeat(3_000)
    );
    scripted(&project, &[json!({ "text": answer })]);
    let prompt = format!("Tell me {}of it.", "all ".repeat(9_000));
    let run = agent(&project, &["run", "-"]).stdin(prompt).finish();
    assert!(
        run.expect_code(0)
            .stdout()
            .contains("and that is the end of it.")
    );
    let told = agent(&project, &["replay", "last", "--all"]).finish();
    let told = told.stdout();
    let words: Vec<&str> = told.split_whitespace().collect();
    let told = words.join(" ");
    assert!(told.contains("all all of it."), "{told}");
    assert!(told.contains("and that is the end of it."), "{told}");
}
