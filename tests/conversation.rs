//! `agent call --stdin --json` as a script drives it: one call, its observation, the next call.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::{agent, assert_schema};

/// Flags with which everything is allowed that can be.
pub(crate) const ALLOWED: &[&str] = &["--mode", "full", "--on-ask", "allow"];

/// `agent call --stdin --json` while it runs: a call in, its observation out.
pub(crate) struct Conversation {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    pub(crate) fn start(project: &TestProject, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agent"))
            .args(["call", "--stdin", "--json"])
            .args(flags)
            .current_dir(project.root())
            .env_clear()
            .env("AGENT_HOME", project.home())
            .env("HOME", project.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub(crate) fn send(&mut self, call: &Value) {
        self.send_text(&call.to_string());
    }

    pub(crate) fn send_text(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).unwrap();
        self.input.write_all(b"\n").unwrap();
        self.input.flush().unwrap();
    }

    /// The next observation; returns as soon as it is there.
    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let observation: Value = serde_json::from_str(&line).unwrap();
        assert_schema("call", &observation);
        observation
    }

    pub(crate) fn call(&mut self, tool: &str, input: Value) -> Value {
        self.send(&json!({"tool": tool, "input": input}));
        self.receive()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends the input and waits for the end.
    pub(crate) fn end(self) -> Option<i32> {
        let Self {
            mut child, input, ..
        } = self;
        drop(input);
        child.wait().unwrap().code()
    }
}

/// `agent audit` of the last session has no findings.
#[track_caller]
pub(crate) fn assert_audit(project: &TestProject) {
    let report = agent(project, &["audit", "--json", "last"]).finish();
    let errors = report.expect_code(0).json()["findings"].clone();
    let errors: Vec<&Value> = errors
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["severity"] == "error")
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

pub(crate) fn replace(conversation: &mut Conversation, path: &str, old: &str, new: &str) -> Value {
    let input = json!({"path": path, "old_string": old, "new_string": new});
    conversation.call("edit", input)
}

pub(crate) fn read(conversation: &mut Conversation, path: &str) -> Value {
    conversation.call("read", json!({ "path": path }))
}

pub(crate) fn bash(conversation: &mut Conversation, command: &str) -> Value {
    let input = json!({"command": command, "description": "a test"});
    conversation.call("bash", input)
}

/// Waits for a file that a command makes.
pub(crate) fn wait_for(path: &Path) {
    while !path.exists() {
        std::thread::yield_now();
    }
}
