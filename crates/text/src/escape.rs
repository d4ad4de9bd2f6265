//! Hidden characters written out, one way per purpose: [`visible`] for models and terminals, [`visible_line`] and
//! [`visible_lines`] for people, [`write_json_fragment`] for JSON.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

use crate::invisible::{first_hidden, is_hidden, is_part_of_emoji};

/// Text of `bytes` with everything hidden written out: newlines and tabs stay, `\r\n` is a newline; control
/// characters, escape sequences, bidirectional and zero-width characters appear as `\x1b` or `\u{202e}`, invalid
/// UTF-8 as `\xff`. Emoji stay whole.
#[must_use]
pub fn visible(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    push_visible(&mut out, bytes);
    out
}

/// Appends to `out` what [`visible`] returns.
pub fn push_visible(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        push_text(out, chunk.valid(), Breaks::AreLines);
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

/// `text` in one line with everything hidden written out; breaks become `\n`, tabs a blank.
#[must_use]
pub fn visible_line(text: &str) -> Cow<'_, str> {
    if is_plain(text, b"") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push_str("\\n");
        }
        for (number, part) in line.split('\t').enumerate() {
            if number > 0 {
                out.push(' ');
            }
            push_text(&mut out, part, Breaks::AreHidden);
        }
    }
    Cow::Owned(out)
}

/// [`visible_line`] cut to `max_chars` characters; a cut ends in `…` and never inside an escape.
#[must_use]
pub fn visible_excerpt(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    let mut previous = ' ';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let before = out.len();
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push(' '),
            hidden if is_hidden(hidden) => {
                if is_part_of_emoji(previous, hidden, rest.peek().copied()) {
                    out.push(hidden);
                } else {
                    push_escape(&mut out, hidden);
                }
            }
            seen => out.push(seen),
        }
        count += out[before..].chars().count();
        if count > max_chars {
            out.truncate(before);
            out.push('…');
            break;
        }
        previous = character;
    }
    out
}

/// `text` of several lines with everything hidden written out: breaks stay, a tab is four blanks.
#[must_use]
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    if is_plain(text, b"\n") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for (number, part) in text.split('\t').enumerate() {
        if number > 0 {
            out.push_str("    ");
        }
        push_text(&mut out, part, Breaks::AreLines);
    }
    Cow::Owned(out)
}

/// Writes a piece of a JSON string with everything hidden as JSON's own escapes, so that a terminal that prints the
/// text does nothing with it. What JSON itself demands must have been done.
///
/// # Errors
/// Those of `writer`.
pub fn write_json_fragment<W: io::Write + ?Sized>(
    writer: &mut W,
    fragment: &str,
) -> io::Result<()> {
    // Most text is plain ASCII, and is copied after two scans at memory speed.
    if fragment.is_ascii() && !fragment.as_bytes().contains(&0x7F) {
        return writer.write_all(fragment.as_bytes());
    }
    let mut written = 0;
    while let Some((at, hidden)) = first_hidden(fragment, written) {
        writer.write_all(&fragment.as_bytes()[written..at])?;
        // As JSON does: what is beyond four digits takes two.
        for unit in hidden.encode_utf16(&mut [0; 2]) {
            write!(writer, "\\u{unit:04x}")?;
        }
        written = at + hidden.len_utf8();
    }
    writer.write_all(&fragment.as_bytes()[written..])
}

/// Meaning of `\r\n` and `\n` for a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Breaks {
    AreLines,
    AreHidden,
}

fn is_plain(text: &str, besides: &[u8]) -> bool {
    text.bytes()
        .all(|byte| (0x20..0x7F).contains(&byte) || besides.contains(&byte))
}

fn push_text(out: &mut String, text: &str, breaks: Breaks) {
    let mut written = 0;
    while let Some((at, hidden)) = first_hidden(text, written) {
        out.push_str(&text[written..at]);
        written = at + hidden.len_utf8();
        if hidden == '\r' && breaks == Breaks::AreLines && text[written..].starts_with('\n') {
            continue;
        }
        push_escape(out, hidden);
    }
    out.push_str(&text[written..]);
}

fn push_escape(out: &mut String, hidden: char) {
    let code = u32::from(hidden);
    // Writing into a string has no way to fail.
    let _ = match hidden {
        '\r' => out.write_str("\\r"),
        '\0'..='\x7f' => write!(out, "\\x{code:02x}"),
        _ => write!(out, "\\u{{{code:x}}}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(visible(bytes), expected);
    }

    #[test]
    fn plain_text_stays() {
        check("a\tb\nü 漢字 – ok".as_bytes(), "a\tb\nü 漢字 – ok");
        check(b"one\r\ntwo\r\n", "one\ntwo\n");
        check(
            "⚠\u{fe0f} 👩\u{200d}💻".as_bytes(),
            "⚠\u{fe0f} 👩\u{200d}💻",
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        check(b"\x1b[2J\x07\x7f\0x", r"\x1b[2J\x07\x7f\x00x");
        check(b"10%\r20%", r"10%\r20%");
        check(
            "\u{9b}31m\u{202e}abc\u{200b}".as_bytes(),
            r"\u{9b}31m\u{202e}abc\u{200b}",
        );
        check("\u{e0041}\u{feff}".as_bytes(), r"\u{e0041}\u{feff}");
        check("a\u{200d}b\u{fe0f}".as_bytes(), r"a\u{200d}b\u{fe0f}");
    }

    #[test]
    fn invalid_bytes_are_named() {
        check(b"caf\xe9 \xf0\x9f end\xff", r"caf\xe9 \xf0\x9f end\xff");
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(visible_line("a\nb\x1b\tc\r\n"), r"a\nb\x1b c\r\n");
        assert_eq!(visible_line("grün 漢字"), "grün 漢字");
        assert_eq!(visible_lines("a\r\n\tb\u{7f}\n"), "a\n    b\\x7f\n");
        assert_eq!(visible_lines("a\rb"), "a\\rb");
    }

    #[test]
    fn a_cut_line_ends_before_an_escape() {
        assert_eq!(visible_excerpt("a\nb\x1b", 100), r"a\nb\x1b");
        assert_eq!(visible_excerpt("abcdef", 3), "abc…");
        assert_eq!(visible_excerpt("ab\x1b", 3), "ab…");
        assert_eq!(visible_excerpt("ab\u{202e}c", 6), "ab…");
        assert_eq!(visible_excerpt("ab\u{202e}c", 10), r"ab\u{202e}…");
        assert_eq!(visible_excerpt("é漢", 2), "é漢");
        assert_eq!(visible_excerpt("", 0), "");
    }

    #[test]
    fn json_stays_the_same_json() {
        let mut out = Vec::new();
        write_json_fragment(&mut out, "so\u{ad}ft \u{180e}\u{e0041} ᠠ 𝄞\u{7f}").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r"so\u00adft \u180e\udb40\udc41 ᠠ 𝄞\u007f"
        );
    }

    proptest::proptest! {
        #[test]
        fn nothing_hidden_comes_through(bytes: Vec<u8>, text: String) {
            let shown = visible(&bytes);
            proptest::prop_assert_eq!(first_hidden(&shown, 0), None);
            for text in [&shown, &text] {
                let line = visible_line(text);
                proptest::prop_assert_eq!(first_hidden(&line, 0), None);
                proptest::prop_assert!(!line.contains(['\n', '\t']));
                let short = visible_excerpt(text, 40);
                proptest::prop_assert!(short.chars().count() <= 41);
                proptest::prop_assert!(line.starts_with(short.trim_end_matches('…')));
            }
        }
    }
}
