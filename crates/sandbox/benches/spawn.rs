//! Cost of confinement against a direct spawn, measured in the same run: the alternatives take turns, and minimum and
//! median are printed. Run `cargo bench -p agent-sandbox`, or one part of it with `-- launches`, `-- builds` or `--
//! residue`. On a busy machine, `chrt -f 10` in front keeps other work out of the figures.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement that cannot set itself up should stop, and prints its table"
)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use agent_sandbox::{
    Capabilities, Command, ExitStatus, Feature, Policy, Sandbox, environment, probe,
};
use agent_test_support::bench::{Table, is_measured, median};

fn main() {
    let short = !is_measured();
    let place = Place::new();
    let capabilities = probe(place.folder.path());
    let mut table = Table::new("sandbox");
    table.note("level here", capabilities.level().name());
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    if is_wanted("launches") {
        launches(
            &mut table,
            &place,
            &capabilities,
            if short { 3 } else { 400 },
        );
    }
    if is_wanted("builds") {
        builds(
            &mut table,
            &place,
            &capabilities,
            if short { 1 } else { 15 },
        );
    }
    if is_wanted("residue") {
        residue(
            &mut table,
            &place,
            &capabilities,
            if short { 10 } else { 1000 },
        );
    }
    table.finish();
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "home/work/.git/hooks",
            "home/work/vendor/lib/.git",
            "home/work/.vscode",
            "session",
            "tmp",
        ] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn policy(&self, command: Command) -> Policy {
        let mut policy = Policy::new(
            &self.at("home/work"),
            &self.at("session"),
            &self.at("tmp"),
            command,
        );
        policy.environment = environment::build(&[], &[], &[]);
        policy.home = Some(self.at("home"));
        policy
    }

    fn run(&self, policy: &Policy, sandbox: &Sandbox) {
        let running = sandbox.spawn(policy, Box::new(|_, _| {})).unwrap();
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
    }
}

/// Lets the alternatives take turns; says the minimum and the median of each.
fn take_turns(
    rounds: usize,
    alternatives: &mut [(&str, &mut dyn FnMut())],
) -> Vec<(Duration, Duration)> {
    let mut times = vec![Vec::with_capacity(rounds); alternatives.len()];
    for (_, run) in alternatives.iter_mut() {
        run();
    }
    for _ in 0..rounds {
        for (times, (_, run)) in times.iter_mut().zip(alternatives.iter_mut()) {
            let begun = Instant::now();
            run();
            times.push(begun.elapsed());
        }
    }
    times
        .into_iter()
        .map(|times| {
            let least = times.iter().min().copied().unwrap_or_default();
            (least, median(times))
        })
        .collect()
}

fn launches(table: &mut Table, place: &Place, capabilities: &Capabilities, rounds: usize) {
    let command = Command::Program {
        program: "/bin/true".into(),
        arguments: Vec::new(),
    };
    let policy = place.policy(command.clone());
    let mut off = policy.clone();
    off.mode = agent_sandbox::Mode::Off {
        reason: "measurement".into(),
    };
    let without_landlock = capabilities.clone().without(Feature::Landlock);
    let mut host = policy.clone();
    host.network = agent_sandbox::Network::Host;
    let bubblewrap = Path::new("/usr/bin/bwrap").exists();
    let mut direct = || {
        let status = std::process::Command::new("/bin/true")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert!(status.status.success());
    };
    let sandbox = Sandbox::of(capabilities.clone());
    let without_landlock = Sandbox::of(without_landlock);
    let mut full = || place.run(&policy, &sandbox);
    let mut first = || place.run(&policy, &Sandbox::of(capabilities.clone()));
    let mut helper = || place.run(&off, &sandbox);
    let mut less = || place.run(&policy, &without_landlock);
    let mut shared = || place.run(&host, &sandbox);
    let mut wrapped = || bwrap(place);
    let mut alternatives: Vec<(&str, &mut dyn FnMut())> = vec![
        ("direct", &mut direct),
        ("full profile", &mut full),
        ("full profile, first of a session", &mut first),
        ("full profile, host network", &mut shared),
        ("full profile without Landlock", &mut less),
        ("helper and supervisor only", &mut helper),
    ];
    if bubblewrap {
        alternatives.push(("bubblewrap, comparable mounts", &mut wrapped));
    }
    let taken = take_turns(rounds, &mut alternatives);
    let (direct, full) = (taken[0], taken[1]);
    let what = "sandboxed `/bin/true`, to a direct spawn";
    table.ratio(&format!("{what}: minimum"), full.0, direct.0, 3.5);
    table.compare(&format!("{what}: median"), full.1, direct.1);
    for ((name, _), taken) in alternatives.iter().zip(&taken).skip(2) {
        table.compare(
            &format!("{name}, to a direct spawn: minimum"),
            taken.0,
            direct.0,
        );
    }
    match taken.get(6) {
        Some(wrapped) => {
            let what = "sandboxed `/bin/true`, to bubblewrap with comparable mounts";
            table.ratio(&format!("{what}: minimum"), full.0, wrapped.0, 1.0);
        }
        None => table.note("bubblewrap", "absent"),
    }
}

/// The mounts of the full profile, without Landlock and seccomp.
fn bwrap(place: &Place) {
    let work = place.at("home/work");
    let status = std::process::Command::new("/usr/bin/bwrap")
        .env_clear()
        .args([
            "--unshare-all",
            "--die-with-parent",
            "--new-session",
            "--cap-drop",
            "ALL",
            "--ro-bind",
            "/",
            "/",
        ])
        .args([
            "--tmpfs", "/home", "--tmpfs", "/root", "--tmpfs", "/run", "--dev", "/dev", "--proc",
            "/proc",
        ])
        .arg("--bind")
        .args([&place.at("tmp"), Path::new("/tmp")])
        .arg("--bind")
        .args([&work, &work])
        .arg("--ro-bind")
        .args([work.join(".git"), work.join(".git")])
        .arg("--ro-bind")
        .args([work.join(".vscode"), work.join(".vscode")])
        .arg("--ro-bind")
        .args([work.join("vendor/lib/.git"), work.join("vendor/lib/.git")])
        .args(["--", "/bin/true"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        status.status.success(),
        "{}",
        String::from_utf8_lossy(&status.stderr)
    );
}

/// A small project of C files, because a compiler's system calls are what a build is made of.
fn builds(table: &mut Table, place: &Place, capabilities: &Capabilities, rounds: usize) {
    let work = place.at("home/work");
    let mut objects = String::new();
    for number in 0..12 {
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nint f{number}(int x) {{ printf(\"%d\", x); return x + {number}; }}\n"
        );
        std::fs::write(work.join(format!("f{number}.c")), text).unwrap();
        objects.push_str(&format!(" f{number}.o"));
    }
    std::fs::write(
        work.join("Makefile"),
        format!("all:{objects}\n%.o: %.c\n\tcc -O1 -c $< -o $@\n"),
    )
    .unwrap();
    let script = "rm -f *.o; make -s";
    let policy = place.policy(Command::Shell(script.into()));
    let mut outside = || {
        let output = std::process::Command::new("bash")
            .args(["-c", script])
            .current_dir(&work)
            .output()
            .unwrap();
        assert!(output.status.success());
    };
    let sandbox = Sandbox::of(capabilities.clone());
    let mut inside = || place.run(&policy, &sandbox);
    let taken = take_turns(
        rounds,
        &mut [("outside", &mut outside), ("inside", &mut inside)],
    );
    let what = "`make` of 12 small C files, to the same outside: minimum";
    table.ratio(what, taken[1].0, taken[0].0, 1.05);
}

/// Runs many commands and counts what is left.
fn residue(table: &mut Table, place: &Place, capabilities: &Capabilities, count: usize) {
    let count_of = |path: &str| std::fs::read_dir(path).map(Iterator::count).unwrap_or(0);
    // The launcher.
    let children = || {
        std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()))
            .unwrap_or_default()
    };
    let mounts = || {
        std::fs::read_to_string("/proc/self/mounts")
            .unwrap()
            .lines()
            .count()
    };
    let entries = || count_of("/proc/self/fd") + count_of("/proc/self/task");
    let folders = || count_of(place.folder.path().parent().unwrap().to_str().unwrap());
    let policy = place.policy(Command::Shell(
        b"sleep 99 & (setsid sleep 99 &); mktemp > /dev/null; rm -rf /tmp/*".to_vec(),
    ));
    let sandbox = Sandbox::of(capabilities.clone());
    place.run(&policy, &sandbox);
    let before = (children(), mounts(), entries(), folders());
    for _ in 0..count {
        place.run(&policy, &sandbox);
    }
    let after = (children(), mounts(), entries(), folders());
    let left = [
        ("processes", usize::from(before.0 != after.0)),
        ("mounts", after.1.abs_diff(before.1)),
        ("descriptors and threads", after.2.abs_diff(before.2)),
        ("temporary directories", after.3.abs_diff(before.3)),
    ];
    for (what, left) in left {
        let what =
            format!("{count} commands that leave two processes and a file each: {what} left");
        table.amount(&what, left as f64, "", 0.0);
    }
}
