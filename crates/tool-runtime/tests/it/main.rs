//! The pipeline with real sessions on disk: what it calls in which order, what it leaves in the
//! log, and what it does with bad input, refusals, panics, timeouts and cancellation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout
)] // a failing test should stop and say why

mod ask;
mod codes;
mod machine;
mod order;
mod output;
mod registration;
mod schedule;
mod stage;
