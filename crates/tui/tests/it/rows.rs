//! Calls that only look, several in a row: one line live, in the scrollback, resumed and replayed.

use agent_protocol::Code;
use agent_protocol::payload::permission::{ActionClass, Effect};
use agent_protocol::status::VerificationStatus;
use agent_tui::replay::Player;
use agent_tui::theme::Theme;
use agent_tui::ui::Ui;
use agent_tui::{Input, view};
use serde_json::{Value, json};

use crate::frames::{press, show, ui_of, ui_with};
use crate::sample::Script;

fn begun() -> Script {
    let mut script = Script::default();
    script.session().user("go");
    script
}

/// A call that the gate took for `class`, with how it ended.
fn called(script: &mut Script, tool: &str, input: Value, class: ActionClass, code: Code) {
    let call = script.intent(tool, input);
    script
        .judged(&call, Effect::Allow, class)
        .started(&call, tool, false);
    script.observed(&call, tool, code, "4 lines.", "text");
}

fn read(script: &mut Script, path: &str) {
    called(
        script,
        "read",
        json!({"path": path}),
        ActionClass::Observe,
        Code::Ok,
    );
}

fn search(script: &mut Script, pattern: &str) {
    let input = json!({"pattern": pattern, "path": "src"});
    called(script, "grep", input, ActionClass::Search, Code::Ok);
}

fn printed(ui: &mut Ui) -> String {
    let lines = view::print_finished(ui, 80, usize::MAX);
    let lines: Vec<String> = lines
        .iter()
        .map(|line| line.to_string().trim_end().to_owned())
        .collect();
    lines.join("\n")
}

#[test]
fn reads_and_searches_in_a_row_are_one_line() {
    let mut script = begun();
    read(&mut script, "a.rs");
    read(&mut script, "b.rs");
    let id = script.request();
    script.think(&id, "hm");
    search(&mut script, "fn main");
    read(&mut script, "a.rs");
    search(&mut script, "x\u{1b}[2J");
    // It may go on.
    let mut ui = ui_of(&script);
    assert_eq!(printed(&mut ui), "› go");
    let live = show(&mut ui, 80, 20).join("\n");
    let row = "✓ read 2 files, searched 2 times: a.rs, b.rs, \"fn main\", \"x␛\"";
    assert!(live.contains(&format!("\n{row}\n")), "{live}");
    assert!(!live.contains("✓ read a.rs"), "{live}");
    // Something else comes.
    let taken = script.events.len();
    script.says("So.");
    script.completed(VerificationStatus::NotApplicable);
    for event in &script.events[taken..] {
        ui.input(Input::Event(event.clone()));
    }
    let rest = printed(&mut ui);
    assert!(rest.contains(&format!("{row}\n\n• So.")), "{rest}");
    // The same when it is opened again, in plain words, and in the player.
    let mut again = ui_of(&script);
    assert_eq!(printed(&mut again), format!("› go\n{rest}"));
    let mut player = Player::new(Box::new(script.events.clone()), None);
    player.advance();
    let frame = player.frame(80, 30, Theme::default());
    let frame: Vec<String> = frame.lines.iter().map(ToString::to_string).collect();
    let frame = frame.join("\n");
    assert!(frame.contains(row), "{frame}");
    assert!(!frame.contains("✓ read a.rs"), "{frame}");
}

#[test]
fn ctrl_t_shows_each_of_them() {
    let mut script = begun();
    read(&mut script, "a.rs");
    read(&mut script, "b.rs");
    script.completed(VerificationStatus::NotApplicable);
    let mut ui = ui_of(&script);
    press(&mut ui, &["C-t"]);
    let shown = show(&mut ui, 80, 30).join("\n");
    assert!(shown.contains("✓ read a.rs"), "{shown}");
    assert!(shown.contains("✓ read b.rs"), "{shown}");
    assert!(!shown.contains("read 2 files"), "{shown}");
}

#[test]
fn what_failed_was_refused_or_does_more_stands_by_itself() {
    let mut script = begun();
    read(&mut script, "a.rs");
    read(&mut script, "b.rs");
    called(
        &mut script,
        "read",
        json!({"path": "gone.rs"}),
        ActionClass::Observe,
        Code::FileNotFound,
    );
    read(&mut script, "c.rs");
    let denied = script.intent("read", json!({"path": ".env"}));
    script.judged(&denied, Effect::Deny, ActionClass::Observe);
    script.observed(
        &denied,
        "read",
        Code::PolicyDenied,
        "a rule forbids this",
        "",
    );
    called(
        &mut script,
        "bash",
        json!({"command": "ls"}),
        ActionClass::Observe,
        Code::Ok,
    );
    called(
        &mut script,
        "write",
        json!({"path": "d.rs", "content": ""}),
        ActionClass::Modify,
        Code::Ok,
    );
    script.completed(VerificationStatus::NotApplicable);
    let printed = printed(&mut ui_of(&script));
    for line in [
        "✓ read 2 files: a.rs, b.rs\n",
        "✗ read gone.rs",
        "✓ read c.rs",
        "⊘ read .env",
        "✓ bash ls",
        "✓ write d.rs",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
}

/// Calls that run beside each other end in any order; a row is told when all that may be in it is
/// known.
#[test]
fn a_row_waits_for_what_runs() {
    let mut script = begun();
    let calls: Vec<_> = ["a.rs", "b.rs", "c.rs"]
        .map(|path| (path, script.intent("read", json!({"path": path}))))
        .into();
    for (_, call) in &calls {
        script
            .judged(call, Effect::Allow, ActionClass::Observe)
            .started(call, "read", false);
    }
    script.observed(&calls[0].1, "read", Code::Ok, "1 line.", "x");
    script.observed(&calls[2].1, "read", Code::Ok, "1 line.", "x");
    let mut ui = ui_of(&script);
    assert_eq!(printed(&mut ui), "› go");
    let live = show(&mut ui, 80, 20).join("\n");
    assert!(live.contains("▸ read 3 files: a.rs, b.rs, c.rs"), "{live}");
    let before = script.events.len();
    script.observed(&calls[1].1, "read", Code::FileNotFound, "no such file", "");
    script.completed(VerificationStatus::NotApplicable);
    for event in &script.events[before..] {
        ui.input(Input::Event(event.clone()));
    }
    let rest = printed(&mut ui);
    let at = |text: &str| rest.find(text).unwrap_or_else(|| panic!("{text}: {rest}"));
    assert!(at("✓ read a.rs") < at("✗ read b.rs") && at("✗ read b.rs") < at("✓ read c.rs"));
}

/// Wherever the screen was drawn meanwhile, the scrollback is the same.
#[test]
fn when_it_is_drawn_changes_nothing() {
    let mut script = begun();
    for round in 0..4 {
        read(&mut script, "a.rs");
        search(&mut script, "x");
        match round {
            0 => drop(script.says("words")),
            1 => called(
                &mut script,
                "edit",
                json!({"path": "a.rs"}),
                ActionClass::Modify,
                Code::Ok,
            ),
            2 => {
                let id = script.request();
                script.think(&id, "more");
                script.answered(&id, "");
            }
            _ => {}
        }
    }
    script.completed(VerificationStatus::Unverified);
    let whole = printed(&mut ui_of(&script));
    let mut ui = ui_with(&[]);
    let mut lines = Vec::new();
    for event in &script.events {
        ui.input(Input::Event(event.clone()));
        show(&mut ui, 80, 12);
        let new = printed(&mut ui);
        if !new.is_empty() {
            lines.push(new);
        }
    }
    assert_eq!(lines.join("\n"), whole);
}
