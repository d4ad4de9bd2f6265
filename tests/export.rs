//! `agent export`: the log byte by byte, or what others understand.

use std::fs;
use std::path::Path;

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::{agent, assert_schema, sample};

#[test]
fn jsonl_is_the_log_byte_by_byte() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample");
    let log = project.read(format!(".agent/sessions/{id}/events.jsonl"));
    let run = agent(&project, &["export", "last"]).finish().expect_code(0);
    assert_eq!(run.stdout(), log);
    agent(&project, &["export", "last", "-o", "out.jsonl"])
        .finish()
        .expect_code(0);
    assert_eq!(project.read("out.jsonl"), log);
}

#[test]
fn portable_events_follow_the_published_schema() {
    let project = TestProject::new();
    sample::session(&project, 1, "sample");
    let run = agent(&project, &["export", "last", "--format", "portable"]);
    let run = run.finish().expect_code(0);
    let lines: Vec<Value> = run
        .stdout()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.len() > 5);
    assert!(
        lines.iter().all(|line| line["sessionId"].is_string()),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line["type"] != "tool.intent"));

    for line in &lines {
        assert_schema("portable-event", line);
    }

    // Not ours to commit, so it is used where it is present.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let published =
        root.join("../shared/external/agentruntime/schemas/agentruntime-event.schema.json");
    if let Ok(schema) = fs::read_to_string(&published) {
        let schema: Value = serde_json::from_str(&schema).unwrap();
        let validator = jsonschema::options().offline().build(&schema).unwrap();
        for line in &lines {
            let problems: Vec<String> = validator
                .iter_errors(line)
                .map(|error| error.to_string())
                .collect();
            assert!(problems.is_empty(), "{problems:?} in {line}");
        }
    } else {
        println!("the published schema is not here: {}", published.display());
    }
}

#[test]
fn an_export_that_fails_leaves_the_old_file() {
    let project = TestProject::new();
    project.write("out.jsonl", "old");
    agent(&project, &["export", "last", "-o", "out.jsonl"])
        .finish()
        .expect_code(2);
    assert_eq!(project.read("out.jsonl"), "old");
    sample::session(&project, 1, "sample");
    let run = agent(&project, &["export", "last", "-o", "missing/out"])
        .finish()
        .expect_code(2);
    assert!(
        run.stderr().starts_with("error: cannot write `"),
        "{}",
        run.stderr()
    );
}

#[test]
fn a_damaged_log_is_not_exported_silently() {
    let project = TestProject::new();
    let id = sample::session(&project, 1, "sample");
    let log = format!(".agent/sessions/{id}/events.jsonl");
    let text = project.read(&log).replacen("\"type\"", "\"typo\"", 1);
    project.write(&log, text);
    let run = agent(&project, &["export", "last", "--format", "portable"]);
    let run = run.finish().expect_code(1);
    assert!(
        run.stderr()
            .contains("1 line of the log could not be exported"),
        "{}",
        run.stderr()
    );
}

/// A log that cannot be read is a session that cannot be used: 2, as for every other command.
#[test]
fn an_unreadable_log_is_not_exported() {
    for format in ["jsonl", "portable", "evidence", "review"] {
        let project = TestProject::new();
        let id = sample::session(&project, 1, "sample");
        let log = project
            .root()
            .join(format!(".agent/sessions/{id}/events.jsonl"));
        fs::rename(&log, project.root().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(project.root().join("elsewhere"), &log).unwrap();
        project.write("out", "old");
        let arguments = ["export", id.as_str(), "--format", format, "-o", "out"];
        let run = agent(&project, &arguments).finish().expect_code(2);
        assert!(run.stderr().contains("symbolic link"), "{}", run.stderr());
        assert_eq!(project.read("out"), "old");
        agent(&project, &["audit", id.as_str()])
            .finish()
            .expect_code(2);
    }
}

/// The instruction in a pack works where there is no `agent`: with a shell, tar, zstd and sha256sum.
#[test]
fn a_pack_is_checked_with_what_every_system_has() {
    let project = TestProject::new();
    project.write("a.txt", "one\n");
    let input = r#"{"command":"seq 20000; echo two >> a.txt","description":"Much output"}"#;
    agent(&project, &["call", "--mode", "full", "bash", input])
        .finish()
        .expect_code(0);
    let pack = ["export", "last", "--format", "evidence", "-o", "pack"];
    agent(&project, &pack).finish().expect_code(0);
    let unpacked = tempfile::tempdir().unwrap();
    let sh = |script: &str, place: &Path| {
        let mut shell = std::process::Command::new("sh");
        let ran = shell.args(["-c", script]).current_dir(place).output();
        let ran = ran.unwrap();
        (ran.status.success(), String::from_utf8(ran.stdout).unwrap())
    };
    let pack = project.root().join("pack");
    let extract = format!("zstd -dcq {} | tar -xf -", pack.display());
    assert!(sh(&extract, unpacked.path()).0);
    let entry = fs::read_dir(unpacked.path()).unwrap().next().unwrap();
    let place = entry.unwrap().path();
    let readme = fs::read_to_string(place.join("README.txt")).unwrap();
    let begin = readme.find("  hash() {").unwrap();
    let script = &readme[begin..];
    let script = &script[..script.find("\n\n").unwrap()];
    assert!(sh("sha256sum -c --quiet SHA256SUMS", &place).0);
    let (ok, said) = sh(script, &place);
    assert!(ok, "{said}");
    let log = fs::read(place.join("events.jsonl")).unwrap();
    let mut lines = log[..log.len() - 1].rsplit(|byte| *byte == b'\n');
    let hash = sha256(lines.next().unwrap());
    assert_eq!(said, format!("chain whole, last line sha256:{hash}\n"));

    // Damage is found by the same means.
    let artifact = fs::read_dir(place.join("artifacts")).unwrap().next();
    let artifact = artifact.unwrap().unwrap().path();
    let whole = fs::read(&artifact).unwrap();
    fs::write(&artifact, [&whole[..], b"x"].concat()).unwrap();
    assert!(!sh(script, &place).0);
    assert!(!sh("sha256sum -c --quiet SHA256SUMS", &place).0);
    fs::write(&artifact, whole).unwrap();
    let text = String::from_utf8(log).unwrap();
    let changed = text.replacen("\"exit_code\":0", "\"exit_code\":1", 1);
    assert_ne!(changed, text);
    fs::write(place.join("events.jsonl"), changed).unwrap();
    let (ok, said) = sh(script, &place);
    assert!(!ok && said.starts_with("broken: {"), "{said}");
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What was masked because a variable held it is not known to a shell without that variable.
#[test]
fn a_pack_is_not_made_where_a_secret_would_stay_in_it() {
    const TOKEN: &str = "zqx81723hjsdkfhweiuryqwe8r7";
    let project = TestProject::new();
    project.write("tok.txt", format!("tok {TOKEN}\n"));
    let input = json!({"command": "cat tok.txt", "description": "a test"}).to_string();
    let called = agent(&project, &["call", "--mode", "full", "bash", &input])
        .env("MY_SERVICE_TOKEN", TOKEN)
        .finish()
        .expect_code(0);
    assert!(
        called.stdout().contains("[redacted:MY_SERVICE_TOKEN:"),
        "{}",
        called.stdout()
    );
    let arguments = ["export", "last", "--format", "evidence", "-o", "pack"];
    for other in [None, Some("another-value-of-it-82736")] {
        let run = agent(&project, &arguments);
        let run = match other {
            Some(other) => run.env("MY_SERVICE_TOKEN", other),
            None => run,
        };
        let said = run.finish().expect_code(1).stderr();
        assert!(said.contains("masks `MY_SERVICE_TOKEN`"), "{said}");
        assert!(said.contains("--with-raw"), "{said}");
        assert!(!project.root().join("pack").exists());
    }
    agent(&project, &arguments)
        .env("MY_SERVICE_TOKEN", TOKEN)
        .finish()
        .expect_code(0);
    fs::remove_file(project.root().join("pack")).unwrap();
    let (_place, _directory, said) = crate::secrets::unpack(&project, &["--with-raw"]);
    assert!(said.contains("unmasked: "), "{said}");
}
