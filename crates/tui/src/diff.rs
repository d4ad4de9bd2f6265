//! Diffs as lines: with line numbers and code colours, in one column or side by side. Every line
//! of the diff is shown, wrapped and never cut, with what cannot be seen written out.

use std::time::Duration;

use agent_evidence::compare;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::highlight::{Highlighter, worth_coloring};
use crate::safe::{self, Piece};
use crate::text::{Break, pad, wrap};
use crate::theme::Theme;

/// From this width on old and new stand side by side.
pub const SIDE_BY_SIDE: usize = 110;

/// How long a frame waits for a short diff.
const LONGEST: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    /// File names, hunk heads and notes.
    Head(String),
    Same(u64, u64, String),
    Removed(u64, String),
    Added(u64, String),
}

impl Row {
    fn removed(&self) -> Option<(u64, &str)> {
        match self {
            Self::Removed(number, text) => Some((*number, text)),
            _ => None,
        }
    }

    fn added(&self) -> Option<(u64, &str)> {
        match self {
            Self::Added(number, text) => Some((*number, text)),
            _ => None,
        }
    }
}

/// Lines a diff adds and removes.
#[must_use]
pub fn counts(diff: &str) -> (usize, usize) {
    let rows = parse(diff);
    (
        rows.iter()
            .filter(|row| matches!(row, Row::Added(..)))
            .count(),
        rows.iter()
            .filter(|row| matches!(row, Row::Removed(..)))
            .count(),
    )
}

/// The unified diff from `old` to `new`.
#[must_use]
pub fn between(path: &str, old: &str, new: &str) -> String {
    let names = (&*format!("a/{path}"), &*format!("b/{path}"));
    compare::unified(old, new, names, LONGEST)
}

/// `diff`, a unified diff, as lines of at most `columns`.
#[must_use]
pub fn render(diff: &str, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    draw(&parse(diff), diff, columns, theme)
}

/// The same under a title that names `path`: its own names are left out when they say no more.
#[must_use]
pub fn render_under(
    path: Option<&str>,
    diff: &str,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let rows = parse(diff);
    let names = match rows.as_slice() {
        [Row::Head(old), Row::Head(new), ..] => {
            let old = old.strip_prefix("--- ").unwrap_or_default();
            let new = new.strip_prefix("+++ b/");
            let same = old == "/dev/null" || old.strip_prefix("a/") == path;
            usize::from(path.is_some() && new == path && same) * 2
        }
        _ => 0,
    };
    draw(&rows[names..], diff, columns, theme)
}

fn draw(rows: &[Row], diff: &str, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let path = path_of(diff);
    let path = if worth_coloring(diff) { &path } else { "" };
    let mut page = Page {
        old_code: Highlighter::for_path(path, theme),
        new_code: Highlighter::for_path(path, theme),
        digits: digits_of(rows),
        columns,
        // Where there is nothing to compare, one column has more room.
        two_sided: columns >= SIDE_BY_SIDE
            && rows.iter().any(|row| matches!(row, Row::Removed(..)))
            && rows.iter().any(|row| matches!(row, Row::Added(..))),
        theme,
        out: Vec::new(),
    };
    let mut at = 0;
    while at < rows.len() {
        match &rows[at] {
            Row::Head(text) => {
                let line = Line::styled(safe::one_line(text), theme.accent());
                page.out.extend(wrap(&line, columns, 2, Break::Anywhere));
                at += 1;
            }
            Row::Same(old, new, text) => {
                page.same(*old, *new, text);
                at += 1;
            }
            Row::Removed(..) | Row::Added(..) => {
                let is_change = |row: &&Row| matches!(row, Row::Removed(..) | Row::Added(..));
                let end = at + rows[at..].iter().take_while(is_change).count();
                page.changed(&rows[at..end]);
                at = end;
            }
        }
    }
    page.out
}

fn digits_of(rows: &[Row]) -> usize {
    let numbers = rows.iter().map(|row| match row {
        Row::Head(_) => 0,
        Row::Same(old, new, _) => *old.max(new),
        Row::Removed(number, _) | Row::Added(number, _) => *number,
    });
    numbers.max().unwrap_or(0).to_string().len()
}

/// What a diff is drawn on.
struct Page {
    old_code: Highlighter,
    new_code: Highlighter,
    digits: usize,
    columns: usize,
    two_sided: bool,
    theme: Theme,
    out: Vec<Line<'static>>,
}

impl Page {
    fn same(&mut self, old: u64, new: u64, text: &str) {
        self.old_code.line(&plain(text));
        let spans = code_spans(text, &mut self.new_code, self.theme, Style::new());
        let spans = with_blanks(spans, Blanks::AsTheyAre, self.theme, Style::new());
        let entry = |number| Some((number, ' ', spans.clone(), Style::new()));
        if self.two_sided {
            let half = half_of(self.columns);
            let left = self.side(entry(old), half);
            let right = self.side(entry(new), half);
            self.beside(left, right);
        } else {
            let rows = self.side(entry(new), self.columns);
            self.out.extend(rows);
        }
    }

    fn changed(&mut self, rows: &[Row]) {
        let theme = self.theme;
        let removed: Vec<(u64, &str)> = rows.iter().filter_map(Row::removed).collect();
        let added: Vec<(u64, &str)> = rows.iter().filter_map(Row::added).collect();
        // Lines that stand against each other show which words differ.
        let paired = removed.len() == added.len();
        let mut old_sides = Vec::new();
        let mut new_sides = Vec::new();
        for (place, (number, text)) in removed.iter().enumerate() {
            let mut spans = code_spans(text, &mut self.old_code, theme, theme.removed());
            if paired {
                emphasise(&mut spans, text, added[place].1, false);
            }
            let spans = with_blanks(spans, Blanks::Shown, theme, theme.removed());
            old_sides.push((*number, '-', spans, theme.removed()));
        }
        for (place, (number, text)) in added.iter().enumerate() {
            let mut spans = code_spans(text, &mut self.new_code, theme, theme.added());
            if paired {
                emphasise(&mut spans, text, removed[place].1, true);
            }
            let spans = with_blanks(spans, Blanks::Shown, theme, theme.added());
            new_sides.push((*number, '+', spans, theme.added()));
        }
        if !self.two_sided {
            for entry in old_sides.into_iter().chain(new_sides) {
                let rows = self.side(Some(entry), self.columns);
                self.out.extend(rows);
            }
            return;
        }
        let half = half_of(self.columns);
        let (mut old_sides, mut new_sides) = (old_sides.into_iter(), new_sides.into_iter());
        loop {
            let (left, right) = (old_sides.next(), new_sides.next());
            if left.is_none() && right.is_none() {
                break;
            }
            let left = self.side(left, half);
            let right = self.side(right, half);
            self.beside(left, right);
        }
    }

    /// One numbered line, wrapped under its own text.
    fn side(&self, entry: Option<Side>, columns: usize) -> Vec<Line<'static>> {
        let Some((number, sign, spans, style)) = entry else {
            return vec![Line::default()];
        };
        let digits = self.digits;
        let room = columns.saturating_sub(digits + 3).max(8);
        let rows = wrap(&Line::from(spans), room, 0, Break::Anywhere);
        rows.into_iter()
            .enumerate()
            .map(|(place, mut row)| {
                let (number, sign) = if place == 0 {
                    (format!("{number:>digits$} "), format!("{sign} "))
                } else {
                    // A wrapped line is no line of the file: it has no number and a mark of its own.
                    (format!("{:>digits$} ", ""), "↪ ".to_owned())
                };
                row.spans.insert(0, Span::styled(sign, style));
                row.spans.insert(0, Span::styled(number, self.theme.dim()));
                // A coloured line is coloured to its end.
                if style.bg.is_some() {
                    row = pad(row, columns, style);
                }
                row
            })
            .collect()
    }

    fn beside(&mut self, left: Vec<Line<'static>>, right: Vec<Line<'static>>) {
        let height = left.len().max(right.len());
        let (mut left, mut right) = (left.into_iter(), right.into_iter());
        let half = half_of(self.columns);
        for _ in 0..height {
            let mut line = pad(left.next().unwrap_or_default(), half, Style::new());
            line.spans.push(Span::styled(" │ ", self.theme.dim()));
            line.spans.extend(right.next().unwrap_or_default().spans);
            self.out.push(line);
        }
    }
}

type Side = (u64, char, Vec<Span<'static>>, Style);

fn half_of(columns: usize) -> usize {
    (columns - 3) / 2
}

fn plain(text: &str) -> String {
    text.trim_end_matches('\r').to_owned()
}

/// The line in code colours on the diff's own background; marks where something cannot be seen.
fn code_spans(
    text: &str,
    code: &mut Highlighter,
    theme: Theme,
    style: Style,
) -> Vec<Span<'static>> {
    let colored = code.line(&plain(text));
    let pieces = match safe::exact(text).into_iter().next() {
        Some(pieces) => pieces,
        None => return vec![Span::styled(String::new(), style)],
    };
    // Indentation is part of code: tabs and blanks are drawn as they are, other marks are not.
    let unusual =
        |piece: &Piece| piece.mark && piece.text != "\\t" && !piece.text.ends_with(" spaces⟩");
    if !pieces.iter().any(unusual) {
        // Where the letters' colour tells that a line is new or gone, code has none of its own.
        let code = |own| style.fg.map_or(style.patch(own), |_| style);
        let spans = colored.into_iter();
        let spans = spans.map(|span| Span::styled(span.content, code(span.style)));
        return spans.collect();
    }
    pieces
        .into_iter()
        .map(|piece| {
            if piece.mark {
                Span::styled(piece.text, theme.mark())
            } else {
                Span::styled(piece.text, style)
            }
        })
        .collect()
}

/// How blanks are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blanks {
    AsTheyAre,
    /// Tabs and blanks at the end of a line, which would look like nothing or like each other.
    Shown,
}

/// The line with its tabs drawn, and where blanks are what changed, with those that cannot be seen.
fn with_blanks(
    spans: Vec<Span<'static>>,
    blanks: Blanks,
    theme: Theme,
    style: Style,
) -> Vec<Span<'static>> {
    let said: String = spans.iter().map(|span| span.content.as_ref()).collect();
    let end = said.trim_end_matches([' ', '\t']).len();
    if !said.contains('\t') && (blanks == Blanks::AsTheyAre || end == said.len()) {
        return spans;
    }
    let mark = style.patch(theme.dim());
    let mut out: Vec<Span<'static>> = Vec::new();
    let mut at = 0;
    for span in spans {
        let mut text = String::new();
        for character in span.content.chars() {
            let shown = match (character, blanks) {
                ('\t', Blanks::Shown) => Some("→   "),
                ('\t', Blanks::AsTheyAre) => Some("    "),
                (' ', Blanks::Shown) if at >= end => Some("·"),
                _ => None,
            };
            at += character.len_utf8();
            match shown {
                None => text.push(character),
                Some(shown) => {
                    if !text.is_empty() {
                        out.push(Span::styled(std::mem::take(&mut text), span.style));
                    }
                    out.push(Span::styled(shown, mark));
                }
            }
        }
        if !text.is_empty() {
            out.push(Span::styled(text, span.style));
        }
    }
    out
}

/// Underlines the words of `text`, which is new or old, that are not in `other`.
fn emphasise(spans: &mut Vec<Span<'static>>, text: &str, other: &str, is_new: bool) {
    if text.len() + other.len() > 2000 {
        return;
    }
    let said: String = spans.iter().map(|span| span.content.as_ref()).collect();
    if said != text {
        return;
    }
    let (own, others) = (words(text), words(other));
    let (old, new) = if is_new {
        (&others, &own)
    } else {
        (&own, &others)
    };
    let changed = compare::changes(old, new, Duration::from_millis(5));
    let places = |change: &compare::Changed| match is_new {
        true => change.new.clone(),
        false => change.old.clone(),
    };
    let mut ranges = Vec::new();
    let (mut at, mut same) = (0, 0);
    for (place, word) in own.iter().enumerate() {
        if changed.iter().any(|change| places(change).contains(&place)) {
            ranges.push(at..at + word.len());
        } else {
            same += word.trim().len();
        }
        at += word.len();
    }
    // When hardly anything is the same, marking everything says nothing.
    if same * 3 < text.trim().len() {
        return;
    }
    let mut out = Vec::new();
    let mut start = 0;
    for span in spans.drain(..) {
        let mut piece = String::new();
        let mut marked = false;
        for (offset, character) in span.content.char_indices() {
            let inside = ranges.iter().any(|range| range.contains(&(start + offset)));
            if inside != marked && !piece.is_empty() {
                out.push(Span::styled(
                    std::mem::take(&mut piece),
                    emphasis(span.style, marked),
                ));
            }
            marked = inside;
            piece.push(character);
        }
        if !piece.is_empty() {
            out.push(Span::styled(piece, emphasis(span.style, marked)));
        }
        start += span.content.len();
    }
    *spans = out;
}

/// Words and what is between them.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let blank = first.is_whitespace();
        let end = rest.find(|character: char| character.is_whitespace() != blank);
        let (word, later) = rest.split_at(end.unwrap_or(rest.len()));
        words.push(word);
        rest = later;
    }
    words
}

fn emphasis(style: Style, marked: bool) -> Style {
    if marked {
        style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    } else {
        style
    }
}

fn path_of(diff: &str) -> String {
    diff.lines()
        .find_map(|line| line.strip_prefix("+++ "))
        .map(|path| path.trim_start_matches("b/").trim().to_owned())
        .unwrap_or_default()
}

fn parse(diff: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut old, mut new) = (0u64, 0u64);
    // Lines left in the open hunk; only there do `+` and `-` mean a changed line.
    let (mut old_left, mut new_left) = (0u64, 0u64);
    for line in diff.split('\n') {
        if old_left == 0 && new_left == 0 {
            if let Some((old_start, old_count, new_start, new_count)) = hunk(line) {
                (old, new) = (old_start, new_start);
                (old_left, new_left) = (old_count, new_count);
            }
            if !line.is_empty() {
                rows.push(Row::Head(line.to_owned()));
            }
            continue;
        }
        if let Some(text) = line.strip_prefix('+') {
            rows.push(Row::Added(new, text.to_owned()));
            new += 1;
            new_left = new_left.saturating_sub(1);
        } else if let Some(text) = line.strip_prefix('-') {
            rows.push(Row::Removed(old, text.to_owned()));
            old += 1;
            old_left = old_left.saturating_sub(1);
        } else if line.starts_with('\\') {
            rows.push(Row::Head(line.to_owned()));
        } else {
            let text = line.strip_prefix(' ').unwrap_or(line);
            rows.push(Row::Same(old, new, text.to_owned()));
            old += 1;
            new += 1;
            old_left = old_left.saturating_sub(1);
            new_left = new_left.saturating_sub(1);
        }
    }
    rows
}

/// `@@ -1,3 +1,4 @@` as numbers.
fn hunk(line: &str) -> Option<(u64, u64, u64, u64)> {
    let mut parts = line.strip_prefix("@@ ")?.split(' ');
    let range = |text: &str| -> Option<(u64, u64)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let (old_start, old_count) = range(parts.next()?.strip_prefix('-')?)?;
    let (new_start, new_count) = range(parts.next()?.strip_prefix('+')?)?;
    Some((old_start, old_count, new_start, new_count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str =
        "--- a/x.txt\n+++ b/x.txt\n@@ -1,4 +1,4 @@\n one\n-two\n-three\n+2\n+3\n four\n";

    fn drawn(diff: &str, columns: usize) -> Vec<String> {
        render(diff, columns, Theme::default())
            .iter()
            .map(|line| line.to_string().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn every_line_has_its_number() {
        assert_eq!(
            drawn(DIFF, 40),
            [
                "--- a/x.txt",
                "+++ b/x.txt",
                "@@ -1,4 +1,4 @@",
                "1   one",
                "2 - two",
                "3 - three",
                "2 + 2",
                "3 + 3",
                "4   four"
            ]
        );
        assert_eq!(counts(DIFF), (2, 2));
    }

    #[test]
    fn wide_screens_show_both_sides() {
        let rows = drawn(DIFF, 120);
        assert_eq!(rows.len(), 7);
        assert!(
            rows[4].starts_with("2 - two ") && rows[4].ends_with("│ 2 + 2"),
            "{rows:?}"
        );
    }

    #[test]
    fn a_long_line_is_wrapped_and_whole() {
        let diff = format!("@@ -0,0 +1 @@\n+{}\n", "x".repeat(100));
        let rows = drawn(&diff, 40);
        assert_eq!(rows.join("").matches('x').count(), 100);
        assert!(rows[2].starts_with("  ↪ "), "{rows:?}");
    }

    #[test]
    fn lines_that_look_like_heads_are_lines() {
        let diff = "@@ -1,2 +1,2 @@\n--- a/evil\n+++ b/evil\n same\n";
        assert_eq!(
            drawn(diff, 40)[1..],
            ["1 - -- a/evil", "1 + ++ b/evil", "2   same"]
        );
    }

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        let diff = "@@ -0,0 +1 @@\n+a\u{202e}b\x1b[0m\n";
        assert_eq!(drawn(diff, 40)[1], "1 + a⟨U+202E⟩b\\x1b[0m");
    }

    /// Tabs against blanks, and blanks at the end: nothing looks alike that is not.
    #[test]
    fn a_change_of_blanks_can_be_seen() {
        let diff = "@@ -1,3 +1,3 @@\n-\tsame\n+    same\n-end\n+end  \n \tkept  \n";
        assert_eq!(
            drawn(diff, 40)[1..],
            [
                "1 - →   same",
                "2 - end",
                "1 +     same",
                "2 + end··",
                "3       kept"
            ]
        );
    }

    #[test]
    fn what_has_nothing_beside_it_has_the_whole_width() {
        let diff = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+one\n+two\n";
        assert_eq!(
            drawn(diff, 120),
            [
                "--- /dev/null",
                "+++ b/x",
                "@@ -0,0 +1,2 @@",
                "1 + one",
                "2 + two"
            ]
        );
    }

    #[test]
    fn a_title_that_names_the_file_is_enough() {
        let under = |path: &str| {
            let lines = render_under(Some(path), DIFF, 40, Theme::default());
            lines[0].to_string()
        };
        assert_eq!(under("x.txt"), "@@ -1,4 +1,4 @@");
        assert_eq!(under("link-to-x"), "--- a/x.txt");
    }

    #[test]
    fn a_diff_of_two_texts_names_the_file() {
        assert!(between("f", "a\n", "b\n").contains("+++ b/f"));
    }
}
