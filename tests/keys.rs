//! Keys of model providers: wherever they come from, they go to the server and nowhere else; one that
//! cannot be had is named with what to correct.

use std::path::Path;

use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;
use serde_json::json;

use crate::agent;

/// No shape anybody could know it by.
const KEY: &str = "zQ8rNoKnownShape77aaBBccDDee";

/// A model that gives the key away wherever it can, and a service that quotes it when it fails.
fn telltale() -> Script {
    let command = format!("env; cat /proc/self/environ; true {KEY}");
    let long = "word ".repeat(8_000);
    let said = Turn::text(&format!("Your key is {KEY}. {long}"))
        .thinking(&format!("It is {KEY}. {long}"))
        .and_call("bash", json!({"command": command, "description": KEY}))
        .and_call(
            "write",
            json!({"path": "out.txt", "content": format!("{KEY} {long}")}),
        )
        .header("x-request-id", &format!("req-{KEY}"))
        .using(10, 5);
    let refused = Turn::error(401, &format!("the key {KEY} is wrong"))
        .header("x-request-id", &format!("req-{KEY}"));
    Script::new().turn(said).turn(refused)
}

/// Files below `folder` that hold the key.
fn holding(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holding(&path, found);
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes
                .windows(KEY.len())
                .any(|piece| piece == KEY.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
}

fn assert_silent(ran: &RunOutput, what: &str) {
    assert!(!ran.stdout().contains(KEY), "{what} prints the key");
    assert!(!ran.stderr().contains(KEY), "{what} prints the key");
}

/// A run with the key from `settings`, and a look at everything it left and everything that tells
/// of it.
fn check(settings: &str, variable: Option<&str>, header: &str) {
    let project = TestProject::new();
    project.write("AGENTS.md", format!("The key of this project is {KEY}.\n"));
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("key"), format!("{KEY}\n")).unwrap();
    let server = ModelServer::start(telltale());
    let settings = settings.replace("OUTSIDE", &outside.path().display().to_string());
    project.write_home(
        "config.toml",
        format!(
            "model = \"mine/m\"\n[permissions]\nmode = \"full\"\n[providers.mine]\nbase_url = \"{}\"\nmax_attempts = 1\n{settings}",
            server.openai_url()
        ),
    );
    let go = |arguments: &[&str]| {
        let mut run = agent(&project, arguments).env("RUST_LOG", "trace");
        if let Some(variable) = variable {
            run = run.env(variable, KEY);
        }
        run.finish()
    };
    let prompt = format!("My key is {KEY}. {}", "and more ".repeat(4_000));
    let ran = go(&[
        "run",
        "--output",
        "stream-json",
        "--on-ask",
        "allow",
        &prompt,
    ]);
    assert_eq!(ran.code(), 1, "{settings}: {}", ran.stderr());
    assert_silent(&ran, settings.as_str());
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{settings}");
    for request in &requests {
        let sent = request.header(header).unwrap_or_default();
        assert!(sent.contains(KEY), "{settings}: it was sent in {header}");
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains(KEY), "{settings}: it was sent to the model");
    }
    for arguments in [
        &["replay", "last", "--format", "text"][..],
        &["replay", "last", "--format", "html"],
        &["export", "last", "--format", "portable"],
        &["sessions", "show", "last", "--json"],
        &["models", "--json"],
        &["models"],
        &["config", "show", "--json"],
        &["doctor"],
    ] {
        assert_silent(&go(arguments), &arguments.join(" "));
    }
    // What the model wrote to a file is the user's own, and kept as it was, because undo needs it.
    // What a command could find out about its environment is kept too, and does not hold it.
    let mut found = Vec::new();
    holding(&project.root().join(".agent"), &mut found);
    holding(&project.home(), &mut found);
    let exact = exact_copies(&project);
    let is_own = |path: &String| {
        exact.iter().any(|name| path.ends_with(name))
            || (path.ends_with("config.toml") && settings.contains(KEY))
    };
    found.retain(|path| !is_own(path));
    assert_eq!(found, [] as [String; 0], "{settings}");
}

/// The names of artifacts that are exact copies of files.
fn exact_copies(project: &TestProject) -> Vec<String> {
    let sessions = project.root().join(".agent/sessions");
    let session = std::fs::read_dir(sessions)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let log = std::fs::read_to_string(session.path().join("events.jsonl")).unwrap();
    let events = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    events
        .filter(|event| {
            let kind = &event["payload"]["kind"];
            event["type"] == "artifact.changed" && (kind == "after" || kind == "before")
        })
        .filter_map(|event| {
            let id = event["payload"]["artifact_id"].as_str()?.to_owned();
            Some(id.trim_start_matches("sha256:").to_owned())
        })
        .collect()
}

#[test]
fn a_key_in_a_variable_goes_nowhere_else() {
    check(
        "api_key_env = \"PLAIN_NAME\"\n",
        Some("PLAIN_NAME"),
        "authorization",
    );
}

#[test]
fn a_key_in_a_file_goes_nowhere_else() {
    check("api_key_file = \"OUTSIDE/key\"\n", None, "authorization");
}

#[test]
fn a_key_from_a_command_goes_nowhere_else() {
    check(
        "api_key_cmd = [\"cat\", \"OUTSIDE/key\"]\n",
        None,
        "authorization",
    );
}

#[test]
fn a_key_in_a_header_goes_nowhere_else() {
    check(
        &format!("headers = {{ \"Authorization\" = \"Bearer {KEY}\" }}\n"),
        None,
        "authorization",
    );
    check(
        "env_headers = { \"x-gateway\" = \"PLAIN_NAME\" }\n",
        Some("PLAIN_NAME"),
        "x-gateway",
    );
}

/// `agent run` with a key as `settings` say, in vain.
fn refused(settings: &str) -> String {
    let project = TestProject::new();
    let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
    project.write_home("empty", " \n");
    let settings = settings.replace("HOME", &project.home().display().to_string());
    project.write_home(
        "config.toml",
        format!(
            "model = \"mine/m\"\n[providers.mine]\nbase_url = \"{}\"\n{settings}\n",
            server.openai_url()
        ),
    );
    let ran = agent(&project, &["run", "Hello."]).finish();
    assert_eq!(ran.code(), 2, "{settings}: {}", ran.stderr());
    assert!(server.requests().is_empty(), "{settings}");
    assert!(!project.root().join(".agent/sessions").exists());
    ran.stderr()
}

#[test]
fn a_key_that_cannot_be_had_is_named_with_the_line_to_correct() {
    for (settings, reason, action) in [
        (
            "api_key_env = \"NOT_THERE\"",
            "NOT_THERE is not set",
            "set NOT_THERE",
        ),
        (
            "api_key_file = \"HOME/missing\"",
            "/missing`: No such file",
            "fix `api_key_file` under [providers.mine] (",
        ),
        (
            "api_key_file = \"HOME/empty\"",
            "/empty` is empty",
            "config.toml`, line 4)",
        ),
        (
            "api_key_cmd = [\"false\"]",
            "`false` failed",
            "fix `api_key_cmd` under [providers.mine] (",
        ),
        (
            "api_key_cmd = [\"no-such-program-here\"]",
            "`no-such-program-here` cannot be started",
            "config.toml`, line 4)",
        ),
        (
            "api_key_cmd = [\"true\"]",
            "`true` printed nothing",
            "fix `api_key_cmd`",
        ),
        (
            "env_headers = { \"api-key\" = \"NOT_THERE\" }",
            "NOT_THERE is not set",
            "set NOT_THERE, or change `env_headers` under [providers.mine] (",
        ),
    ] {
        let told = refused(settings);
        assert!(told.contains(reason), "{settings}: {told}");
        assert!(told.contains(action), "{settings}: {told}");
    }
}

/// Asking twice for a passphrase is once too often.
#[test]
fn a_key_command_runs_once_and_blanks_around_a_key_do_not_matter() {
    let project = TestProject::new();
    let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
    let count = project.home().join("count");
    let command = format!("echo x >> {}; printf '  {KEY}\\n\\n'", count.display());
    project.write_home(
        "config.toml",
        format!(
            "model = \"mine/m\"\n[providers.mine]\nbase_url = \"{}\"\napi_key_cmd = [\"sh\", \"-c\", {command:?}]\n",
            server.openai_url()
        ),
    );
    agent(&project, &["run", "Hello."]).finish().expect_code(0);
    let sent = server.requests().remove(0);
    assert_eq!(
        sent.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    assert_eq!(std::fs::read_to_string(count).unwrap(), "x\n");
}

/// A key that was entered is a file for the user alone, goes to the server, and is masked like any other.
#[test]
fn an_entered_key_is_kept_for_the_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let project = TestProject::new();
    let server = ModelServer::start(Script::new().turn(Turn::text(&format!("It is {KEY}."))));
    let settings = format!(
        "model = \"openai/gpt-5.4\"\n[providers.openai]\nbase_url = \"{}\"\n",
        server.openai_url()
    );
    project.write_home("config.toml", settings);
    let enter = |arguments: &[&str], key: &str| {
        let mut all = vec!["config", "key"];
        all.extend(arguments);
        agent(&project, &all).stdin(format!("{key}\n")).finish()
    };
    assert_eq!(agent(&project, &["run", "hello"]).finish().code(), 2);
    assert_eq!(enter(&["openai"], "two words").code(), 2);
    assert_eq!(enter(&["opnai"], KEY).code(), 2);
    assert_silent(&enter(&["openai"], KEY).expect_code(0), "entering");
    let file = project.home().join("state/keys/openai");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let ran = agent(&project, &["run", "Say it."]).finish().expect_code(0);
    assert_silent(&ran, "the run");
    let sent = server.requests().remove(0);
    assert_eq!(
        sent.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    let mut found = Vec::new();
    holding(&project.root(), &mut found);
    assert!(found.is_empty(), "{found:?}");
    let models = agent(&project, &["models", "--json"])
        .finish()
        .expect_code(0);
    assert_silent(&models, "models");
    let providers = models.json()["providers"].as_array().unwrap().clone();
    let openai = providers.iter().find(|it| it["name"] == "openai").unwrap();
    assert_eq!(openai["key"]["state"], "in_file");

    enter(&["openai", "--remove"], "").expect_code(0);
    assert!(!file.exists());
    assert_eq!(agent(&project, &["run", "hello"]).finish().code(), 2);
}
