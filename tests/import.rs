//! `agent import`: another program's session, replayed, explained, audited and counted as far as its
//! facts go, and unknown beyond.

use std::path::PathBuf;

use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::run::{assert_inputs_can_be_rebuilt, run};
use crate::{agent, assert_schema};

fn fixture(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("fixtures/imports").join(name);
    file.display().to_string()
}

/// Imports a fixture and gives what was printed and the session replayed.
fn imported(name: &str) -> (TestProject, Value, Value) {
    let project = TestProject::new();
    let run = agent(&project, &["import", &fixture(name), "--json"]);
    let output = run.finish().expect_code(0).json();
    assert_schema("import", &output);
    let replay = agent(&project, &["replay", "last", "--format", "json"]);
    let replay = replay.finish().expect_code(0).json();
    assert_schema("replay", &replay);
    (project, output, replay)
}

fn calls(replay: &Value) -> Vec<(String, String, Value)> {
    let calls = replay["calls"].as_array().unwrap().iter();
    calls
        .map(|call| {
            let text = |name: &str| call[name].as_str().unwrap().to_owned();
            (text("tool_name"), text("status"), call["decision"].clone())
        })
        .collect()
}

#[test]
fn a_claude_code_session_keeps_its_facts() {
    let (project, output, replay) = imported("claude-code.jsonl");
    assert_eq!(output["program"], "claude-code");
    assert_eq!(output["version"], "2.0.61");
    assert_eq!((&output["turns"], &output["calls"]), (&1.into(), &3.into()));
    assert_eq!(output["subagents"], 1);
    assert_eq!(output["left_out"]["`file-history-snapshot` records"], 1);

    let session = &replay["session"];
    assert_eq!(session["imported_from"], "claude-code");
    assert_eq!(session["title"], "Fix the sum");
    assert_eq!(session["created_at"], "2025-11-03T10:00:00.000Z");
    assert_eq!(session["mode"], Value::Null, "the record does not say it");
    assert_eq!(session["model"], "claude-sonnet-4-5-20250929");
    let expected = [("bash", "failed"), ("edit", "ok"), ("bash", "denied")];
    for (call, (tool, status)) in calls(&replay).iter().zip(expected) {
        assert_eq!((call.0.as_str(), call.1.as_str()), (tool, status));
        assert_eq!(call.2, Value::Null, "who decided is unknown");
    }
    // What it was called there is kept beside our name.
    assert_eq!(replay["calls"][1]["requested_name"], "Edit");
    // A message of three lines is counted once.
    let usage = &replay["summary"]["usage"];
    assert_eq!(
        usage["input"],
        10 + 500 + 1000 + 12 + 100 + 1500 + 5 + 1600 + 6 + 1700
    );
    assert_eq!(usage["output"], 40 + 60 + 20 + 15);
    assert_eq!(replay["summary"]["files_changed"][0]["path"], "src/sum.sh");
    assert_eq!(replay["turns"][0]["verification"]["status"], "unverified");

    // Audit says what it is, and finds nothing wrong with the record itself.
    let audit = agent(&project, &["audit", "last", "--json"]).finish();
    let audit = audit.expect_code(0).json();
    let codes: Vec<&str> = audit["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["imported"]);

    // The card answers what is known and says unknown for the rest.
    let card = agent(
        &project,
        &["replay", "last", "--call", "1", "--format", "json"],
    );
    let card = card.finish().expect_code(0).json();
    assert_schema("replay-card", &card);
    let known = |key: &str| {
        let answers = card["answers"].as_array().unwrap().iter();
        let all: Vec<_> = answers.chain(card["more"].as_array().unwrap()).collect();
        let answer = all.iter().find(|answer| answer["key"] == key).unwrap();
        answer["known"].as_bool().unwrap()
    };
    for key in [
        "exists",
        "rules",
        "cwd",
        "sandbox",
        "timeout",
        "proposed_by",
        "confirmed",
    ] {
        assert!(!known(key), "{key}");
    }
    for key in ["outcome", "user_view", "audit_view", "replay"] {
        assert!(known(key), "{key}");
    }
    let call = replay["calls"][0]["tool_call_id"].as_str().unwrap();
    agent(&project, &["why", "last", call])
        .finish()
        .expect_code(0);
    let text = agent(&project, &["replay", "last"]).finish().expect_code(0);
    assert!(
        text.stdout().contains("imported from claude-code"),
        "{}",
        text.stdout()
    );
    assert!(
        text.stdout().contains("+    echo $(($1 + $2))"),
        "the diff is there"
    );
}

#[test]
fn a_codex_rollout_keeps_its_facts() {
    let (_project, output, replay) = imported("codex.jsonl");
    assert_eq!(output["program"], "codex");
    assert_eq!(output["version"], "0.46.0");
    assert_eq!((&output["turns"], &output["calls"]), (&1.into(), &2.into()));
    assert_eq!(output["left_out"], json!({}));
    let found = calls(&replay);
    assert_eq!(
        (found[0].0.as_str(), found[0].1.as_str()),
        ("bash", "failed")
    );
    assert_eq!((found[1].0.as_str(), found[1].1.as_str()), ("edit", "ok"));
    assert_eq!(replay["turns"][0]["input"], "fix the failing test");
    assert_eq!(replay["summary"]["usage"]["input"], 6200);
    assert_eq!(replay["summary"]["usage"]["output"], 120);
    assert_eq!(replay["summary"]["files_changed"][0]["path"], "src/sum.sh");
    assert_eq!(replay["session"]["model"], "gpt-5-codex");
}

#[test]
fn the_older_codex_form_is_read_too() {
    let (_project, output, replay) = imported("codex-old.jsonl");
    assert_eq!((&output["turns"], &output["calls"]), (&1.into(), &1.into()));
    assert_eq!(calls(&replay)[0].1, "ok");
    assert_eq!(replay["turns"][0]["input"], "what does the test say?");
}

#[test]
fn what_is_no_session_is_refused_and_nothing_is_made() {
    let project = TestProject::new();
    for (name, content) in [
        ("empty", ""),
        ("text", "hello\n"),
        ("other", "{\"type\":\"user\",\"text\":\"x\"}\n"),
        ("ours", "{\"type\":\"session.created\",\"sequence\":0}\n"),
    ] {
        project.write(name, content);
        let run = agent(&project, &["import", name]).finish().expect_code(2);
        assert!(
            run.stderr().contains("neither a Claude Code"),
            "{}",
            run.stderr()
        );
    }
    agent(&project, &["import", "missing"])
        .finish()
        .expect_code(2);
    assert!(!project.root().join(".agent").exists());
}

/// Secrets in the other program's record do not come over.
#[test]
fn secrets_are_masked_on_the_way_in() {
    let project = TestProject::new();
    let secret = format!("ghp_{}", "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6");
    let line = format!(
        r#"{{"type":"user","sessionId":"s","timestamp":"2025-11-03T10:00:00Z","message":{{"role":"user","content":"my token is {secret}"}}}}"#
    );
    project.write("session.jsonl", line);
    agent(&project, &["import", "session.jsonl"])
        .finish()
        .expect_code(0);
    let text = agent(&project, &["export", "last"]).finish().expect_code(0);
    assert!(!text.stdout().contains(&secret));
}

/// Numbers at the end of their range, a call that is named twice, results of no call, a path out of
/// the project, images, broken lines: all is taken as far as it goes, and the rest is counted.
#[test]
fn a_hostile_record_is_taken_as_far_as_it_goes() {
    let most = u64::MAX;
    let own = |kind: &str, message: Value, second: u32| {
        json!({
            "type": kind, "sessionId": "s", "version": "2.1.0", "message": message,
            "timestamp": format!("2026-01-02T03:04:{second:02}.000Z"),
            "toolUseResult": {"filePath": "../../etc/passwd", "type": "create"},
        })
        .to_string()
    };
    let said = |content: Value| {
        json!({
            "role": "assistant", "model": "m", "content": content,
            "usage": {"input_tokens": most, "cache_read_input_tokens": most, "output_tokens": most},
        })
    };
    let user = |content: Value| json!({"role": "user", "content": content});
    let call = json!([
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "t", "name": "Write", "input": {"file_path": "../../etc/passwd"}},
    ]);
    let result =
        |id: &str| json!([{"type": "tool_result", "tool_use_id": id, "content": "\u{1b}[31mok"}]);
    let image = json!([{"type": "image", "source": {}}]);
    let lines = [
        own("user", user("go".into()), 1),
        own("assistant", said(call.clone()), 2),
        own("user", user(result("t")), 3),
        own("assistant", said(call), 2),
        own("user", user(result("other")), 5),
        own("user", user(image), 6),
        "{\"type\":\"user\", broken".to_owned(),
        "\0".to_owned(),
    ];
    let project = TestProject::new();
    project.write("record.jsonl", lines.join("\n"));
    let run = agent(&project, &["import", "record.jsonl", "--json"]);
    let output = run.finish().expect_code(0).json();
    assert_schema("import", &output);
    let left_out = &output["left_out"];
    assert_eq!(left_out["`redacted_thinking` blocks"], 2);
    assert_eq!(left_out["`image` blocks"], 1);
    assert_eq!(left_out["lines that are no JSON"], 2);
    let replay = agent(&project, &["replay", "last", "--format", "json"]);
    let replay = replay.finish().expect_code(0).json();
    assert_eq!(replay["summary"]["usage"]["input"], most);
    for arguments in [
        &["audit", "last"][..],
        &["replay", "last", "--all"],
        &["replay", "last", "--format", "html"],
        &["why", "last", "1"],
        &["report", "last"],
        &["diff", "last"],
        &["undo", "last", "--dry-run"],
    ] {
        let run = agent(&project, arguments).finish();
        assert!(run.code() <= 1, "{arguments:?}: {}", run.stderr());
        assert!(!run.stdout().contains('\u{1b}'), "{}", run.stdout());
    }
}

/// One line of a Claude Code session.
pub(crate) fn line(kind: &str, second: u32, message: Value, more: Value) -> String {
    let mut line = json!({
        "type": kind, "sessionId": "s", "version": "2.1.40", "cwd": "/srv/shop",
        "uuid": format!("n{second}"), "message": message,
        "timestamp": format!("2026-03-04T09:00:{second:02}.000Z"),
    });
    let more = more.as_object().unwrap().clone();
    line.as_object_mut().unwrap().extend(more);
    line.to_string()
}

pub(crate) fn asks(second: u32, text: &str) -> String {
    line(
        "user",
        second,
        json!({"role": "user", "content": text}),
        json!({}),
    )
}

pub(crate) fn calls_tool(second: u32, name: &str, input: Value) -> String {
    let block =
        json!({"type": "tool_use", "id": format!("c{second}"), "name": name, "input": input});
    let message = json!({
        "role": "assistant", "model": "m", "id": format!("m{second}"), "content": [block],
    });
    line("assistant", second, message, json!({}))
}

/// A mark of the byte order before the first line costs nothing.
#[test]
fn the_first_line_counts_whatever_is_before_it() {
    let project = TestProject::new();
    project.write("record.jsonl", format!("\u{feff}{}\n", asks(1, "go")));
    let run = agent(&project, &["import", "record.jsonl", "--json"]);
    let output = run.finish().expect_code(0).json();
    assert_eq!(
        (&output["turns"], &output["left_out"]),
        (&1.into(), &json!({}))
    );
}

/// What sub-agents did may lie in files of its own beside the session's.
#[test]
fn files_of_sub_agents_are_read_with_their_session() {
    let project = TestProject::new();
    let task = json!({"prompt": "list the files", "subagent_type": "Explore", "description": "x"});
    let result = json!({
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "one"}],
    });
    let lines = [
        asks(1, "look around"),
        calls_tool(2, "Agent", task),
        line(
            "user",
            9,
            result,
            json!({"toolUseResult": {"agentId": "ag"}}),
        ),
    ];
    let side = |second: u32, kind: &str, content: Value| {
        let role = json!({"role": kind, "model": "small", "content": content});
        let more = json!({"isSidechain": true, "agentId": "ag", "uuid": format!("s{second}")});
        line(kind, second, role, more)
    };
    let agents = [
        side(3, "user", "list the files".into()),
        side(
            4,
            "assistant",
            json!([{
                "type": "tool_use", "id": "d", "name": "Bash", "input": {"command": "ls"},
            }]),
        ),
        side(
            5,
            "user",
            json!([{"type": "tool_result", "tool_use_id": "d", "content": "one"}]),
        ),
    ];
    project.write("s.jsonl", lines.join("\n"));
    project.write("s/subagents/agent-ag.jsonl", agents.join("\n"));
    let run = agent(&project, &["import", "s.jsonl", "--json"]);
    let output = run.finish().expect_code(0).json();
    assert_eq!((&output["turns"], &output["calls"]), (&1.into(), &2.into()));
    assert_eq!(
        (&output["subagents"], &output["subagent_calls"]),
        (&1.into(), &1.into())
    );
    let replay = agent(&project, &["replay", "last", "--format", "json"]);
    let replay = replay.finish().expect_code(0).json();
    let spawned = replay["events"].as_array().unwrap().iter();
    let mut spawned = spawned.filter(|event| event["type"] == "subagent.spawned");
    let spawned = spawned.next().unwrap();
    assert_eq!(spawned["says"], "sub-agent Explore begins: list the files");
    assert_eq!(spawned["tool_call_id"], replay["calls"][0]["tool_call_id"]);
    assert_eq!(replay["calls"][1]["status"], "ok");
    agent(&project, &["audit", "last", "--strict"])
        .finish()
        .expect_code(0);
}

/// The exact bytes are kept, so that an edit can be shown and taken back.
#[test]
fn an_imported_edit_can_be_taken_back() {
    let project = TestProject::new();
    project.write("m.go", "\treturn 2*x\n");
    let edit = json!({"file_path": "/srv/shop/m.go", "old_string": "x", "new_string": "2*x"});
    let facts = json!({"toolUseResult": {
        "filePath": "/srv/shop/m.go", "oldString": "return x", "newString": "return 2*x",
        "originalFile": "\treturn x\n",
        "structuredPatch": [{"oldStart": 1, "newStart": 1, "lines": ["-  return x", "+  return 2*x"]}],
    }});
    let result = json!({
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "done"}],
    });
    let lines = [
        asks(1, "double it"),
        calls_tool(2, "Edit", edit),
        line("user", 3, result, facts),
    ];
    project.write("s.jsonl", lines.join("\n"));
    agent(&project, &["import", "s.jsonl"])
        .finish()
        .expect_code(0);
    let diff = agent(&project, &["diff", "last"]).finish().expect_code(0);
    assert!(
        diff.stdout().contains("\n-\treturn x\n+\treturn 2*x\n"),
        "{}",
        diff.stdout()
    );
    let plan = agent(&project, &["undo", "last", "--dry-run", "--json"]);
    let plan = plan.finish().expect_code(0).json();
    assert_eq!(plan["files"][0]["path"], "m.go");
    assert_eq!(plan["files"][0]["status"], "planned");
    assert_eq!(plan["files"][0]["action"], "restore");
}

/// A file without times has no order that could be told.
#[test]
fn a_record_without_times_is_refused_with_the_reason() {
    let project = TestProject::new();
    let line =
        json!({"type": "user", "sessionId": "s", "message": {"role": "user", "content": "go"}});
    project.write("record.jsonl", line.to_string());
    let run = agent(&project, &["import", "record.jsonl"])
        .finish()
        .expect_code(2);
    assert!(run.stderr().contains("has a time"), "{}", run.stderr());
}

/// What was said to the other program is known to the model that goes on, also if it was compacted
/// there; what was said to its sub-agents is not.
#[test]
fn a_model_that_goes_on_knows_what_was_said() {
    let cases = [
        (
            "claude-code.jsonl",
            "The sum is wrong, fix it",
            "claude-code",
        ),
        ("codex.jsonl", "fix the failing test", "codex"),
    ];
    for (name, prompt, program) in cases {
        for wire in [Wire::Chat, Wire::Responses, Wire::Anthropic] {
            let (project, _, _) = imported(name);
            let server = ModelServer::start(Script::new().turn(Turn::text("I know.")));
            let go_on = ["--session", "last", "Go on."];
            let ran = run(&project, &server, wire, &go_on).finish();
            assert_eq!(ran.code(), 0, "{}", ran.stderr());
            let body = &server.bodies()[0];
            let said = body.get("messages").or_else(|| body.get("input")).unwrap();
            let said = said.to_string();
            assert_eq!(said.matches(prompt).count(), 1, "{said}");
            assert!(said.find(prompt) < said.find("Go on."), "{said}");
            assert!(said.contains(program), "{said}");
            assert!(!said.contains("Find every use of sum"), "{said}");
            assert_inputs_can_be_rebuilt(&project, &server);
            agent(&project, &["audit", "last"]).finish().expect_code(0);
        }
    }
}
