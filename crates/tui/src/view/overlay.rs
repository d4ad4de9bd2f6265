//! Overlays: the whole screen for a while.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Frame, window};
use crate::host::{Document, DocumentFormat, FirstRun};
use crate::text::{Break, cut, wrap, wrap_all};
use crate::theme::Theme;
use crate::ui::overlay::{Overlay, Picker, Scroll};
use crate::ui::{Shown, Ui};
use crate::{diff, markdown, safe};

pub(super) fn frame(ui: &Ui, columns: usize, height: usize) -> Frame {
    let theme = ui.theme;
    let mut shown = Shown::default();
    let (title, body, keys) = match &ui.overlay {
        Some(Overlay::Transcript(transcript)) => {
            let room = height.saturating_sub(3);
            let (lines, top) = window(&ui.state, transcript, columns, room, theme, ui.now);
            shown.transcript = Some(top);
            let title = format!(
                "transcript · from entry {} of {}",
                top.0 + 1,
                ui.state.cells.len()
            );
            (
                title,
                lines,
                "↑↓ PgUp PgDn · Tab next, Enter folds out, a all · w why · y copy · q leaves",
            )
        }
        Some(Overlay::Reader(reader)) => {
            let lines = document(&reader.document, columns, theme);
            let (lines, scroll) = scrolled(lines, reader.scroll, height.saturating_sub(3));
            shown.scroll = Some(scroll);
            (
                position(&reader.document.title, scroll),
                lines,
                "↑↓ PgUp PgDn · q leaves",
            )
        }
        Some(Overlay::Picker(picker)) => {
            let lines = picker_lines(picker, columns, height.saturating_sub(3), theme);
            (
                picker.title.clone(),
                lines,
                "↑↓ choose · Enter takes · type to filter · Esc leaves",
            )
        }
        Some(Overlay::FirstRun(found)) => (
            first_run_title(ui),
            first_run(found, columns, theme),
            "d demo · Enter goes on · q leaves",
        ),
        Some(Overlay::Trust(question, scroll)) => {
            let mut lines = Vec::new();
            let text = format!(
                "{} wants to change what this project may do. Nothing of it holds yet; it can only tighten. This is what would change:",
                safe::one_line(&question.file)
            );
            lines.extend(wrap(&Line::from(text), columns, 0, Break::Words));
            lines.push(Line::default());
            lines.extend(diff::render(&question.diff, columns, theme));
            let (lines, scroll) = scrolled(lines, *scroll, height.saturating_sub(3));
            shown.scroll = Some(scroll);
            let title = position("Trust this project's configuration?", scroll);
            (
                title,
                lines,
                "t trust exactly this content · i ignore it · q leave",
            )
        }
        None => (String::new(), Vec::new(), ""),
    };
    let mut lines = vec![Line::from(vec![Span::styled(
        cut(&title, columns),
        theme.strong(),
    )])];
    lines.extend(body);
    lines.truncate(height.saturating_sub(2));
    lines.resize(height.saturating_sub(2), Line::default());
    // A question that waits must not go unseen, and must not be answered by keys meant for here.
    if ui.current().is_some() {
        let text = "? a question waits for your answer; leave this view to see it";
        lines.push(Line::styled(cut(text, columns), theme.warn()));
    } else if let Some((hint, _)) = &ui.hint {
        lines.push(Line::styled(cut(hint, columns), theme.warn()));
    } else {
        lines.push(Line::default());
    }
    lines.push(Line::styled(cut(keys, columns), theme.dim()));
    Frame {
        lines,
        cursor: None,
        full_screen: true,
        shown,
    }
}

/// A document as lines.
#[must_use]
pub fn document(document: &Document, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    match document.format {
        DocumentFormat::Markdown => markdown::render(&document.text, columns, theme),
        DocumentFormat::Diff => diff::render(&document.text, columns, theme),
        DocumentFormat::Plain => {
            let lines: Vec<Line<'static>> = safe::content(&document.text)
                .lines()
                .map(|line| Line::from(line.to_owned()))
                .collect();
            wrap_all(&lines, columns, 2, Break::Words)
        }
    }
}

fn scrolled(
    lines: Vec<Line<'static>>,
    scroll: Scroll,
    room: usize,
) -> (Vec<Line<'static>>, Scroll) {
    let last = lines.len().saturating_sub(room);
    let at = scroll.at.min(last);
    let lines = lines.into_iter().skip(at).take(room).collect();
    let scroll = Scroll {
        at,
        last,
        page: room,
    };
    (lines, scroll)
}

fn position(title: &str, scroll: Scroll) -> String {
    let title = safe::one_line(title);
    match (scroll.at * 100).checked_div(scroll.last) {
        Some(percent) => format!("{title} · {percent}%"),
        None => title,
    }
}

fn picker_lines(picker: &Picker, columns: usize, room: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !picker.filter.is_empty() {
        let text = format!("filter: {}", safe::one_line(&picker.filter));
        lines.push(Line::styled(cut(&text, columns), theme.dim()));
    }
    let rows = picker.rows();
    if rows.is_empty() {
        lines.push(Line::styled("nothing here", theme.dim()));
    }
    let first = picker.selected.saturating_sub(room.saturating_sub(2));
    for (number, (_, label, detail)) in rows.iter().enumerate().skip(first).take(room) {
        let selected = number == picker.selected;
        let label = cut(label, columns.saturating_sub(2));
        let left = columns.saturating_sub(4 + crate::text::width(&label));
        let style = if selected {
            theme.selected()
        } else {
            Style::new()
        };
        lines.push(Line::from(vec![
            Span::raw(if selected { "▸ " } else { "  " }),
            Span::styled(label, style),
            Span::styled(format!("  {}", cut(detail, left)), theme.dim()),
        ]));
    }
    lines
}

fn first_run_title(ui: &Ui) -> String {
    format!("agent {}", ui.settings.version)
        .trim_end()
        .to_owned()
}

fn first_run(found: &FirstRun, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    let intro = "No model is set up yet. This is what was looked for:";
    lines.extend(wrap(&Line::from(intro), columns, 0, Break::Words));
    for (what, there) in &found.found {
        let (sign, style) = if *there {
            ("✓ found   ", theme.good())
        } else {
            ("· not found", theme.dim())
        };
        let line = Line::from(vec![
            Span::styled(format!("  {sign} "), style),
            Span::raw(safe::one_line(what)),
        ]);
        lines.extend(wrap(&line, columns, 4, Break::Words));
    }
    lines.push(Line::default());
    lines.extend(wrap(
        &Line::from("Any one of these is enough:"),
        columns,
        0,
        Break::Words,
    ));
    for line in &found.to_set {
        let line = Line::styled(format!("  {}", safe::one_line(line)), theme.code());
        lines.extend(wrap(&line, columns, 4, Break::Anywhere));
    }
    lines.push(Line::default());
    let demo = "Or press d: the demo fixes a failing test in a throw-away project, without a key and without a network.";
    lines.extend(wrap(&Line::from(demo), columns, 0, Break::Words));
    lines
}
