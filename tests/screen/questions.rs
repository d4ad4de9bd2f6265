//! Questions and their answers: what each does, and what is none.

use agent_protocol::Payload;
use agent_protocol::payload::permission::{ActionDecision, DecidedBy};
use agent_test_support::model_server::{Script, Turn};
use agent_test_support::project::TestProject;
use serde_json::json;

use super::terminal::Terminal;
use super::{READY, USUAL, bash, decisions, events, leave, project_to_change, project_with};
use crate::agent;

#[test]
fn the_demo_allowed_fixes_the_test() {
    let project = TestProject::new();
    let mut terminal = Terminal::start(&project, &["demo", "--directory", "sum"], USUAL);
    terminal.question("$ sh test.sh").keys("a");
    terminal.question("src/sum.sh").keys("a");
    terminal.question("$ sh test.sh").keys("a");
    terminal.wait_for("✓ verified: sh test.sh passed");
    assert!(project.read("sum/src/sum.sh").contains("$(($1 + $2))"));
    // Whoever goes on asking is told what the model is.
    terminal.wait_for(READY).keys("And now?\r");
    terminal.wait_for("I am a script");
    leave(&mut terminal);
    let decided = decisions(&events(&project, "sum"));
    assert_eq!(decided, [(ActionDecision::AllowOnce, DecidedBy::User); 3]);
    agent(&project, &["-C", "sum", "audit", "last"])
        .finish()
        .expect_code(0);
}

#[test]
fn the_demo_denied_changes_nothing() {
    let project = TestProject::new();
    let mut terminal = Terminal::start(&project, &["demo", "--directory", "sum"], USUAL);
    terminal.question("$ sh test.sh").keys("a");
    let before = project.read("sum/src/sum.sh");
    terminal.question("src/sum.sh").keys("d");
    // The script runs the tests again whatever happened; they still fail.
    terminal.question("$ sh test.sh").keys("q");
    terminal.wait_for(READY);
    assert_eq!(project.read("sum/src/sum.sh"), before);
    let shown = terminal.everything().join("\n");
    assert!(shown.contains("⊘ edit src/sum.sh"), "{shown}");
    leave(&mut terminal);
    let decided = decisions(&events(&project, "sum"));
    assert_eq!(decided[1].0, ActionDecision::Deny);
    assert_eq!(decided[2].0, ActionDecision::Abort);
}

/// Nothing typed before the question was there to be read answers it, and Enter never does.
#[test]
fn type_ahead_and_enter_are_no_answers() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch made"))
            .turn(Turn::text("Well.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\raaaaaaaa");
    terminal.question("$ touch made");
    assert!(!project.root().join("made").exists());
    terminal.keys("\r").wait_for("nothing is allowed by Enter");
    terminal.keys("d").wait_for("Well.");
    assert!(!project.root().join("made").exists());
    terminal.wait_for("aaaaaaaa").keys("\x03\x03");
    assert_eq!(terminal.exit_code(), 0);
    terminal.assert_given_back();
}

#[test]
fn an_edited_command_is_checked_and_recorded_as_the_users() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("echo one > out.txt"))
            .turn(Turn::text("Well.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.question("$ echo one > out.txt").keys("e");
    terminal
        .wait_for("Edit the command")
        .keys("\x01\x0becho two > out.txt\r");
    terminal.wait_for("Well.");
    assert_eq!(project.read("out.txt"), "two\n");
    leave(&mut terminal);
    let events = events(&project, ".");
    let edited = events.iter().find_map(|event| match &event.payload {
        Payload::ActionResolved(resolved) => resolved.payload.clone(),
        _ => None,
    });
    let edited = edited.and_then(|answer| answer.edited_input).unwrap();
    assert_eq!(edited["command"], "echo two > out.txt");
    assert_eq!(decisions(&events)[0].1, DecidedBy::User);
    let validated = events
        .iter()
        .filter(|event| matches!(event.payload, Payload::ToolValidation(_)))
        .count();
    assert!(validated >= 2, "the edited input is validated again");
}

/// What the user does not touch stays as the model wrote it, byte by byte.
#[test]
fn an_edited_file_keeps_its_tabs_and_line_ends() {
    let content = "all:\r\n\tcc -c a.c\r\n";
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::call(
                "write",
                json!({"path": "Makefile", "content": content}),
            ))
            .turn(Turn::text("Well.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for_key("Create Makefile?", "[e]");
    terminal.wait_for("creates `Makefile`");
    // There is no earlier file to keep a copy of.
    assert!(!terminal.screen().contains("a copy of the file"));
    terminal.keys("e");
    terminal.wait_for("Edit the content").keys("# mine\x0a\r");
    terminal.wait_for("Well.");
    assert_eq!(project.read("Makefile"), format!("{content}# mine\r\n"));
    leave(&mut terminal);
}

/// How long a command may run is what it asks for, not what is usual.
#[test]
fn a_question_says_how_long_it_will_run() {
    let asks = |more: (&str, serde_json::Value)| {
        let mut input = json!({"command": "touch made", "description": "a step"});
        input[more.0] = more.1;
        Turn::call("bash", input)
    };
    let (project, _server) = project_with(
        Script::new()
            .turn(asks(("background", json!(true))))
            .turn(asks(("timeout_ms", json!(7000))))
            .turn(Turn::text("Well.")),
    );
    let mut terminal = Terminal::start(&project, &[], (100, 40));
    terminal.wait_for(READY).keys("go\r");
    terminal.question("goes on in the background");
    assert!(!terminal.screen().contains("is stopped after"));
    terminal
        .keys("d")
        .question("is stopped after 7 s")
        .keys("d");
    terminal.wait_for("Well.");
    leave(&mut terminal);
}

/// Nothing can be allowed, nor edited and then allowed, before its end was on the screen.
#[test]
fn a_long_command_is_read_to_its_end_first() {
    let command: String = (1..=60)
        .map(|step| format!("echo {step} > made\n"))
        .collect();
    let (project, _server) =
        project_with(Script::new().turn(bash(&command)).turn(Turn::text("Well.")));
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.question("$ echo 1 > made");
    assert!(terminal.with_screen(vt100::Screen::alternate_screen));
    for key in ["a", "s", "e"] {
        terminal.keys(key).wait_for("read it to its end first");
        // Another key takes the hint away again.
        terminal.keys("z").wait_gone("read it to its end first");
    }
    terminal
        .keys("G")
        .wait_for_key("── end of", "[a]")
        .keys("a");
    terminal.wait_for("Well.").wait_for(READY);
    assert_eq!(project.read("made"), "60\n");
    // The question covered the screen, and left no trace on it.
    let shown = terminal.everything().join("\n");
    assert!(!shown.contains("Run this command?"), "{shown}");
    leave(&mut terminal);
}

#[test]
fn an_edit_that_does_not_hold_up_changes_nothing() {
    let (project, _server) = project_to_change("one\none more\n");
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    // Not unique: the tool's own check refuses it before anybody is asked.
    terminal.wait_for("Changed.");
    assert_eq!(project.read("a.txt"), "one\none more\n");
    leave(&mut terminal);
    assert!(decisions(&events(&project, ".")).is_empty());
}
