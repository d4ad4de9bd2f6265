//! From the last byte of a tool call's arguments on the wire to `tool.intent` in the log, through the
//! real binary over real HTTP: `cargo bench -p agent-cli --bench intent`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on should stop where it stands, and prints its result"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use agent_test_support::bench::{Table, median};
use agent_test_support::project::TestProject;

/// Tool calls in one turn, one per model request.
const CALLS: usize = 60;

fn main() {
    let project = TestProject::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    project.write_home(
        "config.toml",
        format!(
            "model = \"here/m\"\n[providers.here]\nbase_url = \"{base}\"\n[limits]\nmax_steps = 500\nmax_repeats = 500\nmax_failures = 500\n"
        ),
    );
    for number in 0..CALLS {
        project.write(format!("file-{number}.txt"), "some text\n");
    }
    let (sender, sent) = channel();
    std::thread::spawn(move || serve(&listener, &sender));
    let mut child = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["run", "--output", "stream-json", "Read the files."])
        .current_dir(project.root())
        .env("AGENT_HOME", project.home())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut times: Vec<Duration> = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with(r#"{"type":"tool.intent""#) {
            let told = Instant::now();
            times.push(told.duration_since(sent.recv().unwrap()));
        }
    }
    child.wait().unwrap();
    assert_eq!(times.len(), CALLS, "every call became an intent");
    let mut table = Table::new("intent");
    table.time(
        "last byte of a call's arguments to `tool.intent`, told: median",
        median(times),
        Duration::from_millis(1),
    );
    table.finish();
}

/// Answers every request with the next call, and says when its last byte was written.
fn serve(listener: &TcpListener, sent: &Sender<Instant>) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    for number in 0..=CALLS {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 {
                return;
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let delta = if number < CALLS {
            format!(
                r#"{{"tool_calls":[{{"index":0,"id":"call_{number}","function":{{"name":"read","arguments":"{{\"path\":\"file-{number}.txt\"}}"}}}}]}}"#
            )
        } else {
            r#"{"content":"Done."}"#.to_owned()
        };
        let body = format!(
            "data: {{\"id\":\"r{number}\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":\"stop\"}}]}}\n\ndata: [DONE]\n\n"
        );
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let written = Instant::now();
        stream.write_all(body.as_bytes()).unwrap();
        if number < CALLS {
            sent.send(written).unwrap();
        }
    }
    // The connection stays open until the client closes it.
    let _ = reader.read(&mut [0]);
}
