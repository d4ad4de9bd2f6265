//! Reads of a service with the network and the program's own credentials: only where somebody says so, only for that
//! command, and recorded.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;
use serde_json::json;
use tempfile::TempDir;

use crate::agent;
use crate::permissions::explain_in;
use crate::proof::applied;

const TOKEN: &str = "a-token-that-is-in-no-list-4711";

/// A project, and elsewhere a `gh` that says what it sees: the length of its token, whether it reaches the loopback of the
/// host, a secret and whether it can write. Programs in a temporary directory do not run in the sandbox of a proof.
fn place(listener: &TcpListener) -> (TestProject, TempDir) {
    let project = TestProject::new();
    project.write(".env", "PASSWORD=hunter2-of-the-project\n");
    let port = listener.local_addr().unwrap().port();
    let tools = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = tools.path().join("gh");
    let text = format!(
        "#!/bin/bash\necho \"token of ${{#GH_TOKEN}} characters: $GH_TOKEN\"\n\
         (echo hello > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached\n\
         cat .env\necho x > written || true\n\
         [ -z \"$GH_CONFIG_DIR\" ] || cat \"$GH_CONFIG_DIR/hosts.yml\"\n"
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (project, tools)
}

fn run(
    (project, tools): &(TestProject, TempDir),
    mode: &str,
    command: &str,
    token: bool,
) -> RunOutput {
    let input = json!({"command": command, "description": "a test"}).to_string();
    let path = format!(
        "{}:{}",
        tools.path().display(),
        std::env::var("PATH").unwrap()
    );
    let call = agent(project, &["call", "--json", "--mode", mode, "bash", &input]);
    let call = call.env("PATH", path);
    match token {
        true => call.env("GH_TOKEN", TOKEN),
        false => call,
    }
    .finish()
}

fn reached(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    let Ok((mut stream, _)) = listener.accept() else {
        return false;
    };
    stream.set_nonblocking(false).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text == "hello\n"
}

#[test]
fn a_rule_gives_reads_of_gh_the_network_and_its_token_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place(&listener);
    let project = &place.0;
    project.write_home(
        "config.toml",
        "[permissions]\nallow = [\"network(gh *)\"]\n",
    );
    let ran = run(&place, "ask", "gh pr view 12 | head -20", true).expect_code(0);
    let said = ran.stdout();
    assert!(
        said.contains(&format!("token of {} characters", TOKEN.len())),
        "{said}"
    );
    assert!(said.contains("reached") && reached(&listener), "{said}");
    // What it is shown is masked where it shows it, and the rest stays out of reach.
    assert!(!said.contains(TOKEN), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    assert!(!project.root().join("written").exists(), "{said}");
    let fact = applied(project);
    assert_eq!(fact.network, "host");
    assert_eq!(fact.secrets, ["GH_TOKEN"]);
    assert_eq!(fact.profile_id, "read-only+network+gh");

    // The next command has neither.
    let other = run(&place, "auto", "gh pr view 12; sh -c true", true);
    let said = other.stdout();
    assert!(said.contains("token of 0 characters"), "{said}");
    assert!(!reached(&listener), "{said}");
    let fact = applied(project);
    assert_eq!((fact.network.as_str(), fact.secrets.len()), ("off", 0));
    // What changes something is asked about.
    for command in [
        "gh pr merge 12",
        "gh api -X DELETE repos/o/r",
        "gh pr view 12 > out.txt",
    ] {
        let said = run(&place, "ask", command, true).stdout();
        assert!(said.contains("approval_unavailable"), "{command}: {said}");
    }
}

#[test]
fn without_a_word_of_anybody_gh_gets_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place(&listener);
    let project = &place.0;
    let said = run(&place, "auto", "gh pr view 12", true).stdout();
    assert!(said.contains("token of 0 characters"), "{said}");
    assert!(!reached(&listener), "{said}");
    let said = run(&place, "ask", "gh pr view 12", true).stdout();
    assert!(said.contains("approval_unavailable"), "{said}");
    // A rule about running it is none about the network.
    project.write_home("config.toml", "[permissions]\nallow = [\"bash(gh *)\"]\n");
    let said = run(&place, "ask", "gh pr view 12", true).stdout();
    assert!(said.contains("token of 0 characters"), "{said}");
    assert!(!reached(&listener), "{said}");
}

#[test]
fn settings_of_gh_are_shown_where_no_variable_holds_a_token() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place(&listener);
    let project = &place.0;
    project.write_home(
        "config.toml",
        "[permissions]\nallow = [\"network(gh *)\"]\n",
    );
    project.write_home(".config/gh/hosts.yml", "github.com:\n  user: octo\n");
    let said = run(&place, "ask", "gh pr view 12", false)
        .expect_code(0)
        .stdout();
    assert!(said.contains("user: octo"), "{said}");
    let shown = project.home().join(".config/gh");
    assert_eq!(applied(project).secrets, [shown.to_str().unwrap()]);
    // No other command sees them.
    let said = run(
        &place,
        "auto",
        "cat ~/.config/gh/hosts.yml || true; node -v || true",
        false,
    )
    .stdout();
    assert!(!said.contains("octo"), "{said}");
}

#[test]
fn the_question_says_what_gh_would_get_and_offers_the_rule() {
    let project = TestProject::new();
    let said = explain_in(&project, "ask", "gh pr view 12");
    assert_eq!(said["decision"], "ask", "{said}");
    assert_eq!(said["suggested_rule"], "network(gh *)", "{said}");
    let risk = said["risk"].to_string();
    assert!(
        risk.contains("will have network access and the credentials of `gh`"),
        "{said}"
    );
    assert!(!risk.contains("has no network"), "{said}");
    let said = explain_in(&project, "auto", "gh pr view 12");
    assert_eq!(said["decision"], "allow", "{said}");
    assert!(
        said["risk"].to_string().contains("has no network"),
        "{said}"
    );
    let said = explain_in(&project, "read-only", "gh pr view 12");
    assert_eq!(said["decision"], "deny", "{said}");
}
