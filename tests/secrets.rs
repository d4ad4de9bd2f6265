//! Masked secrets: a placeholder never becomes content, and no part of a secret leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::conversation::Conversation;
use crate::files::{bash, edit, read, session, write};

const KEY: &str = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";

/// Runs calls in one process, in a new session or the last one, and gives their observations.
pub(crate) fn observe(project: &TestProject, resume: bool, intents: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = intents.iter().map(Value::to_string).collect();
    let mut arguments = vec![
        "call", "--stdin", "--json", "--mode", "full", "--on-ask", "allow",
    ];
    if resume {
        arguments.extend(["--session", "last"]);
    }
    let ran = agent(project, &arguments).stdin(lines.join("\n") + "\n");
    let ran = ran.finish();
    let printed = ran.stdout();
    let observations = printed.lines().map(serde_json::from_str);
    let observations: Result<Vec<Value>, _> = observations.collect();
    let observations = observations.unwrap_or_else(|_| panic!("{}", ran.stderr()));
    assert_eq!(observations.len(), intents.len(), "{}", ran.stderr());
    observations
}

fn text_of(observation: &Value) -> &str {
    observation["model_text"].as_str().unwrap()
}

/// The first placeholder in what a call showed.
fn placeholder(observation: &Value) -> String {
    let text = text_of(observation);
    let start = text.find("[redacted:").unwrap_or_else(|| panic!("{text}"));
    let end = text[start..].find(']').unwrap();
    text[start..=start + end].to_owned()
}

fn private_key() -> String {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n";
    let kind = "PRIVATE KEY";
    format!(
        "-----BEGIN {kind}-----\n{}-----END {kind}-----",
        line.repeat(6)
    )
}

#[track_caller]
fn refused(observation: &Value) {
    assert_eq!(
        observation["code"], "runtime_precondition_failed",
        "{observation}"
    );
    let text = text_of(observation);
    assert!(text.contains("Nothing was changed"), "{text}");
}

#[test]
fn a_key_survives_a_write_in_another_process() {
    let project = TestProject::new();
    project.write("conf.txt", format!("a = 1\nkey = {KEY}\n"));
    let shown = placeholder(&observe(&project, false, &[read("conf.txt")])[0]);
    let content = format!("a = 2\nkey = {shown}\n");
    let wrote = observe(&project, true, &[write("conf.txt", &content)]);
    assert_eq!(wrote[0]["code"], "ok", "{wrote:?}");
    assert_eq!(project.read("conf.txt"), format!("a = 2\nkey = {KEY}\n"));

    let old = format!("key = {shown}");
    let edited = observe(
        &project,
        true,
        &[edit("conf.txt", &old, &format!("{old}\nb = 3"))],
    );
    assert_eq!(edited[0]["code"], "ok", "{edited:?}");
    assert_eq!(
        project.read("conf.txt"),
        format!("a = 2\nkey = {KEY}\nb = 3\n")
    );

    // Into another file, from the file that has it.
    let wrote = observe(&project, true, &[write("copy.txt", &format!("{shown}\n"))]);
    assert_eq!(wrote[0]["code"], "ok", "{wrote:?}");
    assert_eq!(project.read("copy.txt"), format!("{KEY}\n"));
}

#[test]
fn a_key_is_found_in_the_images_after_its_file_changed_and_after_a_fork() {
    let project = TestProject::new();
    project.write("conf.txt", format!("key = {KEY}\n"));
    let calls = [read("conf.txt"), edit("conf.txt", "key", "k")];
    let shown = placeholder(&observe(&project, false, &calls)[0]);
    project.write("conf.txt", "nothing\n");
    let wrote = observe(&project, true, &[write("new.txt", &format!("{shown}\n"))]);
    assert_eq!(wrote[0]["code"], "ok", "{wrote:?}");
    assert_eq!(project.read("new.txt"), format!("{KEY}\n"));

    agent(&project, &["fork", "last"]).finish().expect_code(0);
    let wrote = observe(&project, true, &[write("fork.txt", &format!("{shown}\n"))]);
    assert_eq!(wrote[0]["code"], "ok", "{wrote:?}");
    assert_eq!(project.read("fork.txt"), format!("{KEY}\n"));
}

/// A fork has everything it names, however often it was forked before.
#[test]
fn the_fork_of_a_fork_of_a_fork_goes_on() {
    let project = TestProject::new();
    project.write("conf.txt", format!("key = {KEY}\n"));
    let calls = [read("conf.txt"), edit("conf.txt", "key", "k")];
    let shown = placeholder(&observe(&project, false, &calls)[0]);
    project.write("conf.txt", "nothing\n");
    for _ in 0..3 {
        agent(&project, &["fork", "last"]).finish().expect_code(0);
    }
    let wrote = observe(&project, true, &[write("new.txt", &format!("{shown}\n"))]);
    assert_eq!(wrote[0]["code"], "ok", "{wrote:?}");
    assert_eq!(project.read("new.txt"), format!("{KEY}\n"));
    let audit = agent(&project, &["audit", "last", "--json"])
        .finish()
        .expect_code(0);
    assert!(
        !audit.stdout().contains("inherited_missing"),
        "{}",
        audit.stdout()
    );
}

#[test]
fn a_placeholder_nobody_knows_is_refused() {
    let project = TestProject::new();
    project.write("conf.txt", format!("key = {KEY}\n"));
    let shown = placeholder(&observe(&project, false, &[read("conf.txt")])[0]);
    project.write("conf.txt", "key = none\n");
    let calls = [
        write("new.txt", &format!("{shown}\n")),
        read("conf.txt"),
        edit("conf.txt", "none", &shown),
        write("conf.txt", &format!("key = {shown}\n")),
    ];
    let seen = observe(&project, true, &calls);
    refused(&seen[0]);
    refused(&seen[2]);
    refused(&seen[3]);
    assert!(!project.root().join("new.txt").exists());
    assert_eq!(project.read("conf.txt"), "key = none\n");
}

#[test]
fn a_command_gets_no_placeholder() {
    let project = TestProject::new();
    project.write("conf.txt", format!("key = {KEY}\n"));
    let shown = placeholder(&observe(&project, false, &[read("conf.txt")])[0]);
    let command = format!("cat > conf.txt <<'END'\nkey = {shown}\nEND");
    for resume in [true, false] {
        let ran = observe(&project, resume, &[bash(&command)]);
        refused(&ran[0]);
    }
    assert_eq!(project.read("conf.txt"), format!("key = {KEY}\n"));
}

/// What a file says itself is its own: a text of this form that stands in it stays.
#[test]
fn a_text_of_that_form_in_the_file_itself_stays() {
    let project = TestProject::new();
    project.write("doc.md", "keys look like [redacted:jwt:0000aaaabbbb]\n");
    let calls = [
        read("doc.md"),
        edit(
            "doc.md",
            "look like [redacted:jwt:0000aaaabbbb]",
            "are [redacted:jwt:0000aaaabbbb]",
        ),
    ];
    let seen = observe(&project, false, &calls);
    assert_eq!(seen[1]["code"], "ok", "{seen:?}");
    assert_eq!(
        project.read("doc.md"),
        "keys are [redacted:jwt:0000aaaabbbb]\n"
    );
}

#[test]
fn a_key_of_many_lines_comes_back_without_line_numbers() {
    let project = TestProject::new();
    let key = private_key();
    project.write("note.txt", format!("first\nbegin `{key}`;\nlast\n"));
    let seen = observe(&project, false, &[read("note.txt")]);
    let shown = placeholder(&seen[0]);
    assert!(
        !text_of(&seen[0]).contains("MIIEvQ"),
        "{}",
        text_of(&seen[0])
    );
    let content = format!("first\nbegin `{shown}`;\nend\n");
    let wrote = observe(&project, true, &[write("note.txt", &content)]);
    assert_eq!(wrote[0]["code"], "ok", "{wrote:?}");
    assert_eq!(
        project.read("note.txt"),
        format!("first\nbegin `{key}`;\nend\n")
    );
}

/// No range of any reading shows a part of a secret.
#[test]
fn no_range_shows_a_part_of_a_secret() {
    let project = TestProject::new();
    let key = private_key();
    project.write("note.txt", format!("{key}\n"));
    project.write(
        "long.txt",
        format!("{}{KEY}{}\n", "x ".repeat(990), " y".repeat(5_000)),
    );
    let output = format!("seq 1 4000; echo {KEY}; cat note.txt; seq 1 9000");
    let mut calls = vec![bash(&output)];
    let first = observe(&project, false, &calls);
    let artifact = first[0]["artifact_refs"].as_array().unwrap();
    let artifact = artifact
        .iter()
        .find(|one| one["kind"] == "command_output")
        .unwrap();
    let id = artifact["artifact_id"].as_str().unwrap();
    let raw =
        fs::read_to_string(session(&project).path().join("artifacts").join(&id[7..])).unwrap();
    calls.clear();
    let at = raw.find(KEY).unwrap();
    for (offset, limit) in [
        (at + 1, 60),
        (at + 20, 5),
        (at - 10, 20),
        (at, 4),
        (at + 39, 1),
    ] {
        calls.push(json!({"tool": "read_artifact", "input": {"artifact_id": id, "offset": offset, "limit": limit}}));
    }
    let at = raw.find("MIIE").unwrap();
    for (offset, limit) in [(at, 64), (at + 70, 200), (at - 10, 30)] {
        calls.push(json!({"tool": "read_artifact", "input": {"artifact_id": id, "offset": offset, "limit": limit}}));
    }
    calls.push(json!({"tool": "read_artifact", "input": {"artifact_id": id, "around": "BEGIN PRIVATE", "limit": 40}}));
    for (offset, limit) in [(1, 2), (3, 1), (6, 3)] {
        calls.push(
            json!({"tool": "read", "input": {"path": "note.txt", "offset": offset, "limit": limit}}),
        );
    }
    calls.push(json!({"tool": "read", "input": {"path": "long.txt"}}));
    calls.push(json!({"tool": "grep", "input": {"pattern": "^MIIE"}}));
    calls.push(json!({"tool": "grep", "input": {"pattern": "y y", "path": "long.txt"}}));
    for seen in observe(&project, true, &calls).iter().chain(&first) {
        let text = seen.to_string();
        for secret in [KEY, &private_key()] {
            assert_no_part(secret, &text);
        }
    }
    let log = fs::read_to_string(session(&project).log_path()).unwrap();
    assert_no_part(KEY, &log);
}

/// Eight characters of a secret in a row are a part of it.
#[track_caller]
fn assert_no_part(secret: &str, text: &str) {
    let lines = secret.lines().filter(|line| !line.starts_with('-'));
    for line in lines {
        for start in 0..line.len().saturating_sub(8) {
            let part = &line[start..start + 8];
            if let Some(at) = text.find(part) {
                let from = at.saturating_sub(60);
                panic!(
                    "`{part}` in …{}",
                    &text[text.floor_char_boundary(from)..at + 8]
                );
            }
        }
    }
}

pub(crate) fn unpack(
    project: &TestProject,
    arguments: &[&str],
) -> (tempfile::TempDir, std::path::PathBuf, String) {
    let mut all = vec!["export", "last", "--format", "evidence", "-o", "pack"];
    all.extend(arguments);
    let ran = agent(project, &all).finish().expect_code(0);
    let place = tempfile::tempdir().unwrap();
    let pack = project.root().join("pack");
    let script = format!("zstd -dcq {} | tar -xf -", pack.display());
    assert!(sh(&script, place.path()));
    let directory = fs::read_dir(place.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    (place, directory, ran.stderr())
}

fn sh(script: &str, place: &Path) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(place);
    shell.output().unwrap().status.success()
}

fn files_with(directory: &Path, text: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_with(&path, text, found);
        } else if String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text) {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn a_pack_holds_masked_output_unless_raw_is_asked_for() {
    let project = TestProject::new();
    project.write(".env", format!("TOKEN={KEY}\n"));
    observe(
        &project,
        false,
        &[bash("cat .env; echo other"), bash("echo plain")],
    );
    let (_place, directory, said) = unpack(&project, &[]);
    let mut found = Vec::new();
    files_with(&directory, KEY, &mut found);
    assert!(found.is_empty(), "{found:?}");
    assert!(said.contains("1 artifact is a masked copy"), "{said}");
    files_with(&directory, "other", &mut found);
    assert!(
        found.iter().any(|name| name.contains("/masked/")),
        "{found:?}"
    );
    let readme = fs::read_to_string(directory.join("README.txt")).unwrap();
    assert!(readme.contains("masked/"), "{readme}");
    let list = fs::read_to_string(directory.join("MASKED")).unwrap();
    assert_eq!(list.lines().count(), 1, "{list}");
    // All of it can be checked: by hand and by the audit.
    assert!(sh("sha256sum -c --quiet SHA256SUMS", &directory));
    let begin = readme.find("  hash() {").unwrap();
    let script = &readme[begin..];
    let script = &script[..script.find("\n\n").unwrap()];
    assert!(sh(script, &directory));
    let path = directory.to_str().unwrap();
    let audit = agent(&project, &["audit", path, "--json"])
        .finish()
        .expect_code(0);
    assert!(
        audit.stdout().contains("artifact_masked"),
        "{}",
        audit.stdout()
    );
    // A masked copy that was altered is found by the audit.
    let copy = fs::read_dir(directory.join("masked"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::write(&copy, "altered").unwrap();
    let audit = agent(&project, &["audit", path, "--json"])
        .finish()
        .expect_code(1);
    assert!(
        audit.stdout().contains("artifact_altered"),
        "{}",
        audit.stdout()
    );

    let (_place, directory, said) = unpack(&project, &["--with-raw"]);
    files_with(&directory, KEY, &mut found);
    assert!(!found.is_empty());
    assert!(said.contains("unmasked: "), "{said}");
    assert!(!directory.join("masked").exists());
    let path = directory.to_str().unwrap();
    agent(&project, &["audit", path]).finish().expect_code(0);
}

/// A second, simple model of the rule: which key each file holds, and which key a placeholder was
/// seen for.
struct Story {
    project: TestProject,
    talk: Option<Conversation>,
    /// Key in each file, by its number; nothing when it holds none.
    files: [Option<usize>; 3],
    /// The content of each file that the session has read and that has not changed since.
    known: [bool; 3],
    shown: BTreeMap<String, usize>,
    said: String,
}

fn key(number: usize) -> String {
    format!(
        "ghp_{}",
        format!("k{number}A9b8C7d6E5")
            .repeat(4)
            .chars()
            .take(36)
            .collect::<String>()
    )
}

fn content(word: &str, secret: &str) -> String {
    format!("word = {word}\ntoken: {secret}\nend\n")
}

impl Story {
    fn new() -> Self {
        let project = TestProject::new();
        for number in 0..3 {
            project.write(format!("f{number}"), content("first", &key(number)));
        }
        Self {
            project,
            talk: None,
            files: [Some(0), Some(1), Some(2)],
            known: [false; 3],
            shown: BTreeMap::new(),
            said: String::new(),
        }
    }

    fn call(&mut self, tool: &str, input: Value) -> Value {
        let project = &self.project;
        let is_new = !project.root().join(".agent/sessions").exists();
        let talk = self.talk.get_or_insert_with(|| match is_new {
            true => Conversation::start(project, &["--mode", "full"]),
            false => Conversation::start(project, &["--mode", "full", "--session", "last"]),
        });
        let observed = talk.call(tool, input);
        self.said.push_str(&observed.to_string());
        observed
    }

    fn end_process(&mut self) {
        if let Some(talk) = self.talk.take() {
            talk.end();
        }
    }

    fn step(&mut self, kind: u8, file: usize, other: usize) {
        let path = format!("f{file}");
        let on_disk = self.project.read(&path);
        let some = self.shown.iter().nth(other % self.shown.len().max(1));
        let some = some.map(|(placeholder, number)| (placeholder.clone(), *number));
        match kind {
            0 | 1 => {
                let seen = self.call("read", json!({"path": path}));
                self.known[file] = true;
                if let (Some(number), true) =
                    (self.files[file], text_of(&seen).contains("[redacted:"))
                {
                    self.shown.insert(placeholder(&seen), number);
                }
            }
            2 => {
                let seen = self.call(
                    "bash",
                    json!({"command": format!("cat {path}"), "description": "x"}),
                );
                if let (Some(number), true) =
                    (self.files[file], text_of(&seen).contains("[redacted:"))
                {
                    self.shown.insert(placeholder(&seen), number);
                }
            }
            3 | 4 => {
                let Some((quoted, number)) = some else { return };
                let input =
                    json!({"path": path, "content": content(&format!("w{other}"), &quoted)});
                let wrote = self.call("write", input);
                if wrote["ok"] == true {
                    assert!(self.known[file], "{wrote}");
                    let expected = content(&format!("w{other}"), &key(number));
                    assert_eq!(self.project.read(&path), expected);
                    self.files[file] = Some(number);
                } else {
                    assert_eq!(self.project.read(&path), on_disk, "{wrote}");
                }
            }
            5 => {
                let Some((quoted, number)) = some else { return };
                let input = json!({"path": path, "old_string": format!("token: {quoted}"), "new_string": format!("token: {quoted}\nmore: {other}")});
                let edited = self.call("edit", input);
                if edited["ok"] == true {
                    assert_eq!(self.files[file], Some(number));
                    let (before, after) = (
                        format!("token: {}", key(number)),
                        format!("token: {}\nmore: {other}", key(number)),
                    );
                    assert_eq!(self.project.read(&path), on_disk.replace(&before, &after));
                } else {
                    assert_eq!(self.project.read(&path), on_disk);
                }
            }
            6 => {
                let Some((quoted, _)) = some else { return };
                let command = format!("cat > {path} <<'E'\n{quoted}\nE");
                let ran = self.call("bash", json!({"command": command, "description": "x"}));
                assert_eq!(ran["ok"], false);
                assert_eq!(self.project.read(&path), on_disk);
            }
            7 => {
                // Somebody else changes the file: the key is gone, or another one is there.
                let (word, number) = (format!("o{other}"), (other > 0).then_some(other));
                let secret = number.map_or_else(|| "none".to_owned(), key);
                let now = content(&word, &secret);
                self.project.write(&path, &now);
                self.files[file] = number;
                // The same bytes again are still what was read.
                self.known[file] &= now == on_disk;
            }
            8 | 9 => self.end_process(),
            _ => {
                self.end_process();
                if self.project.root().join(".agent/sessions").exists() {
                    agent(&self.project, &["fork", "last"])
                        .finish()
                        .expect_code(0);
                }
            }
        }
        for number in 0..3 {
            let text = self.project.read(format!("f{number}"));
            assert!(!text.contains("[redacted:"), "f{number}: {text}");
        }
    }

    /// Everything that leaves: what was said, the log, and every form it is told in.
    fn look_at_all_that_leaves(mut self) {
        self.end_process();
        let project = &self.project;
        if !project.root().join(".agent/sessions").exists() {
            return;
        }
        let mut all = vec![("observations".to_owned(), self.said)];
        for arguments in [
            &["export", "last"][..],
            &["export", "last", "--format", "portable"],
            &["export", "last", "--format", "review"],
            &["replay", "last"],
            &["replay", "last", "--format", "html"],
            &["replay", "last", "--format", "json"],
            &["report", "last"],
        ] {
            let ran = agent(project, arguments).finish();
            all.push((arguments.join(" "), ran.stdout()));
        }
        let (_place, directory, _) = unpack(project, &[]);
        let mut found = Vec::new();
        for number in 0..3 {
            files_with(&directory, &key(number), &mut found);
            for (name, text) in &all {
                assert!(!text.contains(&key(number)), "key {number} in {name}");
            }
        }
        assert!(found.is_empty(), "{found:?}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config {
        cases: 12,
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    })]
    #[test]
    fn no_placeholder_reaches_a_file_and_no_secret_leaves(
        steps in proptest::collection::vec((0..11_u8, 0..3_usize, 0..3_usize), 8..20)
    ) {
        let mut story = Story::new();
        // Two files are known from the start, so that most stories have something to tell.
        story.step(0, 0, 0);
        story.step(2, 1, 0);
        for (kind, file, other) in steps {
            story.step(kind, file, other);
        }
        story.look_at_all_that_leaves();
    }
}
