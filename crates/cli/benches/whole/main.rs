//! What a whole run costs, against a client that does only the necessary work:
//! `cargo bench -p agent-cli --bench whole`, with `-- --rounds N` for more than five rounds and
//! `-- NAME…` for single measurements.
//!
//! Every row is a ratio to a baseline measured in the same run, floor and ours in turn, median
//! against median. The model is the scripted server on loopback; its own time is in both.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on should stop where it stands, and prints its result"
)]

mod floor;
mod footprint;
mod growth;
mod measure;
mod scenarios;
mod start;

use agent_test_support::bench::Table;

/// The binary that is measured, built with the profile of this bench.
const AGENT: &str = env!("CARGO_BIN_EXE_agent");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("floor") => return floor::main(&arguments[1..]),
        Some("spawn") => return measure::spawned(&arguments[1..]),
        _ => {}
    }
    let options = Options::of(&arguments);
    let mut table = Table::new("whole runs");
    for (name, measurement) in MEASUREMENTS {
        if options.wants(name) {
            measurement(&options, &mut table);
        }
    }
    table.finish();
}

type Measurement = fn(&Options, &mut Table);

const MEASUREMENTS: &[(&str, Measurement)] = &[
    ("start", start::measure),
    ("peers", scenarios::measure),
    ("growth", growth::measure),
    ("footprint", footprint::measure),
];

/// What the command line asks for.
struct Options {
    rounds: usize,
    names: Vec<String>,
}

impl Options {
    fn of(arguments: &[String]) -> Self {
        let mut options = Self {
            rounds: 5,
            names: Vec::new(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => {} // cargo adds it
                "--rounds" => {
                    options.rounds = arguments
                        .next()
                        .and_then(|rounds| rounds.parse().ok())
                        .expect("--rounds takes a number");
                }
                name => {
                    assert!(
                        MEASUREMENTS.iter().any(|(known, _)| *known == name),
                        "no measurement {name:?}; there are start, peers, growth, footprint"
                    );
                    options.names.push(name.to_owned());
                }
            }
        }
        options
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}
