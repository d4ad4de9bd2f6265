//! What a key does on a question beside answering it: another mode, another rule.

use agent_protocol::command::ControlCommand;
use agent_protocol::payload::conversation::TurnStarted;
use agent_protocol::payload::permission::ActionRequired;
use agent_protocol::reply::RulePreview;
use agent_protocol::status::Mode;
use proptest::prelude::*;
use serde_json::json;

use super::{asking, draw, event, idle, press, wait, words, words_of_answers};
use crate::host::{HostMessage, Input, Settings};
use crate::keys::{mode_after, parse};
use crate::plain::Plain;
use crate::ui::guard::ROUND_MS;
use crate::ui::{Effect, Ui};

#[test]
fn ones_own_command_can_ask_for_the_network() {
    let shell = |typed: &str| press(&mut idle(), typed);
    let expected = "Shell(Shell { command: \"git push\", network: true })";
    assert_eq!(shell("\"!network_git_push\" enter"), expected);
    let expected = "Shell(Shell { command: \"network\", network: false })";
    assert_eq!(shell("\"!network\" enter"), expected);
}

fn backtab(ui: &mut Ui, gaps: &[u64]) -> Vec<Effect> {
    let mut effects = Vec::new();
    for gap in gaps {
        let next = ui.now + gap;
        effects.extend(wait(ui, next));
        effects.extend(ui.key(parse("backtab")));
        draw(ui);
    }
    let end = ui.now + 3000;
    effects.extend(wait(ui, end));
    effects
}

/// The key for the mode goes round on a question too, and only the mode it stops at takes effect: nobody passes
/// through `auto` on the way to another one.
#[test]
fn a_question_is_judged_by_the_mode_the_key_stops_at() {
    let check = |gaps: &[u64], expected: &str| {
        let mut ui = asking(1);
        ui.state.facts.mode = Some(Mode::Ask);
        assert_eq!(words(&backtab(&mut ui, gaps)), expected, "{gaps:?}");
    };
    check(&[500], "mode accept-edits");
    check(&[500, 900], "mode auto");
    check(&[500, 900, 100], "mode read-only");
    check(&[500, 200, 900, 300], "mode plan");
    check(&[500, 200, 900, 300, 100], "mode ask");
    // Held down, it goes round.
    check(&[500; 16], "mode accept-edits");
    // Somebody who writes is heard when they are done.
    let mut ui = asking(1);
    assert_eq!(press(&mut ui, "\"he\""), "");
    assert_eq!(words(&backtab(&mut ui, &[100])), "");
    let mut ui = asking(1);
    ui.state.facts.mode = Some(Mode::Ask);
    assert_eq!(press(&mut ui, "backtab esc"), "", "Esc takes it back");
    assert_eq!(press(&mut ui, "d"), "deny once");
    let mut ui = asking(1);
    assert_eq!(press(&mut ui, "backtab a"), "", "another key does too");
    let end = ui.now + 3000;
    assert_eq!(words(&wait(&mut ui, end)), "");
    // What would be let through has to be seen.
    assert_eq!(words(&backtab(&mut asking(100), &[500])), "");
}

proptest! {
    /// However the key is pressed, a mode takes effect only where it rested for as long as it takes, and it is the one
    /// that so many presses lead to.
    #[test]
    fn no_mode_is_passed_through(gaps in prop::collection::vec(1u64..2000, 1..12)) {
        let mut ui = asking(1);
        ui.state.facts.mode = Some(Mode::Ask);
        let mut expected = Vec::new();
        let mut mode = Mode::Ask;
        for (at, _) in gaps.iter().enumerate() {
            mode = mode_after(mode);
            if gaps.get(at + 1).is_none_or(|next| *next > ROUND_MS + 1) {
                expected.push(format!("mode {mode}"));
            }
        }
        let mut effects = Vec::new();
        for gap in gaps {
            let next = ui.now + gap;
            for effect in wait(&mut ui, next) {
                if let Effect::Command(ControlCommand::SetMode(set)) = &effect {
                    ui.state.facts.mode = Some(set.mode);
                }
                effects.push(effect);
            }
            effects.extend(ui.key(parse("backtab")));
            draw(&mut ui);
        }
        let end = ui.now + 3000;
        effects.extend(wait(&mut ui, end));
        prop_assert_eq!(words(&effects), expected.join("; "));
    }
}

/// What the session says of the rule that it was asked about last.
fn told(effects: &[Effect], problem: Option<&str>, wider: Option<&str>) -> Input {
    let asked = effects.iter().rev().find_map(|effect| match effect {
        Effect::Command(ControlCommand::PreviewRule(asked)) => Some(asked.clone()),
        _ => None,
    });
    let asked = asked.unwrap();
    let preview = RulePreview {
        rule: asked.rule.clone(),
        problem: problem.map(str::to_owned),
        wider: wider.map(str::to_owned),
        examples: Vec::new(),
    };
    Input::Host(HostMessage::Rule { asked, preview })
}

fn previewed(ui: &mut Ui, effects: &[Effect], problem: Option<&str>, wider: Option<&str>) {
    ui.input(told(effects, problem, wider));
    draw(ui);
}

/// One key, pressed by somebody who takes their time, and its effects as they are.
fn one(ui: &mut Ui, key: &str) -> Vec<Effect> {
    ui.tick(ui.now + 500);
    let mut effects = ui.key(parse(key));
    ui.tick(ui.now + 300);
    effects.extend(ui.ripen());
    draw(ui);
    effects
}

#[test]
fn a_rule_can_be_written_and_widened() {
    // What was offered can be saved as it is; what is written only when the session says so.
    let mut ui = asking(1);
    let asked = one(&mut ui, "r");
    previewed(&mut ui, &asked, None, Some("bash(true **)"));
    one(&mut ui, "e");
    press(&mut ui, "backspace");
    let asked = one(&mut ui, "!");
    one(&mut ui, "enter");
    assert_eq!(
        words_of_answers(&one(&mut ui, "p")),
        "",
        "nobody has judged it yet"
    );
    previewed(&mut ui, &asked, Some("Too broad."), None);
    assert_eq!(words_of_answers(&one(&mut ui, "p")), "");
    one(&mut ui, "e");
    press(&mut ui, "backspace");
    let asked = one(&mut ui, ")");
    // What is typed together with it is part of the rule.
    press(&mut ui, "\"pu\" backspace backspace");
    one(&mut ui, "enter");
    previewed(&mut ui, &asked, None, Some("bash(wider *)"));
    let asked = one(&mut ui, "w");
    previewed(&mut ui, &asked, None, None);
    let saved = words_of_answers(&one(&mut ui, "u"));
    assert_eq!(saved, "allow_session user [bash(wider *)]");
    // Esc leaves what was written, then the rule.
    let mut ui = asking(1);
    press(&mut ui, "r e \"x\" esc");
    assert_eq!(
        press(&mut ui, "p"),
        "allow_session project_local [bash(true *)]"
    );
    assert_eq!(press(&mut asking(1), "r e \"x\" esc esc d"), "deny once");
}

/// The same in lines of words, where there is no key for the mode.
#[test]
fn a_rule_and_a_mode_in_plain_words() {
    let mut plain = Plain::new(Settings {
        plain: true,
        ..Settings::default()
    });
    plain.input(event(1, None, TurnStarted::default()));
    let asked = ActionRequired {
        tool_name: Some("bash".into()),
        safe_args: Some(json!({"command": "true"})),
        suggested_rule: Some("bash(true *)".into()),
        ..ActionRequired::default()
    };
    plain.input(event(2, Some("act_1"), asked));
    plain.ui.tick(10_000);
    let enter = |plain: &mut Plain, line: &str| {
        plain.ui.tick(plain.ui.now + 1000);
        let mut effects = plain.line(line);
        plain.ui.tick(plain.ui.now + 1000);
        effects.extend(plain.ripen());
        effects
    };
    assert_eq!(words(&enter(&mut plain, "/mode auto")), "mode auto");
    let asked = enter(&mut plain, "r");
    plain.take_lines();
    plain.input(told(&asked, None, Some("bash(wide *)")));
    let lines = plain.take_lines();
    assert_eq!(lines[..2], ["Rule: bash(true *)", "wider: bash(wide *)"]);
    assert!(lines[2].starts_with("Save it where?"), "{lines:?}");
    enter(&mut plain, "e");
    let asked = enter(&mut plain, "bash(mine)");
    plain.take_lines();
    plain.input(told(&asked, Some("Too broad."), None));
    assert_eq!(plain.take_lines()[1], "Too broad.");
    assert_eq!(words(&enter(&mut plain, "p")), "");
    enter(&mut plain, "e");
    let asked = enter(&mut plain, "bash(ours)");
    plain.input(told(&asked, None, None));
    assert_eq!(
        words(&enter(&mut plain, "p")),
        "allow_session project_local [bash(ours)]"
    );
}
