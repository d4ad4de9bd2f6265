//! `agent permissions test` and `agent why`: decisions told afterwards, and rules tried on them.

use agent_test_support::project::TestProject;
use serde_json::json;

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
        "asked for",
        "validated",
        "decided",
        "allow: ",
        "no rule matches",
        "sandbox",
        "ran",
        "cat README.md",
        "ended",
        "exit code 0",
        "outcome",
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
    assert!(says.contains("rule deny bash(node *) (user, "), "{says}");
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
