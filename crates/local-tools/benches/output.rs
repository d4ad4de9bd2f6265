//! A command that prints 1 GB: time against `sh -c 'cmd > file'` in the same run, and peak memory.
//!
//! `cargo bench -p agent-local-tools --bench output`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    dead_code
)] // a bench reports and stops; the stage has more than it needs

use std::process::Command;
use std::time::Instant;

use serde_json::json;

#[allow(unreachable_pub)] // the engine's own file: the real journal, not a copy of it
#[path = "../../engine/src/journal.rs"]
mod journal;
#[path = "../tests/it/stage.rs"]
mod stage;

const COMMAND: &str = "yes 'a line of output as a build prints it' | head -c 1073741824";

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plain = || {
        let began = Instant::now();
        let command = format!("{COMMAND} > file");
        let status = Command::new("sh")
            .arg("-c")
            .arg(command)
            .current_dir(folder.path())
            .status();
        assert!(status.unwrap().success());
        began.elapsed().as_secs_f64()
    };
    let stage = stage::Stage::with(stage::Setup {
        max_output_bytes: 4 << 30,
        ..stage::Setup::default()
    });
    let ours = || {
        let began = Instant::now();
        let input = json!({"command": COMMAND, "description": "print a lot"});
        let observation = stage.call("bash", &input);
        assert!(observation.ok && observation.truncated);
        began.elapsed().as_secs_f64()
    };
    let (mut best, mut theirs) = (f64::MAX, f64::MAX);
    for _ in 0..2 {
        theirs = theirs.min(plain());
        best = best.min(ours());
    }
    println!(
        "1 GB of output: {best:.2} s, to a file {theirs:.2} s, ratio {:.2}",
        best / theirs
    );
    println!("peak memory of this process: {} MB", peak_memory() >> 20);
}

fn peak_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}
