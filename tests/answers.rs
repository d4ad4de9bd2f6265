//! The provider's side of an answer: one that stops before its end, and what a service is told besides the
//! conversation so that it is cheap and whole.

use agent_protocol::Payload;
use agent_test_support::model_server::{ModelServer, Script, Tokens, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run, sum_project};

fn asked_to_go_on(body: &Value) -> bool {
    body.to_string().contains("Go on exactly where it stopped")
}

/// The reasons for which the answers of the session stopped.
fn stops(project: &TestProject) -> Vec<String> {
    let of = |event: agent_protocol::Event| match event.payload {
        Payload::ModelCompleted(completed) => Some(completed.stop_reason),
        _ => None,
    };
    log(project).into_iter().filter_map(of).collect()
}

#[test]
fn an_answer_that_the_length_cut_is_finished() {
    for wire in Wire::ALL {
        let script = Script::new()
            .turn(Turn::text("One, two, th").stopping("max_tokens"))
            .turn(Turn::text("ree."))
            .turn(Turn::text("Four."));
        let server = ModelServer::start(script);
        let project = sum_project();
        let ran = run(&project, &server, wire, &["--output", "json", "Count."]).finish();
        let report = ran.expect_code(0).json();
        assert_eq!(
            report["final_text"], "One, two, three.",
            "{wire:?}: {report}"
        );
        assert_eq!(report["outcome"], "completed");
        assert_eq!(stops(&project), ["max_tokens", "end_turn"]);
        let bodies = server.bodies();
        assert_eq!(
            bodies.iter().map(asked_to_go_on).collect::<Vec<_>>(),
            [false, true]
        );
        assert_inputs_can_be_rebuilt(&project, &server);

        // The next turn has both pieces, and what stood between them.
        run(&project, &server, wire, &["--session", "last", "Go on."])
            .finish()
            .expect_code(0);
        let last = server.bodies().pop().unwrap().to_string();
        assert!(
            last.contains("One, two, th") && last.contains("ree."),
            "{last}"
        );
        assert_inputs_can_be_rebuilt(&project, &server);
        assert_audit_is_clean(&project);
    }
}

#[test]
fn an_answer_without_end_is_left_as_it_is() {
    let script = Script::new().turns(9, &Turn::text("and on ").stopping("max_tokens"));
    let server = ModelServer::start(script);
    let project = sum_project();
    let ran = run(
        &project,
        &server,
        Wire::Chat,
        &["--output", "json", "Tell."],
    )
    .finish();
    let report = ran.json();
    assert_eq!(report["outcome"], "degraded", "{report}");
    assert_eq!(report["final_text"], "and on and on and on and on ");
    assert_eq!(server.requests().len(), 4);
    assert_audit_is_clean(&project);
}

/// A thought can use up the whole answer; there is nothing to continue then, and more room helps.
#[test]
fn a_thought_that_left_no_room_is_given_more() {
    let script = Script::new()
        .turn(Turn::text("").thinking("Hmm.").stopping("max_tokens"))
        .turn(Turn::text("Three."));
    let server = ModelServer::start(script);
    let project = sum_project();
    let ran = run(&project, &server, Wire::Anthropic, &["Count."]).finish();
    ran.expect_code(0);
    let bodies = server.bodies();
    let room = |at: usize| bodies[at]["max_tokens"].as_u64().unwrap();
    assert!(room(1) > room(0), "{} and {}", room(0), room(1));
    assert_eq!(bodies[1]["messages"], bodies[0]["messages"]);
    assert_inputs_can_be_rebuilt(&project, &server);
}

/// The server's own tools can take longer than one answer: it is sent what it said, and nothing else.
#[test]
fn a_paused_answer_goes_on_by_itself() {
    let script = Script::new()
        .turn(Turn::text("Looking… ").stopping("pause_turn"))
        .turn(Turn::text("found it."));
    let server = ModelServer::start(script);
    let project = sum_project();
    let arguments = ["--output", "json", "Look."];
    let ran = run(&project, &server, Wire::Anthropic, &arguments).finish();
    let report = ran.expect_code(0).json();
    assert_eq!(report["final_text"], "Looking… found it.", "{report}");
    let bodies = server.bodies();
    let messages = bodies[1]["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["role"], "assistant");
    assert_eq!(stops(&project), ["pause_turn", "end_turn"]);
    assert_inputs_can_be_rebuilt(&project, &server);
    assert_audit_is_clean(&project);
}

#[test]
fn a_refusal_is_no_success() {
    for wire in Wire::ALL {
        let refusing = Turn {
            refusal: "I cannot help with that.".to_owned(),
            ..Turn::default()
        };
        let server = ModelServer::start(Script::new().turn(refusing));
        let project = sum_project();
        let ran = run(&project, &server, wire, &["--output", "json", "Do."]).finish();
        let report = ran.json();
        assert_eq!(report["outcome"], "degraded", "{wire:?}: {report}");
        assert_eq!(stops(&project), ["refusal"], "{wire:?}");
        assert_audit_is_clean(&project);
    }
}

/// Asks `model` of a built-in provider at `server`.
fn ask(server: &ModelServer, provider: &str, base_url: &str, key: &str, model: &str) {
    let project = sum_project();
    project.write_home(
        "config.toml",
        format!(
            "model = \"{provider}/{model}\"\n[providers.{provider}]\nbase_url = \"{base_url}\"\n"
        ),
    );
    let ran = agent(&project, &["run", "Hello."]).env(key, "secret");
    ran.finish().expect_code(0);
    assert!(!server.requests().is_empty());
}

/// Newer models refuse thoughts that were thought about another input, which compaction makes of it.
#[test]
fn thoughts_that_count_no_more_are_dropped_and_not_an_error() {
    for (model, is_bound) in [("claude-opus-5-5", true), ("claude-opus-5", false)] {
        let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
        let base = server.base_url(Wire::Anthropic);
        ask(&server, "anthropic", &base, "ANTHROPIC_API_KEY", model);
        let sent = server.requests().remove(0);
        let beta = sent.header("anthropic-beta").unwrap_or_default();
        let is_allowed = beta.contains("thinking-binding-controls");
        let thinking = &server.bodies()[0]["thinking"];
        let drops = thinking["block_binding"]["prefix_mismatch_behavior"] == "drop_block";
        assert_eq!(
            (is_allowed, drops),
            (is_bound, is_bound),
            "{model}: {beta} {thinking}"
        );
        assert_eq!(thinking["display"], "summarized");
    }
}

/// What is read from and written to a cache has its own price, and a long request another one.
#[test]
fn cached_tokens_are_counted_and_priced() {
    let usage = Tokens {
        input: 120_000,
        output: 1_000,
        cached_input: 100_000,
        ..Tokens::default()
    };
    let answer = Turn {
        usage: Some(usage),
        ..Turn::text("Hello.")
    };
    let server = ModelServer::start(Script::new().turn(answer));
    let project = sum_project();
    let base = server.base_url(Wire::Anthropic);
    project.write_home(
        "config.toml",
        format!(
            "model = \"anthropic/claude-haiku-5-5\"\n[providers.anthropic]\nbase_url = \"{base}\"\n"
        ),
    );
    let ran = agent(&project, &["run", "--output", "json", "Hello."]).env("ANTHROPIC_API_KEY", "k");
    let report = ran.finish().expect_code(0).json();
    // Over 100,000 tokens five times the usual prices: 20,000 new, 100,000 cached, 1,000 of output.
    let dollars = 5.0 * (0.02 * 0.10 + 0.1 * 0.01 + 0.001 * 0.50);
    let cost = report["cost"].as_f64().unwrap();
    assert!((cost - dollars).abs() < 1e-9, "{report}");
    assert_eq!(report["usage"]["cached_input"], json!(100_000));
}

/// OpenAI takes tools for its newer models in Responses only; what is merely compatible knows Chat Completions.
#[test]
fn what_is_compatible_with_openai_is_asked_as_before() {
    let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
    let base = server.openai_url();
    ask(&server, "openai", &base, "OPENAI_API_KEY", "gpt-6-sol");
    assert!(server.requests()[0].path.ends_with("/chat/completions"));
    let project = sum_project();
    let models = agent(&project, &["models", "--json"]).finish().json();
    let openai = models["providers"].as_array().unwrap().iter();
    let openai = openai.clone().find(|one| one["name"] == "openai").unwrap();
    assert_eq!(openai["dialect"], "openai-responses", "{openai}");
}
