//! Which key does what, as tables.

mod commands;
mod questions;

use std::sync::Arc;

use agent_protocol::command::ControlCommand;
use agent_protocol::id::ActionId;
use agent_protocol::payload::conversation::{TurnStarted, TurnSubmitted};
use agent_protocol::payload::permission::ActionRequired;
use agent_protocol::status::{Mode, Status};
use agent_protocol::{Event, Payload, Refs, Scope, Timestamp};
use serde_json::json;

use super::parse;
use crate::host::{Input, Settings};
use crate::ui::{Effect, Ui};
use crate::view;

fn event(sequence: u64, action: Option<&str>, payload: impl Into<Payload>) -> Input {
    Input::Event(Arc::new(Event {
        event_id: "ev_1".parse().unwrap(),
        timestamp: Timestamp::default(),
        sequence,
        schema_version: "1".into(),
        runtime_id: "rt_1".parse().unwrap(),
        session_id: "ses_1".parse().unwrap(),
        scope: Scope {
            turn_id: Some("turn_1".parse().unwrap()),
            action_id: action.map(|action| action.parse::<ActionId>().unwrap()),
            ..Scope::default()
        },
        payload: payload.into(),
        refs: Refs::default(),
        prev: String::new(),
    }))
}

fn idle() -> Ui {
    let mut ui = Ui::new(Settings {
        history: vec!["first".into(), "second".into()],
        ..Settings::default()
    });
    let said = TurnSubmitted {
        text: Some("an earlier message".into()),
        status: Status::Accepted,
        ..TurnSubmitted::default()
    };
    ui.input(event(7, None, said));
    ui
}

fn busy() -> Ui {
    let mut ui = idle();
    ui.input(event(8, None, TurnStarted::default()));
    ui
}

/// A question that was drawn a while ago; `lines` is how long its command is.
fn asking(lines: usize) -> Ui {
    let mut ui = busy();
    let command = vec!["true"; lines].join("\n");
    let asked = ActionRequired {
        tool_name: Some("bash".into()),
        safe_args: Some(json!({ "command": command })),
        suggested_rule: Some("bash(true *)".into()),
        ..ActionRequired::default()
    };
    ui.input(event(9, Some("act_1"), asked));
    draw(&mut ui);
    ui.tick(10_000);
    ui
}

fn draw(ui: &mut Ui) {
    let frame = view::frame(ui, 80, 24);
    ui.drawn(&frame.shown);
}

/// Effects in short words.
fn words(effects: &[Effect]) -> String {
    let word = |effect: &Effect| match effect {
        Effect::Command(ControlCommand::SubmitTurn(turn)) => {
            format!("submit({}, {})", turn.text, turn.when_busy)
        }
        Effect::Command(ControlCommand::RespondAction(response)) => {
            let mut text = format!("{} {}", response.decision, response.scope);
            if let Some(answer) = &response.answer {
                for part in [&answer.note, &answer.saved_rule].into_iter().flatten() {
                    text.push_str(&format!(" [{part}]"));
                }
                if let Some(input) = &answer.edited_input {
                    text.push_str(&format!(" {input}"));
                }
            }
            text
        }
        Effect::Command(ControlCommand::InterruptTurn(_)) => "interrupt".into(),
        Effect::Command(ControlCommand::SetMode(set)) => format!("mode {}", set.mode),
        Effect::Command(ControlCommand::PreviewRule(_)) => String::new(),
        Effect::Command(ControlCommand::SetThinking(set)) => format!("thinking {}", set.thinking),
        Effect::Command(ControlCommand::SetModel(set)) => format!("model {}", set.model),
        Effect::Command(ControlCommand::Undo(undo)) => format!("undo {:?}", undo.extent),
        Effect::Command(other) => format!("{other:?}"),
        Effect::Host(crate::host::HostRequest::Remember { .. }) => String::new(),
        Effect::Host(request) => format!("{request:?}"),
        Effect::Exit(exit) => format!("exit {exit:?}"),
        other => format!("{other:?}"),
    };
    let words: Vec<String> = effects
        .iter()
        .map(word)
        .filter(|word| !word.is_empty())
        .collect();
    words.join("; ")
}

/// Keys are separated by blanks, and pressed by somebody who takes their time; a word in quotes is
/// typed quickly, letter by letter.
fn press(ui: &mut Ui, keys: &str) -> String {
    let mut effects = Vec::new();
    for part in keys.split(' ') {
        match part
            .strip_prefix('"')
            .and_then(|part| part.strip_suffix('"'))
        {
            Some(typed) => {
                for letter in typed.chars() {
                    let letter = if letter == '_' { ' ' } else { letter };
                    ui.tick(ui.now + 50);
                    effects.extend(ui.key(crossterm::event::KeyEvent::from(
                        crossterm::event::KeyCode::Char(letter),
                    )));
                }
            }
            None => {
                ui.tick(ui.now + 500);
                effects.extend(ui.key(parse(part)));
                ui.tick(ui.now + 300);
                effects.extend(ui.ripen());
            }
        }
        draw(ui);
    }
    words(&effects)
}

#[test]
fn composer_keys() {
    let check = |mut ui: Ui, keys: &str, expected: &str| {
        assert_eq!(press(&mut ui, keys), expected, "{keys}");
    };
    check(idle(), "\"hi\" enter", "submit(hi, queue)");
    check(busy(), "\"hi\" enter", "submit(hi, queue)");
    check(busy(), "\"hi\" C-s", "submit(hi, steer)");
    check(idle(), "\"a\" M-enter \"b\" enter", "submit(a\nb, queue)");
    check(idle(), "\"a\" C-j \"b\" enter", "submit(a\nb, queue)");
    check(idle(), "\"a\\\" enter \"b\" enter", "submit(a\nb, queue)");
    check(idle(), "enter", "");
    check(idle(), "up enter", "submit(second, queue)");
    check(idle(), "up up enter", "submit(first, queue)");
    check(idle(), "C-r \"fir\" enter enter", "submit(first, queue)");
    check(busy(), "esc", "interrupt");
    check(busy(), "C-c", "interrupt");
    check(idle(), "C-c C-c", "exit Quit");
    check(idle(), "C-c \"x\" C-c", "");
    check(idle(), "\"x\" C-d", "");
    check(idle(), "C-d", "exit Quit");
    check(idle(), "backtab", "mode accept-edits");
    check(idle(), "C-g", "ExternalEditor");
    check(idle(), "C-x C-e", "ExternalEditor");
    check(idle(), "C-z", "Suspend");
    check(idle(), "C-l", "Redraw");
    check(
        idle(),
        "esc esc enter",
        "Rewind { at: 7, text: \"an earlier message\" }",
    );
    check(
        idle(),
        "\"!ls_-l\" enter",
        "Shell(Shell { command: \"ls -l\", network: false })",
    );
    check(idle(), "\"@\"", "Files");
}

#[test]
fn queued_inputs_wait_for_the_user() {
    let queued = || {
        let mut ui = idle();
        let said = TurnSubmitted {
            text: Some("later\nplease".into()),
            status: Status::Queued,
            ..TurnSubmitted::default()
        };
        ui.input(event(8, None, said));
        let changed = agent_protocol::payload::conversation::QueueChanged {
            order: vec!["turn_1".parse().unwrap()],
            ..agent_protocol::payload::conversation::QueueChanged::default()
        };
        ui.input(event(9, None, changed));
        ui
    };
    assert!(press(&mut queued(), "enter").starts_with("PromoteQueuedTurn"));
    let mut ui = queued();
    assert!(press(&mut ui, "M-up").starts_with("RemoveQueuedTurn"));
    assert_eq!(ui.composer.editor.text(), "later\nplease");
}

#[test]
fn slash_commands() {
    let check = |keys: &str, expected: &str| {
        let mut ui = idle();
        ui.tick(0);
        assert_eq!(press(&mut ui, keys), expected, "{keys}");
    };
    check("\"/quit\" enter", "exit Quit");
    check("\"/qui\" enter", "exit Quit");
    check("\"/model_a/b\" enter", "model a/b");
    check("\"/model\" enter", "Models");
    check("\"/mode_auto\" enter", "mode auto");
    // The list begins at the mode that holds.
    check("\"/mode\" enter enter", "mode ask");
    check("\"/mode\" enter down enter", "mode accept-edits");
    check("\"/mode_nonsense\" enter", "");
    check("\"/plan\" enter", "mode plan");
    check("\"/thinking_high\" enter", "thinking high");
    check("\"/permissions\" enter", "Permissions");
    check("\"/sandbox\" enter", "Sandbox");
    check("\"/tools\" enter", "Tools");
    check("\"/compact\" enter", "Compact");
    check("\"/diff\" enter", "Diff");
    check("\"/undo\" enter", "undo LastChange");
    check("\"/undo_12\" enter", "undo After { sequence: 12 }");
    check("\"/resume\" enter", "Sessions");
    check("\"/init\" enter", "Prepared(Init)");
    check("\"/review_main\" enter", "Prepared(ReviewSince(\"main\"))");
    check(
        "\"/fork\" enter enter",
        "exit Fork { at: 7, text: \"an earlier message\" }",
    );
    check("\"/replay\" enter", "exit Replay");
    check("\"/export_jsonl\" enter", "Export { form: Jsonl }");
    check("\"/export_page\" enter", "Export { form: Html }");
    check("\"/clear\" enter", "exit NewSession");
    for shown in ["help", "context", "cost", "status", "transcript"] {
        let mut ui = idle();
        press(&mut ui, &format!("\"/{shown}\" enter"));
        assert!(ui.overlay.is_some(), "/{shown} shows nothing");
        press(&mut ui, "q");
        assert!(ui.overlay.is_none(), "/{shown} does not close");
    }
}

#[test]
fn every_command_is_in_the_tables() {
    let tested = concat!(include_str!("tests.rs"), include_str!("tests/commands.rs"));
    for command in crate::commands::COMMANDS {
        let named = tested.contains(&format!("\"/{}", command.name))
            || tested.contains(&format!("\"{}\"", command.name));
        assert!(named, "/{} has no test", command.name);
    }
}

#[test]
fn theme_and_why() {
    let mut ui = idle();
    press(&mut ui, "\"/theme_none\" enter");
    assert_eq!(ui.theme.depth, crate::theme::ColorDepth::None);
    press(&mut ui, "\"/theme_light\" enter");
    assert_eq!(ui.theme.background, crate::theme::Background::Light);
    press(&mut ui, "\"/why\" enter");
    assert!(ui.overlay.is_none(), "there is no call to explain");
}

#[test]
fn answers() {
    let check = |keys: &str, expected: &str| {
        assert_eq!(press(&mut asking(1), keys), expected, "{keys}");
    };
    check("a", "allow_once once");
    check("s", "allow_session session");
    check("r p", "allow_session project_local [bash(true *)]");
    check("r u", "allow_session user [bash(true *)]");
    check("r esc d", "deny once");
    check("d", "deny once");
    check("n \"not_now\" enter", "deny once [not now]");
    check("n enter", "deny once");
    check("n \"x\" esc a", "allow_once once");
    check("e \"!\" enter", "allow_once once {\"command\":\"true!\"}");
    check("q", "abort once");
    check("esc", "abort once");
    check("C-c", "abort once");
    check("enter", "");
    check("enter enter space tab y 1", "");
    check("C-a C-s", "");
    // Nothing asks the mode while its key may still go on.
    check("backtab", "");
}

#[test]
fn a_command_is_given_the_network() {
    let asking = |facts: &[&str]| {
        let mut ui = busy();
        let asked = ActionRequired {
            tool_name: Some("bash".into()),
            safe_args: Some(json!({ "command": "curl x" })),
            risk_facts: facts.iter().map(ToString::to_string).collect(),
            ..ActionRequired::default()
        };
        ui.input(event(9, Some("act_1"), asked));
        draw(&mut ui);
        ui.tick(10_000);
        ui
    };
    let expected = "allow_once once {\"command\":\"curl x\",\"network\":true}";
    assert_eq!(press(&mut asking(&["has no network"]), "w"), expected);
    assert_eq!(press(&mut asking(&[]), "w"), "", "it has it already");
}

#[test]
fn a_long_question_is_allowed_only_after_its_end() {
    let mut ui = asking(100);
    for allow in ["a", "s", "r"] {
        assert_eq!(press(&mut ui, allow), "", "{allow}");
    }
    assert_eq!(
        press(&mut ui, "space space a"),
        "",
        "the end was not shown yet"
    );
    assert_eq!(press(&mut ui, "end a"), "allow_once once");
    assert_eq!(
        press(&mut asking(100), "d"),
        "deny once",
        "no is always possible"
    );
}

#[test]
fn a_diff_that_is_not_there_yet_cannot_be_allowed() {
    let artifact = agent_protocol::id::ArtifactId::from_digest(&[1; 32]);
    let mut ui = busy();
    let asked = ActionRequired {
        tool_name: Some("edit".into()),
        diff_ref: Some(artifact.clone()),
        ..ActionRequired::default()
    };
    let effects = ui.input(event(9, Some("act_1"), asked));
    assert_eq!(words(&effects), format!("Artifact({artifact:?})"));
    draw(&mut ui);
    ui.tick(10_000);
    assert_eq!(press(&mut ui, "a"), "");
    ui.input(Input::Host(crate::host::HostMessage::Artifact {
        id: artifact,
        content: Ok(b"@@ -1 +1 @@\n-a\n+b\n".to_vec()),
    }));
    draw(&mut ui);
    assert_eq!(press(&mut ui, "a"), "allow_once once");
}

#[test]
fn keys_before_the_question_go_where_they_were_meant() {
    let mut ui = busy();
    press(&mut ui, "\"he\"");
    let asked = ActionRequired {
        tool_name: Some("bash".into()),
        safe_args: Some(json!({ "command": "ls" })),
        ..ActionRequired::default()
    };
    ui.input(event(9, Some("act_1"), asked));
    assert_eq!(press(&mut ui, "\"adsq\" enter"), "");
    assert_eq!(ui.composer.editor.text(), "headsq");
    ui.tick(5000);
    assert_eq!(press(&mut ui, "d"), "deny once");
}

#[test]
fn the_next_question_has_its_own_guard() {
    let mut ui = asking(1);
    let second = ActionRequired {
        tool_name: Some("bash".into()),
        safe_args: Some(json!({ "command": "ls" })),
        ..ActionRequired::default()
    };
    ui.input(event(10, Some("act_2"), second));
    assert_eq!(ui.waiting(), 2);
    assert_eq!(
        press(&mut ui, "a \"aa\""),
        "allow_once once",
        "one key answers one question"
    );
    ui.tick(20_000);
    assert_eq!(press(&mut ui, "d"), "deny once");
}

#[test]
fn a_question_does_not_take_keys_meant_for_an_overlay() {
    let mut ui = idle();
    press(&mut ui, "\"/help\" enter");
    ui.input(event(8, None, TurnStarted::default()));
    let asked = ActionRequired {
        tool_name: Some("bash".into()),
        safe_args: Some(json!({ "command": "ls" })),
        ..ActionRequired::default()
    };
    ui.input(event(9, Some("act_1"), asked));
    draw(&mut ui);
    ui.tick(10_000);
    assert_eq!(press(&mut ui, "a d q"), "");
    assert!(ui.overlay.is_none());
    assert_eq!(press(&mut ui, "\"a\""), "", "it was drawn only now");
    ui.tick(20_000);
    assert_eq!(press(&mut ui, "a"), "allow_once once");
}

#[test]
fn modes_go_round_without_full() {
    let mut ui = idle();
    let mut mode = Mode::ReadOnly;
    let mut seen = Vec::new();
    for _ in 0..5 {
        ui.state.facts.mode = Some(mode);
        mode = ui.next_mode();
        seen.push(mode);
    }
    assert!(!seen.contains(&Mode::Full));
    assert!(seen.contains(&Mode::Auto) && seen.contains(&Mode::ReadOnly));
}

/// A number from 0 to below `below`; the same ones every time.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Lets time pass until `until` as the loop does: whatever is due happens before it.
fn wait(ui: &mut Ui, until: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    while let Some(due) = ui.next_wake().filter(|due| *due > ui.now && *due < until) {
        ui.tick(due);
        effects.extend(ui.ripen());
        draw(ui);
    }
    ui.tick(until);
    effects
}

/// Whoever types a sentence while a question appears answers nothing with it, however slowly.
#[test]
fn a_sentence_typed_through_a_question_is_no_answer() {
    let words = "a allow any as you should not touch the lock file yes and run tests again sure \
        please edit src/main.rs after that remove all dead code quick rename every user session";
    let words: Vec<&str> = words.split(' ').collect();
    let mut state = 7;
    for round in 0..1000 {
        let mut ui = busy();
        ui.tick(1000);
        let count = 3 + random(&mut state, 12);
        let sentence: Vec<&str> = (0..count)
            .map(|_| words[usize::try_from(random(&mut state, words.len() as u64)).unwrap()])
            .collect();
        let sentence = sentence.join(" ");
        // Some type evenly, some do not.
        let slowest = 30 + random(&mut state, 371);
        let fastest = 30 + random(&mut state, slowest - 29);
        let appears = random(&mut state, sentence.len() as u64);
        let mut effects = Vec::new();
        for (at, letter) in (0u64..).zip(sentence.chars()) {
            if at == appears {
                let asked = ActionRequired {
                    tool_name: Some("bash".into()),
                    safe_args: Some(json!({ "command": "touch made" })),
                    suggested_rule: Some("bash(touch made)".into()),
                    ..ActionRequired::default()
                };
                effects.extend(ui.input(event(9, Some("act_1"), asked)));
            }
            let next = ui.now + fastest + random(&mut state, slowest - fastest + 1);
            effects.extend(wait(&mut ui, next));
            effects.extend(ui.key(crossterm::event::KeyEvent::from(
                crossterm::event::KeyCode::Char(letter),
            )));
            draw(&mut ui);
        }
        // And at its end Enter, as one sends a message.
        let next = ui.now + fastest;
        effects.extend(wait(&mut ui, next));
        effects.extend(ui.key(parse("enter")));
        let end = ui.now + 5000;
        effects.extend(wait(&mut ui, end));
        let told = words_of_answers(&effects);
        assert_eq!(
            told, "",
            "{round}: {sentence:?} at {fastest} to {slowest} ms a key"
        );
        assert_eq!(ui.composer.editor.text(), sentence, "it is in the message");
        // Then the question can be answered.
        assert_eq!(press(&mut ui, "a"), "allow_once once", "{round}");
    }
}

/// The answers among effects.
fn words_of_answers(effects: &[Effect]) -> String {
    let is_answer =
        |effect: &&Effect| matches!(effect, Effect::Command(ControlCommand::RespondAction(_)));
    let answers: Vec<Effect> = effects.iter().filter(is_answer).cloned().collect();
    words(&answers)
}

#[test]
fn pasted_text_and_a_mouse_wheel_are_no_answers() {
    use crossterm::event::{Event, KeyModifiers, MouseEvent, MouseEventKind};
    let wheel = Event::Mouse(MouseEvent {
        kind: MouseEventKind::ScrollDown,
        column: 1,
        row: 1,
        modifiers: KeyModifiers::NONE,
    });
    let mut ui = asking(1);
    let mut effects = ui.terminal(&Event::Paste("a".into()));
    effects.extend(wait(&mut ui, 12_000));
    // A terminal without marks for pastes sends letters.
    for letter in ["a", "l", "l", "r", "p", "a"] {
        effects.extend(ui.key(parse(letter)));
    }
    effects.extend(wait(&mut ui, 14_000));
    for _ in 0..50 {
        effects.extend(ui.terminal(&wheel));
        effects.extend(ui.key(parse("down")));
        effects.extend(ui.key(parse("up")));
        let next = ui.now + 20;
        effects.extend(wait(&mut ui, next));
    }
    // A key in the midst of it is none either.
    effects.extend(wait(&mut ui, 16_000));
    effects.extend(ui.key(parse("a")));
    effects.extend(wait(&mut ui, 16_200));
    effects.extend(ui.terminal(&wheel));
    effects.extend(wait(&mut ui, 18_000));
    assert_eq!(words_of_answers(&effects), "");
    assert_eq!(press(&mut ui, "a"), "allow_once once");
}

#[test]
fn the_second_step_of_an_answer_is_calm_too() {
    // The rule's place.
    let mut ui = asking(1);
    assert_eq!(press(&mut ui, "r \"p\""), "");
    assert_eq!(press(&mut ui, "\"push\""), "");
    assert_eq!(
        press(&mut ui, "p"),
        "allow_session project_local [bash(true *)]"
    );
    // The edited version: Enter right behind the text is part of the text.
    let mut ui = asking(1);
    assert_eq!(press(&mut ui, "e \"_x\""), "");
    ui.tick(ui.now + 100);
    assert_eq!(words(&ui.key(parse("enter"))), "");
    let end = ui.now + 5000;
    assert_eq!(words_of_answers(&wait(&mut ui, end)), "");
    assert_eq!(
        press(&mut ui, "enter"),
        "allow_once once {\"command\":\"true x\"}"
    );
}

#[test]
fn keys_that_go_elsewhere_are_said_to() {
    let mut ui = asking(1);
    press(&mut ui, "\"the_lo\"");
    let shown = |ui: &Ui| {
        let lines = view::frame(ui, 80, 24).lines;
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    assert!(
        shown(&ui).contains("Typing goes to your message"),
        "{}",
        shown(&ui)
    );
    let end = ui.now + 1000;
    wait(&mut ui, end);
    assert!(!shown(&ui).contains("Typing goes to your message"));
    assert_eq!(ui.composer.editor.text(), "the lo");
}

#[test]
fn a_paste_takes_the_first_ctrl_c_back() {
    use crossterm::event::Event;
    let mut ui = idle();
    assert_eq!(words(&ui.key(parse("C-c"))), "");
    ui.terminal(&Event::Paste("kept".into()));
    assert_eq!(words(&ui.key(parse("C-c"))), "");
}
