//! Text for the screen: nothing that moves a cursor or reorders text gets through.
#![no_main]

use agent_tool_runtime::escape::visible;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for character in visible(text.as_bytes()).chars() {
        assert!(!character.is_control() || matches!(character, '\n' | '\t'), "{text:?}");
        assert!(!matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'), "{text:?}");
    }
});
