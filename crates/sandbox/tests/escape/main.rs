//! Commands that try to get out. Every case runs inside the sandbox in a fresh world, and the
//! world has to be unharmed afterwards; where that is harmless the same script also runs
//! without a sandbox and has to do its damage, so that a case which can do none is noticed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot set itself up should stop there, and one that fails should say all"
)]

mod files;
mod kernel;
mod later;
#[path = "../list/mod.rs"]
mod list;
mod network;
mod processes;
mod views;
mod world;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_sandbox::{Level, Limits, Network, Policy, Sandbox, WriteAccess, probe};
use world::World;

/// One way out.
struct Case {
    name: String,
    script: String,
    proof: Proof,
    adjust: fn(&mut Policy),
    /// The whole workspace has to stay as it was, not only its protected paths.
    workspace_too: bool,
}

/// Choice to run the script without a sandbox too, to see that it would succeed.
#[derive(Clone, Copy, PartialEq)]
enum Proof {
    Always,
    /// Only root could do it outside.
    AsRoot,
    /// It would harm the machine or the test itself, or every launch prevents it.
    Never,
}

impl Case {
    fn new(name: &str, script: &str) -> Self {
        Self {
            name: name.into(),
            script: script.into(),
            proof: Proof::Always,
            adjust: |_| {},
            workspace_too: false,
        }
    }

    fn proof(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    fn with(mut self, adjust: fn(&mut Policy)) -> Self {
        self.adjust = adjust;
        self
    }

    fn read_only(mut self) -> Self {
        self.adjust = |policy| policy.write_access = WriteAccess::ReadOnly;
        self.workspace_too = true;
        self
    }

    fn git_write(mut self) -> Self {
        self.adjust = |policy| policy.write_access = WriteAccess::WorkspaceWithGit;
        self
    }

    fn commits(mut self) -> Self {
        self.adjust = |policy| policy.write_access = WriteAccess::WorkspaceWithCommits;
        self
    }
}

/// A small Python program as a shell command. It may use no single quotes.
fn python(program: &str) -> String {
    format!("python3 -c '{program}'")
}

fn cases() -> Vec<Case> {
    let mut all = files::cases();
    all.extend(processes::cases());
    all.extend(network::cases());
    all.extend(kernel::cases());
    all.extend(later::cases());
    all.extend(views::cases());
    all
}

/// Runs every case and returns what went wrong.
fn run_all() -> Vec<String> {
    let cases = cases();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "two cases share a name");
    assert!(cases.len() >= 120, "only {} cases", cases.len());
    let scratch = tempfile::tempdir().unwrap();
    let capabilities = probe(scratch.path());
    assert_eq!(
        capabilities.level(),
        Level::Full,
        "{:?}",
        capabilities.reasons()
    );
    // One for all, as in a session: what one case does must not help another.
    let sandbox = Sandbox::of(capabilities);
    let wanted = std::env::var("ESCAPE").unwrap_or_default();
    let root = rustix::process::getuid().is_root();
    let problems = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !case.name.contains(&wanted) {
                        continue;
                    }
                    let mut world = World::new();
                    let mut policy = world.policy(&case.script);
                    (case.adjust)(&mut policy);
                    world.run_confined(&policy, &sandbox);
                    let harm = world.harm(case.workspace_too);
                    if !harm.is_empty() {
                        problems
                            .lock()
                            .unwrap()
                            .push(format!("{}: {harm:?}\n{}", case.name, world.output));
                    }
                    let proven = match case.proof {
                        Proof::Always => true,
                        Proof::AsRoot => root,
                        Proof::Never => false,
                    };
                    if proven {
                        // Cases run beside each other, and a busy machine may refuse what a proof
                        // needs; without the sandbox it has to get through once.
                        let mut output = String::new();
                        let harmed = (0..5).any(|_| {
                            let mut world = World::new();
                            world.run_directly(&case.script);
                            let harm = world.harm(case.workspace_too);
                            output = std::mem::take(&mut world.output);
                            !harm.is_empty()
                        });
                        if !harmed {
                            problems
                                .lock()
                                .unwrap()
                                .push(format!("{}: proves nothing\n{output}", case.name));
                        }
                    }
                }
            });
        }
    });
    world::clear_away();
    problems.into_inner().unwrap()
}

#[test]
fn nothing_gets_out_for_whoever_runs_this() {
    let problems = run_all();
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// Root runs everything a second time under a user of no importance.
#[test]
fn nothing_gets_out_for_an_ordinary_user() {
    if !rustix::process::getuid().is_root() {
        // The test above was that run.
        return;
    }
    const USER: u32 = 54_321;
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open.clone()).unwrap();
    let program = folder.path().join("escape");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, open).unwrap();
    let own = folder.path().join("tmp");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(USER), Some(USER)).unwrap();
    let output = std::process::Command::new(&program)
        .args([
            "--exact",
            "nothing_gets_out_for_whoever_runs_this",
            "--nocapture",
        ])
        .env("TMPDIR", &own)
        .current_dir(&own)
        .uid(USER)
        .gid(USER)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}{text}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// Limits small enough to run into.
fn small(policy: &mut Policy) {
    policy.limits = Limits {
        processes: Some(64),
        open_files: Some(64),
        file_size: Some(1 << 20),
        data: Some(256 << 20),
        memory: Some(200 << 20),
        free_disk: None,
    };
}

/// Fewer than the kernel's limit for root, with room for each of them.
fn few_processes(policy: &mut Policy) {
    policy.limits = Limits {
        processes: Some(64),
        ..Limits::default()
    };
}

/// The kernel accepts no bound below 301 for a pid namespace, and that one is all that holds for root.
fn some_hundred_processes(policy: &mut Policy) {
    policy.limits = Limits {
        processes: Some(320),
        ..Limits::default()
    };
}

fn host_network(policy: &mut Policy) {
    policy.network = Network::Host;
}
