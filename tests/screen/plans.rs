//! The list of things to do above the composer, and mode plan with the question it ends in.

use agent_protocol::Payload;
use agent_protocol::payload::permission::{ActionDecision, ActionType};
use agent_protocol::status::Mode;
use agent_test_support::model_server::{Script, Turn};
use serde_json::{Value, json};

use super::terminal::Terminal;
use super::{READY, USUAL, bash, events, leave, project_with};

fn list(states: [&str; 3]) -> Turn {
    let texts = ["Find the cause", "Fix it", "Run the tests"];
    let items = texts.iter().zip(states);
    let items: Vec<Value> = items
        .map(|(text, state)| json!({"text": text, "state": state}))
        .collect();
    Turn::call("plan", json!({"items": items}))
}

#[test]
fn the_list_stands_above_the_composer_while_something_in_it_is_open() {
    let (project, _server) = project_with(
        Script::new()
            .turn(list(["done", "in_progress", "pending"]))
            .turn(Turn::text("Halfway."))
            .turn(list(["done", "done", "dropped"]))
            .turn(Turn::text("All done.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal
        .wait_for("Halfway.")
        .wait_for("▸ Fix it · 1 of 3 · Alt-P")
        .keys("\x1bp")
        .wait_for("○ Run the tests");
    let shown = terminal.screen();
    for line in ["✓ Find the cause", "▸ Fix it", "1 of 3 done"] {
        assert!(shown.contains(line), "{shown}");
    }
    terminal.keys("\x1bp").wait_gone("○ Run the tests");
    leave(&mut terminal);
    // It is there again in a resumed session, and gone once all is done.
    let mut terminal = Terminal::start(&project, &["--continue"], USUAL);
    terminal.wait_for("▸ Fix it · 1 of 3").keys("go on\r");
    terminal.wait_for("All done.").wait_gone("▸ Fix it");
    leave(&mut terminal);
}

const PLAN: &str = "## What\n\n1. Change `a.txt`.\n2. Make `made`.";

fn planning(then: impl FnOnce(Script) -> Script) -> Script {
    let script = Script::new()
        .turn(Turn::call("read", json!({"path": "a.txt"})))
        .turn(Turn::call("propose_plan", json!({"plan": PLAN})));
    then(script)
}

fn change() -> Turn {
    let change = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
    Turn::call("edit", change)
}

#[test]
fn an_approved_plan_is_carried_out_in_the_mode_that_was_chosen() {
    let script = planning(|script| script.turn(change()).turn(Turn::text("Changed.")));
    let (project, server) = project_with(script);
    project.write("a.txt", "one\n");
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("/plan change a.txt\r");
    terminal.wait_for_key("Approve this plan?", "[s]");
    let shown = terminal.screen();
    assert!(shown.contains("1. Change a.txt."), "{shown}");
    assert!(shown.contains("approve, edits run"), "{shown}");
    // No further question: that is what was chosen.
    terminal.keys("s").wait_for("Changed.");
    terminal.wait_for("accept-edits");
    assert_eq!(project.read("a.txt"), "two\n");
    leave(&mut terminal);
    let events = events(&project, "");
    let facts: Vec<String> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ActionRequired(asked) => Some(asked.action_type.to_string()),
            Payload::PolicyChanged(changed) => changed.changed.mode.map(|mode| mode.to_string()),
            Payload::ActionResolved(resolved) => Some(resolved.decision.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(facts, ["plan", "plan", "accept-edits", "allow_once"]);
    // The tools of that mode are offered from the next request on.
    let tools = server.bodies()[2]["tools"].to_string();
    assert!(tools.contains("\"edit\"") && !tools.contains("\"propose_plan\""));
}

#[test]
fn a_plan_is_edited_or_rejected_with_a_note() {
    let again = Turn::call("propose_plan", json!({"plan": "Only `a.txt`."}));
    let script =
        planning(|script| script.turn(again).turn(bash("touch made"))).turn(Turn::text("Made."));
    let (project, server) = project_with(script);
    project.write("a.txt", "one\n");
    let mut terminal = Terminal::start(&project, &["--mode", "plan"], USUAL);
    terminal.wait_for(READY).keys("change a.txt\r");
    terminal.question("Approve this plan?").keys("n");
    terminal.wait_for("tell the model").keys("one file only\r");
    // Leaving the mode is no approval: the question stays.
    terminal.question("Only a.txt.").keys("\x1b[Z");
    terminal.wait_for("ask ·").question("Only a.txt.").keys("e");
    terminal.wait_for("Edit the plan").keys(" And tell me.");
    terminal.enter_until("$ touch made");
    terminal
        .question("$ touch made")
        .keys("d")
        .wait_for("Made.");
    leave(&mut terminal);
    let bodies = server.bodies();
    assert!(bodies[2].to_string().contains("one file only"));
    assert!(bodies[3].to_string().contains("Only `a.txt`. And tell me."));
    let events = events(&project, "");
    let asked = events.iter().filter_map(|event| match &event.payload {
        Payload::ActionRequired(asked) => Some(asked.action_type),
        _ => None,
    });
    let asked: Vec<_> = asked.collect();
    use ActionType::{Plan, ToolPermission};
    assert_eq!(asked, [Plan, Plan, ToolPermission]);
    let first = events.iter().find_map(|event| match &event.payload {
        Payload::ActionResolved(resolved) => Some(resolved.decision),
        _ => None,
    });
    assert_eq!(first, Some(ActionDecision::Deny));
    let mode = events.iter().rev().find_map(|event| match &event.payload {
        Payload::PolicyChanged(changed) => changed.changed.mode,
        _ => None,
    });
    assert_eq!(mode, Some(Mode::Ask));
}
