//! `agent permissions explain` and `list`: decisions explained before anything is asked for.

use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::conversation::{Conversation, bash};
use crate::{agent, assert_schema};

/// The decisions about these bash commands with `rules`, in mode `ask`.
fn decisions(project: &TestProject, rules: &str, commands: &[&str]) -> Vec<String> {
    let lines: Vec<Value> = commands
        .iter()
        .map(|command| json!({"tool": "bash", "input": {"command": command}}))
        .collect();
    explained(project, rules, &lines)
        .iter()
        .map(|explained| explained["decision"].as_str().unwrap().to_owned())
        .collect()
}

fn explained(project: &TestProject, rules: &str, calls: &[Value]) -> Vec<Value> {
    project.write_home("rules.toml", rules);
    let file = project.home().join("rules.toml");
    let input: String = calls.iter().map(|call| format!("{call}\n")).collect();
    let arguments = ["permissions", "explain", "--stdin", "--rules"];
    let run = agent(project, &arguments)
        .args([file])
        .stdin(input)
        .finish()
        .expect_code(0);
    let printed: Vec<Value> = run
        .stdout()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(printed.len(), calls.len());
    for explained in &printed {
        assert_schema("permissions-explain", explained);
    }
    printed
}

/// Output of `agent permissions explain` for a command in a mode.
pub(crate) fn explain_in(project: &TestProject, mode: &str, command: &str) -> Value {
    let arguments = ["permissions", "explain", "--json", "--mode", mode, command];
    agent(project, &arguments).finish().expect_code(0).json()
}

#[track_caller]
fn all(project: &TestProject, rules: &str, expected: &str, commands: &[&str]) {
    let decided = decisions(project, rules, commands);
    for (command, decision) in commands.iter().zip(decided) {
        assert_eq!(decision, expected, "{command}");
    }
}

/// A project with the directories that the commands speak of.
pub(crate) fn project() -> TestProject {
    let project = TestProject::new();
    project.write("README.md", "# x\n");
    project.write("crates/a.rs", "fn a() {}\n");
    project.write("certs/a.pem", "key\n");
    project
}

#[test]
fn a_rule_covers_only_the_commands_it_names() {
    let project = project();
    let rules =
        "[permissions]\nallow = [\"bash(make check *)\", \"bash(uptime *)\", \"bash(printf *)\"]\n";
    all(
        &project,
        rules,
        "ask",
        &[
            "make check && node after.js",
            "uptime\nnode after.js",
            "uptime & node after.js",
            "uptime |& node after.js",
            "printf '%s' \"$(node after.js)\"",
            "printf '%s' `node after.js`",
            "make check > report.txt",
        ],
    );
    all(
        &project,
        rules,
        "allow",
        &[
            "make check fast",
            "make check 2>&1 | tail -5",
            "printf '$(x)'",
        ],
    );
}

#[test]
fn what_may_mean_something_else_is_asked() {
    let project = project();
    let long = format!("{}node x.js", ":;".repeat(400));
    let deep = format!("{}ls{}", "(".repeat(600), ")".repeat(600));
    let wide = format!("echo {}", "a".repeat(45_000));
    all(
        &project,
        "",
        "ask",
        &[
            "ls ${A:=$(node x.js)}",
            "echo ${A@P}",
            "(( a[$(node x.js)] ))",
            "[[ $v -eq 1 ]]",
            "tail -3 README.md >> notes.txt",
            "gre\\p x README.md",
            "c''at README.md",
            "cat <<'' ",
            "{cat,README.md}",
            "/bin/ca?",
            "git -c diff.external=./x diff",
            "git --exec-path=./bin log",
            "rg --pre ./x TODO",
            "sort -o README.md list",
            "sed -n '1w out' README.md",
            "awk 'BEGIN{system(\"id\")}'",
            "tar -I ./x -tf a.tar",
            "GIT_PAGER=./x git log",
            "export LD_PRELOAD=./x.so",
            "cd .. && cat other/config.yml",
            "find . -name '*.o' -fprint out",
            "ls \u{1b}[2K",
            "ls \u{202e}x",
            "echo \"open",
            &long,
            &deep,
            &wide,
        ],
    );
}

#[test]
fn everyday_reading_is_not_asked_about() {
    let project = project();
    all(
        &project,
        "",
        "allow",
        &[
            "git status -sb",
            "git log -n 3 --format=%s | tail -2",
            "grep -n '$(pwd)' README.md",
            "find crates -name '*.rs' -printf '%f\\n'",
            "rg -l unsafe crates | sort",
            "cat README.md crates/a.rs",
            "sed -n '1,3p' README.md",
            "ls nothing 2>/dev/null || echo none",
            "cd crates && ls",
            "sort README.md | uniq -c",
        ],
    );
}

#[test]
fn a_deny_rule_sees_through_wrappers_and_broken_syntax() {
    let project = project();
    let rules =
        "[permissions]\nallow = [\"bash\"]\ndeny = [\"bash(helm delete *)\", \"read(**/*.pem)\"]\n";
    all(
        &project,
        rules,
        "deny",
        &[
            "true; A=1 timeout 9 env -u B helm delete web",
            "sh -c 'helm delete web'",
            "(helm delete web)",
            "f() { helm delete web; }; f",
            "\"helm\" 'delete' web",
            "cat <<'E' 2>&1 | helm delete web\nx\nE",
            "openssl x509 -in certs/a.pem",
        ],
    );
    all(
        &project,
        rules,
        "allow",
        &["echo 'helm delete is forbidden'"],
    );
}

#[test]
fn files_are_judged_by_where_they_are() {
    let project = project();
    std::os::unix::fs::symlink("a.pem", project.root().join("certs/current")).unwrap();
    let beside = format!("{}-backup/a", project.root().display());
    let call = |tool: &str, path: &str, mode: &str| json!({"tool": tool, "input": {"path": path, "content": "x"}, "mode": mode});
    let rules = "[permissions]\ndeny = [\"read(**/*.pem)\"]\n";
    let cases = [
        (call("write", "src/new.rs", "ask"), "ask"),
        (call("write", "src/new.rs", "accept-edits"), "allow"),
        (call("write", "src/new.rs", "read-only"), "deny"),
        (call("write", &beside, "accept-edits"), "ask"),
        (call("read", "certs/current", "full"), "deny"),
        (call("write", ".git/hooks/pre-push", "full"), "ask"),
        (call("write", "sub/.git/config", "accept-edits"), "ask"),
        (call("write", ".agent/config.local.toml", "full"), "ask"),
        (call("write", ".vscode/tasks.json", "full"), "ask"),
        (call("write", ".github/workflows/x.yml", "full"), "ask"),
        (call("read", "README.md", "ask"), "allow"),
    ];
    let calls: Vec<Value> = cases.iter().map(|(call, _)| call.clone()).collect();
    for (answer, (call, decision)) in explained(&project, rules, &calls).iter().zip(&cases) {
        assert_eq!(answer["decision"], *decision, "{call}: {answer}");
        assert_eq!(answer["mode"], call["mode"]);
        assert!(answer["parse"].is_null());
    }
}

/// A cloned repository may forbid at once; what it allows has no effect until it is trusted.
#[test]
fn an_untrusted_project_only_forbids_and_list_says_so() {
    let project = project();
    project.write(
        ".agent/config.toml",
        "[permissions]\nmode = \"full\"\nallow = [\"bash(*)\"]\ndeny = [\"bash(make *)\"]\n",
    );
    project.write_home(
        "config.toml",
        "\n[permissions]\nask = [\"bash(git push *)\"]\n",
    );
    assert_eq!(
        decisions(&project, "", &["node x.js", "make all"]),
        ["ask", "deny"]
    );
    let list = agent(&project, &["permissions", "list", "--json"]);
    let list = list.finish().expect_code(0).json();
    assert_schema("permissions-list", &list);
    assert_eq!(list["mode"], "ask");
    let rules = list["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0]["rule"], "bash(make *)");
    assert_eq!(
        rules[0]["origin"],
        json!({"layer": "project", "file": ".agent/config.toml", "line": 4})
    );
    assert_eq!(rules[1]["origin"]["layer"], "user");
    assert_eq!(rules[1]["origin"]["line"], 3);
    assert_eq!(list["ignored"][0]["rule"], "bash(*)");
    assert_eq!(list["ignored"][0]["origin"]["line"], 3);
    let text = agent(&project, &["permissions", "list"]).env("COLUMNS", "200");
    let text = text.finish().expect_code(0);
    assert!(
        text.stdout().contains(".agent/config.toml:4"),
        "{}",
        text.stdout()
    );
    assert!(text.stderr().contains("ignored"), "{}", text.stderr());
}

#[test]
fn people_get_the_decision_first_and_the_rule_with_its_line() {
    let project = project();
    project.write_home(
        "config.toml",
        "[permissions]\nask = [\"bash(cargo publish *)\"]\n",
    );
    let input = r#"{"command":"cargo publish -p x"}"#;
    let arguments = ["permissions", "explain", "--tool", "bash", "--input", input];
    let run = agent(&project, &arguments).env("COLUMNS", "200");
    let text = run.finish().expect_code(0).stdout();
    assert!(text.starts_with("ask: "), "{text}");
    for part in [
        "decided by",
        "ask bash(cargo publish *) (user, ",
        "config.toml:2)",
        "cargo publish -p x",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let input = r#"{"command":"cargo test"}"#;
    let arguments = ["permissions", "explain", "--tool", "bash", "--input", input];
    let text = agent(&project, &arguments).env("COLUMNS", "200");
    let text = text.finish().expect_code(0).stdout();
    assert!(text.contains("add the rule `bash(cargo test *)`"), "{text}");
}

#[test]
fn a_command_may_come_as_words() {
    let project = project();
    let explain = |words: &[&str]| {
        let arguments = [&["permissions", "explain"], words].concat();
        agent(&project, &arguments).finish().expect_code(0)
    };
    let one = explain(&["--json", "git log 'a; b'"]);
    let many = explain(&["--json", "git", "log", "a; b"]);
    assert_eq!(one.stdout(), many.stdout());
    assert_eq!(many.stderr(), "");
    // What looks like a tool's name is a command here, and that is said.
    let tool = explain(&["edit", "README.md"]);
    assert!(
        tool.stderr()
            .contains(r#"--tool edit --input '{"path":"README.md"}'"#),
        "{}",
        tool.stderr()
    );
}

#[test]
fn what_is_no_call_is_exit_2_with_its_line() {
    let project = project();
    let good = r#"{"tool":"bash","input":{"command":"ls"}}"#;
    for (bad, says) in [
        ("{", "line 2"),
        (
            r#"{"tool":"bahs","input":{"command":"ls"}}"#,
            "no tool `bahs`",
        ),
        (r#"{"tool":"bash","input":{}}"#, "`command`"),
        (r#"{"tool":"bash","input":"ls"}"#, "not a JSON object"),
        (
            r#"{"tool":"bash","input":{"command":"ls"},"mode":"yolo"}"#,
            "line 2",
        ),
    ] {
        let run = agent(&project, &["permissions", "explain", "--stdin"])
            .stdin(format!("{good}\n{bad}\n"))
            .finish()
            .expect_code(2);
        assert_eq!(
            run.stdout().lines().count(),
            1,
            "the first line was answered"
        );
        assert!(run.stderr().contains("line 2"), "{}", run.stderr());
        assert!(run.stderr().contains(says), "{}", run.stderr());
    }
}

#[test]
fn a_bad_rule_file_is_exit_2_with_file_and_line() {
    let project = project();
    project.write(
        "rules.toml",
        "[permissions]\nallow = [\n  \"b sh(ls)\",\n]\n",
    );
    let run = agent(&project, &["permissions", "list", "--rules", "rules.toml"])
        .finish()
        .expect_code(2);
    for part in ["rules.toml", "line 3", "`b sh` is not a tool's name"] {
        assert!(run.stderr().contains(part), "{part} in {}", run.stderr());
    }
}

/// The tool may come later; that it is not there now is said.
#[test]
fn a_rule_about_an_unknown_tool_is_told_with_what_was_probably_meant() {
    let project = project();
    let list = |effect: &str, code, parts: [&str; 3]| {
        let rules =
            format!("[permissions]\n{effect} = [\n  \"bahs(ls)\",\n  \"mcp__github__*\",\n]\n");
        project.write("rules.toml", rules);
        let run = agent(&project, &["permissions", "list", "--rules", "rules.toml"]);
        let run = run.finish().expect_code(code);
        for part in parts {
            assert!(run.stderr().contains(part), "{part} in {}", run.stderr());
        }
        assert!(!run.stderr().contains("mcp__"), "{}", run.stderr());
        run
    };
    // An allow rule about it allows nothing; a misspelt one that holds something back would hold back nothing.
    let allowed = list(
        "allow",
        0,
        ["rules.toml:3", "`bahs`", "did you mean `bash`?"],
    );
    assert!(
        allowed.stdout().contains("bahs(ls)"),
        "{}",
        allowed.stdout()
    );
    for effect in ["deny", "ask"] {
        let parts = ["line 3, column 3", "`bahs(ls)`", "did you mean: bash(ls)"];
        list(effect, 2, parts);
    }
}

/// A search names no secret and would show every one below: it passes over them, whatever does it.
#[test]
fn searches_do_not_come_across_secrets() {
    let project = project();
    project.write("src/token.rs", "let token = \"visible\";\n");
    for secret in [
        ".env",
        "config/prod.env",
        "certs/a.pem",
        "deep/.ssh/x",
        "ID_RSA",
    ] {
        project.write(secret, "token=hunter2\n");
    }
    project.write(".env.example", "token=example\n");
    let mut conversation = Conversation::start(&project, &["--mode", "ask"]);
    for command in [
        "grep -rn token .",
        "grep -Rn token",
        "rg -n --hidden --no-ignore token || grep -r token .",
        "timeout 20 grep -rin TOKEN . 2>/dev/null | head -50",
        "diff -r src deep; grep -r token .",
    ] {
        let observed = bash(&mut conversation, command).to_string();
        assert!(!observed.contains("hunter2"), "{command}: {observed}");
        assert!(observed.contains("visible"), "{command}: {observed}");
        assert!(observed.contains("example"), "{command}: {observed}");
    }
    let grep = json!({"pattern": "token", "case": "insensitive"});
    let observed = conversation.call("grep", grep).to_string();
    assert!(!observed.contains("hunter2"), "{observed}");
    assert!(observed.contains("visible"), "{observed}");
    assert!(
        observed.contains("hidden by a rule or as secrets"),
        "{observed}"
    );
    // By name it is a question, which nobody is there to answer.
    let by_name = json!({"pattern": "token", "path": "certs/a.pem"});
    for observed in [
        bash(&mut conversation, "grep -n token .env"),
        bash(&mut conversation, "grep -rn token . .env"),
        conversation.call("grep", by_name),
    ] {
        assert_eq!(observed["phase"], "permission", "{observed}");
        assert!(!observed.to_string().contains("hunter2"), "{observed}");
    }
    conversation.end();
    // Beside a command that may need them they are not hidden, so it asks.
    let rules = "[permissions]\nallow = [\"bash(make)\"]\n";
    all(&project, rules, "ask", &["make && grep -rn token ."]);
    all(&project, rules, "allow", &["make && grep -rn token src"]);
}

#[test]
fn what_a_rule_covers_is_not_called_reading() {
    let project = TestProject::new();
    project.write_home(
        "rules.toml",
        "[permissions]\nallow = [\"bash(rm -rf build)\"]\n",
    );
    let rules = project.home().join("rules.toml");
    let rules = rules.to_str().unwrap();
    let said = |command: &str| {
        let run = agent(
            &project,
            &["permissions", "explain", "--rules", rules, command],
        );
        run.finish().expect_code(0).stdout().to_owned()
    };
    let covered = said("rm -rf build");
    assert!(covered.contains("that rules allow"), "{covered}");
    assert!(!covered.contains("that it is read-only"), "{covered}");
    let read = said("ls build");
    assert!(read.contains("that it is read-only"), "{read}");
}

/// The built-in decisions about the six usual calls, in each mode and without a rule.
#[test]
fn the_usual_calls_are_decided_by_mode() {
    let project = project();
    let bash = |command: &str| ("bash", json!({"command": command}));
    let calls = [
        ("read", json!({"path": "README.md"})),
        ("grep", json!({"pattern": "TODO"})),
        bash("npm test"),
        (
            "edit",
            json!({"path": "README.md", "old_string": "x", "new_string": "y"}),
        ),
        bash("rm -rf ~"),
        bash("git reset --hard"),
    ];
    for (mode, expected) in [
        (
            "read-only",
            ["allow", "allow", "deny", "deny", "deny", "deny"],
        ),
        ("ask", ["allow", "allow", "ask", "ask", "deny", "ask"]),
        (
            "accept-edits",
            ["allow", "allow", "ask", "allow", "deny", "ask"],
        ),
        ("auto", ["allow", "allow", "allow", "allow", "deny", "ask"]),
        ("full", ["allow", "allow", "allow", "allow", "deny", "ask"]),
    ] {
        let lines: Vec<Value> = calls
            .iter()
            .map(|(tool, input)| json!({"tool": tool, "input": input, "mode": mode}))
            .collect();
        for (line, (explained, expected)) in lines
            .iter()
            .zip(explained(&project, "", &lines).iter().zip(expected))
        {
            assert_eq!(
                explained["decision"], expected,
                "{line}: {}",
                explained["reason"]
            );
        }
    }
    // A rule that allows everything does not take the question away.
    let allowed = explained(
        &project,
        "[permissions]\nallow = [\"bash(*)\"]\n",
        &[json!({
            "tool": "bash", "input": {"command": "git reset --hard"}, "mode": "full",
        })],
    );
    assert_eq!(allowed[0]["decision"], "ask");
    assert_eq!(allowed[0]["decision_source"], "circuit_breaker");
}

/// Words that arrive on standard input, evaluating builtins and links: rules do not cover what they cannot see.
#[test]
fn a_rule_does_not_cover_what_it_cannot_see() {
    let project = project();
    let evaluating =
        "[permissions]\nallow = [\"bash(test *)\", \"bash([ *)\", \"bash(printf *)\"]\n";
    all(
        &project,
        evaluating,
        "ask",
        &[
            "test -v 'a[$(touch marker)]'",
            "[ -v 'a[$(touch marker)]' ]",
            "printf -v 'a[$(touch marker)]' x",
            "printf %n PATH; ls",
            "read 'a[$(touch marker)]'",
        ],
    );
    let from_input = "[permissions]\ndeny = [\"bash(git push *)\"]\nallow = [\"bash(git *)\", \"bash(echo *)\"]\n";
    all(
        &project,
        from_input,
        "ask",
        &["echo push | xargs git", "echo push | xargs env git"],
    );
    std::fs::create_dir(project.root().join("src")).unwrap();
    std::os::unix::fs::symlink("..", project.root().join("src/link-up")).unwrap();
    let edit = |path: &str| json!({"tool": "edit", "input": {"path": path}});
    let edits = "[permissions]\nallow = [\"edit(src/**)\"]\n";
    let decided = explained(
        &project,
        edits,
        &[edit("src/link-up/README.md"), edit("src/a.rs")],
    );
    assert_eq!(decided[0]["decision"], "ask", "{}", decided[0]);
    assert_eq!(decided[1]["decision"], "allow", "{}", decided[1]);
}

#[test]
fn a_tilde_is_the_home_directory_and_reading_outside_works_as_told() {
    let project = project();
    project.write_home("notes/a.md", "a note\n");
    project.write_home("other/b.md", "another\n");
    project.write_home(".aws/config", "region\n");
    let rules = "[permissions]\ndeny = [\"read(~/.aws/**)\"]\nallow = [\"read(~/notes/**)\"]\n";
    let read =
        |path: &str, mode: &str| json!({"tool": "read", "input": {"path": path}, "mode": mode});
    let asked = [
        (read("~/.aws/config", "full"), "deny"),
        (read("~/notes/a.md", "ask"), "allow"),
        (read("~/other/b.md", "ask"), "ask"),
        (read("~/other/b.md", "full"), "allow"),
        (read("/etc/hostname", "full"), "allow"),
    ];
    let calls: Vec<Value> = asked.iter().map(|(call, _)| call.clone()).collect();
    for ((call, expected), decided) in asked.iter().zip(explained(&project, rules, &calls)) {
        assert_eq!(decided["decision"], *expected, "{call}: {decided}");
        let reason = decided["reason"].as_str().unwrap();
        assert!(!reason.contains("inside the project"), "{call}: {reason}");
    }
    project.write_home("config.toml", rules);
    let shown = |path: &str, mode: &str| {
        let input = json!({"path": path}).to_string();
        let ran = agent(&project, &["call", "--mode", mode, "read", &input]).finish();
        format!("{}{}", ran.stdout(), ran.stderr())
    };
    assert!(shown("~/notes/a.md", "ask").contains("a note"));
    assert!(shown("~/other/b.md", "full").contains("another"));
    assert!(!shown("~/other/b.md", "ask").contains("another"));
    assert!(!shown("~/.aws/config", "full").contains("region\n"));
}
