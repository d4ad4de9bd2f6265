//! A stage for tests: a throw-away project with a real session, a few tools whose behaviour the
//! input names, and an authority that decides as it is told.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use agent_engine::SessionJournal;
use agent_log::{Holder, LogReader, Redactor, SessionEnv, SessionStore, SessionWriter};
use agent_protocol::id::IdMint;
use agent_protocol::payload::conversation::SessionCreated;
use agent_protocol::payload::permission::{
    Access, ActionClass, ActionDecision, DecidedBy, DecisionSource, Effect, GrantScope,
    PermissionEvaluated,
};
use agent_protocol::payload::tool::{
    Baseline, CallFlags, Capability, CatalogPolicy, Concurrency, InterruptBehavior, Risk,
    RuntimeOwner,
};
use agent_protocol::status::Mode;
use agent_protocol::{ActionHappened, Clock, Code, Event, Scope, Timestamp};
use agent_tool_runtime::{
    Answer, Authority, Body, Cancel, Confinement, Decision, ExecutionContext, ExecutionFailure,
    Journal, NormalizeContext, Normalized, Observation, Outcome, PermissionRequest,
    PermissionSemantics, Pipeline, PipelineParts, Plan, Prepared, Preview, Question, RawResult,
    Registry, ResourceAccess, RuntimeContext, Settings, Subject, Tool, ToolDefinition, ToolIntent,
    ToolInvocation, ValidationFailure, Visibility, VisibilityContext, Workspace,
};
use serde_json::{Value, json};

pub(crate) struct Stage {
    pub(crate) pipeline: Pipeline,
    pub(crate) authority: Arc<Told>,
    pub(crate) spy: Arc<Spy>,
    pub(crate) writer: SessionWriter,
    store: SessionStore,
    /// Removed with the stage.
    _directory: tempfile::TempDir,
    pub(crate) journal: Arc<dyn Journal>,
}

/// Notes what was called, in order.
#[derive(Default)]
pub(crate) struct Spy {
    calls: Mutex<Vec<String>>,
    /// Where `meet` calls wait for each other.
    pub(crate) meeting: Mutex<Option<Arc<Barrier>>>,
    /// What `wait_for_test` calls wait for.
    pub(crate) gate: Mutex<Option<Receiver<()>>>,
    /// The version of the file every call rests on.
    pub(crate) version: Mutex<u64>,
}

impl Spy {
    fn note(&self, what: impl Into<String>) {
        self.calls.lock().unwrap().push(what.into());
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

/// An authority that allows, denies or asks by tool name and plays a list of answers.
pub(crate) struct Told {
    pub(crate) mode: Mutex<Mode>,
    pub(crate) answers: Mutex<VecDeque<Answer>>,
    pub(crate) questions: Mutex<Vec<Question>>,
    spy: Arc<Spy>,
    /// Runs while a question is open.
    pub(crate) meanwhile: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Authority for Told {
    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    fn decide(&self, request: &PermissionRequest<'_>) -> Decision {
        self.spy.note(format!("decide {}", request.tool.name));
        let word = request
            .input
            .get("gate")
            .and_then(Value::as_str)
            .unwrap_or("allow");
        let decision = match word {
            "ask" => Effect::Ask,
            "deny" => Effect::Deny,
            _ => Effect::Allow,
        };
        Decision {
            evaluated: PermissionEvaluated {
                decision,
                action_class: request.semantics.action_class,
                decision_source: DecisionSource::Rule,
                reason: format!("the test said {word}"),
                mode: self.mode(),
                ..PermissionEvaluated::default()
            },
            confinement: Confinement {
                profile: "test".into(),
                ..Confinement::default()
            },
            ask_timeout: Some(Duration::from_secs(60)),
            approval_key: None,
        }
    }

    fn ask(&self, question: &Question, cancel: &Cancel) -> Answer {
        self.spy.note("ask");
        self.questions.lock().unwrap().push(question.clone());
        if let Some(meanwhile) = &mut *self.meanwhile.lock().unwrap() {
            meanwhile();
        }
        match self.answers.lock().unwrap().pop_front() {
            Some(answer) => answer,
            None if cancel.wait(Duration::from_secs(30)) => Answer::Cancelled,
            None => Answer::Expired,
        }
    }

    fn forecast(&self, _: &ToolDefinition) -> CatalogPolicy {
        CatalogPolicy::Allowed
    }
}

pub(crate) fn yes() -> Answer {
    decided(ActionDecision::AllowOnce, None, None)
}

pub(crate) fn decided(
    decision: ActionDecision,
    note: Option<&str>,
    edited_input: Option<Value>,
) -> Answer {
    Answer::Decided {
        decision,
        decided_by: DecidedBy::User,
        scope: GrantScope::Once,
        note: note.map(Into::into),
        edited_input,
        saved_rule: None,
    }
}

/// A tool that behaves as its input says.
struct Puppet {
    definition: ToolDefinition,
    spy: Arc<Spy>,
}

impl Tool for Puppet {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn visibility(&self, context: &VisibilityContext) -> Visibility {
        self.spy
            .note(format!("visibility {}", self.definition.name));
        if self.definition.name == "hidden" {
            return Visibility::Hidden {
                reason: "it is never shown".into(),
            };
        }
        if context.mode == Mode::ReadOnly && !self.definition.is_read_only {
            return Visibility::Hidden {
                reason: "the mode is read-only".into(),
            };
        }
        Visibility::Visible
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        self.spy.note(format!("validate {}", self.definition.name));
        let path = input["path"].as_str().unwrap_or("a.txt").to_owned();
        match input["check"].as_str() {
            Some("panic") => panic!("validation went wrong"),
            Some(code) => {
                return Err(ValidationFailure::new(
                    code.parse().unwrap(),
                    format!("`{path}`: {code}"),
                )
                .at("/path", "this one")
                .with_body(Body::text("file a.txt", "nearest line\n")));
            }
            None => {}
        }
        let version = self.spy.version.lock().unwrap().to_string();
        Ok(Prepared {
            input: Box::new(input.clone()),
            normalised_paths: vec![path.clone()],
            semantics: PermissionSemantics {
                action_class: ActionClass::Observe,
                resources: vec![ResourceAccess {
                    access: Access::Read,
                    given: path.clone(),
                    resolved: Some(PathBuf::from("/project").join(&path)),
                }],
                ..PermissionSemantics::default()
            },
            plan: Plan {
                lock_key: Some(path.clone()),
                timeout: input["timeout_ms"].as_u64().map(Duration::from_millis),
                ..Plan::default()
            },
            flags: CallFlags {
                is_read_only: self.definition.is_read_only,
                is_destructive: self.definition.is_destructive,
                is_concurrency_safe: self.definition.concurrency == Concurrency::Safe,
                interrupt_behavior: InterruptBehavior::Cancel,
            },
            baselines: vec![Baseline {
                path,
                sha256: version,
                ..Baseline::default()
            }],
            preview: (!self.definition.is_read_only).then(|| Preview {
                diff: b"--- a\n+++ b\n".to_vec(),
            }),
        })
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let name = &self.definition.name;
        let input = invocation.into_input::<Value>().unwrap();
        let label = input["label"].as_str().unwrap_or_default().to_owned();
        self.spy
            .note(format!("execute {name} {label}").trim_end().to_owned());
        let stopped = || {
            ExecutionFailure::new(Code::Cancelled, "told to stop").having(ActionHappened::Unknown)
        };
        match input["behave"].as_str() {
            Some("panic") => panic!("execution went wrong"),
            Some("meet") => {
                let meeting = self.spy.meeting.lock().unwrap().clone().unwrap();
                meeting.wait();
            }
            Some("wait") => {
                let told = context.cancel().wait(Duration::from_secs(30));
                assert!(told, "nobody stopped this call");
                return Err(stopped());
            }
            Some("deaf") => {
                // Ignores its cancellation until the test lets it go.
                let gate = self.spy.gate.lock().unwrap().take();
                let _ = gate.unwrap().recv();
                let late = context.emit(agent_protocol::payload::tool::ToolProgress::default());
                self.spy
                    .note(format!("late write refused: {}", late.is_err()));
            }
            Some("fail") => {
                let code = input["code"]
                    .as_str()
                    .unwrap_or("io_error")
                    .parse()
                    .unwrap();
                return Err(ExecutionFailure::new(code, "it did not work"));
            }
            _ => {}
        }
        self.spy
            .note(format!("executed {name} {label}").trim_end().to_owned());
        let mut raw = RawResult::ok(if self.definition.is_read_only {
            ActionHappened::No
        } else {
            ActionHappened::Yes
        });
        if let Some(code) = input["result"].as_str() {
            raw.code = code.parse().unwrap();
        }
        if let Some(text) = input["text"].as_str() {
            let repeat = input["repeat"].as_u64().unwrap_or(1);
            raw.bodies.push(Body::text(
                "stdout",
                text.repeat(usize::try_from(repeat).unwrap()),
            ));
        }
        Ok(raw)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        self.spy.note(format!("normalize {}", self.definition.name));
        if self.definition.name == "mute" {
            panic!("no words");
        }
        Normalized {
            title: self.definition.name.clone(),
            summary: format!("{} ended with {}", self.definition.name, raw.code),
            ..Normalized::default()
        }
    }
}

/// A tool with this definition, that nobody watches.
pub(crate) fn unwatched(definition: ToolDefinition) -> Arc<dyn Tool> {
    let spy = Arc::default();
    Arc::new(Puppet { definition, spy })
}

pub(crate) fn definition(
    name: &str,
    is_read_only: bool,
    concurrency: Concurrency,
) -> ToolDefinition {
    ToolDefinition {
        aliases: vec![format!("{name}_alias")],
        description: format!("The test tool {name}."),
        input_schema: json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "maxLength": 100},
                "label": {"type": "string"},
                "gate": {"enum": ["allow", "ask", "deny"]},
                "check": {"type": "string"},
                "behave": {"type": "string"},
                "result": {"type": "string"},
                "code": {"type": "string"},
                "text": {"type": "string"},
                "repeat": {"type": "integer", "minimum": 0},
                "timeout_ms": {"type": "integer", "minimum": 1},
            },
            "additionalProperties": false,
        }),
        output: "Whatever the input asked for.".into(),
        capabilities: match name {
            "look" => vec![Capability::Custom, Capability::Artifact],
            _ => vec![Capability::Custom],
        },
        risk: vec![Risk::Read],
        is_read_only,
        is_destructive: false,
        concurrency,
        interrupt_behavior: InterruptBehavior::Cancel,
        max_result_chars: 30_000,
        needs_sandbox: false,
        default_timeout: None,
        cancellable: true,
        streams_progress: false,
        ..ToolDefinition::new(name, RuntimeOwner::Local, Subject::Session)
    }
}

pub(crate) struct TestClock;

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        Timestamp::from_unix_millis(i64::try_from(now.as_millis()).unwrap())
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Settings {
            grace: Duration::from_millis(50),
            ..Settings::default()
        })
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(TestClock);
        let mint = Arc::new(IdMint::new(Arc::clone(&clock), 7));
        let env = SessionEnv {
            clock,
            mint: Arc::clone(&mint),
            runtime_id: mint.mint(),
            redactor: Arc::new(Redactor::new(Default::default(), b"key").unwrap()),
            anchors: None,
            holder: Holder::default(),
        };
        let store = SessionStore::of_project(directory.path());
        let writer = store.create(SessionCreated::default(), env).unwrap();
        let journal: Arc<dyn Journal> = Arc::new(SessionJournal::new(writer.clone(), mint));
        let spy = Arc::new(Spy::default());
        let authority = Arc::new(Told {
            mode: Mutex::new(Mode::Ask),
            answers: Mutex::default(),
            questions: Mutex::default(),
            spy: Arc::clone(&spy),
            meanwhile: Mutex::default(),
        });
        let mut registry = Registry::default();
        for definition in [
            definition("look", true, Concurrency::Safe),
            definition("peek", true, Concurrency::Keyed),
            definition("hidden", true, Concurrency::Safe),
            definition("mute", true, Concurrency::Safe),
            definition("change", false, Concurrency::Keyed),
            definition("command", false, Concurrency::Exclusive),
        ] {
            let puppet = Puppet {
                definition,
                spy: Arc::clone(&spy),
            };
            registry.register(Arc::new(puppet)).unwrap();
        }
        let pipeline = Pipeline::new(PipelineParts {
            registry: Arc::new(registry),
            journal: Arc::clone(&journal),
            authority: Arc::clone(&authority) as Arc<dyn Authority>,
            workspace: Workspace {
                root: directory.path().to_owned(),
                extra_roots: Vec::new(),
            },
            baselines: Arc::default(),
            settings,
        });
        Self {
            pipeline,
            authority,
            spy,
            writer,
            store,
            _directory: directory,
            journal,
        }
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope {
            turn_id: Some(self.journal.ids().mint()),
            step_id: Some(self.journal.ids().mint()),
            ..Scope::default()
        }
    }

    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.authority.answers.lock().unwrap().extend(answers);
    }

    /// Runs the calls as one step and returns what came of them.
    pub(crate) fn run(&self, intents: &[(&str, Value)]) -> Vec<Outcome> {
        self.run_with(&Cancel::new(), intents)
    }

    pub(crate) fn run_with(&self, cancel: &Cancel, intents: &[(&str, Value)]) -> Vec<Outcome> {
        let intents = intents
            .iter()
            .map(|(name, input)| ToolIntent::new(*name, input));
        self.pipeline
            .run(self.scope(), cancel, intents)
            .unwrap()
            .outcomes
    }

    /// Runs one call.
    pub(crate) fn one(&self, name: &str, input: Value) -> Observation {
        let outcomes = self.run(&[(name, input)]);
        outcomes[0].observation().unwrap().clone()
    }

    /// The log as it is on disk.
    pub(crate) fn events(&self) -> Vec<Event> {
        let file = std::fs::File::open(self.writer.log_path()).unwrap();
        let path = self.writer.log_path().to_owned();
        LogReader::new(file, self.writer.session_id().clone(), path)
            .map(|item| item.unwrap())
            .map(|item| {
                assert_eq!(item.damage, None);
                item.event.unwrap()
            })
            .collect()
    }

    /// What the session's own audit has against the log.
    pub(crate) fn findings(&self) -> Vec<String> {
        let session = self
            .store
            .resolve(self.writer.session_id().as_str())
            .unwrap();
        let report = agent_evidence::audit::audit(&session, None).unwrap();
        let errors = report
            .findings
            .iter()
            .filter(|finding| finding.severity == agent_evidence::audit::Severity::Error);
        errors
            .map(|finding| format!("{}: {}", finding.code, finding.message))
            .collect()
    }

    /// The classes of the events of one call, in order.
    pub(crate) fn classes(&self, observation: &Observation) -> Vec<String> {
        self.events()
            .iter()
            .filter(|event| event.scope.tool_call_id.as_ref() == Some(observation.tool_call_id()))
            .map(|event| event.payload.type_name().to_owned())
            .collect()
    }
}
