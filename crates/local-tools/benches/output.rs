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
use std::time::{Duration, Instant};

use agent_test_support::bench::{Table, peak_memory};
use serde_json::json;

#[path = "../tests/it/stage.rs"]
mod stage;

const COMMAND: &str = "yes 'a line of output as a build prints it' | head -c 1073741824";

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plain = |after: &str| {
        let began = Instant::now();
        let command = format!("{COMMAND} > file{after}");
        let status = Command::new("sh")
            .arg("-c")
            .arg(command)
            .current_dir(folder.path())
            .status();
        assert!(status.unwrap().success());
        let took = began.elapsed();
        // What is kept makes the kernel look for fresh pages, in the next command's time.
        std::fs::remove_file(folder.path().join("file")).unwrap();
        took
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
        began.elapsed()
    };
    let (mut best, mut theirs, mut synced) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        theirs = theirs.min(plain(""));
        synced = synced.min(plain("; sync file"));
        best = best.min(ours());
    }
    let mut table = Table::new("output");
    table.ratio("a command that prints 1 GB, to `> file`", best, theirs, 1.5);
    table.ratio("the same, to `> file` on disk", best, synced, 1.5);
    let peak = peak_memory() as f64 / 1_048_576.0;
    table.amount("memory at its peak", peak, "MB", 40.0);
    table.finish();
}
