//! What stands beside the transcript: the audit card of a call, or the files as they were then.

use agent_evidence::replay::Card;
use agent_history::workspace::{PathAt, PathState};
use ratatui::text::{Line, Span};

use crate::safe;
use crate::text::{Break, pad, wrap_all};
use crate::theme::Theme;
use agent_text::clip;

/// From this width on a panel stands at the side, below it at the foot.
const WIDE: usize = 100;

/// Which panel is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panel {
    #[default]
    None,
    /// The audit card of the call in view.
    Card,
    /// The files that changed so far.
    Files,
}

/// How the screen is shared between the transcript and a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    Whole,
    /// Columns of the transcript and of the panel; one more is the line between them.
    Side(usize, usize),
    /// Rows of the transcript and of the panel; one more is the line between them.
    Foot(usize, usize),
}

impl Split {
    pub(super) fn of(panel: Panel, columns: usize, room: usize) -> Self {
        match panel {
            Panel::None => Self::Whole,
            _ if columns >= WIDE => {
                let side = (columns * 2 / 5).clamp(36, 70);
                Self::Side(columns - side - 1, side)
            }
            _ => {
                let foot = (room / 2).max(4).min(room.saturating_sub(1));
                Self::Foot(room.saturating_sub(foot + 1), foot)
            }
        }
    }

    /// Columns and rows of the transcript.
    pub(super) fn transcript(self, columns: usize, room: usize) -> (usize, usize) {
        match self {
            Self::Whole => (columns, room),
            Self::Side(left, _) => (left, room),
            Self::Foot(top, _) => (columns, top),
        }
    }

    /// Columns and rows of the panel.
    pub(super) fn panel(self, columns: usize, room: usize) -> (usize, usize) {
        match self {
            Self::Whole => (0, 0),
            Self::Side(_, right) => (right, room),
            Self::Foot(_, foot) => (columns, foot),
        }
    }

    /// Puts both together.
    pub(super) fn join(
        self,
        mut transcript: Vec<Line<'static>>,
        mut panel: Vec<Line<'static>>,
        columns: usize,
        room: usize,
        theme: Theme,
    ) -> Vec<Line<'static>> {
        match self {
            Self::Whole => {
                transcript.resize(room, Line::default());
                transcript
            }
            Self::Foot(top, foot) => {
                transcript.resize(top, Line::default());
                panel.resize(foot, Line::default());
                transcript.push(Line::styled("─".repeat(columns), theme.dim()));
                transcript.extend(panel);
                transcript
            }
            Self::Side(left, _) => {
                transcript.resize(room, Line::default());
                panel.resize(room, Line::default());
                let rows = transcript.into_iter().zip(panel).map(|(line, beside)| {
                    // A style of the whole line must not run on into the panel.
                    let style = line.style;
                    let mut row = pad(line, left, style);
                    for span in &mut row.spans {
                        span.style = style.patch(span.style);
                    }
                    row.style = ratatui::style::Style::default();
                    row.spans.push(Span::styled("│", theme.dim()));
                    let style = beside.style;
                    let spans = beside.spans.into_iter();
                    row.spans.extend(spans.map(|mut span| {
                        span.style = style.patch(span.style);
                        span
                    }));
                    row
                });
                rows.collect()
            }
        }
    }
}

/// The lines of a card.
pub(super) fn card_lines(card: &Card, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let title = format!("{} {}", safe::one_line(&card.tool_name), card.tool_call_id);
    let mut lines = vec![Line::styled(clip(&title, columns), theme.strong())];
    for answer in card.answers.iter().chain(&card.more) {
        let places = match answer.events.as_slice() {
            [] => String::new(),
            [only] => format!(" [{only}]"),
            [first, .., last] => format!(" [{first}…{last}]"),
        };
        let question = Line::styled(format!("{}{places}", answer.question), theme.dim());
        lines.extend(wrap_all(&[question], columns, 2, Break::Words));
        let said = match &answer.answer {
            Some(said) => safe::content(said),
            None => "unknown".to_owned(),
        };
        let style = match answer.answer {
            Some(_) => ratatui::style::Style::default(),
            None => theme.warn(),
        };
        let rows: Vec<Line<'static>> = said
            .lines()
            .map(|row| Line::styled(format!("  {row}"), style))
            .collect();
        lines.extend(wrap_all(&rows, columns, 4, Break::Words));
    }
    lines
}

/// The lines of the list of files; `selected` is the one that Enter opens.
pub(super) fn file_lines(
    files: &[PathAt],
    selected: usize,
    columns: usize,
    room: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let title = match files.len() {
        0 => "no file changed yet".to_owned(),
        1 => "1 path changed so far".to_owned(),
        count => format!("{count} paths changed so far"),
    };
    let mut lines = vec![Line::styled(clip(&title, columns), theme.strong())];
    let rows = room.saturating_sub(1).max(1);
    let from = (selected + 1).saturating_sub(rows);
    for (index, file) in files.iter().enumerate().skip(from).take(rows) {
        let (mark, style) = match (&file.start, &file.now) {
            (PathState::Unknown, _) | (_, PathState::Unknown) => ("?", theme.warn()),
            (PathState::Missing, PathState::Missing) => ("·", theme.dim()),
            (PathState::Missing, _) => ("+", theme.good()),
            (_, PathState::Missing) => ("-", theme.bad()),
            (start, now) if start.same_as(now) == Some(true) => ("=", theme.dim()),
            _ => ("~", theme.accent()),
        };
        let slash = match [&file.start, &file.now]
            .iter()
            .any(|state| matches!(state, PathState::Directory { .. }))
        {
            true => "/",
            false => "",
        };
        let times = match file.changes {
            1 => String::new(),
            more => format!(" ×{more}"),
        };
        let pointer = if index == selected { "›" } else { " " };
        let name = format!("{}{slash}{times}", safe::one_line(&file.path));
        let text = clip(&name, columns.saturating_sub(4));
        let mut line = Line::from(vec![
            Span::raw(format!("{pointer} ")),
            Span::styled(format!("{mark} "), style),
            Span::raw(text),
        ]);
        if index == selected {
            line = line.style(theme.selected());
        }
        lines.push(line);
    }
    lines
}

/// What a path is, in words, for one that has no text to show.
pub(super) fn in_words(state: &PathState) -> String {
    match state {
        PathState::Unknown => "The log does not show what it was.".to_owned(),
        PathState::Missing => "There is nothing at this path.".to_owned(),
        PathState::Directory { mode } => match mode {
            Some(mode) => format!("A directory, mode {mode:04o}."),
            None => "A directory.".to_owned(),
        },
        PathState::Special { kind } => format!("A {kind}."),
        PathState::File(content) | PathState::Symlink(content) => {
            let size = content.bytes.map_or_else(
                || "of unknown size".to_owned(),
                |bytes| format!("of {bytes} bytes"),
            );
            format!("A file {size}; its content is not kept in the session.")
        }
    }
}
