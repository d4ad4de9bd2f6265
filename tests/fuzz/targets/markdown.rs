//! Answers on the screen: no Markdown panics the renderer, no control character comes out of it, every
//! line fits, what is drawn grows with the text and not with its square, and a finished block stays as
//! it was drawn. The first character chooses the width.
#![no_main]

use agent_tui::markdown::{finished_prefix, render};
use agent_tui::theme::Theme;
use libfuzzer_sys::fuzz_target;
use unicode_width::UnicodeWidthStr;

fuzz_target!(|data: &str| {
    let mut characters = data.chars();
    let Some(first) = characters.next() else { return };
    let text = characters.as_str();
    let columns = 8 + first as usize % 120;
    let lines = drawn(text, columns);
    for line in &lines {
        assert!(!line.chars().any(is_dangerous), "{line:?}");
        assert!(line.width() <= columns, "{} of {columns}: {line:?}", line.width());
    }
    let cells: usize = lines.iter().map(|line| line.len()).sum();
    assert!(cells + lines.len() <= 64 * (text.len() + columns), "{cells} bytes drawn for {}", text.len());

    let finished = finished_prefix(text);
    assert!(finished <= text.len() && text.is_char_boundary(finished));
});

fn drawn(text: &str, columns: usize) -> Vec<String> {
    render(text, columns, Theme::default()).iter().map(ToString::to_string).collect()
}

/// Moves a cursor or reorders text.
fn is_dangerous(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}
