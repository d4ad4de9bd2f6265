//! The shell parser and the gate: no script panics or hangs them, and what is allowed by proof is,
//! by an independent splitter and by bash's own parser, made of simple commands of the table only.
#![no_main]

#[path = "../../../crates/policy/tests/splitter/mod.rs"]
mod splitter;

use std::path::Path;

use agent_protocol::payload::permission::Effect;
use agent_protocol::status::Mode;
use agent_policy::{Tools, Workspace};
use agent_policy::gate::{Gate, GateRequest, NamesOnly, SandboxLevel, Setting};
use agent_policy::shell::{Start, analyse};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

// The parser behind the gate may panic, and the gate catches that; libFuzzer's hook would abort first.
fuzz_target!(init: drop(std::panic::take_hook()), |data: &[u8]| {
    let Ok(script) = std::str::from_utf8(data) else { return };
    let workspace = Workspace { root: "/project".into(), ..Workspace::default() };
    let input = json!({ "command": script, "description": "" });
    let tools: Tools = agent_local_tools::definitions().iter().cloned().collect();
    let shell = tools.shell().expect("a tool runs commands");
    let Some(semantics) = shell.semantics(&input, &workspace) else { return };
    let setting = Setting {
        workspace: &workspace,
        home: Path::new("/home/user"),
        mode: Mode::Ask,
        sandbox: SandboxLevel::Full,
        turn: "",
        hooks: &[],
        timeout_ms: None,
        output_limit: None,
    };
    let request = GateRequest { tool: shell, input: &input, semantics: &semantics };
    let judged = Gate::default().evaluate(&request, &setting, &NamesOnly).evaluated;
    if judged.decision == Effect::Allow {
        let parse = judged.parse.expect("a command is parsed");
        assert!(parse.ok && parse.read_only, "{script:?}");
        if let Err(problem) = splitter::confirm(script) {
            panic!("{problem}");
        }
        let start = Start {
            directory: "/project".into(),
            home: "/home/user".into(),
            is_directory: &|path: &Path| path.starts_with("/project").then_some(true),
        };
        let commands = analyse(script, &start).small.expect("what is allowed by proof is in the small language");
        if let Some(difference) = splitter::difference(script, &commands) {
            panic!("{difference}");
        }
    }
});
