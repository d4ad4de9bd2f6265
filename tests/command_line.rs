//! Properties of every command: help, version, errors, colours, closed pipes.

use std::io::Read as _;
use std::process::{Command, Stdio};

use agent_test_support::project::TestProject;

use crate::agent;

#[test]
fn version_and_help_are_answers() {
    let project = TestProject::new();
    let version = agent(&project, &["--version"]).finish().expect_code(0);
    assert_eq!(
        version.stdout(),
        format!("agent {}\n", env!("CARGO_PKG_VERSION"))
    );
    let help = agent(&project, &["--help"]).finish().expect_code(0);
    assert!(help.stdout().contains("Exit codes:"), "{}", help.stdout());
}

/// Nothing is read or written for them, whatever state the configuration is in.
#[test]
fn version_needs_no_home() {
    let project = TestProject::new();
    project.write_home("config.toml", "not toml");
    let run = agent(&project, &["--version"])
        .env("AGENT_HOME", "")
        .env("HOME", "");
    run.finish().expect_code(0);
}

#[test]
fn bad_usage_is_exit_2() {
    let project = TestProject::new();
    agent(&project, &["no-such-command"])
        .finish()
        .expect_code(2);
    agent(&project, &["config", "show", "--no-such-flag"])
        .finish()
        .expect_code(2);
    agent(&project, &[]).finish().expect_code(2);
    let run = agent(&project, &["config", "show", "-C", "nowhere"])
        .finish()
        .expect_code(2);
    assert!(
        run.stderr().starts_with("error: cannot work in `"),
        "{}",
        run.stderr()
    );
}

#[test]
fn every_help_page_fits_80_columns() {
    let project = TestProject::new();
    let commands = [
        vec!["--help"],
        vec!["config", "--help"],
        vec!["config", "show", "--help"],
        vec!["config", "trust", "--help"],
        vec!["completions", "--help"],
        vec!["permissions", "--help"],
        vec!["permissions", "explain", "--help"],
        vec!["permissions", "list", "--help"],
        vec!["permissions", "test", "--help"],
        vec!["why", "--help"],
    ];
    for arguments in commands {
        let help = agent(&project, &arguments)
            .env("COLUMNS", "80")
            .finish()
            .expect_code(0);
        for line in help.stdout().lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}");
        }
    }
}

#[test]
fn colours_are_for_terminals_and_those_who_ask() {
    let project = TestProject::new();
    let plain = agent(&project, &["config", "show"]).finish().expect_code(0);
    assert!(!plain.stdout().contains('\u{1b}'), "{}", plain.stdout());
    let asked = agent(&project, &["config", "show", "--color", "always"])
        .finish()
        .expect_code(0);
    assert!(asked.stdout().contains("\u{1b}["), "{}", asked.stdout());
}

/// `agent … | head -1` ends quietly, as other tools do.
#[test]
fn a_closed_pipe_is_no_error() {
    let project = TestProject::new();
    // Closed before the first byte, whoever is quicker.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["completions", "bash"])
        .current_dir(project.root())
        .env("AGENT_HOME", project.home())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut complaints = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaints)
        .unwrap();
    assert_eq!(complaints, "");
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn every_shell_has_a_completion_script() {
    let project = TestProject::new();
    for (shell, part) in [
        ("bash", "complete -o default"),
        ("zsh", "#compdef agent"),
        ("fish", "complete -c agent"),
        ("elvish", "config"),
        ("powershell", "config"),
    ] {
        let script = agent(&project, &["completions", shell])
            .finish()
            .expect_code(0);
        assert!(script.stdout().contains(part), "{shell}");
    }
}

#[test]
fn man_pages_are_written() {
    let project = TestProject::new();
    agent(&project, &["man", "man1"]).finish().expect_code(0);
    let page = project.read("man1/agent-config-show.1");
    assert!(page.contains("origin"), "{page}");
}

#[test]
fn a_mistyped_command_is_no_prompt() {
    let project = TestProject::new();
    let run = agent(&project, &["sesions"]).finish().expect_code(2);
    assert!(
        run.stderr().contains("did you mean `agent sessions`?"),
        "{}",
        run.stderr()
    );
    assert!(!project.root().join(".agent").exists());
}
