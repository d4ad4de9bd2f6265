//! Plays a hand-made session into the real loop, with timing, so that the screen can be tried by
//! hand. Answers are real: the script waits for them and goes on as they say.
//!
//! `cargo run -p agent-tui --example script -- [demo|stream|long|attack|first-run|trust|replay|crash|panic] [--plain] [--full]`

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "an example to be looked at by hand"
)]

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::Code;
use agent_protocol::command::ControlCommand;
use agent_protocol::payload::permission::{ActionDecision, Effect};
use agent_protocol::status::{Status, VerificationStatus};
use agent_tui::{
    ColorDepth, Document, DocumentFormat, FirstRun, HostMessage, HostRequest, Input, Output,
    SessionLine, Settings, Start, TrustQuestion,
};
use sample::Script;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("demo", String::as_str).to_owned();
    let start = match name.as_str() {
        "first-run" => Start::FirstRun(FirstRun {
            found: vec![
                ("OPENAI_API_KEY in the environment".into(), false),
                ("ANTHROPIC_API_KEY in the environment".into(), false),
                ("a local server on 127.0.0.1:11434 (ollama)".into(), false),
            ],
            to_set: vec![
                "export OPENAI_API_KEY=…".into(),
                "export ANTHROPIC_API_KEY=…".into(),
                "ollama serve".into(),
            ],
            notes: Vec::new(),
        }),
        "trust" => Start::Trust(TrustQuestion {
            file: ".agent/config.toml".into(),
            is_change: true,
            diff: "--- trusted\n+++ now\n@@ -1,1 +1,3 @@\n mode = \"ask\"\n+allow bash(cargo test *)\n+allow edit(src/**)\n".into(),
        }),
        _ => Start::Composer,
    };
    let settings = Settings {
        colors: ColorDepth::Ansi256,
        plain: arguments.iter().any(|argument| argument == "--plain"),
        full_screen: arguments.iter().any(|argument| argument == "--full"),
        vim_keys: arguments.iter().any(|argument| argument == "--vim"),
        model: "scripted/demo".into(),
        cwd: "/home/you/project".into(),
        branch: Some("main".into()),
        history: vec!["explain src/lib.rs".into(), "run the tests".into()],
        start,
        version: "0.1.0".into(),
        external_editor: Some(Arc::new(|text| {
            assert!(!text.contains("panic"), "the screen's own thread gives up");
            Ok(format!("{text} (edited outside)"))
        })),
        ..Settings::default()
    };
    let shutdown = CancellationToken::new();
    if name == "replay" {
        let events = sample::demo().events;
        let exit = agent_tui::replay::replay(settings, Box::new(events), Some(0), shutdown).await;
        eprintln!("{exit:?}");
        return;
    }
    let (inputs, screen_inputs) = unbounded_channel();
    let (screen_outputs, outputs) = unbounded_channel();
    tokio::spawn(engine(name, inputs, outputs));
    let exit = agent_tui::run(settings, screen_inputs, screen_outputs, shutdown).await;
    eprintln!("{exit:?}");
}

/// Sends the events of `script` that were not sent yet, one after the other.
async fn play(script: &Script, sent: &mut usize, inputs: &UnboundedSender<Input>, pause: u64) {
    for event in &script.events[*sent..] {
        let _ = inputs.send(Input::Event(event.clone()));
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    *sent = script.events.len();
}

async fn engine(
    name: String,
    inputs: UnboundedSender<Input>,
    mut outputs: UnboundedReceiver<Output>,
) {
    let mut script = Script::default();
    let mut sent = 0;
    script.session();
    play(&script, &mut sent, &inputs, 0).await;
    while let Some(output) = outputs.recv().await {
        match output {
            Output::Command(ControlCommand::SubmitTurn(turn)) => {
                script.user(&turn.text);
                match name.as_str() {
                    "stream" => stream(&mut script, &mut sent, &inputs).await,
                    "long" => long(&mut script, &mut sent, &inputs, &mut outputs).await,
                    "attack" => attack(&mut script, &mut sent, &inputs).await,
                    "panic" => panic!("the engine's thread gives up"),
                    "crash" => {
                        let _ =
                            inputs.send(Input::Host(HostMessage::Notice("about to end".into())));
                        return;
                    }
                    _ => demo(&mut script, &mut sent, &inputs, &mut outputs).await,
                }
                play(&script, &mut sent, &inputs, 30).await;
            }
            Output::Host(request) => host(request, &inputs),
            Output::Command(ControlCommand::SetMode(set)) => {
                script.push(
                    agent_protocol::Scope::default(),
                    agent_protocol::payload::conversation::SessionUpdated {
                        changed: agent_protocol::payload::conversation::SessionChanges {
                            mode: Some(set.mode),
                            ..Default::default()
                        },
                        reason: "user".into(),
                    },
                );
                play(&script, &mut sent, &inputs, 0).await;
            }
            Output::Command(_) => {}
        }
    }
}

fn host(request: HostRequest, inputs: &UnboundedSender<Input>) {
    let message = match request {
        HostRequest::Files => HostMessage::Files(vec![
            "Cargo.toml".into(),
            "src/lib.rs".into(),
            "src/main.rs".into(),
            "tests/it.rs".into(),
        ]),
        HostRequest::Preview { path } => HostMessage::Preview {
            text: format!("first line of {path}\nsecond line\nthird line"),
            path,
        },
        HostRequest::Models => HostMessage::Models(vec![
            "scripted/demo".into(),
            "openai/gpt".into(),
            "ollama/qwen".into(),
        ]),
        HostRequest::Sessions => HostMessage::Sessions(vec![SessionLine {
            session_id: "ses_0".parse().unwrap(),
            title: "fix the parser".into(),
            detail: "yesterday, completed".into(),
        }]),
        HostRequest::Diff => HostMessage::Document(Document {
            title: "changes of this session".into(),
            text: sample::DIFF.into(),
            format: DocumentFormat::Diff,
        }),
        HostRequest::Remember { .. } => return,
        other => HostMessage::Notice(format!("asked for {other:?}")),
    };
    let _ = inputs.send(Input::Host(message));
}

/// Waits for the answer to the open question.
async fn answer(
    outputs: &mut UnboundedReceiver<Output>,
    inputs: &UnboundedSender<Input>,
) -> ActionDecision {
    while let Some(output) = outputs.recv().await {
        match output {
            Output::Command(ControlCommand::RespondAction(response)) => return response.decision,
            Output::Command(ControlCommand::InterruptTurn(_)) => return ActionDecision::Abort,
            Output::Host(request) => host(request, inputs),
            Output::Command(_) => {}
        }
    }
    ActionDecision::Abort
}

async fn streamed(
    script: &mut Script,
    sent: &mut usize,
    inputs: &UnboundedSender<Input>,
    text: &str,
) {
    let id = script.request();
    play(script, sent, inputs, 300).await;
    let mut index = 0;
    for piece in text.split_inclusive(' ') {
        script.delta(&id, index, piece);
        index += piece.len();
        play(script, sent, inputs, 12).await;
    }
    script.answered(&id, text);
    play(script, sent, inputs, 10).await;
}

async fn demo(
    script: &mut Script,
    sent: &mut usize,
    inputs: &UnboundedSender<Input>,
    outputs: &mut UnboundedReceiver<Output>,
) {
    streamed(script, sent, inputs, "I will look at the code first.").await;
    let read = script.intent("read", json!({"path": "src/lib.rs"}));
    script
        .evaluated(&read, Effect::Allow, None)
        .started(&read, "read", false);
    play(script, sent, inputs, 60).await;
    script.observed(
        &read,
        "read",
        Code::Ok,
        "14 lines",
        "1 /// Adds two numbers.",
    );
    streamed(script, sent, inputs, sample::ANSWER).await;
    let edit = script.intent(
        "edit",
        json!({"path": "src/lib.rs", "old_string": "left - right", "new_string": "left + right"}),
    );
    script.evaluated(&edit, Effect::Ask, None);
    let action = script.asks(&edit, sample::ask_edit(None));
    play(script, sent, inputs, 60).await;
    let decision = answer(outputs, inputs).await;
    script.resolved(&edit, &action, decision, None);
    if decision == ActionDecision::Abort {
        script.failed(Status::Cancelled, "aborted by the user");
        return;
    }
    if decision == ActionDecision::Deny {
        script.observed(&edit, "edit", Code::UserDenied, "the user said no", "");
        streamed(
            script,
            sent,
            inputs,
            "Understood, I leave the file as it is.",
        )
        .await;
        script.completed(VerificationStatus::NotApplicable);
        return;
    }
    script
        .started(&edit, "edit", false)
        .edited(&edit, sample::DIFF);
    let test = script.intent("bash", json!({"command": "cargo test"}));
    script.evaluated(&test, Effect::Ask, None);
    let action = script.asks(&test, sample::ask_command("cargo test"));
    play(script, sent, inputs, 60).await;
    let decision = answer(outputs, inputs).await;
    script.resolved(&test, &action, decision, None);
    if decision != ActionDecision::AllowOnce && decision != ActionDecision::AllowSession {
        script.observed(&test, "bash", Code::UserDenied, "the user said no", "");
        script.completed(VerificationStatus::Unverified);
        return;
    }
    script.started(&test, "bash", true);
    for number in 0..40 {
        script.output(&test, &format!("test case_{number} ... ok\n"));
        play(script, sent, inputs, 60).await;
    }
    script.observed(
        &test,
        "bash",
        Code::Ok,
        "40 passed",
        "test result: ok. 40 passed",
    );
    streamed(script, sent, inputs, "Fixed: all tests pass now.").await;
    script.completed(VerificationStatus::Passed);
}

async fn stream(script: &mut Script, sent: &mut usize, inputs: &UnboundedSender<Input>) {
    let text: String = (0..60)
        .map(|n| format!("Paragraph {n} of a long answer that goes on for a while and has to be wrapped somewhere.\n\n"))
        .collect();
    streamed(script, sent, inputs, &text).await;
    script.completed(VerificationStatus::NotApplicable);
}

async fn long(
    script: &mut Script,
    sent: &mut usize,
    inputs: &UnboundedSender<Input>,
    outputs: &mut UnboundedReceiver<Output>,
) {
    let command: String = (0..80)
        .map(|n| format!("echo step {n} && \\\n"))
        .chain(["rm -rf build".to_owned()])
        .collect();
    let call = script.intent("bash", json!({"command": command}));
    script.evaluated(&call, Effect::Ask, None);
    let action = script.asks(&call, sample::ask_command(&command));
    play(script, sent, inputs, 10).await;
    let decision = answer(outputs, inputs).await;
    script.resolved(&call, &action, decision, None);
    script.observed(
        &call,
        "bash",
        if decision == ActionDecision::Deny {
            Code::UserDenied
        } else {
            Code::Ok
        },
        "done",
        "",
    );
    script.completed(VerificationStatus::Unverified);
}

async fn attack(script: &mut Script, sent: &mut usize, inputs: &UnboundedSender<Input>) {
    let evil = "\x1b[2J\x1b[1;1H\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07\x1bPq\x1b\\\u{9b}2J\u{202e}txt.exe\u{200b}\x08\x08\rOVER";
    script.says(&format!("The answer {evil} end"));
    let call = script.intent("bash", json!({"command": format!("cat {evil}")}));
    script
        .evaluated(&call, Effect::Allow, None)
        .started(&call, "bash", true);
    script.output(&call, &format!("{evil}\nmore\n"));
    play(script, sent, inputs, 500).await;
    script.observed(&call, "bash", Code::Ok, evil, evil);
    script.completed(VerificationStatus::NotApplicable);
}
