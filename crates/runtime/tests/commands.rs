//! Commands that ask, those that end something, and the typed errors of what cannot be done here.

#![allow(clippy::unwrap_used, clippy::panic)] // a failure is the report

use std::sync::{Arc, mpsc};

use agent_protocol::command::{
    AddDirectory, BeginCalls, CallTool, ChangeDirectory, ControlCommand, EndSession, ExportRequest,
    InterruptTurn, Peer, PeerKind, PermissionQuery, PreviewRule, ProcessQuery, QueuedTurn,
    RejectCall, RespondAction, ResumeThread, SetMode, SetModel, SetThinking, Shell, SubmitTurn,
    TerminateProcess, ThreadQuery, Undo, Window,
};
use agent_protocol::id::{ActionId, IdMint, ProcessId};
use agent_protocol::payload::permission::{ActionAnswer, ActionDecision, GrantScope};
use agent_protocol::reply::{
    Acknowledgement, AnswerCode, CallReport, ControlErrorCode, Reply, SessionReply,
};
use agent_protocol::status::{Mode, Thinking};
use agent_protocol::{Clock, Payload, Timestamp};
use agent_runtime::{
    Directories, Environment, Host, OnAsk, OpenOptions, Runtime, Session, SessionModels,
};
use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use serde_json::json;

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(1_794_799_680_000)
    }
}

fn runtime(project: &TestProject) -> Runtime {
    Runtime::new(Host {
        clock: Arc::new(Still),
        ids: Arc::new(IdMint::new(Arc::new(Still), 7)),
        random: Arc::new(|| Ok([7; 32])),
        environment: Environment::default(),
        directories: Directories::below(&project.home(), project.home().join("none.toml")),
        cwd: project.root(),
        home: project.home(),
        name: "test".to_owned(),
        temporary: std::env::temp_dir(),
        tools: Vec::new(),
    })
}

fn peer() -> Peer {
    Peer::new(PeerKind::Program, "a test")
}

/// A session without a sandbox, in which one file was read.
fn session(project: &TestProject) -> Session {
    project.write_home("config.toml", "[sandbox]\nmode = \"off\"\n");
    project.write("a.txt", "hello\n");
    let session = runtime(project).open(OpenOptions::default()).unwrap();
    let ask = |command| session.handle(command, &peer()).unwrap();
    let title = "a test".to_owned();
    ask(ControlCommand::BeginCalls(BeginCalls { title }));
    let called = ask(ControlCommand::CallTool(CallTool {
        tool: "read".to_owned(),
        arguments: json!({"path": "a.txt"}).to_string(),
        reason: None,
    }));
    let Reply::Called(report) = called else {
        panic!("{called:?}");
    };
    assert!(
        matches!(*report, CallReport::Observed { ref observation, .. } if observation.ok),
        "{report:?}"
    );
    ask(ControlCommand::EndCalls);
    session
}

fn whole(session: &Session) -> SessionReply {
    let command = ControlCommand::GetSession(Window::default());
    match session.handle(command, &peer()).unwrap() {
        Reply::Session(whole) => *whole,
        other => panic!("{other:?}"),
    }
}

#[test]
fn questions_are_answered_from_the_log() {
    let project = TestProject::new();
    let session = session(&project);
    let ask = |command| session.handle(command, &peer());
    let all = whole(&session);
    assert!(all.next.is_none());
    let window = Window {
        cursor: Some(1),
        limit: Some(2),
    };
    let Ok(Reply::Session(part)) = ask(ControlCommand::GetSession(window)) else {
        panic!("a part of a session");
    };
    assert_eq!(part.events[0]["sequence"], 1);
    assert_eq!((part.events.len(), part.next), (2, Some(3)));
    let started = all
        .events
        .iter()
        .find(|event| event["type"] == "turn.started");
    let started = started.unwrap();
    let thread_id = started["thread_id"].as_str().unwrap().parse().unwrap();
    let query = ThreadQuery { thread_id };
    assert!(matches!(
        ask(ControlCommand::GetThreadRead(query)),
        Ok(Reply::Thread(_))
    ));
    let unknown = ask(ControlCommand::GetThreadRead(ThreadQuery::default()));
    assert_eq!(unknown.unwrap_err().code, ControlErrorCode::NotFound);
    let environment = ask(ControlCommand::GetExecutionEnvironment);
    assert!(matches!(environment, Ok(Reply::Environment(_))));
    let query = PermissionQuery {
        tool: "bash".to_owned(),
        input: json!({"command": "rm -rf build"}),
        mode: None,
    };
    let Ok(Reply::Permission(evaluated)) = ask(ControlCommand::EvaluatePermission(query)) else {
        panic!("a decision");
    };
    assert_eq!(evaluated.decision.to_string(), "ask");
    let of_turn = ExportRequest {
        turn_id: Some(started["turn_id"].as_str().unwrap().parse().unwrap()),
        include_images: false,
    };
    let Ok(Reply::Exported(story)) = ask(ControlCommand::ExportReplay(of_turn)) else {
        panic!("the story of a turn");
    };
    assert!(story.text.unwrap().contains("a.txt"));
    let Ok(Reply::Exported(review)) = ask(ControlCommand::ExportReview(ExportRequest::default()))
    else {
        panic!("a review");
    };
    assert_eq!(review.media_type, "text/markdown");
    let pack = ask(ControlCommand::ExportEvidence(ExportRequest::default()));
    assert!(matches!(pack, Ok(Reply::Exported(pack)) if pack.base64.is_some()));
    assert_eq!(
        whole(&session).events.len(),
        all.events.len(),
        "nothing was recorded"
    );
}

#[test]
fn what_cannot_be_done_has_a_code() {
    let project = TestProject::new();
    let session = session(&project);
    let ask = |command| session.handle(command, &peer());
    let process_id = ProcessId::default();
    let process = ask(ControlCommand::TerminateProcess(TerminateProcess {
        process_id,
    }));
    let Ok(Reply::Answer(answer)) = process else {
        panic!("{process:?}");
    };
    assert_eq!(answer.acknowledgement, Acknowledgement::NoOp);
    assert_eq!(answer.code, Some(AnswerCode::NoSuchProcess));
    let processes = ask(ControlCommand::GetProcesses(ProcessQuery::default()));
    assert!(matches!(processes, Ok(Reply::Processes(none)) if none.is_empty()));
    let submitted = ask(ControlCommand::SubmitTurn(SubmitTurn::default()));
    assert_eq!(submitted.unwrap_err().code, ControlErrorCode::Unavailable);
    let stray = ask(ControlCommand::EndCalls);
    assert_eq!(stray.unwrap_err().code, ControlErrorCode::Unavailable);
    ask(ControlCommand::EndSession(EndSession::default())).unwrap();
    let late = ask(ControlCommand::BeginCalls(BeginCalls::default()));
    assert_eq!(late.unwrap_err().code, ControlErrorCode::SessionEnded);
    session.close().unwrap();
}

/// A session with nothing to do; nothing listens where its model is.
fn idle(project: &TestProject) -> Session {
    let settings = "model = \"local/m\"\n[sandbox]\nmode = \"off\"\n[providers.local]\n\
                    dialect = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    project.write_home("config.toml", settings);
    let options = OpenOptions {
        // Without a sandbox, a command of the user's own needs a yes too.
        on_ask: OnAsk::Allow,
        models: SessionModels::FromSettings,
        ..OpenOptions::default()
    };
    runtime(project).open(options).unwrap()
}

fn types(session: &Session) -> Vec<String> {
    let events = whole(session).events;
    let types = events.iter().map(|event| event["type"].as_str().unwrap());
    types.map(str::to_owned).collect()
}

#[test]
fn what_is_not_there_is_named_and_nothing_is_recorded() {
    let project = TestProject::new();
    let session = idle(&project);
    let before = types(&session).len();
    for (command, code) in [
        (
            ControlCommand::InterruptTurn(InterruptTurn::default()),
            AnswerCode::NoSuchTurn,
        ),
        (
            ControlCommand::RemoveQueuedTurn(QueuedTurn::default()),
            AnswerCode::NoSuchInput,
        ),
        (
            ControlCommand::PromoteQueuedTurn(QueuedTurn::default()),
            AnswerCode::NoSuchInput,
        ),
        (
            ControlCommand::RespondAction(RespondAction::default()),
            AnswerCode::NoSuchQuestion,
        ),
        (
            ControlCommand::Undo(Undo::default()),
            AnswerCode::NothingToUndo,
        ),
    ] {
        let name = command.name();
        let Ok(Reply::Answer(answer)) = session.handle(command, &peer()) else {
            panic!("{name}");
        };
        assert_eq!(answer.code, Some(code), "{name}");
        assert_eq!(answer.acknowledgement, Acknowledgement::NoOp, "{name}");
    }
    let other = ControlCommand::ResumeThread(ResumeThread::default());
    assert!(session.handle(other, &peer()).is_err());
    let stray = ControlCommand::RejectCall(RejectCall::default());
    let stray = session.handle(stray, &peer()).unwrap_err();
    assert_eq!(stray.code, ControlErrorCode::Unavailable);
    assert_eq!(types(&session).len(), before, "{:?}", types(&session));
    session.close().unwrap();
}

#[test]
fn what_is_changed_is_recorded() {
    let project = TestProject::new();
    let session = idle(&project);
    let ask = |command| session.handle(command, &peer());
    let mode = Mode::ReadOnly;
    ask(ControlCommand::SetMode(SetMode { mode })).unwrap();
    assert_eq!(session.mode(), Some(mode));
    assert!(types(&session).contains(&"policy.changed".to_owned()));
    let added = |path: &str| {
        let path = path.to_owned();
        ask(ControlCommand::AddDirectory(AddDirectory { path }))
    };
    let library = TestProject::new();
    let library = library.root().canonicalize().unwrap();
    added(library.to_str().unwrap()).unwrap();
    assert_eq!(session.directories(), [library]);
    let Ok(Reply::Answer(known)) = added(".") else {
        panic!("the project can be read already");
    };
    assert_eq!(known.code, Some(AnswerCode::NothingToAdd));
    assert_eq!(added("/").unwrap_err().code, ControlErrorCode::NotStarted);
    std::fs::create_dir(project.root().join("sub")).unwrap();
    let change = |path: &str| {
        let path = path.to_owned();
        ask(ControlCommand::ChangeDirectory(ChangeDirectory { path }))
    };
    change("sub").unwrap();
    let Ok(Reply::Answer(there)) = change(".") else {
        panic!("it is there already");
    };
    assert_eq!(there.code, Some(AnswerCode::AlreadyThere));
    for (path, why) in [
        ("../..", "not in the project"),
        ("gone", "No such file"),
        ("../a.txt", ""),
    ] {
        let refused = change(path).unwrap_err();
        assert_eq!(refused.code, ControlErrorCode::NotStarted, "{path}");
        assert!(refused.message.contains(why), "{}", refused.message);
        assert!(
            refused.message.ends_with("still in `sub`"),
            "{}",
            refused.message
        );
    }
    let model = |model: &str| {
        ask(ControlCommand::SetModel(SetModel {
            model: model.to_owned(),
        }))
    };
    assert!(model("nowhere/m").is_err());
    model("local/other").unwrap();
    let updated = whole(&session).events;
    let updated = updated
        .iter()
        .rfind(|event| event["type"] == "session.updated");
    assert_eq!(
        updated.unwrap()["payload"]["changed"]["model"],
        "local/other"
    );
    let thinking = Thinking::High;
    ask(ControlCommand::SetThinking(SetThinking { thinking })).unwrap();
    let events = whole(&session).events;
    let updated = events
        .iter()
        .rfind(|event| event["type"] == "session.updated");
    assert_eq!(updated.unwrap()["payload"]["changed"]["thinking"], "high");
    let nothing = ask(ControlCommand::Compact).unwrap();
    let Reply::Answer(nothing) = nothing else {
        panic!("{nothing:?}");
    };
    assert_eq!(nothing.code, Some(AnswerCode::NothingToCompact));
    let mode = Mode::Ask;
    ask(ControlCommand::SetMode(SetMode { mode })).unwrap();
    let command = "touch made".to_owned();
    ask(ControlCommand::Shell(Shell {
        command,
        network: false,
    }))
    .unwrap();
    session.wait().unwrap();
    // It runs where `sub` was changed to.
    let made = project.root().join("sub/made");
    assert!(
        made.exists(),
        "{:#?}",
        whole(&session).events.last_chunk::<6>()
    );
    session.close().unwrap();
}

/// A session in which a model asks to write `paths`, one after the other, at its first question; and the user's settings.
fn asking(project: &TestProject, paths: &[&str]) -> (Session, ActionId, String, ModelServer) {
    let write = |path: &&str| {
        let input = json!({"path": path, "content": "hello\n"});
        Turn::call("write", input)
    };
    let script = paths.iter().map(write).fold(Script::new(), Script::turn);
    let server = ModelServer::start(script.turn(Turn::text("Done.")));
    let settings = format!(
        "model = \"local/m\"\n[sandbox]\nmode = \"off\"\n[providers.local]\n\
         dialect = \"openai-chat\"\nbase_url = \"{}\"\n",
        server.openai_url()
    );
    project.write_home("config.toml", &settings);
    let options = OpenOptions {
        on_ask: OnAsk::Interactive,
        models: SessionModels::FromSettings,
        ..OpenOptions::default()
    };
    let session = runtime(project).open(options).unwrap();
    let (ask, asked) = mpsc::channel();
    session.subscribe(move |appended| match &appended.event.payload {
        Payload::ActionRequired(_) => ask.send(appended.event.scope.action_id.clone()).is_ok(),
        _ => true,
    });
    let submit = SubmitTurn {
        text: "Write it.".to_owned(),
        ..SubmitTurn::default()
    };
    let submitted = session.handle(ControlCommand::SubmitTurn(submit), &peer());
    submitted.unwrap();
    let action_id = asked.recv().unwrap().unwrap();
    (session, action_id, settings, server)
}

/// The answer with a rule for the user.
fn answer(action_id: &ActionId, decision: ActionDecision, rule: Option<&str>) -> ControlCommand {
    ControlCommand::RespondAction(RespondAction {
        action_id: action_id.clone(),
        decision,
        scope: GrantScope::User,
        answer: Some(ActionAnswer {
            saved_rule: rule.map(str::to_owned),
            ..ActionAnswer::default()
        }),
    })
}

/// A rule that is saved allows, so an answer that says no saves none, and the question stays open.
#[test]
fn an_answer_that_says_no_saves_no_rule() {
    let project = TestProject::new();
    let (session, action_id, settings, _server) = asking(&project, &["a.txt"]);
    let respond = |decision, rule| session.handle(answer(&action_id, decision, rule), &peer());
    for decision in [ActionDecision::Deny, ActionDecision::Abort] {
        for rule in ["write(**)", "no rule ("] {
            let refused = respond(decision, Some(rule)).unwrap_err();
            assert_eq!(
                refused.code,
                ControlErrorCode::NotStarted,
                "{decision} {rule}"
            );
        }
    }
    let kept = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    assert_eq!(kept, settings);
    respond(ActionDecision::Deny, None).unwrap();
    session.wait().unwrap();
    assert!(!project.root().join("a.txt").exists());
    session.close().unwrap();
}

/// A rule can be written anew in the answer, as far as it answers the question and can be seen through; the log says
/// which one was saved, by whom and where.
#[test]
fn a_rule_is_tried_and_saved_as_it_was_written() {
    let project = TestProject::new();
    let paths = ["src/a.txt", "src/b.txt"];
    let (session, action_id, settings, _server) = asking(&project, &paths);
    let preview = |rule: &str| {
        let asked = PreviewRule {
            action_id: action_id.clone(),
            rule: rule.to_owned(),
        };
        match session.handle(ControlCommand::PreviewRule(asked), &peer()) {
            Ok(Reply::Rule(preview)) => *preview,
            other => panic!("{other:?}"),
        }
    };
    let narrow = preview("write(src/a.txt)");
    assert_eq!(
        (narrow.problem, narrow.wider.as_deref()),
        (None, Some("write(src/**)"))
    );
    let allowed = preview("write(src/**)");
    let calls: Vec<_> = allowed
        .examples
        .iter()
        .map(|call| call.call.as_str())
        .collect();
    assert_eq!(calls, ["src/other.txt", "other.txt", ".env", ".git/config"]);
    for refused in [
        "write",
        "write(/**)",
        "write(lib/**)",
        "edit(src/**)",
        "write(src/**",
    ] {
        assert!(preview(refused).problem.is_some(), "{refused}");
        let command = answer(&action_id, ActionDecision::AllowSession, Some(refused));
        let error = session.handle(command, &peer()).unwrap_err();
        assert_eq!(error.code, ControlErrorCode::NotStarted, "{refused}");
        assert!(error.message.contains("still open"), "{error}");
    }
    let kept = std::fs::read_to_string(project.home().join("config.toml")).unwrap();
    assert_eq!(kept, settings, "what is refused changes nothing");
    let command = answer(
        &action_id,
        ActionDecision::AllowSession,
        Some(" write(src/**)"),
    );
    session.handle(command, &peer()).unwrap();
    session.wait().unwrap();
    assert!(
        project.root().join("src/b.txt").exists(),
        "the rule holds at once"
    );
    let file = project.home().join("config.toml");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.contains("\"write(src/**)\""), "{kept}");
    let whole = whole(&session);
    let saved = |class: &str, parts: &[&str]| {
        let mut events = whole.events.iter().filter(|event| event["type"] == class);
        let found = events.any(|event| {
            let event = event.to_string();
            parts.iter().all(|part| event.contains(part))
        });
        assert!(found, "{class} with {parts:?}");
    };
    let at = format!("allow write(src/**) ({}:", file.display());
    saved("policy.changed", &[&at, "\"by\":\"user\""]);
    let rule = "\"saved_rule\":\"write(src/**)\"";
    saved("action.resolved", &[rule, "\"decided_by\":\"user\""]);
    saved(
        "action.required",
        &["\"suggested_rule\":\"write(src/a.txt)\""],
    );
    let late = PreviewRule {
        action_id,
        rule: "write(src/**)".to_owned(),
    };
    let late = session.handle(ControlCommand::PreviewRule(late), &peer());
    assert_eq!(late.unwrap_err().code, ControlErrorCode::NotFound);
    session.close().unwrap();
}
