//! The small language of the gate: real commands, families of attacks, and bash as the judge.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says which script failed and why"
)]

#[path = "../gate_support/mod.rs"]
mod gate_support;
#[path = "../judge/mod.rs"]
mod judge;
#[path = "../splitter/mod.rs"]
mod splitter;

mod assumptions;
mod bash;
mod families;
mod globs;
mod grammar;
mod pattern_grammar;
mod real_use;
mod rows;
