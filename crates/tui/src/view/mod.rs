//! State into lines. A frame is the whole live part of the screen; what is finished leaves it for
//! the terminal's own scrollback through [`print_finished`].

mod answers;
pub mod bottom;
pub mod cells;
pub mod documents;
pub mod looks;
mod outcome;
pub mod overlay;
pub(crate) mod plan;
pub mod prompt;
pub mod question;
pub(crate) mod rule;
pub mod status;

use std::ops::Range;

use ratatui::text::Line;

use crate::markdown;
use crate::state::State;
use crate::state::cell::{AssistantCell, Cell, CellKind};
use crate::state::look::{row_around, row_from};
use crate::theme::Theme;
use crate::ui::overlay::Transcript;
use crate::ui::{Begun, Shown, Ui};

pub use cells::plain_text;

/// One picture of the live part.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    pub lines: Vec<Line<'static>>,
    /// Column and row of the cursor; hidden when there is none.
    pub cursor: Option<(u16, u16)>,
    /// Whether the frame takes the whole screen.
    pub full_screen: bool,
    pub shown: Shown,
}

/// Lines are drawn at least this wide; what a narrower screen cuts off is not shown.
const NARROWEST: usize = 10;

/// Draws the screen into at most `height` lines of at most `columns`.
#[must_use]
pub fn frame(ui: &Ui, columns: usize, height: usize) -> Frame {
    let cramped = columns < NARROWEST;
    let (columns, height) = (columns.max(NARROWEST), height.max(1));
    let mut frame = if ui.overlay.is_some() {
        overlay::frame(ui, columns, height)
    } else if ui.settings.full_screen {
        full_screen(ui, columns, height)
    } else {
        inline(ui, columns, height)
    };
    if cramped {
        // The ends of its lines are not on the screen: nobody has read it.
        if let Some(prompt) = &mut frame.shown.prompt {
            (prompt.scroll.last, prompt.hidden) = (usize::MAX, true);
        }
        if let Some(scroll) = &mut frame.shown.scroll {
            scroll.last = usize::MAX;
        }
    }
    // A frame that is too tall would push its own top into the scrollback.
    if frame.lines.len() > height {
        let surplus = frame.lines.len() - height;
        frame.lines.drain(..surplus);
        frame.cursor = frame.cursor.and_then(|(column, row)| {
            Some((column, row.checked_sub(u16::try_from(surplus).ok()?)?))
        });
    }
    frame
}

fn inline(ui: &Ui, columns: usize, height: usize) -> Frame {
    let bottom = bottom::draw(ui, columns, height);
    if bottom.covers {
        // What does not fit would push itself into the scrollback when the terminal gets smaller.
        return Frame {
            lines: bottom.lines,
            cursor: bottom.cursor,
            full_screen: true,
            shown: bottom.shown,
        };
    }
    let mut lines = live_cells(ui, columns, height.saturating_sub(bottom.lines.len()));
    let offset = u16::try_from(lines.len()).unwrap_or(0);
    lines.extend(bottom.lines);
    Frame {
        lines,
        cursor: bottom.cursor.map(|(column, row)| (column, row + offset)),
        full_screen: false,
        shown: bottom.shown,
    }
}

/// The cells that are not finished yet, or as many of the last ones as there is room for.
fn live_cells(ui: &Ui, columns: usize, room: usize) -> Vec<Line<'static>> {
    let mut drawn: Vec<Vec<Line<'static>>> = Vec::new();
    let (mut used, mut whole) = (0, true);
    for range in live_ranges(ui).into_iter().rev() {
        let index = range.start;
        let Some(cell) = ui.state.cells.get(index) else {
            continue;
        };
        // The question on the screen says all its call could say.
        if let CellKind::Tool(tool) = &cell.kind
            && tool.call_id.is_some()
            && ui
                .current()
                .is_some_and(|pending| pending.call_id == tool.call_id)
        {
            continue;
        }
        let begun = match index == ui.printed.cells {
            true => ui.printed.answer,
            false => Begun::default(),
        };
        let mut lines = match range.len() {
            1 => live_cell(ui, cell, begun, columns),
            _ => folded_row(&ui.state, &range, columns, ui.theme),
        };
        if lines.is_empty() {
            continue;
        }
        // With the gap above it.
        if used + lines.len() + 1 > room {
            // Of an answer the end is worth something, of a call without its title little.
            let is_text = matches!(cell.kind, CellKind::Assistant(_));
            if is_text || drawn.is_empty() {
                let surplus = (used + lines.len()).saturating_sub(room);
                lines.drain(..surplus.min(lines.len()));
                drawn.push(lines);
            }
            whole = false;
            break;
        }
        used += lines.len() + 1;
        drawn.push(lines);
        // What is printed of this answer goes on here.
        whole &= begun.source == 0;
    }
    let mut out = Vec::new();
    for (number, lines) in drawn.into_iter().rev().enumerate() {
        if number > 0 || (whole && ui.printed.any) {
            out.push(Line::default());
        }
        out.extend(lines);
    }
    out
}

/// The cells that are not printed, with rows of calls that only look in one piece.
fn live_ranges(ui: &Ui) -> Vec<Range<usize>> {
    let cells = &ui.state.cells;
    let mut ranges = Vec::new();
    let mut at = ui.printed.cells;
    while at < cells.len() {
        let row = row_from(cells, at, false).filter(|row| row.is_folded());
        let end = row.map_or(at + 1, |row| row.end);
        ranges.push(at..end);
        at = end;
    }
    ranges
}

fn folded_row(
    state: &State,
    range: &Range<usize>,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    match row_from(&state.cells, range.start, true) {
        Some(row) => looks::draw(&state.cells, row, columns, theme),
        None => Vec::new(),
    }
}

/// A block that streams in is drawn with every frame; beyond this size its code has no colours
/// until it is finished.
const COLORED_WHILE_LIVE: usize = 2048;

fn live_cell(ui: &Ui, cell: &Cell, begun: Begun, columns: usize) -> Vec<Line<'static>> {
    match &cell.kind {
        CellKind::Assistant(said) => {
            let left = said.text.len().saturating_sub(begun.bytes + begun.source);
            let theme = Theme {
                plain_code: left > COLORED_WHILE_LIVE,
                ..ui.theme
            };
            rest_of_answer(said, begun, columns, theme)
        }
        _ => cells::draw(cell, cells::Fold::Live(ui.now), columns, ui.theme),
    }
}

/// What is not printed of an answer.
fn rest_of_answer(
    said: &AssistantCell,
    begun: Begun,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let rest = said.text.get(begun.bytes..).unwrap_or_default();
    let (mut lines, marks) = cells::marked_answer(rest, begun, columns, theme);
    lines.drain(..marks.lines_before(begun.source).min(lines.len()));
    if said.interrupted {
        lines.extend(cells::cut_off(columns, theme));
    }
    lines
}

/// What is finished and not printed comes next: a cell, or a row of calls that only look. A row that
/// may go on waits for its end.
#[must_use]
pub fn next_finished(ui: &Ui) -> Option<Range<usize>> {
    let (at, end) = (ui.printed.cells, ui.state.first_open());
    if at >= end {
        return None;
    }
    let is_over = ui.closing || !ui.state.busy();
    match row_from(&ui.state.cells, at, is_over) {
        Some(row) if !row.settled => None,
        Some(row) if row.is_folded() => Some(row.start..row.end),
        _ => Some(at..at + 1),
    }
}

/// What a finished piece of the transcript looks like.
#[must_use]
pub fn finished(
    state: &State,
    range: &Range<usize>,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    match (state.cells.get(range.start), range.len()) {
        (Some(cell), 1) => cells::draw(cell, cells::Fold::Folded, columns, theme),
        (Some(_), _) => folded_row(state, range, columns, theme),
        (None, _) => Vec::new(),
    }
}

/// Lines that are finished and not in the scrollback yet, at most about `most` of them. They are
/// counted as printed from now on.
pub fn print_finished(ui: &mut Ui, columns: usize, most: usize) -> Vec<Line<'static>> {
    let columns = columns.max(NARROWEST);
    let mut lines = Vec::new();
    if ui.settings.full_screen {
        return lines;
    }
    let skipped = std::mem::take(&mut ui.printed.skipped);
    let glimpse = std::mem::take(&mut ui.printed.glimpse);
    if skipped > 0 || glimpse {
        let count = match glimpse {
            true => String::new(),
            false => format!("{skipped} "),
        };
        let text = format!("… {count}earlier entries ({} shows all)", ui.theme.more);
        let told = vec![Line::styled(text, ui.theme.dim())];
        push_block(ui, &mut lines, told, false);
    }
    while lines.len() < most
        && let Some(range) = next_finished(ui)
    {
        let begun = std::mem::take(&mut ui.printed.answer);
        let drawn = match ui.state.cells.get(range.start).map(|cell| &cell.kind) {
            Some(CellKind::Assistant(said)) => rest_of_answer(said, begun, columns, ui.theme),
            _ => finished(&ui.state, &range, columns, ui.theme),
        };
        push_block(ui, &mut lines, drawn, begun.source > 0);
        ui.printed.cells = range.end;
    }
    if ui.printed.cells == ui.state.first_open() && lines.len() < most {
        print_stream(ui, columns, &mut lines);
    }
    lines
}

/// What is finished of the answer that is still arriving: its blocks, and of the last one, which may
/// be longer than any screen, the lines that nothing can change any more.
fn print_stream(ui: &mut Ui, columns: usize, lines: &mut Vec<Line<'static>>) {
    let Some(cell) = ui.state.cells.get(ui.printed.cells).cloned() else {
        return;
    };
    let CellKind::Assistant(assistant) = &cell.kind else {
        return;
    };
    let now = (ui.printed.cells, assistant.recorded);
    if std::mem::replace(&mut ui.printed.looked, now) == now {
        return;
    }
    // Only what is recorded is printed: nothing takes back a line of the scrollback.
    let recorded = assistant.text.get(..assistant.recorded).unwrap_or_default();
    let Some(rest) = recorded.get(ui.printed.answer.bytes..) else {
        return;
    };
    let finished = markdown::finished_prefix(rest);
    let begun = ui.printed.answer;
    // What is printed may be further on than the last block that is finished.
    let end = crate::safe::content(&rest[..finished]).len();
    if finished > 0 && end >= begun.source {
        let (mut drawn, marks) = cells::marked_answer(&rest[..finished], begun, columns, ui.theme);
        let printed = match end == begun.source {
            true => drawn.len(),
            false => marks.lines_before(begun.source).min(drawn.len()),
        };
        drawn.drain(..printed);
        // Blank lines in front of an answer are no beginning.
        if !drawn.is_empty() || begun != Begun::default() {
            ui.printed.answer = Begun {
                bytes: begun.bytes + finished,
                source: 0,
            };
        }
        push_block(ui, lines, drawn, begun.source > 0);
    }
    let begun = ui.printed.answer;
    let rest = recorded.get(begun.bytes..).unwrap_or_default();
    // A line that has only begun may turn out to be anything.
    let whole_lines = rest.rfind('\n').map_or(0, |newline| newline + 1);
    let (mut drawn, marks) = cells::marked_answer(&rest[..whole_lines], begun, columns, ui.theme);
    let (source, stable) = marks.last();
    if source <= begun.source {
        return;
    }
    drawn.truncate(stable);
    drawn.drain(..marks.lines_before(begun.source).min(drawn.len()));
    if drawn.is_empty() {
        return;
    }
    push_block(ui, lines, drawn, begun.source > 0);
    ui.printed.answer.source = source;
}

/// Adds what is finished, below a gap unless it goes on with what is there.
fn push_block(
    ui: &mut Ui,
    lines: &mut Vec<Line<'static>>,
    drawn: Vec<Line<'static>>,
    goes_on: bool,
) {
    if drawn.is_empty() {
        return;
    }
    if ui.printed.any && !goes_on {
        lines.push(Line::default());
    }
    ui.printed.any = true;
    lines.extend(drawn);
}

fn full_screen(ui: &Ui, columns: usize, height: usize) -> Frame {
    let bottom = bottom::draw(ui, columns, height);
    let room = height.saturating_sub(bottom.lines.len());
    let (mut lines, top) = window(&ui.state, &ui.transcript, columns, room, ui.theme, ui.now);
    lines.resize(room, Line::default());
    let offset = u16::try_from(lines.len()).unwrap_or(0);
    lines.extend(bottom.lines);
    let mut shown = bottom.shown;
    shown.transcript = Some(top);
    Frame {
        lines,
        cursor: bottom.cursor.map(|(column, row)| (column, row + offset)),
        full_screen: true,
        shown,
    }
}

fn transcript_cell(
    state: &State,
    transcript: &Transcript,
    index: usize,
    columns: usize,
    theme: Theme,
    now: u64,
) -> Vec<Line<'static>> {
    let Some(cell) = state.cells.get(index) else {
        return Vec::new();
    };
    let row = row_around(&state.cells, index)
        .filter(|row| row.is_folded() && transcript.folds(row.start..row.end));
    if let Some(row) = row {
        // The first of them tells it for all.
        if row.start != index {
            return Vec::new();
        }
        let mut lines = looks::draw(&state.cells, row, columns.saturating_sub(2), theme);
        for line in &mut lines {
            line.spans.insert(0, ratatui::text::Span::raw("  "));
        }
        lines.push(Line::default());
        return lines;
    }
    let fold = if transcript.is_unfolded(index) {
        cells::Fold::Unfolded
    } else if cell.done {
        cells::Fold::Folded
    } else {
        cells::Fold::Live(now)
    };
    let mut lines = cells::draw(cell, fold, columns.saturating_sub(2), theme);
    let lead = if transcript.selected == Some(index) {
        "▌ "
    } else {
        "  "
    };
    for line in &mut lines {
        line.spans
            .insert(0, ratatui::text::Span::styled(lead, theme.accent()));
    }
    lines.push(Line::default());
    lines
}

/// Lines a cell takes in a transcript.
#[must_use]
pub fn cell_height(
    state: &State,
    transcript: &Transcript,
    index: usize,
    columns: usize,
    theme: Theme,
) -> usize {
    transcript_cell(state, transcript, index, columns, theme, 0).len()
}

/// The part of the transcript that fits into `height` lines, and where it begins.
#[must_use]
pub fn window(
    state: &State,
    transcript: &Transcript,
    columns: usize,
    height: usize,
    theme: Theme,
    now: u64,
) -> (Vec<Line<'static>>, (usize, usize)) {
    let draw = |index| transcript_cell(state, transcript, index, columns, theme, now);
    if !transcript.follow {
        let (mut lines, mut index) = (Vec::new(), transcript.top);
        while lines.len() < height + transcript.above && index < state.cells.len() {
            lines.extend(draw(index));
            index += 1;
        }
        if lines.len() >= height + transcript.above || transcript.top == 0 && transcript.above == 0
        {
            let lines = lines
                .into_iter()
                .skip(transcript.above)
                .take(height)
                .collect();
            return (lines, (transcript.top, transcript.above));
        }
        // The end is in sight: fill the window from the end instead of showing emptiness.
    }
    let mut parts: Vec<Vec<Line<'static>>> = Vec::new();
    let (mut have, mut index) = (0, state.cells.len());
    while have < height && index > 0 {
        index -= 1;
        let part = draw(index);
        have += part.len();
        parts.push(part);
    }
    let above = have.saturating_sub(height);
    let lines = parts.into_iter().rev().flatten().skip(above).collect();
    (lines, (index, above))
}
