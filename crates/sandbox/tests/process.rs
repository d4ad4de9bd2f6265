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
    Capabilities, Command, ExitStatus, KilledBy, LaunchError, Mode, Policy, Running, Sandbox, Sink,
    Stream, prepare, probe, spawn,
};

/// Throw-away directories to run in.
struct Fixture {
    folder: tempfile::TempDir,
    capabilities: Capabilities,
    mode: Mode,
}

impl Fixture {
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
        let running = spawn(&self.policy(script), &self.capabilities, output.sink()).unwrap();
        (running, output)
    }
}

fn both(test: impl Fn(&Fixture)) {
    test(&Fixture::new(Mode::Required));
    test(&Fixture::new(Mode::Off {
        reason: "a test of process control".into(),
    }));
}

type Chunks = Vec<(Stream, Vec<u8>)>;

#[derive(Default)]
struct Output(Arc<Mutex<Chunks>>);

impl Output {
    fn sink(&self) -> Sink {
        let chunks = Arc::clone(&self.0);
        Box::new(move |stream, bytes| chunks.lock().unwrap().push((stream, bytes.to_vec())))
    }

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

/// Number of living processes that have `mark` among their arguments.
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
    both(|fixture| {
        let (running, output) = fixture.start("echo out; echo err >&2; exit 7");
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
    both(|fixture| {
        let (running, output) = fixture.start("-x() { echo ran; }; -x");
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
        assert_eq!(output.text(Stream::Stdout), "ran\n");
    });
}

#[test]
fn a_missing_program_is_an_error_and_not_an_exit_code() {
    both(|fixture| {
        let mut policy = fixture.policy("");
        policy.command = Command::Program {
            program: "no-such-program".into(),
            arguments: vec![],
        };
        let error = spawn(&policy, &fixture.capabilities, Box::new(|_, _| {})).unwrap_err();
        assert!(matches!(error, LaunchError::Command { .. }), "{error}");
    });
}

#[test]
fn a_signal_is_reported_as_one() {
    both(|fixture| {
        let (running, _) = fixture.start("kill -9 $$");
        assert_eq!(running.wait(None, None).status, ExitStatus::Signal(9));
    });
}

#[test]
fn a_prepared_sandbox_that_is_not_started_runs_nothing() {
    both(|fixture| {
        let confined = prepare(&fixture.policy("touch ran"), &fixture.capabilities).unwrap();
        drop(confined);
        assert!(!fixture.at("work/ran").exists());
    });
}

#[test]
fn the_call_ends_with_the_main_process_and_takes_the_tree_along() {
    both(|fixture| {
        let mark = long();
        let script = format!(
            "setsid nohup sleep {mark} & (sleep {mark} &); (setsid setsid sleep {mark} &) ; trap '' TERM; sleep {mark} & sleep 0.2; echo there"
        );
        let begun = Instant::now();
        let (running, output) = fixture.start(&script);
        output.wait_for_something();
        let finished = running.wait(None, None);
        assert_eq!(finished.status, ExitStatus::Code(0));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(alive(&mark), 0);
    });
}

#[test]
fn the_deadline_sends_term_and_a_deaf_command_is_killed() {
    both(|fixture| {
        let wait = "while :; do sleep 0.05; done";
        let (running, output) = fixture.start(&format!(
            "trap 'echo asked; exit 3' TERM; echo ready; {wait}"
        ));
        output.wait_for_something();
        let finished = running.wait(Some(Instant::now()), None);
        assert_eq!(
            (finished.status, finished.killed_by),
            (ExitStatus::Code(3), Some(KilledBy::Deadline))
        );
        assert!(output.text(Stream::Stdout).ends_with("asked\n"));

        let (running, output) = fixture.start(&format!("trap '' TERM; echo ready; {wait}"));
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
    both(|fixture| {
        let (running, _) = fixture.start("sleep 600");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let finished = running.wait(None, Some(reader.as_fd()));
        assert_eq!(finished.killed_by, Some(KilledBy::Cancelled));
        assert_eq!(finished.status, ExitStatus::Signal(15));
    });
}

#[test]
fn dropping_the_handle_ends_the_command() {
    both(|fixture| {
        let mark = long();
        let (running, output) = fixture.start(&format!("sleep {mark} & echo there; wait"));
        output.wait_for_something();
        drop(running);
        assert_eq!(alive(&mark), 0);
    });
}

/// Every process below this one.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
    {
        let children = task.unwrap().path().join("children");
        for child in std::fs::read_to_string(children)
            .unwrap_or_default()
            .split_whitespace()
        {
            let child = child.parse().unwrap();
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

#[test]
fn each_command_of_a_session_has_namespaces_of_its_own() {
    let fixture = Fixture::new(Mode::Required);
    let sandbox = Sandbox::of(fixture.capabilities.clone());
    let script = "for n in user mnt pid ipc uts net cgroup; do readlink /proc/self/ns/$n; done";
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let output = Output::default();
        let running = sandbox
            .spawn(&fixture.policy(script), output.sink())
            .unwrap();
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
        let text = output.text(Stream::Stdout);
        assert_eq!(text.lines().count(), 7, "{text}");
        // The one before may be on its way out, so that its numbers are not used again.
        seen.extend(text.lines().map(str::to_owned));
    }
    for kind in ["user", "mnt", "pid", "ipc", "uts", "net", "cgroup"] {
        let host = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert!(!seen.contains(host.to_str().unwrap()), "{kind}: {seen:?}");
    }
}

#[test]
fn a_launcher_that_was_killed_is_replaced() {
    let fixture = Fixture::new(Mode::Required);
    let sandbox = Sandbox::of(fixture.capabilities.clone());
    for _ in 0..3 {
        let output = Output::default();
        let running = sandbox
            .spawn(&fixture.policy("echo runs"), output.sink())
            .unwrap();
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
        assert_eq!(output.text(Stream::Stdout), "runs\n");
        let launcher = rustix::process::Pid::from_raw(launchers()[0] as i32).unwrap();
        rustix::process::kill_process(launcher, rustix::process::Signal::KILL).unwrap();
    }
}

/// The launchers below this thread, which are found by their name.
fn launchers() -> Vec<u32> {
    let named = |pid: &u32| {
        let name = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.starts_with(b"agent-sandbox\0")
    };
    let own = format!(
        "/proc/self/task/{}/children",
        rustix::thread::gettid().as_raw_nonzero()
    );
    let children = std::fs::read_to_string(own).unwrap();
    let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
    pids.filter(named).collect()
}

#[test]
fn files_given_to_an_earlier_command_are_out_of_reach() {
    let fixture = Fixture::new(Mode::Required);
    let sandbox = Sandbox::of(fixture.capabilities.clone());
    let mut first = fixture.policy("true # earlier-secret");
    first
        .environment
        .push(("EARLIER".into(), "earlier-secret".into()));
    sandbox
        .spawn(&first, Box::new(|_, _| {}))
        .unwrap()
        .wait(None, None);
    let script = "cat /proc/1/mem /proc/1/environ /proc/1/maps /proc/1/fd/* 2>&1; \
                  ls /proc | grep -cE '^[0-9]+$'; ls -l /proc/self/fd | grep -c socket";
    let output = Output::default();
    let running = sandbox
        .spawn(&fixture.policy(script), output.sink())
        .unwrap();
    running.wait(None, None);
    let text = output.text(Stream::Stdout);
    assert!(!text.contains("earlier-secret"), "{text}");
    // Its own processes only, and no socket among its descriptors.
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(
        matches!(numbers[..], [processes, 0] if processes <= 5),
        "{text}"
    );
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
        let fixture = Fixture::new(mode);
        // Kept as in a session: the launcher and its reserve must not outlive us either.
        let sandbox = Sandbox::of(fixture.capabilities.clone());
        let output = Output::default();
        let sink = output.sink();
        let script = format!("setsid sleep {mark} & echo there; wait");
        let _running = sandbox.spawn(&fixture.policy(&script), sink).unwrap();
        output.wait_for_something();
        // Tells the test that the command runs; the folder is left to be removed by it.
        std::fs::write(
            std::env::temp_dir().join(format!("victim-{mark}")),
            fixture.folder.path().to_str().unwrap(),
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
        let family = descendants(agent.id());
        assert!(!family.is_empty());
        agent.kill().unwrap();
        agent.wait().unwrap();
        let left = || {
            let exists = |pid: &&u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
            family.iter().filter(exists).count()
        };
        while alive(&mark) + left() > 0 && Instant::now() < limit {
            std::thread::yield_now();
        }
        assert_eq!((alive(&mark), left()), (0, 0));
        std::fs::remove_file(ready).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_flood_on_both_streams_is_counted_and_does_not_block() {
    both(|fixture| {
        let script = "head -c 30000000 /dev/zero & head -c 30000000 /dev/zero >&2; wait";
        let running = spawn(
            &fixture.policy(script),
            &fixture.capabilities,
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
    both(|fixture| {
        let (running, _) = fixture.start("exec >&- 2>&-; sleep 0.3; exit 5");
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(5));
    });
}

/// The agent holds a key, so it makes its memory unreadable; /proc then treats it as a stranger.
#[test]
fn an_agent_whose_memory_is_hidden_can_still_confine() {
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(hidden).unwrap();
    both(|fixture| {
        let (running, _) = fixture.start("exit 4");
        assert_ne!(running.pid(), 0);
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(4));
    });
}

/// A command that stops every process, itself included, still ends.
#[test]
fn a_command_that_stops_itself_is_still_ended() {
    let fixture = Fixture::new(Mode::Required);
    let mark = long();
    let (running, output) = fixture.start(&format!(
        "sleep {mark} & echo ready; kill -STOP -1; kill -STOP $$"
    ));
    output.wait_for_something();
    let finished = running.wait(Some(Instant::now()), None);
    assert_eq!(finished.killed_by, Some(KilledBy::Deadline));
    assert_eq!(alive(&mark), 0);
}

#[test]
fn a_command_that_leaves_no_room_on_the_disk_is_ended() {
    let fixture = Fixture::new(Mode::Required);
    let mut policy = fixture.policy("sleep 600");
    policy.limits.free_disk = Some(u64::MAX);
    let sink = Output::default().sink();
    let running = spawn(&policy, &fixture.capabilities, sink).unwrap();
    let finished = running.wait(None, None);
    assert_eq!(finished.killed_by, Some(KilledBy::DiskLimit));
}
