//! Background commands, the clipboard, and going back to before a message.

use agent_protocol::Payload;
use agent_protocol::payload::process::TerminatedBy;
use agent_test_support::model_server::{Script, Turn};
use serde_json::json;

use super::terminal::Terminal;
use super::{READY, USUAL, events, leave, project_to_change, project_with};
use crate::agent;

fn background(command: &str) -> Turn {
    let input = json!({"command": command, "description": "serve", "background": true});
    Turn::call("bash", input)
}

#[test]
fn background_commands_are_listed_looked_at_and_stopped() {
    let (project, _server) = project_with(
        Script::new()
            .turn(background(
                "echo listening on 8080; echo ready; exec sleep 600",
            ))
            .turn(background("exec sleep 601"))
            .turn(Turn::text("Started.")),
    );
    let mut terminal = Terminal::start(&project, &["--mode", "auto"], USUAL);
    terminal.wait_for(READY).keys("/ps\r");
    terminal.wait_for("no background commands");
    terminal
        .keys("go\r")
        .wait_for("Started.")
        .wait_for("2 in background");
    terminal.keys("/ps\r").wait_for("2 running");
    terminal
        .wait_for("running for")
        .wait_for("ready")
        .keys("\r");
    terminal
        .wait_for("listening on 8080")
        .wait_for("x stops it")
        .keys("x");
    // What is on the screen is looked at again until the end is known.
    terminal.wait_until("its end", |screen| {
        let screen = screen.contents();
        screen.contains("was ended by signal") && screen.contains("listening on 8080")
    });
    terminal.keys("q").wait_for("1 in background");
    leave(&mut terminal);
    // What ended with the session is said when the screen is gone.
    terminal.wait_for("the session is over; stopped 1 background command");
    let events = events(&project, ".");
    let by: Vec<TerminatedBy> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ProcessTerminated(ended) => Some(ended.by),
            _ => None,
        })
        .collect();
    assert_eq!(by, [TerminatedBy::User, TerminatedBy::Runtime]);
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

#[test]
fn an_answer_its_code_and_an_output_are_copied() {
    let answer = "Do this:\n\n```sh\nmake all\n```\n\nThat is it.";
    let (project, _server) = project_with(Script::new().turn(Turn::text(answer)));
    let tmux = [("TMUX", "/tmp/tmux-0/default,1,0")];
    let mut terminal = Terminal::start_with(&project, &[], USUAL, &tmux);
    terminal
        .wait_for(READY)
        .keys("/copy\r")
        .wait_for("no answer yet");
    terminal
        .keys("go\r")
        .wait_for("That is it.")
        .wait_for(READY);
    terminal
        .keys("/copy code\r")
        .wait_for("copied the last code block, 8 characters");
    let encoded = "bWFrZSBhbGw=";
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(raw.contains(&format!("\x1b]52;c;{encoded}\x07")), "plain");
    let passed = format!("\x1bPtmux;\x1b\x1b]52;c;{encoded}\x07\x1b\\");
    assert!(raw.contains(&passed), "through tmux");
    terminal.keys("/copy\r").wait_for("copied the last answer");
    terminal
        .keys("!seq 1 3\r")
        .wait_for("exit 0: 3")
        .wait_for(READY);
    terminal
        .keys("/copy output\r")
        .wait_for("copied the last output");
    leave(&mut terminal);
}

/// Files and conversation go back together; the session before stays, and takes it back.
#[test]
fn files_and_conversation_go_back_together() {
    let (project, server) = project_to_change("one\n");
    let mut terminal = Terminal::start(&project, &["--mode", "accept-edits"], USUAL);
    terminal.wait_for(READY).keys("change it\r");
    terminal.wait_for("Changed.").wait_for(READY);
    assert_eq!(project.read("a.txt"), "two\n");
    let before = super::session_id(&project);
    terminal
        .keys("/rewind\r")
        .wait_for("go back to before a message");
    terminal
        .keys("\r")
        .wait_for("Go back to before this message?");
    terminal.wait_for("restore").wait_for("a.txt");
    // Enter goes nowhere: what is to go back is chosen.
    terminal.keys("\rb").wait_for("Went back: 1 path restored");
    terminal.wait_for("› change it");
    assert_eq!(project.read("a.txt"), "one\n");
    terminal.keys("\x15");
    terminal
        .keys("/resume\r")
        .wait_for("open a session")
        .keys("\r");
    terminal.wait_for("Changed.").wait_for(READY);
    let log = project
        .root()
        .join(".agent/sessions")
        .join(&before)
        .join("events.jsonl");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains("the conversation goes on in a fork from there"),
        "{log}"
    );
    leave(&mut terminal);
    assert_eq!(server.bodies().len(), 3);
    let back: u64 = log
        .lines()
        .position(|line| line.contains("\"history.rollback.started\""))
        .unwrap() as u64
        - 1;
    let undo = ["undo", &before, "--to", &back.to_string(), "--yes"];
    agent(&project, &undo).finish().expect_code(0);
    assert_eq!(project.read("a.txt"), "two\n");
}

#[test]
fn the_conversation_alone_goes_back_when_that_is_chosen() {
    let (project, _server) = project_to_change("one\n");
    let mut terminal = Terminal::start(&project, &["--mode", "accept-edits"], USUAL);
    terminal.wait_for(READY).keys("change it\r");
    terminal.wait_for("Changed.").wait_for(READY);
    terminal
        .keys("/rewind 1\r")
        .wait_for("Go back to before this message?");
    terminal
        .keys("c")
        .wait_for("forked from")
        .wait_for("› change it");
    assert_eq!(project.read("a.txt"), "two\n");
    terminal.keys("\x15");
    leave(&mut terminal);
}

/// The working directory is a fact of the session: commands run there, relative paths begin there, the model is told,
/// and it holds when the session goes on.
#[test]
fn the_working_directory_is_changed_within_the_project() {
    let (project, server) = project_with(
        Script::new()
            .turn(Turn::call("read", json!({"path": "a.txt"})))
            .turn(Turn::call(
                "write",
                json!({"path": "made.txt", "content": "made"}),
            ))
            .turn(super::bash("pwd > where"))
            .turn(Turn::text("Done."))
            .turn(Turn::call("grep", json!({"pattern": "below"})))
            .turn(Turn::text("Found.")),
    );
    project.write("a.txt", "at the root\n");
    project.write("sub/a.txt", "below\n");
    let mut terminal = Terminal::start(&project, &["--mode", "auto"], USUAL);
    terminal
        .wait_for(READY)
        .keys("/cd /tmp\r")
        .wait_for("it is not in the project");
    terminal
        .keys("/cd sub\r")
        .wait_for("working directory: sub");
    terminal
        .keys("!cat a.txt\r")
        .wait_for("exit 0: below")
        .wait_for(READY);
    terminal.keys("go\r").wait_for("Done.").wait_for(READY);
    assert_eq!(project.read("sub/made.txt"), "made");
    let where_it_ran = project.read("sub/where");
    assert!(where_it_ran.trim_end().ends_with("/sub"), "{where_it_ran}");
    leave(&mut terminal);
    let body = server.bodies()[0].to_string();
    assert!(
        body.contains("The user made `sub` the working directory"),
        "{body}"
    );
    let mut terminal = Terminal::start(&project, &["resume", "last"], USUAL);
    terminal
        .wait_for(READY)
        .keys("go\r")
        .wait_for("Found.")
        .wait_for(READY);
    terminal.keys("/cd ..\r").wait_for("working directory: .");
    leave(&mut terminal);
    let inputs: Vec<serde_json::Value> = events(&project, ".")
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ToolIntent(intent) => intent.own_input.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(inputs[1]["path"], "sub/a.txt");
    assert_eq!(inputs[2]["path"], "sub/made.txt");
    assert_eq!(inputs[3]["cwd"], "sub");
    assert_eq!(inputs[4]["path"], "sub");
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

#[test]
fn a_directory_is_added_on_the_screen() {
    let library = agent_test_support::project::TestProject::new();
    library.write("guide.md", "a guide\n");
    let path = library.root().canonicalize().unwrap();
    let guide = path.join("guide.md");
    let (project, server) = project_with(Script::new().turn(Turn::text("Read.")));
    let mut terminal = Terminal::start(&project, &[], (120, 30));
    terminal
        .wait_for(READY)
        .keys("/add-dir /\r")
        .wait_for("cannot add `/`");
    terminal.keys(&format!("/add-dir {}\r", path.display()));
    terminal.wait_for("can be read, for this session");
    // A trailing blank closes the list of files.
    terminal.keys(&format!("see @{} \r", guide.display()));
    terminal.wait_for("Read.").wait_for(READY);
    assert!(server.bodies()[0].to_string().contains("a guide"));
    leave(&mut terminal);
}
