//! Text from anywhere, made safe to print: what could move a cursor, hide or reorder text is shown
//! as an escape.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

/// Whether a character does something else than stand there.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}'
            | '\u{E0000}'..='\u{E0FFF}')
}

/// One line: breaks and tabs become escapes and spaces too.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    if is_plain_ascii(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut previous = ' ';
    for (character, next) in with_next(text) {
        push(&mut shown, previous, character, next);
        previous = character;
    }
    Cow::Owned(shown)
}

/// Each character with the one after it.
fn with_next(text: &str) -> impl Iterator<Item = (char, Option<char>)> {
    let after = text.chars().skip(1).map(Some).chain([None]);
    text.chars().zip(after)
}

/// True if `character`, which joins or colours emoji and is unseen elsewhere, stands with one.
#[must_use]
pub fn is_part_of_emoji(previous: char, character: char, next: Option<char>) -> bool {
    let is_pictograph = |character: char| {
        matches!(character,
            '\u{A9}' | '\u{AE}' | '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
            | '\u{2190}'..='\u{2BFF}' | '\u{3030}' | '\u{303D}' | '\u{3297}' | '\u{3299}'
            | '\u{FE0F}' | '\u{1F000}'..='\u{1FAFF}')
    };
    match character {
        '\u{FE0F}' => {
            // Keycaps are digits with a frame.
            let is_key = matches!(previous, '0'..='9' | '#' | '*') && next == Some('\u{20E3}');
            previous != character && (is_pictograph(previous) || is_key)
        }
        '\u{200D}' => is_pictograph(previous) && next.is_some_and(is_pictograph),
        _ => false,
    }
}

/// Several lines: breaks stay, tabs become spaces.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    if text
        .bytes()
        .all(|byte| byte == b'\n' || (0x20..0x7F).contains(&byte))
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut previous = ' ';
    for (character, next) in with_next(text) {
        match character {
            '\n' => shown.push('\n'),
            '\r' if next == Some('\n') => {}
            '\t' => shown.push_str("    "),
            other => push(&mut shown, previous, other, next),
        }
        previous = character;
    }
    Cow::Owned(shown)
}

fn push(shown: &mut String, previous: char, character: char, next: Option<char>) {
    match character {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push(' '),
        joiner if is_part_of_emoji(previous, joiner, next) => shown.push(joiner),
        hidden if is_hidden(hidden) => {
            let code = u32::from(hidden);
            // Writing into a string has no way to fail.
            let _ = if code < 0x80 {
                write!(shown, "\\x{code:02x}")
            } else {
                write!(shown, "\\u{{{code:x}}}")
            };
        }
        other => shown.push(other),
    }
}

fn is_plain_ascii(text: &str) -> bool {
    text.bytes().all(|byte| (0x20..0x7F).contains(&byte))
}

/// How many columns a plain line takes.
pub(crate) fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars()
            .map(|character| character.width().unwrap_or(0))
            .sum()
    }
}

/// The first `columns` columns of a plain line.
pub(crate) fn clip(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let (kept, _) = split_at_column(text, columns.saturating_sub(1));
    Cow::Owned(format!("{kept}…"))
}

/// Splits where the next character would not fit; the first part has at least one character.
pub(crate) fn split_at_column(text: &str, columns: usize) -> (&str, &str) {
    let mut column = 0;
    for (at, character) in text.char_indices() {
        column += character.width().unwrap_or(0);
        if column > columns && at > 0 {
            return text.split_at(at);
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts_on_a_terminal() {
        assert_eq!(
            line("a\u{1b}[2J\nb\tc\u{202e}d"),
            "a\\x1b[2J\\nb c\\u{202e}d"
        );
        assert_eq!(lines("a\r\n\tb\u{7f}\n"), "a\n    b\\x7f\n");
        assert_eq!(lines("a\rb"), "a\\rb");
        assert_eq!(line("grün 漢字"), "grün 漢字");
    }

    #[test]
    fn emoji_stay_whole_and_nothing_hides_behind_them() {
        for whole in [
            "⚠\u{fe0f} careful",
            "👩\u{200d}💻",
            "❤\u{fe0f}\u{200d}🔥",
            "1\u{fe0f}\u{20e3}",
            "👨🏽\u{200d}🚀",
        ] {
            assert_eq!(line(whole), whole);
            assert_eq!(lines(whole), whole);
        }
        assert_eq!(line("a\u{200d}b\u{fe0f}"), "a\\u{200d}b\\u{fe0f}");
        assert_eq!(line("⚠\u{fe0f}\u{fe0f}"), "⚠\u{fe0f}\\u{fe0f}");
        assert_eq!(line("💻\u{200d}x 1\u{fe0f}x"), "💻\\u{200d}x 1\\u{fe0f}x");
    }

    #[test]
    fn columns_are_counted_as_a_terminal_does() {
        assert_eq!(width("漢字a"), 5);
        assert_eq!(clip("漢字漢字", 5), "漢字…");
        assert_eq!(split_at_column("漢字", 1), ("漢", "字"));
    }
}
