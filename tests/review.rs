//! `agent review` and `agent init`: prepared prompts as ordinary turns.

use std::process::Command;

use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::run::assert_audit_is_clean;
use crate::{agent, assert_schema};

fn git(project: &TestProject, arguments: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
        .args(arguments)
        .current_dir(project.root())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A repository with one commit, and changes since.
fn changed() -> TestProject {
    let project = TestProject::new();
    git(&project, &["init", "-q", "-b", "main"]);
    project.write("src/sum.sh", "one\ntwo\nthree\n");
    project.write("gone.txt", "a\nb\n");
    git(&project, &["add", "."]);
    git(&project, &["commit", "-qm", "first"]);
    project.write("src/sum.sh", "one\nTWO\nthree\nfour\n");
    std::fs::remove_file(project.root().join("gone.txt")).unwrap();
    project.write("new.txt", "fresh\n");
    project
}

fn with_model(project: &TestProject, script: Script) -> ModelServer {
    let server = ModelServer::start(script);
    let base = server.base_url(Wire::Chat);
    project.write_home(
        "config.toml",
        format!("model = \"local/test-model\"\n[providers.local]\nbase_url = \"{base}\"\n"),
    );
    server
}

const FINDINGS: &str = r#"I looked at everything.

```json
{"summary": "Mostly fine.", "findings": [
  {"file": "src/sum.sh", "line": 2, "severity": "low", "title": "Shouting", "body": "TWO is loud."},
  {"file": "src/sum.sh", "line": 4, "end_line": 9, "severity": "high", "title": "Four is one too many", "body": "Nobody counts to four.\nRemove it."},
  {"file": "gone.txt", "line": 2, "severity": "medium", "title": "Still used", "body": ""},
  {"file": "new.txt", "line": 2, "severity": "high", "title": "Past the end"},
  {"file": "../outside", "line": 1, "severity": "high", "title": "Elsewhere"},
  {"severity": "high", "title": "Nowhere"}
]}
```"#;

#[test]
fn findings_have_a_place_and_the_rest_is_dropped() {
    let project = changed();
    let server = with_model(&project, Script::new().turn(Turn::text(FINDINGS)));
    let ran = agent(&project, &["review", "--format", "json"]).finish();
    let report = ran.expect_code(0).json();
    assert_schema("review", &report);
    let found: Vec<(&str, u64, &str)> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let text = |key: &str| it[key].as_str().unwrap();
            (text("file"), it["line"].as_u64().unwrap(), text("severity"))
        })
        .collect();
    assert_eq!(
        found,
        [
            ("src/sum.sh", 4, "high"),
            ("gone.txt", 2, "medium"),
            ("src/sum.sh", 2, "low")
        ]
    );
    assert_eq!(report["findings"][0].get("end_line"), None);
    assert_eq!(report["dropped"].as_array().unwrap().len(), 2);
    assert_eq!(report["malformed"], 1);
    assert_eq!(report["summary"], "Mostly fine.");
    // The model was told what changed, and to change nothing.
    let asked = server.bodies()[0]["messages"].to_string();
    for part in [
        "git diff HEAD",
        "src/sum.sh (+2 -1)",
        "gone.txt (+0 -2)",
        "new.txt (new",
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    assert_audit_is_clean(&project);
    let listed = agent(&project, &["sessions"]).finish().stdout();
    assert!(listed.contains("Review of uncommitted changes"), "{listed}");
}

#[test]
fn a_review_reads_and_does_not_write() {
    let project = changed();
    let script = Script::new()
        .turn(Turn::call(
            "bash",
            json!({"command": "git diff HEAD", "description": "look"}),
        ))
        .turn(Turn::call(
            "write",
            json!({"path": "new.txt", "content": "mine\n"}),
        ))
        .turn(Turn::text(FINDINGS));
    let server = with_model(&project, script);
    let ran = agent(&project, &["review"]).finish().expect_code(0);
    let text = ran.stdout();
    assert!(text.contains("3 findings in 3 changed files"), "{text}");
    assert!(text.contains("src/sum.sh:4"), "{text}");
    assert!(text.contains("new.txt:2 does not exist"), "{text}");
    assert_eq!(project.read("new.txt"), "fresh\n");
    let seen = server.bodies()[1]["messages"].to_string();
    assert!(seen.contains("+TWO"), "{seen}");
    let ran = agent(&project, &["review", "--mode", "full"]).finish();
    assert!(ran.expect_code(2).stderr().contains("only reads"));
}

#[test]
fn sarif_and_fail_on_are_for_build_servers() {
    let project = changed();
    let server = with_model(&project, Script::new().turns(3, &Turn::text(FINDINGS)));
    let sarif = [
        "review",
        "--format",
        "sarif",
        "-o",
        "review.sarif",
        "--fail-on",
        "high",
    ];
    let ran = agent(&project, &sarif).finish().expect_code(1);
    assert_eq!(ran.stdout(), "");
    let log: Value = serde_json::from_str(&project.read("review.sarif")).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    assert_eq!(results[0]["level"], "error");
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "src/sum.sh");
    assert_eq!(place["region"]["startLine"], 4);
    assert_eq!(log["runs"][0]["properties"]["dropped"], 2);
    let lenient = ["review", "--fail-on", "critical"];
    agent(&project, &lenient).finish().expect_code(0);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_branch_or_a_commit_is_reviewed() {
    let project = changed();
    git(&project, &["checkout", "-qb", "topic"]);
    git(&project, &["add", "."]);
    git(&project, &["commit", "-qm", "second"]);
    let empty = "{\"summary\": \"Fine.\", \"findings\": []}";
    let server = with_model(&project, Script::new().turns(2, &Turn::text(empty)));
    let look = |arguments: &[&str]| {
        let mut all = vec!["review", "--format", "json"];
        all.extend(arguments);
        agent(&project, &all).finish()
    };
    let since = look(&["--base", "main"]).expect_code(0).json();
    assert_eq!(since["files"].as_array().unwrap().len(), 3);
    let commit = look(&["--commit", "HEAD"]).expect_code(0).json();
    assert_eq!(commit["files"], since["files"]);
    let asked = server.bodies()[1]["messages"].to_string();
    let show = format!("git show {}", commit["commit"].as_str().unwrap());
    assert!(asked.contains(&show), "{asked}");

    // Nothing is asked when there is nothing to ask about, and a name is never an option.
    let none = look(&[]).expect_code(0);
    assert_eq!(none.json()["session_id"], Value::Null);
    assert!(none.stderr().contains("no changes to review"));
    let unknown = look(&["--base=--output=x"]).expect_code(2);
    assert!(
        unknown.stderr().contains("git knows no commit"),
        "{}",
        unknown.stderr()
    );
    assert!(!project.root().join("x").exists());
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn an_answer_without_findings_is_a_failure() {
    let project = changed();
    let _server = with_model(
        &project,
        Script::new().turn(Turn::text("Looks good to me!")),
    );
    let ran = agent(&project, &["review", "--format", "json"]).finish();
    let ran = ran.expect_code(1);
    assert_eq!(ran.stdout(), "");
    assert!(
        ran.stderr().contains("Looks good to me!"),
        "{}",
        ran.stderr()
    );
    let bare = TestProject::new();
    let ran = agent(&bare, &["review"]).finish().expect_code(2);
    assert!(
        ran.stderr().contains("no git repository"),
        "{}",
        ran.stderr()
    );
}

#[test]
fn init_asks_for_the_file_and_the_gate_decides() {
    let project = TestProject::new();
    project.write("README.md", "A project.\n");
    let write = json!({"path": "AGENTS.md", "content": "# Work here\n"});
    let script = || {
        Script::new()
            .turn(Turn::call("write", write.clone()))
            .turn(Turn::text("Written."))
    };
    let server = with_model(&project, script());
    let refused = agent(&project, &["init", "--print"]).finish();
    assert_eq!(refused.code(), 3, "{}", refused.stderr());
    assert!(!project.root().join("AGENTS.md").exists());
    assert!(
        server.bodies()[0]["messages"]
            .to_string()
            .contains("Write `AGENTS.md`")
    );
    let _server = with_model(&project, script());
    // Instructions for agents are asked about in every mode but `full`.
    let written = agent(&project, &["init", "--on-ask", "allow"]).finish();
    assert_eq!(written.expect_code(0).stdout(), "Written.\n");
    assert_eq!(project.read("AGENTS.md"), "# Work here\n");
    assert_audit_is_clean(&project);
}
