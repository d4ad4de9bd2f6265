//! The control plane with an engine at work: inputs that steer, wait, are promoted, and come twice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure is the report"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_engine::context::RequestSettings;
use agent_engine::limits::Patience;
use agent_engine::live::NobodyWatches;
use agent_engine::prompt::Preamble;
use agent_engine::{
    AuthorityPlace, Control, ControlPlane, Desk, Engine, Interrupt, Model, OnAsk, Parts,
    ProcessControl, Reply, SessionAuthority, SessionJournal, SessionState, Settings, TurnEnd,
};
use agent_protocol::command::{
    Acknowledgement, ControlCommand, ExportRequest, InterruptTurn, PermissionQuery,
    ProcessInputRequest, QueuedTurn, RespondAction, ResumeThread, SubmitTurn, ToolInventoryQuery,
    Window,
};
use agent_protocol::id::{IdMint, ProcessId, ThreadId, TurnId};
use agent_protocol::payload::conversation::{
    Budget, QueuePolicy, SessionCreated, ThreadStarted, TurnSource,
};
use agent_protocol::payload::permission::{Access, ActionClass, ActionDecision};
use agent_protocol::payload::tool::{
    CallFlags, Capability, Concurrency, InterruptBehavior, Risk, RuntimeOwner,
};
use agent_protocol::status::{Mode, Status};
use agent_protocol::{ActionHappened, Clock, Event, Payload, Refs, Scope, Timestamp};
use agent_provider::conversation::{Message, ModelRequest, UserPart};
use agent_provider::dialect::Dialect;
use agent_provider::error::ModelError;
use agent_provider::provider::{Provider, Signal};
use agent_provider::response::Response;
use agent_provider::{ScriptedProvider, Transcript};
use agent_session::{Holder, Redactor, Rim, SessionStore, SessionWriter};
use agent_tool_runtime::gate::SandboxLevel;
use agent_tool_runtime::{
    Baselines, ExecutionContext, ExecutionFailure, Journal, NormalizeContext, Normalized,
    PermissionSemantics, Pipeline, PipelineParts, Plan, Prepared, RawResult, Registry,
    ResourceAccess, RuntimeContext, Settings as PipelineSettings, Tool, ToolDefinition,
    ToolInvocation, ValidationFailure, Workspace,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Now;

impl Clock for Now {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(1_794_799_680_000)
    }
}

type Hook = Box<dyn FnMut(usize) + Send>;

/// A scripted model that does something when it is asked.
struct Watched {
    script: ScriptedProvider,
    hook: Mutex<Hook>,
    asked: Mutex<Vec<Vec<String>>>,
}

impl Provider for Watched {
    fn name(&self) -> &str {
        "script"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Scripted
    }

    fn exchange<'a>(
        &'a self,
        request: &'a ModelRequest,
        cancel: &'a CancellationToken,
        observe: &'a mut (dyn FnMut(Signal) + Send),
    ) -> BoxFuture<'a, Result<Response, ModelError>> {
        let said = request
            .messages
            .iter()
            .filter_map(|message| match &**message {
                Message::User(parts) => parts.iter().find_map(|part| match part {
                    UserPart::Text(text) => Some(text.clone()),
                    UserPart::Image(_) => None,
                }),
                _ => None,
            });
        let mut asked = self.asked.lock().unwrap();
        asked.push(said.collect());
        let number = asked.len();
        drop(asked);
        (self.hook.lock().unwrap())(number);
        self.script.exchange(request, cancel, observe)
    }
}

struct NoProcesses;

impl ProcessControl for NoProcesses {
    fn terminate(&self, _: &ProcessId) -> bool {
        false
    }
}

struct Session {
    _directory: tempfile::TempDir,
    engine: Engine,
    control: Arc<Control>,
    model: Arc<Watched>,
    plane: ControlPlane,
    store: SessionStore,
    writer: SessionWriter,
}

/// A session whose model plays `lines`. The tools it names do not exist, which ends no turn.
fn session(lines: &str) -> Session {
    session_with(lines, Registry::default(), OnAsk::Deny)
}

fn session_with(lines: &str, registry: Registry, on_ask: OnAsk) -> Session {
    let directory = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(directory.path()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(Now);
    let mint = Arc::new(IdMint::new(Arc::clone(&clock), 7));
    let store = SessionStore::of_project(&root);
    let rim = Rim {
        clock: Arc::clone(&clock),
        mint: Arc::clone(&mint),
        runtime_id: "rt_test".parse().unwrap(),
        redactor: Arc::new(Redactor::off()),
        anchors: None,
        holder: Holder::default(),
    };
    let writer = store.create(SessionCreated::default(), rim).unwrap();
    let events = writer.listen();
    let journal: Arc<dyn Journal> = Arc::new(SessionJournal::new(writer.clone(), mint));
    let thread_id: ThreadId = journal.ids().mint();
    let scope = Scope {
        thread_id: Some(thread_id.clone()),
        ..Scope::default()
    };
    let started: Payload = ThreadStarted::default().into();
    journal.append(&scope, started, Refs::default()).unwrap();
    let desk = Arc::new(Desk::new(on_ask));
    let place = AuthorityPlace {
        home: root.clone(),
        sandbox: SandboxLevel::Full,
        project: root.clone(),
        tree_is_dirty: Box::new(|| None),
        // An answer that is lost shows as a question that expires.
        ask_timeout: Some(Duration::from_secs(5)),
        command_timeout_ms: None,
        output_limit: None,
    };
    let authority = Arc::new(SessionAuthority::new(
        Vec::new(),
        Mode::Ask,
        place,
        Arc::clone(&desk),
        clock,
    ));
    let pipeline = Pipeline::new(PipelineParts {
        registry: Arc::new(registry),
        journal: Arc::clone(&journal),
        authority: Arc::clone(&authority) as Arc<_>,
        workspace: Workspace {
            root,
            extra_roots: Vec::new(),
        },
        baselines: Arc::new(Baselines::default()),
        settings: PipelineSettings::default(),
    });
    let control = Control::new(Arc::clone(&journal), thread_id.clone(), desk, Vec::new());
    let control = Arc::new(control);
    let model = Arc::new(Watched {
        script: ScriptedProvider::new("script", Transcript::parse(lines).unwrap()),
        hook: Mutex::new(Box::new(|_| {})),
        asked: Mutex::default(),
    });
    let plane = ControlPlane {
        control: Arc::clone(&control),
        authority: Arc::clone(&authority),
        pipeline: pipeline.clone(),
        journal: Arc::clone(&journal),
        session: store.resolve("last").unwrap(),
        thread_id: thread_id.clone(),
        processes: Arc::new(NoProcesses),
        anchors: None,
        redactor: Arc::new(Redactor::off()),
    };
    let engine = Engine::new(Parts {
        journal,
        events,
        tools: pipeline,
        authority,
        models: vec![Model {
            provider: Arc::clone(&model) as Arc<dyn Provider>,
            settings: RequestSettings {
                model: "m".to_owned(),
                ..RequestSettings::default()
            },
            price: Arc::new(|_| None),
        }],
        preamble: Preamble::default(),
        state: SessionState::new(Vec::new()),
        control: Arc::clone(&control),
        live: Arc::new(NobodyWatches),
        thread_id,
        settings: Settings {
            keep_inputs: true,
            sandbox: "full".to_owned(),
            patience: Patience::default(),
            compact_at: 0.8,
        },
    });
    Session {
        _directory: directory,
        engine,
        control,
        model,
        plane,
        store,
        writer,
    }
}

impl Session {
    fn on_request(&self, number: usize, mut act: impl FnMut() + Send + 'static) {
        *self.model.hook.lock().unwrap() = Box::new(move |now| {
            if now == number {
                act();
            }
        });
    }

    fn submit(&self, text: &str) -> TurnId {
        let submit = submit(text, QueuePolicy::Queue);
        let answer = self.control.submit(submit, TurnSource::Cli).unwrap();
        answer.turn_id.unwrap()
    }

    async fn run(&mut self, turn_id: TurnId) -> TurnEnd {
        let interrupt = Interrupt::new();
        let ran = self.engine.run_turn(turn_id, Budget::default(), &interrupt);
        ran.await.unwrap()
    }

    fn asked(&self) -> Vec<Vec<String>> {
        self.model.asked.lock().unwrap().clone()
    }
}

fn submit(text: &str, when_busy: QueuePolicy) -> SubmitTurn {
    SubmitTurn {
        text: text.to_owned(),
        when_busy,
        ..SubmitTurn::default()
    }
}

const TWO_STEPS: &str = r#"
{"text": "Looking.", "tool_calls": [{"name": "look", "arguments": {}}]}
{"text": "First done."}
{"text": "Second done."}
{"text": "Third done."}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_steers_joins_the_running_turn_between_two_requests() {
    let mut session = session(TWO_STEPS);
    let control = Arc::clone(&session.control);
    session.on_request(1, move || {
        let steer = submit("Mind the tests.", QueuePolicy::Steer);
        let answer = control.submit(steer, TurnSource::Cli).unwrap();
        assert_eq!(answer.acknowledgement, Acknowledgement::Queued);
    });
    let turn = session.submit("Do it.");
    assert!(matches!(session.run(turn).await, TurnEnd::Completed(_)));
    let asked = session.asked();
    assert_eq!(asked[0], ["Do it."]);
    assert_eq!(asked[1], ["Do it.", "Mind the tests."]);
    assert!(session.control.queue().is_empty());
    // The input waits no more: it became a part of the turn and ended with it.
    let directory = session.store.resolve("last").unwrap();
    let models = agent_session::load_read_models(&directory).unwrap().models;
    let turns = models.threads.turns();
    assert_eq!(turns[1].joined_into.as_ref(), Some(&turns[0].turn_id));
    assert_eq!(turns[1].status, Status::Completed);
    assert_eq!(turns[1].outcome, turns[0].outcome);
    let audited = agent_session::audit::audit(&directory, None).unwrap();
    assert!(
        !audited
            .findings
            .iter()
            .any(|finding| finding.code == "open_turn"),
        "{:?}",
        audited.findings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_waits_does_not_join_and_a_promoted_one_runs_first() {
    let mut session = session(TWO_STEPS);
    let control = Arc::clone(&session.control);
    let queued: Arc<Mutex<Vec<TurnId>>> = Arc::default();
    let noted = Arc::clone(&queued);
    session.on_request(1, move || {
        for text in ["Then this.", "And that."] {
            let waits = submit(text, QueuePolicy::Queue);
            let answer = control.submit(waits, TurnSource::Cli).unwrap();
            noted.lock().unwrap().push(answer.turn_id.unwrap());
        }
    });
    let turn = session.submit("Do it.");
    session.run(turn).await;
    assert_eq!(session.asked()[1], ["Do it."]);
    let queued = queued.lock().unwrap().clone();
    let promote = ControlCommand::PromoteQueuedTurn(QueuedTurn {
        turn_id: queued[1].clone(),
    });
    let reply = session.plane.handle(promote, TurnSource::Cli).unwrap();
    assert!(
        matches!(reply, Reply::Answer(answer) if answer.acknowledgement == Acknowledgement::Accepted)
    );
    let mut ran = Vec::new();
    while let Some(next) = session.control.take_next().unwrap() {
        ran.push(next.clone());
        session.run(next).await;
    }
    assert_eq!(ran, [queued[1].clone(), queued[0].clone()]);
    let asked = session.asked();
    assert_eq!(asked[2].last().unwrap(), "And that.");
    assert_eq!(asked[3].last().unwrap(), "Then this.");
}

/// Neither the end of another turn nor its steps let go what is held; a new input does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_waits_until_it_is_promoted() {
    let mut session = session(TWO_STEPS);
    let control = Arc::clone(&session.control);
    session.on_request(1, move || {
        for policy in [QueuePolicy::Steer, QueuePolicy::Queue] {
            control
                .submit(submit("Later.", policy), TurnSource::Cli)
                .unwrap();
        }
        control.hold_queue();
    });
    let turn = session.submit("Do it.");
    session.run(turn).await;
    assert_eq!(session.asked()[1], ["Do it."]);
    assert_eq!(session.control.take_next().unwrap(), None);
    let new = submit("Something else.", QueuePolicy::Queue);
    let answer = session.control.submit(new, TurnSource::Cli).unwrap();
    assert_eq!(answer.acknowledgement, Acknowledgement::Accepted);
    let last = session.control.queue()[1].turn_id.clone();
    session.control.promote_queued(&last).unwrap();
    assert_eq!(session.control.take_next().unwrap(), Some(last));
    assert_eq!(session.control.take_next().unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_one_turn_also_when_the_log_told_it() {
    let session = session(TWO_STEPS);
    let keyed = || SubmitTurn {
        idempotency_key: Some("job-1".to_owned()),
        ..submit("Do it.", QueuePolicy::Queue)
    };
    let first = session.control.submit(keyed(), TurnSource::Cli).unwrap();
    let second = session.control.submit(keyed(), TurnSource::Cli).unwrap();
    assert_eq!(second.acknowledgement, Acknowledgement::NoOp);
    assert_eq!(second.turn_id, first.turn_id);
    // What another process would read from the log.
    let mut keys = HashMap::new();
    for item in session.store.resolve("last").unwrap().reader().unwrap() {
        let event = item.unwrap().event.unwrap();
        if let Payload::TurnSubmitted(submitted) = event.payload {
            keys.insert(
                submitted.idempotency_key.unwrap(),
                event.scope.turn_id.unwrap(),
            );
        }
    }
    let desk = Arc::new(Desk::new(OnAsk::Deny));
    let journal = Arc::clone(&session.plane.journal);
    let thread = session.plane.thread_id.clone();
    let restarted = Control::new(journal, thread, desk, Vec::new()).knowing(keys);
    let third = restarted.submit(keyed(), TurnSource::Cli).unwrap();
    assert_eq!(third.acknowledgement, Acknowledgement::NoOp);
    assert_eq!(third.turn_id, first.turn_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_typed_answer() {
    let mut session = session(TWO_STEPS);
    let turn = session.submit("Do it.");
    session.run(turn.clone()).await;
    let plane = &session.plane;
    let ask = |command| plane.handle(command, TurnSource::Cli).unwrap();
    let Reply::Session(whole) = ask(ControlCommand::GetSession(Window::default())) else {
        panic!("a session");
    };
    assert!(whole.next.is_none());
    let window = Window {
        cursor: Some(1),
        limit: Some(2),
    };
    let Reply::Session(part) = ask(ControlCommand::GetSession(window)) else {
        panic!("a part of a session");
    };
    assert_eq!(part.events[0].sequence, 1);
    assert_eq!((part.events.len(), part.next), (2, Some(3)));
    let threads = whole
        .models
        .threads
        .threads
        .keys()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(matches!(
        ask(ControlCommand::GetThreadRead(threads)),
        Reply::Thread(_)
    ));
    let tools = ControlCommand::GetToolInventory(ToolInventoryQuery::default());
    assert!(matches!(ask(tools), Reply::Tools(tools) if tools.is_empty()));
    assert!(matches!(
        ask(ControlCommand::GetExecutionEnvironment),
        Reply::Environment(_)
    ));
    let query = PermissionQuery {
        tool: "bash".to_owned(),
        input: json!({"command": "rm -rf build"}),
        mode: None,
    };
    let Reply::Permission(evaluated) = ask(ControlCommand::EvaluatePermission(query)) else {
        panic!("a decision");
    };
    assert_eq!(evaluated.decision.to_string(), "ask");
    let replay = ControlCommand::ExportReplay(ExportRequest {
        turn_id: Some(turn.clone()),
        include_images: false,
    });
    let Reply::Replay(replayed) = ask(replay) else {
        panic!("the story of a turn");
    };
    assert!(!replayed.entries.is_empty());
    let of_the_turn = |event: &Event| event.scope.turn_id.as_ref() == Some(&turn);
    assert!(replayed.entries.iter().all(|(_, event)| of_the_turn(event)));
    let review = ask(ControlCommand::ExportReview(ExportRequest::default()));
    assert!(matches!(review, Reply::Review(text) if !text.is_empty()));
    assert!(matches!(
        ask(ControlCommand::ExportEvidence(ExportRequest::default())),
        Reply::Evidence(_)
    ));
    for refused in [
        ControlCommand::WriteProcessStdin(ProcessInputRequest::default()),
        ControlCommand::SetModel("other/m".to_owned()),
        ControlCommand::ResumeThread(ResumeThread::default()),
    ] {
        assert!(matches!(ask(refused), Reply::Unavailable { .. }));
    }
    for nothing in [
        ControlCommand::TerminateProcess(ProcessId::default()),
        ControlCommand::InterruptTurn(InterruptTurn::default()),
        ControlCommand::RespondAction(RespondAction::default()),
        ControlCommand::RemoveQueuedTurn(QueuedTurn::default()),
    ] {
        let Reply::Answer(answer) = ask(nothing) else {
            panic!("an answer");
        };
        assert_eq!(answer.acknowledgement, Acknowledgement::NoOp);
        assert!(answer.reason.is_some());
    }
    for done in [
        ControlCommand::SetMode(Mode::ReadOnly),
        ControlCommand::Compact,
        ControlCommand::EndSession,
    ] {
        let Reply::Answer(answer) = ask(done) else {
            panic!("an answer");
        };
        assert_eq!(answer.acknowledgement, Acknowledgement::Accepted);
    }
}

/// A tool that writes nothing, and asks first like one that would.
struct Pretended(ToolDefinition);

impl Pretended {
    fn new() -> Self {
        Self(ToolDefinition {
            name: "write".into(),
            aliases: Vec::new(),
            version: "1".into(),
            description: "Pretends to write.".into(),
            input_schema: json!({"type": "object", "additionalProperties": false}),
            output: "Nothing.".into(),
            capabilities: vec![Capability::Write],
            risk: vec![Risk::Write],
            is_read_only: false,
            is_destructive: false,
            concurrency: Concurrency::Exclusive,
            interrupt_behavior: InterruptBehavior::Block,
            max_result_chars: 1_000,
            needs_sandbox: false,
            owner: RuntimeOwner::Local,
            default_timeout: None,
            cancellable: false,
            streams_progress: false,
        })
    }
}

impl Tool for Pretended {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn validate(
        &self,
        _: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let semantics = PermissionSemantics {
            action_class: ActionClass::Modify,
            resources: vec![ResourceAccess {
                access: Access::Write,
                given: "a.txt".into(),
                resolved: Some(context.workspace.root.join("a.txt")),
            }],
            ..PermissionSemantics::default()
        };
        Ok(Prepared {
            input: Box::new(()),
            normalised_paths: vec!["a.txt".into()],
            semantics,
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
        Ok(RawResult::ok(ActionHappened::No))
    }

    fn normalize(&self, _: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        Normalized::default()
    }
}

/// Whoever answers as soon as the question can be seen is heard.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_with_the_question_is_not_lost() {
    let mut registry = Registry::default();
    registry.register(Arc::new(Pretended::new())).unwrap();
    let script = TWO_STEPS.replace("look", "write");
    let mut session = session_with(&script, registry, OnAsk::Interactive);
    let control = Arc::clone(&session.control);
    let answers: Arc<Mutex<Vec<Acknowledgement>>> = Arc::default();
    let noted = Arc::clone(&answers);
    // Called before the append of the question returns.
    session.writer.subscribe(move |appended| {
        let action = appended.event.scope.action_id.clone();
        if let (Payload::ActionRequired(_), Some(action_id)) = (&appended.event.payload, action) {
            let response = RespondAction {
                action_id,
                decision: ActionDecision::AllowOnce,
                ..RespondAction::default()
            };
            let answer = control.respond(response);
            noted.lock().unwrap().push(answer.acknowledgement);
        }
        true
    });
    let turn = session.submit("Do it.");
    assert!(matches!(session.run(turn).await, TurnEnd::Completed(_)));
    assert_eq!(*answers.lock().unwrap(), [Acknowledgement::Accepted]);
    let directory = session.store.resolve("last").unwrap();
    let events = directory.reader().unwrap();
    let mut events = events.filter_map(|item| item.unwrap().event);
    assert!(events.any(|event| event.payload.type_name() == "tool.started"));
}
