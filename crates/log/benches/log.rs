//! The numbers the log promises, each as a ratio to a baseline measured in the same run:
//! `cargo bench -p agent-log`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    reason = "a measurement that cannot go on should stop where it stands, and prints its result"
)]

use agent_test_support::session as support;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agent_history::fold::{Fold as _, ReadModels};
use agent_log::{SessionDirectory, verify_chain};
use agent_protocol::payload::process::{ProcessOutput, StreamName};
use agent_protocol::{Event, Payload, Refs, Scope};
use agent_test_support::bench::{Table, median, peak_memory};
use sha2::{Digest as _, Sha256};
use support::Project;
use support::story::whole_story;

const EVENTS: u64 = 1_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_short = arguments.iter().any(|argument| argument == "append");
    if let [_, part, path, ..] = &arguments[..]
        && part.starts_with("part-")
    {
        return run_part(part, Path::new(path));
    }
    let mut table = Table::new("log");
    append_without_sync(&mut table);
    group_commit(&mut table);
    if !is_short {
        let project = Project::new();
        let session = long_log(&project);
        reading(&mut table, session.path());
        folding(&mut table, session.path());
    }
    table.finish();
}

/// Time this thread had a processor, which does not depend on what else the machine does.
fn busy() -> Duration {
    // Not from /proc, where it moves with the clock tick.
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The same of the programs that were started and have ended.
fn children_busy() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[13].parse::<u64>().unwrap() + fields[14].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn typical() -> (Scope, Payload) {
    let id = "01m7h6beg00000007242m3jyrx";
    let scope = Scope {
        thread_id: Some(format!("thr_{id}").parse().unwrap()),
        turn_id: Some(format!("trn_{id}").parse().unwrap()),
        step_id: Some(format!("stp_{id}").parse().unwrap()),
        tool_call_id: Some(format!("call_{id}").parse().unwrap()),
        ..Scope::default()
    };
    let output = ProcessOutput {
        process_id: format!("proc_{id}").parse().unwrap(),
        stream: StreamName::Mixed,
        offset: 4096,
        bytes: 64,
        preview: Some("running 12 tests\ntest a ... ok\n".into()),
    };
    (scope, output.into())
}

fn append_without_sync(table: &mut Table) {
    const BATCH: usize = 2000;
    let project = Project::new();
    let writer = project.create();
    let (scope, payload) = typical();
    let heard = writer.listen();
    writer
        .append(&scope, payload.clone(), Refs::default())
        .unwrap();
    let line = heard.recv().unwrap().line.clone();
    drop(heard);
    // The writer forgets its listener at the next event.
    writer
        .append(&scope, payload.clone(), Refs::default())
        .unwrap();
    let mut plain = File::options()
        .create(true)
        .append(true)
        .open(project.directory.path().join("plain"))
        .unwrap();
    let mut with_newline = line.clone();
    with_newline.push(b'\n');
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        let payloads = vec![payload.clone(); BATCH];
        let start = busy();
        for payload in payloads {
            std::hint::black_box(writer.append(&scope, payload, Refs::default()).unwrap());
        }
        ours.push((busy() - start) / BATCH as u32);
        let start = busy();
        for _ in 0..BATCH {
            plain.write_all(&with_newline).unwrap();
            std::hint::black_box(Sha256::digest(std::hint::black_box(&line)));
        }
        baseline.push((busy() - start) / BATCH as u32);
    }
    let name = format!("append of {} bytes, to write + SHA-256", with_newline.len());
    table.ratio(&name, median(ours), median(baseline), 3.0);
}

fn group_commit(table: &mut Table) {
    let project = Project::new();
    let writer = project.create();
    let (scope, payload) = typical();
    let mut plain = File::create(project.directory.path().join("plain")).unwrap();
    let bytes = vec![b'x'; 20 * 600];
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let start = Instant::now();
        let step = writer.gather();
        for _ in 0..20 {
            writer
                .append(&scope, payload.clone(), Refs::default())
                .unwrap();
        }
        writer.sync().unwrap();
        drop(step);
        ours.push(start.elapsed());
        plain.write_all(&bytes).unwrap();
        let start = Instant::now();
        plain.sync_data().unwrap();
        baseline.push(start.elapsed());
    }
    table.ratio(
        "20 appends and a sync, to one fdatasync",
        median(ours),
        median(baseline),
        1.3,
    );
}

/// A log of a million events: one story over and over, with fresh ids, chained anew.
fn long_log(project: &Project) -> SessionDirectory {
    let writer = project.create();
    whole_story(&writer);
    drop(writer);
    let session = project.store().resolve("last").unwrap();
    let story: Vec<Event> = session
        .reader()
        .unwrap()
        .map(|item| item.unwrap().event.unwrap())
        .collect();
    let mut prev: [u8; 32] = Sha256::digest(session.id().as_str()).into();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(session.log_path()).unwrap());
    let mut line = Vec::new();
    for sequence in 0..EVENTS {
        let length = story.len() as u64 - 2;
        let (round, place) = (
            sequence / length,
            usize::try_from(sequence % length).unwrap(),
        );
        // The first event creates the session and the last one ends it.
        let mut event = story[if sequence == 0 { 0 } else { place + 1 }].clone();
        let scope = &mut event.scope;
        scope.turn_id = scope
            .turn_id
            .as_ref()
            .map(|id| format!("{id}{round}").parse().unwrap());
        scope.tool_call_id = scope
            .tool_call_id
            .as_ref()
            .map(|id| format!("{id}{round}").parse().unwrap());
        scope.action_id = scope
            .action_id
            .as_ref()
            .map(|id| format!("{id}{round}").parse().unwrap());
        event.event_id = format!("ev_01m7h6beg0000000{sequence:010}")
            .parse()
            .unwrap();
        event.sequence = sequence;
        event.prev = prev.iter().fold("sha256:".to_owned(), |text, byte| {
            format!("{text}{byte:02x}")
        });
        line.clear();
        event.write_line(&mut line).unwrap();
        prev = Sha256::digest(&line).into();
        line.push(b'\n');
        out.write_all(&line).unwrap();
    }
    out.flush().unwrap();
    SessionDirectory::at(session.path()).unwrap()
}

/// Measured in a process of its own, so that its memory is its own.
fn part(name: &str, path: &Path) -> (Duration, u64) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace();
    let nanos: u64 = words.next().unwrap().parse().unwrap();
    (
        Duration::from_nanos(nanos),
        words.next().unwrap().parse().unwrap(),
    )
}

fn run_part(part: &str, path: &Path) {
    let session = SessionDirectory::at(path).unwrap();
    let start = busy();
    match part {
        "part-verify" => {
            let report = verify_chain(session.open_log().unwrap(), session.id()).unwrap();
            assert_eq!(
                (report.head.next_sequence, report.damage_count),
                (EVENTS, 0)
            );
        }
        "part-parse" => {
            for item in session.reader().unwrap() {
                std::hint::black_box(item.unwrap().event.unwrap());
            }
        }
        _ => {
            let mut models = ReadModels::default();
            for item in session.reader().unwrap() {
                models.fold(&item.unwrap().event.unwrap());
            }
            assert_eq!(models.next_sequence(), EVENTS);
        }
    }
    println!("{} {}", (busy() - start).as_nanos(), peak_memory());
}

fn reading(table: &mut Table, session: &Path) {
    let log: PathBuf = session.join("events.jsonl");
    let (mut ours, mut baseline, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..5 {
        let start = children_busy();
        let status = Command::new("sha256sum").arg(&log).output().unwrap().status;
        assert!(status.success());
        baseline.push(children_busy() - start);
        let (time, bytes) = part("part-verify", session);
        ours.push(time);
        memory = memory.max(bytes);
    }
    table.ratio(
        "verifying 1,000,000 events, to sha256sum",
        median(ours),
        median(baseline),
        2.5,
    );
    table.amount("its memory", memory as f64 / 1_048_576.0, "MB", 64.0);
}

fn folding(table: &mut Table, session: &Path) {
    let (mut ours, mut baseline, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..3 {
        baseline.push(part("part-parse", session).0);
        let (time, bytes) = part("part-fold", session);
        ours.push(time);
        memory = memory.max(bytes);
    }
    table.ratio(
        "parsing and folding 1,000,000 events, to parsing",
        median(ours),
        median(baseline),
        2.0,
    );
    let memory = format!("{:.1} MB", memory as f64 / 1_048_576.0);
    table.note("its memory", &memory);
}
