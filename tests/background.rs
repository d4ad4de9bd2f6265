//! Commands in the background, and ones that do not end when they are asked to: what is said of their
//! output and their end.

use std::fs;

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::conversation::{ALLOWED, Conversation, assert_audit, bash, wait_for};
use crate::observations::{artifact, events, read_more};

#[test]
fn output_of_a_background_command_is_never_cut_in_silence() {
    let project = TestProject::new();
    let mut talk = Conversation::start(&project, ALLOWED);
    let command = "seq 1 10000; touch done; exec sleep 600";
    let input = json!({"command": command, "description": "print", "background": true});
    let started = talk.call("bash", input);
    let process = started["facts"]["data"]["process_id"].clone();
    wait_for(&project.root().join("done"));
    let ended = talk.call("process_kill", json!({"process_id": process}));
    let expected: String = (1..=10_000).map(|number| format!("{number}\n")).collect();
    let shown = |observed: &Value| -> String {
        let text = observed["model_text"].as_str().unwrap();
        let digits = |line: &&str| line.bytes().all(|byte| byte.is_ascii_digit());
        text.lines()
            .filter(digits)
            .map(|line| line.to_owned() + "\n")
            .collect()
    };
    assert_eq!(ended["truncated"], true, "{ended:#}");
    assert!(ended["omitted_bytes"].as_u64().unwrap() > 20_000);
    let rest = read_more(&mut talk, &ended);
    assert_eq!(rest["code"], "ok", "{rest:#}");
    let next = shown(&rest);
    assert!(next.len() > 10_000 && expected.contains(&next));
    // All of it is in the artifact that the result names.
    let kept = artifact(&project, &ended, &ended["artifact_refs"][0]["artifact_id"]);
    assert_eq!(fs::read_to_string(kept).unwrap(), expected);
    assert_eq!(talk.end(), Some(0));
    assert_audit(&project);
}

#[test]
fn a_background_command_that_failed_at_once_has_failed() {
    let project = TestProject::new();
    let mut talk = Conversation::start(&project, ALLOWED);
    let input = json!({"command": "exit 7", "description": "fail", "background": true});
    // How soon "at once" is depends on the machine; it is tried until the end was seen in time.
    let started = loop {
        let started = talk.call("bash", input.clone());
        if started["facts"]["data"]["process_status"] == "ended" {
            break started;
        }
        assert_eq!(started["code"], "ok");
    };
    assert_eq!(started["code"], "exit_nonzero", "{started:#}");
    assert_eq!(started["facts"]["exit_code"], 7);
    let text = started["model_text"].as_str().unwrap();
    assert!(text.contains("exit code 7"), "{text}");
    assert_eq!(talk.end(), Some(1));
    assert_audit(&project);
}

#[test]
fn where_a_command_left_off_is_recorded_only_when_it_is_known() {
    let project = TestProject::new();
    project.write("sub/file", "x\n");
    let mut talk = Conversation::start(&project, ALLOWED);
    let root = project.root().canonicalize().unwrap();
    let sub = root.join("sub");
    let cases = [
        ("true", Some(&root)),
        ("cd sub", Some(&sub)),
        ("cd sub && ls", Some(&sub)),
        ("cd sub; cd ..", Some(&root)),
        ("cd $(printf sub)", None),
        ("mkdir new; cd new", None),
    ];
    for (command, _) in &cases {
        bash(&mut talk, command);
    }
    talk.end();
    let ended = events(&project, "process.completed");
    for ((command, expected), event) in cases.iter().zip(&ended) {
        let told = event["payload"]["cwd_after"].as_str();
        assert_eq!(
            told,
            expected.map(|path| path.to_str().unwrap()),
            "{command}"
        );
    }
    assert_eq!(ended.len(), cases.len());
}

/// With TERM ignored everywhere, and one process in a session of its own.
#[test]
fn nothing_is_left_of_a_command_that_ignores_being_asked_to_end() {
    for config in ["", "sandbox = \"off\"\n"] {
        let project = TestProject::new();
        project.write_home("config.toml", config);
        let stubborn = "trap '' TERM; setsid sleep 600 & echo $! > first; sleep 600 & echo $! > second; \
                        touch running; wait; sleep 600";
        let input = json!({"command": stubborn, "description": "stay", "timeout_ms": 1_000});
        let mut talk = Conversation::start(&project, ALLOWED);
        let observed = talk.call("bash", input);
        assert_eq!(observed["code"], "timeout", "{observed:#}");
        // Numbers from inside a sandbox mean nothing outside: look at what runs in the project.
        assert_eq!(running_in(&project), Vec::<String>::new(), "{config}");
        // The same at the end of the session.
        fs::remove_file(project.root().join("running")).unwrap();
        let input = json!({"command": stubborn, "description": "stay", "background": true});
        assert_eq!(talk.call("bash", input)["code"], "ok");
        wait_for(&project.root().join("running"));
        assert_eq!(talk.end(), Some(1));
        assert_eq!(running_in(&project), Vec::<String>::new(), "{config}");
        assert_audit(&project);
    }
}

/// The programs that have their working directory in the project, but for `agent`.
fn running_in(project: &TestProject) -> Vec<String> {
    let root = project.root().canonicalize().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let inside = processes.filter(|process| {
        fs::read_link(process.path().join("cwd")).is_ok_and(|place| place.starts_with(&root))
    });
    let names =
        inside.map(|process| fs::read_to_string(process.path().join("comm")).unwrap_or_default());
    names
        .filter(|name| !name.is_empty() && name.trim() != "agent")
        .collect()
}
