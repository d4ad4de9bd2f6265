//! Process control: streams, ends, trees. With no confinement, which changes none of this.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_sandbox::{
    Command, ExitStatus, KilledBy, LaunchError, Mode, Policy, Running, Stream, probe, spawn,
};

fn policy(folder: &Path, script: &str) -> Policy {
    let mut policy = Policy::new(
        folder,
        folder,
        folder,
        Command::Shell(script.as_bytes().to_vec()),
    );
    policy.mode = Mode::Off {
        reason: "a test of process control".into(),
    };
    policy.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    policy
}

type Output = Arc<Mutex<Vec<(Stream, Vec<u8>)>>>;

fn start(policy: &Policy) -> (Running, Output) {
    let output = Output::default();
    let copy = Arc::clone(&output);
    let sink = move |stream, bytes: &[u8]| copy.lock().unwrap().push((stream, bytes.to_vec()));
    (spawn(policy, &probe(), Box::new(sink)).unwrap(), output)
}

fn text(output: &Output, wanted: Stream) -> String {
    let output = output.lock().unwrap();
    let bytes: Vec<u8> = output
        .iter()
        .filter(|(stream, _)| *stream == wanted)
        .flat_map(|(_, bytes)| bytes.clone())
        .collect();
    String::from_utf8(bytes).unwrap()
}

fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z')
    })
}

#[test]
fn both_streams_and_the_exit_code_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let (running, output) = start(&policy(folder.path(), "echo out; echo err >&2; exit 7"));
    let finished = running.wait(None, None);
    assert_eq!(finished.status, ExitStatus::Code(7));
    assert_eq!(finished.killed_by, None);
    assert_eq!(
        (text(&output, Stream::Stdout), text(&output, Stream::Stderr)),
        ("out\n".into(), "err\n".into())
    );
    assert_eq!((finished.stdout_bytes, finished.stderr_bytes), (4, 4));
}

#[test]
fn a_command_that_begins_with_a_dash_is_still_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let (running, output) = start(&policy(folder.path(), "-x() { echo ran; }; -x"));
    assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
    assert_eq!(text(&output, Stream::Stdout), "ran\n");
}

#[test]
fn a_missing_program_is_an_error_and_not_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let mut policy = policy(folder.path(), "");
    policy.command = Command::Program {
        program: "no-such-program".into(),
        arguments: vec![],
    };
    let error = spawn(&policy, &probe(), Box::new(|_, _| {})).unwrap_err();
    assert!(matches!(error, LaunchError::Command { .. }), "{error}");
}

#[test]
fn a_signal_is_reported_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let (running, _) = start(&policy(folder.path(), "kill -9 $$"));
    assert_eq!(running.wait(None, None).status, ExitStatus::Signal(9));
}

#[test]
fn the_call_ends_with_the_main_process_and_takes_the_tree_along() {
    let folder = tempfile::tempdir().unwrap();
    let script = "setsid nohup sleep 600 & echo $!; (sleep 601 & echo $!); trap '' TERM; sleep 602 & echo $!";
    let begun = Instant::now();
    let (running, output) = start(&policy(folder.path(), script));
    assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
    assert!(begun.elapsed() < Duration::from_secs(20));
    let pids: Vec<u32> = text(&output, Stream::Stdout)
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

#[test]
fn the_deadline_sends_term_and_a_deaf_command_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (running, output) = start(&policy(
        folder.path(),
        "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done",
    ));
    while text(&output, Stream::Stdout).is_empty() {
        std::thread::yield_now();
    }
    let finished = running.wait(Some(Instant::now()), None);
    assert_eq!(
        (finished.status, finished.killed_by),
        (ExitStatus::Code(3), Some(KilledBy::Deadline))
    );
    assert_eq!(text(&output, Stream::Stdout), "ready\nasked\n");

    let (running, output) = start(&policy(
        folder.path(),
        "trap '' TERM; echo ready; while :; do sleep 0.05; done",
    ));
    while text(&output, Stream::Stdout).is_empty() {
        std::thread::yield_now();
    }
    let finished = running.wait(Some(Instant::now()), None);
    assert_eq!(
        (finished.status, finished.killed_by),
        (ExitStatus::Signal(9), Some(KilledBy::Deadline))
    );
}

#[test]
fn cancelling_through_a_descriptor_ends_the_command() {
    use std::os::fd::AsFd;
    let folder = tempfile::tempdir().unwrap();
    let (running, _) = start(&policy(folder.path(), "sleep 600"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let finished = running.wait(None, Some(reader.as_fd()));
    assert_eq!(finished.killed_by, Some(KilledBy::Cancelled));
    assert_eq!(finished.status, ExitStatus::Signal(15));
}

#[test]
fn dropping_the_handle_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let (running, output) = start(&policy(folder.path(), "echo $$; exec sleep 600"));
    while text(&output, Stream::Stdout).is_empty() {
        std::thread::yield_now();
    }
    let pid: u32 = text(&output, Stream::Stdout).trim().parse().unwrap();
    assert!(alive(pid));
    drop(running);
    assert!(!alive(pid));
}

#[test]
fn a_flood_on_both_streams_is_counted_and_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(
        folder.path(),
        "head -c 30000000 /dev/zero & head -c 30000000 /dev/zero >&2; wait",
    );
    let running = spawn(&policy, &probe(), Box::new(|_, _| {})).unwrap();
    let finished = running.wait(None, None);
    assert_eq!(
        (finished.stdout_bytes, finished.stderr_bytes),
        (30_000_000, 30_000_000)
    );
}

#[test]
fn a_command_that_closes_its_output_is_still_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (running, _) = start(&policy(folder.path(), "exec >&- 2>&-; sleep 0.3; exit 5"));
    assert_eq!(running.wait(None, None).status, ExitStatus::Code(5));
}
