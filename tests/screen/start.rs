//! Before and beside a session: the list of past sessions, the first key, prepared prompts, and a run without
//! a screen on a terminal.

use agent_protocol::Payload;
use agent_protocol::payload::permission::DecidedBy;
use agent_protocol::status::Mode;
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::json;

use super::terminal::Terminal;
use super::{READY, USUAL, bash, leave, opened, project_with};
use crate::agent;

#[test]
fn resume_without_a_name_offers_the_sessions() {
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::text("The parser is fixed."))
            .turn(Turn::text("The lexer is fixed.")),
    );
    for prompt in ["Fix the parser", "Fix the lexer"] {
        agent(&project, &["run", prompt]).finish().expect_code(0);
    }
    let mut terminal = Terminal::start(&project, &["resume"], USUAL);
    terminal
        .wait_for("resume a session")
        .wait_for("1  Fix the lexer")
        .wait_for("2  Fix the parser")
        .wait_for("just now · completed");
    terminal
        .keys("parser")
        .wait_gone("Fix the lexer")
        .keys("\r");
    opened(&mut terminal, 2);
    terminal.wait_for("The parser is fixed.");
    leave(&mut terminal);

    // The one that was written last, which is the parser's again.
    let mut terminal = Terminal::start(&project, &["-c"], USUAL);
    terminal.wait_for("The parser is fixed.");
    leave(&mut terminal);

    let mut terminal = Terminal::start(&project, &["resume"], USUAL);
    terminal.wait_for("resume a session").keys("\x1b");
    assert_eq!(terminal.exit_code(), 0);
    terminal.assert_given_back();
}

/// Where nothing can be drawn over, the list is printed and a name is asked for.
#[test]
fn resume_in_plain_words_prints_the_list() {
    let (project, _server) = project_with(Script::new().turn(Turn::text("Fixed.")));
    agent(&project, &["run", "Fix it"]).finish().expect_code(0);
    let dumb = [("TERM", "dumb")];
    let mut terminal = Terminal::start_with(&project, &["resume"], USUAL, &dumb);
    assert_eq!(terminal.exit_code(), 2);
    terminal.assert_given_back();
    let shown = terminal.screen();
    assert!(
        shown.contains("Fix it") && shown.contains("`agent resume 1`"),
        "{shown}"
    );
}

#[test]
fn a_key_can_be_entered_at_the_first_start() {
    const KEY: &str = "zQ8rNoKnownShape77aaBBccDDee";
    let server = ModelServer::start(Script::new().turn(Turn::text("Hello yourself.")));
    let project = TestProject::new();
    let base = server.base_url(Wire::Chat);
    let variables = [("OPENAI_BASE_URL", base.as_str())];
    let mut terminal = Terminal::start_with(&project, &[], (80, 30), &variables);
    terminal
        .wait_for_key("No model is set up yet", "[k]")
        .keys("k");
    terminal.wait_for("(nothing yet)").paste(KEY);
    terminal.wait_for("28 characters").keys("\r");
    // Nothing in it says whose it is.
    terminal
        .wait_for_key("write its provider before it", "[k]")
        .keys("k");
    terminal
        .wait_for("(nothing yet)")
        .keys("openai ")
        .paste(KEY);
    terminal.wait_for("35 characters").keys("\r");
    terminal.wait_for(READY).keys("hello\r");
    terminal.wait_for("Hello yourself.");
    leave(&mut terminal);
    let raw = terminal.raw();
    assert!(!raw.windows(KEY.len()).any(|piece| piece == KEY.as_bytes()));
    let sent = server.requests().remove(0);
    assert_eq!(
        sent.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
}

#[test]
fn prepared_prompts_are_turns() {
    let (project, server) = project_with(
        Script::new()
            .turn(Turn::text("Nothing to add."))
            .turn(Turn::text("medium a.txt:1 Too short")),
    );
    let git = |arguments: &[&str]| {
        let done = std::process::Command::new("git")
            .args(arguments)
            .current_dir(project.root())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .status();
        assert!(done.unwrap().success());
    };
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("/init\r");
    terminal.wait_for("Nothing to add.");
    terminal.wait_for(READY).keys("/review\r");
    terminal.wait_for("there is no git repository");
    git(&["init", "-q"]);
    project.write("a.txt", "one\n");
    terminal.keys("/review\r").wait_for("Too short");
    terminal
        .keys("/review one two three\r")
        .wait_for("/review takes");
    leave(&mut terminal);
    let asked = server.bodies();
    assert!(asked[0].to_string().contains("Write `AGENTS.md`"));
    let review = asked[1]["messages"].to_string();
    assert!(review.contains("a.txt (new, unknown to git)"), "{review}");
    assert!(
        review.contains("End with the findings, the worst first"),
        "{review}"
    );
}

#[test]
fn a_run_on_a_terminal_streams_its_answer_and_shows_what_goes_on() {
    let answer = "# Done\n\nIt has **bold** words.\n\n- one\n- two \u{1b}[31m\n";
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::error(429, "slow down").header("retry-after", "0"))
            .turn(
                bash("echo building 42; until [ -e go ]; do sleep 0.05; done").and_text("I look."),
            )
            .turn(Turn {
                delta_chars: 7,
                ..Turn::text(answer)
            }),
    );
    let run = ["run", "--mode", "full", "build it"];
    let mut terminal = Terminal::start(&project, &run, USUAL);
    terminal.wait_for("· building 42").wait_for("I look.");
    let shown = terminal.screen();
    assert_eq!(shown.matches("· bash").count(), 1, "{shown}");
    project.write("go", "");
    assert_eq!(terminal.exit_code(), 0);
    terminal.assert_given_back();
    let lines = terminal.everything().join("\n");
    assert!(
        lines.contains("• one") && lines.contains("It has bold words."),
        "{lines}"
    );
    assert_eq!(lines.matches("Done").count(), 1, "{lines}");
    assert!(
        lines.contains("two \\x1b[31m") || !lines.contains("\u{1b}"),
        "{lines}"
    );
    // What is replaced in place is gone, and was there.
    assert!(
        !lines.contains("· building 42") && !lines.contains("(2 of 5)"),
        "{lines}"
    );
    let raw = String::from_utf8_lossy(&terminal.raw()).into_owned();
    assert!(raw.contains("(2 of 5)"), "{raw}");
    assert!(!raw.contains("two \u{1b}[31m"), "{raw:?}");
}

#[test]
fn a_quiet_run_on_a_terminal_says_its_answer_alone() {
    let (project, _server) = project_with(
        Script::new()
            .turn(Turn::call("read", json!({"path": "a.txt"})))
            .turn(Turn::text("Read.")),
    );
    project.write("a.txt", "one\n");
    let mut terminal = Terminal::start(&project, &["run", "-q", "read it"], USUAL);
    assert_eq!(terminal.exit_code(), 0);
    terminal.assert_given_back();
    let lines = terminal.everything();
    let said: Vec<&String> = lines.iter().filter(|line| !line.is_empty()).collect();
    assert_eq!(said, ["Read."]);
}

/// Where the sandbox works fully, mode auto is proposed at the first start in a project, once; the answer is kept for
/// this project and stands in the log.
#[test]
fn auto_is_proposed_once_in_a_project() {
    const TITLE: &str = "Work without questions in this project?";
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("touch made"))
            .turn(Turn::text("Done.")),
    );
    let asked = [("CI", "")];
    // Whoever leaves has said nothing.
    let mut terminal = Terminal::start_with(&project, &[], USUAL, &asked);
    terminal.wait_for_key(TITLE, "[n]").keys("q");
    assert_eq!(terminal.exit_code(), 0);
    let mut terminal = Terminal::start_with(&project, &[], (80, 40), &asked);
    terminal
        .wait_for("has no network")
        .wait_for_key(TITLE, "[y]")
        .keys("y");
    terminal.wait_for(READY).wait_for("· auto").keys("go\r");
    terminal.wait_for("Done.");
    assert!(project.root().join("made").exists(), "nothing is asked");
    leave(&mut terminal);
    let chosen = super::events(&project, ".")
        .iter()
        .any(|event| match &event.payload {
            Payload::PolicyChanged(policy) => {
                policy.changed.mode == Some(Mode::Auto) && policy.by == DecidedBy::User
            }
            _ => false,
        });
    assert!(chosen);
    let mut terminal = Terminal::start_with(&project, &[], USUAL, &asked);
    terminal.wait_for(READY).wait_for("· auto");
    leave(&mut terminal);
    // A settings file goes before it.
    super::with_setting(&project, "[permissions]\nmode = \"ask\"");
    let mut terminal = Terminal::start_with(&project, &[], USUAL, &asked);
    terminal.wait_for(READY).wait_for("· ask");
    leave(&mut terminal);
}

/// No is an answer too.
#[test]
fn a_no_to_auto_is_kept() {
    let (project, _server) = project_with(Script::new());
    let asked = [("CI", "")];
    let mut terminal = Terminal::start_with(&project, &[], USUAL, &asked);
    terminal
        .wait_for_key("Work without questions", "[n]")
        .keys("n");
    terminal.wait_for(READY).wait_for("· ask");
    leave(&mut terminal);
    let mut terminal = Terminal::start_with(&project, &[], USUAL, &asked);
    terminal.wait_for(READY).wait_for("· ask");
    leave(&mut terminal);
    let shown = agent(&project, &["config", "show", "--origin"])
        .finish()
        .expect_code(0);
    assert!(shown.stdout().contains("chosen for this project"));
}
