//! Tools as data: one that this file defines is registered with one line, and everything else goes by its definition.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_policy::shell::parses;
use agent_protocol::command::{
    BeginCalls, CallTool, ControlCommand, Peer, PeerKind, ToolInventoryQuery,
};
use agent_protocol::id::IdMint;
use agent_protocol::payload::permission::{ActionClass, Effect};
use agent_protocol::payload::tool::{CallFlags, CatalogPolicy, RuntimeOwner, ToolObservation};
use agent_protocol::reply::{CallReport, Reply};
use agent_protocol::status::Mode;
use agent_protocol::{ActionHappened, Clock, Timestamp};
use agent_runtime::config::Overrides;
use agent_runtime::{
    Directories, Environment, Host, OfflineGate, OnAsk, OpenOptions, Runtime, Session, catalogue,
    rules,
};
use agent_tool_runtime::{
    ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, PermissionSemantics, Plan,
    Prepared, RawResult, RuntimeContext, Subject, Tool, ToolDefinition, ToolInvocation,
    ValidationFailure,
};
use serde_json::{Value, json};

/// A tool of somebody else, as a server would have it. All of it is in this file.
struct PostNote(ToolDefinition);

impl PostNote {
    fn new() -> Self {
        Self(ToolDefinition {
            description: "Posts a note on the board. Everybody reads it.".to_owned(),
            output: "Nothing.".to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": { "text": { "type": "string" } },
                "required": ["text"],
                "additionalProperties": false,
            }),
            title_field: Some("text".to_owned()),
            ..ToolDefinition::new(
                "mcp__board__post",
                RuntimeOwner::McpServer,
                Subject::Delegate,
            )
        })
    }
}

impl Tool for PostNote {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        Ok(Prepared {
            input: Box::new(input.clone()),
            normalised_paths: Vec::new(),
            // It says that it only looks, and is not believed.
            semantics: PermissionSemantics {
                action_class: ActionClass::Observe,
                ..PermissionSemantics::default()
            },
            plan: Plan::default(),
            flags: CallFlags::default(),
            baselines: Vec::new(),
            preview: None,
        })
    }

    fn execute(
        &self,
        _: ToolInvocation,
        _: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        Ok(RawResult::ok(ActionHappened::Yes))
    }

    fn normalize(&self, _: &RawResult, context: &NormalizeContext<'_>) -> Normalized {
        let text = self.0.title_of(context.input).unwrap_or_default();
        Normalized {
            title: format!("note {text}"),
            summary: "Posted.".to_owned(),
            ..Normalized::default()
        }
    }
}

struct TestClock;

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        Timestamp::from_unix_millis(i64::try_from(now.as_millis()).unwrap())
    }
}

/// A machine with a home and a project in `directory`, whose settings are `settings`.
fn runtime(directory: &Path, settings: &str) -> Runtime {
    let base = std::fs::canonicalize(directory).unwrap();
    let project = base.join("project");
    std::fs::create_dir_all(project.join(".agent")).unwrap();
    std::fs::write(base.join("config.toml"), settings).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    Runtime::new(Host {
        clock: Arc::new(TestClock),
        ids: Arc::new(IdMint::new(Arc::new(TestClock), 1)),
        random: Arc::new(|| Ok([7; 32])),
        environment: [("PATH".into(), path)].into_iter().collect::<Environment>(),
        directories: Directories::below(&base, PathBuf::from("/nonexistent/config.toml")),
        cwd: project,
        home: base.join("home"),
        name: "test".to_owned(),
        temporary: std::env::temp_dir(),
        // The one line.
        tools: vec![Arc::new(PostNote::new())],
    })
}

fn session(runtime: &Runtime, mode: Mode, on_ask: OnAsk) -> Session {
    let overrides = Overrides {
        mode: Some(mode),
        ..Overrides::default()
    };
    let options = OpenOptions {
        program: "test".to_owned(),
        config: Some(Arc::new(runtime.config(&overrides).unwrap())),
        on_ask,
        ..OpenOptions::default()
    };
    runtime.open(options).unwrap()
}

fn handle(session: &Session, command: ControlCommand) -> Reply {
    let peer = Peer::new(PeerKind::Program, "test");
    session.handle(command, &peer).unwrap()
}

/// Makes one call and gives its observation.
fn call(session: &Session, tool: &str, input: &Value) -> ToolObservation {
    handle(session, ControlCommand::BeginCalls(BeginCalls::default()));
    let call = CallTool {
        tool: tool.to_owned(),
        arguments: input.to_string(),
        ..CallTool::default()
    };
    let reply = handle(session, ControlCommand::CallTool(call));
    handle(session, ControlCommand::EndCalls);
    match reply {
        Reply::Called(report) => match *report {
            CallReport::Observed { observation, .. } => *observation,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// The payloads of one class in the log, as it stands on disk.
fn recorded(session: &Session, class: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(session.log_path()).unwrap();
    let events = log.lines().map(|line| serde_json::from_str(line).unwrap());
    events
        .filter(|event: &Value| event["type"] == class)
        .map(|event| event["payload"].clone())
        .collect()
}

/// One test at a time: they count what the process does.
fn alone() -> impl Drop {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const NOTE: &str = "mcp__board__post";

#[test]
fn a_tool_is_one_file_and_one_line() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let input = json!({"text": "hello"});

    // It asks, whatever it says of itself, and the question has its title.
    let runtime_ = runtime(directory.path(), "");
    let asking = session(&runtime_, Mode::Auto, OnAsk::Deny);
    assert!(!call(&asking, NOTE, &input).ok);
    let asked = recorded(&asking, "action.required");
    assert_eq!(asked[0]["title"], "mcp__board__post hello");

    // The model is told of it, and so is who lists the tools.
    let config = runtime_.config(&Overrides::default()).unwrap();
    let Reply::Tools(listed) = handle(
        &asking,
        ControlCommand::GetToolInventory(ToolInventoryQuery::default()),
    ) else {
        panic!("no tools");
    };
    for entries in [listed, catalogue::catalogue(&runtime_, &config).unwrap()] {
        let entry = entries
            .iter()
            .find(|entry| entry.tool_name == NOTE)
            .unwrap();
        let description = entry.description.as_deref().unwrap_or_default();
        assert!(description.starts_with("Posts a note"), "{description}");
        assert_eq!(entry.input_schema, Some(PostNote::new().0.input_schema));
        assert_eq!(entry.policy, CatalogPolicy::Ask);
    }
    drop(asking);

    // `permissions explain` knows it, and a rule by its server opens it.
    let explained = |settings: &str| {
        let runtime = runtime(directory.path(), settings);
        let config = runtime.config(&Overrides::default()).unwrap();
        let rules = rules(&runtime, &config, None).unwrap();
        let gate = OfflineGate::new(&runtime, &config, rules).unwrap();
        gate.evaluate(NOTE, &input, Mode::Ask).unwrap()
    };
    assert_eq!(explained("").decision, Effect::Ask);
    let settings = "[permissions]\nallow = [\"mcp__board__*\"]\n";
    let allowed = explained(settings);
    assert_eq!(allowed.decision, Effect::Allow);
    assert_eq!(allowed.matched[0].rule, "mcp__board__*");
    let denied = explained("[permissions]\ndeny = [\"mcp__*\"]\n");
    assert_eq!(denied.decision, Effect::Deny);

    // It runs, and its own words title the result.
    let runtime_ = runtime(directory.path(), settings);
    let allowing = session(&runtime_, Mode::Ask, OnAsk::Deny);
    let posted = call(&allowing, NOTE, &input);
    assert!(posted.ok, "{}", posted.summary);
    assert_eq!(posted.title, "note hello");
}

#[test]
fn a_rule_about_a_tool_that_is_not_there_is_told_and_breaks_nothing() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let settings = "[permissions]\nallow = [\"raed(src/**)\", \"mcp__other__*\"]\n";
    let runtime = runtime(directory.path(), settings);
    let session = session(&runtime, Mode::Ask, OnAsk::Deny);
    let warnings: Vec<String> = recorded(&session, "runtime.warning")
        .iter()
        .map(|warning| warning["message"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("config.toml:2"), "{warnings:?}");
    assert!(warnings[0].contains("did you mean `read`?"), "{warnings:?}");
}

/// The most expensive step of judging a command is done once for a call, whatever becomes of it.
#[test]
fn a_script_is_parsed_once_per_call() {
    let _alone = alone();
    for (mode, on_ask, decision) in [
        (Mode::Full, OnAsk::Deny, Effect::Allow),
        (Mode::Ask, OnAsk::Allow, Effect::Ask),
        (Mode::ReadOnly, OnAsk::Deny, Effect::Deny),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let runtime = runtime(directory.path(), "sandbox = \"off\"\n");
        let session = session(&runtime, mode, on_ask);
        std::fs::create_dir(runtime.project.root().join("src")).unwrap();
        let script = format!("cd src && touch made_in_{mode} | cat");
        let input = json!({"command": script, "description": "a test"});
        let before = parses();
        let observation = call(&session, "bash", &input);
        let parsed = parses() - before;
        let evaluated: Vec<Value> = recorded(&session, "permission.evaluated")
            .into_iter()
            .map(|evaluated| evaluated["decision"].clone())
            .collect();
        assert_eq!(evaluated, [decision.as_str()], "mode {mode}");
        let ran = decision != Effect::Deny;
        assert_eq!(observation.ok, ran, "{}", observation.summary);
        assert_eq!(parsed, 1, "mode {mode}");
    }
}

/// A patch is one call about several files, and rules about each of them hold.
#[test]
fn a_patch_is_judged_by_the_files_it_names() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let settings =
        "[permissions]\nallow = [\"apply_patch(src/**)\"]\ndeny = [\"edit(secret/**)\"]\n";
    let runtime = runtime(directory.path(), settings);
    let config = runtime.config(&Overrides::default()).unwrap();
    let rules = rules(&runtime, &config, None).unwrap();
    let gate = OfflineGate::new(&runtime, &config, rules).unwrap();
    let judged = |body: &str, cwd: Option<&str>| {
        let mut input = json!({"input": format!("*** Begin Patch\n{body}\n*** End Patch")});
        if let Some(cwd) = cwd {
            input["cwd"] = cwd.into();
        }
        let evaluated = gate.evaluate("apply_patch", &input, Mode::Ask);
        evaluated.map(|evaluated| evaluated.decision)
    };
    // What it adds to a file names none.
    let inside = "*** Update File: src/a\n@@\n-x\n+*** Add File: secret/b";
    assert_eq!(judged(inside, None).unwrap(), Effect::Allow);
    assert_eq!(
        judged("*** Add File: a\n+x", Some("src")).unwrap(),
        Effect::Allow
    );
    assert_eq!(judged("*** Add File: a\n+x", None).unwrap(), Effect::Ask);
    let moved = "*** Update File: src/a\n*** Move to: secret/b\n@@\n-x\n+y";
    assert_eq!(judged(moved, None).unwrap(), Effect::Deny);
    assert!(judged("", None).is_err());
}
