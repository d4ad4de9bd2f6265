//! `agent doctor` finds what is wrong, and only looks.

use std::fs;

use agent_test_support::project::TestProject;
use serde_json::Value;

use crate::{agent, assert_schema};

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap()
}

#[test]
fn a_usable_project_is_fine_and_left_alone() {
    let project = TestProject::new();
    let report = agent(&project, &["doctor", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_schema("doctor", &report);
    assert_eq!(report["ok"], true);
    assert_eq!(check(&report, "project")["status"], "ok");
    assert_eq!(check(&report, "model")["status"], "warning");
    assert_eq!(
        fs::read_dir(project.home()).unwrap().count(),
        0,
        "nothing was written"
    );
    assert!(
        !project.root().join(".agent").exists(),
        "nothing was written"
    );
}

#[test]
fn broken_settings_are_a_finding_not_a_crash() {
    let project = TestProject::new();
    project.write_home("config.toml", "[limits]\nmax_steps = \"many\"\n");
    let report = agent(&project, &["doctor", "--json"])
        .finish()
        .expect_code(1)
        .json();
    assert_eq!(report["ok"], false);
    let message = check(&report, "settings")["message"].as_str().unwrap();
    assert!(message.contains("line 2, column 13"), "{message}");
}

#[test]
fn a_program_that_should_give_the_key_is_looked_for_and_not_run() {
    let project = TestProject::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let settings = |program: &str| {
        format!(
            "model = \"mine/m\"\n[providers.mine]\nbase_url = \"http://127.0.0.1:{port}\"\napi_key_cmd = [\"{program}\", \"made\"]\n"
        )
    };
    project.write_home("config.toml", settings("no-such-program"));
    let run = agent(&project, &["doctor", "--json"]).finish();
    let report = run.expect_code(1).json();
    let message = check(&report, "model")["message"].as_str().unwrap();
    assert!(
        message.contains("program `no-such-program` not found"),
        "{message}"
    );

    project.write_home("config.toml", settings("touch"));
    let run = agent(&project, &["doctor", "--json"]).finish();
    let report = run.expect_code(0).json();
    let message = check(&report, "model")["message"].as_str().unwrap();
    assert!(message.contains("key from `touch`"), "{message}");
    assert!(!project.root().join("made").exists());
}

#[test]
fn the_text_fits_80_columns() {
    let project = TestProject::new();
    let run = agent(&project, &["doctor"]).finish().expect_code(0);
    for line in run.stdout().lines().filter(|line| !line.contains('`')) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_missing_shell_is_named() {
    let project = TestProject::new();
    let run = agent(&project, &["doctor", "--json"]).env("PATH", "/nowhere");
    let report = run.finish().expect_code(1).json();
    assert_eq!(check(&report, "programs")["status"], "failed");
}

#[test]
fn a_missing_key_is_named_by_its_variable() {
    let project = TestProject::new();
    project.write_home("config.toml", "model = \"anthropic/some-model\"\n");
    let report = agent(&project, &["doctor", "--json"])
        .finish()
        .expect_code(1)
        .json();
    let hint = check(&report, "model")["hint"].as_str().unwrap();
    assert!(hint.contains("ANTHROPIC_API_KEY"), "{hint}");

    let run = agent(&project, &["doctor", "--json"]).env("ANTHROPIC_API_KEY", "very-secret");
    let run = run.finish().expect_code(0);
    assert_eq!(check(&run.json(), "model")["status"], "ok");
    // Nobody outside this machine was asked, and it says so.
    let server = &run.json()["checks"];
    let server = server
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == "server");
    assert_eq!(server.unwrap()["status"], "warning");
    assert!(!run.stdout().contains("very-secret"));
}

/// A server on this machine that is not there is found without `--online`.
#[test]
fn a_dead_local_server_is_a_finding() {
    let project = TestProject::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = free.local_addr().unwrap();
    let settings =
        format!("model = \"mine/m\"\n[providers.mine]\nbase_url = \"http://{place}/v1\"\n");
    project.write_home("config.toml", settings);
    let report = agent(&project, &["doctor", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_eq!(check(&report, "server")["status"], "ok");
    drop(free);
    let report = agent(&project, &["doctor", "--json"])
        .finish()
        .expect_code(1)
        .json();
    assert_eq!(check(&report, "server")["status"], "failed");
}

#[test]
fn an_unknown_provider_is_a_finding() {
    let project = TestProject::new();
    project.write_home("config.toml", "model = \"nobody/some-model\"\n");
    let report = agent(&project, &["doctor", "--json"])
        .finish()
        .expect_code(1)
        .json();
    assert_eq!(
        check(&report, "model")["message"],
        "unknown provider `nobody`"
    );
}
