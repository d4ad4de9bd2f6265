//! The numbers replay promises, each beside a baseline of the same run:
//! `cargo bench -p agent-evidence`.
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

use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

use agent_evidence::audit::{AuditReport, audit};
use agent_evidence::replay::text::{TextForm, TextWriter};
use agent_evidence::replay::{Range, Replayed, Streamed, html, replay, replay_each};
use agent_log::SessionDirectory;
use agent_test_support::bench::Table;
use support::Project;
use support::story::{Teller, whole_story};

/// How often each is measured; the best counts, because everything else is noise.
const ROUNDS: usize = 3;

fn main() {
    let project = Project::new();
    let long = session_of(&project, 100_000);
    let mut table = Table::new("replay");
    let reading = best(|| read(&long));
    let text = best(|| text(&long));
    table.ratio(
        "text of 100,000 events, to reading and parsing them",
        text,
        reading,
        3.0,
    );
    let checked = best(|| {
        let report: AuditReport = audit(&long, None).unwrap();
        assert!(report.is_ok(), "{:?}", report.findings.first());
    });
    table.compare("audit of 100,000 events, to reading them", checked, reading);

    let project = Project::new();
    let session = session_of(&project, 10_000);
    let mut bytes = 0;
    let page = best(|| bytes = page(&session).len());
    let replayed = replay(&session, None, Range::default()).unwrap();
    table.time("page of 10,000 events", page, Duration::from_secs(3));
    table.share(
        "size of that file, to what it shows",
        bytes as f64 / 1e3,
        content_of(&replayed) as f64 / 1e3,
        "kB",
        3.0,
    );
    let reading = best(|| read(&session));
    let as_json = best(|| {
        let told = Streamed::read(&session, None, Range::default()).unwrap();
        serde_json::to_writer(BufWriter::new(std::io::sink()), &told).unwrap();
    });
    table.compare("JSON of 10,000 events, to reading them", as_json, reading);
    table.finish();
}

/// A session of at least so many events: stories one after another.
fn session_of(project: &Project, events: u64) -> SessionDirectory {
    let writer = project.create();
    whole_story(&writer);
    let mut teller = Teller::new(&writer);
    let mut number = 10;
    while writer.head().next_sequence < events {
        teller.begin_turn("do the next thing, and say what you did");
        for _ in 0..20 {
            number += 1;
            teller.ask_model(number);
            teller.read_call();
            teller.read_call();
            teller.bash_call();
        }
        teller.end_turn();
    }
    writer.sync().unwrap();
    drop(writer);
    project.store().resolve("last").unwrap()
}

fn read(session: &SessionDirectory) {
    let mut count = 0_u64;
    for item in session.reader().unwrap() {
        count += u64::from(item.unwrap().event.is_some());
    }
    assert!(count > 9_000);
}

fn text(session: &SessionDirectory) {
    let form = TextForm {
        width: 80,
        color: false,
        all: false,
    };
    let mut writer = TextWriter::new(BufWriter::new(std::io::sink()), form);
    let each = |entry, _| writer.entry(&entry).unwrap();
    let (timeline, integrity) = replay_each(session, None, Range::default(), each).unwrap();
    writer.finish(&timeline, &integrity).unwrap();
}

fn page(session: &SessionDirectory) -> Vec<u8> {
    let told = Streamed::read(session, None, Range::default()).unwrap();
    let report = audit(session, None).unwrap();
    let mut out = Vec::new();
    let page = html::Page {
        told: &told,
        audit: Some(&report),
        artifact: &|_| None,
    };
    html::write(&page, &mut out as &mut dyn Write).unwrap();
    out
}

/// The bytes of everything a reader can see of the events: numbers, words, blocks.
fn content_of(replayed: &Replayed) -> usize {
    let entries = replayed.entries.iter();
    entries
        .map(|(entry, _)| {
            let blocks = entry.description.blocks.iter();
            let blocks: usize = blocks
                .map(|block| block.title.len() + block.text.len())
                .sum();
            let head = entry.sequence.to_string().len() + entry.class.len() + "+12.34 s".len();
            head + entry.description.label.len() + entry.description.text.len() + blocks
        })
        .sum()
}

fn best(mut work: impl FnMut()) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        work();
        begun.elapsed()
    });
    rounds.min().unwrap_or_default()
}
