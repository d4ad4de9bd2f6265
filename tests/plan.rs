//! The list of things to do that the model keeps, and mode plan: nothing is changed until a plan is approved.

use agent_protocol::payload::permission::{ActionDecision, ActionType};
use agent_protocol::payload::plan::{PlanItem, PlanState};
use agent_protocol::status::Mode;
use agent_protocol::{Event, Payload};
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::approval::respond;
use crate::compaction;
use crate::resume::only_action;
use crate::run::{assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run, sum_project};

/// A list with these states.
fn list(states: [&str; 3]) -> Value {
    let texts = ["Find the cause", "Fix it", "Run the tests"];
    let items = texts.iter().zip(states);
    let items: Vec<Value> = items
        .map(|(text, state)| json!({"text": text, "state": state}))
        .collect();
    json!({"items": items})
}

/// The lists in the log, in order.
fn lists(events: &[Event]) -> Vec<Vec<PlanItem>> {
    let found = events.iter().filter_map(|event| match &event.payload {
        Payload::ToolResult(result) => result.data.plan.clone(),
        _ => None,
    });
    found.collect()
}

#[test]
fn the_list_is_a_fact_that_is_told_everywhere() {
    let server = ModelServer::start(
        Script::new()
            .turn(Turn::call(
                "plan",
                list(["in_progress", "pending", "pending"]),
            ))
            .turn(Turn::call("plan", list(["done", "in_progress", "dropped"])))
            .turn(Turn::text("Halfway.")),
    );
    let project = sum_project();
    // It needs no permission, in no mode.
    let arguments = ["--mode", "read-only", "--verbose", "Begin."];
    let ran = run(&project, &server, Wire::Chat, &arguments).finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    for told in [
        "+ plan — 0 of 3 done; now: Find the cause",
        "+ plan — 1 of 2 done; now: Fix it",
    ] {
        assert!(ran.stderr().contains(told), "{}", ran.stderr());
    }
    let lists = lists(&log(&project));
    let states = lists[1].iter().map(|item| item.state).collect::<Vec<_>>();
    use PlanState::{Done, Dropped, InProgress};
    assert_eq!(states, [Done, InProgress, Dropped]);
    assert_eq!(lists[1][1].text, "Fix it");
    let told = agent(&project, &["replay", "last", "--format", "text"]);
    let told = told.finish().expect_code(0).stdout();
    for line in ["[x] Find the cause", "[>] Fix it", "[-] Run the tests"] {
        assert!(told.contains(line), "{told}");
    }
    let page = agent(&project, &["replay", "last", "--format", "html"]);
    let page = page.finish().expect_code(0).stdout();
    assert!(page.contains("[x] Find the cause"));
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}

#[test]
fn the_list_outlives_a_compaction() {
    let steps = std::sync::atomic::AtomicUsize::new(0);
    let script = Script::new().otherwise(move |_, request| {
        let body = request.json().to_string();
        if body.contains("Summarise the conversation so far") {
            return Turn::text("I read the first parts of the file.");
        }
        match steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Turn::call("plan", list(["done", "in_progress", "pending"])),
            step @ 1..=8 => compaction::reading(step - 1),
            _ => Turn::text("Read."),
        }
    });
    let server = ModelServer::start(script);
    let project = compaction::project(&server, 9_000);
    let ran = compaction::go(&project);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    assert!(!compaction::completed(&log(&project)).is_empty());
    let last = server.bodies().pop().unwrap().to_string();
    assert!(
        last.contains("- [x] Find the cause\\n- [>] Fix it\\n- [ ] Run the tests"),
        "{last}"
    );
}

#[test]
fn other_programs_lists_are_understood() {
    let theirs = [
        (
            "TodoWrite",
            json!({"todos": [
                {"content": "a", "status": "completed", "activeForm": "Doing a", "id": "1", "priority": "high"},
                {"content": "b", "status": "in_progress", "activeForm": "Doing b"},
            ]}),
        ),
        (
            "update_plan",
            json!({"explanation": "why", "plan": [
                {"step": "a", "status": "completed"},
                {"step": "b", "status": "in_progress"},
            ]}),
        ),
        (
            "write_todos",
            json!({"todos": [
                {"description": "a", "status": "completed"},
                {"description": "b", "status": "in_progress"},
            ]}),
        ),
        (
            "plan",
            json!({"items": [{"text": "a", "state": "done"}, {"text": "b", "status": "in_progress"}]}),
        ),
    ];
    for (tool, input) in theirs {
        let project = TestProject::new();
        let input = input.to_string();
        let ran = agent(&project, &["call", tool, &input]).finish();
        assert_eq!(ran.code(), 0, "{tool}: {}", ran.stderr());
        let items = lists(&log(&project)).pop().unwrap();
        let items: Vec<_> = items.iter().map(PlanItem::line).collect();
        assert_eq!(items, ["[x] a", "[>] b"], "{tool}");
    }
    let project = TestProject::new();
    let too_many = json!({"items": vec![json!({"text": "a"}); 51]}).to_string();
    let ran = agent(&project, &["call", "plan", &too_many]).finish();
    assert_ne!(ran.code(), 0, "{}", ran.stdout());
}

const PLAN: &str = "1. `src/sum.sh`: drop the `+ 1`.\n2. Run `sh test.sh`.";

fn fix() -> Turn {
    let edit = json!({"path": "src/sum.sh", "old_string": "$2 + 1", "new_string": "$2"});
    Turn::call("edit", edit)
}

/// A model that looks and hands over its plan.
fn planning(then: impl FnOnce(Script) -> Script) -> ModelServer {
    let script = Script::new()
        .turn(Turn::call("read", json!({"path": "src/sum.sh"})))
        .turn(Turn::call("ExitPlanMode", json!({"plan": PLAN})));
    ModelServer::start(then(script))
}

/// A run that ends with the plan, and the project it left as it was.
fn planned(server: &ModelServer) -> TestProject {
    let project = sum_project();
    let before = project.read("src/sum.sh");
    let arguments = ["--mode", "plan", "Fix the sum."];
    let ran = run(&project, server, Wire::Chat, &arguments).finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    assert_eq!(ran.stdout().trim(), PLAN);
    assert!(ran.stderr().contains("agent respond"), "{}", ran.stderr());
    assert_eq!(project.read("src/sum.sh"), before);
    project
}

/// The names of the tools that a request offers.
fn offered(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().unwrap().iter();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    tools.map(name).collect()
}

#[test]
fn a_run_in_mode_plan_ends_with_a_plan_and_an_approval_carries_it_out() {
    let server = planning(|script| script.turn(fix()).turn(Turn::text("Done.")));
    let project = planned(&server);
    // The model is told the mode, and shown what it can use in it.
    let first = &server.bodies()[0];
    assert!(first["messages"].to_string().contains("The mode is plan"));
    let tools = offered(first);
    assert!(tools.contains(&"propose_plan".to_owned()), "{tools:?}");
    assert!(!tools.contains(&"edit".to_owned()), "{tools:?}");
    let asked = log(&project)
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::ActionRequired(asked) => Some(asked),
            _ => None,
        });
    assert_eq!(asked.unwrap().action_type, ActionType::Plan);
    assert_eq!(only_action(&project)["tool_name"], "propose_plan");

    respond(&project, "last", &["allow"]).expect_code(0);
    let arguments = ["--session", "last", "--mode", "accept-edits"];
    let ran = run(&project, &server, Wire::Chat, &arguments).finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let told = || {
        agent(&project, &["replay", "last", "--format", "text"])
            .finish()
            .stdout()
    };
    assert!(
        project.read("src/sum.sh").contains("$(($1 + $2))"),
        "{}",
        told()
    );
    let bodies = server.bodies();
    let approved = bodies[2]["messages"].to_string();
    assert!(
        approved.contains("The user approved the plan"),
        "{approved}"
    );
    assert!(offered(&bodies[2]).contains(&"edit".to_owned()));
    assert_audit_is_clean(&project);
    assert_inputs_can_be_rebuilt(&project, &server);
}

#[test]
fn a_plan_that_is_rejected_is_made_anew() {
    let other = "1. Another way.";
    let server = planning(|script| script.turn(Turn::call("propose_plan", json!({"plan": other}))));
    let project = planned(&server);
    respond(&project, "last", &["deny", "--note", "keep the signature"]).expect_code(0);
    let arguments = ["--session", "last", "--mode", "plan", "--output", "json"];
    let ran = run(&project, &server, Wire::Chat, &arguments).finish();
    let report = ran.expect_code(0).json();
    crate::assert_schema("run", &report);
    assert_eq!(report["final_text"], other);
    assert_eq!(report["stop_reason"], "plan_proposed");
    let told = server.bodies()[2]["messages"].to_string();
    assert!(told.contains("keep the signature"), "{told}");
    let decided = log(&project)
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::ActionResolved(resolved) => Some(resolved.decision),
            _ => None,
        });
    assert_eq!(decided, Some(ActionDecision::Deny));
    assert_audit_is_clean(&project);
}

/// In mode plan what a call would change is refused, whatever rules allow; a call that only reads is not.
#[test]
fn nothing_is_changed_in_mode_plan() {
    let make =
        |command: &str| Turn::call("bash", json!({"command": command, "description": "Try"}));
    let server = ModelServer::start(
        Script::new()
            .turn(Turn::call("read", json!({"path": "src/sum.sh"})))
            .turn(fix())
            .turn(make("touch made"))
            .turn(make("cat src/sum.sh"))
            .turn(Turn::text("I would drop the `+ 1`.")),
    );
    let project = sum_project();
    let before = project.read("src/sum.sh");
    let ran = run(
        &project,
        &server,
        Wire::Chat,
        &["--mode", "plan", "Fix it."],
    )
    .finish();
    assert_eq!(ran.code(), 3, "{}", ran.stderr());
    assert_eq!(project.read("src/sum.sh"), before);
    assert!(!project.root().join("made").exists());
    let ok: Vec<bool> = log(&project)
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ToolObservation(observation) => Some(observation.ok),
            _ => None,
        })
        .collect();
    assert_eq!(ok, [true, false, false, true]);
    assert_audit_is_clean(&project);
}

/// No setting, rule or answer for the whole run approves a plan, in no mode.
#[test]
fn nobody_but_the_user_approves_a_plan() {
    for mode in Mode::ALL {
        let server = ModelServer::start(
            Script::new()
                .turn(Turn::call("propose_plan", json!({"plan": PLAN})))
                .turn(Turn::text("Go.")),
        );
        let project = sum_project();
        project.write_home("all.toml", "[permissions]\nallow = [\"propose_plan\"]\n");
        let rules = project.home().join("all.toml");
        let rules = rules.to_str().unwrap();
        let arguments = [
            "--mode",
            mode.as_str(),
            "--rules",
            rules,
            "--on-ask",
            "allow",
            "Go.",
        ];
        drop(run(&project, &server, Wire::Chat, &[]));
        let ran = agent(&project, &[&["run"][..], &arguments].concat()).finish();
        assert_eq!(ran.code(), 0, "{mode}: {}", ran.stderr());
        assert_eq!(ran.stdout().trim(), PLAN, "{mode}");
        assert_eq!(server.bodies().len(), 1, "{mode}");
    }
}
