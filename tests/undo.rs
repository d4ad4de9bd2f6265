//! `agent undo`: what a session did is taken back, or each file that was not is named.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use agent_history::workspace::{Images, PathState, Workspace};
use agent_test_support::project::TestProject;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use crate::files::{
    Conversation, Node, Snapshot, assert_same, bash, calls, difference, edit, last_event,
    more_calls, project, read, session, snapshot, write,
};
use crate::{agent, assert_schema, sample};

fn undo(project: &TestProject, arguments: &[&str], code: i32) -> Value {
    let run = agent(project, &["undo", "--json"]).args(arguments);
    let printed = run.finish().expect_code(code).json();
    assert_schema("undo", &printed);
    printed
}

fn file<'a>(printed: &'a Value, path: &str) -> &'a Value {
    let files = printed["files"].as_array().unwrap();
    let found = files.iter().find(|file| file["path"] == path);
    found.unwrap_or_else(|| panic!("{path} is not in {printed:#}"))
}

fn a_bit_of_everything() -> Vec<Value> {
    vec![
        read("a.txt"),
        edit("a.txt", "two", "2"),
        write("new.txt", "hello\n"),
        bash("rm b.txt; chmod +x run.sh; echo more >> src/main.rs; echo made > made.txt"),
    ]
}

#[test]
fn a_session_is_taken_back_and_the_undo_too() {
    let project = project();
    let start = snapshot(&project);
    calls(&project, &a_bit_of_everything());
    let end = snapshot(&project);
    assert_eq!(difference(&start, &end).len(), 6);
    let before = last_event(&project);

    let printed = undo(&project, &["--yes"], 0);
    assert_same(&snapshot(&project), &start);
    assert_eq!(printed["carried_out"], true);
    assert_eq!(file(&printed, "a.txt")["status"], "restored");
    assert_eq!(file(&printed, "made.txt")["action"], "remove");
    assert_eq!(printed["undone_by"], before);

    agent(&project, &["audit", "last"]).finish().expect_code(0);
    let before = before.to_string();
    undo(&project, &["--yes", "--to", &before], 0);
    assert_same(&snapshot(&project), &end);
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

#[test]
fn nothing_is_written_without_a_yes() {
    let project = project();
    calls(&project, &a_bit_of_everything());
    let (end, events) = (snapshot(&project), last_event(&project));
    let printed = undo(&project, &["--dry-run"], 0);
    assert_eq!(file(&printed, "a.txt")["status"], "planned");
    undo(&project, &[], 3);
    let run = agent(&project, &["undo"]).finish().expect_code(3);
    assert!(
        run.stdout().contains("restore    a.txt"),
        "{}",
        run.stdout()
    );
    assert!(run.stderr().contains("use `--yes`"), "{}", run.stderr());
    assert_same(&snapshot(&project), &end);
    assert_eq!(last_event(&project), events);
}

#[test]
fn what_somebody_else_changed_is_kept_restored_or_put_beside() {
    for (choice, code, content, beside) in [
        (None, 3, "mine\n", None),
        (Some("keep"), 0, "mine\n", None),
        (Some("restore"), 0, "one\ntwo\nthree\n", None),
        (Some("orig"), 0, "one\ntwo\nthree\n", Some("mine\n")),
    ] {
        let project = project();
        calls(&project, &a_bit_of_everything());
        project
            .write("a.txt", "mine\n")
            .write("a.txt.orig", "older\n");
        let before = last_event(&project).to_string();
        let mut arguments = vec!["--yes"];
        arguments.extend(choice.iter().flat_map(|choice| ["--on-conflict", *choice]));
        let printed = undo(&project, &arguments, code);
        let status = &file(&printed, "a.txt")["status"];
        assert_eq!(
            *status,
            if content == "mine\n" {
                "refused"
            } else {
                "restored"
            }
        );
        assert_eq!(project.read("a.txt"), content);
        assert_eq!(project.read("a.txt.orig"), "older\n");
        let orig = project.root().join("a.txt.orig.1");
        assert_eq!(fs::read_to_string(orig).ok().as_deref(), beside);
        assert_eq!(project.read("b.txt"), "beta\n", "the rest is taken back");

        // What was overwritten is in the record, also where it was not the session's.
        if choice == Some("restore") {
            undo(&project, &["--yes", "--to", &before], 0);
            assert_eq!(project.read("a.txt"), "mine\n");
            let theirs = format!("sha256:{}", sha256(b"mine\n")).parse().unwrap();
            let kept = session(&project).artifacts().unwrap().read(&theirs, 100);
            assert_eq!(kept.unwrap(), b"mine\n");
        }
    }
}

/// What an undo put beside a file is the user's: a second undo leaves it, and taking the first one
/// back gives it its own name again.
#[test]
fn what_was_put_beside_is_not_taken_away() {
    let project = project();
    calls(&project, &[read("a.txt"), edit("a.txt", "two", "2")]);
    project.write("a.txt", "mine\n");
    let run = agent(&project, &["undo", "--dry-run"]).finish();
    let told = run.stderr();
    assert!(told.contains("`--on-conflict orig`"), "{told}");
    let before = last_event(&project).to_string();
    let run = agent(&project, &["undo", "--yes", "--on-conflict", "orig"]);
    let run = run.finish().expect_code(0);
    assert!(
        run.stdout().contains("1 path undone\nkept a.txt.orig:"),
        "{}",
        run.stdout()
    );
    let printed = undo(&project, &["--yes", "--on-conflict", "restore"], 0);
    assert_eq!(printed["carried_out"], false);
    assert_eq!(file(&printed, "a.txt.orig")["status"], "kept");
    assert_eq!(project.read("a.txt.orig"), "mine\n");
    undo(&project, &["--yes", "--to", &before], 0);
    assert_eq!(project.read("a.txt"), "mine\n");
    assert!(!project.root().join("a.txt.orig").exists());
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

/// A kill in the middle of an edit: nobody has gone on with the session, and its file is known.
#[test]
fn an_edit_that_was_cut_off_is_taken_back() {
    for is_written in [true, false] {
        let project = project();
        let start = project.read("a.txt");
        calls(&project, &[read("a.txt"), edit("a.txt", "two", "2")]);
        let log = session(&project).log_path();
        let text = fs::read_to_string(&log).unwrap();
        let end = text.rfind("{\"type\":\"tool.result\"").unwrap();
        fs::write(&log, &text[..end]).unwrap();
        fs::remove_dir_all(project.home().join("state/anchors")).unwrap();
        if !is_written {
            project.write("a.txt", &start);
        }
        let printed = undo(&project, &["--yes"], 0);
        let status = if is_written {
            "restored"
        } else {
            "already_restored"
        };
        assert_eq!(file(&printed, "a.txt")["status"], status);
        assert_eq!(project.read("a.txt"), start);
    }
}

/// A kill in the middle of a command: nobody knows what it changed, and the undo does not end as if
/// it had taken that back.
#[test]
fn a_command_that_was_cut_off_is_named_and_the_undo_is_not_done() {
    let project = project();
    let start = project.read("a.txt");
    calls(
        &project,
        &[
            read("a.txt"),
            edit("a.txt", "two", "2"),
            bash("echo x >> b.txt"),
        ],
    );
    let log = session(&project).log_path();
    let text = fs::read_to_string(&log).unwrap();
    let end = text.rfind("{\"type\":\"process.completed\"").unwrap();
    fs::write(&log, &text[..end]).unwrap();
    fs::remove_dir_all(project.home().join("state/anchors")).unwrap();

    undo(&project, &["--dry-run"], 0);
    // The second time nothing is left but what is unknown.
    for carried_out in [true, false] {
        let ran = agent(&project, &["undo", "--yes", "--json"]).finish();
        assert_eq!(ran.code(), 1, "{}", ran.stderr());
        let printed = ran.json();
        assert_eq!(printed["carried_out"], carried_out, "{printed}");
        assert_eq!(printed["gaps"].as_array().unwrap().len(), 1, "{printed}");
        assert!(ran.stderr().contains("are unknown"), "{}", ran.stderr());
        assert_eq!(project.read("a.txt"), start, "what is known is taken back");
    }
}

#[test]
fn one_turn_one_event_one_file() {
    let project = project();
    calls(
        &project,
        &[write("new.txt", "1\n"), bash("echo x >> b.txt")],
    );
    let first_turn = (snapshot(&project), last_event(&project));
    more_calls(
        &project,
        &[write("later.txt", "2\n"), bash("echo y >> b.txt")],
    );
    let end = snapshot(&project);

    // A file that a later turn changed again is not the first turn's to take back.
    let printed = undo(&project, &["--turn", "1", "--dry-run"], 0);
    assert_eq!(file(&printed, "b.txt")["status"], "conflict");
    let reason = file(&printed, "b.txt")["reason"].as_str().unwrap();
    assert!(reason.contains("of this session"), "{reason}");
    assert_eq!(file(&printed, "new.txt")["status"], "planned");

    undo(&project, &["--yes", "--to", &first_turn.1.to_string()], 0);
    assert_same(&snapshot(&project), &first_turn.0);
    let printed = undo(&project, &["--turn", "last", "--dry-run"], 0);
    assert_eq!(
        file(&printed, "new.txt")["status"],
        "planned",
        "one turn further"
    );

    let undone = last_event(&project);
    undo(&project, &["--yes", "--file", "b.txt"], 0);
    assert_eq!(project.read("b.txt"), "beta\n");
    assert_eq!(project.read("new.txt"), "1\n");
    undo(&project, &["--yes", "--to", &undone.to_string()], 0);
    assert_same(&snapshot(&project), &first_turn.0);
    assert_ne!(end, first_turn.0);
    agent(&project, &["undo", "--to", "99999"])
        .finish()
        .expect_code(2);
    agent(&project, &["undo", "--turn", "7"])
        .finish()
        .expect_code(2);
    agent(&project, &["undo", "--file", "/etc/passwd"])
        .finish()
        .expect_code(2);
}

#[test]
fn a_session_in_use_is_left_alone() {
    let project = project();
    let start = snapshot(&project);
    let mut conversation = Conversation::start(&project);
    conversation.call(&write("new.txt", "1\n"));
    let run = agent(&project, &["undo", "--yes"]).finish().expect_code(2);
    assert!(
        run.stderr().contains("is being written by"),
        "{}",
        run.stderr()
    );
    assert_eq!(project.read("new.txt"), "1\n");
    conversation.end();
    undo(&project, &["--yes"], 0);
    assert_same(&snapshot(&project), &start);
}

#[test]
fn a_session_of_another_project_is_named_as_such() {
    let project = project();
    calls(&project, &[bash("echo changed >> src/main.rs")]);
    let session = project.root().join(".agent/sessions");
    let session = fs::read_dir(session)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let other = TestProject::new();
    let asked = ["undo", session.to_str().unwrap(), "--dry-run"];
    let run = agent(&other, &asked).finish().expect_code(2);
    let said = run.stderr();
    assert!(
        said.contains("belongs to another project; nothing was changed"),
        "{said}"
    );
}

#[test]
fn no_link_leads_an_undo_out_of_the_project() {
    let project = project();
    calls(
        &project,
        &[bash("echo changed >> src/main.rs; rm src/deep/data.bin")],
    );
    let outside = project.home().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("main.rs"), "fn main() {}\nchanged\n").unwrap();
    let source = project.root().join("src");
    fs::rename(&source, project.root().join("old")).unwrap();
    symlink(&outside, &source).unwrap();
    let printed = undo(&project, &["--yes", "--on-conflict", "restore"], 1);
    let reason = file(&printed, "src/main.rs")["reason"].as_str().unwrap();
    assert_eq!(reason, "a symbolic link is in the way");
    let kept = fs::read_to_string(outside.join("main.rs")).unwrap();
    assert_eq!(kept, "fn main() {}\nchanged\n");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_log_cannot_name_a_place_that_is_not_the_projects() {
    use agent_protocol::payload::conversation::HistoryRollbackCompleted;
    use agent_protocol::payload::{SideEffect, SideEffectKind};
    use agent_protocol::{Refs, Scope};
    let project = project();
    let writer = sample::begin(&project, 1, "brought along");
    let hook = writer.artifacts().put(b"#!/bin/sh\nevil\n").unwrap();
    let names = [
        "../evil",
        "/tmp/evil",
        ".git/hooks/pre-commit",
        ".agent/config.toml",
        "a/../../b",
    ];
    let forged = names.map(|path| SideEffect {
        kind: SideEffectKind::Deleted,
        path: path.into(),
        before_ref: Some(hook.artifact_id.clone()),
        mode_before: Some(0o755),
        ..SideEffect::default()
    });
    let completed = HistoryRollbackCompleted {
        files_restored: forged.into(),
        ..HistoryRollbackCompleted::default()
    };
    writer
        .append(&Scope::default(), completed, Refs::default())
        .unwrap();
    drop(writer);
    let start = snapshot(&project);
    let printed = undo(&project, &["--yes"], 1);
    for name in names {
        assert_eq!(file(&printed, name)["status"], "refused", "{name}");
    }
    assert_same(&snapshot(&project), &start);
    assert!(!project.root().join(".git/hooks").exists());
}

#[test]
fn a_killed_undo_leaves_whole_files_and_can_be_repeated() {
    let project = TestProject::new();
    let names: Vec<String> = (0..240)
        .map(|number| format!("d{}/f{number}", number % 7))
        .collect();
    for name in &names {
        project.write(name, format!("old {name}\n").repeat(300));
    }
    let start = snapshot(&project);
    let change = |range: std::ops::Range<usize>| {
        let words = names[range].join(" ");
        bash(&format!("for f in {words}; do echo new $f > $f; done"))
    };
    calls(&project, &[change(0..120), change(120..240)]);
    let (end, before) = (snapshot(&project), last_event(&project));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["undo", "--yes"])
        .current_dir(project.root())
        .env("AGENT_HOME", project.home())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let log = session(&project).log_path();
    let begun = |log: &PathBuf| {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.contains("history.rollback.started")
    };
    while !begun(&log) && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let cut = snapshot(&project);
    for name in &names {
        let now = &cut[name];
        assert!(*now == start[name] || *now == end[name], "{name} is torn");
    }
    undo(&project, &["--yes"], 0);
    assert_same(&snapshot(&project), &start);
    undo(&project, &["--yes", "--to", &before.to_string()], 0);
    assert_same(&snapshot(&project), &end);
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

/// Calls that edit, write, and change files by commands, in any order.
fn any_call() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "a.txt",
        "b.txt",
        "src/main.rs",
        "new",
        "src/n2",
        "run.sh",
    ]);
    let text = prop::sample::select(vec!["", "x\n", "lots\nof\nlines\n", "no end"]);
    (0..12_u8, name.clone(), name, text).prop_map(|(kind, name, other, text)| match kind {
        0 => write(name, text),
        1 => edit(name, "x", "y"),
        2 => read(name),
        3 => bash(&format!("printf '{text}' >> {name}")),
        4 => bash(&format!("rm -f {name}")),
        5 => bash(&format!("mv -f {name} {other}")),
        6 => bash(&format!("chmod 755 {name}; chmod 600 {other}")),
        7 => bash(&format!("cp {name} {other}; touch {name}")),
        8 => bash(&format!("printf '{text}' > {name}; exit 3")),
        9 => bash(&format!("rm -f {name}; ln -s {other} {name}")),
        10 => bash(&format!(
            "mkdir -p made/deep; printf '{text}' > made/deep/f; mkdir -p empty"
        )),
        _ => bash("rm -rf made empty src"),
    })
}

fn cases(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20,
        ..Config::default()
    })
}

#[test]
fn any_session_is_taken_back_to_the_byte_or_the_rest_is_named() {
    let sessions = prop::collection::vec(any_call(), 1..9);
    let property = |intents: Vec<Value>| {
        let project = project();
        let start = snapshot(&project);
        calls(&project, &intents);
        let end = snapshot(&project);
        let before = last_event(&project);
        let run = agent(&project, &["undo", "--json", "--yes"]).finish();
        let printed = run.json();
        let refused: Vec<&str> = printed["files"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|file| file["status"] == "refused")
            .filter_map(|file| file["path"].as_str())
            .collect();
        let left = difference(&start, &snapshot(&project));
        let unnamed: Vec<&String> = left
            .iter()
            .filter(|line| {
                !refused
                    .iter()
                    .any(|path| line.starts_with(&format!("{path}:")))
            })
            .collect();
        prop_assert!(unnamed.is_empty(), "{unnamed:#?}\n{printed:#}");
        prop_assert_eq!(run.code() == 0, refused.is_empty());
        if refused.is_empty() {
            let before = before.to_string();
            agent(&project, &["undo", "--yes", "--to", &before])
                .finish()
                .expect_code(0);
            let left = difference(&end, &snapshot(&project));
            prop_assert!(left.is_empty(), "after undoing the undo: {left:#?}");
        }
        Ok(())
    };
    cases(12).run(&sessions, property).unwrap();
}

#[test]
fn the_workspace_rebuilt_at_an_event_is_the_one_there_was() {
    let sessions = prop::collection::vec(any_call(), 3..9);
    let property = |intents: Vec<Value>| {
        let project = project();
        let mut copies = vec![(None, snapshot(&project))];
        let mut conversation = Conversation::start(&project);
        for intent in &intents {
            conversation.call(intent);
            copies.push((Some(last_event(&project)), snapshot(&project)));
        }
        conversation.end();
        let end = snapshot(&project);
        let session = session(&project);
        let workspace = Workspace::read(&session).unwrap();
        let images = Images::new(session.artifacts().unwrap());
        for (sequence, copy) in copies {
            let rebuilt = rebuild(&workspace, &images, &end, sequence);
            let left = difference(&copy, &rebuilt);
            prop_assert!(left.is_empty(), "at {sequence:?}: {left:#?}");
        }
        Ok(())
    };
    cases(10).run(&sessions, property).unwrap();
}

/// The tree after the event `sequence`: what was never touched is as it is now.
fn rebuild(
    workspace: &Workspace,
    images: &Images,
    end: &Snapshot,
    sequence: Option<u64>,
) -> Snapshot {
    let known: BTreeMap<String, &Node> = end
        .values()
        .map(|node| (sha256(&node.bytes), node))
        .collect();
    let mut rebuilt = end.clone();
    for change in workspace.changes() {
        let state = workspace.state_at(&change.path, sequence);
        let bytes = || {
            images.read(&state).unwrap_or_else(|_| {
                // A command's result has no image of its own while it is still on disk.
                let hash = state.content().and_then(|content| content.sha256.clone());
                known[&hash.unwrap()].bytes.clone()
            })
        };
        let node = match &state {
            PathState::Missing => None,
            PathState::File(content) => Some(Node {
                kind: "file",
                mode: content.mode.unwrap(),
                bytes: bytes(),
            }),
            PathState::Symlink(_) => Some(Node {
                kind: "symlink",
                mode: 0,
                bytes: bytes(),
            }),
            PathState::Directory { mode } => Some(Node {
                kind: "directory",
                mode: mode.unwrap(),
                bytes: Vec::new(),
            }),
            other => panic!("{}: {other:?}", change.path),
        };
        match node {
            Some(node) => rebuilt.insert(change.path.to_string(), node),
            None => rebuilt.remove(&*change.path),
        };
    }
    rebuilt
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    agent_protocol::id::ArtifactId::from_digest(&digest)
        .hex()
        .to_owned()
}
