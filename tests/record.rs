//! Properties of every log, whatever made it: the same second opinion on the logs of all kinds of
//! runs, and their portable form against our schema and the published one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use agent_test_support::log;
use agent_test_support::project::TestProject;
use agent_test_support::run::{Run, RunOutput};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::agent;

/// A project whose model plays these turns.
fn scripted(turns: &[Value]) -> TestProject {
    let project = TestProject::new();
    let transcript: Vec<String> = turns.iter().map(Value::to_string).collect();
    project.write_home("turns.jsonl", transcript.join("\n"));
    let path = project.home().join("turns.jsonl");
    let config = format!(
        "model = \"job/m\"\n[providers.job]\ndialect = \"scripted\"\ntranscript = {path:?}\n"
    );
    project.write_home("config.toml", config);
    project
}

fn calls(text: &str, calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    json!({"text": text, "tool_calls": calls})
}

fn command(command: &str) -> (&'static str, Value) {
    (
        "bash",
        json!({"command": command, "description": "A command"}),
    )
}

fn sessions(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(".agent/sessions")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Looks at every session below `root` in every way, and returns the events of all of them.
#[track_caller]
fn assert_sound(project: &TestProject, root: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    let cwd = root.to_str().unwrap();
    for directory in sessions(root) {
        let events = log::check(&directory);
        let id = directory.file_name().unwrap().to_str().unwrap();
        let audit = agent(project, &["-C", cwd, "audit", id]).finish();
        assert_eq!(audit.code(), 0, "{}", audit.stdout());
        let portable = ["-C", cwd, "-q", "export", id, "--format", "portable"];
        let portable = agent(project, &portable).finish().expect_code(0);
        assert_portable(&portable, &events);
        all.extend(events);
    }
    all
}

/// Every line follows both schemas, and nothing is missing but our own three classes.
#[track_caller]
fn assert_portable(exported: &RunOutput, events: &[Value]) {
    let own = ["tool.intent", "tool.validation", "tool.observation"];
    let kept: Vec<&Value> = events
        .iter()
        .filter(|event| !own.contains(&event["type"].as_str().unwrap()))
        .collect();
    let text = exported.stdout();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), kept.len());
    let validators = portable_schemas();
    for (line, event) in lines.iter().zip(kept) {
        for (portable, ours) in [
            ("type", "type"),
            ("eventId", "event_id"),
            ("sessionId", "session_id"),
            ("sequence", "sequence"),
            ("stepId", "step_id"),
            ("toolCallId", "tool_call_id"),
            ("nativeType", "native_type"),
        ] {
            assert_eq!(line[portable], event[ours], "{line}");
        }
        for validator in &validators {
            let problems: Vec<String> = validator
                .iter_errors(line)
                .map(|error| error.to_string())
                .collect();
            assert!(problems.is_empty(), "{problems:?} in {line}");
        }
    }
}

/// Our schema of the portable form, and the published one where it is at hand.
fn portable_schemas() -> Vec<jsonschema::Validator> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let published = "../shared/external/agentruntime/schemas/agentruntime-event.schema.json";
    [
        root.join("docs/schemas/portable-event.schema.json"),
        root.join(published),
    ]
    .iter()
    .filter_map(|path| {
        let Ok(text) = fs::read_to_string(path) else {
            println!("not here: {}", path.display());
            return None;
        };
        let schema: Value = serde_json::from_str(&text).unwrap();
        Some(jsonschema::options().offline().build(&schema).unwrap())
    })
    .collect()
}

/// Number of events of a class there are.
fn count(events: &[Value], class: &str) -> usize {
    events.iter().filter(|event| event["type"] == class).count()
}

#[test]
fn of_the_demo() {
    let project = TestProject::new();
    agent(&project, &["demo", "--directory", "sum"])
        .finish()
        .expect_code(0);
    let events = assert_sound(&project, &project.root().join("sum"));
    assert_eq!(count(&events, "turn.completed"), 1);
}

#[test]
fn of_calls_that_end_in_every_phase() {
    let long = json!({"path": "long.txt", "content": "x".repeat(200_000)});
    let project = scripted(&[
        calls(
            "A look around.",
            &[
                ("nothing_like_it", json!({})),
                ("read", json!({"path": 7})),
                ("read", json!({"path": "missing.txt"})),
                ("read_file", json!({"path": "notes.txt"})),
                ("write", long),
                command("seq 1 20000"),
                command("exit 3"),
                command("sudo rm -rf /"),
            ],
        ),
        calls("Done.", &[]),
    ]);
    project.write(
        "notes.txt",
        "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz012345\n",
    );
    for mode in ["ask", "read-only", "full"] {
        agent(&project, &["run", "--mode", mode, "Look."])
            .finish()
            .expect_code(3);
    }
    let events = assert_sound(&project, &project.root());
    for class in [
        "permission.requested",
        "output.redacted",
        "output.truncated",
        "sandbox.applied",
    ] {
        assert!(count(&events, class) > 0, "{class}");
    }
}

#[test]
fn of_a_run_that_was_killed_and_went_on() {
    let project = scripted(&[
        calls("Slowly.", &[command("echo made > made.txt; sleep 60")]),
        calls("Done.", &[]),
    ]);
    let mut child = crate::kill::start(&project);
    wait_for(&project, &mut child, "process.started");
    assert_told_as(&project, "running", false);
    child.kill().unwrap();
    child.wait().unwrap();
    // Nobody is there any more, so nothing is running.
    assert_told_as(&project, "lost", true);
    let report = json_of(&project, "report", &["report", "last", "--json"]);
    assert_eq!(report["status"], "lost");
    let stops = "the log stops before the turn ends, and nobody writes it now";
    assert_eq!(report["reason"], stops);
    let text = agent(&project, &["replay", "last"]).finish().expect_code(0);
    assert!(!text.stdout().contains("running"), "{}", text.stdout());
    let why = agent(&project, &["why", "last", "1"])
        .finish()
        .expect_code(0);
    assert!(why.stdout().contains("bash lost"), "{}", why.stdout());
    assert!(
        why.stdout().contains("the log stops here"),
        "{}",
        why.stdout()
    );
    let cut = "the session ended while `bash` ran; what it changed was not recorded";
    for command in ["undo", "diff"] {
        let arguments = [
            command,
            "--json",
            if command == "undo" {
                "--dry-run"
            } else {
                "last"
            },
        ];
        let told = json_of(&project, command, &arguments);
        assert_eq!(told["gaps"][0]["reason"], cut, "{told:#}");
    }
    // What was known at an event does not depend on who is there now.
    let last = show(&project)["events"].as_u64().unwrap() - 1;
    let to = last.to_string();
    let arguments = ["replay", "last", "--format", "json", "--to", &to];
    let then = json_of(&project, "replay", &arguments);
    assert_eq!(then["calls"][0]["status"], "running");
    agent(&project, &["run", "--session", "last", "Go on."])
        .finish()
        .expect_code(0);
    let events = assert_sound(&project, &project.root());
    let lost = |event: &&Value| event["payload"]["code"] == "lost";
    let classes: Vec<&str> = events
        .iter()
        .filter(lost)
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let closed = [
        "process.failed",
        "tool.failed",
        "tool.observation",
        "turn.failed",
    ];
    assert_eq!(classes, closed);
}

/// The commands that tell of a session say the same of work that has not ended.
#[track_caller]
fn assert_told_as(project: &TestProject, word: &str, is_left: bool) {
    let show = show(project);
    let replay = json_of(project, "replay", &["replay", "last", "--format", "json"]);
    let report = json_of(project, "report", &["report", "last", "--json"]);
    let why = json_of(project, "why", &["why", "last", "1", "--json"]);
    let told = [
        &show["status"],
        &show["turns"][0]["status"],
        &show["calls"][0]["status"],
        &replay["session"]["status"],
        &replay["turns"][0]["status"],
        &replay["calls"][0]["status"],
        &report["turns"][0]["status"],
        &report["tool_calls"][0]["status"],
        &why["status"],
    ];
    assert_eq!(told, [word; 9]);
    let open = json!({
        "turns": 1, "calls": 1, "actions": 0, "requests": 0, "processes": 1, "left": is_left
    });
    assert_eq!(replay["summary"]["open"], open);
    assert_eq!(why["is_left"], is_left);
}

fn json_of(project: &TestProject, schema: &str, arguments: &[&str]) -> Value {
    let told = agent(project, arguments).finish().expect_code(0).json();
    crate::assert_schema(schema, &told);
    told
}

/// Output of `sessions show` for the most recent session.
fn show(project: &TestProject) -> Value {
    let run = agent(project, &["sessions", "show", "--json"]);
    let show = run.finish().expect_code(0).json();
    crate::assert_schema("sessions-show", &show);
    show
}

/// Waits until the run has written an event of this class.
fn wait_for(project: &TestProject, child: &mut Child, class: &str) {
    let wanted = format!(r#"{{"type":"{class}""#);
    let written = || {
        let entries = fs::read_dir(project.root().join(".agent/sessions")).ok()?;
        let log = entries.flatten().next()?.path().join("events.jsonl");
        fs::read_to_string(log)
            .ok()
            .filter(|log| log.contains(&wanted))
    };
    while written().is_none() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before {class}"
        );
        std::thread::yield_now();
    }
}

#[test]
fn of_a_branch_an_answer_from_elsewhere_and_a_pruned_session() {
    let project = scripted(&[
        calls("Counting.", &[command("echo ran >> counter")]),
        calls("Counted.", &[]),
        calls("Nothing more.", &[]),
    ]);
    agent(&project, &["run", "--on-ask", "wait", "Count."])
        .finish()
        .expect_code(3);
    let open = agent(&project, &["actions", "--json"]).finish().json();
    let text = |key: &str| open["actions"][0][key].as_str().unwrap().to_owned();
    let (session, action) = (text("session_id"), text("action_id"));
    let asked = show(&project);
    assert_eq!(asked["status"], "waiting_permission");
    assert_eq!(asked["turns"][0]["status"], "waiting_permission");
    assert_eq!(asked["calls"][0]["status"], "waiting_permission");
    agent(&project, &["respond", &session, &action, "allow"])
        .finish()
        .expect_code(0);
    let answered = show(&project);
    assert_eq!(answered["status"], "blocked");
    assert_eq!(answered["turns"][0]["status"], "blocked");
    assert_eq!(answered["calls"][0]["status"], "allowed");
    agent(&project, &["run", "--session", &session])
        .finish()
        .expect_code(0);
    assert_eq!(project.read("counter"), "ran\n");
    agent(&project, &["fork", &session]).finish().expect_code(0);
    agent(&project, &["run", "--session", "last", "And now?"])
        .finish()
        .expect_code(0);
    agent(&project, &["undo", &session, "--yes"])
        .finish()
        .expect_code(0);
    agent(
        &project,
        &["sessions", "prune", "--max-size", "1B", "--yes"],
    )
    .finish()
    .expect_code(0);
    let events = assert_sound(&project, &project.root());
    assert_eq!(sessions(&project.root()).len(), 2);
    for class in [
        "action.resolved",
        "history.rollback.completed",
        "output.expired",
    ] {
        assert!(count(&events, class) > 0, "{class}");
    }
}

/// A long session keeps its read models; they are checked, said to be wrong, and never missed.
#[test]
fn of_a_long_session_and_its_cache() {
    let project = TestProject::new();
    project.write("notes.txt", "hello\n");
    let reads = |count: usize| {
        let line = |at: usize| json!({"tool": "read", "input": {"path": "notes.txt", "offset": at % 2 + 1}});
        (0..count)
            .map(|at| line(at).to_string() + "\n")
            .collect::<String>()
    };
    let call = |arguments: &[&str], count: usize| {
        let run = agent(&project, &[&["call", "--stdin"], arguments].concat());
        run.stdin(reads(count)).finish()
    };
    let of_a_short_one = call(&[], 1);
    assert_eq!(of_a_short_one.code(), 0, "{}", of_a_short_one.stderr());
    let _ = fs::remove_dir_all(project.root().join(".agent"));
    let _ = call(&[], 170);
    let directory = sessions(&project.root()).remove(0);
    let cache = directory.join("cache/read-models.json");
    let written = fs::read(&cache).unwrap();
    let events = log::check(&directory);
    let updated = events
        .iter()
        .find(|event| event["type"] == "snapshot.updated")
        .unwrap();
    assert_eq!(updated["payload"]["path"], "cache/read-models.json");
    assert_eq!(updated["payload"]["sha256"], hex_of(&written));
    assert_eq!(
        updated["payload"]["as_of_sequence"].as_u64().unwrap() + 1,
        updated["sequence"].as_u64().unwrap()
    );

    // What is wrong with it is said once, and the log counts.
    let text = String::from_utf8(written).unwrap();
    fs::write(&cache, text.replacen("notes.txt", "lies.txt", 1)).unwrap();
    for _ in 0..2 {
        let _ = call(&["--session", "last"], 1);
    }
    let events = assert_sound(&project, &project.root());
    assert_eq!(count(&events, "snapshot.repaired"), 1);
    assert_eq!(count(&events, "snapshot.updated"), 2);
    assert!(!fs::read_to_string(&cache).unwrap().contains("lies.txt"));

    fs::remove_dir_all(directory.join("cache")).unwrap();
    let run = agent(&project, &["actions", "--json"]).finish();
    assert_eq!(run.expect_code(0).json()["actions"], json!([]));
    let _ = call(&["--session", "last"], 1);
    let events = assert_sound(&project, &project.root());
    assert_eq!(count(&events, "snapshot.repaired"), 1);
    assert!(cache.exists());
}

fn hex_of(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As much as `limit` blocks fit into a file, as on a full disk.
fn with_little_room(project: &TestProject, limit: u32, arguments: &str) -> RunOutput {
    let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$AGENT\" {arguments}");
    Run::new("/bin/sh", project)
        .env("AGENT", env!("CARGO_BIN_EXE_agent"))
        .args(["-c", &script])
        .finish()
}

#[test]
fn of_a_run_on_a_full_disk() {
    let project = TestProject::new();
    project.write("notes.txt", "hello\n".repeat(5000));
    let read = "call read '{\"path\":\"notes.txt\"}'";
    // Not even the first file can be written, and none is left half-written.
    let told = with_little_room(&project, 0, read).expect_code(2).stderr();
    assert!(told.contains("hint: free some space"), "{told}");
    agent(&project, &["call", "read", "{\"path\":\"notes.txt\"}"])
        .finish()
        .expect_code(0);
    fs::remove_dir_all(project.root().join(".agent/sessions")).unwrap();
    // No session can be made, and nothing of one is left.
    let told = with_little_room(&project, 0, read).expect_code(2).stderr();
    assert!(
        told.contains("nothing was changed") && told.contains("hint: free some space"),
        "{told}"
    );
    assert!(sessions(&project.root()).is_empty());

    // The log is full in the middle of a call, or an artifact is.
    for limit in [20, 28, 36] {
        let told = with_little_room(&project, limit, read)
            .expect_code(1)
            .stderr();
        assert!(
            told.contains("nothing was lost") && told.contains("hint: free some space"),
            "{told}"
        );
    }
    for directory in sessions(&project.root()) {
        let id = directory.file_name().unwrap().to_str().unwrap();
        agent(&project, &["audit", id]).finish().expect_code(0);
        agent(
            &project,
            &["call", "--session", id, "read", "{\"path\":\"notes.txt\"}"],
        )
        .finish()
        .expect_code(0);
    }
    assert_sound(&project, &project.root());
}
