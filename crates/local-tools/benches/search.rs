//! Searches against the `rg` binary on the same tree, in the same run: 100,000 files, 1 GB.
//!
//! `cargo bench -p agent-local-tools --bench search`; `rg` has to be installed.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // a bench reports and stops

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_test_support::bench::Table;

const DIRECTORIES: usize = 2_000;
const FILES: usize = 50;
const ROUNDS: usize = 5;

/// A name, what `rg` is told, and our own way.
type Query<'a> = (&'a str, &'a [&'a str], Box<dyn Fn() -> u64>);

fn main() {
    let tree = tree();
    let queries: [Query<'_>; 4] = [
        (
            "grep files",
            &["--files-with-matches", "needle_[0-9]+"],
            Box::new(search(&tree, "needle_[0-9]+", false)),
        ),
        (
            "grep lines",
            &["--line-number", "needle_[0-9]+"],
            Box::new(search(&tree, "needle_[0-9]+", true)),
        ),
        (
            "grep common",
            &["--files-with-matches", "return total"],
            Box::new(search(&tree, "return total", false)),
        ),
        ("glob", &["--files", "-g", "*.rs"], {
            let tree = tree.clone();
            Box::new(move || agent_local_tools::measure::glob(&tree, "*.rs").unwrap())
        }),
    ];
    let mut table = Table::new("search");
    for (name, arguments, ours) in queries {
        let rg = || {
            let output = Command::new("rg")
                .args([
                    "--no-config",
                    "--hidden",
                    "--no-require-git",
                    "--glob",
                    "!.git",
                ])
                .args(arguments)
                .arg(&tree)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64
        };
        assert_eq!(ours(), rg(), "{name}: not the same result");
        // Alternating, so that both see the same state of the machine; the best of each counts.
        let (mut best, mut theirs) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            best = best.min(timed(&ours));
            theirs = theirs.min(timed(&rg));
        }
        let what = format!("{name} over 100,000 files and 1 GB, to `rg`");
        table.ratio(&what, best, theirs, 1.15);
    }
    table.finish();
}

fn search(tree: &Path, pattern: &'static str, lines: bool) -> impl Fn() -> u64 + use<> {
    let tree = tree.to_owned();
    move || agent_local_tools::measure::grep(&tree, pattern, lines).unwrap()
}

fn timed(work: &dyn Fn() -> u64) -> Duration {
    let began = Instant::now();
    std::hint::black_box(work());
    began.elapsed()
}

/// The tree, made once and kept beside the build.
fn tree() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("search-tree");
    if root.join("complete").exists() {
        return root;
    }
    let mut state = 7_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    for directory in 0..DIRECTORIES {
        let folder = root.join(format!("{:02}/{:03}", directory % 40, directory));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES {
            let mut text = String::with_capacity(11_000);
            while text.len() < 10_240 {
                text.push_str(&format!(
                    "    let value_{} = compute({}, \"{:x}\");\n",
                    random() % 1000,
                    random(),
                    random()
                ));
            }
            if random() % 100 == 0 {
                text.push_str(&format!("// needle_{}\n", random()));
            }
            if random() % 2 == 0 {
                text.push_str("    return total;\n");
            }
            let extension = if file % 2 == 0 { "rs" } else { "txt" };
            fs::write(folder.join(format!("file_{file}.{extension}")), text).unwrap();
        }
        fs::write(folder.join(".gitignore"), "*.log\nbuild/\n").unwrap();
        fs::write(folder.join("x.log"), "needle_1\n").unwrap();
    }
    fs::write(root.join("complete"), "").unwrap();
    root
}
