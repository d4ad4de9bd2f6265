//! What it costs to hold back what cannot be excluded, on commands that real models sent.

use std::path::Path;

use agent_policy::Workspace;
use agent_policy::gate::{DiskFacts, Gate, GateRequest, SandboxLevel, Setting};
use agent_protocol::payload::permission::{DecisionSource, Effect};
use agent_protocol::status::Mode;
use serde::Deserialize;
use serde_json::json;

use crate::gate_support::{rule, tool};

#[derive(Deserialize)]
struct Row {
    command: String,
    cwd: Option<String>,
}

fn rows() -> Option<Vec<Row>> {
    let place =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/real-use/commands.jsonl");
    let Ok(text) = std::fs::read_to_string(&place) else {
        eprintln!("the recorded commands are not here: nothing was decided");
        return None;
    };
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

/// The commands with one of these decisions.
fn decided(rows: &[Row], mode: Mode, rules: &[&str], effect: Effect) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join(".git")).unwrap();
    let workspace = Workspace {
        root: root.clone(),
        extra_roots: Vec::new(),
    };
    let gate = Gate {
        rules: rules.iter().map(|text| rule(text)).collect(),
        ..Gate::default()
    };
    let bash = tool("bash");
    let facts = DiskFacts {
        dirty: || Some(false),
    };
    let mut found = Vec::new();
    for row in rows {
        let command = row.command.replace("{PROJECT}", root.to_str().unwrap());
        let mut input = json!({"command": command});
        if let Some(cwd) = &row.cwd {
            input["cwd"] = json!(cwd);
        }
        let Some(semantics) = bash.semantics(&input, &workspace) else {
            continue;
        };
        let evaluated = gate
            .evaluate(
                &GateRequest {
                    tool: &bash,
                    input: &input,
                    semantics: &semantics,
                },
                &Setting {
                    workspace: &workspace,
                    home: Path::new("/home/u"),
                    mode,
                    sandbox: SandboxLevel::Full,
                    turn: "turn",
                    hooks: &[],
                    timeout_ms: None,
                    output_limit: None,
                },
                &facts,
            )
            .evaluated;
        if evaluated.decision == effect && evaluated.decision_source != DecisionSource::Sandbox {
            found.push(format!("{}\n      {}", row.command, evaluated.reason));
        }
    }
    found
}

fn told(what: &str, found: &[String], of: usize) {
    eprintln!("{what}: {} of {of}", found.len());
    if std::env::var_os("AGENT_SHOW_ASKED").is_some() {
        eprintln!("{}", found.join("\n"));
    }
}

#[test]
fn little_of_real_use_is_held_back() {
    let Some(rows) = rows() else { return };
    let refused = decided(&rows, Mode::Full, &[], Effect::Deny);
    told("refused in mode full without rules", &refused, rows.len());
    let asked = decided(&rows, Mode::Full, &[], Effect::Ask);
    told("asked in mode full without rules", &asked, rows.len());
    let asked = decided(&rows, Mode::Auto, &[], Effect::Ask);
    told("asked in mode auto without rules", &asked, rows.len());
    let rules = &["deny bash(rm *)", "deny bash(git push *)"];
    let ruled = decided(&rows, Mode::Full, rules, Effect::Deny);
    told("refused in mode full with two rules", &ruled, rows.len());
    // Most of these run `rm` or `git push`, and nearly all others code that lies in a file.
    assert!(ruled.len() * 25 < rows.len(), "{}", ruled.join("\n"));
    assert!(refused.len() * 200 < rows.len(), "{}", refused.join("\n"));
}
