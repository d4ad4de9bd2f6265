//! `agent sandbox`: what holds here, and programs that run in it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use agent_test_support::project::TestProject;
use agent_test_support::run::Ran;

use crate::{agent, assert_schema};

fn confined(project: &TestProject, options: &[&str], command: &[&str]) -> Ran {
    let all = [&["sandbox", "run"], options, &["--"], command].concat();
    agent(project, &all).finish()
}

fn script(project: &TestProject, options: &[&str], text: &str) -> Ran {
    confined(project, options, &["sh", "-c", text])
}

/// Whether any directory of a run is left below `place`.
fn leftovers(place: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("proc_") {
            found.push(name);
        } else {
            found.extend(leftovers(&entry.path()));
        }
    }
    found
}

#[test]
fn the_check_has_its_published_shape_and_says_what_happens() {
    let project = TestProject::new();
    let ran = agent(&project, &["sandbox", "check", "--json"]).finish();
    let report = ran.json();
    assert_schema("sandbox-check", &report);
    let expected = if report["commands"] == "refused" {
        6
    } else {
        0
    };
    let ran = ran.expect_code(expected);
    for layer in report["layers"].as_array().unwrap() {
        let explained = layer["present"] == true || layer["detail"].is_string();
        assert!(explained, "{}", ran.stdout());
    }
    let text = agent(&project, &["sandbox", "check"]).finish().stdout();
    assert!(text.contains(report["level"].as_str().unwrap()), "{text}");
    assert_eq!(fs::read_dir(project.home()).unwrap().count(), 0);
}

#[test]
fn a_sandbox_that_is_switched_off_is_said_to_be() {
    let project = TestProject::new();
    project.write_home("config.toml", "sandbox = \"off\"\n");
    let check = agent(&project, &["sandbox", "check", "--json"]).finish();
    let report = check.expect_code(0).json();
    assert_eq!(
        (&report["mode"], &report["commands"]),
        (&"off".into(), &"unconfined".into())
    );
    let ran = confined(&project, &[], &["true"]).expect_code(0);
    assert!(ran.stderr().contains("not confined"), "{}", ran.stderr());
}

#[test]
fn streams_and_exit_codes_are_passed_on_and_nothing_stays() {
    let project = TestProject::new();
    let ran = script(&project, &[], "echo out; echo err >&2; exit 7").expect_code(7);
    assert_eq!(
        (ran.stdout().as_str(), ran.stderr().as_str()),
        ("out\n", "err\n")
    );
    let _ = script(&project, &[], "kill -TERM $$").expect_code(143);
    assert_eq!(leftovers(&project.home()), [""; 0]);
}

#[test]
fn arguments_are_no_script() {
    let project = TestProject::new();
    let ran = confined(&project, &[], &["echo", "a; exit 3", "$HOME"]).expect_code(0);
    assert_eq!(ran.stdout(), "a; exit 3 $HOME\n");
    let ran = confined(&project, &[], &["no-such-program --at-all"]).expect_code(127);
    assert!(ran.stderr().contains("nothing was run"), "{}", ran.stderr());
    let _ = agent(&project, &["sandbox", "run"]).finish().expect_code(2);
}

#[test]
fn the_project_can_be_written_and_the_rest_cannot() {
    let project = TestProject::new();
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = outside.path().join("file");
    let text = format!("echo in > inside; echo out > '{}'", file.display());
    let ran = script(&project, &[], &text);
    assert_ne!(ran.code(), 0);
    assert!(!file.exists());
    assert_eq!(project.read("inside"), "in\n");
    let told = ran.stderr();
    assert!(
        told.contains("note: the sandbox may have refused: write"),
        "{told}"
    );
    assert!(told.contains("permitted by sandbox.writable"), "{told}");
}

#[test]
fn read_only_holds_for_the_project_too() {
    let project = TestProject::new();
    project.write("old", "old\n");
    let ran = script(&project, &["--read-only"], "cat old; echo new > new");
    assert_ne!(ran.code(), 0);
    assert_eq!(ran.stdout(), "old\n");
    assert!(!project.root().join("new").exists());
}

#[test]
fn home_and_what_rules_deny_are_hidden() {
    let project = TestProject::new();
    project.write_home("key", "secret-of-home");
    project.write("secret.txt", "secret-of-project");
    project.write("open.txt", "open\n");
    project.write_home(
        "config.toml",
        "[permissions]\ndeny = [\"read(secret.txt)\"]\n",
    );
    let key = project.home().join("key");
    let text = format!("cat '{}' secret.txt open.txt", key.display());
    let ran = script(&project, &[], &text);
    assert_ne!(ran.code(), 0);
    assert_eq!(ran.stdout(), "open\n");
}

#[test]
fn the_network_is_there_only_when_asked_for() {
    let project = TestProject::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    let bash = ["bash", "-c", &text];
    let off = confined(&project, &[], &bash);
    assert_ne!(off.code(), 0);
    assert_eq!(off.stdout(), "");
    let on = confined(&project, &["--network"], &bash).expect_code(0);
    assert_eq!(on.stdout(), "connected\n");
}

#[test]
fn what_is_put_at_a_protected_name_is_moved_and_kept() {
    let project = TestProject::new();
    let ran = script(
        &project,
        &[],
        "mkdir .agent && echo 'x = 1' > .agent/config.toml",
    );
    assert!(!project.root().join(".agent/config.toml").exists());
    let told = ran.stderr();
    assert!(told.contains("is protected"), "{told}");
    assert_eq!(leftovers(&project.home()).len(), 1, "{told}");
}
