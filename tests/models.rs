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

    let known = provider(&report, "anthropic")["models"].as_array().unwrap();
    let haiku = known
        .iter()
        .find(|model| model["name"] == "anthropic/claude-haiku-5-5");
    let haiku = haiku.unwrap();
    assert_eq!(haiku["max_output_tokens"], 128_000);
    assert_eq!(
        haiku["prices"]["long"],
        json!({"over": 100_000, "input": 0.5, "output": 2.5})
    );
    let date = report["catalogue_date"].as_str().unwrap();
    assert!(date.len() == 10 && date.starts_with("20"), "{date}");

    let text = with_key(&["models"]).stdout();
    assert!(!text.contains("very-secret"));
    let row = text.lines().find(|line| line.contains("claude-haiku-5-5"));
    let row: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!(row[1..], ["1.0M", "128.0k", "0.1", "0.01", "0.5"], "{text}");
    assert!(text.contains(&format!("as of {date}")), "{text}");
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

/// What the page says to copy is what the program reads.
#[test]
fn every_block_of_the_providers_page_is_a_configuration() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/providers.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() > 15);
    let project = TestProject::new();
    for block in blocks {
        project.write_home("config.toml", block);
        let ran = agent(&project, &["config", "show", "--json"]).finish();
        assert_eq!(ran.code(), 0, "{block}\n{}", ran.stderr());
    }
}

fn events(project: &TestProject, session: &str) -> Vec<Value> {
    let path = project
        .root()
        .join(".agent/sessions")
        .join(session)
        .join("events.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_session_that_no_model_can_continue_says_so() {
    let project = TestProject::new();
    let server = ModelServer::start(Script::new().turn(Turn::text("Done.")));
    served(&project, &server, "");
    let first = agent(&project, &["run", "--output", "json", "Begin."])
        .finish()
        .expect_code(0);
    let session = first.json()["session_id"].as_str().unwrap().to_owned();

    project.write_home(
        "config.toml",
        "[model]\ndefault = \"openai/gpt-5.4\"\nfallbacks = [\"nowhere/m\"]\n",
    );
    let ran = agent(&project, &["run", "--session", &session, "Go on."])
        .finish()
        .expect_code(2);
    assert!(
        ran.stderr().contains("set OPENAI_API_KEY"),
        "{}",
        ran.stderr()
    );
    let events = events(&project, &session);
    let candidates = events
        .iter()
        .rfind(|event| event["type"] == "routing.candidates.resolved")
        .unwrap();
    assert_eq!(candidates["payload"]["count"], 0);
    let thought_of = candidates["payload"]["candidates"].as_array().unwrap();
    assert_eq!(thought_of.len(), 2);
    let not_possible = events
        .iter()
        .rfind(|event| event["type"] == "routing.not_possible")
        .unwrap();
    let missing = not_possible["payload"]["missing"].to_string();
    assert!(
        missing.contains("missing key: OPENAI_API_KEY is not set"),
        "{missing}"
    );
    assert!(missing.contains("nowhere/m: unknown provider"), "{missing}");
    let audit = agent(&project, &["audit", &session]).finish();
    assert_eq!(audit.code(), 0, "{}", audit.stdout());

    // A session that would begin with it is not begun.
    let before = std::fs::read_dir(project.root().join(".agent/sessions"))
        .unwrap()
        .count();
    agent(&project, &["run", "Begin."]).finish().expect_code(2);
    let after = std::fs::read_dir(project.root().join(".agent/sessions"))
        .unwrap()
        .count();
    assert_eq!(before, after);
}

/// Two servers, the second a fallback of the first, which answers with `failing`.
fn with_fallback(failing: Turn, more: &str) -> (Vec<Value>, usize, i32) {
    let project = TestProject::new();
    let first = ModelServer::start(Script::new().turns(9, &failing));
    let second = ModelServer::start(Script::new().turn(Turn::text("Done.")));
    project.write_home(
        "config.toml",
        format!(
            "[model]\ndefault = \"one/m\"\nfallbacks = [\"two/n\"]\n\
             [providers.one]\nbase_url = \"{}\"\nmax_attempts = 1\n\
             [providers.two]\nbase_url = \"{}\"\n{more}",
            first.openai_url(),
            second.openai_url()
        ),
    );
    let ran = agent(&project, &["run", "--output", "stream-json", "Begin."]).finish();
    let events = ran
        .stdout()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let audit = agent(&project, &["audit", "last"]).finish();
    assert_eq!(audit.code(), 0, "{}", audit.stdout());
    (events, second.requests().len(), ran.code())
}

/// A failure another model could do without moves on to it, and the log says so.
#[test]
fn a_fallback_takes_over_and_the_log_says_why() {
    let larger = "[providers.one.models.m]\ncontext_window = 100000\n[providers.two.models.n]\ncontext_window = 200000\n";
    for (failing, more, limit_state) in [
        (Turn::error(500, "down"), "", "ok"),
        (Turn::error(401, "wrong key"), "", "ok"),
        (Turn::error(404, "The model `m` does not exist"), "", "ok"),
        (Turn::error(400, "m is not a valid model ID"), "", "ok"),
        (Turn::error(400, "prompt is too long"), larger, "ok"),
        (
            Turn::error(429, "slow down").header("retry-after", "9999"),
            "",
            "limited",
        ),
    ] {
        let what = failing.text.clone();
        let (events, asked, code) = with_fallback(failing, more);
        assert_eq!((code, asked), (0, 1), "{what}");
        let payloads = |kind: &str| -> Vec<&Value> {
            let of_kind = events.iter().filter(|event| event["type"] == kind);
            of_kind.map(|event| &event["payload"]).collect()
        };
        let applied = payloads("routing.fallback.applied");
        assert_eq!(applied[0]["to"], json!({"provider": "two", "model": "n"}));
        let reason = applied[0]["reason"].as_str().unwrap();
        assert!(reason.contains(&what), "{reason}");
        let decided = payloads("routing.decided");
        assert_eq!(decided.len(), 2, "{what}");
        let expected = json!({
            "requested": {"provider": "one", "model": "m"},
            "selected": {"provider": "two", "model": "n"},
            "reason": "fallback",
            "source": "fallback",
            "candidate_count": 2,
            "fallback_chain": [],
            "limit_state": limit_state,
        });
        assert_eq!(decided[1], &expected, "{what}");
        if limit_state == "limited" {
            let hit = payloads("rate_limit.hit");
            assert_eq!(hit[0]["retry_after_ms"], 9_999_000);
        }
    }
}

/// A request that no model would take is not sent to the next one.
#[test]
fn our_own_mistakes_are_not_repeated_elsewhere() {
    for failing in [
        Turn::error(400, "tools[0] is malformed"),
        Turn::error(400, "prompt is too long"),
    ] {
        let (events, asked, code) = with_fallback(failing, "");
        assert_eq!((code, asked), (1, 0));
        // There was nothing to shorten, so the same was not asked again either.
        let requested = events
            .iter()
            .filter(|event| event["type"] == "model.requested");
        assert_eq!(requested.count(), 1);
    }
}

#[test]
fn a_refusal_is_what_the_run_says() {
    let project = TestProject::new();
    let refusal = Turn {
        refusal: "I will not help with that.".to_owned(),
        ..Turn::default()
    };
    let server = ModelServer::start(Script::new().turn(refusal));
    served(&project, &server, "");
    let ran = agent(&project, &["run", "Begin."]).finish();
    assert_eq!(ran.code(), 1, "{}", ran.stderr());
    assert!(ran.stdout().contains("I will not help with that."));
    assert!(ran.stderr().contains("refusal"), "{}", ran.stderr());
}

/// An answer cut inside a call is asked for once more, with more room, as far as the model has it.
#[test]
fn a_call_that_was_cut_gets_a_larger_limit_once() {
    let cut = || {
        let call = Turn::call("read", json!("{\"path\": \"a"));
        call.stopping("max_tokens").using(100, 20)
    };
    let model = "[providers.mine.models.tiny]\nmax_output_tokens = 20000\n";
    let project = TestProject::new();
    let done = Turn::text("Done.").using(200, 3);
    let server = ModelServer::start(Script::new().turn(cut()).turn(done));
    served(&project, &server, model);
    let ran = agent(&project, &["run", "--output", "stream-json", "Begin."]).finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let limits: Vec<Value> = server
        .bodies()
        .iter()
        .map(|body| body["max_tokens"].clone())
        .collect();
    assert_eq!(limits, [json!(16_384), json!(20_000)]);
    assert!(!ran.stdout().contains("\"type\":\"tool.intent\""));
    assert!(ran.stdout().contains("\"phase\":\"retrying\""));
    // What the cut answer took is counted like any other.
    let report = agent(&project, &["report", "last", "--json"]).finish();
    let report = report.expect_code(0).json();
    for usage in [&report["usage"], &report["turns"][0]["usage"]] {
        let tokens = (&usage["input"], &usage["output"]);
        assert_eq!(tokens, (&json!(300), &json!(23)), "{report:#}");
    }
    agent(&project, &["audit", "last"]).finish().expect_code(0);

    let project = TestProject::new();
    let server = ModelServer::start(Script::new().turn(cut()).turn(cut()).turn(cut()));
    served(&project, &server, model);
    let ran = agent(&project, &["run", "Begin."]).finish();
    assert_eq!((ran.code(), server.requests().len()), (1, 2));
}

#[test]
fn the_small_model_writes_summaries() {
    let project = TestProject::new();
    project.write(
        "long.txt",
        "a line of text that fills the window\n".repeat(400),
    );
    let read = |offset: u64| {
        Turn::call(
            "read",
            json!({"path": "long.txt", "offset": offset, "limit": 50}),
        )
    };
    let reads = (0..10).map(|number| read(1 + number * 30));
    let main = reads.fold(Script::new(), Script::turn);
    let main = ModelServer::start(main.turn(Turn::text("Done.")));
    let summary = || Turn::text("They read a long file.");
    let summaries = (0..10).fold(Script::new(), |script, _| script.turn(summary()));
    let small = ModelServer::start(summaries);
    project.write_home(
        "config.toml",
        format!(
            "[model]\ndefault = \"big/m\"\nsmall = \"little/s\"\nmax_output_tokens = 1000\n\
             [providers.big]\nbase_url = \"{}\"\n[providers.big.models.m]\ncontext_window = 3000\n\
             [providers.little]\nbase_url = \"{}\"\n[providers.little.models.s]\ncontext_window = 200000\n\
             [context]\ncompact_at = 0.5\n",
            main.openai_url(),
            small.openai_url()
        ),
    );
    let ran = agent(&project, &["run", "--output", "json", "Read it all."]).finish();
    assert_eq!(ran.code(), 0, "{}{}", ran.stdout(), ran.stderr());
    let session = ran.json()["session_id"].as_str().unwrap().to_owned();
    let events = events(&project, &session);
    let completed = events
        .iter()
        .find(|event| event["type"] == "context.compaction.completed")
        .unwrap_or_else(|| {
            panic!(
                "nothing was compacted: {:?}",
                events
                    .iter()
                    .map(|event| &event["type"])
                    .collect::<Vec<_>>()
            )
        });
    assert_eq!(completed["payload"]["summarised_by_model"], true);
    assert_eq!(
        completed["payload"]["summary_preview"],
        "They read a long file."
    );
    let routed = events
        .iter()
        .find(|event| {
            event["type"] == "routing.decided" && event["payload"]["source"] == "model.small"
        })
        .unwrap();
    assert_eq!(
        routed["payload"]["selected"],
        json!({"provider": "little", "model": "s"})
    );
    let asked = small.requests();
    assert!(!asked.is_empty());
    let body: Value = serde_json::from_slice(&asked[0].body).unwrap();
    assert_eq!(body["model"], "s");
    // What the side job took is counted like any other request.
    let of_kind = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(of_kind("cost.recorded"), of_kind("model.completed"));
}

#[test]
fn the_known_models_of_a_usable_provider_are_listed() {
    let project = TestProject::new();
    let with_key = agent(&project, &["models"]).env("ANTHROPIC_API_KEY", "very-secret");
    let text = with_key.finish().expect_code(0).stdout();
    assert!(text.contains("\nanthropic/claude-sonnet-5 "), "{text}");
    assert!(!text.contains("openai/gpt-5.4"), "{text}");
    let text = agent(&project, &["models"])
        .finish()
        .expect_code(0)
        .stdout();
    assert!(text.contains("`agent models --all`"), "{text}");
    let text = agent(&project, &["models", "--all"]).finish().stdout();
    assert!(text.contains("openai/gpt-5.4"), "{text}");
    project.write_home(
        "config.toml",
        "[providers.mine]\nbase_url = \"http://127.0.0.1:9/v1\"\n[providers.mine.models.tiny]\ncontext_window = 8192\n",
    );
    let text = agent(&project, &["models"]).finish().stdout();
    assert!(text.contains("mine/tiny"), "{text}");
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.contains("http")),
        "{text}"
    );
}
