//! Searches: what is found, in which order, and what is said about the rest.

use agent_protocol::Code;
use agent_tool_runtime::Confinement;
use serde_json::{Value, json};

use crate::stage::{Setup, Stage};

fn project() -> Stage {
    let stage = Stage::new();
    stage.put("src/a.rs", "fn alpha() {}\nfn beta() {}\n");
    stage.put("src/b.rs", "fn Alpha() {}\n");
    stage.put("docs/c.md", "alpha\r\nomega\r\n");
    stage.put("target/d.rs", "fn alpha() {}\n");
    stage.put("app.log", "alpha\n");
    stage.put(".hidden/e.rs", "alpha\n");
    stage.put(".gitignore", "target/\n*.log\n");
    stage.put("data.bin", b"alpha\0beta");
    stage
}

fn check(stage: &Stage, tool: &str, input: Value, says: &[&str], silent: &[&str]) {
    let observation = stage.call(tool, &input);
    let text = stage.model_text(&observation);
    assert!(observation.ok, "{text}");
    for needle in says {
        assert!(
            text.contains(needle),
            "{input} does not say {needle:?}:\n{text}"
        );
    }
    for needle in silent {
        assert!(!text.contains(needle), "{input} says {needle:?}:\n{text}");
    }
}

#[test]
fn lines_files_and_counts() {
    let stage = project();
    check(
        &stage,
        "grep",
        json!({"pattern": "alpha"}),
        &[
            "4 matching lines in 4 files.",
            ".hidden/e.rs\n1:alpha\n",
            "docs/c.md\n1:alpha\n",
            "src/a.rs\n1:fn alpha() {}\n",
            "src/b.rs\n1:fn Alpha() {}",
            "1 ignored by .gitignore or .ignore",
            "1 ignored directories (not entered)",
            "1 binary",
        ],
        &["target/d.rs", "app.log"],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "Alpha"}),
        &["1 matching line in 1 file."],
        &["src/a.rs"],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "ALPHA", "case": "insensitive", "mode": "files", "type": "rust"}),
        &["3 files with a match.", "src/a.rs\nsrc/b.rs"],
        &["c.md"],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "fn", "mode": "count"}),
        &["src/a.rs:2\nsrc/b.rs:1"],
        &[],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "beta", "context": 1, "path": "src"}),
        &["src/a.rs\n1-fn alpha() {}\n2:fn beta() {}"],
        &[],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "alpha", "glob": "*.md"}),
        &["1 matching line in 1 file."],
        &["a.rs"],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "alpha", "path": "app.log"}),
        &["app.log\n1:alpha"],
        &[],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "alpha", "path": "target"}),
        &["target/d.rs"],
        &[],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "alpha", "limit": 1}),
        &["the first 1 by path are listed"],
        &["src/b.rs"],
    );
    stage.check_log().unwrap();
}

#[test]
fn lines_are_searched_one_by_one_unless_asked() {
    let stage = project();
    let refused = stage.call("grep", &json!({"pattern": "alpha\\(\\) \\{\\}\\nfn"}));
    assert_eq!(refused.code, Code::RuntimePreconditionFailed);
    assert!(stage.model_text(&refused).contains("`multiline` is off"));
    check(
        &stage,
        "grep",
        json!({"pattern": "\\{\\}\\sfn"}),
        &["0 matching lines", "each line was searched by itself"],
        &[],
    );
    check(
        &stage,
        "grep",
        json!({"pattern": "alpha\\(\\) \\{\\}\\nfn", "multiline": true}),
        &["src/a.rs\n1:fn alpha() {}\n2:fn beta() {}"],
        &[],
    );
}

#[test]
fn names() {
    let stage = project();
    check(
        &stage,
        "glob",
        json!({"pattern": "*.rs"}),
        &[
            "3 files matched.",
            ".hidden/e.rs\nsrc/a.rs\nsrc/b.rs",
            "1 ignored directories",
        ],
        &["target"],
    );
    check(
        &stage,
        "glob",
        json!({"pattern": "src/*.rs", "limit": 1}),
        &[
            "2 files matched; the first 1 by path are listed.",
            "src/a.rs",
        ],
        &["src/b.rs"],
    );
    check(
        &stage,
        "glob",
        json!({"pattern": "*.rs", "path": "src"}),
        &["src/a.rs\nsrc/b.rs"],
        &[".hidden"],
    );
    check(
        &stage,
        "glob",
        json!({"pattern": "nothing-like-this"}),
        &["0 files matched."],
        &[],
    );
}

#[test]
fn bad_input_points_at_the_place() {
    let stage = project();
    for (tool, input, code, says) in [
        (
            "grep",
            json!({"pattern": "a(b"}),
            Code::SchemaInvalid,
            "at character 2, `(`",
        ),
        (
            "grep",
            json!({"pattern": "a", "type": "ruts"}),
            Code::SchemaInvalid,
            "rust",
        ),
        (
            "grep",
            json!({"pattern": "a", "glob": "[z"}),
            Code::SchemaInvalid,
            "/glob",
        ),
        (
            "grep",
            json!({"pattern": "a", "mode": "all"}),
            Code::SchemaInvalid,
            "/mode",
        ),
        (
            "grep",
            json!({"pattern": "a", "path": "../.."}),
            Code::OutsideWorkspace,
            "outside",
        ),
        (
            "grep",
            json!({"pattern": "a", "path": "none"}),
            Code::FileNotFound,
            "does not exist",
        ),
        (
            "glob",
            json!({"pattern": "*", "path": "app.log"}),
            Code::RuntimePreconditionFailed,
            "is a file",
        ),
        (
            "glob",
            json!({"pattern": "{a"}),
            Code::SchemaInvalid,
            "/pattern",
        ),
    ] {
        let observation = stage.call(tool, &input);
        let text = stage.model_text(&observation);
        assert_eq!(observation.code, code, "{text}");
        assert!(text.contains(says), "{input}: {text}");
    }
}

#[test]
fn a_deny_rule_hides_files_from_searches() {
    let stage = Stage::with(Setup {
        confinement: Confinement {
            deny_read: vec!["**/*.pem".into(), "secret/**".into()],
            ..Confinement::default()
        },
        ..Setup::default()
    });
    stage.put("certs/a.pem", "alpha\n");
    stage.put("secret/b", "alpha\n");
    stage.put("c", "alpha\n");
    check(
        &stage,
        "grep",
        json!({"pattern": "alpha"}),
        &["1 matching line in 1 file.", "2 hidden by a rule"],
        &["a.pem", "secret/b"],
    );
    check(
        &stage,
        "glob",
        json!({"pattern": "*"}),
        &["1 file matched."],
        &["a.pem"],
    );
}

#[test]
fn a_pattern_that_explodes_elsewhere_does_not_here() {
    let stage = Stage::new();
    stage.put("a.txt", "a".repeat(50_000));
    let began = std::time::Instant::now();
    check(
        &stage,
        "grep",
        json!({"pattern": "(a+)+$x|(a|a)*b"}),
        &["0 matching lines"],
        &[],
    );
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn many_matches_stay_within_bounds_and_in_order() {
    let stage = Stage::new();
    for folder in 0..40 {
        for file in 0..50 {
            stage.put(&format!("{folder:02}/{file:02}.txt"), "needle\n".repeat(20));
        }
    }
    check(
        &stage,
        "grep",
        json!({"pattern": "needle", "limit": 30}),
        &[
            "40000 matching lines in 2000 files; the first 30 by path are listed",
            "00/00.txt\n1:needle",
            "00/01.txt\n1:needle",
        ],
        &["00/02.txt"],
    );
    check(
        &stage,
        "glob",
        json!({"pattern": "*", "limit": 3}),
        &[
            "2000 files matched; the first 3",
            "00/00.txt\n00/01.txt\n00/02.txt",
        ],
        &["00/03.txt"],
    );
}
