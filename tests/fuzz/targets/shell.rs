//! The shell parser: no script panics or hangs the scan before it, the parser or the walk behind it, and
//! a script that is understood is read by a second splitter as the same words.
#![no_main]

#[allow(dead_code)] // what is allowed is the business of `gate`
#[path = "../../../crates/tool-runtime/tests/splitter/mod.rs"]
mod splitter;

use std::path::Path;

use agent_tool_runtime::shell::{Analysis, Place, Start, analyse, prescan, segments};
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
    let Some(mut words) = literal_words(&analysis) else { return };
    // The second splitter knows no home directory, documents, subshells or compound commands.
    let is_more = ["if", "for", "while", "fi", "done", "do", "then"].iter().any(|word| script.contains(word));
    if script.contains(['~', '(', '$']) || script.contains("<<") || is_more {
        return;
    }
    // Detection in text sees every word that proof sees, unless quotes hide where it ends.
    for word in words.iter().flatten().filter(|word| is_plain(word)) {
        let seen = segments.iter().flatten().any(|other| other == word);
        assert!(seen || script.contains("$'") || script.contains(['"', '\'', '\\']), "{word:?}");
    }
    // A redirect may stand alone.
    words.retain(|words| !words.is_empty());
    let split = splitter::split(script);
    // For bash keywords, for the second splitter programs.
    let first = |words: &Vec<String>| words.first().is_some_and(|word| word == "time" || word == "!");
    let keyword = split.iter().flatten().any(first);
    assert!(keyword || split == Some(words.clone()), "{split:?} is not {words:?}");
});

/// The words of a script that is nothing but certain words, pipes and lists.
fn literal_words(analysis: &Analysis) -> Option<Vec<Vec<String>>> {
    let commands = analysis.small.as_ref().ok()?;
    commands
        .iter()
        .filter(|command| command.place == Place::Plain)
        .map(|command| {
            if !command.assignments.is_empty() {
                return None;
            }
            command.words.iter().map(|word| word.text().map(str::to_owned)).collect()
        })
        .collect()
}

fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/'))
}
