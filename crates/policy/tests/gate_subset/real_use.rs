//! Commands that real models sent, with what they do: nothing but reading is allowed in mode ask, and nearly all
//! reading is.

use std::path::Path;
use std::time::{Duration, Instant};

use agent_policy::Workspace;
use agent_policy::gate::{DiskFacts, Gate, GateRequest, SandboxLevel, Setting};
use agent_protocol::payload::permission::Effect;
use agent_protocol::status::Mode;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Row {
    command: String,
    cwd: Option<String>,
    label: String,
}

/// Share of reading that may ask in mode ask, in thousandths. Nine ask only here, because the directories
/// in which git would read are not there.
const READS_MAY_ASK: usize = 30;
/// The same of all commands in mode auto, and of builds and tests there.
const MAY_ASK_IN_AUTO: usize = 50;
const BUILDS_MAY_ASK_IN_AUTO: usize = 20;

/// What discards work or commits: asked about in mode auto too, even where the tree is clean.
const DESTROYS: [&str; 8] = [
    "git reset --hard",
    "git clean",
    "git stash drop",
    "git stash clear",
    "git branch -D",
    "git reflog expire",
    "git update-ref -d",
    "git gc --prune",
];

/// One recorded command and what was decided about it.
struct Decided {
    row: Row,
    is_allowed: bool,
    reason: String,
    time: Duration,
}

/// Decides about every recorded command in a repository with changes; nothing where the recording is not here.
fn decide(mode: Mode) -> Vec<Decided> {
    let place =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/real-use/commands.jsonl");
    let Ok(text) = std::fs::read_to_string(&place) else {
        eprintln!("the recorded commands are not here: nothing was decided");
        return Vec::new();
    };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join(".git")).unwrap();
    let workspace = Workspace {
        root: root.clone(),
        extra_roots: Vec::new(),
    };
    let bash = crate::gate_support::tool("bash");
    let facts = DiskFacts {
        dirty: || Some(true),
    };
    let decide = |line: &str| {
        let row: Row = serde_json::from_str(line).unwrap();
        let command = row.command.replace("{PROJECT}", root.to_str().unwrap());
        let mut input = json!({"command": command});
        if let Some(cwd) = &row.cwd {
            input["cwd"] = json!(cwd);
        }
        let semantics = bash.semantics(&input, &workspace).unwrap();
        let request = GateRequest {
            tool: &bash,
            input: &input,
            semantics: &semantics,
        };
        let setting = Setting {
            workspace: &workspace,
            home: Path::new("/home/u"),
            mode,
            sandbox: SandboxLevel::Full,
            turn: "turn",
            hooks: &[],
            timeout_ms: None,
            output_limit: None,
        };
        let start = Instant::now();
        let evaluated = Gate::default()
            .evaluate(&request, &setting, &facts)
            .evaluated;
        Decided {
            row,
            is_allowed: evaluated.decision == Effect::Allow,
            reason: evaluated.reason,
            time: start.elapsed(),
        }
    };
    let decided: Vec<Decided> = text.lines().map(decide).collect();
    let mut times: Vec<Duration> = decided.iter().map(|one| one.time).collect();
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    eprintln!("{mode}: p99 {p99:?}, longest {:?}", times[times.len() - 1]);
    // Generous, for builds without optimisation on busy machines; the bench measures.
    assert!(p99 < Duration::from_millis(100), "{p99:?}");
    decided
}

/// Asserts that no more than a share of these ask, in thousandths.
fn assert_few_ask<'a>(what: &str, share: usize, decided: impl Iterator<Item = &'a Decided>) {
    let all: Vec<&Decided> = decided.collect();
    let asked = all.iter().filter(|one| !one.is_allowed);
    let asked: Vec<String> = asked
        .map(|one| format!("{}\n      {}", one.row.command, one.reason))
        .collect();
    eprintln!("{} of {} {what} ask", asked.len(), all.len());
    if std::env::var_os("AGENT_SHOW_ASKED").is_some() {
        eprintln!("{}", asked.join("\n"));
    }
    assert!(
        asked.len() * 1000 <= all.len() * share,
        "{} of {} {what} ask:\n{}",
        asked.len(),
        all.len(),
        asked.join("\n")
    );
}

#[test]
fn real_reading_is_allowed_and_nothing_else() {
    let decided = decide(Mode::Ask);
    let is_read = |one: &&Decided| one.row.label == "read";
    let wrong: Vec<&str> = decided
        .iter()
        .filter(|one| one.is_allowed && !is_read(one))
        .map(|one| one.row.command.as_str())
        .collect();
    assert!(wrong.is_empty(), "allowed: {}", wrong.join("\n"));
    assert_few_ask("reads", READS_MAY_ASK, decided.iter().filter(is_read));
}

#[test]
fn real_work_goes_on_in_mode_auto_and_what_destroys_asks() {
    let decided = decide(Mode::Auto);
    let builds = decided.iter().filter(|one| one.row.label == "exec-project");
    assert_few_ask("builds and tests", BUILDS_MAY_ASK_IN_AUTO, builds);
    assert_few_ask("commands", MAY_ASK_IN_AUTO, decided.iter());
    let destroys = |one: &&Decided| {
        matches!(one.row.label.as_str(), "git-write" | "destructive")
            && DESTROYS.iter().any(|word| one.row.command.contains(word))
    };
    let destroying: Vec<&Decided> = decided.iter().filter(destroys).collect();
    eprintln!("{} discard work or commits", destroying.len());
    let wrong = destroying.iter().filter(|one| one.is_allowed);
    let wrong: Vec<&str> = wrong.map(|one| one.row.command.as_str()).collect();
    assert!(wrong.is_empty(), "allowed: {}", wrong.join("\n"));
}
