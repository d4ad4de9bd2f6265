//! Every kind of cell, in the scrollback, live and folded out.

use agent_protocol::payload::conversation::{RuntimeError, RuntimeWarning};
use agent_protocol::payload::model::{ModelFailed, ModelFailureKind};
use agent_protocol::payload::permission::{ActionDecision, Effect};
use agent_protocol::payload::process::{Detection, SandboxViolation, ViolationKind};
use agent_protocol::payload::tool::{ToolObservation, ToolValidation, ValidationError};
use agent_protocol::status::{Status, VerificationStatus};
use agent_protocol::{Code, Phase, Scope};
use agent_tui::ui::overlay::{Overlay, Transcript};
use insta::assert_snapshot;
use serde_json::json;

use crate::frames::{at_all_sizes, printed_at_all_sizes, ui_of};
use crate::sample::{self, ANSWER, DIFF, Script};

fn begun() -> Script {
    let mut script = Script::default();
    script.session().user("go");
    script
}

#[test]
fn a_whole_session() {
    assert_snapshot!(printed_at_all_sizes(&sample::demo()));
}

#[test]
fn user() {
    let mut script = Script::default();
    script.session().user("Please fix the parser: it fails on long lines, and the error message does not say where.\n\nSecond paragraph, with 漢字, emoji 👩‍🔬 and e\u{301} combined.");
    assert_snapshot!(printed_at_all_sizes(&script));
}

#[test]
fn assistant_streams() {
    let make = || {
        let mut script = begun();
        let id = script.request();
        script.delta(&id, 0, &ANSWER[..ANSWER.len() / 2]);
        ui_of(&script)
    };
    assert_snapshot!(at_all_sizes(make));
}

#[test]
fn right_to_left_and_wide_text() {
    let mut script = begun();
    script.says("Arabic: مرحبا بالعالم — Hebrew: שלום עולם — wide: 日本語のテキストはここで折り返されます、とても長いので。\n\n- combining: a\u{301}\u{323}o\u{308}\n- override: a\u{202e}b\u{2066}c\n- family: 👨‍👩‍👧‍👦 flag: 🇩🇪 heart: ❤️");
    assert_snapshot!(printed_at_all_sizes(&script));
}

#[test]
fn reasoning() {
    let make = |done: bool| {
        move || {
            let mut script = begun();
            let id = script.request();
            script.think(&id, "First I look at the parser.\nThen at the lexer, because the error comes from there and not from anywhere else.");
            if done {
                script.answered(&id, "Done.");
            }
            let mut ui = ui_of(&script);
            if done {
                ui.overlay = Some(Overlay::Transcript(Transcript {
                    all_unfolded: true,
                    ..Transcript::at_end()
                }));
            }
            ui
        }
    };
    assert_snapshot!("reasoning_live", at_all_sizes(make(false)));
    assert_snapshot!("reasoning_unfolded", at_all_sizes(make(true)));
}

#[test]
fn tool_on_its_way() {
    let make = || {
        let mut script = begun();
        script.intent("grep", json!({"pattern": "fn main", "path": "src"}));
        let waits = script.intent("read", json!({"path": "src/main.rs", "offset": 200}));
        script.evaluated(&waits, Effect::Allow, None);
        let runs = script.intent("bash", json!({"command": "cargo test --workspace --all-features -- --nocapture --test-threads=1 a_rather_long_filter"}));
        script.evaluated(&runs, Effect::Allow, Some("bash(cargo test *)"));
        script.started(&runs, "bash", true);
        script.output(&runs, "   Compiling agent v0.1.0\nrunning 3 tests\ntest one ... ok\ntest two ... \x1b[32mok\x1b[0m\ntest three ... ok\ntest four ... ok\nhalf a li");
        script.queued("and then update the changelog");
        ui_of(&script)
    };
    assert_snapshot!(at_all_sizes(make));
}

#[test]
fn tool_outcomes() {
    let mut script = begun();
    let ok = script.intent("bash", json!({"command": "cargo test"}));
    script
        .evaluated(&ok, Effect::Allow, Some("bash(cargo test *)"))
        .started(&ok, "bash", true);
    script.observed(&ok, "bash", Code::Ok, "3 passed", "ok");

    let exit = script.intent("bash", json!({"command": "cargo test"}));
    script
        .evaluated(&exit, Effect::Allow, None)
        .started(&exit, "bash", true);
    script.observed(
        &exit,
        "bash",
        Code::ExitNonzero,
        "1 failed, 2 passed",
        "assertion failed",
    );

    let denied = script.intent("edit", json!({"path": "src/lib.rs"}));
    script.evaluated(&denied, Effect::Ask, None);
    let action = script.asks(&denied, sample::ask_edit(None));
    script.resolved(
        &denied,
        &action,
        ActionDecision::Deny,
        Some("use the other function"),
    );
    script.observed(&denied, "edit", Code::UserDenied, "the user denied it", "");

    let policy = script.intent("read", json!({"path": ".env"}));
    script.evaluated(&policy, Effect::Deny, Some("read(**/.env)"));
    script.observed(
        &policy,
        "read",
        Code::PolicyDenied,
        "a rule forbids this",
        "",
    );

    let invalid = script.intent("edit", json!({"path": 7}));
    script.push(
        Scope {
            tool_call_id: Some(invalid.clone()),
            ..Scope::default()
        },
        ToolValidation {
            errors: vec![ValidationError {
                path: "/path".into(),
                message: "7 is not a string".into(),
            }],
            ..ToolValidation::default()
        },
    );
    script.observed(
        &invalid,
        "edit",
        Code::SchemaInvalid,
        "the input does not fit the schema",
        "",
    );

    let open = script.intent("bash", json!({"command": "npm install"}));
    script
        .evaluated(&open, Effect::Allow, None)
        .started(&open, "bash", false);
    script.observation(
        &open,
        ToolObservation {
            tool_name: "bash".into(),
            phase: Phase::Execute,
            code: Code::Timeout,
            summary: "stopped after 2 minutes".into(),
            truncated: true,
            omitted_bytes: 123_456,
            ..ToolObservation::default()
        },
    );
    script.completed(VerificationStatus::Failed);
    assert_snapshot!(printed_at_all_sizes(&script));
}

#[test]
fn tool_unfolded() {
    let make = || {
        let mut script = begun();
        let edit = script.intent("edit", json!({"path": "src/lib.rs"}));
        script
            .evaluated(&edit, Effect::Allow, Some("edit(src/**)"))
            .started(&edit, "edit", false);
        script.edited(&edit, DIFF);
        let run = script.intent("bash", json!({"command": "curl http://example.com"}));
        script
            .evaluated(&run, Effect::Allow, None)
            .started(&run, "bash", true);
        script.push(
            Scope {
                tool_call_id: Some(run.clone()),
                ..Scope::default()
            },
            SandboxViolation {
                kind: ViolationKind::Network,
                target: Some("example.com:80".into()),
                count: 2,
                detection: Detection::SeccompNotification,
                permitted_by: Some("network: true, when the gate allows it".into()),
                ..SandboxViolation::default()
            },
        );
        script.observed(
            &run,
            "bash",
            Code::ExitNonzero,
            "could not resolve host",
            "curl: (6) Could not resolve host",
        );
        let mut ui = ui_of(&script);
        ui.overlay = Some(Overlay::Transcript(Transcript {
            all_unfolded: true,
            ..Transcript::at_end()
        }));
        ui
    };
    assert_snapshot!(at_all_sizes(make));
}

#[test]
fn turn_ends() {
    let mut script = Script::default();
    script.session();
    for status in VerificationStatus::ALL {
        script.user(status.as_str()).completed(*status);
    }
    script.user("degraded").push(
        Scope::default(),
        agent_protocol::payload::conversation::TurnCompleted {
            refused_calls: Some(2),
            ..agent_protocol::payload::conversation::TurnCompleted::default()
        },
    );
    script
        .user("cancelled")
        .failed(Status::Cancelled, "interrupted by the user");
    script.user("failed").failed(
        Status::Failed,
        "the model endpoint answered 500 three times",
    );
    assert_snapshot!(printed_at_all_sizes(&script));
}

#[test]
fn notices() {
    let mut script = begun();
    script.push(
        Scope::default(),
        RuntimeWarning {
            code: "stale_lease".into(),
            message: "a lease of a process that is gone was taken over".into(),
            ..RuntimeWarning::default()
        },
    );
    script.push(
        Scope::default(),
        RuntimeError {
            code: "disk_full".into(),
            message: "the log cannot be written: no space left on device".into(),
            ..RuntimeError::default()
        },
    );
    script.push(
        Scope::default(),
        ModelFailed {
            kind: ModelFailureKind::RateLimit,
            retryable: true,
            message: "too many requests".into(),
            hint: Some("the provider asks to wait 12 seconds".into()),
            retry_in_ms: Some(12_000),
            ..ModelFailed::default()
        },
    );
    assert_snapshot!(printed_at_all_sizes(&script));
}

/// The log has the last word, whether the live text came before it, after it or not at all.
#[test]
fn live_text_gives_way_to_what_is_recorded() {
    use agent_tui::state::cell::CellKind;
    use agent_tui::{Input, LiveText, view};

    let mut script = begun();
    let id = script.request();
    let before = script.events.len();
    script.delta(&id, 0, "The key is ‹masked›.\n\nNext ");
    script.delta(&id, 28, "paragraph.\n\n");
    let mut ui = crate::frames::ui_with(&script.events[..before]);
    let text = |ui: &agent_tui::ui::Ui| match &ui.state.cells.last().unwrap().kind {
        CellKind::Assistant(assistant) => assistant.text.clone(),
        other => panic!("{other:?}"),
    };
    ui.input(Input::Live(LiveText::Answer(
        "The key is hunter2.\n\nNext para".into(),
    )));
    assert_eq!(text(&ui), "The key is hunter2.\n\nNext para");
    let printed = view::print_finished(&mut ui, 80, 1000);
    assert!(
        !printed
            .iter()
            .any(|line| line.to_string().contains("hunter2")),
        "not recorded, not printed"
    );
    ui.input(Input::Event(script.events[before].clone()));
    assert!(text(&ui).starts_with("The key is ‹masked›.\n\nNext "));
    ui.input(Input::Event(script.events[before + 1].clone()));
    assert_eq!(text(&ui), "The key is ‹masked›.\n\nNext paragraph.\n\n");
}
