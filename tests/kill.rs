//! `kill -9` at any moment of a run: the log is whole but for its last line, no file is
//! half-written, nothing runs twice, and going on ends the job.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agent_evidence::audit::{Severity, audit};
use agent_log::{AnchorStore, SessionStore};
use agent_test_support::project::TestProject;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::agent;

/// Number of times a run is killed.
const ROUNDS: usize = 300;
/// Lines of the file that every edit replaces whole.
const LINES: usize = 300;

fn turn(text: &str, calls: Value) -> String {
    json!({"text": text, "tool_calls": calls}).to_string()
}

fn counting(id: &str) -> Value {
    let command = format!("echo {id} >> counter; sleep 0.01");
    json!([{"name": "bash", "arguments": {"command": command, "description": "Count"}}])
}

/// The job: commands that count themselves, and edits of one large file. The scripted model plays the
/// turn the conversation has come to, so that a run that goes on plays the rest.
fn transcript() -> String {
    let mut turns = vec![turn(
        "",
        json!([{"name": "read", "arguments": {"path": "big.txt"}}]),
    )];
    for step in 0..2 {
        turns.push(turn("Working on it.", counting(&format!("step-{step}"))));
        let edit = json!({"path": "big.txt", "edits": [{
            "old_string": format!("version {step}\n"),
            "new_string": format!("version {}\n", step + 1),
            "replace_all": true,
        }]});
        turns.push(turn("", json!([{"name": "edit", "arguments": edit}])));
    }
    turns.push(turn("Done.", json!([])));
    turns.push(turn("Done before.", json!([])));
    turns.join("\n")
}

fn project() -> TestProject {
    let project = TestProject::new();
    project.write("big.txt", "version 0\n".repeat(LINES));
    project.write_home("job.jsonl", transcript());
    let path = project.home().join("job.jsonl");
    let config = format!(
        "model = \"job/m\"\n[providers.job]\ndialect = \"scripted\"\ntranscript = {path:?}\n"
    );
    project.write_home("config.toml", config);
    project
}

/// A run in mode `full` that nobody looks at.
pub(crate) fn start(project: &TestProject) -> Child {
    Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["run", "--mode", "full", "Do it."])
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

/// The directory of the run's session, as soon as there is one.
fn session_directory(project: &TestProject) -> Option<PathBuf> {
    let sessions = project.root().join(".agent/sessions");
    let mut entries = std::fs::read_dir(sessions).ok()?;
    Some(entries.next()?.ok()?.path())
}

/// Waits until the run has begun to make its session; says whether it is still running.
fn wait_for_session(project: &TestProject, child: &mut Child) -> bool {
    loop {
        if session_directory(project).is_some() {
            return true;
        }
        if child.try_wait().expect("the child is ours").is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Duration of a run that is not killed.
fn undisturbed() -> Duration {
    let project = project();
    let mut child = start(&project);
    assert!(wait_for_session(&project, &mut child));
    let begun = Instant::now();
    assert!(child.wait().unwrap().success());
    assert_whole(&project, "big.txt", Some(2));
    begun.elapsed()
}

/// Every edit replaces every line: a file with two versions in it is half-written.
fn assert_whole(project: &TestProject, file: &str, wanted: Option<usize>) {
    let text = project.read(file);
    let versions: HashSet<&str> = text.lines().collect();
    assert_eq!(versions.len(), 1, "{versions:?}");
    assert_eq!(text.lines().count(), LINES);
    if let Some(wanted) = wanted {
        assert_eq!(text.lines().next(), Some(&*format!("version {wanted}")));
    }
}

/// Findings of an audit after a kill: none, or the one line that was being written.
fn assert_only_a_torn_tail(project: &TestProject) {
    let session = SessionStore::of_project(&project.root())
        .resolve("last")
        .unwrap();
    let anchors = AnchorStore::new(&project.home().join("state"));
    let report = audit(&session, Some(&anchors)).unwrap();
    let errors: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .collect();
    let torn = errors.iter().all(|finding| finding.code == "torn_tail");
    assert!(torn && errors.len() <= 1, "{errors:#?}");
}

fn round(after: Duration) {
    let project = project();
    let mut child = start(&project);
    if wait_for_session(&project, &mut child) {
        std::thread::sleep(after);
    }
    child.kill().expect("the child is ours");
    child.wait().expect("the child ends");
    assert_whole(&project, "big.txt", None);
    let directory = session_directory(&project).expect("a session was being made");
    // A log that is there has its first event; before that, there is no session to go on with.
    let mut arguments = vec!["run", "--mode", "full", "Go on."];
    if directory.join("events.jsonl").exists() {
        assert_only_a_torn_tail(&project);
        arguments.extend(["--session", "last"]);
    }
    let ran = agent(&project, &arguments).finish().expect_code(0);
    assert!(ran.stdout().starts_with("Done"), "{}", ran.stdout());
    assert_whole(&project, "big.txt", None);
    let counter = std::fs::read_to_string(project.root().join("counter")).unwrap_or_default();
    let ran: Vec<&str> = counter.lines().collect();
    let once: HashSet<&str> = ran.iter().copied().collect();
    assert_eq!(once.len(), ran.len(), "a command ran twice: {ran:?}");
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

#[test]
fn a_run_that_is_killed_anywhere_can_go_on() {
    let whole = undisturbed();
    let moments: Vec<f64> = {
        let mut runner = TestRunner::default();
        // The moment a session is made is short, and is struck on purpose.
        let moment = proptest::prop_oneof![1 => proptest::strategy::Just(0.0), 4 => 0.0..1.05_f64];
        let any = proptest::collection::vec(moment, ROUNDS);
        any.new_tree(&mut runner).unwrap().current()
    };
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from) + 1;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(part) = moments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    round(whole.mul_f64(*part));
                }
            });
        }
    });
}

/// Files of the patch that is killed.
const PATCHED: usize = 300;

/// A project whose model changes many files by one patch.
fn patching() -> TestProject {
    let project = TestProject::new();
    let mut patch = "*** Begin Patch\n".to_owned();
    for number in 0..PATCHED {
        project.write(format!("part/{number}.txt"), format!("before {number}\n"));
        patch.push_str(&format!(
            "*** Update File: part/{number}.txt\n@@\n-before {number}\n+after {number}\n"
        ));
    }
    patch.push_str("*** Add File: part/new.txt\n+new\n*** Delete File: old.txt\n*** End Patch");
    project.write("old.txt", "old\n");
    let call = json!([{"name": "apply_patch", "arguments": {"input": patch}}]);
    let turns = [turn("", call), turn("Done.", json!([]))];
    project.write_home("job.jsonl", turns.join("\n"));
    let path = project.home().join("job.jsonl");
    let config = format!(
        "model = \"job/m\"\n[providers.job]\ndialect = \"scripted\"\ntranscript = {path:?}\n"
    );
    project.write_home("config.toml", config);
    project
}

fn patched(project: &TestProject) -> usize {
    let is_patched =
        |number: &usize| project.read(format!("part/{number}.txt")) == format!("after {number}\n");
    (0..PATCHED).filter(is_patched).count()
}

/// Of every file it is known what it was, and each is taken back, whether the patch had come to it or not.
#[test]
fn a_patch_that_is_killed_between_its_files_is_undone_file_by_file() {
    // The moment between two files is met by trying.
    let project = (0..50).find_map(|_| {
        let project = patching();
        let mut child = start(&project);
        while project.read("part/0.txt") == "before 0\n"
            && child.try_wait().expect("the child is ours").is_none()
        {
            std::thread::yield_now();
        }
        child.kill().expect("the child is ours");
        child.wait().expect("the child ends");
        (1..PATCHED).contains(&patched(&project)).then_some(project)
    });
    let project = project.expect("a run that was killed between two files");
    assert_only_a_torn_tail(&project);
    let planned = agent(&project, &["undo", "--dry-run"]).finish();
    let planned = planned.expect_code(0).stdout();
    assert!(planned.contains("part/0.txt"), "{planned}");

    // The next turn is told that the call was lost, and carries nothing of it out.
    let before = patched(&project);
    let resumed = ["run", "--mode", "full", "Go on.", "--session", "last"];
    agent(&project, &resumed).finish().expect_code(0);
    assert_eq!(patched(&project), before);
    agent(&project, &["undo", "--yes"]).finish().expect_code(0);
    assert_eq!(patched(&project), 0);
    assert!(!project.root().join("part/new.txt").exists());
    assert_eq!(project.read("old.txt"), "old\n");
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}
