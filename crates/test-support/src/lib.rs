//! Shared test code: a scripted model server, throw-away projects, running the built binary, and a
//! second opinion on the logs it leaves.
//!
//! A dev-dependency only; nothing a user runs contains it. It panics where a test cannot continue,
//! and it speaks to nothing but loopback.
//!
//! Start at [`project::TestProject`] and [`run::Run`], which drive the binary; the model server is
//! in [`model_server`], [`log::check`] checks a log without the code that wrote it, [`session`]
//! writes a session with one of everything, [`mod@bench`] has the table that benches print, and [`mod@trace`] what traces
//! of system calls are read for.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot be set up has to stop

pub mod bench;
pub mod log;
pub mod model_server;
pub mod project;
pub mod run;
pub mod session;
pub mod trace;
pub mod web_server;
