//! Running a program and saying what it took.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_test_support::bench::median;
use agent_test_support::project::TestProject;
use nix::sys::resource::{UsageWho, getrusage};

/// What one run of a program took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    /// Of the largest process of its tree, in kilobytes.
    pub(crate) peak: u64,
}

/// Runs a program in `project` to its end, through a copy of this program: what a process's
/// children used at most is only known for all of them together, so each run gets a parent of its own.
///
/// # Panics
/// When it does not end with `code`.
pub(crate) fn run(project: &TestProject, program: &[&str], code: i32) -> Cost {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .arg("spawn")
        .args(program)
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("this program starts");
    let report = String::from_utf8(output.stdout).expect("three numbers");
    let mut numbers = report
        .split_whitespace()
        .map(|word| word.parse::<u64>().expect("a number"));
    let (nanos, peak, ended) = (
        numbers.next().expect("a time"),
        numbers.next().expect("a peak"),
        numbers.next().expect("an exit code"),
    );
    assert_eq!(
        ended,
        u64::try_from(code).expect("a code"),
        "{program:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Cost {
        wall: Duration::from_nanos(nanos),
        peak,
    }
}

/// The parent of one run; prints the time in nanoseconds, the peak in kilobytes and the exit code.
pub(crate) fn spawned(program: &[String]) {
    let start = Instant::now();
    let status = Command::new(&program[0])
        .args(&program[1..])
        .stdout(Stdio::null())
        .status()
        .expect("the program starts");
    let wall = start.elapsed();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the kernel counts");
    println!(
        "{} {} {}",
        wall.as_nanos(),
        usage.max_rss(),
        status.code().unwrap_or(255)
    );
}

/// What it takes to append 600 bytes to a file in `directory` and have them on disk, at the median.
pub(crate) fn fdatasync(directory: &Path) -> Duration {
    let mut file = File::create(directory.join("sync-probe")).expect("a file");
    median((0..100).map(|_| {
        let start = Instant::now();
        file.write_all(&[b'x'; 600]).expect("room");
        rustix::fs::fdatasync(file.as_fd()).expect("a disk");
        start.elapsed()
    }))
}
