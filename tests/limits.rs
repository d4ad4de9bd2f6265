//! Limits that end a turn although the model would go on, each with a reason of its own, and
//! signals.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use agent_protocol::payload::conversation::TurnFailed;
use agent_protocol::{Event, Payload};
use agent_test_support::model_server::{Fault, ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::run::{assert_audit_is_clean, log, run, sum_project};

fn failure(project: &TestProject) -> TurnFailed {
    let failed = log(project)
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::TurnFailed(failed) => Some(failed),
            _ => None,
        });
    failed.expect("the turn failed")
}

fn quota_blocked(events: &[Event]) -> Option<String> {
    events.iter().find_map(|event| match &event.payload {
        Payload::QuotaBlocked(blocked) => Some(blocked.limit.as_str().to_owned()),
        _ => None,
    })
}

/// A run under `settings` that ends by the limit `code`.
fn check(settings: &str, arguments: &[&str], script: Script, code: &str, quota: Option<&str>) {
    let project = sum_project();
    project.write("project.toml", "");
    let server = ModelServer::start(script);
    let ready = run(&project, &server, Wire::Chat, arguments);
    let config = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    project.write_home("config.toml", format!("{config}{settings}"));
    let ran = ready.finish();
    assert_eq!(ran.code(), 5, "{code}: {}", ran.stderr());
    let failed = failure(&project);
    assert_eq!(
        (failed.category.as_str(), failed.code.as_str()),
        ("limit", code)
    );
    assert_eq!(quota_blocked(&log(&project)).as_deref(), quota);
    assert!(ran.stderr().contains(&failed.message), "{}", ran.stderr());
    assert_audit_is_clean(&project);
}

/// A model that never ends: it reads another part of the file each time.
fn endless() -> Script {
    let mut script = Script::new();
    for line in 1..20 {
        let read = json!({"path": "test.sh", "offset": line, "limit": 1});
        script = script.turn(Turn::call("read", read).using(1000, 100));
    }
    script
}

#[test]
fn steps() {
    check(
        "[limits]\nmax_steps = 3\n",
        &["Look."],
        endless(),
        "max_steps",
        Some("steps"),
    );
}

#[test]
fn tokens() {
    check(
        "[limits]\nmax_tokens = 2000\n",
        &["Look."],
        endless(),
        "max_tokens",
        Some("tokens"),
    );
}

#[test]
fn cost() {
    check(
        "[providers.local.models.\"test-model\"]\nmax_output_tokens = 100\ninput_price = 1000.0\noutput_price = 1000.0\n[limits]\nmax_cost = 10.0\n",
        &["Look."],
        endless(),
        "max_cost",
        Some("cost"),
    );
}

/// A run with these settings of the model; gives what it sent and how it ended.
fn budgeted(
    model: &str,
    arguments: &[&str],
    script: Script,
) -> (TestProject, Vec<serde_json::Value>, i32) {
    let project = sum_project();
    let server = ModelServer::start(script);
    let ready = run(&project, &server, Wire::Chat, arguments);
    let config = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    let facts = format!("[providers.local.models.\"test-model\"]\n{model}");
    project.write_home("config.toml", format!("{config}{facts}"));
    let code = ready.finish().code();
    assert_audit_is_clean(&project);
    (project, server.bodies(), code)
}

/// No request is sent that could cost more than is left; a small budget gets a short answer first.
#[test]
fn money_that_is_left_limits_the_answer_and_then_the_requests() {
    let prices = "input_price = 1.0\noutput_price = 10.0\nmax_output_tokens = 16000\n";
    let call = json!({"path": "test.sh"});
    let script = Script::new()
        .turn(Turn::call("read", call).using(5_000, 4_000))
        .turn(Turn::text("never asked for"));
    let (project, sent, code) = budgeted(prices, &["--max-cost", "0.05", "Look."], script);
    assert_eq!(code, 5);
    assert_eq!(sent.len(), 1);
    let room = sent[0]["max_tokens"].as_u64().unwrap();
    assert!((1_024..5_000).contains(&room), "{room}");
    let failed = failure(&project);
    assert!(
        failed.message.contains("0.0450 of 0.0500 USD"),
        "{failed:?}"
    );
    // What it could cost was said before it was asked.
    let events = log(&project);
    let at = |wanted: &str| {
        let types = events.iter().map(|event| event.payload.type_name());
        types.into_iter().position(|name| name == wanted).unwrap()
    };
    assert!(at("cost.estimated") < at("model.requested"));
    assert!(at("model.requested") < at("cost.recorded"));
}

/// A limit that cannot be kept stops before anything is spent, and says what is missing.
#[test]
fn money_without_a_price() {
    let script = Script::new().turn(Turn::text("never asked for"));
    let (project, sent, code) = budgeted("tools = true\n", &["--max-cost", "5", "Look."], script);
    assert_eq!((code, sent.len()), (5, 0));
    let failed = failure(&project);
    let line = "[providers.local.models.\"test-model\"]";
    assert!(
        failed.message.contains("`input_price`") && failed.message.contains(line),
        "{failed:?}"
    );
    assert_eq!(quota_blocked(&log(&project)).as_deref(), Some("cost"));
}

/// What the session has cost before counts: the limit is the session's.
#[test]
fn money_of_earlier_turns() {
    let project = sum_project();
    let prices = "[providers.local.models.\"test-model\"]\ninput_price = 1.0\noutput_price = 1.0\nmax_output_tokens = 2000\n";
    let said = Turn::text("Done.").using(20_000, 1_000);
    let server = ModelServer::start(Script::new().turns(2, &said));
    let go = |arguments: &[&str]| {
        let ready = run(&project, &server, Wire::Chat, arguments);
        let config = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
        project.write_home("config.toml", format!("{config}{prices}"));
        ready.finish().code()
    };
    assert_eq!(go(&["--max-cost", "0.022", "One."]), 0);
    assert_eq!(go(&["--session", "last", "--max-cost", "0.022", "Two."]), 5);
    assert_eq!(server.requests().len(), 1);
}

/// A server that does not count is counted by an estimate, not as nothing.
#[test]
fn tokens_nobody_counted() {
    let mut script = Script::new();
    for line in 1..20 {
        let read = json!({"path": "test.sh", "offset": line, "limit": 1});
        script = script.turn(Turn::call("read", read));
    }
    check(
        "[limits]\nmax_tokens = 20000\n",
        &["Look."],
        script,
        "max_tokens",
        Some("tokens"),
    );
}

#[test]
fn time() {
    let waits = Turn::text("Too late.").fault(Fault::Delay(std::time::Duration::from_secs(60)));
    check(
        "",
        &["--timeout", "1s", "Wait."],
        Script::new().turn(waits),
        "timeout",
        None,
    );
}

#[test]
fn repeated_calls() {
    let same = Turn::call("grep", json!({"pattern": "nothing here", "mode": "lines"}));
    check(
        "[limits]\nmax_repeats = 3\n",
        &["Look."],
        Script::new().turns(10, &same),
        "repeated_calls",
        None,
    );
}

#[test]
fn consecutive_failures() {
    let mut script = Script::new();
    for number in 0..10 {
        let read = json!({"path": format!("missing-{number}")});
        script = script.turn(Turn::call("read", read));
    }
    check(
        "[limits]\nmax_failures = 4\n",
        &["Look."],
        script,
        "consecutive_failures",
        None,
    );
}

/// A run whose model says nothing for a minute; ready to be sent a signal.
fn waiting(project: &TestProject, server: &ModelServer) -> Child {
    // Writes the settings that `run` would use.
    drop(run(project, server, Wire::Chat, &[]));
    let child = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["run", "Wait."])
        .current_dir(project.root())
        .env_clear()
        .env("AGENT_HOME", project.home())
        .env("HOME", project.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    server.wait_for_requests(1);
    child
}

fn slow() -> Script {
    let slow = Turn::text("Too late.").fault(Fault::Delay(std::time::Duration::from_secs(60)));
    Script::new().turn(slow)
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, signal).unwrap();
}

fn signal_ends_the_turn(signal: Signal, exit: i32, code: &str) {
    let project = sum_project();
    let server = ModelServer::start(slow());
    let mut child = waiting(&project, &server);
    send(&child, signal);
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(exit), "{told}");
    let failed = failure(&project);
    assert_eq!(
        (failed.status.as_str(), failed.code.as_str()),
        ("cancelled", code)
    );
    // The end of the session is in the log too: nothing had to be repaired.
    let events = log(&project);
    assert_eq!(
        events.last().unwrap().payload.type_name(),
        "session.updated"
    );
    assert_audit_is_clean(&project);
}

#[test]
fn ctrl_c_once_ends_the_turn_with_its_facts() {
    signal_ends_the_turn(Signal::SIGINT, 130, "interrupted");
}

#[test]
fn sigterm_ends_the_turn_with_its_facts() {
    signal_ends_the_turn(Signal::SIGTERM, 143, "terminated");
}

#[test]
fn a_closed_terminal_ends_the_turn_with_its_facts() {
    signal_ends_the_turn(Signal::SIGHUP, 143, "terminated");
}

#[test]
fn ctrl_c_twice_ends_the_process_and_the_session_can_go_on() {
    // A command that does not stop when it is asked to.
    let stubborn = json!({"command": "trap '' INT TERM; touch ready; while :; do sleep 0.05; done",
        "description": "Go on for ever"});
    let script = Script::new()
        .turn(Turn::call("bash", stubborn))
        .turn(Turn::text("Went on."));
    let project = sum_project();
    let server = ModelServer::start(script);
    drop(run(&project, &server, Wire::Chat, &[]));
    let mut child = crate::kill::start(&project);
    let ready = project.root().join("ready");
    while !ready.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    send(&child, Signal::SIGINT);
    send(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    run(
        &project,
        &server,
        Wire::Chat,
        &["--session", "last", "Go on."],
    )
    .finish()
    .expect_code(0);
    assert_audit_is_clean(&project);
}

#[test]
fn an_amount_that_limits_nothing_is_bad_usage() {
    let project = sum_project();
    for amount in ["nan", "inf", "-1", "much"] {
        let arguments = ["run", "--max-cost", amount, "Look."];
        let ran = crate::agent(&project, &arguments).finish();
        assert_eq!(ran.code(), 2, "{amount}: {}", ran.stderr());
        let said = format!("`{amount}` is not an amount such as `0.50` or `5`");
        assert!(ran.stderr().contains(&said), "{}", ran.stderr());
    }
}

/// An answer that asks to read `count` parts of a file at once.
fn many_calls(count: usize) -> Script {
    let read = |line: usize| json!({"path": "test.sh", "offset": line, "limit": 1});
    let first = Turn::call("read", read(0));
    let all = (1..count).fold(first, |turn, line| turn.and_call("read", read(line)));
    Script::new().turn(all).turn(Turn::text("Read."))
}

#[test]
fn calls_of_one_answer() {
    for wire in [Wire::Chat, Wire::Responses, Wire::Anthropic] {
        let project = sum_project();
        let server = ModelServer::start(many_calls(257));
        let ran = run(&project, &server, wire, &["Look."]).finish();
        assert_eq!(ran.code(), 1, "{wire:?}: {}", ran.stderr());
        assert!(
            ran.stderr().contains("more than 256 tool calls"),
            "{wire:?}: {}",
            ran.stderr()
        );
        let events = log(&project);
        let acted = |event: &&Event| matches!(event.payload, Payload::ToolIntent(_));
        assert_eq!(events.iter().filter(acted).count(), 0, "{wire:?}");
        assert_audit_is_clean(&project);

        let project = sum_project();
        let server = ModelServer::start(many_calls(256));
        run(&project, &server, wire, &["Look."])
            .finish()
            .expect_code(0);
        assert_audit_is_clean(&project);
    }
}
