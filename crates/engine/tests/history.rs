//! Going on with a session passes over the classes that change nothing: what is known is the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure is the report")]

use std::path::Path;

use agent_engine::SessionState;
use agent_protocol::Event;
use agent_session::SessionDirectory;

/// The recorded session of the worked chain: reads, an edit, commands that fail and pass.
fn recorded() -> SessionDirectory {
    let sessions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.agent-example/sessions");
    let mut found = std::fs::read_dir(sessions).unwrap();
    SessionDirectory::at(&found.next().unwrap().unwrap().path()).unwrap()
}

/// Everything a state knows, in words.
fn known(session: &SessionDirectory, wanted: impl Fn(&Event) -> bool) -> (usize, String) {
    let artifacts = session.artifacts().unwrap();
    let mut state = SessionState::default();
    let mut taken = 0;
    for item in session.reader().unwrap() {
        let event = item.unwrap().event.unwrap();
        if wanted(&event) {
            taken += 1;
            state.apply(&event, &|id| artifacts.read(id, 1 << 20).ok());
        }
    }
    let known = format!(
        "{:#?} {:#?} {} {:?} {:?} {:?} {:?} {:?} {:?}",
        state.conversation,
        state.facts,
        state.requests,
        state.cost,
        state.catalog,
        state.preamble,
        state.turn.commands,
        state.turn.files_changed(),
        state.open_actions,
    );
    (taken, known)
}

#[test]
fn what_is_passed_over_is_not_missed() {
    let session = recorded();
    let (all, whole) = known(&session, |_| true);
    let (some, part) = known(&session, |event| {
        SessionState::depends_on(event.payload.type_name())
    });
    assert!(some < all - all / 5, "{some} of {all} events are needed");
    assert_eq!(part, whole);
}
