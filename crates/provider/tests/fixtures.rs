//! Every shape in `fixtures/streams` decodes to the events beside it, however it is cut, and nothing
//! a network could make of it breaks a decoder.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod summary;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use agent_provider::quirks::GENERIC;
use agent_provider::{Decoder, Dialect, ModelEvent, decode_all};
use proptest::prelude::*;
use proptest::sample::Index;

type Fixture = (PathBuf, Dialect, Vec<u8>);

fn fixtures() -> &'static [Fixture] {
    static FIXTURES: OnceLock<Vec<Fixture>> = OnceLock::new();
    FIXTURES.get_or_init(read_fixtures)
}

fn read_fixtures() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/streams");
    let mut list = Vec::new();
    for (folder, dialect) in [
        ("chat", Dialect::OpenAiChat),
        ("responses", Dialect::OpenAiResponses),
        ("anthropic", Dialect::AnthropicMessages),
    ] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().unwrap() != "events" {
                let body = fs::read(&path).unwrap();
                list.push((path, dialect, body));
            }
        }
    }
    list.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(list.len() > 60, "the fixtures are there");
    list
}

fn decode(dialect: Dialect, pieces: &[&[u8]]) -> Vec<ModelEvent> {
    let mut decoder = Decoder::new(dialect, &GENERIC);
    let mut events = Vec::new();
    pieces
        .iter()
        .for_each(|piece| decoder.feed(piece, &mut events));
    decoder.finish(&mut events);
    events
}

#[test]
fn every_shape_decodes_to_its_events() {
    for (path, dialect, body) in fixtures() {
        let text = summary::of(&decode_all(*dialect, &GENERIC, body));
        let golden = path.with_extension("events");
        summary::compare_file(&golden, &text);
    }
}

/// Exactly one end, nothing after it, usage at most once and calls only before a good end.
fn check_order(events: &[ModelEvent], what: &str) {
    let is_end =
        |event: &ModelEvent| matches!(event, ModelEvent::Stopped { .. } | ModelEvent::Error(_));
    assert_eq!(
        events.iter().filter(|event| is_end(event)).count(),
        1,
        "{what}: {events:?}"
    );
    assert!(events.last().is_some_and(is_end), "{what}: {events:?}");
    assert!(
        events
            .iter()
            .filter(|event| matches!(event, ModelEvent::Usage(_)))
            .count()
            <= 1,
        "{what}"
    );
    if let Some(ModelEvent::Error(_)) = events.last() {
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, ModelEvent::ToolCallCompleted { .. })),
            "{what}: a broken response completes no call"
        );
    }
}

#[test]
fn cutting_any_shape_changes_nothing() {
    for (path, dialect, body) in fixtures() {
        let whole = decode_all(*dialect, &GENERIC, body);
        check_order(&whole, &path.display().to_string());
        // A step of three keeps this quick; the single bytes below cut everywhere.
        for at in (0..=body.len()).step_by(3) {
            let (head, tail) = body.split_at(at);
            assert_eq!(
                decode(*dialect, &[head, tail]),
                whole,
                "{} cut at {at}",
                path.display()
            );
        }
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(
            decode(*dialect, &bytes),
            whole,
            "{} byte by byte",
            path.display()
        );
    }
}

/// A stream that ends anywhere is an error or was complete; never a panic, never half a call.
#[test]
fn every_beginning_of_every_shape_ends_in_order() {
    for (path, dialect, body) in fixtures() {
        for at in 0..body.len() {
            check_order(
                &decode(*dialect, &[&body[..at]]),
                &format!("{} ended at {at}", path.display()),
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Bytes lost, doubled or swapped on the way must not break a decoder or the order of events.
    #[test]
    fn damage_never_breaks_a_decoder(which: Index, at: Index, length in 0_usize..40, noise in proptest::collection::vec(any::<u8>(), 0..12)) {
        let (path, dialect, body) = which.get(fixtures());
        let at = at.index(body.len() + 1);
        let end = (at + length).min(body.len());
        let damaged = [&body[..at], &noise, &body[end..]].concat();
        check_order(&decode_all(*dialect, &GENERIC, &damaged), &path.display().to_string());
    }
}
