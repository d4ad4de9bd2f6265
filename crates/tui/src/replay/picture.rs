//! The player as lines: transcript, panel, the place in time and what the keys do.

use ratatui::text::{Line, Span};

use super::Player;
use super::panel::{self, Panel, Split};
use crate::safe;
use crate::theme::Theme;
use crate::view::{self, Frame};
use agent_text::clip;
use agent_text::words::duration;

impl Player {
    /// The screen of the player.
    #[must_use]
    pub fn frame(&self, columns: usize, height: usize, theme: Theme) -> Frame {
        let room = height.saturating_sub(3);
        let (mut lines, top) = match &self.reading {
            Some(reader) => {
                let title = Line::styled(
                    clip(&safe::one_line(&reader.document.title), columns),
                    theme.strong(),
                );
                let lines = view::overlay::document(&reader.document, columns, theme);
                let text = lines.into_iter().skip(reader.scroll.at);
                let mut lines: Vec<_> = std::iter::once(title).chain(text).take(room).collect();
                lines.resize(room, Line::default());
                (lines, None)
            }
            None => {
                let split = Split::of(self.panel, columns, room);
                let (width, rows) = split.transcript(columns, room);
                let (lines, top) =
                    view::window(&self.state, &self.transcript, width, rows, theme, 0);
                let panel = self.panel_lines(split.panel(columns, room), theme);
                (split.join(lines, panel, columns, room, theme), Some(top))
            }
        };
        lines.push(Line::default());
        lines.push(Line::from(vec![Span::styled(
            clip(&self.place(columns), columns),
            theme.strong(),
        )]));
        lines.push(Line::styled(
            clip(&self.help(columns), columns),
            theme.dim(),
        ));
        let mut frame = Frame {
            lines,
            cursor: None,
            full_screen: true,
            ..Frame::default()
        };
        frame.shown.transcript = top;
        frame
    }

    fn panel_lines(&self, (columns, rows): (usize, usize), theme: Theme) -> Vec<Line<'static>> {
        match self.panel {
            Panel::None => Vec::new(),
            Panel::Files => {
                let files = self.files();
                let selected = self.selected_file.min(files.len().saturating_sub(1));
                panel::file_lines(&files, selected, columns, rows, theme)
            }
            Panel::Card => match &self.card {
                Some(shown) => panel::card_lines(&shown.card, columns, theme)
                    .into_iter()
                    .skip(self.panel_scroll)
                    .take(rows)
                    .collect(),
                None => vec![Line::styled("no call yet", theme.dim())],
            },
        }
    }

    /// Where it is, in one line.
    fn place(&self, columns: usize) -> String {
        let count = self.source.count();
        // Events go by their number in the log, as in the text and with `--at`: the first is 0.
        let (here, last) = (self.position.saturating_sub(1), count.saturating_sub(1));
        let done = (here * 100).checked_div(last).unwrap_or(100);
        let mark = if self.playing { "▶" } else { "⏸" };
        match (&self.problem, &self.typing, &self.notice) {
            (Some(problem), _, _) => format!("{mark} cannot read on: {problem}"),
            (None, Some(text), _) => format!("search: {}▏", safe::one_line(text)),
            (None, None, Some(notice)) => format!("{mark} {notice}"),
            (None, None, None) if self.is_moving() => {
                format!("{mark} reading event {here} of {last}")
            }
            (None, None, None) => {
                let place = match count {
                    0 => return format!("{mark} no event"),
                    _ => format!("{mark} event {here} of {last} ({done}%)"),
                };
                let speed = match self.speed {
                    1 => String::new(),
                    speed => format!(" · speed {speed}x"),
                };
                let at = self.last_time.map(|time| time.to_string());
                let at = at.unwrap_or_default();
                // Of the time the hour is worth more than the day.
                let hour = at.get(11..19).unwrap_or_default();
                let kind = &self.last_kind;
                let forms = [
                    format!("{place} · {kind} · {at}{speed}"),
                    format!("{place} · {kind} · {hour}{speed}"),
                    format!("{place} · {kind}{speed}"),
                ];
                widest(forms, columns)
            }
        }
    }

    fn help(&self, columns: usize) -> String {
        if self.reading.is_some() {
            return "↑ ↓ PgUp PgDn scroll · any other key closes".to_owned();
        }
        if self.typing.is_some() {
            return "Enter searches from here on · Esc leaves".to_owned();
        }
        let elapsed = self.state.facts.turn.as_ref().and_then(|turn| {
            self.last_time
                .map(|now| format!("turn {} · ", duration(now.millis_since(turn.started_at))))
        });
        let elapsed = elapsed.unwrap_or_default();
        let forms = match self.panel {
            Panel::None => [
                "replay, nothing runs · ? keys · q leaves · Space plays · ←→ event · c call · t turn · i card · o files",
                "replay, nothing runs · ? keys · q leaves · Space plays · ←→ event · i card",
                "replay, nothing runs · ? keys · q leaves · Space plays",
            ],
            Panel::Card => [
                "card: ↑ ↓ PgUp PgDn scroll · q closes it · ? keys · Space plays · ←→ event · c call · o files",
                "card: ↑ ↓ PgUp PgDn scroll · q closes it · ? keys · ←→ event",
                "card: ↑ ↓ PgUp PgDn scroll · q closes it",
            ],
            Panel::Files => [
                "files: ↑ ↓ choose · Enter shows · x changes · q closes them · ? keys · Space plays · ←→ event",
                "files: ↑ ↓ choose · Enter shows · x changes · q closes them · ? keys",
                "files: ↑ ↓ Enter · x changes · q closes them",
            ],
        };
        widest(forms.map(|form| format!("{elapsed}{form}")), columns)
    }
}

/// The first of `forms`, which get shorter, that fits; the last one if none does.
fn widest(forms: [String; 3], columns: usize) -> String {
    let fits = |form: &&String| agent_text::width(form) <= columns;
    let form = forms.iter().find(fits).or(forms.last());
    form.cloned().unwrap_or_default()
}
