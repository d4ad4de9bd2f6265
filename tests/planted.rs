//! Names that make something run later, put into the project by commands that somebody allowed, and other
//! traps that a project can hold.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use agent_test_support::project::TestProject;
use agent_test_support::run::Run;
use serde_json::json;

use crate::conversation::{ALLOWED, Conversation, bash, wait_for};
use crate::permissions::explain_in;
use crate::{agent, sample};

/// Waits for something that another process does.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::yield_now();
    }
}

const NAMES: &[&str] = &[
    ".agent/config.local.toml",
    ".bashrc",
    ".cargo/config.toml",
    ".circleci/config.yml",
    ".claude/settings.json",
    ".config/fish/config.fish",
    ".config/mise/config.toml",
    ".cursorrules",
    ".dir-locals.el",
    ".envrc",
    ".exrc",
    ".gemini/settings.json",
    ".githooks/pre-commit",
    ".github/actions/x/action.yml",
    ".github/workflows/x.yml",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".hg/hgrc",
    ".husky/pre-commit",
    ".idea/workspace.xml",
    ".jj/repo/config.toml",
    ".junie/guidelines.md",
    ".kiro/x",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".qwen/x",
    ".roo/rules",
    ".travis.yml",
    ".vscode/tasks.json",
    ".windsurfrules",
    ".yarnrc.yml",
    ".zshrc",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    "Jenkinsfile",
    "WARP.md",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "lefthook.yml",
    "mise.local.toml",
    "mise.toml",
    "packages/a/.npmrc",
    "packages/a/.cargo/config.toml",
    "packages/a/AGENTS.md",
    "packages/a/mise.toml",
    "packages/a/.hg/hgrc",
    "Agents.MD",
];

/// What package managers bring along, and nobody reads where it is.
const LEFT: &[&str] = &[
    "node_modules/x/.travis.yml",
    "node_modules/x/.npmrc",
    "node_modules/x/AGENTS.md",
    "vendor/y/.github/workflows/ci.yml",
    "docs/.vscode/settings.json",
    "target/debug/.cargo/config.toml",
    "src/agents.rs",
    ".github/CODEOWNERS",
];

#[test]
fn what_scripts_plant_is_taken_away_in_every_mode() {
    for mode in ["auto", "full"] {
        let project = TestProject::new();
        let all: Vec<&str> = NAMES.iter().chain(LEFT).copied().collect();
        project.write("names", all.join("\n") + "\n");
        project.write(
            "plant",
            "while read -r name; do mkdir -p \"$(dirname \"$name\")\"; echo planted > \"$name\"; done < names\n",
        );
        let input = json!({"command": "sh plant", "description": "a test"}).to_string();
        let ran = agent(&project, &["call", "--mode", mode, "bash", &input]).finish();
        for name in NAMES {
            let there = fs::read_to_string(project.root().join(name)).unwrap_or_default();
            assert_eq!(there, "", "{name}\n{}", ran.stdout());
        }
        for name in LEFT {
            assert_eq!(project.read(name), "planted\n", "{name}");
        }
        assert!(ran.stdout().contains("protected"), "{}", ran.stdout());
    }
}

#[test]
fn what_is_there_cannot_be_changed_by_scripts() {
    let project = TestProject::new();
    for name in NAMES.iter().filter(|name| !name.starts_with(".agent")) {
        project.write(name, "own\n");
    }
    project.write("names", NAMES.join("\n") + "\n");
    project.write(
        "change",
        "while read -r name; do echo changed > \"$name\"; rm -f \"$name\"; done < names\n",
    );
    let input = json!({"command": "sh change", "description": "a test"}).to_string();
    let _ = agent(&project, &["call", "--mode", "full", "bash", &input]).finish();
    for name in NAMES.iter().filter(|name| !name.starts_with(".agent")) {
        assert_eq!(project.read(name), "own\n", "{name}");
    }
}

/// A command that goes on plants, is found out, and goes on.
#[test]
fn a_background_command_does_not_keep_what_it_plants() {
    let project = TestProject::new();
    let mut talk = Conversation::start(&project, ALLOWED);
    let command = "mkdir -p .vscode; echo {} > .vscode/tasks.json; echo x > .envrc; touch planted; \
                   while :; do [ -e again ] && [ ! -e .exrc ] && echo x > .exrc && touch done; sleep 0.05; done";
    let input = json!({"command": command, "description": "a server", "background": true});
    let started = talk.call("bash", input);
    let process = started["facts"]["data"]["process_id"].clone();
    wait_for(&project.root().join("planted"));
    let at = |name: &str| project.root().join(name);
    until("the first are taken away", || {
        !at(".envrc").exists() && !at(".vscode").exists()
    });
    // What somebody allowed a tool to write stays.
    let wrote = talk.call("write", json!({"path": "AGENTS.md", "content": "ours\n"}));
    assert_eq!(wrote["ok"], true, "{wrote}");
    project.write("again", "");
    wait_for(&at("done"));
    until("the next is taken away", || !at(".exrc").exists());
    assert_eq!(project.read("AGENTS.md"), "ours\n");
    let still = talk.call("process_output", json!({"process_id": process}));
    assert_eq!(
        still["facts"]["data"]["process_status"], "running",
        "{still}"
    );
    let ended = talk.call("process_kill", json!({"process_id": process}));
    assert_eq!(ended["ok"], true, "{ended}");
    assert_eq!(project.read("AGENTS.md"), "ours\n");
    talk.end();
}

fn fifo(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
}

/// Nobody writes into it, so that reading would wait for ever.
#[test]
fn settings_that_are_no_file_are_refused_at_once() {
    for name in [".agent/config.toml", ".agent/config.local.toml"] {
        let project = TestProject::new();
        fifo(&project.root().join(name));
        let ran = agent(&project, &["config", "show"]).finish().expect_code(2);
        assert!(
            ran.stderr().contains("not a regular file"),
            "{}",
            ran.stderr()
        );
    }
}

#[test]
fn a_log_that_is_no_file_is_not_called_intact() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample").to_string();
    let log = project
        .root()
        .join(format!(".agent/sessions/{id}/events.jsonl"));
    fs::remove_file(&log).unwrap();
    let missing = agent(&project, &["audit"]).finish();
    assert_ne!(missing.code(), 0, "{}", missing.stdout());
    assert!(
        !missing.stdout().contains("no anchor says"),
        "{}",
        missing.stdout()
    );
    fifo(&log);
    let ran = agent(&project, &["audit"]).finish();
    assert_ne!(ran.code(), 0, "{}", ran.stdout());
    assert!(!ran.stdout().contains("no anchor says"), "{}", ran.stdout());
    let one = agent(&project, &["audit", &id]).finish();
    assert_ne!(one.code(), 0, "{}", one.stdout());
}

#[test]
fn undo_gives_no_file_its_owners_rights() {
    let project = TestProject::new();
    project.write("tool", "#!/bin/sh\n");
    let tool = project.root().join("tool");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut talk = Conversation::start(&project, ALLOWED);
    let removed = bash(&mut talk, "rm tool");
    assert_eq!(removed["ok"], true, "{removed}");
    talk.end();
    let _ = agent(&project, &["undo", "--yes"]).finish().expect_code(0);
    assert_eq!(fs::metadata(&tool).unwrap().mode() & 0o7777, 0o755);
}

/// A session that came with the repository puts nothing at a name that makes something run.
#[test]
fn undo_of_a_foreign_session_leaves_protected_names_alone() {
    let project = TestProject::new();
    project.write(".envrc", "echo theirs\n");
    project.write("a.txt", "theirs\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    for path in [".envrc", "a.txt"] {
        talk.call("read", json!({ "path": path }));
        let edit = json!({"path": path, "old_string": "theirs", "new_string": "ours"});
        let edited = talk.call("edit", edit);
        assert_eq!(edited["ok"], true, "{edited}");
    }
    talk.end();
    fs::remove_dir_all(project.home().join("state")).unwrap();
    let ran = agent(&project, &["undo", "--yes"]).finish();
    assert_ne!(ran.code(), 0, "{}", ran.stdout());
    assert!(ran.stdout().contains("no anchor"), "{}", ran.stdout());
    assert_eq!(project.read(".envrc"), "echo ours\n");
    assert_eq!(project.read("a.txt"), "theirs\n");
}

#[test]
fn untracked_files_count_whatever_the_repository_says() {
    let project = TestProject::new();
    let prepared = std::process::Command::new("sh")
        .args([
            "-ec",
            "rm -rf .git; git init -q .; git config status.showUntrackedFiles no; echo x > mine",
        ])
        .current_dir(project.root())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .status();
    assert!(prepared.unwrap().success());
    let said = explain_in(&project, "full", "git clean -fd");
    assert_eq!(said["decision"], "ask", "{said}");
    fs::remove_file(project.root().join("mine")).unwrap();
    let said = explain_in(&project, "full", "git clean -fd");
    assert_eq!(said["decision"], "allow", "{said}");
}

#[test]
fn a_file_with_further_names_is_asked_about() {
    let project = TestProject::new();
    project.write("notes.txt", "one\n");
    let outside = project.home().join("outside.txt");
    fs::hard_link(project.root().join("notes.txt"), &outside).unwrap();
    let mut talk = Conversation::start(&project, &["--mode", "accept-edits"]);
    let wrote = talk.call("write", json!({"path": "new.txt", "content": "x\n"}));
    assert_eq!(wrote["ok"], true, "{wrote}");
    talk.call("read", json!({"path": "notes.txt"}));
    let edit = json!({"path": "notes.txt", "old_string": "one", "new_string": "two"});
    let edited = talk.call("edit", edit);
    assert_eq!(edited["phase"], "permission", "{edited}");
    let redirected = bash(&mut talk, "echo two > notes.txt");
    assert_eq!(redirected["phase"], "permission", "{redirected}");
    talk.end();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "one\n");
}

/// On a terminal a program could move the cursor and hide what it says; in a pipe its bytes are its own.
#[test]
fn a_confined_program_cannot_write_to_the_terminal_as_it_likes() {
    let project = TestProject::new();
    let text = r"printf 'a\033[2Jb\342\200\256c\n'";
    let raw = agent(&project, &["sandbox", "run", "--", "sh", "-c", text]);
    let raw = raw.finish().expect_code(0);
    assert_eq!(raw.stdout(), "a\u{1b}[2Jb\u{202e}c\n");
    let terminal =
        "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let shown = Run::new("python3", &project)
        .args(["-c", terminal, env!("CARGO_BIN_EXE_agent")])
        .args(["sandbox", "run", "--", "sh", "-c", text])
        .finish()
        .expect_code(0);
    let shown = shown.stdout();
    assert!(shown.contains(r"a\x1b[2Jb\u{202e}c"), "{shown:?}");
}

#[test]
fn invisible_characters_leave_only_as_escapes() {
    let project = TestProject::new();
    let hidden = ['\u{ad}', '\u{180e}', '\u{e0041}', '\u{202e}'];
    let text: String = hidden.iter().collect();
    project.write("a.txt", format!("x{text}y\n"));
    let mut talk = Conversation::start(&project, ALLOWED);
    let read = bash(&mut talk, "cat a.txt");
    assert_eq!(read["ok"], true, "{read}");
    let wrote = talk.call(
        "write",
        json!({"path": format!("b{text}.txt"), "content": text}),
    );
    assert!(wrote["phase"].is_string());
    talk.end();
    for format in ["jsonl", "portable"] {
        let ran = agent(&project, &["export", "last", "--format", format]).finish();
        let said = ran.expect_code(0).stdout();
        assert!(!said.contains(hidden), "{format}: {said}");
    }
    let list = agent(&project, &["tools", "--json"]).finish();
    assert!(!list.stdout().contains(hidden));
}
