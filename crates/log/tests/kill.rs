//! A writer that dies: killed at random moments, or stopped by a full disk. The victim is this
//! program again, told by a variable what to do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use agent_log::{AppendError, SessionDirectory, SessionWriter, SyncError};
use agent_protocol::payload::conversation::{ArtifactKind, RuntimeWarning};
use agent_protocol::{Payload, Refs, Scope};
use support::{Project, StepClock};

const VICTIM: &str = "AGENT_SESSION_TEST_VICTIM";

fn warning(message: String) -> RuntimeWarning {
    RuntimeWarning {
        code: "count".into(),
        message,
        evidence_refs: Vec::new(),
    }
}

fn victim_of(test: &str, session: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(VICTIM, session)
        .stdout(Stdio::piped());
    command
}

/// Opens the session the victim was told about.
fn open_as_victim(session: &std::ffi::OsStr) -> SessionWriter {
    let session = SessionDirectory::at(Path::new(session)).unwrap();
    let project = Project::new();
    let mut env = project.session_env_with(agent_log::Redactor::off());
    env.anchors = None;
    let clock = StepClock::starting_at(1_794_799_680_000 + i64::from(std::process::id()));
    env.mint = std::sync::Arc::new(agent_protocol::id::IdMint::new(
        clock,
        std::process::id().into(),
    ));
    session.open_writer(env).unwrap().writer
}

/// Says which event is acknowledged, at once.
fn acknowledge(sequence: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ack {sequence}").unwrap();
    out.flush().unwrap();
}

fn acknowledged(line: &str) -> Option<u64> {
    // The test harness may have begun the line with the name of the test.
    line.rsplit_once("ack ")?.1.trim().parse().ok()
}

#[test]
fn nothing_acknowledged_is_lost_when_the_writer_is_killed() {
    if let Some(session) = std::env::var_os(VICTIM) {
        let writer = open_as_victim(&session);
        for round in 0u64.. {
            // Lines of all lengths, and now and then a sync or an artifact.
            let length = usize::try_from(round * 7919 % 6000).unwrap();
            let recorded = writer
                .append(
                    &Scope::default(),
                    warning("x".repeat(length)),
                    Refs::default(),
                )
                .unwrap();
            acknowledge(recorded.sequence);
            if round % 5 == 3 {
                writer.sync().unwrap();
            }
            if round % 7 == 4 {
                let bytes = vec![b'y'; length];
                writer
                    .put_artifact(
                        &Scope::default(),
                        ArtifactKind::Other,
                        "text/plain",
                        &bytes,
                        None,
                    )
                    .unwrap();
                acknowledge(writer.head().next_sequence - 1);
            }
            if round % 11 == 6 {
                // Gathered events are acknowledged by the sync alone.
                let gathering = writer.gather();
                for length in 0..9 {
                    let text = "g".repeat(length * 700);
                    writer
                        .append(&Scope::default(), warning(text), Refs::default())
                        .unwrap();
                }
                writer.sync().unwrap();
                acknowledge(writer.head().next_sequence - 1);
                drop(gathering);
            }
        }
    }
    // A log is opened, and so read, again and again; a fresh one now and then keeps that short.
    const LOGS: u64 = 10;
    const ROUNDS_PER_LOG: u64 = 20;
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for log in (0..LOGS).filter(|log| log % 2 == half) {
                    kill_again_and_again(log * ROUNDS_PER_LOG..(log + 1) * ROUNDS_PER_LOG);
                }
            });
        }
    });
}

fn kill_again_and_again(rounds: std::ops::Range<u64>) {
    let project = Project::new();
    drop(project.create());
    let session = project.store().resolve("last").unwrap();
    for round in rounds {
        let test = "nothing_acknowledged_is_lost_when_the_writer_is_killed";
        let mut victim = victim_of(test, session.path()).spawn().unwrap();
        let wanted = usize::try_from(round * 31 % 23).unwrap() + 1;
        let last = read_acknowledgements(&mut victim, wanted);
        let report = session.verify_chain().unwrap();
        let torn = report
            .damage
            .iter()
            .all(|damage| damage.kind.code() == "torn_tail");
        assert!(torn, "round {round}: {:?}", report.damage);
        assert!(
            report.head.next_sequence > last,
            "round {round}: event {last} is gone"
        );
    }
    session.open_writer(project.session_env()).unwrap();
    let report = agent_evidence::audit::audit(&session, None).unwrap();
    assert!(report.is_ok(), "{:#?}", report.findings);
}

/// Reads this many acknowledgements, kills, and returns the last that was given.
fn read_acknowledgements(victim: &mut Child, wanted: usize) -> u64 {
    let mut lines = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut last = lines
        .by_ref()
        .filter_map(|line| acknowledged(&line))
        .nth(wanted - 1)
        .unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    // What was in the pipe when the victim died was acknowledged too.
    for line in lines {
        last = acknowledged(&line).unwrap_or(last);
    }
    last
}

#[test]
fn a_killed_holder_blocks_nobody() {
    if let Some(session) = std::env::var_os(VICTIM) {
        let writer = open_as_victim(&session);
        acknowledge(writer.head().next_sequence);
        // Holds the lease until it is killed.
        std::thread::park();
        drop(writer);
    }
    let project = Project::new();
    drop(project.create());
    let session = project.store().resolve("last").unwrap();
    let mut victim = victim_of("a_killed_holder_blocks_nobody", session.path())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    lines.by_ref().find_map(|line| acknowledged(&line)).unwrap();
    let Err(error) = session.open_writer(project.session_env()) else {
        panic!("two processes write");
    };
    assert!(error.to_string().contains("being written by"), "{error}");
    assert!(session.holder().is_some());
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(session.holder().is_none());
    let opened = session.open_writer(project.session_env()).unwrap();
    assert!(opened.repairs.stale_holder.is_some());
    let last = session
        .reader()
        .unwrap()
        .last()
        .unwrap()
        .unwrap()
        .event
        .unwrap();
    let Payload::RuntimeWarning(warning) = last.payload else {
        panic!("{last:?}");
    };
    assert_eq!(warning.code, "stale_lease");
}

#[test]
fn a_full_disk_loses_nothing_and_leaves_no_half_event() {
    if let Some(session) = std::env::var_os(VICTIM) {
        fill_the_disk(&session);
        println!("held");
        return;
    }
    let project = Project::new();
    drop(project.create());
    let session = project.store().resolve("last").unwrap();
    // A limit on the size of files behaves like a full disk, and needs no rights.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -S -f 200; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_full_disk_loses_nothing_and_leaves_no_half_event",
            "--nocapture",
        ])
        .env(VICTIM, session.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("held"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(session.verify_chain().unwrap().damage.is_empty());
}

fn fill_the_disk(session: &std::ffi::OsStr) {
    let writer = open_as_victim(session);
    let directory = SessionDirectory::at(Path::new(session)).unwrap();
    let mut last = 0;
    let error = loop {
        match writer.append(&Scope::default(), warning("z".repeat(700)), Refs::default()) {
            Ok(recorded) => last = recorded.sequence,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Full { .. }), "{error:?}");
    assert!(
        error.to_string().contains("every event before it is kept"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("free some space"));
    let check = |last: u64| {
        let report = directory.verify_chain().unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        assert_eq!(report.head.next_sequence, last + 1);
    };
    check(last);
    // It still does not fit, and still nothing is half written.
    assert!(
        writer
            .append(&Scope::default(), warning("z".repeat(700)), Refs::default())
            .is_err()
    );
    let too_big = vec![b'a'; 1 << 20];
    let artifact = writer.put_artifact(
        &Scope::default(),
        ArtifactKind::Other,
        "text/plain",
        &too_big,
        None,
    );
    assert!(artifact.is_err());
    assert!(directory.artifacts().unwrap().list().unwrap().is_empty());
    check(last);
    // Gathered events wait in memory: what was accepted is not lost by the lack of space.
    let gathering = writer.gather();
    let waiting = 3;
    for _ in 0..waiting {
        writer
            .append(&Scope::default(), warning("w".repeat(700)), Refs::default())
            .unwrap();
    }
    let error = writer.sync().unwrap_err();
    assert!(matches!(error, SyncError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("kept in memory"), "{error}");
    assert!(error.hint().unwrap().contains("free some space"));
    drop(gathering);
    assert!(
        writer
            .append(&Scope::default(), warning("no".into()), Refs::default())
            .is_err()
    );
    check(last);
    // Space is back.
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Fsize);
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
    let recorded = writer
        .append(&Scope::default(), warning("back".into()), Refs::default())
        .unwrap();
    assert_eq!(recorded.sequence, last + waiting + 1);
    writer.sync().unwrap();
    check(last + waiting + 1);
}
