//! How long a decision takes: `cargo bench -p agent-policy --bench gate`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints its table and may stop on a broken fixture"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use agent_policy::gate::{Bases, Gate, GateRequest, NamesOnly, Rule, SandboxLevel, Setting};
use agent_policy::{Tools, Workspace};
use agent_protocol::payload::permission::{Effect, RuleOrigin};
use agent_protocol::status::Mode;
use agent_test_support::bench::Table;
use serde_json::json;

const TYPICAL: &[&str] = &[
    "git status -sb",
    "ls -la crates && cat Cargo.toml",
    "rg -n 'fn main' crates | head -20",
    "cargo test -p agent-cli -- --nocapture 2>&1 | tail -30",
    "npm run lint && npm test",
    "find . -name '*.rs' -not -path './target/*' | xargs wc -l",
    "cd crates/cli && git log --oneline -5 -- src",
    "echo \"built by $(whoami)\" > out.txt",
    "for f in src/*.rs; do wc -l \"$f\"; done",
    "sudo env A=1 timeout 60 bash -c 'make -j4 && ./a.out'",
];

fn tools() -> Tools {
    agent_local_tools::definitions().iter().cloned().collect()
}

fn evaluate(gate: &Gate, workspace: &Workspace, command: &str) -> Effect {
    let input = json!({"command": command});
    let tools = tools();
    let bash = tools.shell().unwrap();
    let semantics = bash.semantics(&input, workspace).unwrap();
    gate.evaluate(
        &GateRequest {
            tool: bash,
            input: &input,
            semantics: &semantics,
        },
        &Setting {
            workspace,
            home: Path::new("/home/u"),
            mode: Mode::Ask,
            sandbox: SandboxLevel::Full,
            turn: "turn",
            hooks: &[],
            timeout_ms: None,
            output_limit: None,
        },
        &NamesOnly,
    )
    .evaluated
    .decision
}

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    let at = |share: usize| {
        times
            .get(times.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    (at(50), at(99))
}

/// Commands that real models sent, where the recording is at hand: it is not ours to commit.
fn real_commands(table: &mut Table, gate: &Gate, workspace: &Workspace) {
    let place =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/real-use/commands.jsonl");
    let Ok(text) = std::fs::read_to_string(place) else {
        table.note(
            "commands that real models sent",
            "the recording is not here",
        );
        return;
    };
    let times: Vec<Duration> = text
        .lines()
        .map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let command = row["command"].as_str().unwrap();
            let start = Instant::now();
            evaluate(gate, workspace, command);
            start.elapsed()
        })
        .collect();
    let longest = times.iter().max().copied().unwrap_or_default();
    let (_, most) = median(times);
    let what = "a decision on a command that a real model sent: 99 of 100 below";
    table.time(what, most, Duration::from_millis(5));
    let what = "the same: the longest";
    table.time(what, longest, Duration::from_millis(20));
}

fn main() {
    let workspace = Workspace {
        root: "/home/u/shop".into(),
        extra_roots: Vec::new(),
    };
    let bases = Bases {
        project: workspace.root.clone(),
        home: "/home/u".into(),
    };
    let gate = Gate {
        rules: [
            (Effect::Allow, "bash(cargo test *)"),
            (Effect::Allow, "bash(npm run lint *)"),
            (Effect::Allow, "edit(src/**)"),
            (Effect::Ask, "bash(git push *)"),
            (Effect::Deny, "bash(rm -rf *)"),
            (Effect::Deny, "bash(terraform apply *)"),
            (Effect::Deny, "read(**/.env)"),
            (Effect::Deny, "read(**/*.pem)"),
        ]
        .into_iter()
        .map(|(effect, text)| {
            Rule::parse(effect, text, RuleOrigin::default(), &bases, &tools()).unwrap()
        })
        .collect(),
        ..Gate::default()
    };

    let times: Vec<Duration> = (0..1_000)
        .map(|index| {
            let command = TYPICAL[index % TYPICAL.len()];
            let start = Instant::now();
            evaluate(&gate, &workspace, command);
            start.elapsed()
        })
        .collect();
    let (half, most) = median(times);
    let mut table = Table::new("gate");
    let limit = Duration::from_millis(1);
    table.time("1,000 typical commands, 8 rules: median", half, limit);
    let most = format!("{most:.0?}");
    table.note("1,000 typical commands: 99 of 100 below", &most);
    real_commands(&mut table, &gate, &workspace);
    for unit in ["ls; ", "'x' ", "echo a ", "$(ls) ", "a | ", "$x ", "-f"] {
        let timed = |length: usize| {
            let script: String = unit.chars().cycle().take(length).collect();
            let times = (0..9)
                .map(|_| {
                    let start = Instant::now();
                    evaluate(&gate, &workspace, &script);
                    start.elapsed()
                })
                .collect();
            median(times).0
        };
        let what = format!("`{unit}` repeated, 9,999 characters to 1,250 (8 is linear)");
        table.ratio(&what.replace('|', "\\|"), timed(9_999), timed(1_250), 12.0);
    }
    table.finish();
}
