//! A session of 2,000 tool calls through the binary: what a step costs late compared with early, what
//! the process takes, what the record takes, and how long going on with it takes.
//! `cargo bench -p agent-cli --bench session`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on should stop where it stands, and prints its result"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use agent_log::{SessionDirectory, read_model_input};
use agent_protocol::{Event, Payload};
use agent_test_support::bench::{Table, memory};
use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use serde_json::json;

const CALLS: usize = 2_000;
/// Steps that are compared, at the beginning and at the end.
const SAMPLE: usize = 400;

fn main() {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let script = Script::new().otherwise(move |_, request| {
        let body = String::from_utf8_lossy(&request.body);
        if body.contains("Summarise the conversation so far") {
            return Turn::text("I am reading a long file part by part.");
        }
        match counted.fetch_add(1, Ordering::Relaxed) {
            step if step < CALLS => {
                let read = json!({"path": "long.txt", "offset": step + 1, "limit": 8});
                Turn::call("read", read)
            }
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = project(&server);

    let mut child = start(&project, &["Read all of it."]);
    let mut early = None;
    let mut late = 0;
    let status = loop {
        if let Some(resident) = memory(&child.id().to_string(), "VmRSS:") {
            if early.is_none() && steps.load(Ordering::Relaxed) >= SAMPLE {
                early = Some(resident);
            }
            late = resident;
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(status.success());

    let session = session(&project);
    let events = events(&session);
    let costs = step_costs(&events);
    let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len() as f64;
    let first = mean(&costs[SAMPLE / 4..SAMPLE + SAMPLE / 4]);
    let last = mean(&costs[costs.len() - SAMPLE..]);
    let mut table = Table::new("long session");
    let what = format!("{CALLS} calls, a window of 40,000 tokens");
    table.note(&what, &format!("{} events", events.len()));
    table.share("a late step, to an early one", last, first, "ms", 1.2);
    let megabytes = |bytes: u64| bytes as f64 / 1_048_576.0;
    let early = early.unwrap_or(late);
    table.share(
        "memory late, to early",
        megabytes(late),
        megabytes(early),
        "MB",
        1.2,
    );
    kept_inputs(&mut table, &session, &events);

    let begun = Instant::now();
    let ran = start(&project, &["--session", "last", "And now?"])
        .wait()
        .unwrap();
    assert!(ran.success());
    let taken = format!("{:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    table.note("going on with it, to the end of a turn of one step", &taken);
    table.finish();
}

/// From the end of each answer to the next request: tools, log and context, without the model.
fn step_costs(events: &[Event]) -> Vec<u64> {
    let mut costs = Vec::new();
    let mut answered = None;
    for event in events {
        match &event.payload {
            Payload::ModelCompleted(_) => answered = Some(event.timestamp),
            // Making room asks the model too, which is another matter.
            Payload::ContextCompactionStarted(_) => answered = None,
            Payload::ContextResolved(_) => {
                if let Some(answered) = answered.take() {
                    costs.push(event.timestamp.millis_since(answered));
                }
            }
            _ => {}
        }
    }
    costs
}

/// What was sent, and what keeping it takes; the last ones are read back.
fn kept_inputs(table: &mut Table, session: &Path, events: &[Event]) {
    let directory = SessionDirectory::at(session).unwrap();
    let store = directory.artifacts().unwrap();
    let (mut sent, mut kept) = (0_u64, 0_u64);
    let mut last = Vec::new();
    for event in events {
        if let Payload::ModelRequested(requested) = &event.payload {
            sent += requested.input_bytes;
            let id = requested.input_ref.clone().unwrap();
            kept += std::fs::metadata(store.path_of(&id)).unwrap().len();
            last.push((id, requested.input_bytes));
        }
    }
    for (id, bytes) in last.iter().rev().take(50) {
        assert_eq!(read_model_input(&store, id).unwrap().len() as u64, *bytes);
    }
    let kept = format!("{:.1} MB of {:.1} MB", kept as f64 / 1e6, sent as f64 / 1e6);
    table.note("model inputs kept, of those sent", &kept);
}

fn project(server: &ModelServer) -> TestProject {
    let project = TestProject::new();
    let lines: String = (0..CALLS + 10)
        .map(|line| format!("line {line} {}\n", "text ".repeat(20)))
        .collect();
    project.write("long.txt", lines);
    project.write_home(
        "config.toml",
        format!(
            "model = \"local/m\"\n[limits]\nmax_steps = 100000\nmax_tokens = 1000000000\n\
             [providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\n\
             [providers.local.models.m]\ncontext_window = 40000\nmax_output_tokens = 1000\n",
            server.openai_url()
        ),
    );
    project
}

fn start(project: &TestProject, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_agent"))
        .arg("run")
        .args(arguments)
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn session(project: &TestProject) -> PathBuf {
    let sessions = project.root().join(".agent/sessions");
    let first = std::fs::read_dir(sessions).unwrap().next();
    first.unwrap().unwrap().path()
}

fn events(session: &Path) -> Vec<Event> {
    let log = std::fs::read(session.join("events.jsonl")).unwrap();
    log.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| Event::from_line(line).unwrap())
        .collect()
}
