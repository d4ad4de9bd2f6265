//! Many random turns with random trouble: `cargo test -p agent-cli --release --test soak`, with
//! `-- --turns N` (2,000 unless told) and `-- --seed N` to repeat a run.
//!
//! Every turn is a run of the real binary against the scripted server, with one kind of trouble:
//! a model server that misbehaves, `kill -9`, an interrupt, a closed terminal, a full disk, a slow
//! disk, a clock that jumps. After each turn the session is audited; at the end all of them are, and
//! no process, mount or temporary file may be left. The first thing that is wrong ends the run with
//! the seed and the turn that show it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the first thing that is wrong is the result"
)]

mod conversation;
mod leftovers;
mod place;
mod random;
mod trouble;

use std::collections::BTreeMap;
use std::time::Instant;

use leftovers::Leftovers;
use place::Place;
use random::Random;
use trouble::Trouble;

/// The binary that is tried, built with the same profile.
const AGENT: &str = env!("CARGO_BIN_EXE_agent");

/// So many turns share a project, and some of them a session.
const TURNS_PER_PLACE: usize = 25;

fn main() {
    let Some(temporary) = std::env::var_os(TEMPORARY) else {
        return in_a_place_of_its_own();
    };
    let (turns, seed) = options();
    let before = Leftovers::now(temporary.into());
    let start = Instant::now();
    let mut random = Random::new(seed);
    let mut seen: BTreeMap<&'static str, BTreeMap<i32, usize>> = BTreeMap::new();
    let mut sessions = 0;
    let mut done = 0;
    while done < turns {
        let place = Place::new(&mut random);
        for _ in 0..TURNS_PER_PLACE.min(turns - done) {
            let trouble = Trouble::any(&mut random, &place);
            let code = trouble::play(&place, &trouble, &mut random);
            let problem = place.audit();
            assert!(
                problem.is_none(),
                "seed {seed}, turn {done}, {}: {}",
                trouble.name(),
                problem.unwrap_or_default()
            );
            *seen
                .entry(trouble.name())
                .or_default()
                .entry(code)
                .or_default() += 1;
            done += 1;
        }
        sessions += place.finish();
    }
    let left = before.what_is_new();
    assert!(left.is_empty(), "seed {seed}: left behind: {left:#?}");
    println!("| trouble | turns | exit codes |");
    println!("| --- | --- | --- |");
    for (trouble, codes) in &seen {
        let turns: usize = codes.values().sum();
        let codes: Vec<String> = codes
            .iter()
            .map(|(code, count)| format!("{code}: {count}"))
            .collect();
        println!("| {trouble} | {turns} | {} |", codes.join(", "));
    }
    println!(
        "\n{done} turns in {sessions} sessions, seed {seed}, {:.0} s: every audit clean, nothing left behind.",
        start.elapsed().as_secs_f64()
    );
}

/// The variable that says where the run's own temporary directory is.
const TEMPORARY: &str = "SOAK_TEMPORARY";

/// Runs this program again with a temporary directory nobody else uses, so that whatever is left in
/// it was left by us.
fn in_a_place_of_its_own() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let status = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(std::env::args_os().skip(1))
        .env("TMPDIR", directory.path())
        .env(TEMPORARY, directory.path())
        .status()
        .expect("this program starts");
    std::process::exit(status.code().unwrap_or(1));
}

fn options() -> (usize, u64) {
    let (mut turns, mut seed) = (2_000, 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            arguments
                .next()
                .and_then(|value| value.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("{argument} takes a number"))
        };
        match argument.as_str() {
            "--turns" => turns = usize::try_from(number()).expect("a number of turns"),
            "--seed" => seed = number(),
            other => panic!("no option {other:?}; there are --turns and --seed"),
        }
    }
    (turns, seed)
}
