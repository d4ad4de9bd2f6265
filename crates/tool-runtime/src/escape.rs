//! Text from outside made safe to show: whatever could move a cursor, hide text or reorder it
//! becomes visible, and bytes that are no UTF-8 are named.

use std::fmt::Write as _;

/// `bytes` as text. Newlines and tabs stay, `\r\n` is a newline; other control characters, escape
/// sequences, bidirectional and zero-width characters appear as `\x1b` or `\u{202e}`, invalid
/// UTF-8 as `\xff`.
#[must_use]
pub fn visible(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    push_visible(&mut out, bytes);
    out
}

/// Appends to `out` what [`visible`] returns.
pub fn push_visible(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        push_text(out, chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

/// One line of at most `max_chars` characters for a status display: newlines and tabs are made
/// visible too, and a cut ends in `…`.
#[must_use]
pub fn visible_line(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    for character in text.chars() {
        let before = out.len();
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push(' '),
            other => push_char(&mut out, other),
        }
        count += out[before..].chars().count();
        if count > max_chars {
            out.truncate(before);
            out.push('…');
            break;
        }
    }
    out
}

fn push_text(out: &mut String, text: &str) {
    let mut plain_from = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        // Plain ASCII is most of everything.
        if (' '..='~').contains(&character) || character == '\n' || character == '\t' {
            continue;
        }
        if character == '\r' && matches!(characters.peek(), Some((_, '\n'))) {
            out.push_str(&text[plain_from..at]);
        } else if is_hidden(character) {
            out.push_str(&text[plain_from..at]);
            push_char(out, character);
        } else {
            continue;
        }
        plain_from = at + character.len_utf8();
    }
    out.push_str(&text[plain_from..]);
}

fn push_char(out: &mut String, character: char) {
    match character {
        '\r' => out.push_str("\\r"),
        '\0'..='\x7f' if is_hidden(character) => {
            let _ = write!(out, "\\x{:02x}", u32::from(character));
        }
        other if is_hidden(other) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(other));
        }
        other => out.push(other),
    }
}

/// Whether a character does something other than being seen.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    matches!(character,
        '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
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
    }

    #[test]
    fn what_acts_on_a_terminal_is_shown() {
        check(b"\x1b[2J\x07\x7f\0x", r"\x1b[2J\x07\x7f\x00x");
        check(b"10%\r20%", r"10%\r20%");
        check(
            "\u{9b}31m\u{202e}abc\u{200b}".as_bytes(),
            r"\u{9b}31m\u{202e}abc\u{200b}",
        );
        check("\u{e0041}\u{feff}".as_bytes(), r"\u{e0041}\u{feff}");
    }

    #[test]
    fn invalid_bytes_are_named() {
        check(b"caf\xe9 \xf0\x9f end\xff", r"caf\xe9 \xf0\x9f end\xff");
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(visible_line("a\nb\x1b", 100), r"a\nb\x1b");
        assert_eq!(visible_line("abcdef", 3), "abc…");
        assert_eq!(visible_line("ab\x1b", 3), "ab…");
    }

    proptest::proptest! {
        #[test]
        fn nothing_hidden_comes_through(bytes: Vec<u8>) {
            let shown = visible(&bytes);
            proptest::prop_assert!(!shown.chars().any(is_hidden));
            let line = visible_line(&shown, 40);
            proptest::prop_assert!(!line.contains(['\n', '\t']));
            proptest::prop_assert!(line.chars().count() <= 41);
        }
    }
}
