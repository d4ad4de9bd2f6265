//! `agent rerun`: the recorded answers against today's rules, in a copy.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use agent_protocol::payload::conversation::{TurnCompleted, TurnSubmitted};
use agent_protocol::payload::permission::{
    ActionDecision, ActionRequired, ActionResolved, DecidedBy, DecisionSource, Effect,
    PermissionEvaluated, PermissionResolved,
};
use agent_protocol::payload::tool::{ToolIntent, ToolObservation};
use agent_protocol::status::Mode;
use agent_protocol::{Code, Payload, Refs, Scope};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::files::{assert_same, bash, calls, edit, project, read, snapshot, write};
use crate::import::{asks, calls_tool};
use crate::{agent, assert_schema, sample};

fn rerun(project: &TestProject, arguments: &[&str], code: i32) -> Value {
    let run = agent(project, &["rerun", "last", "--json"]).args(arguments);
    let printed = run.finish().expect_code(code).json();
    assert_schema("rerun", &printed);
    printed
}

/// Everything of the project that a write would change, our own directory included.
fn traces(directory: &Path, found: &mut BTreeMap<String, (u64, i64, i64, u64)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let data = path.symlink_metadata().unwrap();
        let trace = (data.ino(), data.ctime(), data.ctime_nsec(), data.len());
        found.insert(path.display().to_string(), trace);
        if data.is_dir() {
            traces(&path, found);
        }
    }
}

fn work() -> Vec<Value> {
    vec![
        read("a.txt"),
        edit("a.txt", "two", "2"),
        bash("pwd; cat a.txt b.txt; rm b.txt; date +%s%N > /dev/null"),
        write("new.txt", "1\n"),
        bash("cat missing"),
    ]
}

#[test]
fn a_session_comes_out_as_then_and_the_project_is_only_read() {
    let project = project();
    calls(&project, &work());
    // The start state is rebuilt, whatever the project looks like now.
    project.write("a.txt", "changed by hand\n");
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    traces(&project.root(), &mut before);
    let printed = rerun(&project, &[], 0);
    assert_eq!(printed["same"], true);
    assert_eq!(printed["calls"].as_array().unwrap().len(), 5);
    assert_eq!(printed["calls"][4]["now"]["code"], "exit_nonzero");
    assert_eq!(printed["not_rebuilt"], json!([]));
    traces(&project.root(), &mut after);
    assert_eq!(before, after);
}

#[test]
fn other_rules_decide_otherwise() {
    let project = project();
    calls(&project, &work());
    project.write_home("rules.toml", "[permissions]\ndeny = [\"bash(rm *)\"]\n");
    let rules = project.home().join("rules.toml");
    let printed = rerun(&project, &["--rules", rules.to_str().unwrap()], 1);
    let call = &printed["calls"][2];
    assert_eq!(call["differs"], true);
    assert_eq!(call["then"]["decision"], "allow");
    assert_eq!(call["now"]["decision"], "deny");
    assert_eq!(call["now"]["code"], "policy_denied");
    assert!(
        call["observation"]
            .as_str()
            .unwrap()
            .contains("+denied by policy")
    );
    assert_eq!(printed["calls"][3]["differs"], false, "the rest goes on");
    let run = agent(&project, &["rerun", "last", "--mode", "ask"]);
    let run = run.finish().expect_code(1);
    let text = run.stdout();
    assert!(
        text.contains("decision: allow, now ask, then deny"),
        "{text}"
    );
    rerun(&project, &["--mode", "ask", "--on-ask", "allow"], 1);
}

#[test]
fn the_copy_can_be_kept_and_holds_the_end_state() {
    let project = project();
    calls(&project, &work());
    let end = snapshot(&project);
    let kept = project.home().join("kept");
    let printed = rerun(&project, &["--keep", kept.to_str().unwrap()], 0);
    assert_eq!(printed["kept"], kept.to_str().unwrap());
    let copied: BTreeMap<_, _> = end.keys().map(|name| (name, kept.join(name))).collect();
    for (name, path) in copied.iter().filter(|(name, _)| end[**name].kind == "file") {
        assert_eq!(std::fs::read(path).unwrap(), end[*name].bytes, "{name}");
    }
    assert_same(&snapshot(&project), &end);
    let inside = project.root().join("inside");
    let run = agent(
        &project,
        &["rerun", "last", "--keep", inside.to_str().unwrap()],
    );
    run.finish().expect_code(2);
    let again = agent(
        &project,
        &["rerun", "last", "--keep", kept.to_str().unwrap()],
    );
    again.finish().expect_code(2);
}

/// A session in which a person was asked about a command and answered.
fn asked(project: &TestProject, answer: ActionDecision, outcome: Effect, code: Code, text: &str) {
    let writer = sample::begin(project, 7, "asked");
    let scope = Scope {
        turn_id: Some(writer.mint()),
        tool_call_id: Some(writer.mint()),
        action_id: Some(writer.mint()),
        ..Scope::default()
    };
    let events: Vec<Payload> = vec![
        TurnSubmitted {
            text: Some("go".into()),
            ..TurnSubmitted::default()
        }
        .into(),
        ToolIntent {
            tool_name: "bash".into(),
            raw_input: Some(json!({"command": "touch x && echo done", "description": "d"})),
            ..ToolIntent::default()
        }
        .into(),
        PermissionEvaluated {
            decision: Effect::Ask,
            mode: Mode::Ask,
            ..PermissionEvaluated::default()
        }
        .into(),
        ActionRequired::default().into(),
        ActionResolved {
            decision: answer,
            decided_by: DecidedBy::User,
            ..ActionResolved::default()
        }
        .into(),
        PermissionResolved {
            decision: outcome,
            decision_source: DecisionSource::Human,
            ..PermissionResolved::default()
        }
        .into(),
        ToolObservation {
            tool_name: "bash".into(),
            code,
            model_text: Some(text.into()),
            ..ToolObservation::default()
        }
        .into(),
        TurnCompleted::default().into(),
    ];
    for event in events {
        writer.append(&scope, event, Refs::default()).unwrap();
    }
}

#[test]
fn what_a_person_answered_is_answered_again_and_labelled() {
    for (answer, outcome, code) in [
        (ActionDecision::AllowOnce, Effect::Allow, Code::Ok),
        (ActionDecision::Deny, Effect::Deny, Code::UserDenied),
    ] {
        let project = project();
        asked(&project, answer, outcome, code, "what it said then");
        let printed = rerun(&project, &[], 1);
        let call = &printed["calls"][0];
        assert_eq!(
            call["now"]["outcome"], call["then"]["outcome"],
            "{printed:#}"
        );
        assert_eq!(call["now"]["code"], code.as_str());
        assert_eq!(call["now"]["by_a_person"], true);
        assert!(
            call["observation"]
                .as_str()
                .unwrap()
                .contains("-what it said then")
        );
        let run = agent(&project, &["rerun", "last"]).finish();
        let text = run.stdout();
        assert!(text.contains("given the recorded answer"), "{text}");
    }
}

#[test]
fn there_has_to_be_something_to_play() {
    let project = project();
    drop(sample::begin(&project, 1, "empty"));
    let run = agent(&project, &["rerun", "last"]).finish().expect_code(2);
    assert!(
        run.stderr().contains("no model answers or calls to rerun"),
        "{}",
        run.stderr()
    );
}

/// What another program ran is never run here, whatever its tools are called.
#[test]
fn an_imported_session_is_not_played_again() {
    let project = project();
    let marker = project.root().join("marker");
    let input = json!({"command": format!("touch {}", marker.display()), "description": "mark"});
    let lines = [asks(1, "mark it"), calls_tool(2, "Bash", input)];
    project.write("record.jsonl", lines.join("\n"));
    agent(&project, &["import", "record.jsonl"])
        .finish()
        .expect_code(0);
    for arguments in [
        &["rerun", "last"][..],
        &[
            "rerun", "last", "--mode", "full", "--on-ask", "allow", "--keep", "kept",
        ],
    ] {
        let run = agent(&project, arguments).finish().expect_code(2);
        let says = run.stderr();
        assert!(says.contains("was imported from claude-code"), "{says}");
        assert!(says.contains("nothing was run"), "{says}");
        assert!(says.contains("agent permissions test"), "{says}");
    }
    assert!(!marker.exists());
    assert!(!project.root().join("kept").exists());
}
