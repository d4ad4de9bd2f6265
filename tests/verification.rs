//! Verification: the work checked as the facts say, and final texts that say more than they do.

use agent_protocol::payload::conversation::{EvidenceChanged, RuntimeWarning};
use agent_protocol::{Event, Payload};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::run::{assert_audit_is_clean, log};

pub(crate) fn bash(command: &str) -> Value {
    json!({"name": "bash", "arguments": {"command": command, "description": "Run it"}})
}

pub(crate) fn write(path: &str) -> Value {
    json!({"name": "write", "arguments": {"path": path, "content": "text\n"}})
}

/// A project whose scripted model makes one round of calls after the other and ends with `said`.
pub(crate) fn project(rounds: &[Vec<Value>], said: &str) -> TestProject {
    let project = TestProject::new();
    project.write("test.sh", "exit 0\n");
    project.write("broken-test.sh", "exit 1\n");
    project.write(
        "slow-test.sh",
        "while [ ! -e go ]; do sleep 0.02; done\nexit 0\n",
    );
    project.write(".gitignore", "build/\n*.log\n");
    play(&project, rounds, said);
    project
}

/// Lets the model of `project` go on with these rounds.
pub(crate) fn play(project: &TestProject, rounds: &[Vec<Value>], said: &str) {
    let path = project.home().join("job.jsonl");
    let mut lines = std::fs::read_to_string(&path).unwrap_or_default();
    for calls in rounds {
        lines.push_str(&json!({"tool_calls": calls}).to_string());
        lines.push('\n');
    }
    lines.push_str(&json!({"text": said}).to_string());
    lines.push('\n');
    project.write_home("job.jsonl", lines);
    let config = format!(
        "model = \"job/m\"\n[providers.job]\ndialect = \"scripted\"\ntranscript = {path:?}\n"
    );
    project.write_home("config.toml", config);
}

pub(crate) fn go(project: &TestProject, arguments: &[&str]) -> Value {
    let all = [&["run", "--mode", "full", "--output", "json"], arguments].concat();
    let ran = agent(project, &all).finish();
    let report = ran.json();
    crate::assert_schema("run", &report);
    report
}

#[track_caller]
pub(crate) fn check(rounds: &[Vec<Value>], expected: &str) -> TestProject {
    let project = project(rounds, "Done.");
    let report = go(&project, &["Do it."]);
    assert_eq!(report["verification"]["status"], expected, "{report}");
    assert_audit_is_clean(&project);
    project
}

pub(crate) fn evidence(events: &[Event]) -> Vec<(EvidenceChanged, Vec<String>)> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::EvidenceChanged(evidence) => {
            let edits = serde_json::to_value(&event.refs).unwrap();
            let edits = match &edits["edits"] {
                Value::String(one) => vec![one.clone()],
                Value::Array(many) => many
                    .iter()
                    .map(|id| id.as_str().unwrap().to_owned())
                    .collect(),
                _ => Vec::new(),
            };
            Some((evidence.clone(), edits))
        }
        _ => None,
    });
    found.collect()
}

fn conflicts(events: &[Event]) -> Vec<RuntimeWarning> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::RuntimeWarning(warning) if warning.code.starts_with("final_answer_") => {
            Some(warning.clone())
        }
        _ => None,
    });
    found.collect()
}

#[test]
fn an_edit_in_the_round_of_a_test_counts_by_its_place_in_it() {
    let project = check(
        &[vec![write("a")], vec![bash("sh test.sh"), write("b")]],
        "stale",
    );
    let (evidence, edits) = evidence(&log(&project)).remove(0);
    assert_eq!(evidence.covers_edits, Some(false));
    assert_eq!(edits.len(), 1, "it saw the first edit and not the second");

    let project = check(&[vec![write("a"), bash("sh test.sh")]], "passed");
    let events = log(&project);
    let (evidence, edits) = evidence_of(&events);
    assert_eq!(evidence.covers_edits, Some(true));
    let wrote = events.iter().find_map(|event| match &event.payload {
        Payload::ToolIntent(intent) if intent.tool_name == "write" => {
            event.scope.tool_call_id.as_ref().map(ToString::to_string)
        }
        _ => None,
    });
    assert_eq!(edits, [wrote.unwrap()]);
}

pub(crate) fn evidence_of(events: &[Event]) -> (EvidenceChanged, Vec<String>) {
    let mut found = evidence(events);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn ignored_files_do_not_make_it_stale() {
    let tested = [vec![write("a")], vec![bash("sh test.sh")]];
    let then = |calls: Vec<Value>| [&tested[..], &[calls]].concat();
    check(&then(vec![write("build/out.txt")]), "passed");
    check(&then(vec![write("notes.log")]), "passed");
    check(
        &then(vec![bash("mkdir -p build; echo x > build/o")]),
        "passed",
    );
    check(&then(vec![write("src/b.txt")]), "stale");
    check(&then(vec![bash("echo x > c.txt")]), "stale");
}

#[test]
fn a_test_in_the_background_counts_when_it_has_ended() {
    let start = json!({"name": "bash", "arguments":
        {"command": "sh slow-test.sh", "description": "Test", "background": true}});
    // The script does not know the id of the process: it waits for the file the test waits for too.
    let wait = bash("touch go; while [ ! -e seen ]; do sleep 0.02; [ -e go ] && touch seen; done");
    let project = project(
        &[
            vec![write("a")],
            vec![start],
            vec![wait],
            vec![bash("sleep 0.3")],
        ],
        "The tests pass.",
    );
    go(&project, &["Do it."]);
    let events = log(&project);
    let (evidence, _) = evidence_of(&events);
    assert_eq!(evidence.command.as_deref(), Some("sh slow-test.sh"));
    assert_eq!(evidence.exit_code, Some(0));
    assert_audit_is_clean(&project);
}

#[test]
fn what_an_earlier_turn_showed_is_shown() {
    let project = project(&[vec![bash("sh test.sh")]], "All tests pass.");
    go(&project, &["Test it."]);
    play(&project, &[], "Yes, all tests pass.");
    go(&project, &["--session", "last", "Did they?"]);
    assert_eq!(conflicts(&log(&project)), []);

    // Until something changes.
    play(&project, &[vec![write("b")]], "All tests pass.");
    go(&project, &["--session", "last", "Change it."]);
    let found = conflicts(&log(&project));
    assert_eq!(found.len(), 1);
    let said = "The model says \"All tests pass\", but files changed after `sh test.sh` ran.";
    assert_eq!(found[0].message, said);
    assert_eq!(found[0].code, "final_answer_unproven");
}

#[test]
fn a_conflict_names_the_events_that_speak() {
    let project = project(
        &[vec![write("a")], vec![bash("sh broken-test.sh")]],
        "Fixed. All tests pass.",
    );
    let report = go(&project, &["Fix it."]);
    assert_eq!(report["verification"]["status"], "failed");
    let events = log(&project);
    let (evidence, _) = evidence_of(&events);
    let warning = conflicts(&events).remove(0);
    assert_eq!(warning.code, "final_answer_conflict");
    let said = "The model says \"All tests pass\", but `sh broken-test.sh` failed.";
    assert_eq!(warning.message, said);
    assert_eq!(warning.evidence_refs, [evidence.evidence_id.to_string()]);
}

#[test]
fn configured_commands_verify() {
    let project = project(&[vec![write("a")], vec![bash("./ci --all")]], "Done.");
    project.write("ci", "#!/bin/sh\nexit 0\n");
    let config = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    project.write_home(
        "config.toml",
        format!("{config}[verification]\ncommands = [\"sh ci *\", \"./ci *\"]\n"),
    );
    let status = std::process::Command::new("chmod")
        .args(["+x", project.root().join("ci").to_str().unwrap()])
        .status();
    assert!(status.unwrap().success());
    let report = go(&project, &["Do it."]);
    assert_eq!(report["verification"]["status"], "passed", "{report}");
}

/// Exit 4 is for work that is done and not shown to be right.
#[test]
fn required_verification_decides_the_exit_code() {
    let failing = bash("sh broken-test.sh");
    for (calls, code) in [
        (vec![write("a"), bash("sh test.sh")], 0),
        (vec![bash("ls")], 0),
        (vec![write("a")], 4),
        (vec![bash("sh test.sh"), write("a")], 4),
        (vec![write("a"), failing], 4),
    ] {
        let project = project(std::slice::from_ref(&calls), "Done.");
        let arguments = ["run", "--mode", "full", "--require-verified", "Do it."];
        let ran = agent(&project, &arguments).finish();
        assert_eq!(ran.code(), code, "{calls:?}: {}", ran.stderr());
        let named = ran.stderr().contains("not verified: ");
        assert_eq!(named, code == 4, "{}", ran.stderr());
    }
}

#[test]
fn a_run_that_only_reads_its_tests_shows_nothing() {
    for command in ["sh -n test.sh", "bash -o noexec test.sh"] {
        check(&[vec![write("a"), bash(command)]], "unverified");
    }
    check(&[vec![write("a"), bash("sh -e test.sh")]], "passed");
}

#[test]
fn what_was_taken_back_is_not_verified() {
    let said = "All tests pass.";
    let project = project(&[vec![write("a")], vec![bash("sh test.sh")]], said);
    let report = go(&project, &["Do it."]);
    assert_eq!(report["verification"]["status"], "passed", "{report}");
    assert_eq!(report["claims_not_shown"], json!([]));
    let status = |command: &[&str]| agent(&project, command).finish().json();
    assert_eq!(
        status(&["report", "--json"])["summary"]["verification"]["status"],
        "passed"
    );

    agent(&project, &["undo", "--yes"]).finish().expect_code(0);
    let stale = |when: &str| {
        let report = status(&["report", "--json"]);
        let told = &report["summary"]["verification"];
        assert_eq!(told["status"], "stale", "{when}: {told}");
        assert_eq!(told["command"], "sh test.sh", "{when}");
        let shown = status(&["sessions", "show", "last", "--json"]);
        assert_eq!(shown["verification"]["status"], "stale", "{when}: {shown}");
        let replayed = agent(&project, &["replay", "last"]).finish().stdout();
        assert!(replayed.contains("stale: sh test.sh"), "{when}: {replayed}");
    };
    stale("after the undo");

    // A turn that does nothing does not make it better, and may not say so.
    play(&project, &[], said);
    let report = go(
        &project,
        &["--session", "last", "--require-verified", "Hello."],
    );
    assert_eq!(report["verification"]["status"], "stale", "{report}");
    assert_eq!(report["exit_code"], 4, "{report}");
    assert_eq!(report["claims_not_shown"], json!(["All tests pass"]));
    stale("after a turn without work");
    assert_audit_is_clean(&project);

    // Without a terminal, too, the mark is where the answer is read; not for those who want quiet.
    for (quiet, is_marked) in [(&["--"][..], true), (&["-q", "--"], false)] {
        play(&project, &[], said);
        let run = ["run", "--mode", "full", "--session", "last"];
        let ran = agent(&project, &[&run, quiet, &["Again."]].concat()).finish();
        let told = ran.stderr();
        let mark = "! The model says \"All tests pass\", but files changed after `sh test.sh` ran.";
        assert_eq!(told.contains(mark), is_marked, "{told}");
    }

    play(&project, &[vec![bash("sh test.sh")]], said);
    let report = go(
        &project,
        &["--session", "last", "--require-verified", "Test."],
    );
    assert_eq!(report["exit_code"], 0, "{report}");
    assert_eq!(report["claims_not_shown"], json!([]));
    let report = status(&["report", "--json"]);
    assert_eq!(report["summary"]["verification"]["status"], "passed");
}
