//! How sessions are named on the command line, and what hands know from other programs.

use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::Value;

use crate::{agent, sample};

/// The session that `name` means to a command that looks at one.
fn meant(project: &TestProject, name: &str) -> String {
    let ran = agent(project, &["sessions", "size", "--json", name]).finish();
    let found = ran.expect_code(0).json();
    found["sessions"][0]["session_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The project's model is `server`.
fn served(project: &TestProject, server: &ModelServer) {
    let base = server.base_url(Wire::Chat);
    project.write_home(
        "config.toml",
        format!("model = \"local/test-model\"\n[providers.local]\nbase_url = \"{base}\"\n"),
    );
}

#[test]
fn a_number_a_title_and_a_step_back_name_a_session() {
    let project = TestProject::new();
    let oldest = sample::session(&project, 1, "Fix the parser test");
    let middle = sample::session(&project, 2, "Rename the lexer");
    let newest = sample::session(&project, 3, "Parser panics on nothing");
    for (name, id) in [
        ("1", &newest),
        ("3", &oldest),
        ("last", &newest),
        ("last~1", &middle),
        ("last~2", &oldest),
        ("rename the lexer", &middle),
        ("Fix", &oldest),
        ("lexer", &middle),
        ("parser test", &oldest),
        (oldest.as_str(), &oldest),
    ] {
        assert_eq!(meant(&project, name), id.as_str(), "{name}");
    }
    // The list has the same numbers.
    let text = agent(&project, &["sessions"]).finish().stdout();
    let line = text.lines().find(|line| line.contains("Rename the lexer"));
    assert!(line.unwrap().trim_start().starts_with("2 "), "{text}");
}

#[test]
fn a_name_of_several_sessions_lists_them() {
    let project = TestProject::new();
    sample::session(&project, 1, "Fix the parser\u{1b}[31m test");
    sample::session(&project, 2, "Rename the lexer");
    sample::session(&project, 3, "Parser panics on nothing");
    // A title that begins with the word is meant before one that has it somewhere.
    let ran = agent(&project, &["replay", "parser", "--format", "text"]).finish();
    let told = ran.expect_code(0).stdout();
    assert!(told.contains("Parser panics on nothing"), "{told}");
    let ran = agent(&project, &["sessions", "show", "the"]).finish();
    let said = ran.expect_code(2).stderr();
    assert!(said.contains("`the` matches 2 sessions"), "{said}");
    for part in ["  2  Rename the lexer  (just now)", "  3  Fix the parser"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(!said.contains('\u{1b}'), "{said:?}");
    for (name, part) in [
        ("4", "the project has 3 sessions"),
        ("0", "the project has 3 sessions"),
        ("last~9", "the project has 3 sessions"),
        ("compiler", "there is no session `compiler`"),
    ] {
        let said = agent(&project, &["diff", name])
            .finish()
            .expect_code(2)
            .stderr();
        assert!(said.contains(part), "{name}: {said}");
    }
}

#[test]
fn calls_are_not_the_conversation_that_is_continued() {
    let project = TestProject::new();
    project.write("notes.txt", "hello\n");
    let script = Script::new()
        .turn(Turn::text("One."))
        .turn(Turn::text("Two."));
    let server = ModelServer::start(script);
    served(&project, &server);
    agent(&project, &["run", "first words"])
        .finish()
        .expect_code(0);
    let conversation = meant(&project, "last");
    let call = ["call", "read", "{\"path\":\"notes.txt\"}"];
    agent(&project, &call).finish().expect_code(0);
    // To look at, the last is the call; to go on with, it is the conversation.
    assert_ne!(meant(&project, "last"), conversation);
    let ran = agent(&project, &["-p", "-c", "--output", "json", "more"]).finish();
    assert_eq!(
        ran.expect_code(0).json()["session_id"],
        conversation.as_str()
    );
    let said = server.bodies()[1]["messages"].to_string();
    assert!(said.contains("first words"), "{said}");
}

#[test]
fn habits_of_other_programs_work_or_name_ours() {
    let project = TestProject::new();
    let answer = Turn::text("Said **so**.");
    let server = ModelServer::start(Script::new().turns(4, &answer));
    served(&project, &server);
    let said = |arguments: &[&str]| agent(&project, arguments).finish().expect_code(0).stdout();
    assert_eq!(said(&["-p", "hello"]), "Said **so**.\n");
    assert_eq!(
        said(&["exec", "-m", "local/other", "hello"]),
        "Said **so**.\n"
    );
    assert_eq!(server.bodies()[1]["model"], "other");
    let piped = agent(&project, &["-p"]).stdin("from a pipe").finish();
    assert_eq!(piped.expect_code(0).stdout(), "Said **so**.\n");
    assert!(server.bodies()[2].to_string().contains("from a pipe"));

    for (flag, ours) in [
        ("--dangerously-skip-permissions", "--mode full"),
        ("--yolo", "--mode full"),
        ("--full-auto", "--mode auto"),
        ("--permission-mode=plan", "--mode read-only"),
    ] {
        let ran = agent(&project, &["run", flag, "hello"])
            .finish()
            .expect_code(2);
        assert!(ran.stderr().contains(ours), "{flag}: {}", ran.stderr());
    }
    let ran = agent(&project, &["--mode", "auto", "run", "hello"]).finish();
    let told = ran.expect_code(2).stderr();
    assert!(told.contains("`agent run --mode …`"), "{told}");
    let ran = agent(&project, &["run", "--mode", "yolo", "hello"]).finish();
    let told = ran.expect_code(2).stderr();
    assert!(told.contains("accept-edits"), "{told}");
    assert_eq!(server.requests().len(), 3);
}

/// What the completion scripts ask for.
fn completed(project: &TestProject, words: &[&str]) -> Vec<String> {
    let mut arguments = vec!["complete", "--"];
    arguments.extend(words);
    let ran = agent(project, &arguments).finish().expect_code(0);
    let text = ran.stdout();
    let values = text
        .lines()
        .map(|line| line.split('\t').next().unwrap().to_owned());
    values.collect()
}

#[test]
fn completions_know_commands_modes_models_and_sessions() {
    let project = TestProject::new();
    sample::session(&project, 1, "Fix the \u{1b}parser");
    project.write_home(
        "config.toml",
        "model = \"mine/tiny\"\n[providers.mine]\nbase_url = \"http://127.0.0.1:9/v1\"\n",
    );
    let has = |words: &[&str], value: &str| {
        let found = completed(&project, words);
        assert!(found.iter().any(|it| it == value), "{words:?}: {found:?}");
        found
    };
    has(&["con"], "config");
    assert_eq!(completed(&project, &["config", "tru"]), ["trust"]);
    assert_eq!(
        completed(&project, &["run", "--mode", "acc"]),
        ["accept-edits"]
    );
    assert_eq!(completed(&project, &["run", "--mode=au"]), ["--mode=auto"]);
    assert_eq!(completed(&project, &["run", "--mode", "=", "au"]), ["auto"]);
    has(&["run", "-m", "mine"], "mine/tiny");
    has(&["run", "--model", ""], "anthropic/claude-sonnet-5");
    has(&["run", "--req"], "--require-verified");
    assert_eq!(has(&["replay", ""], "last").len(), 2);
    assert_eq!(completed(&project, &["audit", "1", ""]).len(), 2);
    assert_eq!(completed(&project, &["why", "1", ""]), [""; 0]);
    assert!(
        completed(&project, &["com"])
            .iter()
            .all(|it| it != "complete")
    );
    let shown = agent(&project, &["complete", "--", "resume", ""]).finish();
    assert!(shown.stdout().contains("1\tFix the"), "{}", shown.stdout());
    assert!(!shown.stdout().contains('\u{1b}'));
}

#[test]
fn bash_completes_by_asking_the_program() {
    let project = TestProject::new();
    let script = agent(&project, &["completions", "bash"]).finish().stdout();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_agent"));
    let asked = format!(
        "{script}\nCOMP_WORDS=(agent sess); COMP_CWORD=1; _agent_complete; echo \"${{COMPREPLY[@]}}\""
    );
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let done = std::process::Command::new("bash")
        .args(["--norc", "-c", &asked])
        .current_dir(project.root())
        .env("PATH", path)
        .env("AGENT_HOME", project.home())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "sessions\n",
        "{done:?}"
    );
}

/// The name it was called by is in its words, and decides nothing.
#[test]
fn a_second_name_speaks_of_itself() {
    let project = TestProject::new();
    let folder = tempfile::tempdir().unwrap();
    let second = folder.path().join("my-agent");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_agent"), &second).unwrap();
    let run = |arguments: &[&str]| {
        agent_test_support::run::Run::new(&second, &project)
            .args(arguments)
            .finish()
    };
    let help = run(&["run", "--help"]).expect_code(0).stdout();
    assert!(help.contains("Usage: my-agent run"), "{help}");
    assert!(help.contains("\n  my-agent run --output json"), "{help}");
    assert!(!help.contains("\n  agent run"), "{help}");
    let said = run(&["diff", "last"]).expect_code(2).stderr();
    assert!(said.contains("`my-agent run PROMPT`"), "{said}");
    let said = run(&["sesions"]).expect_code(2).stderr();
    assert!(said.contains("did you mean `my-agent sessions`?"), "{said}");
}

#[test]
fn doctor_sees_another_program_of_the_same_name() {
    let project = TestProject::new();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("agent");
    std::fs::write(&other, "#!/bin/sh\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&other, mode).unwrap();
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_agent"))
        .parent()
        .unwrap();
    let usual = std::env::var("PATH").unwrap();
    let name = |path: String| -> Value {
        let run = agent(&project, &["doctor", "--json"]).env("PATH", path);
        let report = run.finish().expect_code(0).json();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|it| it["name"] == "name").unwrap()
    };
    let (folder, own) = (folder.path().display(), own.display());
    let before = name(format!("{folder}:{own}:{usual}"));
    assert_eq!(before["status"], "warning");
    let said = before["message"].as_str().unwrap();
    assert!(said.contains(&other.display().to_string()), "{said}");
    assert!(
        before["hint"].as_str().unwrap().contains("ln -s"),
        "{before}"
    );
    let after = name(format!("{own}:{folder}:{usual}"));
    assert_eq!(after["status"], "warning");
    assert!(
        after["message"].as_str().unwrap().contains("hides"),
        "{after}"
    );
    assert_eq!(name(format!("{own}:{usual}"))["status"], "ok");
}
