//! Each code the pipeline itself can end a call with, with its phase and whether anything happened.

use agent_protocol::payload::permission::ActionDecision;
use agent_protocol::status::Mode;
use agent_protocol::{ActionHappened, Code, Phase};
use agent_tool_runtime::{Answer, Cancel, CancelReason, Observation, ToolIntent};
use serde_json::{Value, json};

use crate::stage::{Stage, decided};

fn check(observation: &Observation, phase: Phase, code: Code, part: &str) {
    let fact = observation.fact();
    assert_eq!((fact.phase, fact.code), (phase, code), "{}", fact.summary);
    assert!(fact.summary.contains(part), "{}", fact.summary);
    assert!(
        observation.model_text().contains(part),
        "{}",
        observation.model_text()
    );
    assert!(observation.model_text().contains(code.as_str()));
    if phase != Phase::Execute && phase != Phase::Normalize {
        assert_eq!(fact.action_happened, ActionHappened::No);
        assert_eq!(fact.invocation_id, None);
    }
    assert_eq!(fact.retryable, code.facts().retryable);
    assert!(fact.recovery.is_some());
}

#[test]
fn the_six_validation_codes() {
    let stage = Stage::new();
    let one = |name: &str, input: Value| stage.one(name, input);
    check(
        &one("lok", json!({})),
        Phase::Lookup,
        Code::UnknownTool,
        "did you mean `look`?",
    );
    check(
        &one("zzz", json!({})),
        Phase::Lookup,
        Code::UnknownTool,
        "the tools are `change`",
    );
    check(
        &one("hidden", json!({})),
        Phase::Lookup,
        Code::ToolNotVisible,
        "never shown",
    );
    check(
        &one("look", json!({"pth": "a"})),
        Phase::Validate,
        Code::SchemaInvalid,
        "did you mean `path`?",
    );
    for code in [
        Code::RuntimePreconditionFailed,
        Code::AmbiguousTarget,
        Code::StaleFileBaseline,
        Code::TargetNotFound,
        Code::NoChange,
        Code::FileNotFound,
        Code::NotAFile,
        Code::UnsupportedContent,
        Code::TooLarge,
        Code::OutsideWorkspace,
    ] {
        let observation = one("look", json!({"check": code.as_str()}));
        check(&observation, Phase::Validate, code, "a.txt");
        assert!(observation.model_text().contains("nearest line"));
        assert_eq!(observation.fact().facts.errors[0].path, "/path");
    }
    let classes = stage
        .events()
        .iter()
        .map(|event| event.payload.type_name().to_owned())
        .collect::<Vec<_>>();
    assert!(
        !classes
            .iter()
            .any(|class| class.starts_with("permission.") || class == "tool.started")
    );
}

#[test]
fn the_mode_hides_what_writes() {
    let stage = Stage::new();
    *stage.authority.mode.lock().unwrap() = Mode::ReadOnly;
    check(
        &stage.one("change", json!({})),
        Phase::Lookup,
        Code::ToolNotVisible,
        "read-only",
    );
    assert!(stage.one("look", json!({})).fact().ok);
}

#[test]
fn refusals() {
    let stage = Stage::new();
    check(
        &stage.one("change", json!({"gate": "deny"})),
        Phase::Permission,
        Code::PolicyDenied,
        "the test said deny",
    );
    for (answer, code, part) in [
        (
            decided(ActionDecision::Deny, Some("use the other file"), None),
            Code::UserDenied,
            "use the other file",
        ),
        (
            decided(ActionDecision::Abort, None, None),
            Code::UserDenied,
            "ended the turn",
        ),
        (
            Answer::Unavailable,
            Code::ApprovalUnavailable,
            "nobody can be asked",
        ),
        (Answer::Expired, Code::ApprovalExpired, "in time"),
        (Answer::Cancelled, Code::Cancelled, "cancelled"),
    ] {
        stage.answer([answer]);
        check(
            &stage.one("change", json!({"gate": "ask"})),
            Phase::Permission,
            code,
            part,
        );
    }
}

#[test]
fn what_goes_wrong_inside_does_not_end_the_session() {
    let stage = Stage::new();
    check(
        &stage.one("look", json!({"behave": "panic"})),
        Phase::Execute,
        Code::InternalError,
        "execution went wrong",
    );
    check(
        &stage.one("look", json!({"check": "panic"})),
        Phase::Validate,
        Code::InternalError,
        "validation went wrong",
    );
    check(
        &stage.one("mute", json!({})),
        Phase::Normalize,
        Code::InternalError,
        "no words",
    );
    assert!(stage.one("look", json!({})).fact().ok);
}

#[test]
fn what_tools_say_is_passed_on() {
    let stage = Stage::new();
    for code in [
        Code::IoError,
        Code::SpawnFailed,
        Code::SandboxUnavailable,
        Code::SandboxViolation,
        Code::OutputLimit,
        Code::PermissionDenied,
        Code::StaleFileBaseline,
        Code::Lost,
    ] {
        let observation = stage.one("command", json!({"behave": "fail", "code": code.as_str()}));
        check(&observation, Phase::Execute, code, "did not work");
        assert!(observation.fact().invocation_id.is_some());
    }
    let observation = stage.one("command", json!({"result": "exit_nonzero"}));
    check(
        &observation,
        Phase::Execute,
        Code::ExitNonzero,
        "ended with",
    );
    assert_eq!(stage.classes(&observation)[5], "tool.result");
    assert!(
        stage
            .one("look", json!({"result": "file_unchanged"}))
            .fact()
            .ok
    );
}

#[test]
fn timeouts_and_cancellation() {
    let stage = Stage::new();
    check(
        &stage.one("look", json!({"behave": "wait", "timeout_ms": 1})),
        Phase::Execute,
        Code::Timeout,
        "told to stop",
    );
    let cancel = Cancel::new();
    cancel.raise(CancelReason::Interrupted);
    let outcomes = stage.run_with(&cancel, &[("look", json!({}))]);
    check(
        outcomes[0].observation().unwrap(),
        Phase::Schedule,
        Code::Cancelled,
        "not started",
    );
}

#[test]
fn arguments_that_are_no_input() {
    let stage = Stage::new();
    let deep = format!("{{\"path\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let long = format!("{{\"text\":\"{}\"}}", "x".repeat(20 << 20));
    for (arguments, code, part) in [
        ("[1]", Code::SchemaInvalid, "an array"),
        ("{\"path\":", Code::SchemaInvalid, "cut short"),
        ("not json", Code::SchemaInvalid, "not valid JSON"),
        (
            "{\"path\":\"a\",\"path\":\"b\"}",
            Code::SchemaInvalid,
            "twice",
        ),
        (&deep, Code::SchemaInvalid, "levels deep"),
        (&long, Code::TooLarge, "bytes"),
    ] {
        let intent = ToolIntent {
            tool_name: "look".into(),
            arguments: arguments.to_owned(),
            ..ToolIntent::default()
        };
        let report = stage
            .pipeline
            .run(stage.scope(), &Cancel::new(), [intent])
            .unwrap();
        check(
            report.outcomes[0].observation().unwrap(),
            Phase::Validate,
            code,
            part,
        );
    }
    assert!(stage.one("look", json!({"label": "a\0b"})).fact().ok);
    let name = "n\x1b[2J".repeat(1000);
    let observation = stage.one(&name, json!({}));
    assert_eq!(observation.fact().code, Code::UnknownTool);
    assert!(!observation.model_text().contains('\x1b'));
}
