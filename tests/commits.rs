//! Commits in mode auto: they work without a question, and nothing that runs later or that the repository names does.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;
use serde_json::json;

use crate::agent;
use crate::proof::applied;

const AUTHOR: &str = "-c user.name=a -c user.email=a@b";

fn sh(project: &TestProject, script: &str) -> String {
    let ran = std::process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(project.root())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{script}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// A repository with one commit and a change, whose authors are known.
fn repository() -> TestProject {
    let project = TestProject::new();
    project.write("a.txt", "one\n");
    project.write(".gitignore", ".agent/\n");
    sh(
        &project,
        &format!(
            "rm -rf .git; git init -q -b main .; git add .; git {AUTHOR} commit -qm first; \
             git config user.name a; git config user.email a@b; echo two >> a.txt"
        ),
    );
    project
}

fn hook(project: &TestProject, name: &str) {
    let path = format!(".git/hooks/{name}");
    project.write(&path, "#!/bin/sh\ntouch ran\n");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(project.root().join(path), mode).unwrap();
}

fn run(project: &TestProject, mode: &str, command: &str) -> RunOutput {
    let input = json!({"command": command, "description": "a test"}).to_string();
    agent(project, &["call", "--json", "--mode", mode, "bash", &input]).finish()
}

#[track_caller]
fn assert_asks(project: &TestProject, command: &str) {
    let before = sh(
        project,
        "git log --oneline; git stash list; git status --short",
    );
    let ran = run(project, "auto", command);
    let said = ran.stdout() + &ran.stderr();
    assert!(said.contains("approval_unavailable"), "{command}: {said}");
    let after = sh(
        project,
        "git log --oneline; git stash list; git status --short",
    );
    assert_eq!(before, after, "{command}");
}

#[test]
fn a_branch_is_made_committed_to_and_merged_without_a_question() {
    let project = repository();
    let config = fs::read(project.root().join(".git/config")).unwrap();
    for command in [
        "git checkout -b feature && git add -A && git status --short",
        "git commit -m \"$(cat <<'EOF'\nsecond: \"quoted\"\n\nIt's `done`.\nEOF\n)\"",
        "echo three >> a.txt && git stash && git stash pop && git add a.txt && git commit -qm third",
        "git switch -q main && git merge -q --no-edit feature && git tag v1 && git log --oneline",
    ] {
        let ran = run(&project, "auto", command);
        let _ = ran.expect_code(0);
    }
    let log = sh(
        &project,
        "git log --format=%s main; git status --short; git tag",
    );
    assert_eq!(log, "third\nsecond: \"quoted\"\nfirst\nv1\n");
    assert_eq!(
        fs::read(project.root().join(".git/config")).unwrap(),
        config
    );
    assert_eq!(applied(&project).profile_id, "workspace+commits");
}

#[test]
fn a_linked_worktree_is_committed_to() {
    let project = repository();
    sh(
        &project,
        "git worktree add -q wt -b side; echo x > wt/b.txt",
    );
    let ran = run(
        &project,
        "auto",
        "cd wt && git add b.txt && git commit -qm side",
    );
    let _ = ran.expect_code(0);
    assert_eq!(sh(&project, "git log -1 --format=%s side"), "side\n");
}

#[test]
fn hooks_and_programs_that_a_repository_names_are_asked_about_and_run_when_allowed() {
    let project = repository();
    hook(&project, "pre-push");
    hook(&project, "pre-commit");
    let ran = run(&project, "auto", "git add a.txt");
    let _ = ran.expect_code(0);
    assert_asks(&project, "git commit -m x");
    assert_asks(&project, "git merge main");
    assert!(!project.root().join("ran").exists());
    // Somebody who allows it gets what git does.
    let ran = run(&project, "full", "git commit -qm second");
    let _ = ran.expect_code(0);
    assert!(project.root().join("ran").exists());

    for setting in [
        "core.hooksPath .husky",
        "filter.x.clean cat",
        "merge.x.driver true",
        "gpg.program true",
    ] {
        let project = repository();
        sh(&project, &format!("git config {setting}"));
        assert_asks(&project, "git add a.txt && git commit -m x");
    }
}

/// What comes to stand in the way between the decision and the command.
#[test]
fn a_hook_that_appears_too_late_to_be_asked_about_is_not_started() {
    let project = repository();
    // The name leads to a hook of which the gate does not know that a commit starts it.
    fs::create_dir_all(project.root().join("hooks")).unwrap();
    hook(&project, "push-to-checkout");
    let ran = run(
        &project,
        "auto",
        "git add a.txt && git commit -qm second && git rev-parse --git-path hooks",
    );
    let said = ran.expect_code(0).stdout();
    assert!(said.contains("/dev/null"), "{said}");
}

#[test]
fn what_discards_work_or_is_not_understood_is_asked_about() {
    let project = repository();
    sh(
        &project,
        "git branch other; mkdir -p nested && git init -q nested",
    );
    for command in [
        "git reset --hard",
        "git checkout a.txt",
        "git clean -fd",
        "git branch -D other",
        "git update-ref -d refs/heads/other",
        "git commit -q --amend --no-edit",
        "git config user.name x && git commit -qam x",
        "git commit -qam x && sh -c true",
        "git -C nested add .",
        "git gc --prune=now",
    ] {
        assert_asks(&project, command);
    }
}
