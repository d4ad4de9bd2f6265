//! `fixtures/permissions/spellings.txt`: ways to run `rm -f victim` that are no plain `rm -f victim`.

use agent_protocol::payload::permission::Effect;

use crate::gate_support::{PROJECT, fixtures};

fn spellings() -> Vec<String> {
    let text = std::fs::read_to_string(fixtures().join("spellings.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("//"));
    lines.map(|line| line.replace('␤', "\n")).collect()
}

/// The spellings with other words in them than `rm -f victim`.
fn with(words: &str) -> Vec<String> {
    let (name, rest) = words.split_once(' ').unwrap();
    let escaped = words.replace(' ', "\\ ");
    spellings()
        .iter()
        .map(|spelling| {
            spelling
                .replace("rm -f victim", words)
                .replace("rm\\ -f\\ victim", &escaped)
                .replace("-f victim", rest)
                .replace("/rm", &format!("/{name}"))
        })
        .filter(|script| script.contains(rest) || script.contains(&escaped))
        .collect()
}

#[test]
fn a_deny_rule_holds_however_the_command_is_spelled() {
    let scripts = spellings();
    assert!(scripts.len() > 500, "{}", scripts.len());
    check(&scripts, &["deny bash(rm *)"]);
}

#[test]
fn a_breaker_holds_however_the_command_is_spelled() {
    let scripts = with(&format!("rm -rf {PROJECT}"));
    assert!(scripts.len() > 500, "{}", scripts.len());
    check(&scripts, &[]);
}

/// In mode `full` refused, in mode `auto` at least asked.
fn check(scripts: &[String], rules: &[&str]) {
    let mut passed = Vec::new();
    for script in scripts {
        for (mode, holds) in [
            ("full", &[Effect::Deny][..]),
            ("auto", &[Effect::Deny, Effect::Ask]),
        ] {
            let (decision, reason) = crate::decision(script, mode, rules);
            if !holds.contains(&decision) {
                passed.push(format!(
                    "{mode} {decision}: {}  ({reason})",
                    script.escape_debug()
                ));
            }
        }
    }
    assert!(
        passed.is_empty(),
        "{} passed:\n{}",
        passed.len(),
        passed.join("\n")
    );
}

#[test]
fn what_is_data_stays_data() {
    let rules = &["deny bash(rm *)", "deny bash(git push *)"];
    for script in [
        "rg 'rm -rf' src",
        "grep -n 'git push' docs/a.md",
        "git commit -m 'rm old files'",
        "echo 'git push later'",
        "echo 'rm x' > notes.md",
        "cat > notes.md <<'END'\nthen rm -rf build and git push\nEND",
        "docker run --rm image",
        "docker rm box",
        "git rm old.rs",
        "npm install",
        "msg='rm it'\ngit commit -m \"$msg\"",
        "find . -name 'rm*' | xargs wc -l",
        "cargo test -p x && git status",
        "bash -c 'git commit -m \"rm old files\"'",
        "python3 -c 'print(\"rm x\")'",
        "mkdir -p a && cp b a/ && ls -la a",
    ] {
        let (decision, reason) = crate::decision(script, "full", rules);
        assert_eq!(decision, Effect::Allow, "{script}: {reason}");
    }
}
