//! The real loop on a terminal that is not there: a session as a user would live it.

use std::time::Duration;

use agent_protocol::Code;
use agent_protocol::command::{ControlCommand, Shell};
use agent_protocol::payload::permission::{ActionDecision, Effect, GrantScope};
use agent_tui::{Exit, Input, Output, RunError, Settings, run_on};
use crossterm::event::{Event, KeyCode};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::console::{Glass, console};
use crate::frames::settings;
use crate::sample::{Script, ask_command};

struct Session {
    glass: Glass,
    inputs: UnboundedSender<Input>,
    outputs: UnboundedReceiver<Output>,
    script: Script,
    sent: usize,
    running: JoinHandle<Result<Exit, RunError>>,
    shutdown: CancellationToken,
}

impl Session {
    fn open(columns: u16, rows: u16) -> Self {
        Self::open_with(columns, rows, settings())
    }

    fn open_with(columns: u16, rows: u16, settings: Settings) -> Self {
        let (console, glass) = console(columns, rows);
        let (inputs, screen_inputs) = unbounded_channel();
        let (screen_outputs, outputs) = unbounded_channel();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(run_on(
            console,
            settings,
            screen_inputs,
            screen_outputs,
            shutdown.clone(),
        ));
        Self {
            glass,
            inputs,
            outputs,
            script: Script::default(),
            sent: 0,
            running,
            shutdown,
        }
    }

    fn send(&mut self) {
        for event in &self.script.events[self.sent..] {
            self.inputs.send(Input::Event(event.clone())).unwrap();
        }
        self.sent = self.script.events.len();
    }

    /// The next command to the engine, whatever the host is asked meanwhile.
    async fn command(&mut self) -> ControlCommand {
        loop {
            let output = tokio::time::timeout(Duration::from_secs(10), self.outputs.recv()).await;
            if let Output::Command(command) = output
                .expect("a command in time")
                .expect("the screen is there")
            {
                return command;
            }
        }
    }

    fn asks(&mut self, command: &str) {
        let call = self.script.intent("bash", json!({"command": command}));
        self.script.evaluated(&call, Effect::Ask, None);
        self.script.asks(&call, ask_command(command));
        self.send();
    }

    async fn end(self) -> (Exit, Glass) {
        let exit = tokio::time::timeout(Duration::from_secs(10), self.running).await;
        (exit.expect("ends in time").unwrap().unwrap(), self.glass)
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_sent_and_answered() {
    let mut session = Session::open(80, 24);
    session.glass.wait_for("Ask for something").await;
    session.glass.type_text("fix it");
    session.glass.key(KeyCode::Enter);
    let ControlCommand::SubmitTurn(turn) = session.command().await else {
        panic!("a turn was expected")
    };
    assert_eq!(turn.text, "fix it");
    session
        .script
        .session()
        .user("fix it")
        .says("Done, **all** of it.");
    session.send();
    session.glass.wait_for("• Done, all of it.").await;
    session.glass.control('c');
    session.glass.control('c');
    let (exit, glass) = session.end().await;
    assert_eq!(exit, Exit::Quit);
    assert!(!glass.is_entered(), "the terminal was given back");
    assert!(
        glass.screen().contains("• Done, all of it."),
        "the past stays"
    );
    assert!(
        !glass.screen().contains("Ask for something"),
        "the live part is gone"
    );
    assert!(!glass.with_screen(vt100::Screen::hide_cursor));
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_by_its_key_and_not_by_type_ahead() {
    let mut session = Session::open(80, 24);
    session.script.session().user("go");
    session.send();
    session.asks("cargo test");
    // Typed before the question could be read: this belongs into the composer.
    session.glass.type_text("aaa");
    session.glass.wait_for("allow once").await;
    session.glass.key(KeyCode::Char('a'));
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(
        !std::iter::from_fn(|| session.outputs.try_recv().ok())
            .any(|output| matches!(output, Output::Command(_))),
        "type-ahead answered the question"
    );
    session.glass.key(KeyCode::Char('a'));
    let ControlCommand::RespondAction(response) = session.command().await else {
        panic!("an answer was expected")
    };
    assert_eq!(response.decision, ActionDecision::AllowOnce);
    assert_eq!(response.scope, GrantScope::Once);
    session.shutdown.cancel();
    assert_eq!(session.end().await.0, Exit::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_command_is_edited_before_it_is_allowed() {
    let mut session = Session::open(80, 24);
    session.script.session().user("go");
    session.asks("cargo test");
    session.glass.wait_for("allow once").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    session.glass.key(KeyCode::Char('e'));
    session.glass.wait_for("Edit the command").await;
    session.glass.type_text(" --lib");
    session.glass.wait_for("cargo test --lib").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    session.glass.key(KeyCode::Enter);
    let ControlCommand::RespondAction(response) = session.command().await else {
        panic!("an answer was expected")
    };
    let edited = response.answer.unwrap().edited_input.unwrap();
    assert_eq!(
        edited,
        json!({"command": "cargo test --lib", "description": "run the tests"})
    );
    session.shutdown.cancel();
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn escape_interrupts_a_running_command() {
    let mut session = Session::open(60, 20);
    session.script.session().user("go");
    let call = session
        .script
        .intent("bash", json!({"command": "sleep 1000"}));
    session
        .script
        .evaluated(&call, Effect::Allow, None)
        .started(&call, "bash", true);
    session.send();
    session.glass.wait_for("bash is running").await;
    session.glass.key(KeyCode::Esc);
    let ControlCommand::InterruptTurn(interrupt) = session.command().await else {
        panic!("an interrupt was expected")
    };
    assert_eq!(interrupt.turn_id.unwrap().as_str(), "turn_1");
    session.glass.wait_for("interrupting").await;
    session
        .script
        .observed(&call, "bash", Code::Cancelled, "stopped by the user", "");
    session.send();
    session.glass.wait_for("  interrupted").await;
    session.shutdown.cancel();
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn resizing_while_text_streams_in_loses_nothing() {
    let mut session = Session::open(80, 24);
    session.script.session().user("go");
    let id = session.script.request();
    let mut index = 0;
    for number in 0..120 {
        let text = format!("Paragraph {number} with some words in it.\n\n");
        session.script.delta(&id, index, &text);
        index += text.len();
        session.send();
        match number {
            30 => session.glass.resize(50, 20),
            60 => session.glass.resize(100, 30),
            90 => session.glass.resize(70, 12),
            _ => {}
        }
        if number % 10 == 0 {
            session
                .glass
                .wait_for(&format!("Paragraph {number} "))
                .await;
        }
    }
    session.glass.wait_for("Paragraph 119 ").await;
    session.shutdown.cancel();
    let (_, glass) = session.end().await;
    let everything = glass.everything();
    let seen: Vec<&str> = everything
        .lines()
        .filter(|line| line.contains("Paragraph"))
        .collect();
    for number in 0..119 {
        let count = seen
            .iter()
            .filter(|line| line.contains(&format!("Paragraph {number} ")))
            .count();
        assert_eq!(count, 1, "paragraph {number} is there {count} times");
    }
}

#[tokio::test(start_paused = true)]
async fn five_thousand_pasted_lines_are_one_mark_and_are_sent_whole() {
    let mut session = Session::open(80, 24);
    session.glass.wait_for("Ask for something").await;
    let text: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    session.glass.send(Event::Paste(text.clone()));
    session.glass.wait_for("[paste 1: 5000 lines").await;
    session.glass.key(KeyCode::Enter);
    let ControlCommand::SubmitTurn(turn) = session.command().await else {
        panic!("a turn was expected")
    };
    assert_eq!(turn.text, text);
    session.shutdown.cancel();
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_shell_command_is_a_command() {
    let mut session = Session::open(80, 24);
    session.glass.wait_for("Ask for something").await;
    session.glass.type_text("!git status");
    session.glass.key(KeyCode::Enter);
    let shell = ControlCommand::Shell(Shell {
        command: "git status".into(),
        network: false,
    });
    assert_eq!(session.command().await, shell);
    session.shutdown.cancel();
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_happens() {
    let session = Session::open(80, 24);
    session.glass.wait_for("Ask for something").await;
    let before = session.glass.raw().len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(session.glass.raw().len(), before);
    session.shutdown.cancel();
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_past_opens_with_its_end() {
    let mut session = Session::open(80, 24);
    session.script.session();
    for number in 0..2000 {
        session
            .script
            .user(&format!("question {number}"))
            .says(&format!("answer {number}"));
    }
    let events = session.script.events.clone();
    session.inputs.send(Input::History(events)).unwrap();
    session.glass.wait_for("answer 1999").await;
    let everything = session.glass.everything();
    assert!(everything.contains("earlier entries"), "{everything}");
    assert!(
        !everything.contains("answer 100\n"),
        "only the end is printed"
    );
    session.shutdown.cancel();
    session.end().await;
}

/// Of a long session the end is shown at once; when all of it is there, nothing is printed twice and
/// everything can be read.
#[test]
fn a_glimpse_becomes_the_whole_past() {
    use agent_tui::state::State;
    use agent_tui::ui::Ui;
    use agent_tui::{Settings, view};

    let mut script = Script::default();
    script.session();
    for number in 0..40 {
        script.user(&format!("question {number}"));
        script.says(&format!("answer {number}"));
        script.completed(agent_protocol::status::VerificationStatus::Passed);
    }
    let events = script.events.clone();
    let begins = |event: &std::sync::Arc<agent_protocol::Event>| {
        matches!(event.payload, agent_protocol::Payload::TurnSubmitted(_))
    };
    let tail = events.iter().rposition(begins).unwrap();
    let mut ui = Ui::new(Settings::default());
    ui.input(Input::Tail(events[tail..].to_vec()));
    let text = |lines: Vec<ratatui::text::Line<'static>>| -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    };
    let printed = text(view::print_finished(&mut ui, 80, 1000));
    assert!(printed.contains("earlier entries") && printed.contains("answer 39"));
    assert!(!printed.contains("answer 38"));
    script.user("one more");
    ui.input(Input::Event(script.events[events.len()].clone()));
    let mut past = State::default();
    for event in &events {
        past.apply(event);
    }
    ui.input(Input::Past(Box::new(past)));
    for event in &script.events[events.len() + 1..] {
        ui.input(Input::Event(event.clone()));
    }
    let printed = text(view::print_finished(&mut ui, 80, 1000));
    assert!(printed.contains("one more"), "{printed}");
    assert!(!printed.contains("answer"), "{printed}");
    assert!(ui.state.cells.len() > 100);
}

/// A session that was left in another mode goes on in the one that holds now, and the status line
/// says so before anything happens.
#[test]
fn the_mode_on_the_screen_is_the_one_in_force() {
    use agent_protocol::Scope;
    use agent_protocol::payload::conversation::TurnStarted;
    use agent_protocol::status::Mode;
    use agent_tui::ui::Ui;

    let mut script = Script::default();
    script.session().user("go");
    script.push(
        Scope::default(),
        TurnStarted {
            model: "other/one".into(),
            mode: Mode::Full,
            ..TurnStarted::default()
        },
    );
    script.failed(agent_protocol::status::Status::Cancelled, "interrupted");
    let check = |ui: &Ui| {
        let facts = &ui.state.facts;
        assert_eq!(facts.mode, Some(Mode::Ask));
        assert_eq!(facts.model.as_deref(), Some("scripted/demo"));
    };
    let mut ui = Ui::new(settings());
    ui.input(Input::History(script.events.clone()));
    check(&ui);
    let mut ui = Ui::new(settings());
    ui.input(Input::Tail(script.events[2..].to_vec()));
    check(&ui);
    let mut past = agent_tui::state::State::default();
    for event in &script.events {
        past.apply(event);
    }
    ui.input(Input::Past(Box::new(past)));
    check(&ui);
}
