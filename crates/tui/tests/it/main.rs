//! What the screen shows, and what reaches the terminal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests fail by panicking"
)]

mod attack;
mod cells;
mod console;
mod frames;
mod inline;
mod player;
mod prompts;
mod rows;
#[path = "../sample/mod.rs"]
mod sample;
mod screens;
mod session;
mod small;
mod streaming;
