//! Rules that somebody writes in a question: which may be saved, and what they are shown to let through.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests stop at the first thing that is not so"
)]

mod gate_support;

use std::path::Path;

use agent_policy::Workspace;
use agent_policy::gate::{Gate, GateRequest, NamesOnly, SandboxLevel, Setting, Trial, accept};
use agent_protocol::payload::permission::Effect;
use agent_protocol::reply::{RuleExample, RulePreview};
use agent_protocol::status::Mode;
use gate_support::{HOME, PROJECT, rule};
use proptest::prelude::*;
use serde_json::{Value, json};

fn workspace() -> Workspace {
    Workspace {
        root: PROJECT.into(),
        extra_roots: Vec::new(),
    }
}

fn setting(workspace: &Workspace) -> Setting<'_> {
    Setting {
        workspace,
        home: Path::new(HOME),
        mode: Mode::Ask,
        sandbox: SandboxLevel::Full,
        turn: "t",
        hooks: &[],
        timeout_ms: Some(120_000),
        output_limit: Some(30_000),
    }
}

fn bash(command: &str) -> Value {
    json!({"command": command})
}

fn trial_of<T>(gate: &Gate, tool: &str, input: &Value, with: impl FnOnce(Trial<'_>) -> T) -> T {
    let workspace = workspace();
    let tool = &gate_support::tool(tool);
    let semantics = tool.semantics(input, &workspace).unwrap();
    let request = GateRequest {
        tool,
        input,
        semantics: &semantics,
    };
    with(Trial {
        gate,
        request: &request,
        setting: &setting(&workspace),
        facts: &NamesOnly,
    })
}

/// What is written in a question is saved only if it says what it allows, and answers the question.
#[test]
fn a_rule_that_is_written_is_no_wider_than_one_can_see() {
    let gate = Gate {
        rules: vec![
            rule("deny bash(terraform apply *)"),
            rule("ask bash(./release.sh *)"),
        ],
        ..Gate::default()
    };
    let check = |tool: &str, input: &Value, text: &str, expected: Result<&str, &str>| {
        let accepted = trial_of(&gate, tool, input, |trial| accept(trial, text));
        match (accepted, expected) {
            (Ok(rule), Ok(expected)) => assert_eq!(rule.text, expected),
            (Err(problem), Err(part)) => assert!(problem.contains(part), "{text}: {problem}"),
            (accepted, expected) => panic!("{text}: {accepted:?}, not {expected:?}"),
        }
    };
    let on = |command: &str, text: &str, expected: Result<&str, &str>| {
        check("bash", &bash(command), text, expected);
    };
    on(
        "cargo test -p x",
        " bash(cargo test *) ",
        Ok("bash(cargo test *)"),
    );
    on(
        "cargo test -p x",
        "bash(cargo test -p *)",
        Ok("bash(cargo test -p *)"),
    );
    on("cargo test -p x", "bash(cargo test)", Err("does not match"));
    on(
        "cargo test -p x",
        "bash(cargo *)",
        Err("every command of `cargo`"),
    );
    on(
        "cargo test -p x",
        "bash(cargo t* *)",
        Err("first two words"),
    );
    on("cargo test -p x", "bash(*)", Err("Too broad"));
    on("cargo test -p x", "bash", Err("every call of `bash`"));
    on(
        "cargo test -p x",
        "b*(cargo test *)",
        Err("about this tool"),
    );
    on("cargo test -p x", "edit(src/**)", Err("about this tool"));
    on("cargo test -p x", "bash(cargo test *", Err("parenthesis"));
    on(
        "cargo test -p x",
        "bash(cargo test; rm x)",
        Err("one simple command"),
    );
    on("cargo test -p x", "bash()", Err("empty"));
    on(
        "terraform plan -out x",
        "bash(terraform plan *)",
        Ok("bash(terraform plan *)"),
    );
    on(
        "terraform plan -out x",
        "bash(terraform *)",
        Err("every command of"),
    );
    on(
        "terraform -chdir=x plan",
        "bash(terraform -chdir=x *)",
        Err("`-chdir=x` stands"),
    );
    on("git -c a=b push", "bash(git -c *)", Err("`-c` stands"));
    on(
        "uv run pytest x",
        "bash(uv run pytest *)",
        Ok("bash(uv run pytest *)"),
    );
    on(
        "uv run pytest x",
        "bash(uv run *)",
        Err("whatever it is told"),
    );
    on("uv run pytest x", "bash(uv *)", Err("every command"));
    on(
        "uv run tool x",
        "bash(uv run tool *)",
        Err("starts another program"),
    );
    on(
        "python3 -m unittest",
        "bash(python3 -m *)",
        Err("whatever it is told"),
    );
    on("npx vitest", "bash(npx *)", Err("whatever it is told"));
    on(
        "./deploy.sh staging",
        "bash(./deploy.sh *)",
        Ok("bash(./deploy.sh *)"),
    );
    on("./deploy.sh staging", "bash(./* *)", Err("first two words"));
    on("make test", "bash(make test *)", Ok("bash(make test *)"));
    on("make test", "bash(make *)", Err("every command of `make`"));
    // Other rules hold whatever is written.
    on(
        "terraform apply x",
        "bash(terraform apply x)",
        Err("asks every time"),
    );
    on("./release.sh", "bash(./release.sh)", Err("asks every time"));
    on("rm -rf ~", "bash(rm -rf ~)", Err("Too broad"));
    let edit = json!({"path": "src/a.rs"});
    let edits = |text: &str, expected: Result<&str, &str>| check("edit", &edit, text, expected);
    edits("edit(src/**)", Ok("edit(src/**)"));
    edits("edit(**)", Ok("edit(**)"));
    edits(
        "edit(/home/u/shop/src/*.rs)",
        Ok("edit(/home/u/shop/src/*.rs)"),
    );
    edits("edit", Err("every call"));
    edits("edit(/**)", Err("reaches out of the project"));
    edits("edit(~/**)", Err("reaches out of the project"));
    edits("edit(tests/**)", Err("does not match"));
    let hook = json!({"path": ".git/hooks/pre-commit"});
    check("edit", &hook, "edit(.git/**)", Err("asks every time"));
}

/// The examples are what the gate says with the rule: some calls of the session, some made up.
#[test]
fn a_rule_is_shown_with_what_it_would_match() {
    let gate = Gate {
        rules: vec![rule("deny bash(terraform plan -destroy *)")],
        ..Gate::default()
    };
    let session = [
        bash("terraform plan -refresh-only"),
        bash("terraform import a b"),
        bash("npm install"),
        bash("ls"),
        bash("terraform plan -out x"),
    ];
    let preview = |tool: &str, input: &Value, text: &str| {
        trial_of(&gate, tool, input, |trial| trial.preview(text, &session))
    };
    let words = |preview: &RulePreview| -> Vec<String> {
        let example = |example: &RuleExample| {
            let from = if example.from_session { " (made)" } else { "" };
            let held = example.held_by.as_deref().map(|by| format!(" [{by}]"));
            let held = held.unwrap_or_default();
            format!("{}: {}{from}{held}", example.decision, example.call)
        };
        preview.examples.iter().map(example).collect()
    };
    let exact = preview(
        "bash",
        &bash("terraform plan -out x"),
        "bash(terraform plan -out x)",
    );
    assert_eq!(
        exact.wider.as_deref(),
        Some("bash(terraform plan -out x *)")
    );
    let wide = preview(
        "bash",
        &bash("terraform plan -out x"),
        "bash(terraform plan *)",
    );
    assert_eq!(
        (wide.problem.as_deref(), wide.wider.as_deref()),
        (None, None)
    );
    assert_eq!(
        words(&wide),
        [
            "allow: terraform plan -refresh-only (made)",
            "allow: terraform plan --verbose",
            "ask: terraform import a b (made)",
            "deny: terraform plan -destroy [deny bash(terraform plan -destroy *)]",
            "ask: terraform plan && ./other.sh",
        ]
    );
    let broad = preview("bash", &bash("terraform plan"), "bash(terraform *)");
    assert!(broad.problem.is_some() && broad.examples.is_empty());
    let edit = preview("edit", &json!({"path": "src/in/a.rs"}), "edit(src/in/a.rs)");
    assert_eq!(edit.wider.as_deref(), Some("edit(src/in/**)"));
    let edit = preview("edit", &json!({"path": "src/in/a.rs"}), "edit(src/in/**)");
    assert_eq!(edit.wider.as_deref(), Some("edit(src/**)"));
    assert_eq!(
        words(&edit),
        [
            "allow: src/in/other.rs",
            "ask: other.rs",
            "ask: .env",
            "ask: .git/config"
        ]
    );
    let edit = preview("edit", &json!({"path": "src/in/a.rs"}), "edit(**)");
    assert_eq!(edit.wider, None);
    let top = preview("edit", &json!({"path": "a.rs"}), "edit(/home/u/shop/a.rs)");
    assert_eq!(top.wider.as_deref(), Some("edit(**)"));
}

/// True if a rule with these words could be offered to a person who knows what each program is for: it names one that
/// does one thing, and what it is to do. The second, simpler reading of the same rule.
fn says_what_it_allows(words: &[&str], is_open: bool) -> bool {
    let verb = words.get(1).copied().unwrap_or_default();
    let has_verb = !verb.is_empty() && !verb.starts_with('-');
    match words.first().copied().unwrap_or_default() {
        "pytest" | "vitest" => true,
        "cargo" | "git" => has_verb && (verb, words.len()) != ("run", 2),
        // What runs whatever it is told: only what is known to be one thing.
        "npx" => verb == "vitest",
        "uv" if verb == "run" => words.get(2) == Some(&"pytest"),
        "sh" | "python3" | "rm" => false,
        "-c" | "-x" => false,
        // Of another program, exactly one command, or what it is to do.
        _ if verb == "run" && words.len() == 2 => false,
        _ => !is_open || has_verb,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever is written, a rule that is accepted says what it allows, answers the question, and opens no command
    /// but those that begin with its words.
    #[test]
    fn no_rule_opens_more_than_its_words(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "cargo", "git", "terraform", "pytest", "npx", "uv", "sh", "python3", "rm", "run", "test", "push",
                "vitest", "-c", "-x", "x",
            ]),
            1..4,
        ),
        more in prop::collection::vec(prop::sample::select(vec!["x", "-v", "sh", "run"]), 0..3),
        kept in 1usize..4,
        is_open in any::<bool>(),
        other in prop::collection::vec(
            prop::sample::select(vec!["cargo", "git", "uv", "sh", "run", "test", "push", "pytest", "x", "-c"]),
            1..4,
        ),
    ) {
        let command = [words.as_slice(), &more].concat().join(" ");
        let kept = &words[..kept.min(words.len())];
        let star = if is_open { " *" } else { "" };
        let text = format!("bash({}{star})", kept.join(" "));
        let gate = Gate::default();
        let accepted = trial_of(&gate, "bash", &bash(&command), |trial| accept(trial, &text));
        let Ok(rule) = accepted else { return Ok(()) };
        prop_assert!(says_what_it_allows(kept, is_open), "{text} for {command}");
        let with_rule = Gate { rules: vec![rule], ..Gate::default() };
        let decide = |gate: &Gate, command: &str| {
            let input = bash(command);
            trial_of(gate, "bash", &input, |trial| {
                trial.gate.evaluate(trial.request, trial.setting, trial.facts).evaluated.decision
            })
        };
        prop_assert_eq!(decide(&with_rule, &command), Effect::Allow);
        let begins = other.len() >= kept.len() && other[..kept.len()] == *kept;
        let other = other.join(" ");
        if decide(&gate, &other) != Effect::Allow && !begins {
            prop_assert_ne!(decide(&with_rule, &other), Effect::Allow, "{} opens {}", text, other);
        }
    }
}
