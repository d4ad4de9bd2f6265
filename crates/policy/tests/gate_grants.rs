//! Questions, what is offered with them, what is remembered, and rules tried on the past.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests stop at the first thing that is not so"
)]

mod gate_support;

use std::path::Path;

use agent_policy::Workspace;
use agent_policy::gate::{
    ApprovalKey, Denial, DiskFacts, Gate, GateRequest, Judgement, NamesOnly, RecordedCall,
    SandboxLevel, Setting, backtest,
};
use agent_policy::shell::{Start, analyse};
use agent_protocol::payload::permission::{ActionClass, DecisionSource, Effect, GrantScope};
use agent_protocol::status::Mode;
use gate_support::{Case, HOME, PROJECT, cases, rule};
use serde_json::{Value, json};

fn workspace() -> Workspace {
    Workspace {
        root: PROJECT.into(),
        extra_roots: Vec::new(),
    }
}

fn setting<'a>(workspace: &'a Workspace, mode: Mode, turn: &'a str) -> Setting<'a> {
    Setting {
        workspace,
        home: Path::new(HOME),
        mode,
        sandbox: SandboxLevel::Full,
        turn,
        hooks: &[],
        timeout_ms: Some(120_000),
        output_limit: Some(30_000),
    }
}

fn judge(gate: &Gate, tool: &str, input: &Value, mode: Mode, turn: &str) -> Judgement {
    let workspace = workspace();
    let tool = &gate_support::tool(tool);
    let semantics = tool.semantics(input, &workspace).unwrap();
    let request = GateRequest {
        tool,
        input,
        semantics: &semantics,
    };
    gate.evaluate(&request, &setting(&workspace, mode, turn), &NamesOnly)
}

fn bash(command: &str) -> Value {
    json!({"command": command})
}

#[test]
fn a_rule_is_offered_when_it_is_narrow_and_fits() {
    let gate = Gate {
        rules: vec![rule("allow bash(npm run lint *)")],
        ..Gate::default()
    };
    for (command, expected) in [
        ("cargo test -p cli", Some("bash(cargo test *)")),
        ("cargo test 2>&1 | tail -5", Some("bash(cargo test *)")),
        ("cd web && npm test", Some("bash(npm test *)")),
        ("npm run build -- --prod", Some("bash(npm run build *)")),
        ("npm run lint && npm test", Some("bash(npm test *)")),
        ("./deploy.sh staging", Some("bash(./deploy.sh staging)")),
        ("terraform plan", Some("bash(terraform plan)")),
        ("git commit -m 'two words'", Some("bash(git commit *)")),
        // The rule is about what a wrapper starts.
        ("timeout 60 cargo test", Some("bash(cargo test *)")),
        // Test and build commands, by the table.
        (
            "python3 -m unittest -v",
            Some("bash(python3 -m unittest *)"),
        ),
        (
            "python -m pytest tests -q",
            Some("bash(python -m pytest *)"),
        ),
        ("pytest -q", Some("bash(pytest *)")),
        ("uv run pytest -q", Some("bash(uv run pytest *)")),
        (
            "uv run python -m pytest",
            Some("bash(uv run python -m pytest *)"),
        ),
        ("npx vitest run", Some("bash(npx vitest *)")),
        ("npx tsc --noEmit", Some("bash(npx tsc *)")),
        ("npx eslint 'a b'", Some("bash(npx eslint *)")),
        ("eslint 'a b'", Some("bash(eslint *)")),
        ("ruff check .", Some("bash(ruff check *)")),
        ("make", Some("bash(make)")),
        ("make test", Some("bash(make test)")),
        ("bundle exec rspec", Some("bash(bundle exec rspec *)")),
        ("mvn -q test", Some("bash(mvn -q test *)")),
        ("./gradlew test", Some("bash(./gradlew test *)")),
        ("ctest --output-on-failure", Some("bash(ctest *)")),
        // No blanket, ever.
        ("rm -rf build", None),
        ("sudo make", None),
        ("python3 x.py", None),
        ("node x.js", None),
        ("bash x.sh", None),
        ("git", None),
        ("npm run", None),
        ("curl http://x", None),
        ("python3.12 x.py", None),
        ("timeout 5 rm x", None),
        ("nohup ./server", None),
        ("strace ./server", None),
        ("git -c x=y status", None),
        ("cargo --config x=1 metadata", None),
        ("npm exec x", None),
        ("hash -p ./x ls", None),
        ("git pull --rebase", None),
        ("сat a", None),
        // Not exactly what was asked.
        ("npm test && node x.js", None),
        ("make && ninja", None),
        ("echo $(cargo test)", None),
        ("cargo test > out.txt", None),
        ("xyzzy 'a b'", None),
        ("uv run x", None),
        ("uv run python x.py", None),
        ("npx x", None),
        ("bundle exec x", None),
        ("git push --force", None),
        ("cat .env", None),
        ("cat /etc/passwd", None),
    ] {
        let evaluated = judge(&gate, "bash", &bash(command), Mode::Ask, "t").evaluated;
        assert_eq!(evaluated.decision, Effect::Ask, "{command}");
        assert_eq!(evaluated.suggested_rule.as_deref(), expected, "{command}");
    }
    for (path, expected) in [
        ("src/a.rs", Some("edit(src/a.rs)")),
        ("a.rs", Some("edit(/home/u/shop/a.rs)")),
        (".github/workflows/x.yml", None),
        ("../x", None),
    ] {
        let evaluated = judge(&gate, "edit", &json!({"path": path}), Mode::Ask, "t").evaluated;
        assert_eq!(evaluated.suggested_rule.as_deref(), expected, "{path}");
    }
}

#[test]
fn five_facts_are_laid_out_for_npm_test() {
    let evaluated = judge(&Gate::default(), "bash", &bash("npm test"), Mode::Ask, "t").evaluated;
    assert!(evaluated.risk.len() >= 5, "{:#?}", evaluated.risk);
    for part in [
        "package.json",
        "pretest",
        "coverage",
        "sandbox",
        "network",
        "120 s",
        "30000",
    ] {
        assert!(
            evaluated.risk.iter().any(|fact| fact.contains(part)),
            "{part}: {:#?}",
            evaluated.risk
        );
    }
}

#[test]
fn the_five_classes_are_told_apart() {
    for (tool, input, expected) in [
        ("read", json!({"path": "a"}), ActionClass::Observe),
        ("grep", json!({"pattern": "a"}), ActionClass::Search),
        ("edit", json!({"path": "a"}), ActionClass::Modify),
        ("bash", bash("npm test"), ActionClass::Execute),
        ("bash", bash("rm -rf build"), ActionClass::Dangerous),
        ("bash", bash("ls"), ActionClass::Observe),
        ("bash", bash("rg x"), ActionClass::Search),
    ] {
        let evaluated = judge(&Gate::default(), tool, &input, Mode::Ask, "t").evaluated;
        assert_eq!(evaluated.action_class, expected, "{tool} {input}");
    }
}

#[test]
fn the_record_says_who_decided() {
    let by = |rules: &[&str], tool: &str, input: Value, mode: Mode| {
        let gate = Gate {
            rules: rules.iter().map(|text| rule(text)).collect(),
            ..Gate::default()
        };
        let evaluated = judge(&gate, tool, &input, mode, "t").evaluated;
        (evaluated.decision_source, evaluated.matched)
    };
    let (source, matched) = by(&["project deny bash(x)"], "bash", bash("x"), Mode::Ask);
    assert_eq!(source, DecisionSource::Rule);
    assert_eq!(matched[0].origin.layer.as_str(), "project");
    assert_eq!(matched[0].origin.line, Some(1));
    let (source, matched) = by(&["user allow bash(x)"], "bash", bash("x"), Mode::Ask);
    assert_eq!(source, DecisionSource::Rule);
    assert_eq!(matched[0].origin.layer.as_str(), "user");
    let source = |rules: &[&str], tool: &str, input: Value, mode| by(rules, tool, input, mode).0;
    assert_eq!(
        source(&[], "bash", bash("x"), Mode::ReadOnly),
        DecisionSource::Mode
    );
    assert_eq!(
        source(&["managed deny bash(x)"], "bash", bash("x"), Mode::Full),
        DecisionSource::HostPolicy
    );
    let outside = json!({"path": "/etc/x"});
    assert_eq!(
        source(&[], "read", outside, Mode::Ask),
        DecisionSource::PathBoundary
    );
    assert_eq!(
        source(&[], "bash", bash("x"), Mode::Ask),
        DecisionSource::Default
    );
    let hook = json!({"path": ".git/hooks/x"});
    assert_eq!(
        source(&[], "write", hook, Mode::Full),
        DecisionSource::ProtectedPath
    );
    assert_eq!(
        source(&[], "bash", bash("rm -rf /"), Mode::Full),
        DecisionSource::CircuitBreaker
    );
}

#[test]
fn a_grant_for_the_session_is_for_exactly_that_call() {
    let mut gate = Gate::default();
    let asked = judge(&gate, "bash", &bash("npm test"), Mode::Ask, "one");
    assert_eq!(asked.evaluated.decision, Effect::Ask);
    gate.grants.grant(asked.key, GrantScope::Session);
    let again = judge(&gate, "bash", &bash("npm test"), Mode::Ask, "two").evaluated;
    assert_eq!(again.decision, Effect::Allow);
    assert_eq!(again.decision_source, DecisionSource::SessionGrant);
    for other in ["npm test ", "npm test; ls", "npm run test"] {
        let evaluated = judge(&gate, "bash", &bash(other), Mode::Ask, "two").evaluated;
        assert_eq!(evaluated.decision, Effect::Ask, "{other}");
    }
    // A deny rule that came later still wins, and so does the ceiling of a mode.
    gate.rules.push(rule("deny bash(npm test *)"));
    assert_eq!(
        judge(&gate, "bash", &bash("npm test"), Mode::Ask, "two")
            .evaluated
            .decision,
        Effect::Deny
    );
    gate.rules.clear();
    assert_eq!(
        judge(&gate, "bash", &bash("npm test"), Mode::ReadOnly, "two")
            .evaluated
            .decision,
        Effect::Deny
    );
    // A breaker is a question every time.
    let asked = judge(&gate, "bash", &bash("git reset --hard"), Mode::Full, "two");
    gate.grants.grant(asked.key, GrantScope::Session);
    assert_eq!(
        judge(&gate, "bash", &bash("git reset --hard"), Mode::Full, "two")
            .evaluated
            .decision,
        Effect::Ask
    );
}

/// Wherever it is run from and however many flags stand before it.
#[test]
fn a_script_that_changed_is_another_call() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("tools")).unwrap();
    let workspace = Workspace {
        root: root.clone(),
        extra_roots: Vec::new(),
    };
    for (script, command) in [
        ("deploy.sh", "./deploy.sh"),
        ("deploy.sh", "bash -e -u -x ./deploy.sh prod"),
        ("deploy.sh", "sudo -E timeout 60 ./deploy.sh"),
        ("tools/run", "cd tools && ./run"),
        ("tools/run", "cd tools; sh -eu run"),
        ("tools/x.py", "python3 -u -W ignore tools/x.py"),
        ("x.awk", "awk -F , -v n=1 -f x.awk data"),
        ("Extra.mk", "make -j 4 -f Extra.mk"),
    ] {
        let key = |content: &str| {
            std::fs::write(root.join(script), content).unwrap();
            let input = bash(command);
            let bash = gate_support::tool("bash");
            let semantics = bash.semantics(&input, &workspace).unwrap();
            let facts = DiskFacts { dirty: || None };
            let start = Start {
                directory: root.clone(),
                home: "/".into(),
                is_directory: &|_| None,
            };
            let analysis = analyse(command, &start);
            ApprovalKey::of(
                "bash",
                &input,
                &semantics,
                "workspace",
                &facts,
                Some(&analysis),
            )
        };
        let asked = key("one");
        assert_eq!(asked, key("one"), "{command}");
        assert_ne!(asked, key("two"), "{command}");
    }
}

#[test]
fn a_refusal_is_not_forgotten() {
    let mut gate = Gate::default();
    let asked = judge(&gate, "bash", &bash("npm test"), Mode::Auto, "one");
    assert_eq!(asked.evaluated.decision, Effect::Allow);
    let denial = Denial {
        turn: "one".into(),
        note: Some("use make".into()),
    };
    gate.grants.deny(asked.key, denial);
    let same_turn = judge(&gate, "bash", &bash("npm test"), Mode::Auto, "one").evaluated;
    assert_eq!(same_turn.decision, Effect::Deny);
    assert_eq!(same_turn.decision_source, DecisionSource::Human);
    let later = judge(&gate, "bash", &bash("npm test"), Mode::Auto, "two").evaluated;
    assert_eq!(later.decision, Effect::Ask);
}

#[test]
fn a_hook_may_tighten_but_not_beat_rules() {
    let template = cases()
        .into_iter()
        .find(|case| case.tool == "bash")
        .unwrap();
    let with_hook = |subject: &str, rules: &[&str]| {
        Case {
            subject: subject.into(),
            rules: rules.iter().map(|text| (*text).to_owned()).collect(),
            hook_allows: true,
            mode: "ask".into(),
            ..template.clone()
        }
        .evaluate()
        .evaluated
    };
    let allowed = with_hook("npm test", &[]);
    assert_eq!(
        (allowed.decision, allowed.decision_source),
        (Effect::Allow, DecisionSource::Hook)
    );
    assert_eq!(
        with_hook("npm test", &["ask bash(npm *)"]).decision,
        Effect::Ask
    );
    assert_eq!(
        with_hook("npm test", &["deny bash(npm *)"]).decision,
        Effect::Deny
    );
    assert_eq!(with_hook("cat .env", &[]).decision, Effect::Ask);
    assert_eq!(with_hook("rm -rf /", &[]).decision, Effect::Deny);
    assert_eq!(with_hook("echo 'open", &[]).decision, Effect::Ask);
}

#[test]
fn rules_are_tried_on_the_past() {
    let call = |id: usize, command: &str, answer: Option<Effect>| RecordedCall {
        tool_call_id: id.to_string(),
        tool: "bash".into(),
        input: bash(command),
        decision: Some(if command == "ls" {
            Effect::Allow
        } else {
            Effect::Ask
        }),
        answer,
    };
    let yes = Some(Effect::Allow);
    let calls = [
        call(0, "ls", None),
        call(1, "cargo test", yes),
        call(2, "cargo test -p cli", yes),
        call(3, "npm test", yes),
        call(4, "npm test -- a", yes),
        call(5, "npm test -- b", yes),
        call(6, "node x.js", yes),
        call(7, "make deploy", Some(Effect::Deny)),
        call(8, "make deploy", Some(Effect::Deny)),
    ];
    let workspace = workspace();
    let setting = setting(&workspace, Mode::Ask, "t");
    let report = backtest(
        &calls,
        &gate_support::tools(),
        &Gate::default(),
        &setting,
        &NamesOnly,
    );
    assert_eq!((report.before.asked, report.after.asked), (8, 8));
    assert!(report.changed.is_empty());
    let rules: Vec<(&str, usize)> = report
        .rules_to_add
        .iter()
        .map(|repeated| (repeated.rule.as_str(), repeated.questions))
        .collect();
    assert_eq!(rules, [("bash(npm test *)", 3), ("bash(cargo test *)", 2)]);

    let gate = Gate {
        rules: vec![rule("allow bash(make *)"), rule("deny bash(node *)")],
        ..Gate::default()
    };
    let report = backtest(&calls, &gate_support::tools(), &gate, &setting, &NamesOnly);
    assert_eq!(
        (
            report.after.allowed,
            report.after.asked,
            report.after.denied
        ),
        (3, 5, 1)
    );
    assert_eq!(
        report
            .changed
            .iter()
            .filter(|changed| changed.against_a_person)
            .count(),
        2
    );
}

/// The shape that scripts rely on.
#[test]
fn a_decision_has_the_documented_shape() {
    let gate = Gate {
        rules: vec![rule("allow bash(cargo test *)")],
        ..Gate::default()
    };
    let evaluated = judge(
        &gate,
        "bash",
        &bash("timeout 5 cargo test > out"),
        Mode::Ask,
        "t",
    )
    .evaluated;
    let value = serde_json::to_value(&evaluated).unwrap();
    for key in [
        "decision",
        "action_class",
        "risk",
        "decision_source",
        "reason",
        "matched",
        "mode",
    ] {
        assert!(value.get(key).is_some(), "{key}");
    }
    assert_eq!(
        value["parse"]["commands"][0]["words"],
        json!(["cargo", "test"])
    );
    assert_eq!(
        value["parse"]["commands"][0]["wrappers"],
        json!(["timeout"])
    );
    assert_eq!(value["parse"]["redirects"], json!(["> out"]));
    assert_eq!(value["matched"][0]["rule"], "bash(cargo test *)");
    assert_eq!(
        value["matched"][0]["origin"],
        json!({"layer": "user", "file": "config.toml", "line": 1})
    );
}
