//! Small things that a day with the screen is made of.

use agent_protocol::Scope;
use agent_protocol::payload::model::{ContextCompactionCompleted, ContextResolved};
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, Effect, GrantScope, PolicyChanged, PolicyChanges,
};
use agent_protocol::payload::process::{ProcessCompleted, ProcessStarted};
use agent_tui::theme::Theme;
use agent_tui::{ColorDepth, Input, StatusItem, ThemeChoice, diff, view};
use serde_json::json;

use crate::frames::{press, settings, show, ui_of};
use crate::sample::{self, Script};

fn begun() -> Script {
    let mut script = Script::default();
    script.session().user("go");
    script
}

fn printed(script: &Script) -> String {
    let lines = view::print_finished(&mut ui_of(script), 100, usize::MAX);
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A rule that was saved with an answer is told where the answer was given, whatever else was asked for
/// at the same time.
#[test]
fn a_saved_rule_stays_with_its_call() {
    let mut script = begun();
    let first = script.intent("bash", json!({"command": "cargo test"}));
    let second = script.intent("bash", json!({"command": "ls"}));
    script.evaluated(&first, Effect::Ask, None);
    let action = script.asks(&first, sample::ask_command("cargo test"));
    script.push(
        Scope::default(),
        PolicyChanged {
            scope: GrantScope::ProjectLocal,
            changed: PolicyChanges {
                rules_added: vec!["allow bash(cargo test *)".into()],
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: "saved while answering a question".into(),
        },
    );
    script.resolved(&first, &action, ActionDecision::AllowSession, None);
    for call in [&first, &second] {
        script.started(call, "bash", true);
        script.observed(call, "bash", agent_protocol::Code::Ok, "Exit code 0.", "");
    }
    let shown = printed(&script);
    let at = |text: &str| {
        shown
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {shown}"))
    };
    assert!(at("bash cargo test") < at("rule added"));
    assert!(at("rule added") < at("bash ls"));
    assert_eq!(shown.matches("rule added").count(), 1, "{shown}");
}

/// Compaction counts the conversation; instructions and tools stay in the window.
#[test]
fn after_compaction_the_context_is_not_empty() {
    let mut script = begun();
    let mut resolved = ContextResolved::default();
    resolved.budget.last_input_tokens = Some(60_000);
    resolved.budget.window_tokens = Some(100_000);
    script.push(Scope::default(), resolved);
    script.push(
        Scope::default(),
        ContextCompactionCompleted {
            tokens_before: 50_000,
            tokens_after: 300,
            ..ContextCompactionCompleted::default()
        },
    );
    let ui = ui_of(&script);
    assert_eq!(ui.state.facts.context.percent(), Some(10));
}

#[test]
fn a_thought_is_told_from_its_end_and_in_characters() {
    let mut script = begun();
    let id = script.request();
    script.think(&id, &format!("é {} and so\nthe end", "word ".repeat(100)));
    let live = show(&mut ui_of(&script), 60, 20).join("\n");
    assert!(live.contains("∴ thinking, 517 characters  …"), "{live}");
    assert!(live.contains(" word and so the end\n"), "{live}");
}

#[test]
fn background_commands_are_counted_until_they_end() {
    let mut script = begun();
    for id in ["proc_1", "proc_2"] {
        script.push(
            Scope::default(),
            ProcessStarted {
                process_id: id.parse().unwrap(),
                background: true,
                ..ProcessStarted::default()
            },
        );
    }
    let mut ui = ui_of(&script);
    assert!(
        show(&mut ui, 120, 20)
            .join("\n")
            .contains("2 in background")
    );
    script.push(
        Scope::default(),
        ProcessCompleted {
            process_id: "proc_1".parse().unwrap(),
            ..ProcessCompleted::default()
        },
    );
    ui.input(Input::Event(script.events.last().unwrap().clone()));
    assert!(
        show(&mut ui, 120, 20)
            .join("\n")
            .contains("1 in background")
    );
}

/// The line has what was chosen, in that order, and on a narrow screen the first of it.
#[test]
fn the_status_line_drops_from_the_right() {
    let script = begun();
    let check = |items: &[StatusItem], columns: u16, expected: &str| {
        let mut ui = ui_of(&script);
        ui.settings.status = items.to_vec();
        let shown = show(&mut ui, columns, 20);
        let line = shown.iter().rev().find(|line| !line.starts_with("(cursor"));
        assert_eq!(line.map(String::as_str), Some(expected));
    };
    use StatusItem::{Branch, Mode, Model, Project, Title};
    check(&[Branch, Mode, Model], 80, "main · ask · scripted/demo");
    check(&[Branch, Mode, Model], 20, "main · ask");
    check(&[Title, Project], 80, "go · project");
    check(&[], 80, "");
}

/// What came and what went look alike: the background goes to the end of the line for both.
#[test]
fn both_sides_of_a_change_are_coloured_to_their_end() {
    let settings = agent_tui::Settings {
        colors: ColorDepth::True,
        theme: ThemeChoice::Dark,
        ..settings()
    };
    for columns in [60, 130] {
        let lines = diff::render(sample::DIFF, columns, settings.theme());
        let widths: Vec<usize> = lines
            .iter()
            .flat_map(|line| [("left - right", line), ("left + right", line)])
            .filter(|(text, line)| line.to_string().contains(text))
            .map(|(_, line)| {
                let painted = line.spans.iter().filter(|span| span.style.bg.is_some());
                painted.map(ratatui::text::Span::width).sum()
            })
            .collect();
        assert!(
            widths.len() == 2 && widths[0] == widths[1] && widths[0] > 40,
            "{columns}: {widths:?}"
        );
    }
    // With the terminal's own colours the letters tell it.
    let lines = diff::render(sample::DIFF, 60, Theme::default());
    let of = |text: &str| {
        lines
            .iter()
            .find(|line| line.to_string().contains(text))
            .unwrap()
    };
    for (text, style) in [
        ("left - right", Theme::default().removed()),
        ("left + right", Theme::default().added()),
    ] {
        let line = of(text);
        let painted = line.spans.iter().filter(|span| span.style.fg == style.fg);
        assert!(painted.count() >= 2, "{line:?}");
    }
}

/// Without colours there are none, whatever the settings say; who asks for them on the screen has them.
#[test]
fn no_color_holds_until_somebody_asks_for_colours() {
    let mut ui = agent_tui::ui::Ui::new(agent_tui::Settings {
        colors: ColorDepth::None,
        theme: ThemeChoice::Dark,
        ..settings()
    });
    assert_eq!(ui.theme.depth, ColorDepth::None);
    press(&mut ui, &["/theme light", "<enter>"]);
    assert_eq!(ui.theme.depth, ColorDepth::Ansi16);
    press(&mut ui, &["/theme", "<enter>"]);
    let shown = show(&mut ui, 80, 20).join("\n");
    assert!(shown.contains("auto") && shown.contains("exact colours for a light background"));
    press(&mut ui, &["none", "<enter>"]);
    assert_eq!(ui.theme.depth, ColorDepth::None);
}
