//! Streams recorded from real services decode to the events a person once checked.
//!
//! The recordings are read from `../shared/sse-recorded` when they are there; they are not ours to
//! keep in this repository. What is kept is our own summary of the events, in `goldens/`. Run with
//! `UPDATE_GOLDENS=1` to write it anew, and read the difference.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test"
)]

mod summary;

use std::fs;
use std::path::{Path, PathBuf};

use agent_provider::error::classify;
use agent_provider::quirks::GENERIC;
use agent_provider::{Decoder, Dialect, ModelEvent, decode_all};

fn recordings() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/sse-recorded");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("the recorded streams are absent; only our own fixtures are tested");
    None
}

/// All recorded bodies as (name, dialect, bytes of an event stream), sorted by name.
fn streams(folder: &Path) -> Vec<(String, Dialect, Vec<u8>)> {
    let mut list = Vec::new();
    for group in ["openai-chat", "compat", "openai-responses", "anthropic"] {
        for entry in fs::read_dir(folder.join(group)).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            let bytes = fs::read(&path).unwrap();
            let bytes = if file.ends_with(".sse") {
                bytes
            } else if file.ends_with(".chunks.txt") {
                let lines = String::from_utf8(bytes).unwrap();
                lines
                    .lines()
                    .map(|line| format!("data: {line}\n\n"))
                    .collect::<String>()
                    .into_bytes()
            } else {
                continue;
            };
            let dialect = match group {
                "anthropic" => Dialect::AnthropicMessages,
                "openai-responses" => Dialect::OpenAiResponses,
                _ if file.contains("responses") => Dialect::OpenAiResponses,
                _ => Dialect::OpenAiChat,
            };
            list.push((format!("{group}/{file}"), dialect, bytes));
        }
    }
    list.sort_by(|one, other| one.0.cmp(&other.0));
    list
}

#[test]
fn every_recorded_stream_decodes_to_its_golden() {
    let Some(folder) = recordings() else { return };
    let mut text = String::new();
    for (name, dialect, bytes) in streams(&folder) {
        text.push_str(&format!(
            "== {name}\n{}\n",
            summary::of(&decode_all(dialect, &GENERIC, &bytes))
        ));
    }
    summary::compare("recorded.txt", &text);
}

#[test]
fn every_recorded_error_is_classified() {
    let Some(folder) = recordings() else { return };
    let mut paths: Vec<PathBuf> = fs::read_dir(folder.join("errors"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let recording = fs::read_to_string(&path).unwrap();
        let (head, body) = recording.split_once("\n\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        let error = classify(Some(status), body.as_bytes());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        text.push_str(&format!("{name}: {}\n", summary::error(&error)));
    }
    summary::compare("recorded-errors.txt", &text);
}

/// The cuts that the network makes in a stream must not change its content.
#[test]
fn cutting_a_recorded_stream_changes_nothing() {
    let Some(folder) = recordings() else { return };
    for (name, dialect, bytes) in streams(&folder) {
        let whole = decode_all(dialect, &GENERIC, &bytes);
        for size in [1, 7, 61, 1_009] {
            let mut decoder = Decoder::new(dialect, &GENERIC);
            let mut events: Vec<ModelEvent> = Vec::new();
            bytes
                .chunks(size)
                .for_each(|chunk| decoder.feed(chunk, &mut events));
            decoder.finish(&mut events);
            assert_eq!(events, whole, "{name} in pieces of {size}");
        }
    }
}
