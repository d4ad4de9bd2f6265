//! The part that is always there: what is going on, the composer or the question, the status line.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{plan, prompt, status};
use crate::compose::{MENU_ROWS, Menu, MenuKind};
use crate::keymap::Action;
use crate::safe::{self, Piece};
use crate::theme::Theme;
use crate::ui::{Shown, Ui};
use agent_text::words::{duration, seconds};
use agent_text::{clip, width};

/// The drawn bottom.
pub(super) struct Bottom {
    pub(super) lines: Vec<Line<'static>>,
    pub(super) cursor: Option<(u16, u16)>,
    pub(super) shown: Shown,
    /// A question that needs all the room there is, and more.
    pub(super) covers: bool,
}

/// Waiting inputs that are shown by their text.
const SHOWN_QUEUE: usize = 3;
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub(super) fn draw(ui: &Ui, columns: usize, height: usize) -> Bottom {
    let status = status::line(ui, columns);
    if let Some(drawn) = prompt::draw(ui, columns, height.saturating_sub(1)) {
        let mut lines = drawn.lines;
        lines.push(status);
        return Bottom {
            lines,
            cursor: drawn.cursor,
            shown: Shown {
                prompt: Some(drawn.shown),
                ..Shown::default()
            },
            covers: drawn.covers,
        };
    }
    let mut lines = vec![Line::default()];
    if let Some(activity) = activity(ui, columns) {
        lines.push(activity);
    }
    // A third of the screen, so that there is room for what is written and what comes.
    lines.extend(plan::list(ui, columns, height / 3));
    let queue = &ui.state.facts.queue;
    for queued in queue.iter().take(SHOWN_QUEUE) {
        // Without a turn to wait for, an input waits for the user's word.
        let waits = match (ui.state.busy(), queued.steers) {
            (true, true) => "joins at the next step",
            (true, false) => "queued",
            (false, _) => "not sent yet",
        };
        let text = clip(&format!("  ⏸ {waits}: {}", queued.text), columns);
        lines.push(Line::styled(text, ui.theme.dim()));
    }
    if queue.len() > SHOWN_QUEUE {
        let text = format!("  ⏸ and {} more", queue.len() - SHOWN_QUEUE);
        lines.push(Line::styled(text, ui.theme.dim()));
    }
    let rows = ui.composer.editor.rows(columns.saturating_sub(2));
    // The composer may grow to half the screen; beyond that its text scrolls.
    let most = (height / 2).max(3);
    let first = rows.cursor.0.saturating_sub(most - 1);
    let cursor_row = lines.len() + rows.cursor.0 - first;
    let sign = match &ui.composer.editor.vim {
        Some(vim) if vim.is_normal() => ": ",
        _ => "› ",
    };
    if ui.composer.editor.is_empty() {
        let key = |action| ui.settings.keys.shown(action);
        let (send, help) = (key(Action::Send), key(Action::Help));
        let hint = if ui.state.busy() {
            let steer = key(Action::Steer);
            format!("{send} queues a message, {steer} steers, Esc interrupts")
        } else if !ui.state.facts.queue.is_empty() {
            let edit = key(Action::EditQueued);
            format!("{send} sends the waiting message, {edit} takes it back")
        } else {
            format!("Ask for something; / for commands, @ for files, {help} for help")
        };
        lines.push(Line::from(vec![
            Span::styled(sign, ui.theme.accent()),
            Span::styled(clip(&hint, columns.saturating_sub(2)), ui.theme.dim()),
        ]));
    } else {
        for (number, row) in rows.rows.iter().enumerate().skip(first).take(most) {
            let lead = if number == 0 { sign } else { "  " };
            lines.push(written(row, lead, ui.theme));
        }
    }
    let column = u16::try_from(rows.cursor.1 + 2).unwrap_or(0);
    let cursor = Some((column, u16::try_from(cursor_row).unwrap_or(0)));
    if let Some(search) = &ui.composer.search {
        let found = if search.found.is_some() || search.query.is_empty() {
            ""
        } else {
            " (nothing found)"
        };
        let text = format!(
            "  history search: {}{found}  Enter takes, {} older, Esc leaves",
            search.query,
            ui.settings.keys.shown(Action::SearchPrompts)
        );
        lines.push(Line::styled(clip(&text, columns), ui.theme.dim()));
    }
    if let Some(menu) = ui.composer.menu(ui.files.as_deref()) {
        draw_menu(
            ui,
            &menu,
            columns,
            height.saturating_sub(lines.len() + 1),
            &mut lines,
        );
    }
    lines.push(status);
    Bottom {
        lines,
        cursor,
        shown: Shown::default(),
        covers: false,
    }
}

/// A row of what is being written; what only stands for something is set apart.
pub(super) fn written(row: &[Piece], lead: &'static str, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled(lead, theme.accent())];
    spans.extend(row.iter().map(|piece| {
        let style = match piece.mark {
            true if piece.text.starts_with('→') => theme.dim(),
            true => theme.mark(),
            false => Style::new(),
        };
        Span::styled(piece.text.clone(), style)
    }));
    Line::from(spans)
}

fn draw_menu(ui: &Ui, menu: &Menu, columns: usize, room: usize, lines: &mut Vec<Line<'static>>) {
    let rows = MENU_ROWS.min(room.max(1));
    let first = menu.selected.saturating_sub(rows - 1);
    let name_width = menu
        .entries
        .iter()
        .map(|(name, _)| width(name))
        .max()
        .unwrap_or(0);
    let end = lines.len() + room;
    let count = menu.entries.len();
    for (number, (name, about)) in menu.entries.iter().enumerate().skip(first).take(rows) {
        // The edges of the list say that it goes on.
        let more = if number == first && first > 0 {
            format!("  (↑ {first} more)")
        } else if number + 1 == first + rows && number + 1 < count {
            format!("  (↓ {} more)", count - number - 1)
        } else {
            String::new()
        };
        let blanks = " ".repeat(name_width.saturating_sub(width(name)));
        let room = columns.saturating_sub(2 + width(&more));
        let text = clip(format!("{name}{blanks}  {about}").trim_end(), room);
        let (lead, style) = if number == menu.selected {
            ("▸ ", ui.theme.selected())
        } else {
            ("  ", Style::new())
        };
        lines.push(Line::from(vec![
            Span::raw(lead),
            Span::styled(text, style),
            Span::styled(more, ui.theme.dim()),
        ]));
    }
    if menu.kind == MenuKind::Files
        && let Some((path, _)) = menu.entries.get(menu.selected)
        && let Some((_, text)) = ui.preview.as_ref().filter(|(shown, _)| shown == path)
    {
        for line in safe::content(text)
            .lines()
            .take(end.saturating_sub(lines.len()).min(6))
        {
            lines.push(Line::styled(
                clip(&format!("  │ {line}"), columns),
                ui.theme.dim(),
            ));
        }
    }
}

/// What is going on, with the time it takes.
fn activity(ui: &Ui, columns: usize) -> Option<Line<'static>> {
    if !ui.state.works() {
        return None;
    }
    let elapsed = ui.elapsed().unwrap_or(0);
    let sign = if ui.settings.plain {
        "…"
    } else {
        SPINNER[usize::try_from(elapsed / 100).unwrap_or(0) % SPINNER.len()]
    };
    let (mut text, esc) = match &ui.state.facts.turn {
        Some(turn) if turn.interrupting => ("interrupting".to_owned(), " · Esc interrupts"),
        Some(turn) => (turn.activity.clone(), " · Esc interrupts"),
        None => ("compacting the history".to_owned(), ""),
    };
    if let Some(millis) = ui
        .state
        .facts
        .turn
        .as_ref()
        .and_then(|turn| turn.retry_in_ms)
    {
        text.push_str(&format!(", in {}", duration(millis)));
    }
    // What is going on is worth more than how to stop it.
    let esc = if columns < 40 { "" } else { esc };
    let tail = format!(" · {}{esc}", seconds(elapsed));
    let text = clip(&text, columns.saturating_sub(2 + width(&tail)));
    Some(Line::from(vec![
        Span::styled(format!("{sign} "), ui.theme.accent()),
        Span::raw(text),
        Span::styled(tail, ui.theme.dim()),
    ]))
}
