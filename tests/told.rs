//! The question, the observation and the record say what is so: about the boundary of a command, who
//! ended it, which model answered.

use std::fs;
use std::io::{BufRead as _, BufReader};

use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent;
use crate::conversation::{ALLOWED, Conversation, assert_audit, bash};

/// All events of the only session.
fn log(project: &TestProject) -> Vec<Value> {
    let sessions = fs::read_dir(project.root().join(".agent/sessions")).unwrap();
    let session = sessions.map(|entry| entry.unwrap().path()).max().unwrap();
    let text = fs::read_to_string(session.join("events.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_class<'a>(events: &'a [Value], class: &str) -> Vec<&'a Value> {
    let events = events.iter().filter(|event| event["type"] == class);
    events.collect()
}

/// The first event of a class.
#[track_caller]
fn first<'a>(events: &'a [Value], class: &str) -> &'a Value {
    let found = of_class(events, class);
    found.first().unwrap_or_else(|| panic!("no {class}"))
}

fn note(observed: &Value) -> &str {
    observed["facts"]["data"]["note"]
        .as_str()
        .unwrap_or_default()
}

/// A project whose model is `server`.
fn served(server: &ModelServer) -> TestProject {
    let project = TestProject::new();
    let base = server.openai_url();
    let config = format!("model = \"mine/tiny\"\n[providers.mine]\nbase_url = \"{base}\"\n");
    project.write_home("config.toml", config);
    project
}

/// A turn that starts a command in the background.
fn in_background(command: &str) -> Turn {
    let input = json!({"command": command, "description": "Serve", "background": true});
    Turn::call("bash", input)
}

/// The id of the command that an observation in `request` tells of.
fn process_id(request: &str) -> String {
    let at = request.find("proc_").expect("a process id");
    let id = request[at..].chars();
    id.take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

#[test]
fn a_command_without_a_sandbox_has_the_network_and_is_said_to() {
    let project = TestProject::new();
    project.write_home("config.toml", "sandbox = \"off\"\n");
    let input = json!({"command": "touch made", "description": "Make"}).to_string();
    agent(&project, &["call", "--on-ask", "allow", "bash", &input])
        .finish()
        .expect_code(0);
    let events = log(&project);
    let asked = &first(&events, "action.required")["payload"]["risk_facts"];
    let asked = asked.to_string();
    assert!(
        asked.contains("has network access: nothing confines it"),
        "{asked}"
    );
    assert!(!asked.contains("has no network"), "{asked}");
    assert_eq!(
        first(&events, "process.started")["payload"]["network"],
        true
    );
    assert_eq!(
        first(&events, "tool.started")["payload"]["sandboxed"],
        false
    );
    let applied = &first(&events, "sandbox.applied")["payload"];
    assert_eq!(
        (
            &applied["status"],
            &applied["mechanism"],
            &applied["network"]
        ),
        (&json!("unavailable"), &json!("none"), &json!("host"))
    );
    let reason = applied["reason"].as_str().unwrap();
    assert!(reason.contains("switched off"), "{reason}");
    assert_audit(&project);
}

#[test]
fn a_confined_command_has_no_network_and_is_said_to() {
    let project = TestProject::new();
    let input = json!({"command": "touch made", "description": "Make"}).to_string();
    agent(&project, &["call", "--on-ask", "allow", "bash", &input])
        .finish()
        .expect_code(0);
    let events = log(&project);
    let asked = &first(&events, "action.required")["payload"]["risk_facts"];
    assert!(asked.to_string().contains("has no network"), "{asked}");
    assert_eq!(
        first(&events, "process.started")["payload"]["network"],
        false
    );
}

#[test]
fn what_the_sandbox_refused_is_named_whatever_the_exit_code() {
    let project = TestProject::new();
    project.write_home("notes.txt", "words\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    let home = project.home();
    let hidden = home.join("notes.txt");
    // An address that leads nowhere, also where the defence failed.
    let connects = "(exec 3<>/dev/tcp/192.0.2.1/80) 2>/dev/null; echo went on";
    let reads = format!("cat {} 2>&1 | tail -1", hidden.display());
    for (command, says) in [
        (connects, "The sandbox has no network and refused 1 connection; a call with `network: true` asks for it.".to_owned()),
        (&reads, format!("The sandbox hides `{}`; `sandbox.readable`", hidden.display())),
        ("cat ~/notes.txt || true", "The sandbox hides `~/notes.txt`; ".to_owned()),
        ("touch .git/marker; true", "/.git/marker` is read-only in the sandbox; ".to_owned()),
        ("echo 'curl: (6) Could not resolve host: example.invalid'", "The sandbox has no network (".to_owned()),
    ] {
        let observed = bash(&mut talk, command);
        assert_eq!(observed["facts"]["data"]["exit_code"], 0, "{observed:#}");
        assert!(note(&observed).contains(&says), "{command}: {observed:#}");
        assert!(observed["model_text"].as_str().unwrap().contains(&says));
    }
    for command in [
        "cat missing.txt || true",
        "cat /nowhere/x || true",
        "echo fine",
    ] {
        assert_eq!(note(&bash(&mut talk, command)), "", "{command}");
    }
    assert_eq!(talk.end(), Some(0));
    let events = log(&project);
    let told: Vec<(&Value, &Value)> = of_class(&events, "sandbox.violation")
        .into_iter()
        .map(|event| (&event["payload"]["kind"], &event["payload"]["detection"]))
        .collect();
    let inferred = json!("inferred_from_output");
    assert_eq!(
        told,
        [
            (&json!("network"), &json!("kernel_counter")),
            (&json!("read"), &inferred),
            (&json!("read"), &inferred),
            (&json!("write"), &inferred),
            (&json!("network"), &inferred),
        ]
    );
    let counted = of_class(&events, "process.completed").into_iter();
    let counted: Vec<u64> = counted
        .map(|event| event["payload"]["sandbox"]["violations"].as_u64().unwrap())
        .collect();
    assert_eq!(counted, [1, 1, 1, 1, 1, 0, 0, 0]);
    assert_audit(&project);
}

#[test]
fn what_the_settings_protect_is_not_written_by_commands_and_asked_about_otherwise() {
    let project = TestProject::new();
    project.write_home("config.toml", "[sandbox]\nprotected = [\"deploy/\"]\n");
    project
        .write("deploy/a.txt", "as it was\n")
        .write("b.txt", "one\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    let observed = bash(&mut talk, "echo changed > deploy/a.txt");
    assert_ne!(observed["facts"]["data"]["exit_code"], 0, "{observed:#}");
    assert!(note(&observed).contains("deploy/a.txt` is read-only in the sandbox"));
    bash(&mut talk, "echo new > deploy/b.txt; echo changed > b.txt");
    talk.end();
    assert_eq!(project.read("deploy/a.txt"), "as it was\n");
    assert!(!project.root().join("deploy/b.txt").exists());
    assert_eq!(project.read("b.txt"), "changed\n");
    let write = |path: &str| {
        let input = json!({"path": path, "content": "written\n"}).to_string();
        let arguments = ["call", "--json", "--mode", "accept-edits", "write", &input];
        agent(&project, &arguments).finish().json()["code"].clone()
    };
    assert_eq!(write("deploy/new.txt"), "approval_unavailable");
    assert_eq!(write("elsewhere/deploy/new.txt"), "ok");
}

#[test]
fn a_command_that_the_model_ended_was_ended_by_the_model() {
    let script = Script::new()
        .turn(in_background("sleep 600"))
        .otherwise(|number, request| match number {
            1 => {
                let id = process_id(&String::from_utf8_lossy(&request.body));
                Turn::call("process_kill", json!({"process_id": id}))
            }
            _ => Turn::text("Ended it."),
        });
    let server = ModelServer::start(script);
    let project = served(&server);
    let ran = agent(&project, &["run", "--mode", "full", "Serve."])
        .finish()
        .expect_code(0);
    assert!(
        !ran.stderr().contains("background command"),
        "{}",
        ran.stderr()
    );
    let events = log(&project);
    let ended = first(&events, "process.terminated");
    assert_eq!(ended["payload"]["by"], "model");
    let cause = events
        .iter()
        .find(|event| event["event_id"] == ended["causation_id"]);
    let cause = cause.expect("the event that ended it");
    assert_eq!(cause["payload"]["tool_name"], "process_kill");
    assert_audit(&project);
}

#[test]
fn a_command_that_a_script_or_a_signal_ended_was_not_ended_by_somebody_else() {
    let project = TestProject::new();
    let mut talk = Conversation::start(&project, ALLOWED);
    let input = json!({"command": "sleep 600", "description": "Serve", "background": true});
    let observed = talk.call("bash", input);
    let id = observed["facts"]["data"]["process_id"].clone();
    talk.call("process_kill", json!({"process_id": id}));
    let marker = project.root().join("begun");
    let command = "touch begun; sleep 600";
    talk.send(&json!({"tool": "bash", "input": {"command": command, "description": "Wait"}}));
    crate::conversation::wait_for(&marker);
    talk.signal(Signal::TERM);
    talk.receive();
    talk.end();
    let events = log(&project);
    let by: Vec<&Value> = of_class(&events, "process.terminated")
        .into_iter()
        .map(|event| &event["payload"]["by"])
        .collect();
    assert_eq!(by, ["user", "runtime"]);
}

#[test]
fn background_commands_that_end_with_the_run_are_named() {
    let script = Script::new()
        .turn(in_background("sleep 600"))
        .turn(Turn::text("It serves."));
    let server = ModelServer::start(script);
    let project = served(&server);
    let ran = agent(&project, &["run", "--mode", "full", "Serve."])
        .finish()
        .expect_code(0);
    let events = log(&project);
    let ended = first(&events, "process.terminated");
    assert_eq!(ended["payload"]["by"], "runtime");
    let id = ended["payload"]["process_id"].as_str().unwrap();
    let said = format!("stopped 1 background command: `sleep 600` ({id})");
    let lines: Vec<String> = ran.stderr().lines().map(str::to_owned).collect();
    let told = lines.iter().filter(|line| line.contains(&said));
    assert_eq!(told.count(), 1, "{lines:?}");
    assert_audit(&project);
}

#[test]
fn a_background_command_of_a_killed_run_is_lost_and_said_to_be() {
    let script = Script::new()
        .turn(in_background("sleep 600"))
        .turn(Turn::call(
            "bash",
            json!({"command": "touch begun; sleep 600", "description": "Wait"}),
        ))
        .otherwise(|number, request| match number {
            2 => {
                let id = process_id(&String::from_utf8_lossy(&request.body));
                Turn::call("process_output", json!({"process_id": id}))
            }
            _ => Turn::text("Gone."),
        });
    let server = ModelServer::start(script);
    let project = served(&server);
    let mut child = crate::kill::start(&project);
    crate::conversation::wait_for(&project.root().join("begun"));
    child.kill().unwrap();
    child.wait().unwrap();
    let resume = ["run", "--mode", "full", "--session", "last", "Go on."];
    agent(&project, &resume).finish().expect_code(0);
    let events = log(&project);
    let lost = of_class(&events, "process.failed");
    let codes: Vec<&Value> = lost.iter().map(|event| &event["payload"]["code"]).collect();
    assert_eq!(codes, ["lost", "lost"]);
    assert_eq!(of_class(&events, "history.reconstructed").len(), 1);
    let asked = events.iter().find(|event| {
        event["type"] == "tool.observation" && event["payload"]["tool_name"] == "process_output"
    });
    let seen = asked.unwrap()["payload"]["model_text"].as_str().unwrap();
    assert!(
        seen.contains("is lost: the program ended while it ran"),
        "{seen}"
    );
    let report = agent(&project, &["report", "last", "--json"])
        .finish()
        .json();
    assert_eq!(report["summary"]["open"]["processes"], 0, "{report:#}");
    assert_audit(&project);
}

#[test]
fn the_model_that_answered_is_the_one_that_is_named() {
    let limited = Turn::error(429, "slow down").header("retry-after", "9999");
    let first_server = ModelServer::start(Script::new().turns(9, &limited));
    let answer = Turn::text("Done.").served_by("n-20260101").using(90, 10);
    let second = ModelServer::start(Script::new().turn(answer));
    let project = TestProject::new();
    let config = format!(
        "[model]\ndefault = \"one/m\"\nfallbacks = [\"nokey/x\", \"two/n\"]\n\
         [providers.nokey]\nbase_url = \"https://localhost:1\"\napi_key_env = \"NO_SUCH_KEY\"\n\
         [providers.one]\nbase_url = \"{}\"\nmax_attempts = 1\n\
         [providers.two]\nbase_url = \"{}\"\n",
        first_server.openai_url(),
        second.openai_url()
    );
    project.write_home("config.toml", config);
    agent(&project, &["run", "Begin."]).finish().expect_code(0);
    let events = log(&project);
    let turn = &first(&events, "turn.started")["turn_id"];
    for event in &events {
        let class = event["type"].as_str().unwrap();
        if class.starts_with("routing.") || class == "rate_limit.hit" {
            assert_eq!(&event["turn_id"], turn, "{class}");
        }
    }
    let candidates = &first(&events, "routing.candidates.resolved")["payload"];
    assert_eq!(candidates["count"], 2, "{candidates:#}");
    let excluded = candidates["candidates"].as_array().unwrap().iter();
    let excluded = excluded.filter(|candidate| candidate["excluded_reason"].is_string());
    assert_eq!(excluded.count(), 1);
    assert_eq!(
        first(&events, "routing.decided")["payload"]["candidate_count"],
        2
    );
    let failed = first(&events, "model.failed");
    let applied = first(&events, "routing.fallback.applied");
    assert_eq!(applied["payload"]["error_ref"], failed["event_id"]);
    let hit = first(&events, "rate_limit.hit");
    assert_eq!(
        hit["payload"]["model_request_id"],
        failed["payload"]["model_request_id"]
    );
    let report = agent(&project, &["report", "last", "--json"])
        .finish()
        .json();
    assert_eq!(report["usage"]["model"], "two/n-20260101");
    let tokens = &report["usage"]["models"]["two/n-20260101"];
    assert_eq!(
        (&tokens["input"], &tokens["output"]),
        (&json!(90), &json!(10))
    );
    assert_eq!(report["turns"][0]["model"], "two/n-20260101");
    let show = agent(&project, &["sessions", "show", "last", "--json"])
        .finish()
        .json();
    assert_eq!(show["model"], "two/n-20260101", "{show:#}");
    let replay = agent(&project, &["replay", "last", "--format", "json"])
        .finish()
        .json();
    let says: Vec<&str> = replay["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["type"].as_str().unwrap().starts_with("routing."))
        .map(|entry| entry["says"].as_str().unwrap())
        .collect();
    assert!(
        says[0].starts_with("2 models can serve: one/m, two/n; not nokey/x: "),
        "{says:?}"
    );
    assert_eq!(
        says[1],
        "one/m is asked, as the configuration says; two/n would be next"
    );
    assert_audit(&project);
}

#[test]
fn one_usable_model_among_others_is_no_choice() {
    let server = ModelServer::start(Script::new().turn(Turn::text("Done.")));
    let project = served(&server);
    let config = project.home().join("config.toml");
    let text = fs::read_to_string(&config).unwrap().replace(
        "model = \"mine/tiny\"",
        "[model]\ndefault = \"mine/tiny\"\nfallbacks = [\"openai/gpt-5.4\"]",
    );
    fs::write(&config, text).unwrap();
    agent(&project, &["run", "Begin."]).finish().expect_code(0);
    let events = log(&project);
    let single = &first(&events, "routing.single_candidate")["payload"];
    assert_eq!(single["selected"]["provider"], "mine");
    assert_eq!(
        first(&events, "routing.decided")["payload"]["candidate_count"],
        1
    );
}

/// Before it begins, a call says whether it could be repeated, what runs it and what stops it.
#[test]
fn the_plan_of_a_call_answers_before_it_begins() {
    let project = TestProject::new();
    project.write("a.txt", "text\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    talk.call("read", json!({"path": "a.txt"}));
    bash(&mut talk, "echo changed > a.txt");
    talk.end();
    let events = log(&project);
    let started: Vec<(bool, &str, &str)> = of_class(&events, "tool.started")
        .into_iter()
        .map(|event| {
            let payload = &event["payload"];
            let executor = payload["executor"].as_str().unwrap();
            (
                payload["plan"]["retryable"].as_bool().unwrap(),
                executor.split(':').next().unwrap(),
                payload["flags"]["interrupt_behavior"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        started,
        [(true, "fs", "block"), (false, "process", "block")]
    );
}

/// Artifacts name the event or call that made them, or nothing.
#[test]
fn producers_of_artifacts_can_be_found() {
    let server = ModelServer::start(crate::run::six_rounds());
    let project = crate::run::sum_project();
    crate::run::run(
        &project,
        &server,
        agent_test_support::model_server::Wire::Chat,
        &["Fix it."],
    )
    .finish()
    .expect_code(0);
    let text = {
        let sessions = fs::read_dir(project.root().join(".agent/sessions")).unwrap();
        let session = sessions.map(|entry| entry.unwrap().path()).max().unwrap();
        fs::File::open(session.join("events.jsonl")).unwrap()
    };
    let lines: Vec<String> = BufReader::new(text).lines().map(Result::unwrap).collect();
    for event in log(&project) {
        if event["type"] != "artifact.changed" {
            continue;
        }
        if let Some(producer) = event["payload"]["producer_ref"].as_str() {
            let named = format!("\"{producer}\"");
            let known = lines.iter().filter(|line| line.contains(&named)).count();
            assert!(producer.contains('_') && known > 1, "{producer}: {event:#}");
        }
    }
}
