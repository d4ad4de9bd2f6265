//! The slash commands, and what comes before the first message.

use agent_test_support::model_server::{Script, Turn};
use agent_test_support::project::TestProject;

use super::terminal::Terminal;
use super::{READY, USUAL, bash, leave, opened, project_to_change, project_with, session_id};
use crate::agent;

#[test]
fn without_a_model_the_demo_is_one_key_away() {
    let project = TestProject::new();
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal
        .wait_for("No model is set up yet")
        .wait_for("OPENAI_API_KEY");
    terminal.wait_for_key("No model is set up yet", "[Enter]");
    let seen = terminal.raw().len();
    terminal
        .keys("\r")
        .wait_until_raw("it looked again", |raw| {
            String::from_utf8_lossy(&raw[seen..]).contains("No model is set up yet")
        });
    terminal.wait_for_key("the demo", "[d]").keys("d");
    terminal.question("$ sh test.sh").keys("q");
    leave(&mut terminal);
}

#[test]
fn a_projects_rules_hold_once_they_are_trusted() {
    for trusts in [true, false] {
        let (project, _server) = project_with(
            Script::new()
                .turn(bash("touch made"))
                .turn(Turn::text("Well.")),
        );
        project.write(
            ".agent/config.toml",
            "[permissions]\nallow = [\"bash(touch *)\"]\n",
        );
        let mut terminal = Terminal::start(&project, &[], USUAL);
        terminal.wait_for_key("Trust this project's configuration?", "[t]");
        terminal.wait_for("bash(touch *)");
        terminal.keys(if trusts { "t" } else { "i" });
        terminal.wait_for(READY).keys("go\r");
        if !trusts {
            terminal.question("$ touch made").keys("d");
        }
        terminal.wait_for("Well.");
        assert_eq!(project.root().join("made").exists(), trusts);
        leave(&mut terminal);
        if trusts {
            let mut again = Terminal::start(&project, &[], USUAL);
            leave(&mut again);
        }
    }
}

/// Whoever types on while the screen opens has not trusted anything by a word with a `t` in it.
#[test]
fn type_ahead_trusts_nothing() {
    let (project, _server) = project_with(Script::new());
    project.write(
        ".agent/config.toml",
        "[permissions]\nallow = [\"bash(touch *)\"]\n",
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    // Into the terminal before the program reads from it.
    terminal.keys("tell me about it");
    terminal.wait_for_key("Trust this project's configuration?", "[t]");
    terminal.keys("q");
    assert_eq!(terminal.exit_code(), 0);
    terminal.assert_given_back();
    let mut again = Terminal::start(&project, &[], USUAL);
    again.wait_for_key("for now it can only restrict", "[q]");
    again.keys("q");
    assert_eq!(again.exit_code(), 0);
}

/// Of a file that was trusted and has changed, the change is shown, and not what is known already.
#[test]
fn only_what_changed_since_it_was_trusted_is_shown() {
    let (project, _server) = project_with(Script::new());
    let rules = |last: &str| {
        let many: String = (1..=20)
            .map(|number| format!("    \"bash(known-{number} *)\",\n"))
            .collect();
        format!("[permissions]\nallow = [\n{many}    \"bash({last} *)\",\n]\n")
    };
    project.write(".agent/config.toml", rules("touch"));
    let mut terminal = Terminal::start(&project, &[], (100, 40));
    terminal.wait_for("You have not trusted it yet");
    terminal.wait_for("known-1 ").wait_for("known-20 ");
    terminal.wait_for_key("[t]", "[t]").keys("t");
    leave(&mut terminal);

    project.write(".agent/config.toml", rules("curl"));
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for("has changed since you trusted it");
    terminal.wait_for("bash(touch *)").wait_for("bash(curl *)");
    let shown = terminal.screen();
    assert!(!shown.contains("known-1 "), "{shown}");
    terminal.wait_for_key("[i]", "[i]").keys("i");
    leave(&mut terminal);
}

/// The forms of `/export` are those of `agent export` and `agent replay`, written where git does not
/// look.
#[test]
fn a_session_is_exported_in_every_form() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("The answer.")));
    let mut terminal = Terminal::start(&project, &[], (100, 30));
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("The answer.").wait_for(READY);
    // The list is the way for those who do not know the names.
    terminal
        .keys("/export\r")
        .wait_for("the replay as one page");
    terminal.keys("review\r");
    let session = session_id(&project);
    let exports = project.root().join(".agent/exports");
    let written = |form: &str| exports.join(format!("{session}.{form}"));
    terminal.wait_for(".review.md");
    for (form, ending) in [
        ("jsonl", "jsonl"),
        ("portable", "portable.jsonl"),
        ("page", "html"),
        ("evidence", "evidence.tar.zst"),
    ] {
        terminal.wait_for(READY).keys(&format!("/export {form}\r"));
        terminal.wait_for(&format!(".agent/exports/{session}.{ending}"));
    }
    terminal.wait_for(READY).keys("/export pdf\r");
    terminal.wait_for("/export takes one of: jsonl, portable, html, review, evidence");
    leave(&mut terminal);
    let text = |form: &str| std::fs::read_to_string(written(form)).unwrap();
    assert!(text("jsonl").lines().all(|line| line.starts_with('{')));
    assert!(text("portable.jsonl").contains("\"sessionId\""));
    assert!(text("html").starts_with("<!doctype html>"));
    assert!(text("review.md").contains("Calls and their references"));
    // The first bytes of every Zstandard file.
    let pack = std::fs::read(written("evidence.tar.zst")).unwrap();
    assert_eq!(pack[..4], [0x28, 0xb5, 0x2f, 0xfd]);
}

#[test]
fn commands_lead_where_they_say() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("The first answer.")));
    project.write("main.txt", "the preview of main\n");
    let mut terminal = Terminal::start(&project, &[], (100, 40));
    terminal.wait_for(READY).keys("find me again\r");
    terminal.wait_for("The first answer.").wait_for(READY);
    for (command, shown) in [
        ("/help", "keys and commands"),
        ("/permissions", "permission rules in force"),
        ("/sandbox", "landlock"),
        ("/context", "context"),
        ("/cost", "tokens"),
        ("/tools", "read_artifact"),
        ("/status", "local/test-model"),
    ] {
        terminal.keys(&format!("{command}\r"));
        terminal.wait_until(shown, |screen| {
            screen.alternate_screen()
                && screen
                    .contents()
                    .to_lowercase()
                    .contains(&shown.to_lowercase())
        });
        terminal.keys("q").wait_for(READY);
    }
    terminal.keys("/mode read-only\r").wait_for("· read-only");
    terminal.keys("/export jsonl\r").wait_for("written to");
    terminal.keys("/compact\r").wait_for("nothing to compact");
    terminal.keys("/model nowhere/none\r").wait_for("nowhere");
    terminal.keys("/replay\r").wait_for("replay, nothing runs");
    // It begins at the beginning, and plays to the end and from there again.
    terminal
        .wait_for("› find me again")
        .wait_gone("The first answer.");
    terminal.keys("++++++ ").wait_for("(100%)");
    terminal
        .wait_for("⏸ event")
        .keys("\x1b[C")
        .wait_for("This is the end");
    terminal
        .keys(" ")
        .wait_for("▶")
        .wait_for("(100%)")
        .keys("q");
    opened(&mut terminal, 3);
    // The mode is still the one that was chosen.
    terminal.wait_for("· read-only").keys("/clear\r");
    opened(&mut terminal, 4);
    terminal.wait_for("· ask").keys("/resume\r");
    terminal
        .wait_for("open a session")
        .wait_for("events")
        .keys("\r");
    opened(&mut terminal, 5);
    let lines = terminal.everything();
    let answers = lines
        .iter()
        .filter(|line| line.contains("The first answer."))
        .count();
    assert!(answers >= 2, "{}", lines.join("\n"));
    terminal
        .keys("look at @main")
        .wait_for("the preview of main");
    terminal.keys("\t").wait_for("@main.txt").keys("\x03");
    terminal
        .wait_for(READY)
        .keys("\x12find")
        .wait_for("history search");
    terminal.wait_for("history search: find").keys("\x1b");
    terminal.wait_gone("history search");
    leave(&mut terminal);
}

#[test]
fn undo_and_diff_work_on_the_sessions_changes() {
    let (project, _server) = project_to_change("one\n");
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.question("a.txt").keys("a");
    terminal.wait_for("Changed.").wait_for(READY);
    terminal
        .keys("/diff\r")
        .wait_for("all changes of this session");
    terminal.wait_until("the document", |screen| {
        screen.alternate_screen() && screen.contents().contains("two")
    });
    terminal.keys("q");
    terminal.wait_for(READY).keys("/undo\r");
    terminal.wait_for("restored: a.txt");
    assert_eq!(project.read("a.txt"), "one\n");
    leave(&mut terminal);
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}
