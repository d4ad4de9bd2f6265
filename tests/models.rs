//! `agent models` and `agent doctor --online`: what is configured, and whether it answers.

use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::{agent, assert_schema};

fn provider<'a>(report: &'a Value, name: &str) -> &'a Value {
    let providers = report["providers"].as_array().unwrap();
    let named = providers.iter().find(|provider| provider["name"] == name);
    named.unwrap()
}

fn served(project: &TestProject, server: &ModelServer, more: &str) {
    let base = server.openai_url();
    let text = format!("model = \"mine/tiny\"\n[providers.mine]\nbase_url = \"{base}\"\n{more}");
    project.write_home("config.toml", text);
}

fn online(report: &Value) -> &Value {
    let checks = report["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|check| check["name"] == "online")
        .unwrap()
}

#[test]
fn keys_are_named_and_never_shown() {
    let project = TestProject::new();
    let with_key = |arguments: &[&str]| {
        let run = agent(&project, arguments).env("ANTHROPIC_API_KEY", "very-secret");
        run.finish().expect_code(0)
    };
    let ran = with_key(&["models", "--json"]);
    assert!(!ran.stdout().contains("very-secret"));
    let report = ran.json();
    assert_schema("models", &report);
    assert_eq!(
        provider(&report, "anthropic")["key"],
        json!({"state": "in_variable", "variable": "ANTHROPIC_API_KEY"})
    );
    assert_eq!(
        provider(&report, "gemini")["key"],
        json!({"state": "missing", "variables": ["GEMINI_API_KEY", "GOOGLE_API_KEY"]})
    );
    assert_eq!(provider(&report, "ollama")["key"]["state"], "not_needed");
    let chosen = &report["chosen"];
    assert_eq!(
        (&chosen["provider"], &chosen["source"]),
        (&json!("anthropic"), &json!("default"))
    );
    assert!(chosen["context_window"].as_u64().unwrap() > 0);
    assert!(chosen["prices"]["input"].as_f64().unwrap() > 0.0);

    let text = with_key(&["models"]).stdout();
    assert!(!text.contains("very-secret"));
    assert!(text.contains("in ANTHROPIC_API_KEY"), "{text}");
    assert!(text.contains("set OPENAI_API_KEY"), "{text}");
}

#[test]
fn a_model_of_the_settings_is_traced_to_its_line_and_the_unknown_stays_unknown() {
    let project = TestProject::new();
    let server = ModelServer::start(Script::new());
    served(&project, &server, "");
    let report = agent(&project, &["models", "--json"]).finish().json();
    assert_schema("models", &report);
    let chosen = &report["chosen"];
    assert_eq!(chosen["source"], "config");
    let why = chosen["why"].as_str().unwrap();
    assert!(why.contains("config.toml`, line 1"), "{why}");
    assert_eq!(
        (&chosen["context_window"], &chosen["prices"]),
        (&Value::Null, &Value::Null)
    );
    let mine = provider(&report, "mine");
    assert_eq!(
        (&mine["in_settings"], &mine["dialect"], &mine["base_url"]),
        (
            &json!(true),
            &json!("openai-chat"),
            &json!(server.openai_url())
        )
    );
    // It is configured, not found: its port is nobody's usual one, and nobody asked it anything.
    let servers = report["local_servers"].as_array().unwrap();
    assert!(
        servers
            .iter()
            .all(|found| found["base_url"] != server.openai_url())
    );
    assert!(server.requests().is_empty());
    let text = agent(&project, &["models"]).finish().stdout();
    assert!(text.contains("prices   unknown"), "{text}");
}

#[test]
fn a_model_that_cannot_be_used_names_what_to_set() {
    let project = TestProject::new();
    let asked = ["models", "--json", "--model", "openai/gpt-5.4"];
    let report = agent(&project, &asked).finish().expect_code(0).json();
    assert_schema("models", &report);
    assert_eq!(report["chosen"], Value::Null);
    let problem = report["problem"].as_str().unwrap();
    assert!(problem.contains("OPENAI_API_KEY"), "{problem}");
}

#[test]
fn doctor_asks_the_model_once_and_only_when_asked_to() {
    let project = TestProject::new();
    let server = ModelServer::start(Script::new().turn(Turn::text("ok")));
    served(&project, &server, "");
    let _ = agent(&project, &["doctor"]).finish().expect_code(0);
    assert!(server.requests().is_empty());
    let run = agent(&project, &["doctor", "--online", "--json"]).finish();
    let report = run.expect_code(0).json();
    assert_schema("doctor", &report);
    assert_eq!(online(&report)["status"], "ok");
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 1);
    assert_eq!(
        (&bodies[0]["model"], bodies[0].get("tools")),
        (&json!("tiny"), None)
    );
}

#[test]
fn doctor_classifies_a_failure_and_says_what_to_do() {
    let project = TestProject::new();
    let script = Script::new()
        .turn(Turn::error(401, "that key is wrong"))
        .turn(Turn::error(503, "come back later"));
    let server = ModelServer::start(script);
    served(&project, &server, "api_key_env = \"MY_KEY\"\n");
    let ask = || {
        let run = agent(&project, &["doctor", "--online", "--json"]).env("MY_KEY", "very-secret");
        let ran = run.finish().expect_code(1);
        assert!(!ran.stdout().contains("very-secret"));
        online(&ran.json()).clone()
    };
    let wrong = ask();
    let message = wrong["message"].as_str().unwrap();
    assert!(
        message.contains("(auth, HTTP 401): that key is wrong"),
        "{message}"
    );
    assert!(
        wrong["hint"].as_str().unwrap().contains("MY_KEY"),
        "{wrong}"
    );

    let busy = ask();
    let message = busy["message"].as_str().unwrap();
    assert!(message.contains("HTTP 503"), "{message}");
    assert_eq!(server.requests().len(), 2, "one attempt each");
}

#[test]
fn doctor_online_without_a_model_server_says_so() {
    let project = TestProject::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    project.write_home(
        "config.toml",
        format!(
            "model = \"mine/tiny\"\n[providers.mine]\nbase_url = \"http://127.0.0.1:{port}/v1\"\n"
        ),
    );
    let run = agent(&project, &["doctor", "--online", "--json"]).finish();
    let report = run.expect_code(1).json();
    let message = online(&report)["message"].as_str().unwrap();
    assert!(message.contains("(network)"), "{message}");
}
