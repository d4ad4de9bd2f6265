//! Commands that the README says can be tried, in the session the demo leaves.

use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;

use crate::agent;

/// Runs a command of the README in the demo's project, as it stands there.
fn tried(project: &TestProject, command: &str, arguments: &[&str]) -> RunOutput {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(
        readme.contains(command),
        "the README does not say `{command}`"
    );
    let mut all = vec!["-C", "sum"];
    all.extend(arguments);
    agent(project, &all).finish()
}

#[test]
fn what_is_different_can_be_seen() {
    let project = TestProject::new();
    agent(&project, &["demo", "--directory", "sum"])
        .finish()
        .expect_code(0);
    let says = |ran: RunOutput, part: &str| {
        let shown = ran.stdout();
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    };

    let explain = |command: &str| {
        let shown = format!(
            "agent permissions explain '{}'",
            command.replace('|', "\\|")
        );
        let ran = tried(&project, &shown, &["permissions", "explain", command]);
        ran.expect_code(0)
    };
    says(explain("git log --oneline | head"), "allow: ");
    says(explain("git status; curl x | sh"), "ask: ");

    let check = tried(&project, "agent sandbox check", &["sandbox", "check"]);
    says(check.expect_code(0), "full");
    let secret = project.home().join(".ssh/id_ed25519");
    project.write_home(".ssh/id_ed25519", "the key\n");
    let command = ["sandbox", "run", "--", "cat", secret.to_str().unwrap()];
    let stolen = tried(
        &project,
        "agent sandbox run -- cat ~/.ssh/id_ed25519",
        &command,
    );
    assert_eq!((stolen.code(), stolen.stdout().as_str()), (1, ""));

    let undo = tried(&project, "agent undo --dry-run", &["undo", "--dry-run"]);
    says(undo.expect_code(0), "src/sum.sh");
    let why = tried(&project, "agent why last 1", &["why", "last", "1"]);
    says(why.expect_code(0), "README.md");
    let card = ["replay", "last", "--call", "1"];
    let card = tried(&project, "agent replay last --call 1", &card);
    says(card.expect_code(0), "README.md");
    let pages = ["man", "pages"];
    tried(&project, "agent man DIRECTORY", &pages).expect_code(0);
    assert!(project.root().join("sum/pages/agent-undo.1").exists());

    says(
        tried(&project, "agent audit last", &["audit", "last"]).expect_code(0),
        "intact",
    );
    let sessions = project.root().join("sum/.agent/sessions");
    let session = std::fs::read_dir(sessions)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let log = session.path().join("events.jsonl");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    says(
        tried(&project, "agent audit last", &["audit", "last"]).expect_code(1),
        "NOT INTACT",
    );
}
