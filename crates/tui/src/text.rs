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

/// Columns `text` takes.
#[must_use]
pub fn width(text: &str) -> usize {
    text.width()
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

/// `text` in at most `columns`, with `…` where something was cut. Only for places where the whole
/// text is one key away.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for part in text.graphemes(true) {
        used += part.width();
        if used > columns {
            break;
        }
        out.push_str(part);
    }
    if columns > 0 {
        out.push('…');
    }
    out
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

/// Milliseconds in words short enough for a status line.
#[must_use]
pub fn duration(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis}ms"),
        1000..10_000 => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        10_000..60_000 => format!("{}s", millis / 1000),
        60_000..3_600_000 => format!("{}m{:02}s", millis / 60_000, millis / 1000 % 60),
        _ => format!("{}h{:02}m", millis / 3_600_000, millis / 60_000 % 60),
    }
}

/// Time that goes on, in whole seconds.
#[must_use]
pub fn seconds(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{}s", millis / 1000),
        _ => duration(millis),
    }
}

/// Bytes in words.
#[must_use]
pub fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KB", count as f64 / 1024.0),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}

/// Tokens in words.
#[must_use]
pub fn tokens(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{:.1}k", count as f64 / 1000.0),
        _ => format!("{:.1}M", count as f64 / 1_000_000.0),
    }
}

/// Money in words; small amounts keep two significant digits.
#[must_use]
pub fn money(amount: f64) -> String {
    if amount > 0.0 && amount < 0.01 {
        format!("${amount:.4}")
    } else {
        format!("${amount:.2}")
    }
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

    #[test]
    fn a_cut_says_that_it_is_one() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("漢字漢字", 4), "漢…");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(duration(950), "950ms");
        assert_eq!(duration(1250), "1.2s");
        assert_eq!(duration(61_000), "1m01s");
        assert_eq!(seconds(3_900), "3s");
        assert_eq!(seconds(61_900), "1m01s");
        assert_eq!(bytes(2048), "2.0 KB");
        assert_eq!(tokens(12_345), "12.3k");
        assert_eq!(money(0.0042), "$0.0042");
    }
}
