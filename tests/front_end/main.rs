//! A front end that is neither the screen nor the command line: it opens a session through the runtime,
//! runs a turn with an approval, undoes it and closes.

#![allow(clippy::print_stdout)] // a program of its own, which says that it passed

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use agent_protocol::command::{
    ControlCommand, Peer, PeerKind, RespondAction, SubmitTurn, Undo, UndoExtent,
};
use agent_protocol::id::IdMint;
use agent_protocol::payload::permission::ActionDecision;
use agent_protocol::{Clock, Payload, Timestamp};
use agent_runtime::{Directories, Host, OnAsk, OpenOptions, Runtime, SessionModels, TurnEnd};
use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let since = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_millis());
        Timestamp::from_unix_millis(i64::try_from(since).unwrap_or(0))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    agent_runtime::dispatch_helper();
    let input = serde_json::json!({"path": "a.txt", "content": "hello\n"});
    let script = Script::new()
        .turn(Turn::call("write", input))
        .turn(Turn::text("Done."));
    let (server, project) = (ModelServer::start(script), TestProject::new());
    let url = server.openai_url();
    let settings = "model = \"local/m\"\n[providers.local]\ndialect = \"openai-chat\"\nbase_url";
    project.write_home("config.toml", format!("{settings} = \"{url}\"\n"));
    let runtime = Runtime::new(Host {
        clock: Arc::new(Wall),
        ids: Arc::new(IdMint::new(Arc::new(Wall), 7)),
        random: Arc::new(|| Ok([7; 32])),
        environment: std::env::vars_os()
            .filter(|(name, _)| name == "PATH")
            .collect(),
        directories: Directories::below(&project.home(), PathBuf::from("/nonexistent")),
        cwd: project.root(),
        home: project.home(),
        name: "test".to_owned(),
        temporary: std::env::temp_dir(),
        tools: Vec::new(),
    });
    let session = runtime.open(OpenOptions {
        program: "a second front end".to_owned(),
        on_ask: OnAsk::Interactive,
        models: SessionModels::FromSettings,
        ..OpenOptions::default()
    })?;
    let peer = Peer::new(PeerKind::Program, "a second front end");
    let (ask, asked) = mpsc::channel();
    session.subscribe(move |appended| match &appended.event.payload {
        Payload::ActionRequired(_) => ask.send(appended.event.scope.action_id.clone()).is_ok(),
        _ => true,
    });
    let text = "Write a greeting.".to_owned();
    let submit = SubmitTurn {
        text,
        ..SubmitTurn::default()
    };
    session.handle(ControlCommand::SubmitTurn(submit), &peer)?;
    let answer = RespondAction {
        action_id: asked.recv()?.ok_or("a question without an id")?,
        decision: ActionDecision::AllowOnce,
        ..RespondAction::default()
    };
    session.handle(ControlCommand::RespondAction(answer), &peer)?;
    assert!(matches!(session.wait()?.end, Some(TurnEnd::Completed(_))));
    assert_eq!(project.read("a.txt"), "hello\n");
    let undo = Undo {
        extent: UndoExtent::LastChange,
        ..Undo::default()
    };
    session.handle(ControlCommand::Undo(undo), &peer)?;
    assert!(!project.root().join("a.txt").exists());
    session.close()?;
    println!("a second front end: ok");
    Ok(())
}
