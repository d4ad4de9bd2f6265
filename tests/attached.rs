//! Files and directories that an input names with `@`: the model gets what they hold, as calls that the gate judges
//! and the log records.

use agent_protocol::Payload;
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use agent_text::sha256_hex;
use serde_json::{Value, json};

use crate::compaction::receipts;
use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run};

/// What the user's message says in the first request.
fn said(server: &ModelServer) -> String {
    let bodies = server.bodies();
    let messages = bodies[0]["messages"].as_array().unwrap();
    let user = messages.iter().find(|message| message["role"] == "user");
    let parts = user.unwrap()["content"].clone();
    match parts {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn ask(project: &TestProject, prompt: &str) -> (ModelServer, String) {
    let server = ModelServer::start(Script::new().turn(Turn::text("Seen.")));
    let ran = run(project, &server, Wire::Chat, &[prompt]).finish();
    assert_audit_is_clean(project);
    (server, ran.stderr().to_owned())
}

#[test]
fn a_file_is_attached_with_its_content_and_hash() {
    let project = TestProject::new();
    let lines: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    project.write("src/a.rs", &lines);
    project.write("src/deep/b.rs", "fn b() {}\n");
    project.write("my notes.md", "a note\n");
    let prompt = "Compare @src/a.rs:10-12, (@\"my notes.md\") and @src/deep/ please";
    let (server, _) = ask(&project, prompt);
    let text = said(&server);
    assert!(text.starts_with(prompt), "{text}");
    assert!(
        text.contains("10\tline 10\n") && text.contains("12\tline 12\n"),
        "{text}"
    );
    assert!(
        !text.contains("line 9\n") && !text.contains("line 13\n"),
        "{text}"
    );
    assert!(
        text.contains("a note") && text.contains("src/deep/b.rs"),
        "{text}"
    );
    assert_eq!(text.matches("[Attached:]").count(), 3, "{text}");
    // It is content of files, and as untrusted as what a tool shows.
    assert!(text.contains("trust=\"untrusted\""), "{text}");
    let events = log(&project);
    let receipt = &receipts(&events)[0];
    let refs = &receipt.file_refs;
    assert_eq!(refs.len(), 2, "{refs:?}");
    assert_eq!(refs[0].path, "src/a.rs");
    assert_eq!(refs[0].sha256, sha256_hex(lines.as_bytes()));
    assert_eq!(refs[0].range.as_deref(), Some("10-12"));
    let sources: Vec<&str> = receipt
        .included
        .iter()
        .map(|item| item.source.as_str())
        .collect();
    assert!(
        sources.contains(&"user") && sources.contains(&"attached by the user"),
        "{sources:?}"
    );
    assert_inputs_can_be_rebuilt(&project, &server);
}

/// The model may edit what it was shown so, without reading it again.
#[test]
fn an_attached_file_counts_as_read() {
    let project = TestProject::new();
    project.write("a.txt", "one\n");
    let edit = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
    let server = ModelServer::start(
        Script::new()
            .turn(Turn::call("edit", edit))
            .turn(Turn::text("Done.")),
    );
    let ran = run(
        &project,
        &server,
        Wire::Chat,
        &["--mode", "accept-edits", "Change @a.txt"],
    );
    let ran = ran.finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    assert_eq!(project.read("a.txt"), "two\n");
    assert_audit_is_clean(&project);
}

#[test]
fn what_cannot_be_attached_is_said() {
    let project = TestProject::new();
    project.write("image.bin", b"\x7fELF\0\0\0");
    project.write(".env", "TOKEN=abc\n");
    std::fs::write(project.home().join("outside.txt"), "not of the project\n").unwrap();
    let outside = project.home().join("outside.txt");
    let prompt = format!(
        "See @image.bin @gone.txt @.env @{} and mail me@x.y or @someone",
        outside.display()
    );
    let (server, stderr) = ask(&project, &prompt);
    let text = said(&server);
    assert!(text.contains("is not text"), "{text}");
    // What needs approval is asked about, and without anybody to ask it is not shown.
    assert!(
        !text.contains("TOKEN=abc") && !text.contains("not of the project"),
        "{text}"
    );
    assert!(
        stderr.contains("`@gone.txt` was not attached: there is no such file"),
        "{stderr}"
    );
    assert!(
        !stderr.contains("@someone") && !stderr.contains("x.y"),
        "{stderr}"
    );
    let calls = log(&project);
    let calls = calls
        .iter()
        .filter(|event| matches!(event.payload, Payload::ToolIntent(_)));
    assert_eq!(calls.count(), 3);
}

#[test]
fn a_deny_rule_and_the_mask_hold_for_what_is_attached() {
    let project = TestProject::new();
    let key = "sk-ant-api03-".to_owned() + &"Ab3".repeat(31) + "AA";
    project.write("conf.txt", format!("key = {key}\n"));
    project.write("private.txt", "for nobody\n");
    // A project may forbid without being trusted.
    let denied = "[permissions]\ndeny = [\"read(private.txt)\"]\n";
    project.write(".agent/config.toml", denied);
    let (server, _) = ask(&project, "See @conf.txt @private.txt");
    let text = said(&server);
    assert!(text.contains("key = ") && !text.contains(&key), "{text}");
    assert!(!text.contains("for nobody"), "{text}");
}
