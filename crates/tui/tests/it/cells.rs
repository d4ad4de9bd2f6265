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

/// What a model says to sum up the history is no answer to anybody.
#[test]
fn compacting_is_no_answer() {
    use agent_protocol::payload::model::{ContextCompactionCompleted, ContextCompactionStarted};
    use agent_tui::state::cell::CellKind;
    use agent_tui::{Input, LiveText};

    let mut script = begun();
    script.completed(VerificationStatus::NotApplicable);
    script.push(Scope::default(), ContextCompactionStarted::default());
    let id = script.request();
    let mut ui = ui_of(&script);
    ui.input(Input::Live(LiveText::Answer("They spoke about".into())));
    assert!(!ui.state.busy() && ui.state.works(), "no turn, but work");
    let shown = crate::frames::show(&mut ui, 80, 24).join("\n");
    assert!(shown.contains("compacting the history"), "{shown}");
    script.delta(&id, 0, "They spoke about the parser.");
    script.answered(&id, "They spoke about the parser.");
    script.push(
        Scope::default(),
        ContextCompactionCompleted {
            summary_preview: "They spoke about the parser.".into(),
            ..ContextCompactionCompleted::default()
        },
    );
    let ui = ui_of(&script);
    assert!(!ui.state.works());
    let answers = ui.state.cells.iter();
    let answers = answers.filter(|cell| matches!(cell.kind, CellKind::Assistant(_)));
    assert_eq!(answers.count(), 0);
}

/// The last line a command printed is the last one, however little of it the preview has.
#[test]
fn output_is_told_from_its_end_and_folded_out_whole() {
    use agent_protocol::payload::tool::{ContentBlock, ContentFormat};
    let mut script = begun();
    let call = script.intent("bash", json!({"command": "seq 1 30"}));
    script
        .evaluated(&call, Effect::Allow, None)
        .started(&call, "bash", true);
    let lines: Vec<String> = (1..=30).map(|n| format!("line {n}")).collect();
    script.observation(
        &call,
        ToolObservation {
            tool_name: "bash".into(),
            ok: true,
            phase: Phase::Execute,
            code: Code::Ok,
            summary: "Exit code 0.".into(),
            user_text: "Exit code 0.".into(),
            preview: Some(lines[..6].join("\n")),
            content: vec![ContentBlock {
                format: ContentFormat::Text,
                text: Some(lines.join("\n")),
                ..ContentBlock::default()
            }],
            facts: agent_protocol::payload::tool::ObservationFacts {
                exit_code: Some(0),
                ..Default::default()
            },
            ..ToolObservation::default()
        },
    );
    let silent = script.intent("bash", json!({"command": "touch a"}));
    script.started(&silent, "bash", true);
    script.observation(
        &silent,
        ToolObservation {
            tool_name: "bash".into(),
            ok: true,
            phase: Phase::Execute,
            code: Code::Ok,
            summary: "Exit code 0. No output.".into(),
            user_text: "Exit code 0. No output.".into(),
            facts: agent_protocol::payload::tool::ObservationFacts {
                exit_code: Some(0),
                ..Default::default()
            },
            ..ToolObservation::default()
        },
    );
    let mut ui = ui_of(&script);
    let printed = agent_tui::view::print_finished(&mut ui, 80, 100);
    let printed: Vec<String> = printed.iter().map(ToString::to_string).collect();
    let printed = printed.join("\n");
    assert!(
        printed.contains("  exit 0: line 30 · sandboxed"),
        "{printed}"
    );
    assert!(
        printed.contains("  exit 0, no output · sandboxed"),
        "{printed}"
    );
    ui.overlay = Some(Overlay::Transcript(Transcript {
        all_unfolded: true,
        ..Transcript::at_end()
    }));
    let shown = crate::frames::show(&mut ui, 80, 60).join("\n");
    assert!(
        shown.contains("│ line 7\n") && shown.contains("│ line 30"),
        "{shown}"
    );
}

/// Whoever runs a command of their own wants to read what it prints.
#[test]
fn an_own_command_shows_its_output() {
    use agent_protocol::payload::conversation::TurnStarted;
    let mut script = Script::default();
    script.session().user("!ls");
    script.push(
        Scope::default(),
        TurnStarted {
            model: "none".into(),
            ..TurnStarted::default()
        },
    );
    let call = script.intent("bash", json!({"command": "ls"}));
    script.started(&call, "bash", true);
    let lines: Vec<String> = (1..=50).map(|n| format!("file {n}")).collect();
    script.observed(&call, "bash", Code::Ok, "Exit code 0.", &lines.join("\n"));
    let mut ui = ui_of(&script);
    let printed = agent_tui::view::print_finished(&mut ui, 80, 100);
    let printed: Vec<String> = printed.iter().map(ToString::to_string).collect();
    let printed = printed.join("\n");
    for part in [
        "  │ file 1\n",
        "  │ file 40\n",
        "… 10 more lines (Ctrl-T shows them)",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(!printed.contains("file 41"), "{printed}");
    let why = agent_tui::view::documents::why(match &ui.state.cells.last().unwrap().kind {
        agent_tui::state::cell::CellKind::Tool(tool) => tool,
        other => panic!("{other:?}"),
    });
    assert!(format!("{why:?}").contains("you asked for bash"), "{why:?}");
}

/// A run of blanks must not push the rest of a command out of its title.
#[test]
fn a_title_hides_nothing_behind_blanks() {
    let mut script = begun();
    let call = script.intent(
        "bash",
        json!({"command": format!("echo a{}; rm -rf build{}rm b", " ".repeat(300), "\n".repeat(80))}),
    );
    script.started(&call, "bash", true);
    script.observed(&call, "bash", Code::Ok, "Exit code 0.", "");
    let printed = printed_at_all_sizes(&script);
    let whole = "✓ bash echo a⟨300 spaces⟩; rm -rf build⏎⟨79 blank lines⟩rm b";
    assert!(printed.contains(whole), "{printed}");
}
