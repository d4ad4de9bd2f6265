//! Process control: streams, ends, trees. Each test runs confined and unconfined: to a caller
//! the two must not differ.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_sandbox::{
    Capabilities, Command, ExitStatus, KilledBy, LaunchError, Mode, Policy, Running, Stream,
    prepare, probe, spawn,
};

/// A throw-away place to run in.
struct Place {
    folder: tempfile::TempDir,
    capabilities: Capabilities,
    mode: Mode,
}

impl Place {
    fn new(mode: Mode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "session", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let capabilities = probe(folder.path());
        Self {
            folder,
            capabilities,
            mode,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn policy(&self, script: &str) -> Policy {
        let command = Command::Shell(script.as_bytes().to_vec());
        let mut policy = Policy::new(
            &self.at("work"),
            &self.at("session"),
            &self.at("tmp"),
            command,
        );
        policy.mode = self.mode.clone();
        policy.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
        policy
    }

    fn start(&self, script: &str) -> (Running, Output) {
        let output = Output::default();
        let copy = Output(Arc::clone(&output.0));
        let sink =
            move |stream, bytes: &[u8]| copy.0.lock().unwrap().push((stream, bytes.to_vec()));
        (
            spawn(&self.policy(script), &self.capabilities, Box::new(sink)).unwrap(),
            output,
        )
    }
}

fn both(test: impl Fn(&Place)) {
    test(&Place::new(Mode::Required));
    test(&Place::new(Mode::Off {
        reason: "a test of process control".into(),
    }));
}

type Chunks = Vec<(Stream, Vec<u8>)>;

#[derive(Default)]
struct Output(Arc<Mutex<Chunks>>);

impl Output {
    fn text(&self, wanted: Stream) -> String {
        let output = self.0.lock().unwrap();
        let chosen = output.iter().filter(|(stream, _)| *stream == wanted);
        String::from_utf8(chosen.flat_map(|(_, bytes)| bytes.clone()).collect()).unwrap()
    }

    fn wait_for_something(&self) {
        while self.0.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
    }
}

/// How many living processes have `mark` among their arguments.
fn alive(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let holds = |path: PathBuf| {
        let arguments = std::fs::read(path.join("cmdline")).unwrap_or_default();
        arguments
            .split(|byte| *byte == 0)
            .any(|argument| argument == mark.as_bytes())
    };
    processes.filter(|entry| holds(entry.path())).count()
}

/// A number of seconds that no other test sleeps for.
fn long() -> String {
    let nanoseconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    format!("6{:05}.{nanoseconds}", std::process::id() % 100_000)
}

#[test]
fn both_streams_and_the_exit_code_arrive() {
    both(|place| {
        let (running, output) = place.start("echo out; echo err >&2; exit 7");
        let finished = running.wait(None, None);
        assert_eq!(finished.status, ExitStatus::Code(7));
        assert_eq!(finished.killed_by, None);
        assert_eq!(
            (output.text(Stream::Stdout), output.text(Stream::Stderr)),
            ("out\n".into(), "err\n".into())
        );
        assert_eq!((finished.stdout_bytes, finished.stderr_bytes), (4, 4));
    });
}

#[test]
fn a_command_that_begins_with_a_dash_is_still_the_command() {
    both(|place| {
        let (running, output) = place.start("-x() { echo ran; }; -x");
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
        assert_eq!(output.text(Stream::Stdout), "ran\n");
    });
}

#[test]
fn a_missing_program_is_an_error_and_not_an_exit_code() {
    both(|place| {
        let mut policy = place.policy("");
        policy.command = Command::Program {
            program: "no-such-program".into(),
            arguments: vec![],
        };
        let error = spawn(&policy, &place.capabilities, Box::new(|_, _| {})).unwrap_err();
        assert!(matches!(error, LaunchError::Command { .. }), "{error}");
    });
}

#[test]
fn a_signal_is_reported_as_one() {
    both(|place| {
        let (running, _) = place.start("kill -9 $$");
        assert_eq!(running.wait(None, None).status, ExitStatus::Signal(9));
    });
}

#[test]
fn what_is_prepared_and_not_started_runs_nothing() {
    both(|place| {
        let confined = prepare(&place.policy("touch ran"), &place.capabilities).unwrap();
        drop(confined);
        assert!(!place.at("work/ran").exists());
    });
}

#[test]
fn the_call_ends_with_the_main_process_and_takes_the_tree_along() {
    both(|place| {
        let mark = long();
        let script = format!(
            "setsid nohup sleep {mark} & (sleep {mark} &); (setsid setsid sleep {mark} &) ; trap '' TERM; sleep {mark} & sleep 0.2; echo there"
        );
        let begun = Instant::now();
        let (running, output) = place.start(&script);
        output.wait_for_something();
        let finished = running.wait(None, None);
        assert_eq!(finished.status, ExitStatus::Code(0));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(alive(&mark), 0);
    });
}

#[test]
fn the_deadline_sends_term_and_a_deaf_command_is_killed() {
    both(|place| {
        let wait = "while :; do sleep 0.05; done";
        let (running, output) = place.start(&format!(
            "trap 'echo asked; exit 3' TERM; echo ready; {wait}"
        ));
        output.wait_for_something();
        let finished = running.wait(Some(Instant::now()), None);
        assert_eq!(
            (finished.status, finished.killed_by),
            (ExitStatus::Code(3), Some(KilledBy::Deadline))
        );
        assert!(output.text(Stream::Stdout).ends_with("asked\n"));

        let (running, output) = place.start(&format!("trap '' TERM; echo ready; {wait}"));
        output.wait_for_something();
        let finished = running.wait(Some(Instant::now()), None);
        assert_eq!(
            (finished.status, finished.killed_by),
            (ExitStatus::Signal(9), Some(KilledBy::Deadline))
        );
    });
}

#[test]
fn cancelling_through_a_descriptor_ends_the_command() {
    use std::os::fd::AsFd;
    both(|place| {
        let (running, _) = place.start("sleep 600");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let finished = running.wait(None, Some(reader.as_fd()));
        assert_eq!(finished.killed_by, Some(KilledBy::Cancelled));
        assert_eq!(finished.status, ExitStatus::Signal(15));
    });
}

#[test]
fn dropping_the_handle_ends_the_command() {
    both(|place| {
        let mark = long();
        let (running, output) = place.start(&format!("sleep {mark} & echo there; wait"));
        output.wait_for_something();
        drop(running);
        assert_eq!(alive(&mark), 0);
    });
}

/// The part of the test below that is killed.
const VICTIM: &str = "SANDBOX_TEST_VICTIM";

#[test]
fn nothing_outlives_an_agent_that_was_killed() {
    if let Ok(mark) = std::env::var(VICTIM) {
        let mode = if mark.ends_with('1') {
            Mode::Required
        } else {
            Mode::Off {
                reason: "a test".into(),
            }
        };
        let place = Place::new(mode);
        let (_running, output) = place.start(&format!("setsid sleep {mark} & echo there; wait"));
        output.wait_for_something();
        // Tells the test that the command runs; the folder is left to be removed by it.
        std::fs::write(
            std::env::temp_dir().join(format!("victim-{mark}")),
            place.folder.path().to_str().unwrap(),
        )
        .unwrap();
        loop {
            std::thread::park();
        }
    }
    for kind in ["1", "2"] {
        let mark = format!("{}{kind}", long());
        let ready = std::env::temp_dir().join(format!("victim-{mark}"));
        let mut agent = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "nothing_outlives_an_agent_that_was_killed",
                "--nocapture",
            ])
            .env(VICTIM, &mark)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        let folder = loop {
            match std::fs::read_to_string(&ready) {
                Ok(folder) if !folder.is_empty() => break folder,
                _ if Instant::now() > limit => panic!("the victim did not start"),
                _ => std::thread::yield_now(),
            }
        };
        while alive(&mark) == 0 && Instant::now() < limit {
            std::thread::yield_now();
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        while alive(&mark) > 0 && Instant::now() < limit {
            std::thread::yield_now();
        }
        assert_eq!(alive(&mark), 0);
        std::fs::remove_file(ready).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_flood_on_both_streams_is_counted_and_does_not_block() {
    both(|place| {
        let script = "head -c 30000000 /dev/zero & head -c 30000000 /dev/zero >&2; wait";
        let running = spawn(
            &place.policy(script),
            &place.capabilities,
            Box::new(|_, _| {}),
        )
        .unwrap();
        let finished = running.wait(None, None);
        assert_eq!(
            (finished.stdout_bytes, finished.stderr_bytes),
            (30_000_000, 30_000_000)
        );
    });
}

#[test]
fn a_command_that_closes_its_output_is_still_waited_for() {
    both(|place| {
        let (running, _) = place.start("exec >&- 2>&-; sleep 0.3; exit 5");
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(5));
    });
}

/// The agent holds a key, so it makes its memory unreadable; /proc then treats it as a stranger.
#[test]
fn an_agent_whose_memory_is_hidden_can_still_confine() {
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(hidden).unwrap();
    both(|place| {
        let (running, _) = place.start("exit 4");
        assert_ne!(running.pid(), 0);
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(4));
    });
}
