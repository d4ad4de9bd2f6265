//! Memory that no process shows: everything a command can make the kernel keep for it counts against
//! the limit, whatever it is kept in, and nothing counts that is not there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

mod kinds;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_sandbox::{Command, Finished, KilledBy, Network, Policy, Sandbox, Sink};
use kinds::{KINDS, Kind};

/// More than a close look could find, in megabytes.
const PLENTY: u64 = 64 << 10;

/// A throw-away fixture to run in.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn in_folder(folder: &Path) -> Self {
        let folder = tempfile::tempdir_in(folder).unwrap();
        for name in ["work", "session", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lets a kind take what it takes; `holding` says whether it keeps that until it is ended.
    fn run(&self, sandbox: &Sandbox, kind: &Kind, megabytes: u64, run: Run) -> (Finished, String) {
        let script = format!(
            "exec python3 - <<'EOF'\n{}{}\nEOF",
            kinds::COMMON,
            kind.script
        );
        let command = Command::Shell(script.into_bytes());
        let mut policy = Policy::new(
            &self.at("work"),
            &self.at("session"),
            &self.at("tmp"),
            command,
        );
        let (part, hold) = match run {
            Run::Whole { hold } => ("1", if hold { "60" } else { "0" }),
            // Long enough to be counted twice.
            Run::Little => ("0", "0.6"),
        };
        policy.environment = [("PATH", "/usr/bin:/bin"), ("PART", part), ("HOLD", hold)]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        policy.limits.memory = Some(megabytes << 20);
        policy.limits.free_disk = None;
        if kind.host_network {
            policy.network = Network::Host;
        }
        let output = Arc::new(Mutex::new(Vec::new()));
        let sink: Sink = {
            let output = Arc::clone(&output);
            Box::new(move |_, bytes| output.lock().unwrap().extend_from_slice(bytes))
        };
        let running = sandbox.prepare(&policy).unwrap().start(sink).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let finished = running.wait(Some(deadline), None);
        let said = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        (finished, said)
    }
}

#[derive(Clone, Copy)]
enum Run {
    /// All of it.
    Whole { hold: bool },
    /// An everyday amount.
    Little,
}

/// Problems with how a kind is counted.
fn problems(sandbox: &Sandbox, kind: &Kind) -> Vec<String> {
    let folder = if kind.in_memory {
        Path::new("/dev/shm").to_owned()
    } else {
        std::env::temp_dir()
    };
    let run = |megabytes, run| Fixture::in_folder(&folder).run(sandbox, kind, megabytes, run);
    let mut problems = Vec::new();
    let mut expect = |what: &str, holds: bool, (finished, said): (Finished, String)| {
        if !holds {
            let how = (finished.status, finished.killed_by);
            problems.push(format!("{}: {what}: {how:?} {said}", kind.name));
        }
    };
    let ended = run(kind.limit, Run::Whole { hold: true });
    let by = ended.0.killed_by;
    if kind.refused {
        expect(
            "was not refused",
            ended.1.contains("refused") && by.is_none(),
            ended,
        );
        return problems;
    }
    expect("passed the limit", by == Some(KilledBy::MemoryLimit), ended);
    let free = run(PLENTY, Run::Whole { hold: false });
    let took = free.1.contains("held") && free.0.killed_by.is_none();
    expect("did not get what it was to hold", took, free);
    if kind.unseen {
        return problems;
    }
    let little = run(kind.limit, Run::Little);
    let left = little.1.contains("held") && little.0.killed_by.is_none();
    expect("was ended for too little", left, little);
    problems
}

#[test]
fn whatever_the_kernel_keeps_for_a_command_counts() {
    let scratch = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::of(agent_sandbox::probe(scratch.path()));
    let wanted = std::env::var("MEMORY").unwrap_or_default();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(kind) = KINDS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if kind.name.contains(&wanted) {
                        found.lock().unwrap().extend(problems(&sandbox, kind));
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
