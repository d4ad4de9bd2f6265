//! The local tools through the real pipeline, with a real session on disk: the corpus of edits in
//! `fixtures/edits/`, searches, commands, and the examples of `docs/tools.md`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout
)] // a failing test should stop and say why

mod apply_patch;
mod background;
mod command;
mod corpus;
mod documentation;
mod edit;
mod effects;
mod ended;
mod hostile;
mod oracle;
mod search;
mod stage;
