//! Observations of calls, and what they must not leave unsaid: order, omissions with a
//! hint that works, forms, ends.

use std::fs;
use std::path::PathBuf;

use agent_test_support::project::TestProject;
use agent_test_support::run::Run;
use serde_json::{Value, json};

use crate::agent;
use crate::conversation::{ALLOWED, Conversation, assert_audit, bash, read, replace};

/// The file of an artifact of the session an observation is from.
pub(crate) fn artifact(project: &TestProject, observed: &Value, id: &Value) -> PathBuf {
    let session = observed["session_id"].as_str().unwrap();
    let name = id.as_str().unwrap().strip_prefix("sha256:").unwrap();
    let sessions = project.root().join(".agent/sessions");
    sessions.join(session).join("artifacts").join(name)
}

/// Does what the hint of an observation says.
pub(crate) fn read_more(talk: &mut Conversation, observed: &Value) -> Value {
    let more = &observed["read_more"];
    let tool = more["tool"]
        .as_str()
        .unwrap_or_else(|| panic!("{observed:#}"));
    talk.call(tool, more["input_hint"].clone())
}

/// The events of the last session that have this type.
pub(crate) fn events(project: &TestProject, name: &str) -> Vec<Value> {
    let listed = agent(project, &["sessions", "show", "--json", "last"]);
    let session = listed.finish().expect_code(0).json()["session_id"].clone();
    let place = project.root().join(".agent/sessions");
    let log = place.join(session.as_str().unwrap()).join("events.jsonl");
    let lines = fs::read_to_string(log).unwrap();
    let all = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    all.filter(|event: &Value| event["type"] == name).collect()
}

#[test]
fn both_streams_of_a_command_stand_in_the_order_they_were_written() {
    let project = TestProject::new();
    let mut talk = Conversation::start(&project, ALLOWED);
    let command = "for i in $(seq 300); do echo out $i; echo err $i >&2; printf more; echo; done";
    let observed = bash(&mut talk, command);
    let kept = artifact(&project, &observed, &observed["content"][0]["artifact"]);
    let expected: String = (1..=300)
        .map(|number| format!("out {number}\nerr {number}\nmore\n"))
        .collect();
    assert_eq!(fs::read_to_string(kept).unwrap(), expected);
    // The index names exactly the lines of the error stream.
    let index = events(&project, "process.completed")[0]["payload"]["output_index_ref"].clone();
    let index = fs::read_to_string(artifact(&project, &observed, &index)).unwrap();
    let mut named = String::new();
    for range in index.lines() {
        let (from, to) = range.split_once(' ').unwrap();
        named += &expected[from.parse().unwrap()..to.parse().unwrap()];
    }
    let errors: String = (1..=300).map(|number| format!("err {number}\n")).collect();
    assert_eq!(named, errors);
    assert_eq!(talk.end(), Some(0));
    assert_audit(&project);
}

#[test]
fn a_search_says_what_it_left_out_and_the_hint_shows_it() {
    let project = TestProject::new();
    let lines: String = (0..40).map(|number| format!("needle {number}\n")).collect();
    project.write("a.txt", &lines);
    for number in 0..30 {
        project.write(format!("many/file-{number:02}"), "x\n");
    }
    let mut talk = Conversation::start(&project, &["--mode", "read-only"]);
    let input = json!({"pattern": "needle", "limit": 10});
    let first = talk.call("grep", input);
    assert_eq!(
        (&first["truncated"], &first["ok"]),
        (&json!(true), &json!(true))
    );
    let hidden: usize = lines.lines().skip(10).map(|line| line.len() + 1).sum();
    assert_eq!(first["omitted_bytes"], hidden);
    let all = read_more(&mut talk, &first);
    assert_eq!(all["facts"]["data"]["returned"], 40, "{all:#}");
    assert_eq!(all["truncated"], false);
    let first = talk.call("glob", json!({"pattern": "file-*", "limit": 5}));
    assert_eq!(first["truncated"], true, "{first:#}");
    let all = read_more(&mut talk, &first);
    assert_eq!(all["facts"]["data"]["returned"], 30, "{all:#}");
    // What fits the limit and no result is kept, and goes on where the result ended.
    let long = format!("long {}\n", "y".repeat(300));
    project.write("b.txt", long.repeat(200));
    let first = talk.call("grep", json!({"pattern": "^long"}));
    assert_eq!(first["truncated"], true);
    assert!(first["facts"]["data"]["returned"].as_u64().unwrap() < 200);
    let rest = read_more(&mut talk, &first);
    let text = |observed: &Value| observed["model_text"].as_str().unwrap().to_owned();
    let listed = text(&first).matches("long y").count();
    assert_eq!(first["facts"]["data"]["returned"], listed);
    let next = format!("\n{}:long y", listed + 1);
    assert!(text(&rest).contains(&next), "{rest:#}");
    assert_eq!(talk.end(), Some(0));
    assert_audit(&project);
}

#[test]
fn a_glob_may_leave_out_and_may_be_absolute() {
    let project = TestProject::new();
    project.write("src/a.rs", "needle\n");
    project.write("src/b.md", "needle\n");
    project.write("c.md", "needle\n");
    let root = project.root().canonicalize().unwrap();
    let root = root.to_str().unwrap();
    let mut talk = Conversation::start(&project, &["--mode", "read-only"]);
    for (path, glob, expected) in [
        (".", "!*.rs".to_owned(), "c.md\nsrc/b.md\n"),
        ("src", "!*.md".to_owned(), "src/a.rs\n"),
        (".", format!("{root}/src/*.rs"), "src/a.rs\n"),
        (".", format!("!{root}/src/**"), "c.md\n"),
        ("src", format!("{root}/**/*.md"), "src/b.md\n"),
        (".", "/c.md".to_owned(), "c.md\n"),
    ] {
        let input = json!({"pattern": "needle", "path": path, "glob": glob, "mode": "files"});
        let found = talk.call("grep", input);
        assert_eq!(found["content"][0]["text"], expected, "{glob}");
        let named = talk.call("glob", json!({"pattern": glob, "path": path}));
        let named = named["content"][0]["text"].as_str().unwrap();
        // Its own settings are files of the project too.
        let named = named.replace(".agent/.gitignore\n", "");
        assert_eq!(named, expected, "{glob}");
    }
    assert_eq!(talk.end(), Some(0));
}

/// How the tests are run is named whatever part of the file is shown.
#[test]
fn reading_a_manifest_names_how_the_project_is_tested() {
    let project = TestProject::new();
    let package = "{\n  \"name\": \"sum\",\n  \"scripts\": {\"test\": \"vitest run\"}\n}\n";
    project.write("web/package.json", package);
    project.write("Makefile", "all:\n\ttrue\ntest: all\n\ttrue\n");
    let mut talk = Conversation::start(&project, &["--mode", "read-only"]);
    for (path, expected) in [
        ("web/package.json", "scripts.test is `vitest run`"),
        ("Makefile", "`test` is a target"),
    ] {
        let seen = talk.call("read", json!({"path": path, "limit": 1}));
        let text = seen["model_text"].as_str().unwrap();
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(talk.end(), Some(0));
    assert_audit(&project);
}

#[test]
fn what_a_search_shows_of_a_latin_1_file_can_be_edited() {
    let project = TestProject::new();
    project.write("a.txt", b"caf\xe9 = 1\nna\xefve = 2\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    let found = talk.call("grep", json!({"pattern": "= 1"}));
    let shown = found["content"][0]["text"].as_str().unwrap();
    assert!(shown.contains("1:caf\u{e9} = 1\n"), "{shown}");
    read(&mut talk, "a.txt");
    assert_eq!(
        replace(&mut talk, "a.txt", "caf\u{e9} = 1", "caf\u{e9} = 3")["code"],
        "ok"
    );
    let bytes = fs::read(project.root().join("a.txt")).unwrap();
    assert_eq!(bytes, b"caf\xe9 = 3\nna\xefve = 2\n");
    assert_eq!(talk.end(), Some(0));
}

#[test]
fn a_write_that_changes_the_form_of_a_file_says_so() {
    let project = TestProject::new();
    project.write("crlf", "a\r\nb\r\n");
    project.write("wide", b"\xff\xfea\0\n\0");
    project.write("marked", "\u{feff}a\n");
    project.write("latin", b"caf\xe9\n");
    project.write("plain", "a\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    for (path, fact) in [
        ("crlf", Some("The line endings crlf become lf.")),
        ("wide", Some("The encoding utf-16le becomes utf-8.")),
        ("marked", Some("The encoding utf-8-bom becomes utf-8.")),
        ("latin", Some("The encoding windows-1252 becomes utf-8.")),
        ("plain", None),
    ] {
        read(&mut talk, path);
        let written = talk.call("write", json!({"path": path, "content": "x\ny\n"}));
        assert_eq!(written["code"], "ok", "{written:#}");
        assert_eq!(written["facts"]["data"]["note"].as_str(), fact, "{path}");
        let text = written["model_text"].as_str().unwrap();
        assert!(text.contains(fact.unwrap_or("Replaced")), "{text}");
    }
    assert_eq!(talk.end(), Some(0));
    assert_audit(&project);
}

#[test]
fn the_way_an_accent_is_written_is_named_as_the_difference() {
    let project = TestProject::new();
    project.write("a.txt", "one\ncafe\u{301} \u{201c}noir\u{201d}\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    read(&mut talk, "a.txt");
    let missed = replace(&mut talk, "a.txt", "caf\u{e9}", "x");
    assert_eq!(missed["code"], "target_not_found");
    let said = missed["summary"].as_str().unwrap();
    assert!(said.contains("line 2 differs only in accents"), "{said}");
    let missed = replace(&mut talk, "a.txt", "caf\u{e9} \"noir\"", "x");
    let said = missed["summary"].as_str().unwrap();
    assert!(
        said.contains("quotes") && said.contains("accents"),
        "{said}"
    );
    assert_eq!(talk.end(), Some(1));
}

#[test]
fn a_file_of_five_gigabytes_is_too_large_whatever_is_in_it() {
    let project = TestProject::new();
    project.write("text", "x\n".repeat(10_000));
    for name in ["empty", "text"] {
        let path = project.root().join(name);
        let options = fs::File::options().create(true).append(true).open(path);
        options.unwrap().set_len(5 << 30).unwrap();
    }
    let mut talk = Conversation::start(&project, ALLOWED);
    for name in ["empty", "text"] {
        let observed = read(&mut talk, name);
        assert_eq!(observed["code"], "too_large", "{observed:#}");
        assert_eq!(observed["phase"], "validate");
        assert_eq!(replace(&mut talk, name, "x", "y")["code"], "too_large");
    }
    // A search leaves it out and counts it.
    let found = talk.call("grep", json!({"pattern": "x"}));
    let said = found["model_text"].as_str().unwrap();
    assert!(said.contains("2 too large"), "{said}");
    assert_eq!(talk.end(), Some(1));
    assert_audit(&project);
}

#[test]
fn images_kept_for_undo_are_not_shown() {
    let project = TestProject::new();
    project.write("a.txt", "password one\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    read(&mut talk, "a.txt");
    let edited = replace(&mut talk, "a.txt", "one", "two");
    let effect = &edited["side_effects"][0];
    for image in [&effect["before_ref"], &effect["after_ref"]] {
        let shown = talk.call("read_artifact", json!({"artifact_id": image}));
        assert_eq!(shown["code"], "unsupported_content", "{shown:#}");
        let text = shown["model_text"].as_str().unwrap();
        assert!(!text.contains("password"), "{text}");
    }
    // The same bytes as the output of a command are an output.
    let printed = bash(&mut talk, "cat a.txt");
    let id = &printed["content"][0]["artifact"];
    assert_eq!(id, &effect["after_ref"]);
    let shown = talk.call("read_artifact", json!({"artifact_id": id}));
    assert_eq!(shown["code"], "ok", "{shown:#}");
    assert_eq!(talk.end(), Some(1));
    // What an earlier run of the session kept is known too.
    let again = agent(
        &project,
        &["call", "--json", "--session", "last", "read_artifact"],
    );
    let input = json!({"artifact_id": effect["before_ref"]}).to_string();
    let again = again.args([input.as_str()]).finish().expect_code(1).json();
    assert_eq!(again["code"], "unsupported_content");
    assert_audit(&project);
}

#[test]
fn a_line_that_is_no_call_is_named_and_the_next_one_is_made() {
    let project = TestProject::new();
    project.write("a.txt", "one\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    assert_eq!(read(&mut talk, "a.txt")["code"], "ok");
    for (number, (line, problem)) in (2..).zip([
        ("{\"tool\":\"read\",", "EOF while parsing"),
        ("nonsense", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("{\"input\":{}}", "missing field `tool`"),
        ("{\"tool\":7,\"input\":{}}", "expected a string"),
    ]) {
        talk.send_text(line);
        let refused = talk.receive();
        assert_eq!(refused["line"], number, "{refused:#}");
        assert_eq!(
            (&refused["ok"], &refused["code"]),
            (&json!(false), &json!("schema_invalid"))
        );
        assert_eq!(refused["action_happened"], "no");
        let said = refused["summary"].as_str().unwrap();
        assert!(
            said.contains(&format!("line {number} of standard input")),
            "{said}"
        );
        assert!(
            said.contains(problem) && said.contains("nothing was done"),
            "{said}"
        );
    }
    assert_eq!(read(&mut talk, "a.txt")["code"], "file_unchanged");
    assert_eq!(talk.end(), Some(1));
    assert_eq!(events(&project, "tool.intent").len(), 2);
    assert_eq!(events(&project, "runtime.warning").len(), 5);
    assert_audit(&project);
    let text = agent(&project, &["call", "--stdin"]).stdin("{\n").finish();
    let text = text.expect_code(1);
    assert!(text.stdout().starts_with("line 1 of standard input"));
}

#[test]
fn a_line_of_a_megabyte_is_read_to_its_end_by_the_hints() {
    let project = TestProject::new();
    let line: String = (0..)
        .map(|number: u32| format!("f{number}(),"))
        .take(120_000)
        .collect();
    assert!(line.len() > 1_000_000);
    project.write("app.min.js", format!("{line}\n"));
    let mut talk = Conversation::start(&project, ALLOWED);
    let mut observed = talk.call("read", json!({"path": "app.min.js"}));
    let (mut seen, mut calls) = (String::new(), 1);
    loop {
        assert_eq!(observed["ok"], true, "{observed:#}");
        let text = observed["model_text"].as_str().unwrap();
        let row = text.split_once("1\t").unwrap().1;
        let end = row.find(" [line clipped: ").or_else(|| row.find('\n'));
        seen.push_str(&row[..end.unwrap()]);
        if observed["read_more"].is_null() {
            break;
        }
        assert!(observed["omitted_bytes"].as_u64().unwrap() > 0);
        observed = read_more(&mut talk, &observed);
        calls += 1;
    }
    assert!(seen == line, "{} of {} bytes", seen.len(), line.len());
    assert!(calls < 60, "{calls} calls");
    assert_eq!(observed["omitted_bytes"], 0);
}

#[test]
fn what_is_kept_elsewhere_is_recorded_as_spilled_and_named_by_the_result() {
    let project = TestProject::new();
    let text: String = (0..9_000)
        .map(|number| format!("needle {number}\n"))
        .collect();
    project.write("hay.txt", text);
    let mut talk = Conversation::start(&project, ALLOWED);
    let command = bash(&mut talk, "seq 60000; echo oops >&2");
    let grep = talk.call("grep", json!({"pattern": "needle", "limit": 5000}));
    let spilled = events(&project, "output.spilled");
    let results = events(&project, "tool.result");
    for (observed, kind) in [(&command, "command_output"), (&grep, "tool_result")] {
        let refs = observed["artifact_refs"].as_array().unwrap();
        let output = refs
            .iter()
            .find(|artifact| artifact["kind"] == kind)
            .unwrap();
        let id = &output["artifact_id"];
        let event = spilled
            .iter()
            .find(|event| event["payload"]["artifact_id"] == *id);
        assert_eq!(event.unwrap()["payload"]["bytes"], output["bytes"]);
        assert!(
            results
                .iter()
                .any(|event| event["payload"]["result_ref"] == *id),
            "{results:#?}"
        );
    }
    // Also when it is short and only the error stream was used.
    let short = bash(&mut talk, "echo oops >&2");
    let last = events(&project, "tool.result").pop().unwrap();
    assert_eq!(
        last["payload"]["result_ref"],
        short["content"][0]["artifact"]
    );
}

/// Whoever reads the log, a replay or a page sees how an output began and ended.
#[test]
fn a_long_output_is_told_by_its_beginning_and_its_end() {
    let project = TestProject::new();
    let mut talk = Conversation::start(&project, ALLOWED);
    let command = "for i in $(seq 1 900); do echo \"test case_$i ... ok\"; done; echo 'FAILED: case_901'; exit 1";
    let observed = bash(&mut talk, command);
    let block = &observed["content"][0];
    let text = block["text"].as_str().unwrap();
    assert!(text.starts_with("test case_1 ... ok\n"), "{text}");
    assert!(
        text.ends_with("test case_900 ... ok\nFAILED: case_901\n"),
        "{text}"
    );
    let id = block["artifact"].as_str().unwrap();
    let left_out = block["omitted_bytes"].as_u64().unwrap();
    let mark = format!("[… {left_out} bytes not shown here; all of it is artifact {id} …]");
    assert!(text.contains(&mark), "{text}");
    assert!(text.len() <= 4096);
    drop(talk);
    let replay = agent(&project, &["replay", "last"])
        .finish()
        .expect_code(0)
        .stdout();
    for line in [
        "test case_1 ... ok",
        "FAILED: case_901",
        &format!("all of it: {id}"),
        "more lines",
    ] {
        assert!(replay.contains(line), "{line}: {replay}");
    }
    for format in ["html", "json"] {
        let told = agent(&project, &["replay", "last", "--format", format]);
        let told = told.finish().expect_code(0).stdout();
        assert!(told.contains("FAILED: case_901"), "{format}");
    }
}

#[test]
fn a_long_diff_is_told_whole() {
    let project = TestProject::new();
    let old: String = (0..200)
        .map(|number| format!("line {number} of the file as it was\n"))
        .collect();
    project.write("a.txt", &old);
    let mut talk = Conversation::start(&project, ALLOWED);
    read(&mut talk, "a.txt");
    let new = old.replace("as it was", "as it is now");
    let observed = talk.call("write", json!({"path": "a.txt", "content": new}));
    let block = &observed["content"][0];
    assert_eq!(block["format"], "diff");
    let text = block["text"].as_str().unwrap();
    assert!(text.len() > 4096 && block["omitted_bytes"].is_null());
    for number in 0..200 {
        assert!(
            text.contains(&format!("+line {number} of the file as it is now")),
            "{number}"
        );
    }
}

/// A disk without room for the result: the call ran, its result is gone, and the record says both.
#[test]
fn a_result_that_cannot_be_stored_fails_when_it_is_written_back() {
    let project = TestProject::new();
    let text: String = (0..9_000)
        .map(|number| format!("needle {number}\n"))
        .collect();
    project.write("hay.txt", text);
    let input = json!({"pattern": "needle", "limit": 5000}).to_string();
    // No file may grow beyond 60 kB: the log's lines fit, the listing does not.
    let bounded = "trap '' XFSZ; ulimit -f 60; exec \"$0\" \"$@\"";
    let binary = env!("CARGO_BIN_EXE_agent");
    let arguments = ["-c", bounded, binary, "call", "--json", "grep", &input];
    let ran = Run::new("/bin/bash", &project).args(arguments).finish();
    assert_eq!(ran.code(), 1, "{}", ran.stderr());
    let observed = ran.json();
    assert_eq!(observed["phase"], "write_back", "{observed}");
    assert_eq!(observed["code"], "io_error");
    let summary = observed["summary"].as_str().unwrap();
    assert!(summary.contains("cannot keep a tool_result"), "{summary}");
    let failed = events(&project, "tool.failed").pop().unwrap();
    assert_eq!(failed["payload"]["phase"], "write_back");
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

/// What nobody can read is named and not shown; the bytes are kept.
#[test]
fn binary_output_is_named_and_not_shown() {
    let project = TestProject::new();
    let bytes: Vec<u8> = (0..4096_u32)
        .map(|number| (number * 7 % 256) as u8)
        .collect();
    project.write("image.bin", &bytes);
    let mut talk = Conversation::start(&project, ALLOWED);
    let observed = bash(&mut talk, "cat image.bin");
    let text = observed["model_text"].as_str().unwrap();
    assert!(
        text.contains("[binary: 4096 bytes, not shown; artifact sha256:"),
        "{text}"
    );
    assert!(text.len() < 300, "{text}");
    assert_eq!(observed["truncated"], true);
    assert_eq!(observed["omitted_bytes"], 4096);
    let names = bash(
        &mut talk,
        "for i in $(seq 40); do printf './file-%s\\0' $i; done",
    );
    assert!(names["model_text"].as_str().unwrap().contains("./file-40"));
}
