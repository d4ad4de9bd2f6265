//! Logs that somebody rewrote and chained anew: the chain cannot show it and no anchor is at hand, so
//! the record has to contradict itself. Each forgery is found, by its own name, at its own event.

use std::fs;
use std::path::{Path, PathBuf};

use agent_protocol::id::ArtifactId;
use agent_test_support::project::TestProject;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::agent;
use crate::files::scripted;

const TOKEN: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6";

/// A session with reads, a secret, an edit, commands that ask, that change files, and that verify.
fn recorded() -> (TestProject, PathBuf) {
    let project = TestProject::new();
    project
        .write("test.sh", ". ./sum.sh\n[ \"$(sum 1 2)\" = 3 ]\n")
        .write("sum.sh", "sum() {\n  echo $(($1 + $2 + 1))\n}\n")
        .write("key.txt", format!("token = {TOKEN}\n"))
        .write("old.txt", "old\n");
    let call = |name: &str, arguments: Value| json!([{ "name": name, "arguments": arguments }]);
    let test = json!({"command": "sh test.sh", "description": "Run the tests"});
    let turn = |text: &str, calls: Value| json!({"text": text, "tool_calls": calls, "usage": {"input": 100, "output": 10}});
    let transcript = [
        turn("Looking.", call("read", json!({"path": "sum.sh"}))),
        turn("And the key.", call("read", json!({"path": "key.txt"}))),
        turn("Testing.", call("bash", test.clone())),
        turn(
            "Editing.",
            call(
                "edit",
                json!({"path": "sum.sh", "edits": [{"old_string": " + 1))", "new_string": "))"}]}),
            ),
        ),
        turn(
            "Tidying.",
            call(
                "bash",
                json!({"command": "rm old.txt; mkdir new; echo hi > new/file", "description": "Tidy"}),
            ),
        ),
        turn("Testing again.", call("bash", test)),
        turn("Fixed: `sh test.sh` passes.", json!([])),
    ];
    scripted(&project, &transcript);
    agent(&project, &["run", "--on-ask", "allow", "Fix it, please."])
        .finish()
        .expect_code(0);
    let mut sessions = fs::read_dir(project.root().join(".agent/sessions")).unwrap();
    let session = sessions.next().unwrap().unwrap().path();
    (project, session)
}

type Log = Vec<Value>;

fn read(session: &Path) -> Log {
    let text = fs::read_to_string(session.join("events.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn sha256(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    ArtifactId::from_digest(&digest).as_str().to_owned()
}

/// Writes a log with sequence and chain as they should be.
fn write(session: &Path, log: Log) {
    let mut prev = sha256(log[0]["session_id"].as_str().unwrap());
    let mut text = String::new();
    for (sequence, mut event) in log.into_iter().enumerate() {
        event["sequence"] = sequence.into();
        event["prev"] = prev.into();
        let line = event.to_string();
        prev = sha256(&line);
        text.push_str(&line);
        text.push('\n');
    }
    fs::write(session.join("events.jsonl"), text).unwrap();
}

/// Position of the `nth` event of a class.
#[track_caller]
fn place(log: &Log, class: &str, nth: usize) -> usize {
    let mut found = log
        .iter()
        .enumerate()
        .filter(|(_, event)| event["type"] == class);
    found.nth(nth).unwrap_or_else(|| panic!("no {class}")).0
}

/// The `nth` event of a class, of the call of `tool`.
#[track_caller]
fn of_tool(log: &Log, tool: &str, class: &str, nth: usize) -> usize {
    let intents = log
        .iter()
        .filter(|event| event["type"] == "tool.intent" && event["payload"]["tool_name"] == tool);
    let call = &intents.clone().nth(nth).unwrap()["tool_call_id"];
    let is_it = |event: &Value| event["type"] == class && event["tool_call_id"] == *call;
    log.iter()
        .position(is_it)
        .unwrap_or_else(|| panic!("no {class}"))
}

/// The image that the `nth` call of `tool` kept of a file before it changed it.
fn image_of(log: &Log, tool: &str, nth: usize) -> usize {
    let call = log[of_tool(log, tool, "tool.intent", nth)]["tool_call_id"].clone();
    let is_image =
        |event: &Value| event["tool_call_id"] == call && event["payload"]["kind"] == "before";
    log.iter().position(is_image).unwrap()
}

/// Every list of changed files in the log.
fn effects(log: &mut Log, mut change: impl FnMut(&mut Vec<Value>)) {
    for event in log {
        for name in ["side_effects", "files_changed"] {
            if let Some(list) = event["payload"][name].as_array_mut() {
                change(list);
            }
        }
    }
}

struct Forgery {
    name: &'static str,
    /// Changes the log and says at which event of the changed one it has to be found.
    forge: fn(&mut Log) -> usize,
    code: &'static str,
}

const fn forgery(name: &'static str, code: &'static str, forge: fn(&mut Log) -> usize) -> Forgery {
    Forgery { name, forge, code }
}

/// Forgeries of what is decided, confined and run.
const CALLS: &[Forgery] = &[
    forgery("no decision", "started_without_permission", |log| {
        let at = of_tool(log, "edit", "permission.resolved", 0);
        log.remove(at);
        of_tool(log, "edit", "tool.started", 0)
    }),
    forgery("decided afterwards", "permission_too_late", |log| {
        let from = of_tool(log, "read", "permission.evaluated", 0);
        let event = log.remove(from);
        let to = of_tool(log, "read", "tool.started", 0) + 1;
        log.insert(to, event);
        to
    }),
    forgery("a rule that denied", "decision_contradicts_rule", |log| {
        let at = of_tool(log, "read", "permission.evaluated", 0);
        log[at]["payload"]["matched"] =
            json!([{"rule": "read(*)", "effect": "deny", "origin": {"layer": "user"}}]);
        at
    }),
    forgery("a no made a yes", "answer_contradicted", |log| {
        let at = of_tool(log, "bash", "action.resolved", 0);
        log[at]["payload"]["decision"] = "deny".into();
        of_tool(log, "bash", "permission.resolved", 0)
    }),
    forgery("no answer", "resolved_without_answer", |log| {
        let at = of_tool(log, "bash", "action.resolved", 0);
        log.remove(at);
        of_tool(log, "bash", "permission.resolved", 0)
    }),
    forgery("other arguments", "args_differ", |log| {
        let at = of_tool(log, "bash", "tool.args", 1);
        log[at]["payload"]["safe_args"]["command"] = "echo hello".into();
        at
    }),
    forgery("another wish", "args_differ", |log| {
        let at = of_tool(log, "bash", "tool.intent", 1);
        log[at]["payload"]["raw_input"]["command"] = "echo hello".into();
        of_tool(log, "bash", "tool.args", 1)
    }),
    forgery("another command", "command_differs", |log| {
        let at = of_tool(log, "bash", "process.started", 1);
        log[at]["payload"]["command_summary"] = "echo hello".into();
        at
    }),
    forgery(
        "a boundary drawn too late",
        "process_without_sandbox",
        |log| {
            let from = of_tool(log, "bash", "sandbox.applied", 0);
            let event = log.remove(from);
            let to = of_tool(log, "bash", "process.started", 0);
            log.insert(to + 1, event);
            to
        },
    ),
    forgery(
        "a boundary with a hole",
        "sandbox_contradicts_itself",
        |log| {
            let at = of_tool(log, "bash", "sandbox.applied", 0);
            log[at]["payload"]["status"] = "full".into();
            log[at]["payload"]["layers"] = json!([{"name": "landlock", "holds": false}]);
            at
        },
    ),
    forgery("no command at all", "result_without_process", |log| {
        let call = log[of_tool(log, "bash", "tool.intent", 1)]["tool_call_id"].clone();
        log.retain(|event| {
            let class = event["type"].as_str().unwrap();
            event["tool_call_id"] != call
                || !(class.starts_with("process.") || class == "sandbox.applied")
        });
        of_tool(log, "bash", "tool.result", 1)
    }),
    forgery("an end of nothing", "process_end_without_start", |log| {
        let at = of_tool(log, "bash", "process.started", 1);
        log.remove(at);
        of_tool(log, "bash", "process.completed", 1)
    }),
    forgery("another exit code", "exit_code_differs", |log| {
        let at = of_tool(log, "bash", "process.completed", 0);
        log[at]["payload"]["exit_code"] = 0.into();
        of_tool(log, "bash", "tool.result", 0)
    }),
    forgery("another exit code shown", "observation_differs", |log| {
        let at = of_tool(log, "bash", "tool.observation", 0);
        log[at]["payload"]["facts"]["exit_code"] = 0.into();
        at
    }),
];

/// Forgeries of recorded changes.
const CHANGES: &[Forgery] = &[
    forgery("another hash after", "image_differs", |log| {
        let at = of_tool(log, "edit", "tool.result", 0);
        let hash = log[at]["payload"]["side_effects"][0]["sha256_after"].clone();
        effects(log, |list| {
            for effect in list
                .iter_mut()
                .filter(|effect| effect["sha256_after"] == hash)
            {
                effect["sha256_after"] = "0".repeat(64).into();
            }
        });
        at
    }),
    forgery("an edit left out", "image_unclaimed", |log| {
        effects(log, |list| list.retain(|effect| effect["path"] != "sum.sh"));
        image_of(log, "edit", 0)
    }),
    forgery("a deletion left out", "image_unclaimed", |log| {
        effects(log, |list| {
            list.retain(|effect| effect["path"] != "old.txt")
        });
        image_of(log, "bash", 1)
    }),
    forgery("another file", "effect_elsewhere", |log| {
        effects(log, |list| {
            for effect in list.iter_mut().filter(|effect| effect["path"] == "sum.sh") {
                effect["path"] = "other.sh".into();
            }
        });
        of_tool(log, "edit", "tool.result", 0)
    }),
    forgery("a page of another host", "fetched_elsewhere", |log| {
        let at = of_tool(log, "edit", "tool.result", 0);
        let page = json!({"url": "http://evil.example/", "host": "evil.example", "bytes": 1, "redirects": []});
        log[at]["payload"]["data"]["web"] = page;
        at
    }),
    forgery("not shown", "observation_effects_differ", |log| {
        let at = of_tool(log, "edit", "tool.observation", 0);
        log[at]["payload"]["side_effects"] = json!([]);
        at
    }),
    forgery("not in the turn's account", "files_changed_differ", |log| {
        let at = place(log, "turn.completed", 0);
        log[at]["payload"]["files_changed"]
            .as_array_mut()
            .unwrap()
            .pop();
        at
    }),
    forgery(
        "otherwise in the turn's account",
        "files_changed_differ",
        |log| {
            let at = place(log, "turn.completed", 0);
            log[at]["payload"]["files_changed"][0]["sha256_after"] = "1".repeat(64).into();
            at
        },
    ),
];

/// Forgeries of what was verified and said.
const WORDS: &[Forgery] = &[
    forgery("a failure made a success", "evidence_differs", |log| {
        let at = place(log, "evidence.changed", 0);
        log[at]["payload"]["status"] = "passed".into();
        at
    }),
    forgery("evidence of another command", "evidence_differs", |log| {
        let at = place(log, "evidence.changed", 1);
        log[at]["payload"]["command"] = "cargo test --workspace".into();
        at
    }),
    forgery("evidence of nothing", "evidence_without_command", |log| {
        let at = place(log, "evidence.changed", 1);
        log[at].as_object_mut().unwrap().remove("tool_call_id");
        at
    }),
    forgery("a failure left out", "evidence_missing", |log| {
        let at = place(log, "evidence.changed", 0);
        log.remove(at);
        of_tool(log, "bash", "tool.result", 0)
    }),
    forgery("passed without a test", "verification_differs", |log| {
        log.retain(|event| event["type"] != "evidence.changed");
        place(log, "turn.completed", 0)
    }),
    forgery("other final words", "final_text_differs", |log| {
        let at = place(log, "turn.completed", 0);
        log[at]["payload"]["final_text"] = "I did nothing.".into();
        at
    }),
    forgery("another answer", "model_input_differs", |log| {
        let at = place(log, "model.completed", 1);
        log[at]["payload"]["text"] = "Something else.".into();
        at
    }),
    forgery("another prompt", "model_input_differs", |log| {
        let at = place(log, "turn.submitted", 0);
        log[at]["payload"]["text"] = "Delete everything.".into();
        at
    }),
    forgery("another observation", "model_input_differs", |log| {
        let at = of_tool(log, "bash", "tool.observation", 0);
        log[at]["payload"]["model_text"] = "Exit code 0.".into();
        at
    }),
    forgery("another request", "input_hash_differs", |log| {
        let at = place(log, "model.requested", 0);
        log[at]["payload"]["input_hash"] = format!("sha256:{}", "0".repeat(64)).into();
        at
    }),
    forgery("other tools", "catalog_differs", |log| {
        let at = place(log, "tool.catalog.resolved", 0);
        log[at]["payload"]["tools"][0]["policy"] = "denied".into();
        at
    }),
    forgery("a call left out", "call_unrecorded", |log| {
        let call = log[of_tool(log, "read", "tool.intent", 1)]["tool_call_id"].clone();
        log.retain(|event| event["tool_call_id"] != call);
        place(log, "turn.completed", 0)
    }),
    forgery("a call invented", "intent_without_answer", |log| {
        let at = place(log, "model.completed", 0);
        log[at]["payload"]["tool_call_ids"] = json!([]);
        of_tool(log, "read", "tool.intent", 0)
    }),
    forgery("an answer left out", "request_open_in_ended_turn", |log| {
        let at = place(log, "model.completed", 1);
        log.remove(at);
        place(log, "model.requested", 1)
    }),
    forgery("less was used", "usage_differs", |log| {
        let at = place(log, "turn.completed", 0);
        log[at]["payload"]["usage"]["input"] = 1.into();
        at
    }),
    forgery("a worse end", "outcome_differs", |log| {
        let at = place(log, "turn.completed", 0);
        log[at]["payload"]["outcome"] = "degraded".into();
        at
    }),
    forgery("a secret in clear", "secret_unmasked", |log| {
        let at = of_tool(log, "read", "tool.observation", 1);
        let text = log[at]["payload"]["model_text"].as_str().unwrap();
        assert!(text.contains("[redacted:"), "{text}");
        log[at]["payload"]["model_text"] = format!("1    token = {TOKEN}").into();
        at
    }),
];

#[test]
fn what_was_rewritten_contradicts_the_rest() {
    let (project, session) = recorded();
    let log = read(&session);
    let elsewhere = TestProject::new();
    let audit = |log: Log| {
        write(&session, log);
        // In another home there is no anchor that would know better.
        let id = session.file_name().unwrap().to_str().unwrap();
        agent(&project, &["audit", id, "--json"])
            .env("AGENT_HOME", elsewhere.home())
            .finish()
            .json()
    };
    let whole = audit(log.clone());
    assert_eq!(whole["ok"], true, "{whole:#}");
    assert_eq!(whole["warnings"], 0, "{whole:#}");
    let mut missed = Vec::new();
    for forgery in CALLS.iter().chain(CHANGES).chain(WORDS) {
        let mut forged = log.clone();
        let at = (forgery.forge)(&mut forged);
        let report = audit(forged);
        let findings = report["findings"].as_array().unwrap();
        let is_it = |finding: &&Value| {
            finding["code"] == forgery.code
                && finding["sequence"] == at
                && finding["severity"] != "note"
        };
        match findings.iter().find(is_it) {
            Some(finding) => assert!(!finding["meaning"].as_str().unwrap().is_empty()),
            None => missed.push(format!("{} (at {at}): {findings:#?}", forgery.name)),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Numbers at the end of their range break no command that reads a log.
#[test]
fn numbers_without_measure_are_survived() {
    let (project, session) = recorded();
    let id = session.file_name().unwrap().to_str().unwrap();
    let log = read(&session);
    let most = json!(u64::MAX);
    for at in [0, log.len() / 2, log.len() - 1] {
        let mut log = log.clone();
        log[at]["sequence"] = most.clone();
        for event in &mut log {
            let payload = &mut event["payload"];
            if payload.get("usage").is_some_and(Value::is_object) {
                payload["usage"] = json!({"input": most, "output": most, "total": most});
            }
            if payload.get("project_root_hash").is_some() {
                payload["parent"] = json!({"session_id": id, "sequence": most});
            }
        }
        let mut prev = sha256(id);
        let mut text = String::new();
        for mut event in log {
            event["prev"] = prev.into();
            let line = event.to_string();
            prev = sha256(&line);
            text.push_str(&line);
            text.push('\n');
        }
        fs::write(session.join("events.jsonl"), text).unwrap();
        for arguments in [
            &["audit", id][..],
            &["audit", id, "--format", "sarif"],
            &["replay", id],
            &["replay", id, "--format", "html"],
            &["replay", id, "--call", "1"],
            &["report", id],
            &["sessions", "show", id],
            &["sessions"],
            &["why", id, "1"],
            &["diff", id],
            &["undo", id, "--dry-run"],
            &["undo", id, "--yes"],
            &["fork", id],
            &["export", id, "--format", "evidence", "-o", "pack"],
        ] {
            let run = agent(&project, arguments).finish();
            let panicked = run.stderr().contains("panicked");
            assert!(
                run.code() <= 3 && !panicked,
                "{arguments:?}: {}",
                run.stderr()
            );
        }
    }
}

/// What a fork took over is followed line by line, and so are the artifacts it shares.
#[test]
fn a_forged_history_of_a_fork_is_found() {
    let (project, _) = recorded();
    let made = agent(&project, &["fork", "last", "--json"]).finish();
    let id = made.expect_code(0).json()["session_id"].clone();
    let id = id.as_str().unwrap();
    let fork = project.root().join(".agent/sessions").join(id);
    let audit = |place: &str, code: i32| {
        let run = agent(&project, &["audit", place, "--json"]).finish();
        let report = run.expect_code(code).json();
        let findings = report["findings"].as_array().unwrap().clone();
        let errors = findings.iter().filter(|one| one["severity"] == "error");
        let codes: Vec<String> = errors.map(|one| one["code"].to_string()).collect();
        codes.join(" ")
    };
    assert_eq!(audit(id, 0), "");

    // A pack of it can be checked elsewhere.
    let pack = ["export", id, "--format", "evidence", "-o", "pack"];
    agent(&project, &pack).finish().expect_code(0);
    let elsewhere = tempfile::tempdir().unwrap();
    let unpack = format!(
        "zstd -dcq {} | tar -xf -",
        project.root().join("pack").display()
    );
    let mut shell = std::process::Command::new("sh");
    let unpacked = shell.args(["-c", &unpack]).current_dir(&elsewhere).status();
    assert!(unpacked.unwrap().success());
    assert_eq!(audit(elsewhere.path().join(id).to_str().unwrap(), 0), "");

    // An output it shares with the session it came from.
    let log = read(&fork);
    let history = log[1]["payload"]["artifact_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let file = |artifact: &str| {
        fork.join("artifacts")
            .join(artifact.trim_start_matches("sha256:"))
    };
    let lines = fs::read_to_string(file(&history)).unwrap();
    let past: Log = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let shared = past
        .iter()
        .rev()
        .find(|event| event["type"] == "artifact.changed" && event["payload"]["kind"] == "after");
    let shared = file(shared.unwrap()["payload"]["artifact_id"].as_str().unwrap());
    let bytes = fs::read(&shared).unwrap();
    // Beside it, so that the other session keeps its own.
    fs::remove_file(&shared).unwrap();
    fs::write(&shared, [&bytes[..], b"!"].concat()).unwrap();
    assert_eq!(audit(id, 1), "\"artifact_altered\"");
    fs::write(&shared, bytes).unwrap();
    assert_eq!(audit(id, 0), "");

    // Another history under a name of its own, in a log that is chained anew.
    let state = project.home().join("state/anchors");
    fs::remove_dir_all(state).unwrap();
    let forge = |text: &str| {
        let name = sha256(text);
        fs::write(file(&name), text).unwrap();
        let mut log = log.clone();
        log[1]["payload"]["artifact_id"] = name.clone().into();
        log[1]["payload"]["sha256"] = name.trim_start_matches("sha256:").into();
        log[1]["payload"]["bytes"] = text.len().into();
        log[1]["refs"]["artifact"] = name.into();
        write(&fork, log);
    };
    forge(&lines);
    assert_eq!(audit(id, 0), "");
    forge(&lines.replacen("Fix it, please.", "Break it, please.", 1));
    assert_eq!(audit(id, 1), "\"history_unreadable\"");
    let kept: Vec<&str> = lines.lines().collect();
    forge(&format!("{}\n", kept[..kept.len() - 1].join("\n")));
    assert_eq!(audit(id, 1), "\"history_unreadable\"");

    // An artifact that nothing recorded.
    forge(&lines);
    let mut named = read(&fork);
    named[0]["refs"]["other"] = sha256("nothing").into();
    write(&fork, named);
    assert_eq!(audit(id, 1), "\"artifact_unrecorded\"");
}
