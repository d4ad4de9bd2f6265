//! Table that benches print, and the kernel readings that go into it.
//!
//! A row is a ratio to a baseline measured in the same run, or an amount, with its limit. Rows are
//! Markdown, so that `tests/bench` can put them into the docs as they are.

#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench prints its result"
)]

use std::time::Duration;

/// The result of one bench, row by row, printed as it comes.
#[derive(Debug)]
pub struct Table {
    missed: Vec<String>,
}

impl Table {
    /// Begins the table of the bench `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        println!("\n### {name}\n");
        println!("| what | ours | baseline | ratio | limit | state |");
        println!("| --- | --- | --- | --- | --- | --- |");
        Self { missed: Vec::new() }
    }

    /// A time against the time of a baseline.
    pub fn ratio(&mut self, what: &str, ours: Duration, baseline: Duration, limit: f64) {
        let ratio = ours.as_secs_f64() / baseline.as_secs_f64();
        let state = self.state(what, ratio <= limit);
        let (ours, baseline) = (shown(ours), shown(baseline));
        println!("| {what} | {ours} | {baseline} | {ratio:.2} | {limit} | {state} |");
    }

    /// A time against the time of a baseline, without a limit.
    pub fn compare(&mut self, what: &str, ours: Duration, baseline: Duration) {
        let ratio = ours.as_secs_f64() / baseline.as_secs_f64();
        let (ours, baseline) = (shown(ours), shown(baseline));
        println!("| {what} | {ours} | {baseline} | {ratio:.2} | | |");
    }

    /// An amount against an amount.
    pub fn share(&mut self, what: &str, ours: f64, baseline: f64, unit: &str, limit: f64) {
        let ratio = ours / baseline;
        let state = self.state(what, ratio <= limit);
        println!(
            "| {what} | {ours:.1} {unit} | {baseline:.1} {unit} | {ratio:.2} | {limit} | {state} |"
        );
    }

    /// A speed, which has to be at least `least` times that of a baseline.
    pub fn speed(&mut self, what: &str, ours: f64, baseline: f64, unit: &str, least: f64) {
        let ratio = ours / baseline;
        let state = self.state(what, ratio >= least);
        println!(
            "| {what} | {ours:.0} {unit} | {baseline:.0} {unit} | {ratio:.2} | at least {least} | {state} |"
        );
    }

    /// A plain time against its limit.
    pub fn time(&mut self, what: &str, ours: Duration, limit: Duration) {
        let state = self.state(what, ours <= limit);
        println!(
            "| {what} | {} | | | {} | {state} |",
            shown(ours),
            shown(limit)
        );
    }

    /// A plain amount against its limit.
    pub fn amount(&mut self, what: &str, ours: f64, unit: &str, limit: f64) {
        let state = self.state(what, ours <= limit);
        println!("| {what} | {ours:.1} {unit} | | | {limit} {unit} | {state} |");
    }

    /// A note without a limit.
    pub fn note(&mut self, what: &str, value: &str) {
        println!("| {what} | {value} | | | | |");
    }

    fn state(&mut self, what: &str, holds: bool) -> &'static str {
        if holds {
            return "holds";
        }
        self.missed.push(what.to_owned());
        "**missed**"
    }

    /// Ends the table and says which limits were missed.
    pub fn finish(self) {
        if self.missed.is_empty() {
            println!("\nAll limits hold.");
        } else {
            println!("\nMissed: {}.", self.missed.join("; "));
        }
    }
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..1e-3 => format!("{:.1} µs", seconds * 1e6),
        ..1e-2 => format!("{:.2} ms", seconds * 1e3),
        ..10.0 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// The middle one, which is not moved by what else the machine does.
///
/// # Panics
/// When nothing was measured.
#[must_use]
pub fn median(times: impl IntoIterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.into_iter().collect();
    assert!(!times.is_empty(), "nothing was measured");
    times.sort_unstable();
    times[times.len() / 2]
}

/// The most memory this process has held, in bytes.
///
/// # Panics
/// When the kernel does not say.
#[must_use]
pub fn peak_memory() -> u64 {
    memory("self", "VmHWM:").expect("the kernel counts")
}

/// A line of memory in a process's status, in bytes; nothing when it has ended.
#[must_use]
pub fn memory(process: &str, line: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|found| found.strip_prefix(line))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

/// True under `cargo bench`; `cargo test --benches` only checks that a bench runs.
#[must_use]
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}
