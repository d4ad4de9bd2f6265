//! How often a call waits for the disk, and for what, as the kernel sees it.

use std::path::Path;
use std::process::Stdio;

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::hostile::trace::strace;

/// The calls of the worked chain, each with the most syncs it may take until its observation is known:
/// files and directories too, and those of the request before it.
fn chain() -> Vec<(&'static str, Value, usize)> {
    let command = json!({"command": "sh test.sh", "description": "A step"});
    let edit = json!({
        "path": "src/sum.sh",
        "edits": [{"old_string": "$2 + 1", "new_string": "$2"}],
    });
    vec![
        // The request brings the catalogue and the first part of the prompt with it.
        ("read", json!({"path": "test.sh"}), 5),
        ("bash", command.clone(), 7),
        ("grep", json!({"pattern": "sum\\(\\)", "mode": "lines"}), 3),
        ("read", json!({"path": "src/sum.sh"}), 3),
        // Three images and diffs, the file itself, and the directories of all of them.
        ("edit", edit, 9),
        ("bash", command, 7),
    ]
}

/// A session's beginning: its log, its directory and the name of that.
const BEGINNING: usize = 3;
/// The last request and answer, and the anchor of the turn; then the end of the session and its anchor.
const END: usize = 8;

fn project() -> TestProject {
    let project = TestProject::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/projects/sum");
    for file in ["README.md", "test.sh", "src/sum.sh"] {
        project.write(file, std::fs::read(fixture.join(file)).unwrap());
    }
    let mut turns: Vec<String> = chain()
        .into_iter()
        .map(|(name, arguments, _)| {
            json!({"text": "", "tool_calls": [{"name": name, "arguments": arguments}]}).to_string()
        })
        .collect();
    turns.push(json!({"text": "Done.", "tool_calls": []}).to_string());
    project.write_home("chain.jsonl", turns.join("\n"));
    let path = project.home().join("chain.jsonl");
    let config = format!(
        "model = \"job/m\"\n[providers.job]\ndialect = \"scripted\"\ntranscript = {path:?}\n"
    );
    project.write_home("config.toml", config);
    project
}

/// A run of the chain: every write, sync, new name and program of it, in order.
fn watched() -> Vec<String> {
    let project = project();
    let log = project.home().join("trace");
    let output = strace()
        .args(["-f", "--seccomp-bpf", "-qq", "-y", "-s", "100000", "-e"])
        .arg("trace=fsync,fdatasync,syncfs,sync,write,?renameat,?renameat2,execve")
        .args(["-e", "signal=none", "-o"])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_agent"))
        .args(["run", "--mode", "full", "Do it."])
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .output()
        .expect("strace is needed to see what waits for the disk, and cannot be started");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let trace = std::fs::read_to_string(&log).unwrap();
    trace
        .lines()
        .filter_map(|line| Some(line.split_once(' ')?.1.trim_start().to_owned()))
        .collect()
}

fn is_sync(call: &str) -> bool {
    ["fsync(", "fdatasync(", "syncfs(", "sync("]
        .iter()
        .any(|name| call.starts_with(name))
}

fn is_log_sync(call: &str) -> bool {
    is_sync(call) && call.contains("events.jsonl>")
}

fn writes_event(call: &str, class: &str) -> bool {
    call.starts_with("write(") && call.contains(&format!(r#"{{\"type\":\"{class}\""#))
}

#[test]
fn a_call_waits_for_the_disk_as_often_as_it_promises_something() {
    let calls = watched();
    let mut counts = vec![0];
    let mut observed = false;
    for call in &calls {
        if is_sync(call) {
            *counts.last_mut().unwrap() += 1;
        }
        observed |= writes_event(call, "tool.observation");
        if observed && is_log_sync(call) {
            observed = false;
            counts.push(0);
        }
    }
    let mut most: Vec<usize> = chain().iter().map(|(_, _, most)| *most).collect();
    most[0] += BEGINNING;
    most.push(END);
    assert_eq!(counts.len(), most.len(), "{counts:?}");
    let fits = counts.iter().zip(&most).all(|(count, most)| count <= most);
    assert!(fits, "{counts:?} syncs, at most {most:?}");
}

/// The start of a call and the image of what it changes are on disk before anything happens.
#[test]
fn nothing_happens_before_its_start_is_on_disk() {
    let calls = watched();
    let mut waiting: Vec<&str> = Vec::new();
    let mut effects = 0;
    for call in calls.iter().filter(|call| !call.contains(" = -1 ")) {
        if writes_event(call, "tool.started") {
            waiting.push("the start");
        }
        if call.starts_with("rename") && call.contains("/artifacts>") {
            waiting.push("an artifact");
        }
        if is_log_sync(call) {
            waiting.clear();
        }
        // The shell that the sandbox starts; what it starts comes after it.
        let is_command = call.starts_with("execve(") && call.contains("\"sh test.sh\"");
        let is_edit = call.starts_with("rename") && call.contains("/src>, \"sum.sh\"");
        if is_command || is_edit {
            effects += 1;
            assert!(waiting.is_empty(), "{waiting:?} not on disk before {call}");
        }
    }
    assert_eq!(effects, 3, "two commands and an edit");
}
