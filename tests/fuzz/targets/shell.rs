//! The shell parser: no script panics or hangs the scan before it, the parser or the walk behind it, and
//! a script of the small language is cut by a second splitter into the same commands and words.
#![no_main]

#[allow(dead_code)] // what is allowed is the business of `gate`
#[path = "../../../crates/policy/tests/splitter/mod.rs"]
mod splitter;

use std::path::Path;

use agent_policy::shell::{Place, Start, analyse, prescan, segments};
use libfuzzer_sys::fuzz_target;

// The parser may panic, and the analysis catches that; libFuzzer's hook would abort first.
fuzz_target!(init: drop(std::panic::take_hook()), |script: &str| {
    let start = Start {
        directory: "/project".into(),
        home: "/home/user".into(),
        is_directory: &|path: &Path| path.starts_with("/project").then_some(true),
    };
    let analysis = analyse(script, &start);
    let segments = segments(script);
    if prescan(script).is_err() {
        assert!(analysis.parse_error.is_some(), "a refused script was parsed");
    }
    if analysis.parse_error.is_some() {
        assert!(analysis.small.is_err(), "what is not understood is proven");
    }
    let Ok(commands) = &analysis.small else { return };
    if let Some(difference) = splitter::difference(script, commands) {
        panic!("{difference}");
    }
    // Detection in text sees every word that proof sees, unless quotes hide where it ends.
    if script.contains(['"', '\'', '\\', '$', '~']) {
        return;
    }
    for word in commands.iter().filter(|command| command.place == Place::Plain).flat_map(|command| &command.words) {
        let Some(text) = word.text().filter(|text| is_plain(text)) else { continue };
        assert!(segments.iter().flatten().any(|seen| seen == text), "{text:?}");
    }
});

fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/'))
}
