//! One edit of a 100 MB file: time, passes over the bytes, and memory as multiples of the file.
//!
//! `cargo bench -p agent-local-tools --bench edit`

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a bench reports and stops

use std::fs::{self, File};
use std::time::Instant;

use agent_local_tools::diff::unified;
use agent_local_tools::edit::{Edit, plan};
use agent_local_tools::file::load;
use agent_local_tools::replace::{Expected, replace};
use agent_local_tools::{Access, Roots};
use agent_test_support::bench::{Table, peak_memory};

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("large.txt");
    let line = "let value = compute(1, 2, 3); // a line of an ordinary length\r\n";
    let size = 100 << 20;
    let mut text = line.repeat(size / line.len());
    text.push_str("the only place\r\n");
    fs::write(&path, &text).unwrap();
    let bytes = text.len() as u64;
    drop(text);
    let roots = Roots::open(folder.path(), None).unwrap();
    let resolved = roots.resolve("large.txt", Access::Write).unwrap();
    let (read, written) = transferred();
    let began = Instant::now();
    let snapshot = load(&File::open(&path).unwrap()).unwrap();
    let edit = Edit {
        old: "the only\u{20}place\n".into(),
        new: "another place\n".into(),
        replace_all: false,
    };
    let plan = plan(&snapshot.content, snapshot.encoding, &[edit]).unwrap();
    let after = plan.apply(&snapshot.content);
    let diff = unified(
        "large.txt",
        &snapshot.content,
        &after,
        snapshot.encoding,
        &plan.changes(),
    );
    let expected = Expected::Content {
        bytes: &snapshot.content,
        sha256: &snapshot.sha256,
    };
    replace(&roots, &resolved, expected, &after).unwrap();
    let elapsed = began.elapsed();
    let (read_now, written_now) = transferred();
    let passes = (read_now - read + written_now - written) as f64 / bytes as f64;
    // The counters are read from a file too, which is a few bytes more.
    let passes = (passes * 1000.0).round() / 1000.0;
    let mut table = Table::new("edit");
    let time = format!("{:.0} ms", elapsed.as_secs_f64() * 1e3);
    table.note(&format!("edit of {} MB", bytes >> 20), &time);
    table.amount("passes over the file, read and written", passes, "", 3.0);
    let file = bytes as f64 / 1e6;
    table.share(
        "memory at its peak, to the file",
        peak_memory() as f64 / 1e6,
        file,
        "MB",
        3.0,
    );
    assert_eq!((diff.added, diff.removed), (1, 1));
    table.finish();
}

/// Bytes this process has read and written through system calls.
fn transferred() -> (u64, u64) {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    (field("rchar:"), field("wchar:"))
}
