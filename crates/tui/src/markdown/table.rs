//! Tables: columns as wide as their content where that fits, cells that go on below themselves where not.

use agent_text::{clip, width};
use pulldown_cmark::Alignment;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::Renderer;
use crate::text::{Break, pad, wrap};

/// A table that is being read.
#[derive(Default)]
pub(super) struct Table {
    pub(super) alignments: Vec<Alignment>,
    pub(super) rows: Vec<Vec<Vec<Span<'static>>>>,
}

impl Renderer {
    pub(super) fn end_table(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        let count = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell_width = |cell: &Vec<Span<'static>>| -> usize {
            cell.iter().map(|span| width(&span.content)).sum()
        };
        let mut widths: Vec<usize> = (0..count)
            .map(|column| {
                table
                    .rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(cell_width)
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        // The widest column gives way until the table fits.
        let room = self
            .columns
            .saturating_sub(3 * count.saturating_sub(1))
            .max(count * 3);
        narrow(&mut widths, room);
        for (number, row) in table.rows.iter().enumerate() {
            // A cell that is too wide goes on in the lines below, so that nothing is cut.
            let cells: Vec<Vec<Line<'static>>> = widths
                .iter()
                .enumerate()
                .map(|(column, room)| {
                    let cell = row.get(column).cloned().unwrap_or_default();
                    wrap(&Line::from(cell), *room, 0, Break::Words)
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..height {
                let mut spans: Vec<Span<'static>> = Vec::new();
                for (column, room) in widths.iter().enumerate() {
                    if column > 0 {
                        spans.push(Span::styled(" │ ", self.theme.dim()));
                    }
                    let mut cell = cells[column].get(at).cloned().unwrap_or_default();
                    if number == 0 {
                        cell = cell.style(self.theme.strong());
                    }
                    let missing = room.saturating_sub(cell.width());
                    let before = match table.alignments.get(column) {
                        Some(Alignment::Right) => missing,
                        Some(Alignment::Center) => missing / 2,
                        _ => 0,
                    };
                    if before > 0 {
                        spans.push(Span::raw(" ".repeat(before)));
                    }
                    spans.extend(styled(pad(cell, *room - before, Style::new())));
                }
                self.push_wrapped(&Line::from(spans), 0, Break::Anywhere);
            }
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|room| "─".repeat(*room)).collect();
                let rule = clip(&rule.join("─┼─"), self.columns);
                self.lines.push(Line::styled(rule, self.theme.dim()));
            }
        }
    }
}

/// Takes from the widest until all together are no wider than `room`.
pub(super) fn narrow(widths: &mut [usize], room: usize) {
    let total = |cap: usize| widths.iter().map(|width| cap.min(*width)).sum::<usize>();
    let widest = widths.iter().copied().max().unwrap_or(0);
    let (mut fits, mut too_wide) = (0, widest + 1);
    while too_wide - fits > 1 {
        let cap = usize::midpoint(fits, too_wide);
        if total(cap) <= room {
            fits = cap;
        } else {
            too_wide = cap;
        }
    }
    let mut left = room.saturating_sub(total(fits));
    for width in widths.iter_mut().filter(|width| **width > fits) {
        *width = fits + usize::from(left > 0);
        left = left.saturating_sub(1);
    }
}

fn styled(line: Line<'static>) -> impl Iterator<Item = Span<'static>> {
    let style = line.style;
    line.spans
        .into_iter()
        .map(move |span| Span::styled(span.content, style.patch(span.style)))
}
