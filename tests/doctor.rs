//! `agent doctor` finds what is wrong, and only looks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use agent_test_support::model_server::{ModelServer, Script};
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
    let server = ModelServer::start(Script::new());
    let base = server.openai_url();
    let settings = |program: &str| {
        format!(
            "model = \"mine/m\"\n[providers.mine]\nbase_url = \"{base}\"\napi_key_cmd = [\"{program}\", \"made\"]\n"
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

    let offline = ["doctor", "--offline", "--json"];
    let run = agent(&project, &offline).env("ANTHROPIC_API_KEY", "very-secret");
    let run = run.finish().expect_code(0);
    assert_eq!(check(&run.json(), "model")["status"], "ok");
    // Nobody was asked, and it says so.
    let server = run.json();
    let server = check(&server, "server");
    assert_eq!(server["status"], "warning");
    assert!(
        server["message"]
            .as_str()
            .unwrap()
            .contains("was not contacted")
    );
    assert!(!run.stdout().contains("very-secret"));
}

/// A server that gives each request the same answer, and keeps what it was asked.
struct Answering {
    url: String,
    asked: std::sync::mpsc::Receiver<String>,
}

impl Answering {
    fn with(status: &'static str, body: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (told, asked) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while !request.ends_with(b"\r\n\r\n") {
                    let count = stream.read(&mut piece).unwrap();
                    request.extend_from_slice(&piece[..count]);
                    if count == 0 {
                        break;
                    }
                }
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes());
                if told
                    .send(String::from_utf8_lossy(&request).into_owned())
                    .is_err()
                {
                    return;
                }
            }
        });
        Self { url, asked }
    }
}

/// What is said about the server at `url` with `more` lines in its section.
fn server_check(url: &str, more: &str, code: i32) -> (String, String) {
    let project = TestProject::new();
    let settings = format!("model = \"mine/tiny\"\n[providers.mine]\nbase_url = \"{url}\"\n{more}");
    project.write_home("config.toml", settings);
    let run = agent(&project, &["doctor", "--json"]).env("MY_KEY", "very-secret");
    let run = run.finish().expect_code(code);
    assert!(!run.stdout().contains("very-secret"));
    let report = run.json();
    assert_schema("doctor", &report);
    let server = check(&report, "server");
    let text = |key: &str| server[key].as_str().unwrap_or_default().to_owned();
    (
        text("status"),
        format!("{} | {}", text("message"), text("hint")),
    )
}

#[test]
fn the_server_of_the_model_is_asked_for_its_models() {
    let list = "{\"data\":[{\"id\":\"tiny\"},{\"id\":\"large\"}]}";
    let answering = Answering::with("200 OK", list);
    let (status, said) = server_check(&answering.url, "api_key_env = \"MY_KEY\"\n", 0);
    assert_eq!(status, "ok", "{said}");
    assert!(said.contains("lists `tiny`"), "{said}");
    let asked = answering.asked.recv().unwrap();
    assert!(asked.starts_with("GET /v1/models HTTP/1.1"), "{asked}");
    assert!(
        asked.contains("authorization: Bearer very-secret"),
        "{asked}"
    );

    let other = Answering::with("200 OK", "{\"data\":[{\"id\":\"tiny2\"}]}");
    let (status, said) = server_check(&other.url, "", 0);
    assert_eq!(status, "warning", "{said}");
    assert!(said.contains("did you mean `mine/tiny2`?"), "{said}");

    let refusing = Answering::with("401 Unauthorized", "{}");
    let (status, said) = server_check(&refusing.url, "api_key_env = \"MY_KEY\"\n", 1);
    assert_eq!(status, "failed", "{said}");
    assert!(
        said.contains("refuses the key in MY_KEY (HTTP 401)"),
        "{said}"
    );

    let without_list = Answering::with("404 Not Found", "");
    assert_eq!(server_check(&without_list.url, "", 0).0, "ok");
    let broken = Answering::with("503 Service Unavailable", "");
    assert_eq!(server_check(&broken.url, "", 0).0, "warning");
}

/// A key is enough to begin with, so it is enough here.
#[test]
fn a_model_that_would_be_chosen_is_looked_at() {
    let project = TestProject::new();
    let answering = Answering::with("200 OK", "{\"data\":[]}");
    let run = agent(&project, &["doctor", "--json"])
        .env("OPENAI_API_KEY", "very-secret")
        .env("OPENAI_BASE_URL", &answering.url);
    let report = run.finish().expect_code(0).json();
    let model = check(&report, "model");
    assert_eq!(model["status"], "ok");
    assert!(
        model["message"].as_str().unwrap().starts_with("`openai/"),
        "{model}"
    );
    assert_eq!(check(&report, "server")["status"], "ok");
    let asked = answering.asked.recv().unwrap();
    assert!(asked.contains("Bearer very-secret"), "{asked}");
}

#[test]
fn a_dead_server_is_a_finding() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", free.local_addr().unwrap());
    drop(free);
    let (status, said) = server_check(&url, "", 1);
    assert_eq!(status, "failed");
    assert!(said.contains("no answer from"), "{said}");
}

#[test]
fn an_unknown_provider_is_a_finding() {
    let project = TestProject::new();
    project.write_home("config.toml", "model = \"antropic/some-model\"\n");
    let report = agent(&project, &["doctor", "--json"])
        .finish()
        .expect_code(1)
        .json();
    let model = check(&report, "model");
    assert_eq!(model["message"], "unknown provider `antropic`");
    let ran = agent(&project, &["run", "hello"]).finish().expect_code(2);
    for said in [model["hint"].as_str().unwrap(), &ran.stderr()] {
        assert!(
            said.contains("did you mean `anthropic/some-model`?"),
            "{said}"
        );
        assert!(
            said.contains("known providers: openai, anthropic"),
            "{said}"
        );
    }
}

#[test]
fn a_model_that_plays_a_transcript_needs_no_server() {
    let project = TestProject::new();
    let settings = "model = \"fake/x\"\n[providers.fake]\ndialect = \"scripted\"\ntranscript = \"turns.json\"\n";
    project.write_home("config.toml", settings);
    let model = |code: i32| {
        let report = agent(&project, &["doctor", "--json"])
            .finish()
            .expect_code(code)
            .json();
        check(&report, "model")["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(model(1).contains("cannot read `turns.json`"));
    project.write("turns.json", "{\"turns\": []}");
    assert_eq!(model(0), "`fake/x`, plays `turns.json`");
}
