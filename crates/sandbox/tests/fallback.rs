//! Fallbacks for a missing layer: the table in docs/SECURITY.md, row by row, with the layer masked and once with user
//! namespaces really gone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

mod list;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use agent_sandbox::{
    Capabilities, Command, EnforcementReport, Execution, ExitStatus, Feature, Finished,
    LaunchError, Layer, Level, Mode, Policy, WriteAccess, prepare, probe,
};

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home/work/.git/hooks", "session", "tmp", "outside"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("home/key"), "secret").unwrap();
        std::fs::write(folder.path().join("home/work/.git/config"), "[core]\n").unwrap();
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn policy(&self, script: &str) -> Policy {
        let command = Command::Shell(script.as_bytes().to_vec());
        let mut policy = Policy::new(
            &self.at("home/work"),
            &self.at("session"),
            &self.at("tmp"),
            command,
        );
        policy.names = list::names();
        policy.environment = vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("BASE".into(), self.folder.path().into()),
        ];
        policy.home = Some(self.at("home"));
        policy
    }

    fn run(
        &self,
        script: &str,
        capabilities: &Capabilities,
    ) -> (EnforcementReport, Finished, String) {
        self.run_policy(&self.policy(script), capabilities)
    }

    fn run_policy(
        &self,
        policy: &Policy,
        capabilities: &Capabilities,
    ) -> (EnforcementReport, Finished, String) {
        let confined = prepare(policy, capabilities).unwrap();
        let report = confined.report().unwrap().clone();
        let output = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&output);
        let sink = move |_, bytes: &[u8]| copy.lock().unwrap().extend_from_slice(bytes);
        let finished = confined.start(Box::new(sink)).unwrap().wait(None, None);
        let text = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        (report, finished, text)
    }
}

/// Leaves nothing outside, reads no secret, opens no UNIX socket, works inside.
const ATTEMPT: &str = "echo x > $BASE/outside/new; cat $BASE/home/key; \
    python3 -c 'import socket; socket.socket(socket.AF_UNIX); print(\"socket\")'; echo fine > file; exit 0";

fn check(level: Level, capabilities: &Capabilities) -> EnforcementReport {
    assert_eq!(capabilities.level(), level, "{:?}", capabilities.reasons());
    let fixture = Fixture::new();
    let (report, finished, text) = fixture.run(ATTEMPT, capabilities);
    assert_eq!(report.level, level);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(!fixture.at("outside/new").exists(), "{text}");
    assert!(!text.contains("secret"), "{text}");
    assert!(!text.contains("socket\n"), "{text}");
    assert_eq!(
        std::fs::read_to_string(fixture.at("home/work/file")).unwrap(),
        "fine\n",
        "{text}"
    );
    report
}

fn here() -> Capabilities {
    let scratch = tempfile::tempdir().unwrap();
    probe(scratch.path())
}

#[test]
fn everything_there_is_the_full_profile() {
    let report = check(Level::Full, &here());
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    for layer in [
        Layer::UserNamespace,
        Layer::NetworkNamespace,
        Layer::Landlock,
        Layer::Seccomp,
    ] {
        assert!(report.layers.contains(&layer), "{layer:?}");
    }
}

/// A command that runs without approval executes nothing that a command could have written, at every level that
/// runs commands unasked; elsewhere it is not run.
#[test]
fn nothing_of_the_project_is_executed_where_that_was_asked_for() {
    use std::os::unix::fs::PermissionsExt as _;
    let script = "./tool; bin/tool; cp /bin/true $TMPDIR/own; $TMPDIR/own && echo own-ran; \
                  cp /bin/true /dev/shm/own; /dev/shm/own && echo own-ran; ls file; cat shown; exit 0";
    for missing in [None, Some(Feature::Landlock), Some(Feature::UserNamespaces)] {
        let capabilities = missing.map_or_else(here, |feature| here().without(feature));
        let fixture = Fixture::new();
        for name in ["tool", "bin/tool"] {
            let file = fixture.at("home/work").join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "#!/bin/sh\necho tool-ran\n").unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::write(fixture.at("home/work/file"), "").unwrap();
        std::fs::write(fixture.at("home/work/shown"), "as it is\n").unwrap();
        std::fs::write(fixture.at("outside/shown"), "as it is shown\n").unwrap();
        let mut policy = fixture.policy(script);
        policy.write_access = WriteAccess::ReadOnly;
        policy.execution = Execution::NothingOfTheProject;
        let real = |name: &str| std::fs::canonicalize(fixture.at(name)).unwrap();
        policy.replaced = vec![(real("outside/shown"), real("home/work/shown"))];
        if !capabilities.level().may_run_unasked() {
            assert!(matches!(
                prepare(&policy, &capabilities),
                Err(LaunchError::Policy { .. })
            ));
            continue;
        }
        let (report, finished, text) = fixture.run_policy(&policy, &capabilities);
        assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
        assert!(!text.contains("-ran"), "{missing:?}: {text}");
        assert!(text.contains("file\n"), "{missing:?}: {text}");
        assert!(text.contains("as it is shown\n"), "{missing:?}: {text}");
        assert!(report.layers.contains(&Layer::ProjectNotExecutable));
    }
}

#[test]
fn without_landlock_the_rest_holds_and_the_report_says_so() {
    let report = check(Level::NoLandlock, &here().without(Feature::Landlock));
    assert!(!report.layers.contains(&Layer::Landlock));
    assert_eq!(report.landlock_abi, None);
    assert_eq!(report.notes, ["Landlock: switched off"]);
    assert!(report.level.may_run_unasked());
}

#[test]
fn without_user_namespaces_an_installed_bubblewrap_is_used() {
    let capabilities = here().without(Feature::UserNamespaces);
    if capabilities.bubblewrap.is_err() {
        // Then the next row of the table applies, and its test covers this machine.
        assert_eq!(capabilities.level(), Level::Partial);
        return;
    }
    let report = check(Level::Bubblewrap, &capabilities);
    assert!(report.layers.contains(&Layer::MountNamespace));
    assert!(report.layers.contains(&Layer::Landlock));
    let fixture = Fixture::new();
    let (_, _, text) = fixture.run(
        "echo x >> .git/config; mv .git old; kill -9 $PPID; sleep 0.1; echo on",
        &capabilities,
    );
    assert_eq!(
        std::fs::read_to_string(fixture.at("home/work/.git/config")).unwrap(),
        "[core]\n",
        "{text}"
    );
    assert!(text.contains("on\n"), "{text}");
}

fn partial() -> Capabilities {
    here()
        .without(Feature::UserNamespaces)
        .without(Feature::Bubblewrap)
}

#[test]
fn without_both_confinement_is_partial_and_must_be_asked_about() {
    let report = check(Level::Partial, &partial());
    assert!(!report.level.may_run_unasked());
    assert_eq!(
        report.notes[..2],
        ["user namespaces: switched off", "bubblewrap: switched off"]
    );
    assert!(!report.layers.contains(&Layer::MountNamespace));
    assert!(report.layers.contains(&Layer::Landlock) && report.layers.contains(&Layer::Seccomp));
}

#[test]
fn partial_confinement_compares_what_it_cannot_protect() {
    let fixture = Fixture::new();
    let (_, finished, text) = fixture.run(
        "echo evil >> .git/config; mkdir .cursor; echo > .cursor/x",
        &partial(),
    );
    let targets: Vec<&str> = finished
        .violations
        .iter()
        .filter(|violation| !violation.expected)
        .map(|violation| violation.target.as_str())
        .collect();
    assert_eq!(
        targets,
        [".cursor was created", ".git was changed"],
        "{text}"
    );
    assert!(!fixture.at("home/work/.cursor").exists());
    assert!(fixture.at("session/quarantine/000-.cursor/x").exists());
}

#[test]
fn partial_confinement_puts_back_what_was_changed() {
    let fixture = Fixture::new();
    let git = fixture.at("home/work/.git");
    std::fs::create_dir_all(git.join("hooks")).unwrap();
    std::fs::write(git.join("config"), "[core]\n").unwrap();
    std::fs::write(git.join("large"), vec![b'x'; 2 << 20]).unwrap();
    let (_, finished, text) = fixture.run(
        "echo evil >> .git/config; echo evil > .git/hooks/post-commit; chmod +x .git/config; mv .git/large .git/moved",
        &partial(),
    );
    assert_eq!(
        std::fs::read_to_string(git.join("config")).unwrap(),
        "[core]\n",
        "{text}"
    );
    assert!(!git.join("hooks/post-commit").exists());
    let kept = |name: &str| fixture.at("session/quarantine").join(name);
    assert!(
        kept("000-.git%config").exists(),
        "{:?}",
        finished.quarantined
    );
    assert!(kept("000-.git%hooks%post-commit").exists());
    // Too large to be remembered: moved, which is reported, and not lost.
    assert!(
        kept("000-.git%moved").exists(),
        "{:?}",
        finished.quarantined
    );
}

#[test]
fn partial_confinement_lets_a_granted_commit_stand() {
    let fixture = Fixture::new();
    let git = fixture.at("home/work/.git");
    std::fs::create_dir_all(git.join("refs/heads")).unwrap();
    std::fs::write(git.join("config"), "[core]\n").unwrap();
    std::fs::write(git.join("HEAD"), "old\n").unwrap();
    let mut policy = fixture.policy("echo new > .git/HEAD; echo evil > .git/config");
    policy.write_access = WriteAccess::WorkspaceWithGit;
    let running = prepare(&policy, &partial()).unwrap();
    let finished = running.start(Box::new(|_, _| {})).unwrap().wait(None, None);
    assert_eq!(std::fs::read_to_string(git.join("HEAD")).unwrap(), "new\n");
    assert_eq!(
        std::fs::read_to_string(git.join("config")).unwrap(),
        "[core]\n"
    );
    let changed = finished
        .violations
        .iter()
        .any(|found| found.target == ".git/config was changed");
    assert!(changed, "{:?}", finished.violations);
}

#[test]
fn partial_confinement_closes_the_internet_and_keeps_its_watcher() {
    let fixture = Fixture::new();
    let script = "kill -9 $PPID; sleep 0.1; echo x > /dev/udp/127.0.0.1/9 && echo sent; sleep 77777 & echo on";
    let (_, finished, text) = fixture.run(script, &partial());
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.contains("on\n") && !text.contains("sent"), "{text}");
    assert!(
        finished
            .violations
            .iter()
            .any(|violation| violation.target == "socket(AF_INET)"),
        "{text}"
    );
}

#[test]
fn less_than_that_runs_nothing_and_says_why() {
    let fixture = Fixture::new();
    for missing in [
        partial().without(Feature::Landlock),
        here().without(Feature::Seccomp),
        here()
            .without(Feature::UserNamespaces)
            .without(Feature::Landlock),
    ] {
        assert_eq!(missing.level(), Level::None);
        let error = prepare(&fixture.policy("touch ran"), &missing).unwrap_err();
        assert!(
            matches!(&error, LaunchError::Unavailable { reason } if reason.contains("switched off")),
            "{error}"
        );
        assert!(!fixture.at("home/work/ran").exists());
    }
}

#[test]
fn switched_off_is_reported_as_nothing_at_all() {
    let fixture = Fixture::new();
    let mut policy = fixture.policy("touch ran");
    policy.mode = Mode::Off {
        reason: "user configuration".into(),
    };
    let nothing = partial().without(Feature::Landlock);
    let confined = prepare(&policy, &nothing).unwrap();
    let report = confined.report().unwrap().clone();
    assert_eq!(
        (report.level, report.layers.as_slice()),
        (Level::None, &[][..])
    );
    assert_eq!(report.notes, ["switched off: user configuration"]);
    assert_eq!(
        confined
            .start(Box::new(|_, _| {}))
            .unwrap()
            .wait(None, None)
            .status,
        ExitStatus::Code(0)
    );
    assert!(fixture.at("home/work/ran").exists());
}

/// Set for the run of the test below that has no user namespaces.
const INSIDE: &str = "SANDBOX_TEST_NO_USER_NAMESPACES";

#[test]
fn user_namespaces_that_are_really_gone_are_noticed() {
    if std::env::var_os(INSIDE).is_some() {
        let capabilities = here();
        let reason = capabilities.user_namespaces.clone().unwrap_err();
        assert!(reason.contains("enter namespaces"), "{reason}");
        // Bubblewrap cannot make any either, and trying showed it.
        assert_eq!(
            capabilities.level(),
            Level::Partial,
            "{:?}",
            capabilities.reasons()
        );
        check(Level::Partial, &capabilities);
        return;
    }
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" --exact user_namespaces_that_are_really_gone_are_noticed --nocapture";
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "bash", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// A plain directory stands for a delegated group: what would be written to the kernel stays in it.
#[test]
fn a_delegated_control_group_holds_the_command_before_it_runs() {
    let fixture = Fixture::new();
    let groups = fixture.at("groups");
    std::fs::create_dir(&groups).unwrap();
    let delegated = Capabilities {
        cgroup: Ok(groups.clone()),
        ..here()
    };
    let confined = prepare(&fixture.policy("echo fine > file"), &delegated).unwrap();
    let report = confined.report().unwrap();
    assert!(report.layers.contains(&Layer::ControlGroup), "{report:?}");
    assert!(report.limits.contains(&("processes", 1024)));
    let made = std::fs::read_dir(&groups).unwrap().next().unwrap().unwrap();
    let read = |name: &str| std::fs::read_to_string(made.path().join(name)).unwrap();
    let pid: u32 = read("cgroup.procs").parse().unwrap();
    assert!(PathBuf::from(format!("/proc/{pid}")).exists());
    assert_eq!(read("pids.max"), "1025");
    assert_eq!(read("memory.max"), (8_u64 << 30).to_string());
    assert_eq!(read("memory.oom.group"), "1");
    assert!(!fixture.at("home/work/file").exists(), "it ran too early");

    let running = confined.start(Box::new(|_, _| {})).unwrap();
    assert_eq!(running.pid(), pid);
    assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
    drop(running);
    assert_eq!(read("cgroup.kill"), "1", "nothing is left inside");
    assert!(fixture.at("home/work/file").exists());
}

#[test]
fn a_control_group_that_cannot_be_made_runs_nothing_and_none_is_claimed_without() {
    let fixture = Fixture::new();
    let broken = Capabilities {
        cgroup: Ok(fixture.at("not-there")),
        ..here()
    };
    let refused = prepare(&fixture.policy("echo fine > file"), &broken).unwrap_err();
    assert!(
        matches!(&refused, LaunchError::Step { step, .. } if step == "make a control group"),
        "{refused}"
    );
    assert!(!fixture.at("home/work/file").exists());

    let (report, _, _) = fixture.run("true", &here().without(Feature::Cgroup));
    assert!(!report.layers.contains(&Layer::ControlGroup));
}
