//! Questions and their answers: what each does, and what is none.

use std::time::Duration;

use agent_protocol::Payload;
use agent_protocol::payload::permission::{ActionDecision, DecidedBy};
use agent_protocol::status::Mode;
use agent_test_support::model_server::{Script, Turn};
use agent_test_support::project::TestProject;
use serde_json::json;

use super::terminal::Terminal;
use super::{
    READY, USUAL, bash, decisions, events, leave, project_to_change, project_with, with_setting,
};
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
    terminal.keys("\r").wait_for("Enter does nothing here");
    terminal
        .question("$ touch made")
        .keys("d")
        .wait_for("Well.");
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
        .keys("\x01\x0becho two > out.txt");
    terminal.enter_until("Well.");
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
    terminal.wait_for("Edit the content").keys("# mine\x0a");
    terminal.enter_until("Well.");
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
    terminal.question("keeps running in the background");
    assert!(!terminal.screen().contains("times out after"));
    terminal.keys("d").question("times out after 7 s").keys("d");
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
        terminal.question("$ echo 1 > made").keys(key);
        terminal.wait_for("Scroll to the end to allow");
        // Another key takes the hint away again.
        terminal.question("$ echo 1 > made").keys("z");
        terminal.wait_gone("Scroll to the end to allow");
    }
    terminal
        .keys("\x1b[F")
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

/// Whoever types the next message while a question appears answers nothing, however long it takes;
/// a single key pressed in a calm is an answer soon. (Slower typing is tried with a clock of its own,
/// in the tests of the keys: here a busy machine would make a calm of it.)
#[test]
fn sentences_typed_through_a_question_approve_nothing() {
    for (sentence, pause) in [
        ("you should not touch the lock file", 35),
        ("allow all and save a rule please", 130),
        ("a s a r p e a", 200),
    ] {
        let tries = (0..5).any(|_| typed_through(sentence, pause));
        assert!(
            tries,
            "{sentence}: this machine cannot type {pause} ms a key"
        );
    }
}

/// Types through a question and checks that nothing was answered. False when the machine paused so
/// long between two keys that one of them may count.
fn typed_through(sentence: &str, pause: u64) -> bool {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch made"))
            .turn(Turn::text("Well.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    let mut longest = terminal.wait_for("bash").longest_pause(sentence, pause);
    terminal.wait_for("Run this command?");
    let behind = format!("{sentence} and so on");
    longest = longest.max(terminal.longest_pause(&behind, pause));
    if longest > Duration::from_millis(300) {
        return false;
    }
    terminal.keys("\r").question("$ touch made");
    assert!(decisions(&events(&project, ".")).is_empty(), "{sentence}");
    assert!(!project.root().join("made").exists(), "{sentence}");
    terminal.paste("a\na\n");
    terminal.type_slowly("d", 700).wait_for("Well.");
    assert_eq!(decisions(&events(&project, "."))[0].0, ActionDecision::Deny);
    terminal.keys("\x03\x03");
    assert_eq!(terminal.exit_code(), 0);
    true
}

/// The model changes three files, one after the other.
fn three_edits() -> (TestProject, agent_test_support::model_server::ModelServer) {
    let change = |path: &str| {
        let input = json!({"path": path, "old_string": "one", "new_string": "two"});
        Turn::call("edit", input)
    };
    let read = |path: &str| Turn::call("read", json!({"path": path}));
    let (project, server) = project_with(
        Script::new()
            .turn(read("a.txt").and_call("read", json!({"path": "b.txt"})))
            .turn(read(".vscode/settings.json"))
            .turn(change("a.txt"))
            .turn(change("b.txt"))
            .turn(change(".vscode/settings.json"))
            .turn(Turn::text("Changed.")),
    );
    for path in ["a.txt", "b.txt", ".vscode/settings.json"] {
        project.write(path, "one\n");
    }
    (project, server)
}

/// `s` on an edit is a yes to edits: the next one does not ask, a protected file does, and the log
/// says so.
#[test]
fn a_yes_to_edits_holds_for_the_session() {
    let (project, _server) = three_edits();
    let mut terminal = Terminal::start(&project, &[], (100, 30));
    terminal.wait_for(READY).keys("go\r");
    terminal.question("Change a.txt?");
    terminal.wait_for("don't ask again for edits in this project");
    terminal.keys("s");
    terminal.question("Change .vscode/settings.json?").keys("d");
    terminal.wait_for("Changed.").wait_for(READY);
    assert_eq!(project.read("b.txt"), "two\n");
    assert_eq!(project.read(".vscode/settings.json"), "one\n");
    let shown = terminal.everything().join("\n");
    assert!(
        shown.contains("edits in this project no longer ask"),
        "{shown}"
    );
    // The change itself stays on the screen.
    assert_eq!(shown.matches("1 - one").count(), 2, "{shown}");
    leave(&mut terminal);
    let recorded = events(&project, ".")
        .iter()
        .any(|event| match &event.payload {
            Payload::PolicyChanged(policy) => {
                policy.changed.rules_added
                    == ["allow edit(**)", "allow write(**)", "allow apply_patch(**)"]
            }
            _ => false,
        });
    assert!(recorded);
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

/// Shift-Tab changes the mode while a question is open, and the question with it.
#[test]
fn a_mode_chosen_in_a_question_answers_it() {
    let (project, _server) = three_edits();
    let mut terminal = Terminal::start(&project, &[], (100, 30));
    terminal.wait_for(READY).keys("go\r");
    terminal.question("Change a.txt?").keys("\x1b[Z");
    terminal.question("Change .vscode/settings.json?").keys("d");
    terminal.wait_for("Changed.").wait_for("· accept-edits");
    assert_eq!(project.read("a.txt"), "two\n");
    assert_eq!(project.read("b.txt"), "two\n");
    leave(&mut terminal);
    let decided = decisions(&events(&project, "."));
    assert_eq!(decided[0], (ActionDecision::AllowOnce, DecidedBy::User));
    assert_eq!(decided.len(), 2);
}

/// Going round, only the mode where the key rests judges the question: `auto`, on the way, lets nothing run.
#[test]
fn a_mode_that_is_passed_answers_nothing() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch made"))
            .turn(Turn::text("Well.")),
    );
    let mut terminal = Terminal::start(&project, &["--mode", "accept-edits"], (100, 30));
    terminal.wait_for(READY).keys("go\r");
    terminal.question("$ touch made").keys("\x1b[Z\x1b[Z");
    terminal.wait_for("Well.").wait_for("· read-only");
    assert!(!project.root().join("made").exists());
    leave(&mut terminal);
    let events = events(&project, ".");
    let modes = events.iter().filter_map(|event| match &event.payload {
        Payload::PolicyChanged(policy) => policy.changed.mode,
        _ => None,
    });
    assert_eq!(modes.collect::<Vec<_>>(), [Mode::ReadOnly]);
    assert_eq!(
        decisions(&events),
        [(ActionDecision::Deny, DecidedBy::User)]
    );
}

/// A rule is changed in the question, shown with what it would do, and holds from then on.
#[test]
fn a_rule_is_written_in_the_question() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("./tool.sh one fast"))
            .turn(bash("./tool.sh two"))
            .turn(Turn::text("Well.")),
    );
    project.write("tool.sh", "#!/bin/sh\necho \"$1\" >> made\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(project.root().join("tool.sh"), mode).unwrap();
    with_setting(
        &project,
        "[permissions]\ndeny = [\"bash(./tool.sh three *)\"]",
    );
    let mut terminal = Terminal::start(&project, &[], (100, 40));
    terminal.wait_for(READY).keys("go\r");
    terminal.question("$ ./tool.sh one fast").keys("r");
    terminal.wait_for("save the rule bash(./tool.sh one fast) where?");
    terminal
        .wait_for_key("wider: bash(./tool.sh one fast *)", "[e]")
        .keys("e");
    // Too broad: it is said while it is written, and cannot be saved.
    terminal
        .wait_for("Write the rule")
        .keys("\x01\x0bbash(./tool.sh * x)");
    terminal.wait_for("may stand for what follows the first two words");
    terminal.keys("\x01\x0bbash(./tool.sh *)");
    terminal.wait_for("allows: ./tool.sh --verbose");
    terminal.wait_for("still denied: ./tool.sh three (by your rule deny bash(./tool.sh three *))");
    terminal.enter_until("save the rule bash(./tool.sh *) where?");
    terminal
        .wait_for_key("save the rule bash(./tool.sh *)", "[p]")
        .keys("p");
    terminal.wait_for("Well.").wait_for(READY);
    assert_eq!(project.read("made"), "one\ntwo\n");
    let kept = project.read(".agent/config.local.toml");
    assert!(kept.contains("\"bash(./tool.sh *)\""), "{kept}");
    leave(&mut terminal);
    agent(&project, &["audit", "last"]).finish().expect_code(0);
    let told = agent(&project, &["replay", "last", "--format", "text"]);
    let told = told.finish().expect_code(0).stdout();
    assert!(told.contains("bash(./tool.sh *)"), "{told}");
}

/// A patch is an edit: `s` says so, and the next change does not ask.
#[test]
fn a_yes_to_a_patch_is_one_to_edits() {
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n";
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::call("read", json!({"path": "a.txt"})))
            .turn(Turn::call("apply_patch", json!({"input": patch})))
            .turn(Turn::call(
                "write",
                json!({"path": "b.txt", "content": "two\n"}),
            ))
            .turn(Turn::text("Changed.")),
    );
    with_setting(&project, "[tools]\napply_patch = \"always\"");
    project.write("a.txt", "one\n");
    let mut terminal = Terminal::start(&project, &[], (100, 30));
    terminal.wait_for(READY).keys("go\r");
    terminal
        .question("don't ask again for edits in this project")
        .keys("s");
    terminal.wait_for("Changed.").wait_for(READY);
    assert_eq!(project.read("a.txt"), "two\n");
    assert_eq!(project.read("b.txt"), "two\n");
    leave(&mut terminal);
    assert_eq!(decisions(&events(&project, ".")).len(), 1);
}

/// The same for a question that an earlier run left open: a mode that allows it answers it, one that
/// still asks leaves it to be answered.
#[test]
fn a_mode_chosen_in_a_question_of_an_earlier_run_answers_it() {
    let change = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::call("read", json!({"path": "a.txt"})))
            .turn(Turn::call("edit", change))
            .turn(Turn::text("Changed."))
            .turn(bash("touch made"))
            .turn(Turn::text("Well.")),
    );
    project.write("a.txt", "one\n");
    let left_open = agent(&project, &["run", "--on-ask", "wait", "go"]);
    left_open.finish().expect_code(3);
    let mut terminal = Terminal::start(&project, &["resume", "last"], (100, 30));
    terminal.question("Change a.txt?").keys("\x1b[Z");
    terminal.wait_for("Changed.").wait_for("· accept-edits");
    assert_eq!(project.read("a.txt"), "two\n");
    leave(&mut terminal);
    let again = ["run", "--session", "last", "--on-ask", "wait", "go"];
    agent(&project, &again).finish().expect_code(3);
    let mut terminal = Terminal::start(&project, &["resume", "last"], (100, 30));
    terminal.question("$ touch made").keys("\x1b[Z");
    terminal.wait_for("· accept-edits");
    terminal.question("$ touch made").keys("a");
    terminal.wait_for("Well.");
    assert!(project.root().join("made").exists());
    leave(&mut terminal);
    let decided = decisions(&events(&project, "."));
    assert_eq!(decided, [(ActionDecision::AllowOnce, DecidedBy::User); 2]);
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

/// A command that needs the network can be given it from the question, also the user's own; one
/// that will have it says so.
#[test]
fn a_question_can_give_the_network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            use std::io::{Read as _, Write as _};
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nreached\n");
        }
    });
    let command = format!("curl -s http://{place}/ > got.txt");
    let asks =
        json!({"command": "curl -V > version.txt", "description": "a step", "network": true});
    let (project, _server) = project_with(
        Script::new()
            .turn(bash(&command))
            .turn(Turn::call("bash", asks))
            .turn(Turn::text("Well.")),
    );
    let mut terminal = Terminal::start(&project, &[], (100, 30));
    terminal.wait_for(READY).keys("go\r");
    terminal
        .question("[w] allow once, with network access")
        .keys("w");
    terminal.question("will have network access").keys("d");
    terminal.wait_for("Well.").wait_for(READY);
    assert_eq!(project.read("got.txt"), "reached\n");
    let shown = terminal.everything().join("\n");
    assert!(
        shown.contains("allowed by you once, with network"),
        "{shown}"
    );
    terminal.keys(&format!("!curl -s http://{place}/ > own.txt\r"));
    terminal.question("it needs the network").keys("w");
    terminal.wait_for("exit 0").wait_for(READY);
    assert_eq!(project.read("own.txt"), "reached\n");
    // Of a program that nobody knows to connect, it shows when it fails, with the way.
    let script =
        format!("curl -s http://{place}/ > third.txt || curl -sS http://example.invalid/\n");
    project.write("get.sh", script);
    terminal.keys("!sh get.sh\r");
    terminal.wait_for("type !network first").wait_for(READY);
    terminal.keys("!network sh get.sh\r");
    terminal.question("will have network access").keys("a");
    terminal.wait_for("allowed by you once").wait_for(READY);
    assert_eq!(project.read("third.txt"), "reached\n");
    leave(&mut terminal);
}
