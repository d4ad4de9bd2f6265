//! `agent demo`: works with nothing configured, and leaves a session that holds up.

use agent_test_support::project::TestProject;

use crate::agent;
use crate::screen::terminal::Terminal;

/// The commands of the closing list, which has to fit a terminal of the usual width.
fn tries(told: &[&str]) -> Vec<String> {
    let list = told.iter().skip_while(|line| !line.ends_with("Try:"));
    let list: Vec<&str> = list.copied().filter(|line| line.contains("  # ")).collect();
    let columns: Vec<usize> = list.iter().filter_map(|line| line.find('#')).collect();
    assert!(columns.windows(2).all(|two| two[0] == two[1]), "{list:#?}");
    assert!(list.iter().all(|line| line.len() <= 80), "{list:#?}");
    let command = |line: &&str| line[..columns[0]].trim().to_owned();
    list.iter().map(command).collect()
}

#[test]
fn the_demo_fixes_the_test_and_its_session_is_whole() {
    let project = TestProject::new();
    let ran = agent(&project, &["demo", "--directory", "sum"]).finish();
    assert_eq!(ran.code(), 0, "{}\n{}", ran.stdout(), ran.stderr());
    let told = ran.stdout();
    for part in [
        "The model is a script",
        "the rule `edit(src/**)`",
        "sandbox: full",
        "verification: passed (sh test.sh)",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert_eq!(
        tries(&told.lines().collect::<Vec<_>>()),
        [
            "agent replay last",
            "agent diff last",
            "agent undo last",
            "agent audit last",
            "agent --model PROVIDER/MODEL",
        ]
    );
    assert!(project.read("sum/src/sum.sh").contains("$(($1 + $2))"));
    let audit = agent(&project, &["-C", "sum", "audit", "last"]).finish();
    assert_eq!(audit.code(), 0, "{}", audit.stdout());
    agent(
        &project,
        &["-C", "sum", "export", "last", "--format", "portable"],
    )
    .finish()
    .expect_code(0);
}

/// `agent demo` with exactly these variables.
fn demo_with(project: &TestProject, directory: &str, variables: &[(&str, &str)]) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["demo", "--directory", directory])
        .current_dir(project.root())
        .env_clear()
        .env("PATH", path)
        .envs(variables.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    let problems = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(0), "{told}\n{problems}");
    assert!(told.contains("verification: passed (sh test.sh)"), "{told}");
    problems
}

#[test]
fn the_demo_needs_no_home() {
    let project = TestProject::new();
    let home = project.home();
    std::fs::create_dir_all(&home).unwrap();
    let state = home.join("empty");
    // A home that is not there yet is made.
    demo_with(&project, "one", &[("HOME", state.to_str().unwrap())]);
    // One that cannot be made, for root neither: the state lies beside the project.
    let file = home.join("file");
    std::fs::write(&file, "").unwrap();
    let told = demo_with(&project, "two", &[("HOME", file.to_str().unwrap())]);
    assert!(told.contains("AGENT_HOME"), "{told}");
    assert!(project.root().join("two-home/state/runtime_id").exists());
    assert!(!project.root().join("two/state").exists());
    // None at all: what the system's list says is the home, in the sandbox's eyes too.
    let state = home.join("agent");
    demo_with(
        &project,
        "three",
        &[("AGENT_HOME", state.to_str().unwrap())],
    );
}

#[test]
fn a_demo_that_changed_nothing_has_nothing_to_take_back() {
    let project = TestProject::new();
    let arguments = ["demo", "--directory", "sum"];
    let mut terminal = Terminal::start(&project, &arguments, (80, 30));
    terminal.question("$ sh test.sh").keys("d");
    terminal.wait_for("Ask for something").keys("/quit\r");
    assert_eq!(terminal.exit_code(), 0);
    terminal.assert_given_back();
    let lines = terminal.everything();
    assert_eq!(
        tries(&lines.iter().map(String::as_str).collect::<Vec<_>>()),
        [
            "agent replay last",
            "agent audit last",
            "agent --model PROVIDER/MODEL",
        ]
    );
    assert!(!lines.join("\n").contains("agent resume"));
}
