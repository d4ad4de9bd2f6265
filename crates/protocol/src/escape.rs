//! JSON text that cannot do anything to a terminal that prints it.

use std::io;

/// Formatter that escapes, besides what JSON demands, everything that can move a cursor, hide text or reorder it.
pub(crate) struct TerminalSafe;

impl serde_json::ser::Formatter for TerminalSafe {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        agent_text::write_json_fragment(writer, fragment)
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
    fn characters_that_move_the_cursor_are_escaped() {
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
