//! Text that cannot do anything to a terminal, and fits it.

use std::fmt::Write as _;
use std::io;

use agent_tool_runtime::escape::{is_hidden, visible_line};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// `text` in one line, with everything made visible that could move a cursor, hide or reorder
/// text, as `\x1b`.
pub(crate) fn visible(text: &str) -> String {
    visible_line(text, usize::MAX)
}

/// The same for text of several lines: line breaks and tabs stay.
pub(crate) fn visible_text(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(visible).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// JSON text with the same characters as JSON escapes.
pub(super) fn json_safe(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if is_hidden(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Passes JSON on as [`json_safe`] would have it. A writer of JSON never cuts a character in two.
pub(super) struct JsonSafe<'a>(pub(super) &'a mut dyn io::Write);

impl io::Write for JsonSafe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_ascii() && !bytes.iter().any(u8::is_ascii_control) {
            self.0.write_all(bytes)?;
        } else {
            let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
            self.0.write_all(json_safe(text).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Breaks `text` at spaces so that no line is wider than `width`, where words allow it.
pub(super) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut column = 0;
    for word in text.split(' ') {
        let needed = word.width();
        if column > 0 && column + 1 + needed > width {
            let _ = write!(wrapped, "\n{:indent$}", "");
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

/// `text` in at most `width` columns, its loss marked by `…`.
pub(crate) fn clip(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut clipped = String::new();
    let mut column = 0;
    for character in text.chars() {
        column += character.width().unwrap_or(0);
        if column >= width {
            break;
        }
        clipped.push(character);
    }
    clipped.push('…');
    clipped
}

/// `1 turn`, `2 turns`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// A number of bytes with two or three digits.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" || value >= 9.95 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_unescaped() {
        assert_eq!(visible("a\u{1b}[31mb\u{9b}2J"), "a\\x1b[31mb\\u{9b}2J");
        assert_eq!(
            visible("safe.txt\u{202e}gpj.exe"),
            "safe.txt\\u{202e}gpj.exe"
        );
        assert_eq!(visible("two\nlines\tgrün 漢字"), "two\\nlines grün 漢字");
    }

    #[test]
    fn lines_fit() {
        assert_eq!(wrap("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrap("unbreakable", 4, 2), "unbreakable");
        assert_eq!(clip("漢字漢字", 5), "漢字…");
        assert_eq!(clip("plain", 5), "plain");
        assert_eq!(clip("plainly", 5), "plai…");
    }

    #[test]
    fn bytes_are_readable() {
        let shown: Vec<String> = [0, 999, 1000, 1536, 10 << 20, 3 << 40]
            .map(human_bytes)
            .into();
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.0 KB", "1.5 KB", "10 MB", "3.0 TB"]
        );
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({"a": "\u{7f}\u{202e}\u{e0041}\n\u{1b}"});
        let shown = json_safe(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!shown.chars().any(is_hidden), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }
}
