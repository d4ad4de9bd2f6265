//! A session on disk with an engine at work, whose model plays a script.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_engine::context::RequestSettings;
use agent_engine::limits::LoopLimits;
use agent_engine::live::NullSink;
use agent_engine::prompt::Preamble;
use agent_engine::{
    AuthorityPlace, Control, Engine, Interrupt, Model, OnAsk, Parts, PendingApprovals,
    SessionAuthority, SessionJournal, SessionState, Settings, ThreadState, TurnEnd,
};
use agent_log::{Holder, Redactor, SessionDirectory, SessionEnv, SessionStore, SessionWriter};
use agent_policy::gate::SandboxLevel;
use agent_protocol::command::SubmitTurn;
use agent_protocol::id::{IdMint, ThreadId, TurnId};
use agent_protocol::payload::conversation::{
    Budget, QueuePolicy, SessionCreated, ThreadStarted, TurnSource,
};
use agent_protocol::payload::permission::{Access, ActionClass};
use agent_protocol::payload::tool::{CallFlags, RuntimeOwner};
use agent_protocol::status::Mode;
use agent_protocol::{ActionHappened, Clock, Event, Payload, Refs, Scope, Timestamp};
use agent_provider::conversation::{Message, ModelRequest, UserPart};
use agent_provider::dialect::Dialect;
use agent_provider::error::ModelError;
use agent_provider::provider::{Provider, Signal};
use agent_provider::response::Response;
use agent_provider::{ScriptedProvider, Transcript};
use agent_tool_runtime::{
    Baselines, ExecutionContext, ExecutionFailure, Journal, NormalizeContext, Normalized,
    PermissionSemantics, Pipeline, PipelineParts, Plan, Prepared, RawResult, Registry,
    ResourceAccess, RuntimeContext, Settings as PipelineSettings, Subject, Tool, ToolDefinition,
    ToolInvocation, Tools, ValidationFailure, Workspace,
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

pub(crate) struct Session {
    place: Place,
    pub(crate) engine: Engine,
    pub(crate) control: Arc<Control>,
    watched: Option<Arc<Watched>>,
    pub(crate) authority: Arc<SessionAuthority>,
}

/// The log and its project, which outlast an engine.
struct Place {
    _directory: tempfile::TempDir,
    root: PathBuf,
    clock: Arc<dyn Clock>,
    store: SessionStore,
    writer: SessionWriter,
    journal: Arc<dyn Journal>,
    thread_id: ThreadId,
}

/// A session whose model plays `lines`. The tools it names do not exist, which ends no turn.
pub(crate) fn session(lines: &str) -> Session {
    session_with(lines, Registry::default(), OnAsk::Deny)
}

pub(crate) fn session_with(lines: &str, registry: Registry, on_ask: OnAsk) -> Session {
    Place::new().watched(lines, registry, on_ask)
}

/// A session that asks these models, in order of preference, and knows no tools.
pub(crate) fn session_of(models: Vec<Model>) -> Session {
    Place::new().engine(models, Registry::default(), OnAsk::Deny)
}

/// A model of this provider.
pub(crate) fn model(provider: Arc<dyn Provider>, name: &str) -> Model {
    Model {
        provider,
        settings: RequestSettings {
            model: name.to_owned(),
            ..RequestSettings::default()
        },
        price: Arc::new(|_| None),
    }
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(directory.path()).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(Now);
        let mint = Arc::new(IdMint::new(Arc::clone(&clock), 7));
        let store = SessionStore::of_project(&root);
        let env = SessionEnv {
            clock: Arc::clone(&clock),
            mint: Arc::clone(&mint),
            runtime_id: "rt_test".parse().unwrap(),
            redactor: Arc::new(Redactor::off()),
            anchors: None,
            holder: Holder::default(),
        };
        let writer = store.create(SessionCreated::default(), env).unwrap();
        let journal: Arc<dyn Journal> = Arc::new(SessionJournal::new(writer.clone(), mint));
        let thread_id: ThreadId = journal.ids().mint();
        let scope = Scope {
            thread_id: Some(thread_id.clone()),
            ..Scope::default()
        };
        let started: Payload = ThreadStarted::default().into();
        journal.append(&scope, started, Refs::default()).unwrap();
        Self {
            _directory: directory,
            root,
            clock,
            store,
            writer,
            journal,
            thread_id,
        }
    }

    /// An engine whose model plays `lines`.
    fn watched(self, lines: &str, registry: Registry, on_ask: OnAsk) -> Session {
        let watched = Arc::new(Watched {
            script: ScriptedProvider::new("script", Transcript::parse(lines).unwrap()),
            hook: Mutex::new(Box::new(|_| {})),
            asked: Mutex::default(),
        });
        let provider = Arc::clone(&watched) as Arc<dyn Provider>;
        Session {
            watched: Some(watched),
            ..self.engine(vec![model(provider, "m")], registry, on_ask)
        }
    }

    /// An engine that knows what the log says, with nothing of an earlier one.
    fn engine(self, models: Vec<Model>, registry: Registry, on_ask: OnAsk) -> Session {
        let journal = Arc::clone(&self.journal);
        let mut thread = ThreadState::default();
        let mut session = SessionState::default();
        for event in self.events() {
            session.apply(&event);
            thread.apply(&event, &|_| None);
        }
        let approvals = Arc::new(PendingApprovals::new(on_ask));
        let place = AuthorityPlace {
            tools: Tools::default(),
            home: self.root.clone(),
            sandbox: SandboxLevel::Full,
            project: self.root.clone(),
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
            Arc::clone(&approvals),
            Arc::clone(&self.clock),
        ));
        let pipeline = Pipeline::new(PipelineParts {
            registry: Arc::new(registry),
            journal: Arc::clone(&journal),
            authority: Arc::clone(&authority) as Arc<_>,
            workspace: Workspace {
                root: self.root.clone(),
                extra_roots: Vec::new(),
            },
            baselines: Arc::new(Baselines::default()),
            settings: PipelineSettings::default(),
        });
        let thread_id = self.thread_id.clone();
        let control = Control::new(
            Arc::clone(&journal),
            thread_id.clone(),
            approvals,
            Vec::new(),
        );
        let control = Arc::new(control);
        let engine = Engine::new(Parts {
            journal,
            events: self.writer.listen(),
            tools: pipeline,
            authority: Arc::clone(&authority) as Arc<_>,
            models,
            preamble: Preamble::default(),
            thread,
            session,
            control: Arc::clone(&control),
            live: Arc::new(NullSink),
            thread_id,
            settings: Settings {
                keep_inputs: true,
                sandbox: "full".to_owned(),
                loop_limits: LoopLimits::default(),
                compact_at: 0.8,
            },
        });
        Session {
            place: self,
            engine,
            control,
            watched: None,
            authority,
        }
    }

    fn events(&self) -> Vec<Event> {
        let directory = self.store.resolve("last").unwrap();
        let lines = directory.reader().unwrap();
        lines.filter_map(|item| item.unwrap().event).collect()
    }
}

impl Session {
    /// Another control of the same thread, as after a restart.
    pub(crate) fn control_knowing(&self, keys: HashMap<String, TurnId>) -> Control {
        let journal = Arc::clone(&self.place.journal);
        let approvals = Arc::new(PendingApprovals::new(OnAsk::Deny));
        let thread_id = self.place.thread_id.clone();
        Control::new(journal, thread_id, approvals, Vec::new()).knowing(keys)
    }

    /// The same log with another engine, as after a restart.
    pub(crate) fn restarted(self, lines: &str, registry: Registry, on_ask: OnAsk) -> Self {
        self.place.watched(lines, registry, on_ask)
    }

    pub(crate) fn directory(&self) -> SessionDirectory {
        self.place.store.resolve("last").unwrap()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.place.events()
    }

    /// Has `tell` called with every event, before its append returns.
    pub(crate) fn subscribe(&self, mut tell: impl FnMut(&Event) + Send + 'static) {
        self.place.writer.subscribe(move |appended| {
            tell(&appended.event);
            true
        });
    }

    pub(crate) fn on_request(&self, number: usize, mut act: impl FnMut() + Send + 'static) {
        let watched = self.watched.as_ref().unwrap();
        *watched.hook.lock().unwrap() = Box::new(move |now| {
            if now == number {
                act();
            }
        });
    }

    pub(crate) fn submit(&self, text: &str) -> TurnId {
        let submit = submit(text, QueuePolicy::Queue);
        let answer = self.control.submit(submit, TurnSource::Cli).unwrap();
        answer.turn_id.unwrap()
    }

    pub(crate) async fn run(&mut self, turn_id: TurnId) -> TurnEnd {
        let interrupt = Interrupt::new();
        let ran = self.engine.run_turn(turn_id, Budget::default(), &interrupt);
        ran.await.unwrap()
    }

    pub(crate) fn asked(&self) -> Vec<Vec<String>> {
        let watched = self.watched.as_ref().unwrap();
        watched.asked.lock().unwrap().clone()
    }
}

pub(crate) fn submit(text: &str, when_busy: QueuePolicy) -> SubmitTurn {
    SubmitTurn {
        text: text.to_owned(),
        when_busy,
        ..SubmitTurn::default()
    }
}

/// A tool that writes nothing, and asks first like one that would.
pub(crate) struct Pretended(ToolDefinition);

impl Pretended {
    pub(crate) fn new() -> Self {
        Self(ToolDefinition {
            description: "Pretends to write.".into(),
            input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": false}),
            output: "Nothing.".into(),
            is_destructive: false,
            max_result_chars: 1_000,
            cancellable: false,
            ..ToolDefinition::new("write", RuntimeOwner::Local, Subject::Write)
                .with_path("path", None)
        })
    }
}

impl Tool for Pretended {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let path = input["path"].as_str().unwrap_or("a.txt");
        let semantics = PermissionSemantics {
            action_class: ActionClass::Modify,
            resources: vec![ResourceAccess {
                access: Access::Write,
                given: path.to_owned(),
                resolved: Some(context.workspace.root.join(path)),
            }],
            ..PermissionSemantics::default()
        };
        Ok(Prepared {
            input: Box::new(()),
            normalised_paths: vec![path.to_owned()],
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

pub(crate) const TWO_STEPS: &str = r#"
{"text": "Looking.", "tool_calls": [{"name": "look", "arguments": {}}]}
{"text": "First done."}
{"text": "Second done."}
{"text": "Third done."}
"#;
