//! `agent diff`: what a session changed, without git, exact enough for git to apply.

use std::process::Command;

use serde_json::Value;

use crate::files::{
    assert_same, bash, calls, edit, last_event, more_calls, project, read, snapshot, write,
};
use crate::{agent, assert_schema};

#[test]
fn changes_of_tools_and_commands_are_shown_alike() {
    let project = project();
    let intents = [
        read("a.txt"),
        edit("a.txt", "two", "2"),
        write("new.txt", "hello\n"),
        bash("rm b.txt; chmod 755 run.sh; printf 'no end' >> src/main.rs"),
    ];
    calls(&project, &intents);
    let run = agent(&project, &["diff"]).finish().expect_code(0);
    insta::assert_snapshot!(run.stdout(), @r"
    diff --git a/a.txt b/a.txt
    --- a/a.txt
    +++ b/a.txt
    @@ -1,3 +1,3 @@
     one
    -two
    +2
     three
    diff --git a/b.txt b/b.txt
    deleted file mode 100644
    --- a/b.txt
    +++ /dev/null
    @@ -1 +0,0 @@
    -beta
    diff --git a/new.txt b/new.txt
    new file mode 100644
    --- /dev/null
    +++ b/new.txt
    @@ -0,0 +1 @@
    +hello
    diff --git a/run.sh b/run.sh
    old mode 100640
    new mode 100755
    diff --git a/src/main.rs b/src/main.rs
    --- a/src/main.rs
    +++ b/src/main.rs
    @@ -1 +1,2 @@
     fn main() {}
    +no end
    \ No newline at end of file
    ");
    let run = agent(&project, &["diff", "--stat", "last", "src", "a.txt"]);
    let run = run.finish().expect_code(0);
    insta::assert_snapshot!(run.stdout(), @r"
    path         change   added  removed
    a.txt        changed     +1       -1
    src/main.rs  changed     +1       -0
    2 paths changed, +2 -1
    ");
    let printed = agent(&project, &["diff", "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_schema("diff", &printed);
    assert_eq!(printed["files"][1]["change"], "deleted");
    assert_eq!(printed["files"][3]["after"]["mode"], 0o755);
    let colored = agent(&project, &["diff", "--color", "always"]).finish();
    assert!(
        colored.stdout().contains("\u{1b}[32m+hello"),
        "{:?}",
        colored.stdout()
    );
}

#[test]
fn a_turn_or_a_range_alone() {
    let project = project();
    calls(&project, &[write("new.txt", "1\n")]);
    let between = last_event(&project).to_string();
    more_calls(&project, &[bash("echo 2 > new.txt; echo x > other")]);
    let paths = |arguments: &[&str]| -> Vec<String> {
        let run = agent(&project, &["diff", "--json"]).args(arguments);
        let printed = run.finish().expect_code(0).json();
        let files = printed["files"].as_array().unwrap().iter();
        let name = |file: &Value| format!("{} {}", file["change"], file["path"]);
        files.map(|file| name(file).replace('"', "")).collect()
    };
    assert_eq!(paths(&[]), ["created new.txt", "created other"]);
    assert_eq!(paths(&["--turn", "1"]), ["created new.txt"]);
    assert_eq!(
        paths(&["--turn", "last"]),
        ["changed new.txt", "created other"]
    );
    assert_eq!(
        paths(&["--from", &between]),
        ["changed new.txt", "created other"]
    );
    assert_eq!(paths(&["--to", &between]), ["created new.txt"]);
    agent(&project, &["undo", "--yes"]).finish().expect_code(0);
    assert_eq!(paths(&[]), [""; 0], "what was taken back is no difference");
}

#[test]
fn git_can_apply_the_exact_diff_backwards() {
    let project = project();
    let start = snapshot(&project);
    let odd = "a name with \\\"quotes\\\" and grün";
    let intents = [
        read("a.txt"),
        edit("a.txt", "two", "2\r"),
        bash(&format!(
            "printf 'x' > '{}'; rm b.txt",
            odd.replace('\\', "")
        )),
        bash("printf 'secret = \"AKIAIOSFODNN7EXAMPLE\"\\n' >> src/main.rs"),
    ];
    calls(&project, &intents);
    let masked = agent(&project, &["diff"]).finish().stdout();
    assert!(!masked.contains("AKIAIOSFODNN7EXAMPLE"), "{masked}");
    let exact = agent(&project, &["diff", "--exact"])
        .finish()
        .expect_code(0);
    let patch = project.home().join("patch");
    std::fs::write(&patch, &exact.output.stdout).unwrap();
    std::fs::remove_dir_all(project.root().join(".git")).unwrap();
    let applied = Command::new("git")
        .args(["apply", "-R"])
        .arg(&patch)
        .current_dir(project.root())
        .output()
        .unwrap();
    assert!(
        applied.status.success(),
        "{}",
        String::from_utf8_lossy(&applied.stderr)
    );
    assert_same(&snapshot(&project), &start);
}

#[test]
fn nothing_reaches_the_terminal_unescaped() {
    let project = project();
    calls(&project, &[bash("printf 'red \\033[31m\\n' > evil.txt")]);
    let run = agent(&project, &["diff"]).finish().expect_code(0);
    assert!(!run.stdout().contains('\u{1b}'), "{:?}", run.stdout());
    assert!(run.stdout().contains("+red \\x1b[31m"), "{}", run.stdout());
}
