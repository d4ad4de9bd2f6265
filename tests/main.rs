//! Drives the built binary the way a user or a script does: one module per behaviour.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure is the report

mod command_line;
mod config;

use agent_test_support::project::TestProject;
use agent_test_support::run::Run;

/// `agent` with these arguments in `project`.
fn agent(project: &TestProject, arguments: &[&str]) -> Run {
    Run::new(env!("CARGO_BIN_EXE_agent"), project).args(arguments)
}
