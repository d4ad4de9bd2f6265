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

/// Share of reading that may ask, in thousandths.
const MAY_ASK: usize = 32;

#[test]
fn real_reading_is_allowed_and_nothing_else() {
    let place =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/real-use/commands.jsonl");
    let Ok(text) = std::fs::read_to_string(&place) else {
        eprintln!("the recorded commands are not here: nothing was decided");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join(".git")).unwrap();
    let workspace = Workspace {
        root: root.clone(),
        extra_roots: Vec::new(),
    };
    let (mut reads, mut asked, mut wrong, mut times) = (0, Vec::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        let row: Row = serde_json::from_str(line).unwrap();
        let command = row.command.replace("{PROJECT}", root.to_str().unwrap());
        let mut input = json!({"command": command});
        if let Some(cwd) = &row.cwd {
            input["cwd"] = json!(cwd);
        }
        let bash = crate::gate_support::tool("bash");
        let semantics = bash.semantics(&input, &workspace).unwrap();
        let request = GateRequest {
            tool: &bash,
            input: &input,
            semantics: &semantics,
        };
        let setting = Setting {
            workspace: &workspace,
            home: Path::new("/home/u"),
            mode: Mode::Ask,
            sandbox: SandboxLevel::Full,
            turn: "turn",
            hooks: &[],
            timeout_ms: None,
            output_limit: None,
        };
        let facts = DiskFacts {
            dirty: || Some(true),
        };
        let start = Instant::now();
        let evaluated = Gate::default()
            .evaluate(&request, &setting, &facts)
            .evaluated;
        times.push((start.elapsed(), row.command.clone()));
        let allowed = evaluated.decision == Effect::Allow;
        if row.label == "read" {
            reads += 1;
            if !allowed {
                asked.push(format!("{}\n      {}", row.command, evaluated.reason));
            }
        } else if allowed {
            wrong.push(format!("{} ({})", row.command, row.label));
        }
    }
    times.sort();
    let p99 = times[times.len() * 99 / 100].0;
    eprintln!(
        "{} of {reads} reads ask; p99 {p99:?}, longest {:?} of `{}`",
        asked.len(),
        times.last().unwrap().0,
        times.last().unwrap().1
    );
    if std::env::var_os("AGENT_SHOW_ASKED").is_some() {
        eprintln!("{}", asked.join("\n"));
    }
    assert!(wrong.is_empty(), "allowed: {}", wrong.join("\n"));
    assert!(
        asked.len() * 1000 <= reads * MAY_ASK,
        "{} of {reads} ask:\n{}",
        asked.len(),
        asked.join("\n")
    );
    // Generous, for builds without optimisation on busy machines; the bench measures.
    assert!(p99 < Duration::from_millis(100), "{p99:?}");
}
