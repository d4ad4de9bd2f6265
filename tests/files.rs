//! Projects that change: calls through the real pipeline, and the whole tree at one moment.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use agent_log::{SessionDirectory, SessionStore};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;

/// Entry at a path: kind and mode, and the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: &'static str,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Snapshot = BTreeMap<String, Node>;

/// Every file, link and directory of the project, except for our own and git's.
pub(crate) fn snapshot(project: &TestProject) -> Snapshot {
    let mut found = Snapshot::new();
    visit(&project.root(), "", &mut found);
    found
}

fn visit(directory: &Path, prefix: &str, found: &mut Snapshot) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if prefix.is_empty() && (name == ".agent" || name == ".git") {
            continue;
        }
        let path = format!("{prefix}{name}");
        let metadata = entry.path().symlink_metadata().unwrap();
        let mode = metadata.mode() & 0o7777;
        let node = if metadata.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            let bytes = target.to_str().unwrap().into();
            Node {
                kind: "symlink",
                mode: 0,
                bytes,
            }
        } else if metadata.is_dir() {
            visit(&entry.path(), &format!("{path}/"), found);
            Node {
                kind: "directory",
                mode,
                bytes: Vec::new(),
            }
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            Node {
                kind: "file",
                mode,
                bytes,
            }
        };
        found.insert(path, node);
    }
}

/// The difference of two trees in words, so that a failure can be read.
pub(crate) fn difference(left: &Snapshot, right: &Snapshot) -> Vec<String> {
    let shown = |node: Option<&Node>| {
        node.map_or("missing".to_owned(), |node| {
            let text = String::from_utf8_lossy(&node.bytes);
            format!("{} {:o} {text:?}", node.kind, node.mode)
        })
    };
    let mut paths: Vec<&String> = left.keys().chain(right.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
        .into_iter()
        .filter(|path| left.get(*path) != right.get(*path))
        .map(|path| {
            let (left, right) = (shown(left.get(path)), shown(right.get(path)));
            format!("{path}: {left} | {right}")
        })
        .collect()
}

#[track_caller]
pub(crate) fn assert_same(left: &Snapshot, right: &Snapshot) {
    let difference = difference(left, right);
    assert!(difference.is_empty(), "{difference:#?}");
}

/// A small project with a bit of everything.
pub(crate) fn project() -> TestProject {
    let project = TestProject::new();
    project
        .write("a.txt", "one\ntwo\nthree\n")
        .write("b.txt", "beta\n")
        .write("src/main.rs", "fn main() {}\n")
        .write("src/deep/data.bin", [0, 159, 146, 150, 10])
        .write("run.sh", "#!/bin/sh\n");
    let root = project.root();
    symlink("a.txt", root.join("link")).unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o640)).unwrap();
    project
}

pub(crate) fn bash(command: &str) -> Value {
    json!({"tool": "bash", "input": {"command": command, "description": "a test"}})
}

pub(crate) fn write(path: &str, content: &str) -> Value {
    json!({"tool": "write", "input": {"path": path, "content": content}})
}

pub(crate) fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"tool": "edit", "input": {"path": path, "old_string": old, "new_string": new}})
}

pub(crate) fn read(path: &str) -> Value {
    json!({"tool": "read", "input": {"path": path}})
}

/// Makes the project's model one that plays these turns, one for each request.
pub(crate) fn scripted(project: &TestProject, turns: &[Value]) {
    let lines: Vec<String> = turns.iter().map(Value::to_string).collect();
    project.write_home("job.jsonl", lines.join("\n"));
    let path = project.home().join("job.jsonl");
    project.write_home(
        "config.toml",
        format!(
            "model = \"job/m\"\n[providers.job]\ndialect = \"scripted\"\ntranscript = {path:?}\n"
        ),
    );
}

/// Calls in one session; the session is the last one of the project afterwards.
pub(crate) fn calls(project: &TestProject, intents: &[Value]) {
    let lines: Vec<String> = intents.iter().map(Value::to_string).collect();
    let ran = agent(project, &["call", "--stdin", "--mode", "full"])
        .stdin(lines.join("\n") + "\n")
        .finish();
    assert!(
        matches!(ran.code(), 0 | 1),
        "{}{}",
        ran.stdout(),
        ran.stderr()
    );
}

/// A second turn of the session that is there.
pub(crate) fn more_calls(project: &TestProject, intents: &[Value]) {
    let lines: Vec<String> = intents.iter().map(Value::to_string).collect();
    let arguments = ["call", "--stdin", "--mode", "full", "--session", "last"];
    let ran = agent(project, &arguments)
        .stdin(lines.join("\n") + "\n")
        .finish();
    assert!(
        matches!(ran.code(), 0 | 1),
        "{}{}",
        ran.stdout(),
        ran.stderr()
    );
}

pub(crate) fn session(project: &TestProject) -> SessionDirectory {
    let store = SessionStore::of_project(&project.root());
    store.resolve("last").unwrap()
}

/// The number of the last event.
pub(crate) fn last_event(project: &TestProject) -> u64 {
    let log = fs::read(session(project).log_path()).unwrap();
    log.iter().filter(|byte| **byte == b'\n').count() as u64 - 1
}

/// A session that takes one call after the other, so that the tree can be looked at in between.
pub(crate) struct Conversation {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    pub(crate) fn start(project: &TestProject) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agent"))
            .args(["call", "--stdin", "--json", "--mode", "full"])
            .current_dir(project.root())
            .env_clear()
            .env("AGENT_HOME", project.home())
            .env("HOME", project.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Runs one call to its end.
    pub(crate) fn call(&mut self, intent: &Value) -> Value {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{intent}").unwrap();
        input.flush().unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn end(mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}
