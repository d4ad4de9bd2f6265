//! Going on with a session passes over the classes that change nothing: what is known is the same.
//! Logs of earlier versions give the model inputs that were sent then.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure is the report")]

use std::path::Path;

use agent_engine::state::depends_on;
use agent_engine::{Rebuilder, SessionState, ThreadState};
use agent_log::SessionDirectory;
use agent_protocol::Event;
use agent_protocol::id::ArtifactId;
use agent_provider::quirks::GENERIC;
use sha2::{Digest as _, Sha256};

/// The recorded session of the worked chain: reads, an edit, commands that fail and pass.
fn recorded() -> SessionDirectory {
    only_session(".agent-example/sessions")
}

fn only_session(directory: &str) -> SessionDirectory {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = std::fs::read_dir(repository.join(directory)).unwrap();
    SessionDirectory::at(&found.next().unwrap().unwrap().path()).unwrap()
}

/// Everything a state knows, in words.
fn known(session: &SessionDirectory, wanted: impl Fn(&Event) -> bool) -> (usize, String) {
    let artifacts = session.artifacts().unwrap();
    let mut thread = ThreadState::default();
    let mut shared = SessionState::default();
    let mut taken = 0;
    for item in session.reader().unwrap() {
        let event = item.unwrap().event.unwrap();
        if wanted(&event) {
            taken += 1;
            shared.apply(&event);
            thread.apply(&event, &|id| artifacts.read(id, 1 << 20).ok());
        }
    }
    (taken, format!("{thread:#?} {shared:#?}"))
}

#[test]
fn what_is_passed_over_is_not_missed() {
    let session = recorded();
    let (all, whole) = known(&session, |_| true);
    let (some, part) = known(&session, |event| depends_on(event.payload.type_name()));
    assert!(some < all - all / 5, "{some} of {all} events are needed");
    assert_eq!(part, whole);
}

/// Every input of a recorded session is made again from its log, byte for byte.
fn check_inputs(session: &SessionDirectory, expected: usize) {
    let artifacts = session.artifacts().unwrap();
    let mut rebuilder = Rebuilder::new(|_| &GENERIC);
    let mut count = 0;
    for item in session.reader().unwrap() {
        let event = item.unwrap().event.unwrap();
        let rebuilt = rebuilder.apply(&event, &|id| artifacts.read(id, 1 << 20).ok());
        let Some(rebuilt) = rebuilt else { continue };
        let digest: [u8; 32] = Sha256::digest(rebuilt.bytes.unwrap()).into();
        let hash = ArtifactId::from_digest(&digest).to_string();
        assert_eq!(hash, rebuilt.recorded_hash, "event {}", event.sequence);
        count += 1;
    }
    assert_eq!(count, expected);
}

#[test]
fn inputs_of_earlier_logs_are_made_again() {
    check_inputs(&recorded(), 7);
    // Recorded when the answer to the question for a summary was still sent on.
    check_inputs(&only_session("fixtures/compacted"), 9);
}
