//! Drives the built binary the way a user or a script does: one module per behaviour.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)] // a failure is the report

mod answers;
mod approval;
mod attached;
mod audit;
mod background;
mod backtest;
mod browser;
mod call;
mod checks;
mod command_line;
mod commits;
mod compaction;
mod config;
mod context;
mod conversation;
mod demo;
mod dialects;
mod diff;
mod directories;
mod doctor;
mod example;
mod export;
mod files;
mod foreign;
mod forged;
mod full_disk;
mod hostile;
mod import;
mod import_cases;
mod instructions;
mod keys;
mod kill;
mod limits;
mod long;
mod models;
mod naming;
mod observations;
mod page;
mod permissions;
mod picture;
mod plan;
mod planted;
mod proof;
mod readme;
mod record;
mod replay;
mod rerun;
mod resume;
mod review;
mod run;
mod sample;
mod sandbox;
mod screen;
mod secrets;
mod services;
mod sessions;
mod swapped;
mod syncs;
mod told;
mod traces;
mod transport;
mod undo;
mod verification;
mod web;

use agent_test_support::project::TestProject;
use agent_test_support::run::Run;

/// Fails unless `value` has the shape published in `docs/schemas/`.
#[track_caller]
fn assert_schema(name: &str, value: &serde_json::Value) {
    let path = format!(
        "{}/../../docs/schemas/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let schema = std::fs::read_to_string(path).unwrap();
    let schema = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::options().offline().build(&schema).unwrap();
    let problems: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// `agent` with these arguments in `project`.
fn agent(project: &TestProject, arguments: &[&str]) -> Run {
    Run::new(env!("CARGO_BIN_EXE_agent"), project).args(arguments)
}
