//! Instructions of a project: `AGENTS.md` from the root down, what stands in for it, what is not
//! taken from whoever wrote the project, and what the log says about all of it.

use std::os::unix::fs::symlink;

use agent_protocol::Payload;
use agent_protocol::payload::model::ContextResolved;
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::run::{assert_inputs_can_be_rebuilt, log, run, sum_project};

/// Runs once and gives what the model was told first, and the receipt of it.
fn told(project: &TestProject, arguments: &[&str]) -> (String, ContextResolved) {
    let server = ModelServer::start(Script::new().turn(Turn::text("Seen.")));
    let ran = run(project, &server, Wire::Chat, arguments).finish();
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    assert_inputs_can_be_rebuilt(project, &server);
    let body = server.bodies().remove(0);
    let system = body["messages"][0]["content"].as_str().unwrap().to_owned();
    let receipt = log(project)
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::ContextResolved(receipt) => Some(receipt),
            _ => None,
        });
    (system, receipt.unwrap())
}

fn left_out(receipt: &ContextResolved) -> Vec<String> {
    let said = receipt.omitted.iter();
    said.map(|left| format!("{}: {}", left.source, left.reason))
        .collect()
}

#[test]
fn they_are_collected_from_the_root_down_and_the_user_s_come_last() {
    let project = sum_project();
    project.write("AGENTS.md", "At the root.");
    project.write("CLAUDE.md", "Not taken, there is the other.");
    project.write("src/CLAUDE.md", "In its place.");
    project.write("src/deep/AGENTS.md", "Further down.");
    project.write("other/AGENTS.md", "Not on the way.");
    project.write_home("AGENTS.md", "Everywhere.");
    let (system, receipt) = told(&project, &["-C", "src/deep", "Look."]);
    let at = |words: &str| system.find(words);
    let order = [
        "At the root.",
        "In its place.",
        "Further down.",
        "Everywhere.",
    ]
    .map(at);
    assert!(order.iter().all(Option::is_some), "{system}");
    assert!(order.is_sorted(), "{system}");
    assert!(!system.contains("Not taken") && !system.contains("Not on the way"));
    let named: Vec<&str> = receipt
        .instruction_refs
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    let user = project.home().join("AGENTS.md");
    let expected = [
        "AGENTS.md",
        "src/CLAUDE.md",
        "src/deep/AGENTS.md",
        user.to_str().unwrap(),
    ];
    assert_eq!(named, expected);
    assert!(receipt.omitted.is_empty());
}

/// A project cannot have the user's files sent off in the place of its instructions, nor keep the
/// program waiting.
#[test]
fn what_is_no_document_of_the_project_is_left_out_and_named() {
    let project = sum_project();
    project.write_home("credentials.md", "what only the user may see");
    project.write(".env", "PASSWORD=of-the-project");
    project.write("docs/rules.md", "Linked rules.");
    symlink(
        project.home().join("credentials.md"),
        project.root().join("AGENTS.md"),
    )
    .unwrap();
    symlink("docs/rules.md", project.root().join("CLAUDE.md")).unwrap();
    project.write("a/keep", "");
    symlink("../.env", project.root().join("a/AGENTS.md")).unwrap();
    project.write("a/b/keep", "");
    mkfifo(&project.root().join("a/b/AGENTS.md"), Mode::S_IRWXU).unwrap();
    project.write("a/b/CLAUDE.md", b"\xff\xfe no text");
    let (system, receipt) = told(&project, &["-C", "a/b", "Look."]);
    assert!(!system.contains("only the user") && !system.contains("of-the-project"));
    assert!(system.contains("Linked rules."), "{system}");
    assert_eq!(
        left_out(&receipt),
        [
            "instructions in `AGENTS.md`: it is a link to a path outside the project",
            "instructions in `a/AGENTS.md`: it is a link to `.env`, which is no document",
            "instructions in `a/b/AGENTS.md`: it is a named pipe",
            "instructions in `a/b/CLAUDE.md`: it is not UTF-8 text",
        ]
    );
}

#[test]
fn what_is_too_long_is_cut_and_says_so() {
    let project = sum_project();
    project.write("AGENTS.md", "x".repeat(40_000));
    let (system, receipt) = told(&project, &["Look."]);
    assert!(
        system.contains("[truncated: 7232 bytes omitted]"),
        "the model knows"
    );
    assert_eq!(
        left_out(&receipt),
        ["instructions in `AGENTS.md`: the last 7232 of 40000 bytes"]
    );
}

#[test]
fn a_secret_in_them_is_masked() {
    let project = sum_project();
    let key = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCD";
    project.write("AGENTS.md", format!("The key is {key}, use it."));
    let (system, _) = told(&project, &["Look."]);
    assert!(
        system.contains("The key is ") && !system.contains(key),
        "{system}"
    );
}
