//! What the terminal is told beside the picture, and what somebody has set about the screen: status,
//! title, keys, the status line, colours.

use std::time::Duration;

use agent_test_support::model_server::{Fault, Script, Turn};
use nix::sys::signal::Signal;

use super::terminal::Terminal;
use super::{READY, USUAL, bash, leave, opened, project_to_change, project_with, with_setting};

/// The reports of the program status so far, without what is in front of and behind them.
fn statuses(terminal: &Terminal) -> Vec<String> {
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    let parts = raw.split("\x1b]7501;").skip(1);
    let bodies = parts.map(|part| part.split("\x1b\\").next().unwrap().to_owned());
    bodies.collect()
}

/// Waits until this many reports were made, and gives the last one.
#[track_caller]
fn status(terminal: &mut Terminal, count: usize) -> String {
    terminal.wait_until_raw(&format!("{count} reports"), |raw| {
        String::from_utf8_lossy(raw).matches("\x1b]7501;").count() >= count
    });
    statuses(terminal)[count - 1].clone()
}

/// Each change is told once, with exactly these bytes, and nothing is left behind at the end.
#[test]
fn the_terminal_knows_what_the_program_is_doing() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch one"))
            .turn(Turn::text("Well."))
            .turn(Turn::error(401, "this key is not known")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY);
    assert_eq!(status(&mut terminal, 1), "state=idle:app=agent");
    terminal.keys("go\r");
    // The title is `go`, the message `bash touch one`.
    terminal.question("$ touch one");
    let asks = "state=blocked:kind=permission:app=agent:title=Z28=:msg=YmFzaCB0b3VjaCBvbmU=";
    terminal.wait_until_raw("that it asks", |raw| {
        String::from_utf8_lossy(raw).contains(&format!("\x1b]7501;{asks}\x1b\\"))
    });
    terminal.keys("d");
    terminal.wait_for("Well.").wait_for(READY);
    terminal.wait_until_raw("that it is done", |raw| {
        String::from_utf8_lossy(raw).contains("\x1b]7501;state=done:app=agent:title=Z28=\x1b\\")
    });
    // Whoever presses a key has seen it.
    terminal.keys("x");
    terminal.wait_for("› x");
    terminal.keys("\x15").wait_for(READY);
    let so_far = statuses(&terminal);
    assert_eq!(so_far.last().unwrap(), "state=idle:app=agent:title=Z28=");
    let mut each_once = so_far.clone();
    each_once.dedup();
    assert_eq!(so_far, each_once);
    assert!(so_far.contains(&"state=working:app=agent:title=Z28=".to_owned()));
    terminal.keys("again\r").wait_for("this key is not known");
    terminal.wait_until_raw("that it failed", |raw| {
        String::from_utf8_lossy(raw).contains("\x1b]7501;state=error:app=agent:title=Z28=\x1b\\")
    });
    // The message came back into the composer.
    terminal.keys("\x15").wait_for(READY);
    leave(&mut terminal);
    assert_eq!(statuses(&terminal).last().unwrap(), "state=clear:app=agent");
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    // The title before is put back.
    assert!(raw.contains("\x1b[22;2t") && raw.rfind("\x1b[23;2t") > raw.rfind("\x1b]2;"));
}

#[test]
fn who_suspends_the_program_takes_its_status_away() {
    let (project, _server) = project_with(Script::new());
    let mut terminal = Terminal::shell(&project, USUAL);
    let agent = env!("CARGO_BIN_EXE_agent");
    terminal.wait_for("shell>").keys(&format!("{agent}\r"));
    terminal.wait_for(READY).keys("\x1a");
    terminal.wait_for("Stopped");
    assert_eq!(
        statuses(&terminal),
        ["state=idle:app=agent", "state=clear:app=agent"]
    );
    terminal.keys("fg\r");
    opened(&mut terminal, 2);
    assert_eq!(status(&mut terminal, 3), "state=idle:app=agent");
    terminal.keys("/quit\r").wait_until_raw("the end", |raw| {
        String::from_utf8_lossy(raw).matches("state=clear").count() == 2
    });
    terminal.keys("exit\r");
    terminal.signal(Signal::SIGHUP);
}

#[test]
fn who_wants_no_reports_gets_none() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("Well.")));
    with_setting(&project, "[ui]\ntab_title = false\nprogram_status = false");
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("Well.").wait_for(READY);
    leave(&mut terminal);
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(!raw.contains("\x1b]"), "{raw:?}");
    // A terminal that can do nothing is told nothing.
    let (project, _server) = project_with(Script::new().turn(Turn::text("Well.")));
    let mut terminal = Terminal::start_with(&project, &[], USUAL, &[("TERM", "dumb")]);
    terminal.wait_for("Type a message").keys("go\r");
    terminal.wait_for("Well.").keys("/quit\r");
    assert_eq!(terminal.exit_code(), 0);
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(!raw.contains("\x1b"), "{raw:?}");
}

/// Keys that were chosen do what they say wherever they are shown, and the usual ones nothing.
#[test]
fn keys_can_be_chosen() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch one"))
            .turn(Turn::text("Well.")),
    );
    with_setting(
        &project,
        "[keys]\nallow = \"y\"\nhelp = \"f1\"\ntranscript = [\"f2\", \"ctrl-o\"]\nsteer = \"ctrl-t\"",
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for("F1 for help").keys("\x1bOP");
    terminal
        .wait_for("F2, Ctrl-O, PgUp")
        .wait_for("Ctrl-T")
        .keys("q");
    // What lost its meaning is a character again.
    terminal.wait_for("F1 for help").keys("?");
    terminal.wait_for("› ?").keys("\x15");
    terminal.wait_for("F1 for help").keys("go\r");
    terminal.question("[y] allow once");
    terminal.keys("a");
    terminal.keys("y");
    terminal.wait_for("Typing goes to your message");
    terminal.wait_gone("Typing goes to your message");
    terminal.question("[y] allow once").keys("y");
    terminal.wait_for("Well.");
    assert!(project.root().join("one").exists());
    terminal.wait_for("› ay").keys("\x15");
    terminal.wait_for("F1 for help").keys("\x0f");
    terminal.wait_for("transcript ·").keys("\x0f");
    terminal.wait_for("F1 for help").keys("/quit\r");
    assert_eq!(terminal.exit_code(), 0);
}

#[test]
fn the_status_line_has_what_was_chosen() {
    let (project, _server) = project_with(Script::new());
    with_setting(
        &project,
        "[ui]\nstatus = [\"project\", \"mode\", \"model\", \"sandbox\"]",
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for("project · ask · local/test-model · sandbox full");
    // What does not fit is left out from the right.
    terminal.resize(30, 24);
    terminal.wait_until("fewer parts", |screen| {
        screen.contents().trim_end().ends_with("\nproject · ask")
            || screen.contents().trim_end().ends_with("local/test-model")
    });
    leave(&mut terminal);
}

/// Colours are the terminal's own unless somebody asks for others; the list says which there are.
#[test]
fn the_palette_is_the_terminals_own() {
    let (project, _server) = project_to_change("one\n");
    let mut terminal = Terminal::start_with(
        &project,
        &["--mode", "accept-edits"],
        (80, 40),
        &[("COLORTERM", "truecolor")],
    );
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("Changed.").wait_for(READY);
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(raw.contains("\x1b[0;32m") && raw.contains("\x1b[0;31m"));
    assert!(!raw.contains("8;2;") && !raw.contains("8;5;"), "{raw:?}");
    terminal.keys("/theme\r");
    terminal
        .wait_for("the terminal's own 16 colours")
        .keys("dark\r");
    terminal.wait_for("exact colours for a dark background");
    let seen = terminal.raw().len();
    terminal.keys("\x14").wait_for("transcript ·").keys("a");
    terminal.wait_for("@@ -1 +1 @@");
    let raw = String::from_utf8_lossy(&terminal.raw()[seen..]).into_owned();
    // Lines that come and lines that go have a background to their end.
    for background in [";48;2;18;50;28m", ";48;2;66;24;28m"] {
        assert!(raw.contains(background), "{background}: {raw:?}");
    }
    terminal.keys("q").wait_for(READY);
    leave(&mut terminal);
}

/// A new session says that it is one, and how to go back.
#[test]
fn clear_says_that_a_new_session_begins() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("Well.")));
    let mut terminal = Terminal::start(&project, &[], (120, 24));
    terminal.wait_for(READY).keys("/clear\r");
    opened(&mut terminal, 2);
    terminal.wait_for("· A new session begins.");
    assert!(!terminal.screen().contains("agent resume"));
    terminal.keys("go\r").wait_for("Well.").wait_for(READY);
    terminal.keys("/clear\r");
    opened(&mut terminal, 3);
    terminal.wait_for("Resume the one before with /resume or `agent resume ses_");
    leave(&mut terminal);
}

/// While an answer comes in, what of it has left the screen is in the scrollback.
#[test]
fn a_long_list_can_be_read_from_its_beginning_while_it_comes() {
    let list: String = (0..200).map(|n| format!("- item {n}\n")).collect();
    // It takes a while, so that what came is recorded, and is not over.
    let turn = Turn::text(&list)
        .in_deltas_of(20)
        .fault(Fault::Drip(2048, Duration::from_millis(80)))
        .fault(Fault::StallAfterEvents(100));
    let (project, _server) = project_with(Script::new().turn(turn));
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    // What is recorded is above the screen, though the list goes on.
    terminal.wait_until("what is above", |screen| screen.scrollback_len() > 40);
    let everything = terminal.everything().join("\n");
    for item in 0..40 {
        let line = format!("• item {item}\n");
        assert_eq!(everything.matches(&line).count(), 1, "{line}: {everything}");
    }
    terminal
        .keys("\x1b")
        .wait_for("Interrupted.")
        .wait_for(READY);
    leave(&mut terminal);
}
