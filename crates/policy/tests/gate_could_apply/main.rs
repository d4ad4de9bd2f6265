//! Deny rules and circuit breakers that cannot be excluded: spellings that ran past them, layers of them by chance,
//! and what the caution costs on commands that real models sent.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says which script failed and why"
)]

#[path = "../gate_support/mod.rs"]
mod gate_support;

mod cost;
mod layers;
mod spellings;

use agent_protocol::payload::permission::Effect;
use gate_support::Case;

/// The decision on a script in a mode, under rules.
fn decision(script: &str, mode: &str, rules: &[&str]) -> (Effect, String) {
    let case = Case {
        file: String::new(),
        tool: "bash".to_owned(),
        subject: script.to_owned(),
        why: String::new(),
        expect: String::new(),
        mode: mode.to_owned(),
        sandbox: "full".to_owned(),
        rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        cwd: None,
        dirty: Some(false),
        network: false,
        hook_allows: false,
        links: std::collections::BTreeMap::new(),
        files: Vec::new(),
    };
    let evaluated = case.evaluate().evaluated;
    (evaluated.decision, evaluated.reason)
}
