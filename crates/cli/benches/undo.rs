//! `agent undo` of 1,000 files beside `git checkout` of the same files, both as a user starts them.
//!
//! `cargo bench -p agent-cli --bench undo`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a failure is the report

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use agent_log::{Holder, Redactor, SessionEnv, SessionStore};
use agent_protocol::id::{ArtifactId, IdMint};
use agent_protocol::payload::conversation::{ArtifactKind, SessionCreated};
use agent_protocol::payload::tool::{ToolIntent, ToolResult, ToolStarted};
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::{Clock, Refs, Scope, Timestamp};
use agent_test_support::bench::{Table, median};
use agent_test_support::project::TestProject;

const FILES: usize = 1_000;
const ROUNDS: usize = 7;

struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

fn name(number: usize) -> String {
    format!("src/module{}/file{number}.txt", number % 20)
}

/// About as long as a source file, and different for each.
fn content(number: usize, version: &str) -> Vec<u8> {
    let line = |at: usize| format!("{version} line {at} of file {number}: {}\n", at * number);
    (0..120).map(line).collect::<String>().into_bytes()
}

fn write_all(project: &TestProject, version: &str) {
    for number in 0..FILES {
        project.write(name(number), content(number, version));
    }
}

/// A session in which each file was edited by a call of its own, or all by a few commands.
fn record(project: &TestProject, by_command: bool) {
    let clock: Arc<dyn Clock> = Arc::new(Ticking(AtomicI64::new(1_794_799_680_000)));
    let env = SessionEnv {
        mint: Arc::new(IdMint::new(Arc::clone(&clock), 1)),
        clock,
        runtime_id: "rt_bench".parse().unwrap(),
        redactor: Arc::new(Redactor::off()),
        anchors: None,
        holder: Holder::default(),
    };
    let store = SessionStore::of_project(&project.root());
    let writer = store.create(SessionCreated::default(), env).unwrap();
    let turn_id = Some(writer.mint());
    let effect = |number: usize| {
        let (before, after) = (content(number, "old"), content(number, "new"));
        let put = |kind, bytes: &[u8]| -> ArtifactId {
            let stored = writer.artifacts().put(bytes).unwrap();
            let scope = Scope::default();
            let binary = "application/octet-stream";
            let kept = writer.record_artifact(&scope, &stored, kind, binary, None);
            kept.unwrap().artifact_id
        };
        let hash = |bytes: &[u8]| {
            use sha2::{Digest as _, Sha256};
            let digest: [u8; 32] = Sha256::digest(bytes).into();
            ArtifactId::from_digest(&digest).hex().to_owned()
        };
        SideEffect {
            kind: SideEffectKind::Modified,
            path: name(number),
            sha256_before: Some(hash(&before)),
            sha256_after: Some(hash(&after)),
            before_ref: Some(put(ArtifactKind::Before, &before)),
            after_ref: (!by_command).then(|| put(ArtifactKind::After, &after)),
            mode_before: Some(0o644),
            mode_after: Some(0o644),
            ..SideEffect::default()
        }
    };
    let size = if by_command { FILES / 4 } else { 1 };
    let numbers: Vec<usize> = (0..FILES).collect();
    for chunk in numbers.chunks(size) {
        let scope = Scope {
            turn_id: turn_id.clone(),
            tool_call_id: Some(writer.mint()),
            ..Scope::default()
        };
        let append = |payload| writer.append(&scope, payload, Refs::default()).unwrap();
        append(agent_protocol::Payload::from(ToolIntent::default()));
        append(ToolStarted::default().into());
        append(
            ToolResult {
                ok: true,
                side_effects: chunk.iter().map(|number| effect(*number)).collect(),
                ..ToolResult::default()
            }
            .into(),
        );
    }
}

fn timed(command: &mut Command) -> Duration {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status().unwrap();
    let taken = began.elapsed();
    assert!(status.success(), "{command:?}");
    taken
}

fn git(root: &Path, arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@localhost"]);
    git.args(arguments).current_dir(root);
    git
}

fn main() {
    let mut table = Table::new("undo");
    for by_command in [false, true] {
        let project = TestProject::new();
        fs::remove_dir(project.root().join(".git")).unwrap();
        write_all(&project, "old");
        let root = project.root();
        timed(&mut git(&root, &["init"]));
        timed(&mut git(&root, &["add", "src"]));
        timed(&mut git(&root, &["commit", "-m", "start"]));
        record(&project, by_command);
        let (session, kept) = (root.join(".agent"), project.home().join("kept"));
        timed(Command::new("cp").arg("-r").arg(&session).arg(&kept));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            write_all(&project, "new");
            theirs.push(timed(&mut git(&root, &["checkout", "--", "."])));
            write_all(&project, "new");
            fs::remove_dir_all(&session).unwrap();
            timed(Command::new("cp").arg("-r").arg(&kept).arg(&session));
            // The anchor remembers the longer log of the round before.
            let _ = fs::remove_dir_all(project.home().join("state"));
            rustix::fs::sync();
            let mut undo = Command::new(env!("CARGO_BIN_EXE_agent"));
            undo.args(["undo", "--yes"]).current_dir(&root);
            undo.env("AGENT_HOME", project.home());
            ours.push(timed(&mut undo));
            assert_eq!(project.read(name(7)).into_bytes(), content(7, "old"));
        }
        let who = if by_command { "commands" } else { "edits" };
        let what = format!("undo of {FILES} files changed by {who}, to `git checkout` of them");
        table.ratio(&what, median(ours), median(theirs), 2.0);
    }
    table.finish();
}
