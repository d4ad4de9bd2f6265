//! The list of things to do above the composer, and the question about a plan.

use agent_protocol::payload::plan::{PlanItem, PlanProgress, PlanState};
use agent_protocol::status::Mode;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::answers::{Answer, answer};
use crate::keymap::Action;
use crate::markdown;
use crate::ui::Ui;
use agent_text::{clip, width};

/// The list while something in it is open: its current item, or all of it in at most `room` lines.
pub(super) fn list(ui: &Ui, columns: usize, room: usize) -> Vec<Line<'static>> {
    let items = &ui.state.facts.plan;
    let progress = PlanProgress::of(items);
    let Some(current) = progress.current else {
        return Vec::new();
    };
    let key = ui.settings.keys.shown(Action::Plan);
    let PlanProgress { done, total, .. } = progress;
    let count = format!(" · {done} of {total} · {key}");
    if !ui.whole_plan || room < 3 {
        let text = clip(&current.text, columns.saturating_sub(4 + width(&count)));
        return vec![Line::from(vec![
            Span::styled("  ▸ ", ui.theme.accent()),
            Span::raw(text),
            Span::styled(clip(&count, columns), ui.theme.dim()),
        ])];
    }
    let head = format!("  {done} of {total} done · {key} folds");
    let mut lines = vec![Line::styled(clip(&head, columns), ui.theme.dim())];
    let at = items.iter().position(|item| std::ptr::eq(item, current));
    let rows = room - 1;
    // The current item stands in the window, with what comes next.
    let most = items.len().saturating_sub(rows);
    let first = at.unwrap_or(0).saturating_sub(1).min(most);
    let shown = items.iter().skip(first).take(rows);
    lines.extend(shown.map(|item| line(ui, item, std::ptr::eq(item, current), columns)));
    lines
}

fn line(ui: &Ui, item: &PlanItem, is_current: bool, columns: usize) -> Line<'static> {
    let (sign, style) = match item.state {
        _ if is_current => ("▸", Style::new()),
        PlanState::Pending | PlanState::InProgress => ("○", Style::new()),
        PlanState::Done => ("✓", ui.theme.dim()),
        PlanState::Dropped => ("–", ui.theme.dim()),
    };
    let lead = match is_current {
        true => ui.theme.accent(),
        false => ui.theme.dim(),
    };
    Line::from(vec![
        Span::styled(format!("  {sign} "), lead),
        Span::styled(clip(&item.text, columns.saturating_sub(4)), style),
    ])
}

/// The plan that is asked about.
pub(super) fn proposal(ui: &Ui, plan: &str, columns: usize) -> Vec<Line<'static>> {
    let mut lines = markdown::render(plan, columns.saturating_sub(2), ui.theme);
    for line in &mut lines {
        line.spans.insert(0, Span::raw("  "));
    }
    lines
}

/// The answers to it. `yes` says that its end was read.
pub(super) fn answers(ui: &Ui, taken: bool, yes: bool, columns: usize) -> [Vec<Answer>; 2] {
    let key = |usual: &str| ui.settings.keys.answer(usual);
    let is_narrow = columns < 76;
    let no = match is_narrow {
        true => ["reject", "with a note", "abort"],
        false => ["reject", "reject with a note", "abort the turn"],
    };
    let edit = if is_narrow { "edit" } else { "edit first" };
    [
        vec![
            answer(key("d"), no[0], taken),
            answer(key("n"), no[1], taken),
            answer(key("q"), no[2], taken),
        ],
        vec![
            answer(key("a"), approval(ui.mode_after_plan('a')), yes),
            answer(key("s"), approval(ui.mode_after_plan('s')), yes),
            answer(key("w"), approval(ui.mode_after_plan('w')), yes),
            answer(key("e"), edit, yes),
        ],
    ]
}

/// What an approval means for the work that follows.
pub(crate) const fn approval(mode: Mode) -> &'static str {
    match mode {
        Mode::AcceptEdits => "approve, edits run",
        Mode::Auto => "approve, mode auto",
        Mode::Full => "approve, mode full",
        Mode::ReadOnly | Mode::Plan | Mode::Ask => "approve, changes ask",
    }
}
