//! `agent permissions test` and `agent why`: decisions told afterwards, and rules tried on them.

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::import::{asks, calls_tool, line};
use crate::permissions::project;
use crate::{agent, assert_schema};

/// Calls `tool` with `rules`; the session's and the call's id.
pub(crate) fn call(
    project: &TestProject,
    session: Option<&str>,
    tool: &str,
    input: &str,
) -> (String, String) {
    let mut arguments = vec!["call", "--json", tool, input];
    arguments.extend(session.iter().flat_map(|id| ["--session", id]));
    let observed = agent(project, &arguments).finish().json();
    let text = |key: &str| observed[key].as_str().unwrap().to_owned();
    (text("session_id"), text("tool_call_id"))
}

#[test]
fn why_tells_the_chain_of_a_call() {
    let project = project();
    project.write_home("config.toml", "[permissions]\ndeny = [\"bash(node *)\"]\n");
    let (session, read) = call(
        &project,
        None,
        "bash",
        r#"{"command":"cat README.md","description":"Read"}"#,
    );
    let (_, denied) = call(
        &project,
        Some(&session),
        "bash",
        r#"{"command":"node x.js","description":"Run"}"#,
    );

    let run = agent(&project, &["why", &session, &read]).env("COLUMNS", "200");
    let text = run.finish().expect_code(0).stdout();
    let mut rest = text.as_str();
    for step in [
        "bash  ",
        "cat README.md",
        "valid ",
        "allowed  ",
        "rules: none matches",
        "started",
        "sandbox",
        "runs",
        "cat README.md",
        "exit 0 after",
        "result",
        "shown",
    ] {
        let at = rest
            .find(step)
            .unwrap_or_else(|| panic!("{step} in order in {text}"));
        rest = &rest[at..];
    }

    let json = agent(&project, &["why", "last", &denied, "--json"]);
    let json = json.finish().expect_code(0).json();
    assert_schema("why", &json);
    assert_eq!(json["status"], "denied");
    assert_eq!(json["decision"]["decision"], "deny");
    assert_eq!(json["decision"]["matched"][0]["origin"]["line"], 2);
    let says = json["chain"].to_string();
    assert!(says.contains("rules: deny bash(node *) (user, "), "{says}");
    assert!(says.contains("nothing was done"), "{says}");

    // A beginning is enough where only one call has it.
    let both = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let common = both(&read, &denied);
    agent(&project, &["why", &session, &read[..=common]])
        .finish()
        .expect_code(0);
    let several = agent(&project, &["why", &session, &read[..common]])
        .finish()
        .expect_code(2);
    assert!(
        several.stderr().contains("several calls"),
        "{}",
        several.stderr()
    );
    let none = agent(&project, &["why", &session, "nothing"])
        .finish()
        .expect_code(2);
    assert!(
        none.stderr().contains("no call `nothing`"),
        "{}",
        none.stderr()
    );
}

#[test]
fn rules_are_tried_on_a_past_session() {
    let project = project();
    let cargo = |rest: &str| format!(r#"{{"command":"cargo test {rest}","description":"Test"}}"#);
    let (session, _) = call(&project, None, "bash", &cargo("-p a"));
    call(&project, Some(&session), "bash", &cargo("-p a"));
    let (_, read) = call(&project, Some(&session), "read", r#"{"path":"README.md"}"#);
    let log = project
        .root()
        .join(".agent/sessions")
        .join(&session)
        .join("events.jsonl");
    let before = std::fs::read(&log).unwrap();

    let test = |rules: &str| {
        project.write("rules.toml", rules);
        let arguments = [
            "permissions",
            "test",
            &session,
            "--rules",
            "rules.toml",
            "--json",
        ];
        let report = agent(&project, &arguments).finish().expect_code(0).json();
        assert_schema("permissions-test", &report);
        report
    };
    let nothing_new = test("");
    assert_eq!(
        nothing_new["before"],
        json!({"allowed": 1, "asked": 2, "denied": 0})
    );
    assert_eq!(nothing_new["after"], nothing_new["before"]);
    let rule = nothing_new["rules_to_add"][0]["rule"].as_str().unwrap();
    assert_eq!(nothing_new["rules_to_add"][0]["questions"], 2);

    let with_rule = test(&format!(
        "[permissions]\nallow = [\"{rule}\"]\ndeny = [\"read(*.md)\"]\n"
    ));
    assert_eq!(
        with_rule["after"],
        json!({"allowed": 2, "asked": 0, "denied": 1})
    );
    assert_eq!(with_rule["rules_to_add"], json!([]));
    let changed = with_rule["changed"].as_array().unwrap();
    assert_eq!(changed.len(), 3);
    assert_eq!(changed[2]["tool_call_id"], read.as_str());
    assert_eq!(changed[2]["after"], "deny");

    let text = agent(&project, &["permissions", "test", "last"])
        .finish()
        .expect_code(0);
    assert!(
        text.stdout().contains(&format!("allow {rule}")),
        "{}",
        text.stdout()
    );
    assert_eq!(std::fs::read(&log).unwrap(), before, "the log is only read");
}

/// Three questions twice each: one rule answers two of them, no rule is offered for a shell.
#[test]
fn the_smallest_set_of_rules_is_found() {
    let project = project();
    let bash = |command: &str| json!({"command": command, "description": "Run"}).to_string();
    let (session, _) = call(&project, None, "bash", &bash("cargo test -p a"));
    for command in [
        "cargo test -p b",
        "cargo test --workspace",
        "npm test",
        "npm test",
        "make once",
        "sh -c 'node x.js'",
        "sh -c 'node x.js'",
    ] {
        call(&project, Some(&session), "bash", &bash(command));
    }
    let arguments = ["permissions", "test", &session, "--json"];
    let report = agent(&project, &arguments).finish().expect_code(0).json();
    let rules: Vec<(&str, u64)> = report["rules_to_add"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| {
            (
                rule["rule"].as_str().unwrap(),
                rule["questions"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rules,
        [("bash(cargo test *)", 3), ("bash(npm test *)", 2)],
        "{report}"
    );
    let text: String = rules
        .iter()
        .map(|(rule, _)| format!("{rule:?}, "))
        .collect();
    project.write("rules.toml", format!("[permissions]\nallow = [{text}]\n"));
    let arguments = [
        "permissions",
        "test",
        &session,
        "--rules",
        "rules.toml",
        "--json",
    ];
    let after = agent(&project, &arguments).finish().expect_code(0).json();
    assert_eq!(
        after["after"],
        json!({"allowed": 5, "asked": 3, "denied": 0})
    );
    assert_eq!(after["rules_to_add"], json!([]));
}

/// How often would another program's work have been asked about here?
#[test]
fn another_programs_calls_are_judged_by_todays_rules() {
    let project = project();
    let bash = |command: &str| json!({"command": command, "description": "x"});
    let refused = json!({
        "role": "user",
        "content": [{
            "type": "tool_result", "tool_use_id": "c7", "is_error": true,
            "content": "The user doesn't want to proceed with this tool use.",
        }],
    });
    let lines = [
        asks(1, "work"),
        calls_tool(2, "Bash", bash("cd /srv/shop && cat README.md")),
        calls_tool(3, "Bash", bash("cargo test -p a")),
        calls_tool(4, "Bash", bash("cargo test -p b")),
        calls_tool(5, "Read", json!({"file_path": "/srv/shop/README.md"})),
        calls_tool(
            6,
            "Edit",
            json!({"file_path": "/srv/shop/till.txt", "old_string": "x", "new_string": "y"}),
        ),
        calls_tool(7, "Bash", bash("ls")),
        line("user", 8, refused, json!({})),
        calls_tool(9, "Read", json!({"file_path": "/etc/hostname"})),
        calls_tool(10, "Task", json!({"prompt": "x"})),
    ];
    project.write("record.jsonl", lines.join("\n"));
    agent(&project, &["import", "record.jsonl"])
        .finish()
        .expect_code(0);
    let test = |more: &[&str]| {
        let run = agent(&project, &["permissions", "test", "last", "--json"]).args(more);
        let report = run.finish().expect_code(0).json();
        assert_schema("permissions-test", &report);
        report
    };
    let report = test(&[]);
    assert_eq!(report["imported_from"], "claude-code");
    assert_eq!(report["mode"], "ask");
    assert_eq!(
        report["before"],
        json!(null),
        "how it was decided is unknown"
    );
    assert_eq!(report["calls"], 8);
    assert_eq!(
        report["after"],
        json!({"allowed": 3, "asked": 4, "denied": 0})
    );
    assert_eq!(
        report["tools"],
        json!([
            {"tool": "bash", "allowed": 2, "asked": 2, "denied": 0},
            {"tool": "edit", "allowed": 0, "asked": 1, "denied": 0},
            {"tool": "read", "allowed": 1, "asked": 1, "denied": 0},
        ])
    );
    assert_eq!(report["reasons"][0]["calls"], 2);
    assert_eq!(report["reasons"][0]["decision"], "ask");
    assert_eq!(report["against_a_person"], 1);
    assert_eq!(report["unknown_tools"], json!({"Task": 1}));
    assert_eq!(report["rules_to_add"][0]["rule"], "bash(cargo test *)");

    let accepting = test(&["--mode", "accept-edits"]);
    assert_eq!(accepting["after"]["asked"], 3);
    project.write(
        "rules.toml",
        "[permissions]\nallow = [\"bash(cargo test *)\"]\ndeny = [\"edit(till.txt)\"]\n",
    );
    let with_rules = test(&["--rules", "rules.toml"]);
    assert_eq!(
        with_rules["after"],
        json!({"allowed": 5, "asked": 1, "denied": 1})
    );

    let text = agent(&project, &["permissions", "test", "last"]).env("COLUMNS", "200");
    let text = text.finish().expect_code(0).stdout();
    for words in [
        "8 calls imported from claude-code, decided as today in mode ask",
        "here: 3 allowed, 4 asked, 0 denied",
        "bash           2 allowed, 2 asked, 0 denied",
        "most common reasons:",
        "1 call that you refused would now run without asking",
        "1 call of tools that agent does not have: Task 1",
        "allow bash(cargo test *) (2 questions)",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// A patch of several files is decided as the strictest of them.
#[test]
fn a_codex_session_is_judged_too() {
    let project = project();
    let at = |second: u32, kind: &str, payload: Value| {
        let timestamp = format!("2026-03-04T09:00:{second:02}.000Z");
        json!({"timestamp": timestamp, "type": kind, "payload": payload}).to_string()
    };
    let call = |second: u32, name: &str, input: Value| {
        let id = format!("k{second}");
        let arguments = input.to_string();
        let payload =
            json!({"type": "function_call", "name": name, "arguments": arguments, "call_id": id});
        at(second, "response_item", payload)
    };
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Update File: secret/b\n@@\n-1\n+2\n*** End Patch";
    let lines = [
        at(
            0,
            "session_meta",
            json!({"cwd": "/srv/shop", "cli_version": "0.105.0"}),
        ),
        at(
            1,
            "event_msg",
            json!({"type": "user_message", "message": "go"}),
        ),
        call(
            2,
            "shell",
            json!({"command": ["bash", "-lc", "ls -la"], "workdir": "/srv/shop"}),
        ),
        call(
            3,
            "exec_command",
            json!({"cmd": "make", "workdir": "/srv/shop"}),
        ),
        call(4, "apply_patch", json!({"input": patch})),
        call(5, "update_plan", json!({"plan": []})),
    ];
    project.write("record.jsonl", lines.join("\n"));
    project.write(
        "rules.toml",
        "[permissions]\ndeny = [\"edit(secret/**)\"]\n",
    );
    agent(&project, &["import", "record.jsonl"])
        .finish()
        .expect_code(0);
    let arguments = [
        "permissions",
        "test",
        "last",
        "--json",
        "--rules",
        "rules.toml",
    ];
    let report = agent(&project, &arguments).finish().expect_code(0).json();
    assert_schema("permissions-test", &report);
    assert_eq!(
        report["after"],
        json!({"allowed": 1, "asked": 1, "denied": 1})
    );
    assert_eq!(
        (&report["calls"], &report["skipped"]),
        (&4.into(), &1.into())
    );
}
