//! Columns as a terminal counts them.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Columns that a plain line takes.
#[must_use]
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.width()
    }
}

/// `text` in at most `columns`, with `…` where something was cut.
#[must_use]
pub fn clip(text: &str, columns: usize) -> String {
    if width(text) <= columns {
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

/// Splits where the next character would not fit; the first part has at least one character.
#[must_use]
pub fn split_at_column(text: &str, columns: usize) -> (&str, &str) {
    let mut column = 0;
    for (at, character) in text.char_indices() {
        column += character.width().unwrap_or(0);
        if column > columns && at > 0 {
            return text.split_at(at);
        }
    }
    (text, "")
}

/// Breaks `text` at blanks so that no line is wider than `columns`, where words allow it; later lines begin with
/// `indent` blanks.
#[must_use]
pub fn wrap(text: &str, columns: usize, indent: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut column = 0;
    for word in text.split(' ') {
        let needed = width(word);
        if column > 0 && column + 1 + needed > columns {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += needed;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_counted_as_a_terminal_does() {
        assert_eq!(width("漢字a"), 5);
        assert_eq!(split_at_column("漢字", 1), ("漢", "字"));
    }

    #[test]
    fn lines_fit() {
        assert_eq!(clip("漢字漢字", 5), "漢字…");
        assert_eq!(clip("漢字漢字", 4), "漢…");
        assert_eq!(clip("plain", 5), "plain");
        assert_eq!(clip("plainly", 5), "plai…");
        assert_eq!(clip("plainly", 0), "");
        assert_eq!(wrap("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrap("unbreakable", 4, 2), "unbreakable");
    }
}
