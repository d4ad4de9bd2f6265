//! Text that cannot do anything to a terminal.

use std::fmt::Write as _;

/// `text` with everything made visible that could move a cursor, hide or reorder text, as
/// `\u{1b}`; line breaks too, so the result is one line.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => shown.push(' '),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            _ if is_risky(character) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// JSON text with the same characters as JSON escapes.
pub(super) fn json_safe(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if character != '\n' && is_risky(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Control characters, and the format characters that hide or reorder what stands beside them.
fn is_risky(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_unescaped() {
        assert_eq!(visible("a\u{1b}[31mb\u{9b}2J"), "a\\u{1b}[31mb\\u{9b}2J");
        assert_eq!(
            visible("safe.txt\u{202e}gpj.exe"),
            "safe.txt\\u{202e}gpj.exe"
        );
        assert_eq!(visible("two\nlines\tgrün 漢字"), "two\\nlines grün 漢字");
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({"a": "\u{7f}\u{202e}\u{e0041}\n\u{1b}"});
        let shown = json_safe(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!shown.chars().any(|c| c != '\n' && is_risky(c)), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }
}
