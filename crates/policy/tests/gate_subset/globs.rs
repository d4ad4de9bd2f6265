//! Patterns in directories that a repository made for them.

use std::os::unix::fs::symlink;
use std::path::Path;

use agent_policy::Workspace;
use agent_policy::gate::{DiskFacts, Gate, GateRequest, SandboxLevel, Setting};
use agent_protocol::payload::permission::Effect;
use agent_protocol::status::Mode;
use serde_json::json;

fn decide(root: &Path, command: &str) -> Effect {
    let workspace = Workspace {
        root: root.to_owned(),
        extra_roots: Vec::new(),
    };
    let input = json!({"command": command});
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
    let facts = DiskFacts { dirty: || None };
    Gate::default()
        .evaluate(&request, &setting, &facts)
        .evaluated
        .decision
}

#[test]
fn a_pattern_is_looked_up_where_the_command_runs() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    for (place, link) in [
        ("b\\s", "l.txt"),
        ("*", "l.txt"),
        ("[x]", "l.txt"),
        ("é", "é.txt"),
        ("plain", "l.txt"),
    ] {
        std::fs::create_dir(root.join(place)).unwrap();
        std::fs::write(root.join(place).join("a.txt"), "").unwrap();
        symlink("/etc/passwd", root.join(place).join(link)).unwrap();
    }
    for command in [
        "cat plain/l*",
        "cd plain && cat l*",
        "cd 'b\\s' && cat l*",
        "cat b\\\\s/l*",
        "cd '*' && cat l*",
        "cat '*'/l*",
        "cd '[x]' && cat l?txt",
        // One character or two, as the locale has it.
        "cat é/?.txt",
        "cat é/??.txt",
        // bash before 5.2 lists `..` for it.
        "ls .*",
        "ls plain/../.*",
    ] {
        assert_eq!(decide(&root, command), Effect::Ask, "{command}");
    }
    for command in [
        "cat plain/a*",
        "cd 'b\\s' && cat a*",
        "cat '*'/a*",
        "cat é/a?txt",
        "ls plain/.??*",
    ] {
        assert_eq!(decide(&root, command), Effect::Allow, "{command}");
    }
}

/// Many stars and a long name take no time.
#[test]
fn no_pattern_stalls_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::write(root.join("a".repeat(250)), "").unwrap();
    let begun = std::time::Instant::now();
    for pattern in ["*a", "*?", "?*", "[a]*", "*[!b]"] {
        decide(&root, &format!("ls {}b", pattern.repeat(40)));
    }
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}
