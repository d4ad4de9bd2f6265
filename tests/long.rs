//! Sessions that are too long to be held in memory or to wait for: what is made of them grows with
//! what is shown, not with the log.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use agent_protocol::id::SessionId;
use agent_protocol::payload::conversation::{ArtifactKind, SessionUpdated};
use agent_protocol::payload::process::ProcessOutput;
use agent_protocol::{Event, Refs, Scope};
use agent_test_support::bench::memory;
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use sha2::{Digest as _, Sha256};

use crate::screen::terminal::Terminal;
use crate::{agent, sample};

const MEGABYTE: u64 = 1 << 20;
/// Room for what a process takes besides: far less than the logs here, more than chance.
const ROOM: u64 = 8 * MEGABYTE;

/// A session of one turn, then `bytes` of output of a command, then another turn.
fn long_session(project: &TestProject, bytes: u64) -> SessionId {
    let writer = sample::begin(project, 1, "long");
    sample::turn(&writer);
    let id = writer.session_id().clone();
    let log = writer.log_path().to_owned();
    drop(writer);
    lengthen(&log, bytes, 4_000);
    let directory = agent_log::SessionDirectory::at(log.parent().unwrap()).unwrap();
    let writer = directory
        .open_writer(sample::session_env(project, 2))
        .unwrap()
        .writer;
    sample::turn(&writer);
    sample::end(&writer);
    id
}

/// Adds lines that follow from those before, as a writer would; each shows `words` words.
fn lengthen(log: &Path, bytes: u64, words: usize) {
    let text = std::fs::read_to_string(log).unwrap();
    let mut last = text.lines().last().unwrap().as_bytes().to_vec();
    let mut event = Event::from_line(&last).unwrap();
    let mut file = OpenOptions::new().append(true).open(log).unwrap();
    let mut added = 0;
    let mint =
        agent_protocol::id::IdMint::new(sample::session_env(&TestProject::new(), 9).clock, 9);
    event.scope = Scope::default();
    while added < bytes {
        let output = ProcessOutput {
            process_id: mint.mint(),
            offset: added,
            bytes: 32_000,
            preview: Some(format!("{added} ").repeat(words)),
            ..ProcessOutput::default()
        };
        event = Event {
            event_id: mint.mint(),
            sequence: event.sequence + 1,
            payload: output.into(),
            prev: format!("sha256:{}", hex(&Sha256::digest(&last))),
            ..event
        };
        last = event.to_line().unwrap();
        file.write_all(&last).unwrap();
        file.write_all(b"\n").unwrap();
        added += last.len() as u64 + 1;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The most memory a process has had so far, but for pages of files, of which the kernel maps as many as it has at
/// hand; nothing when it has ended.
fn peak(pid: impl ToString) -> Option<u64> {
    let pid = pid.to_string();
    Some(memory(&pid, "VmHWM:")?.saturating_sub(memory(&pid, "RssFile:")?))
}

/// The most memory that packing the last session took, and the bytes of the pack. The process waits with every
/// piece until it is taken, so that it is looked at to its end.
fn pack(project: &TestProject) -> (u64, u64) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["export", "last", "--format", "evidence"])
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let (mut most, mut packed) = (None, 0);
    let mut piece = [0; 16 * 1024];
    loop {
        let count = out.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        most = most.max(peak(child.id()));
        packed += count as u64;
    }
    assert!(child.wait().unwrap().success());
    (most.unwrap(), packed)
}

/// A project whose last session has a log of `log` bytes and an artifact of `artifact` bytes.
fn with_evidence(log: u64, artifact: u64) -> TestProject {
    let project = TestProject::new();
    let id = long_session(&project, log);
    let directory = project.root().join(format!(".agent/sessions/{id}"));
    let session = agent_log::SessionDirectory::at(&directory).unwrap();
    let writer = session
        .open_writer(sample::session_env(&project, 3))
        .unwrap()
        .writer;
    // Bytes that do not become fewer by being packed.
    let mut large = Vec::new();
    for number in 0..(artifact / 32) {
        large.extend_from_slice(&Sha256::digest(number.to_le_bytes()));
    }
    let scope = Scope::default();
    let media_type = "application/octet-stream";
    writer
        .put_artifact(&scope, ArtifactKind::Other, media_type, &large, None)
        .unwrap();
    writer
        .append(&scope, SessionUpdated::default(), Refs::default())
        .unwrap();
    project
}

#[test]
fn a_pack_is_written_piece_by_piece() {
    let (least, _) = pack(&with_evidence(0, MEGABYTE));
    let (most, packed) = pack(&with_evidence(8 * MEGABYTE, 16 * MEGABYTE));
    assert!(packed > 16 * MEGABYTE, "{packed}");
    assert!(
        most < least + ROOM,
        "{most} bytes of memory for 24 MB of evidence, {least} for one"
    );
}

#[test]
fn a_log_is_played_piece_by_piece() {
    let play = |project: &TestProject| {
        let mut terminal = Terminal::start(project, &["replay", "last"], (100, 30));
        terminal
            .wait_for("· turn.submitted ·")
            .keys("G")
            .wait_for("20 lines")
            .wait_for("(100%) · session.updated");
        let most = peak(terminal.pid()).unwrap();
        terminal.keys("q");
        assert_eq!(terminal.exit_code(), 0);
        most
    };
    let small = TestProject::new();
    sample::session(&small, 1, "small");
    let project = TestProject::new();
    long_session(&project, 24 * MEGABYTE);
    let (least, most) = (play(&small), play(&project));
    assert!(
        most < least + ROOM,
        "{most} bytes of memory, {least} for a small one"
    );
}

#[test]
fn a_long_session_goes_on_with_all_it_knew() {
    let server = ModelServer::start(Script::new().turn(Turn::text("Going on.")));
    let project = TestProject::new();
    project.write_home(
        "config.toml",
        format!(
            "model = \"local/m\"\n[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\n",
            server.base_url(Wire::Chat)
        ),
    );
    long_session(&project, 4 * MEGABYTE);
    let mut terminal = Terminal::start(&project, &["resume", "last"], (100, 30));
    terminal
        .wait_for("what is in the file?")
        .wait_for("Ask for something")
        .keys("Go on.\r")
        .wait_for("Going on.");
    terminal.keys("/quit\r");
    assert_eq!(terminal.exit_code(), 0);
    let sent = String::from_utf8(server.requests()[0].body.clone()).unwrap();
    assert_eq!(sent.matches("what is in the file?").count(), 2, "{sent}");
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

/// The most memory that `agent` with these arguments took to print everything, and the bytes it printed.
fn printing(project: &TestProject, arguments: &[&str]) -> (u64, u64) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(arguments)
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let (mut most, mut printed) = (None, 0);
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = out.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        most = most.max(peak(child.id()));
        printed += count as u64;
    }
    assert!(child.wait().unwrap().success());
    (most.unwrap(), printed)
}

/// Both forms are read again while they are written: what they take does not grow with the log.
#[test]
fn fifty_thousand_events_are_told_piece_by_piece() {
    let project = TestProject::new();
    let writer = sample::begin(&project, 1, "long");
    (0..300).for_each(|_| sample::turn(&writer));
    writer.sync().unwrap();
    let log = writer.log_path().to_owned();
    drop(writer);
    lengthen(&log, 50 * MEGABYTE, 80);
    let lines = std::fs::read(&log).unwrap();
    let lines = lines.iter().filter(|byte| **byte == b'\n').count();
    assert!(lines >= 50_000, "{lines}");
    for form in ["json", "html"] {
        let (most, printed) = printing(&project, &["replay", "last", "--format", form]);
        assert!(printed > 40 * MEGABYTE, "{form}: {printed}");
        assert!(most <= 64 * MEGABYTE, "{form}: {} MiB", most / MEGABYTE);
        println!(
            "{form}: {} MiB for {} MB",
            most / MEGABYTE,
            printed / 1_000_000
        );
    }
}
