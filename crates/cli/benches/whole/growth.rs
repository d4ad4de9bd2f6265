//! Whether a long session costs more per call than a short one.

use std::time::Duration;

use agent_test_support::bench::{Table, median};
use agent_test_support::model_server::{ModelServer, Script, Turn};
use serde_json::json;

use crate::Options;
use crate::scenarios::{ours, project};

const CALLS: usize = 2_000;
const WINDOW: usize = 200;

pub(crate) fn measure(_options: &Options, table: &mut Table) {
    let server = ModelServer::start(conversation().forgetting_bodies());
    let place = project(&server);
    let cost = ours(&place);
    let gaps: Vec<Duration> = server
        .answered_at()
        .into_iter()
        .zip(server.requests().iter().skip(1))
        .map(|(answered, next)| next.arrived_at.saturating_duration_since(answered))
        .collect();
    assert_eq!(gaps.len(), CALLS);
    // The first calls warm the machine up; the last window is the longest conversation. A request
    // begins to be sent only when it is whole, so what its bytes cost us (encoding, hashing) is in
    // the gap: it is measured by itself and taken off.
    let first = median(gaps[20..20 + WINDOW].iter().copied());
    let last = median(gaps[CALLS - WINDOW..].iter().copied());
    let bytes = request_bytes(&server);
    let aside = request_cost(bytes.1).saturating_sub(request_cost(bytes.0));
    table.note(
        "2,000 calls: the request at the start and at the end",
        &format!("{} and {} KB", bytes.0 / 1024, bytes.1 / 1024),
    );
    table.ratio(
        "2,000 calls: a call at the end, request bytes aside, to one at the start",
        last.saturating_sub(aside),
        first,
        1.2,
    );
    table.note(
        "2,000 calls: the same with the request's bytes",
        &format!("{:.2}", last.as_secs_f64() / first.as_secs_f64()),
    );
    table.amount(
        "2,000 calls: memory at its peak",
        cost.peak as f64 / 1024.0,
        "MB",
        60.0,
    );
}

fn conversation() -> Script {
    (0..CALLS)
        .fold(Script::new(), |script, number| {
            let input = json!({"path": "README.md", "offset": 1, "limit": number + 1});
            script.turn(Turn::call("read", input))
        })
        .turn(Turn::text("Done."))
}

/// The sizes of the requests in the middle of the two windows.
fn request_bytes(server: &ModelServer) -> (usize, usize) {
    let size = |number: usize| {
        server.requests()[number]
            .header("content-length")
            .and_then(|length| length.parse().ok())
            .expect("every request says its length")
    };
    (size(20 + WINDOW / 2), size(CALLS - WINDOW / 2))
}

/// What any client pays for a request of so many bytes: to write it as JSON and to hash it.
fn request_cost(bytes: usize) -> Duration {
    use sha2::{Digest as _, Sha256};
    let text = "a line of a conversation, \"quoted\"\n".repeat(bytes / 40 + 1);
    median((0..20).map(|_| {
        let start = std::time::Instant::now();
        let body = serde_json::to_vec(&text).expect("a string");
        std::hint::black_box(Sha256::digest(&body));
        start.elapsed()
    }))
}
