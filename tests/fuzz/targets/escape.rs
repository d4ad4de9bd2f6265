//! Foreign text for models, questions and the screen: nothing that moves a cursor or reorders text gets
//! through any of the filters.
#![no_main]

use agent_text::{visible, visible_excerpt};
use agent_tui::safe::{content, exact, one_line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(&visible(bytes), "\n\t");
    let text = String::from_utf8_lossy(bytes);
    check(&content(&text), "\n");
    check(&one_line(&text), "");
    let line = visible_excerpt(&text, 40);
    check(&line, "");
    assert!(line.chars().count() <= 41, "{line:?}");
    for piece in exact(&text).iter().flatten() {
        check(&piece.text, "");
    }
});

fn check(filtered: &str, allowed: &str) {
    for character in filtered.chars() {
        assert!(!character.is_control() || allowed.contains(character), "{filtered:?}");
        let reorders = matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
        assert!(!reorders, "{filtered:?}");
    }
}
