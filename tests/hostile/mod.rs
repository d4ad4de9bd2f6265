//! What the gate proves to read does nothing but read what it shows, whatever the repository holds: the kernel is the
//! witness.
//!
//! Random commands go through the front door, with nobody to ask, in a repository that is hostile in every way we
//! know, and each system call of the runtime and of the command is looked at. `AGENT_HOSTILE_SEED` repeats a run,
//! `AGENT_HOSTILE_COMMANDS` says how many commands.

mod commands;
mod repository;
pub(crate) mod trace;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use serde_json::json;

use commands::{Random, command};
use repository::{RAN, Repository, SECRET};
use trace::{Taboo, judge, watching};

/// Actions of a command.
struct Seen {
    output: Output,
    /// Processes that the command had: none if the gate refused it.
    processes: usize,
    wrong: Vec<String>,
}

/// The directories of `PATH`, and where git keeps its own programs.
fn trusted() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let git = Command::new("git").arg("--exec-path").output().unwrap();
    let git = String::from_utf8(git.stdout).unwrap();
    std::env::split_paths(&path)
        .chain([PathBuf::from(git.trim())])
        .filter(|place| place.is_absolute())
        .collect()
}

/// `script` through the front door, watched.
fn watch(repository: &Repository, mode: &str, script: &str, number: usize) -> Seen {
    let log = repository.base.join(format!("trace-{number}"));
    let input = json!({"command": script, "description": "a test"}).to_string();
    let system = std::env::var("PATH").unwrap();
    let inside = ["bin", ".venv/bin", "node_modules/.bin", "."];
    let inside = inside.map(|place| repository.project.join(place).display().to_string());
    let output = watching(env!("CARGO_BIN_EXE_agent"), &log)
        .args(["call", "--json", "--mode", mode, "bash", &input])
        .current_dir(&repository.project)
        .env_clear()
        .env("AGENT_HOME", repository.home.join("agent"))
        .env("HOME", &repository.home)
        // Relative places, an empty one, and some of the project before those of the system.
        .env("PATH", format!("{}::.:{system}", inside.join(":")))
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("strace is needed to watch what commands do, and cannot be started");
    let traced = std::fs::read(&log).unwrap_or_default();
    let traced = String::from_utf8_lossy(&traced);
    assert!(
        traced.contains("execve("),
        "strace has to be allowed to watch: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let trusted = trusted();
    let taboo = Taboo {
        project: &repository.project,
        base: &repository.base,
        secrets: &repository.secrets,
        trusted: &trusted,
        script,
    };
    let (processes, mut wrong) = judge(&traced, &taboo);
    std::fs::remove_file(&log).unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    for told in [SECRET, &RAN.0.replace("%s", RAN.1)] {
        if said.contains(told) {
            wrong.push(format!("said {told}"));
        }
    }
    Seen {
        output,
        processes,
        wrong,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn what_is_proven_does_nothing_but_read() {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = number("AGENT_HOSTILE_SEED").unwrap_or(u64::from(clock.unwrap().subsec_nanos()));
    let count = usize::try_from(number("AGENT_HOSTILE_COMMANDS").unwrap_or(80)).unwrap();
    println!("AGENT_HOSTILE_SEED={seed} AGENT_HOSTILE_COMMANDS={count}");
    let mut random = Random::new(seed);
    let scripts: Vec<String> = (0..count).map(|_| command(&mut random)).collect();
    // With drivers in its settings git is asked about; without them it runs.
    let repositories = [Repository::new(false), Repository::new(true)];
    let before = repositories.each_ref().map(Repository::snapshot);
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut ran, mut wrong) = (0, Vec::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(script) = scripts.get(at) else {
                return (ran, wrong);
            };
            let drivers = usize::from(at % 4 == 3);
            let mode = ["ask", "read-only"][at % 2];
            let seen = watch(&repositories[drivers], mode, script, at);
            ran += usize::from(seen.processes > 0);
            if !seen.wrong.is_empty() {
                let seen = seen.wrong.join("\n  ");
                wrong.push(format!("{mode}, drivers {drivers}: {script:?}\n  {seen}"));
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    let (mut ran, mut wrong) = (0, Vec::new());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in running {
            let (more, found) = worker.join().unwrap();
            ran += more;
            wrong.extend(found);
        }
    });
    println!("{ran} of {count} commands were proven, and watched");
    assert!(wrong.is_empty(), "seed {seed}\n{}", wrong.join("\n"));
    for (repository, before) in repositories.iter().zip(before) {
        let after = repository.snapshot();
        let changed: Vec<_> = before.symmetric_difference(&after).collect();
        assert!(changed.is_empty(), "seed {seed}: {changed:#?}");
    }
    assert!(
        ran * 3 >= count,
        "only {ran} of {count} commands were proven"
    );
}

/// Witness that sees what somebody allowed: each kind of it.
#[test]
fn the_witness_sees_what_is_not_reading() {
    let repository = Repository::new(false);
    let seen = |mode: &str, script: &str| {
        let seen = watch(&repository, mode, script, 0);
        assert!(seen.processes > 0, "{script}: {:?}", seen.output);
        seen.wrong
    };
    let none: &[String] = &[];
    assert_eq!(
        seen("ask", "cat a | wc -l; git status; git log -p -2"),
        none
    );
    for (script, what) in [
        ("./tool", "executed a file of the project"),
        ("sh tool", "executed a file of the project"),
        ("sh tool", "read a secret"),
        ("sh tool", "said"),
        (
            "sh -c '$(printf to%s uch) made'",
            "executed what the script does not name",
        ),
        ("touch marker", "opened for writing"),
        ("mkdir made", "changed"),
    ] {
        let wrong = seen("full", script);
        let is_seen = wrong.iter().any(|line| line.starts_with(what));
        assert!(is_seen, "{script}: {wrong:#?}");
    }
}
