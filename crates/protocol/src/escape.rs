//! JSON text that cannot do anything to a terminal that prints it.

use std::io;

/// Escapes, besides what JSON demands, everything that can move a cursor, hide text or reorder it:
/// DEL, C1 controls, line and paragraph separators, zero-width and bidirectional controls.
pub(crate) struct TerminalSafe;

impl serde_json::ser::Formatter for TerminalSafe {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Most text is plain ASCII, and is passed in two looks at memory speed.
        if fragment.is_ascii() && !fragment.as_bytes().contains(&0x7F) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((at, risky)) = first_risky(rest) {
            writer.write_all(&rest.as_bytes()[..at])?;
            // As JSON does: what is beyond four digits takes two.
            for unit in risky.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + risky.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// A JSON value as text that is safe to print, as the log's own lines are.
#[must_use]
pub fn to_terminal_safe_json(value: &serde_json::Value) -> String {
    use serde::Serialize as _;
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, TerminalSafe);
    // Writing a value that is JSON already into memory has no way to fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(out).unwrap_or_default()
}

fn first_risky(text: &str) -> Option<(usize, char)> {
    let bytes = text.as_bytes();
    // Every risky character starts with one of these bytes, so plain text is passed in one look.
    let mut from = 0;
    while let Some(found) = bytes[from..]
        .iter()
        .position(|byte| matches!(byte, 0x7F | 0xC2 | 0xD8 | 0xE1 | 0xE2 | 0xEF | 0xF3))
    {
        let at = from + found;
        let character = text[at..].chars().next()?;
        if is_risky(character) {
            return Some((at, character));
        }
        from = at + character.len_utf8();
    }
    None
}

fn is_risky(character: char) -> bool {
    matches!(character,
        '\u{7F}'..='\u{9F}' | '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{2069}' | '\u{206A}'..='\u{206F}' | '\u{FEFF}'
        | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use serde::Serialize as _;

    fn check(text: &str, expected: &str) {
        let mut out = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut out, super::TerminalSafe);
        text.serialize(&mut serializer).unwrap();
        assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }

    #[test]
    fn what_moves_the_cursor_is_written_as_an_escape() {
        check("plain é ü 漢字 – “quoted”", "\"plain é ü 漢字 – “quoted”\"");
        check(
            "a\u{1b}[2K\u{7f}\u{9b}31m",
            r#""a\u001b[2K\u007f\u009b31m""#,
        );
        check(
            "x\u{202e}y\u{200b}\u{2028}\u{feff}",
            r#""x\u202ey\u200b\u2028\ufeff""#,
        );
        check(
            "so\u{ad}ft \u{180e}\u{e0041} ᠠ 𝄞",
            r#""so\u00adft \u180e\udb40\udc41 ᠠ 𝄞""#,
        );
    }
}
