//! Lines in columns: wrapping, cutting and padding with the widths the terminal uses.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Where a line may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Between words, and inside a word only when it is wider than the line.
    Words,
    /// Anywhere, so that what is shown is what is there: code, commands, output.
    Anywhere,
}

/// Breaks `line` into lines of at most `columns`; all but the first begin with `hang` blanks.
#[must_use]
pub fn wrap(
    line: &Line<'static>,
    columns: usize,
    hang: usize,
    breaks: Break,
) -> Vec<Line<'static>> {
    let columns = columns.max(2);
    if line.width() <= columns {
        return vec![line.clone()];
    }
    let hang = hang.min(columns / 2);
    let graphemes: Vec<(&str, Style, usize)> = line
        .spans
        .iter()
        .flat_map(|span| {
            let style = line.style.patch(span.style);
            span.content
                .graphemes(true)
                .map(move |part| (part, style, part.width()))
        })
        .collect();
    let mut rows = Vec::new();
    let (mut start, mut used, mut last_space) = (0, 0, None);
    let mut at = 0;
    while at < graphemes.len() {
        let room = if rows.is_empty() {
            columns
        } else {
            columns - hang
        };
        let (part, _, part_width) = graphemes[at];
        if used + part_width > room && at > start {
            let (end, next) = match last_space {
                Some(space) if breaks == Break::Words && space > start => (space, space + 1),
                _ => (at, at),
            };
            rows.push(&graphemes[start..end]);
            start = next;
            at = next;
            used = 0;
            last_space = None;
            continue;
        }
        if part == " " {
            last_space = Some(at);
        }
        used += part_width;
        at += 1;
    }
    if start < graphemes.len() || rows.is_empty() {
        rows.push(&graphemes[start..]);
    }
    rows.into_iter()
        .enumerate()
        .map(|(number, row)| {
            let mut spans: Vec<Span<'static>> = Vec::new();
            if number > 0 && hang > 0 {
                spans.push(Span::raw(" ".repeat(hang)));
            }
            // The hanging blanks stay a span of their own, without the text's style.
            let lead = spans.len();
            for (part, style, _) in row {
                let mergeable = spans.len() > lead;
                match spans.last_mut() {
                    Some(last) if mergeable && last.style == *style => {
                        last.content.to_mut().push_str(part);
                    }
                    _ => spans.push(Span::styled((*part).to_owned(), *style)),
                }
            }
            Line::from(spans)
        })
        .collect()
}

/// Wraps every line of `lines`.
#[must_use]
pub fn wrap_all(
    lines: &[Line<'static>],
    columns: usize,
    hang: usize,
    breaks: Break,
) -> Vec<Line<'static>> {
    lines
        .iter()
        .flat_map(|line| wrap(line, columns, hang, breaks))
        .collect()
}

/// Adds blanks until the line is `columns` wide.
#[must_use]
pub fn pad(mut line: Line<'static>, columns: usize, style: Style) -> Line<'static> {
    let missing = columns.saturating_sub(line.width());
    if missing > 0 {
        line.spans.push(Span::styled(" ".repeat(missing), style));
    }
    line
}

/// Puts `prefix` before every line; the first line gets `first` instead.
#[must_use]
pub fn indent(
    lines: Vec<Line<'static>>,
    first: &Span<'static>,
    prefix: &Span<'static>,
) -> Vec<Line<'static>> {
    lines
        .into_iter()
        .enumerate()
        .map(|(number, mut line)| {
            let lead = if number == 0 { first } else { prefix };
            line.spans.insert(0, lead.clone());
            line
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, columns: usize, breaks: Break, expected: &[&str]) {
        let line = Line::from(text.to_owned());
        let rows: Vec<String> = wrap(&line, columns, 0, breaks)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(rows, expected, "{text:?}");
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        check("one two three", 8, Break::Words, &["one two", "three"]);
        check("one two three", 8, Break::Anywhere, &["one two ", "three"]);
        check("abcdefghij", 4, Break::Words, &["abcd", "efgh", "ij"]);
        check("漢字漢字", 5, Break::Words, &["漢字", "漢字"]);
        check(
            "e\u{301}e\u{301}e\u{301}",
            2,
            Break::Anywhere,
            &["e\u{301}e\u{301}", "e\u{301}"],
        );
        check("", 5, Break::Words, &[""]);
    }
}
