//! Care for the terminal: it is drawn on without a trace of what others wrote, left alone when nothing
//! happens, and given back on every way out.

use agent_protocol::Payload;
use agent_test_support::model_server::{Fault, Script, Turn};
use nix::sys::signal::Signal;

use super::terminal::Terminal;
use super::{READY, USUAL, bash, events, leave, project_with, with_setting};
use crate::agent;

#[test]
fn esc_interrupts_a_command() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("echo begun; sleep 600; echo never"))
            .turn(Turn::text("After.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("│ begun").keys("\x1b");
    terminal.wait_for("⊘ Interrupted.").wait_for(READY);
    leave(&mut terminal);
    let events = events(&project, ".");
    let failed = events.iter().find_map(|event| match &event.payload {
        Payload::TurnFailed(failed) => Some(failed.code.clone()),
        _ => None,
    });
    assert_eq!(failed.as_deref(), Some("interrupted"));
    agent(&project, &["audit", "last"]).finish().expect_code(0);
}

#[test]
fn a_resize_while_output_streams_in_breaks_nothing() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash(
                "n=0; until [ -e stop ]; do n=$((n+1)); echo line $n; sleep 0.01; done",
            ))
            .turn(Turn::text("Well done.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.question("until [ -e stop ]").keys("a");
    terminal.wait_for("│ line");
    // Lower is left out: the emulator drops rows then that a terminal would keep.
    for (columns, rows) in [(120, 24), (100, 30), (84, 40), (120, 40)] {
        let seen = terminal.raw().len();
        terminal.resize(columns, rows);
        // Two counts of lines on a screen of the new size: it was drawn, and goes on.
        let count = |screen: &vt100::Screen| -> Option<u64> {
            let text = screen.contents();
            let (_, after) = text.rsplit_once("│ line ")?;
            after.split_whitespace().next()?.parse().ok()
        };
        terminal.wait_until("a line after the resize", |screen| count(screen).is_some());
        assert!(terminal.raw().len() >= seen);
        let now = std::cell::Cell::new(0);
        terminal.wait_until("two further lines", |screen| {
            let Some(count) = count(screen) else {
                return false;
            };
            if now.get() == 0 {
                now.set(count);
            }
            count > now.get()
        });
    }
    project.write("stop", "");
    terminal.wait_for("Well done.").wait_for(READY);
    let lines = terminal.everything();
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("› go"), 1, "{}", lines.join("\n"));
    assert_eq!(count("• Well done."), 1, "{}", lines.join("\n"));
    assert_eq!(count(READY), 1, "{}", lines.join("\n"));
    leave(&mut terminal);
}

#[test]
fn signals_give_the_terminal_back() {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 143),
        (Signal::SIGINT, 130),
    ] {
        let (project, _server) = project_with(
            Script::new()
                .turn(bash("echo begun; sleep 600"))
                .turn(Turn::text("After.")),
        );
        let mut terminal = Terminal::start(&project, &[], USUAL);
        terminal.wait_for(READY).keys("go\r");
        terminal.wait_for("│ begun");
        assert!(terminal.is_raw());
        terminal.signal(signal);
        assert_eq!(terminal.exit_code(), code, "{signal}");
        terminal.assert_given_back();
        let ended = events(&project, ".")
            .iter()
            .any(|event| matches!(event.payload, Payload::TurnFailed(_)));
        assert!(ended, "the turn's end is in the log");
    }
}

/// Ctrl-Z gives the terminal to the shell and `fg` takes it back, every time.
#[test]
fn a_screen_brought_back_takes_keys_one_by_one() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("Still here.")));
    let mut terminal = Terminal::shell(&project, USUAL);
    let agent = env!("CARGO_BIN_EXE_agent");
    terminal.wait_for("shell>").keys(&format!("'{agent}'\r"));
    terminal.wait_for(READY);
    let taken = |raw: &[u8]| String::from_utf8_lossy(raw).matches("\x1b[?2004h").count();
    for round in 1..=20 {
        let before = taken(&terminal.raw());
        terminal
            .keys("\x1a")
            .wait_until_raw("the shell again", |raw| {
                String::from_utf8_lossy(raw).matches("Stopped").count() >= round
            });
        assert!(!terminal.is_raw(), "{round}: the shell has its terminal");
        terminal.keys("fg\r");
        terminal.wait_until_raw("the screen again", |raw| taken(raw) > before);
        terminal.wait_for(READY);
        assert!(terminal.is_raw(), "{round}: keys are echoed");
    }
    terminal
        .keys("go\r")
        .wait_for("Still here.")
        .wait_for(READY);
    // What is typed before the shell has its terminal back is not the shell's.
    terminal
        .keys("/quit\r")
        .wait_until_raw("the shell at the end", |raw| {
            let text = String::from_utf8_lossy(raw);
            text.rsplit_once("replay with `agent")
                .is_some_and(|(_, behind)| behind.contains("shell>"))
        });
    terminal.keys("exit\r");
    assert_eq!(terminal.exit_code(), 0);
}

/// Hostile output of a command or model for a terminal, all at once.
const ATTACK: &[&str] = &[
    "\x1b]0;owned-title\x07",
    "\x1b]52;c;b3duZWQ=\x07",
    "\x1b]8;;http://owned.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H",
    "\x1b[?1049h",
    "\x1b[31;5mowned-color",
    "\x1bP1$qm\x1b\\",
    "\x1b_owned-apc\x1b\\",
    "\u{9b}31m\u{9d}0;owned-c1\u{9c}",
    "\u{202e}owned-bidi\u{2066}",
    "\rowned-return\x08\x08\x7f",
];

#[test]
fn no_escape_sequence_of_a_tool_or_model_reaches_the_terminal() {
    let attack = ATTACK.concat();
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("cat attack.txt").and_text(&format!("text {attack} text")))
            .turn(Turn::text(&format!("the end {attack}"))),
    );
    project.write("attack.txt", format!("first {attack} last\n"));
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("the end").wait_for(READY);
    terminal.keys("\x14").wait_for("transcript").keys("a");
    terminal.wait_for("b3duZWQ").keys("q");
    let raw = String::from_utf8(terminal.raw()).unwrap();
    for part in [
        "\x1b]0;",
        "\x1b]52",
        "\x1b]8",
        "\x1bP",
        "\x1b_",
        "\u{9b}",
        "\u{9d}",
        "\u{202e}",
        "\u{2066}",
        "\x1b[31;5m",
        "\x08",
        "\x7f",
    ] {
        assert!(!raw.contains(part), "{part:?} got through");
    }
    // The title is ours alone.
    let titles = raw.split("\x1b]2;").skip(1);
    for title in titles {
        assert!(!title.split('\x07').next().unwrap().contains("owned"));
    }
    leave(&mut terminal);
}

/// The server's answer is an error: the screen says it in words and stays.
#[test]
fn a_failing_model_is_told_and_the_screen_stays() {
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::error(401, "this key is not known"))
            .turn(Turn::text("Better now.").fault(Fault::Comments)),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    // What was asked in vain is there to be sent again.
    terminal.wait_until("the message again", |screen| {
        let shown = screen.contents();
        shown.contains("this key is not known") && shown.matches("› go").count() == 2
    });
    terminal
        .keys(" again\r")
        .wait_for("› go again")
        .wait_for("Better now.");
    leave(&mut terminal);
}

/// Esc while the model answers leaves one calm line and no error.
#[test]
fn esc_interrupts_an_answer_without_an_error() {
    let (project, _server) = project_with(
        Script::new().turn(Turn::text("A long answer.").fault(Fault::StallAfterEvents(2))),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("Esc interrupts").keys("\x1b");
    terminal.wait_for("⊘ Interrupted.").wait_for(READY);
    let shown = terminal.everything().join("\n");
    assert!(
        !shown.contains("error") && !shown.contains("cancelled"),
        "{shown}"
    );
    leave(&mut terminal);
}

/// However often the model is asked again, one line says so.
#[test]
fn retries_are_one_line() {
    let limited = || Turn::error(429, "slow down").header("retry-after", "1");
    let (project, _server) = project_with(
        Script::new()
            .turn(limited())
            .turn(limited())
            .turn(Turn::text("At last.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("! warning: Rate limited by local; retrying in ");
    terminal.wait_for("(2 of 5)").wait_for("(3 of 5)");
    terminal.wait_for("At last.").wait_for(READY);
    let shown = terminal.everything().join("\n");
    assert_eq!(shown.matches("Rate limited").count(), 1, "{shown}");
    leave(&mut terminal);
}

/// Nothing moves: no frame, no wake-up, no processor time.
#[test]
fn an_idle_screen_does_not_wake_up() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("Well.")));
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("Well.").wait_for(READY);
    // The screen is at rest when many counts in a row are equal; a screen that wakes up by itself
    // never is. How long a count takes is the machine's affair: each reads every thread's file.
    let begun = std::time::Instant::now();
    let (mut last, mut rest, mut looks) = (0, 0, 0);
    while rest <= 20_000 && begun.elapsed() < std::time::Duration::from_secs(20) {
        let count = wake_ups(terminal.pid());
        rest = if count == last { rest + 1 } else { 0 };
        last = count;
        looks += 1;
    }
    assert!(rest > 2_000, "it woke up after {rest} of {looks} looks");
    leave(&mut terminal);
}

/// Number of voluntary context switches of a process's threads so far.
fn wake_ups(pid: i32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter_map(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
}

/// Somebody who looks elsewhere is told that a question waits and that a turn is over; somebody who
/// looks is not.
#[test]
fn a_terminal_nobody_looks_at_is_rung() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch one"))
            .turn(Turn::text("First over."))
            .turn(bash("touch two"))
            .turn(Turn::text("Second over.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.question("$ touch one").keys("d");
    terminal.wait_for("First over.").wait_for(READY);
    let rung = |terminal: &Terminal| {
        let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
        let parts = raw.split("\x1b]9;").skip(1);
        let texts = parts.map(|part| part.split("\x07\x07").next().unwrap().to_owned());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(rung(&terminal), Vec::<String>::new());
    // The terminal says that it lost the focus.
    terminal.keys("\x1b[Oagain\r");
    terminal.question("$ touch two").keys("d");
    terminal.wait_for("Second over.").wait_for(READY);
    assert_eq!(
        rung(&terminal),
        ["agent asks: bash touch two", "agent: turn finished"]
    );
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(
        raw.contains("\x1b]2;? go · project\x07"),
        "the title says that it asks"
    );
    assert!(
        raw.contains("\x1b]2;… go · project\x07"),
        "the title says that it works"
    );
    leave(&mut terminal);
}

/// For a screen reader: lines of words, no drawing over, a letter and Enter for an answer.
#[test]
fn plain_mode_is_lines_of_words() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch made"))
            .turn(Turn::text("All is well.")),
    );
    let mut terminal = Terminal::start(&project, &["--plain"], (100, 40));
    terminal.wait_for("Type a message").keys("go\r");
    terminal.wait_for("Question: Run this command?");
    terminal.wait_for("Answer with one letter");
    // What comes too early is not taken; it says so, and one answers again.
    while !terminal.screen().contains("All is well.") {
        let again = |raw: &[u8]| {
            String::from_utf8_lossy(raw)
                .matches("please answer again")
                .count()
        };
        let asked = again(&terminal.raw());
        terminal.type_slowly("d", 500).keys("\r");
        terminal.wait_until_raw("an answer that was taken", |raw| {
            again(raw) > asked || String::from_utf8_lossy(raw).contains("All is well.")
        });
    }
    assert!(!project.root().join("made").exists());
    let raw = String::from_utf8(terminal.raw()).unwrap();
    assert!(!raw.contains('\x1b'), "{raw:?}");
    terminal.keys("/quit\r");
    assert_eq!(terminal.exit_code(), 0);
}

/// A terminal that can do nothing but lines gets lines.
#[test]
fn a_dumb_terminal_gets_lines_of_words() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("All is well.")));
    let mut terminal = Terminal::start_with(&project, &[], (100, 40), &[("TERM", "dumb")]);
    terminal.wait_for("Type a message").keys("go\r");
    terminal.wait_for("Agent: All is well.");
    let raw = String::from_utf8(terminal.raw()).unwrap();
    assert!(!raw.contains('\x1b'), "{raw:?}");
    terminal.keys("/quit\r");
    assert_eq!(terminal.exit_code(), 0);
}

/// In plain mode too what runs ends with the program, and the record says so.
#[test]
fn signals_end_plain_mode_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let (project, _server) = project_with(
            Script::new()
                .turn(bash("echo begun; sleep 600"))
                .turn(Turn::text("After.")),
        );
        let mut terminal = Terminal::start(&project, &["--plain"], (100, 40));
        terminal.wait_for("Type a message").keys("go\r");
        terminal.wait_for("running: echo begun");
        terminal.signal(signal);
        assert_eq!(terminal.exit_code(), 143, "{signal}");
        let ended = events(&project, ".")
            .iter()
            .any(|event| matches!(event.payload, Payload::TurnFailed(_)));
        assert!(ended, "the turn's end is in the log");
    }
}

/// A panic of the screen itself, in the middle of a turn, on the usual screen and on the whole one.
#[test]
fn a_panic_gives_the_terminal_back() {
    if !cfg!(debug_assertions) {
        println!("skipped: only a build with debug assertions can be told to panic");
        return;
    }
    for full_screen in [false, true] {
        let (project, _server) = project_with(
            Script::new()
                .turn(bash("echo begun; sleep 600"))
                .turn(Turn::text("After.")),
        );
        with_setting(&project, &format!("[ui]\nfull_screen = {full_screen}"));
        let mut terminal = Terminal::start(&project, &[], USUAL);
        terminal.wait_for(READY).keys("go\r");
        terminal.wait_for("│ begun");
        assert!(terminal.is_raw());
        terminal.wait_until("the right screen", |screen| {
            screen.alternate_screen() == full_screen
        });
        terminal.keys("/panic\r");
        assert_eq!(terminal.exit_code(), 1);
        terminal.assert_given_back();
        let left = terminal.screen();
        assert!(left.contains("the screen was told to panic"), "{left}");
        // What runs ends with it, and the record says so.
        let ended = events(&project, ".")
            .iter()
            .any(|event| matches!(event.payload, Payload::TurnFailed(_)));
        assert!(ended, "the turn's end is in the log");
        agent(&project, &["audit", "last"]).finish().expect_code(0);
    }
}

/// Some containers and recorders give a terminal no size.
#[test]
fn a_terminal_without_a_size_gets_the_usual_one() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("All is well.")));
    let mut terminal = Terminal::start(&project, &[], (0, 0));
    terminal.wait_for(READY).keys("go\r");
    terminal.wait_for("All is well.").wait_for("─ done");
    leave(&mut terminal);
}

/// Whoever leaves is told what the session is called and how to come back to it; of a session in
/// which nothing happened nothing is said.
#[test]
fn leaving_names_the_session() {
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::text("All is well."))
            .turn(Turn::text("All is better.")),
    );
    let told = |terminal: &Terminal| -> Vec<String> {
        let lines = terminal.everything().into_iter();
        let lines = lines.map(|line| line.trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    let mut terminal = Terminal::start(&project, &[], USUAL);
    leave(&mut terminal);
    assert!(!told(&terminal).join("\n").contains("agent resume"));
    for (answer, keys) in [("All is well.", "/quit\r"), ("All is better.", "\x03\x03")] {
        let mut terminal = Terminal::start(&project, &[], USUAL);
        terminal.wait_for(READY).keys("go\r");
        terminal.wait_for(answer).wait_for("─ done").wait_for(READY);
        terminal.keys(keys);
        assert_eq!(terminal.exit_code(), 0);
        terminal.assert_given_back();
        let id = events(&project, ".")[0].session_id.to_string();
        let told = told(&terminal);
        let how = "resume with `agent resume last`, replay with `agent replay last`";
        assert_eq!(
            told[told.len() - 2..],
            [format!("session {id}"), how.to_owned()],
            "{told:#?}"
        );
    }
}
