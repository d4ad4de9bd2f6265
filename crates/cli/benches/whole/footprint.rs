//! Size on disk and in memory: the binary, the idle screen, the log.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use agent_protocol::Payload;
use agent_test_support::bench::{Table, memory};
use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use serde_json::json;

use crate::scenarios::{log, ours, project, session};
use crate::{AGENT, Options};

pub(crate) fn measure(_options: &Options, table: &mut Table) {
    binary(table);
    idle_screen(table);
    log_volume(table);
}

/// As it would be installed: without symbols.
fn binary(table: &mut Table) {
    let place = TestProject::new();
    let stripped = place.home().join("agent");
    let status = Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(AGENT)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return table.note("binary, stripped", "no `strip` here");
    }
    let size = std::fs::metadata(&stripped).expect("the binary").len();
    table.amount("binary, stripped", size as f64 / 1e6, "MB", 20.0);
}

/// The screen with nothing to do, in a pseudo-terminal that `script` opens.
fn idle_screen(table: &mut Table) {
    let server = ModelServer::start(Script::new());
    let place = project(&server);
    let mut terminal = Command::new("script")
        // Not a shell's memory.
        .args(["-q", "-f", "-c", &format!("exec {AGENT}"), "/dev/null"])
        .current_dir(place.root())
        .env_clear()
        .env("AGENT_HOME", place.home())
        .env("HOME", place.home())
        .env("TERM", "xterm-256color")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` of util-linux");
    let held = until_idle(&mut terminal);
    table.amount(
        "memory at the idle prompt",
        held as f64 / 1_048_576.0,
        "MB",
        25.0,
    );
    drop(terminal.stdin.take()); // closes the terminal, which ends the screen
    let _ = terminal.kill();
    let _ = terminal.wait();
}

/// Reads the screen until the prompt is drawn; says what `agent` holds then, in bytes.
fn until_idle(terminal: &mut Child) -> u64 {
    let mut screen = terminal.stdout.take().expect("its output");
    let deadline = Instant::now() + std::time::Duration::from_secs(20);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains("test-model") {
        assert!(Instant::now() < deadline, "the screen stays empty");
        let read = screen.read(&mut buffer).expect("the terminal");
        assert!(
            read > 0,
            "the screen ended: {}",
            String::from_utf8_lossy(&shown)
        );
        shown.extend_from_slice(&buffer[..read]);
        if shown.ends_with(b"\x1b[6n") {
            // asks where the cursor is
            use std::io::Write as _;
            let keys = terminal.stdin.as_mut().expect("its input");
            keys.write_all(b"\x1b[1;1R").expect("the terminal reads");
        }
    }
    let children = format!("/proc/{0}/task/{0}/children", terminal.id());
    let child = std::fs::read_to_string(children).expect("the kernel lists children");
    let child = child
        .split_whitespace()
        .next()
        .expect("agent runs")
        .to_owned();
    memory(&child, "VmRSS:").expect("its memory")
}

/// Log bytes against what the model saw: 100 reads of a small file and of a large one, so that the
/// constant per call and the part that grows can be told apart.
fn log_volume(table: &mut Table) {
    let small = volume(10);
    let large = volume(400);
    let grown = (large.log - small.log) as f64 / (large.visible - small.visible) as f64;
    let constant = (small.log as f64 - grown * small.visible as f64) / READS as f64;
    table.amount("log bytes per byte the model saw", grown, "x", 6.0);
    table.note("log bytes per call beside that", &format!("{constant:.0}"));
}

const READS: usize = 100;

struct Volume {
    log: u64,
    visible: u64,
}

fn volume(lines: usize) -> Volume {
    let script = (0..READS)
        .fold(Script::new(), |script, number| {
            let input = json!({"path": "text.txt", "limit": 1_000 + number});
            script.turn(Turn::call("read", input))
        })
        .turn(Turn::text("Done."));
    let server = ModelServer::start(script);
    let place = project(&server);
    place.write("text.txt", "twenty bytes a line\n".repeat(lines));
    ours(&place);
    let visible = log(&place)
        .iter()
        .map(|event| match &event.payload {
            Payload::ToolObservation(observation) => observation
                .model_text
                .as_ref()
                .map_or(0, |text| text.len() as u64),
            _ => 0,
        })
        .sum();
    let log = std::fs::metadata(session(&place).join("events.jsonl"))
        .expect("a log")
        .len();
    Volume { log, visible }
}
