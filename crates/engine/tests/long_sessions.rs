//! Random long sessions against a second, simple model of what compaction may do: everything the user
//! said is in the next input, word for word or named with the artifact that has it; the summary is
//! there once; a user's side ends every input; every call has its result; and nothing of the question
//! for the summary comes back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure is the report"
)]

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use agent_engine::context::RequestSettings;
use agent_engine::limits::LoopLimits;
use agent_engine::live::NullSink;
use agent_engine::prompt::Preamble;
use agent_engine::{
    AuthorityPlace, Control, Engine, Interrupt, Model, OnAsk, Parts, PendingApprovals, Queued,
    Rebuilder, SessionAuthority, SessionJournal, SessionState, Settings, ThreadState,
};
use agent_log::{Holder, Listener, Redactor, SessionEnv, SessionStore};
use agent_policy::gate::SandboxLevel;
use agent_protocol::command::SubmitTurn;
use agent_protocol::id::{ArtifactId, IdMint, ThreadId, TurnId};
use agent_protocol::payload::conversation::{
    Budget, QueuePolicy, SessionCreated, ThreadStarted, TurnSource,
};
use agent_protocol::status::Mode;
use agent_protocol::{Clock, Event, Payload, Refs, Scope, Timestamp};
use agent_provider::conversation::{AssistantPart, Message, ModelRequest, UserPart};
use agent_provider::dialect::Dialect;
use agent_provider::dialect::scripted::{ScriptedCall, ScriptedError, Turn};
use agent_provider::error::ModelError;
use agent_provider::provider::{Provider, Signal};
use agent_provider::quirks::GENERIC;
use agent_provider::response::Response;
use agent_provider::{ScriptedProvider, Transcript};
use agent_tool_runtime::{
    Baselines, Journal, Pipeline, PipelineParts, Registry, Settings as PipelineSettings, Tools,
    Workspace,
};
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

struct Now;

impl Clock for Now {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(1_794_799_680_000)
    }
}

/// What the model does when it is asked.
#[derive(Clone, Debug)]
struct Answer {
    said: usize,
    calls: usize,
    argument: usize,
    /// Sizes of what the user sends meanwhile.
    steers: Option<usize>,
    queues: Option<usize>,
    /// The user asks for room.
    compacts: bool,
    /// The server finds the input too long.
    too_long: bool,
}

#[derive(Clone, Debug)]
enum Act {
    Turn(usize, Vec<Answer>),
    Compact,
    Resume,
}

/// How the model takes the question for a summary.
#[derive(Clone, Copy, Debug)]
enum Summary {
    Written,
    Empty,
    Refused,
}

/// The second model of a session: who said what, and which summary is the newest.
#[derive(Default)]
struct Expected {
    /// What joined the conversation, in order.
    said: Vec<String>,
    /// What was sent to join a running turn and has not yet.
    steering: Vec<TurnId>,
    /// What waits in the queue.
    queued: HashMap<TurnId, String>,
    inputs: usize,
    summaries: usize,
    /// The summary that stands for older history, if a model wrote it.
    newest: Option<String>,
    answers: VecDeque<Answer>,
    artifacts: PathBuf,
    problems: Vec<String>,
}

impl Expected {
    /// The next input of the user; each has its own words at both ends.
    fn input(&mut self, size: usize) -> String {
        self.inputs += 1;
        let number = self.inputs;
        let middle = "Größe,\n  und \"mehr\". ".repeat(size / 24);
        format!("<begin {number}> {middle}<end {number}>")
    }

    fn check(&mut self, request: &ModelRequest) {
        let problem = self.problem(request);
        self.problems.extend(problem);
    }

    fn problem(&self, request: &ModelRequest) -> Option<String> {
        let (mut told, mut asked, mut answered) = (String::new(), Vec::new(), Vec::new());
        for message in &request.messages {
            match &**message {
                Message::User(parts) => {
                    for part in parts {
                        if let UserPart::Text(text) = part {
                            told.push_str(text);
                            told.push('\n');
                        }
                    }
                }
                Message::Assistant(parts) => {
                    for part in parts {
                        match part {
                            AssistantPart::ToolCall(call) => {
                                asked.push(call.provider_call_id.clone());
                            }
                            AssistantPart::Text(text) if text.contains("SUMMARY") => {
                                return Some(format!("the model is said to have said {text}"));
                            }
                            _ => {}
                        }
                    }
                }
                Message::ToolResult(result) => answered.push(result.provider_call_id.clone()),
            }
        }
        if asked != answered {
            return Some(format!("calls {asked:?} have results {answered:?}"));
        }
        let first = request.messages.first().map(|message| &**message);
        let last = request.messages.last().map(|message| &**message);
        if !matches!(first, Some(Message::User(_))) || matches!(last, Some(Message::Assistant(_))) {
            return Some("it does not begin and end with the user's side".to_owned());
        }
        if told.contains("Summarise the conversation") {
            return Some("the question for a summary is in it".to_owned());
        }
        let times = told.matches("SUMMARY").count();
        let newest = self.newest.as_ref();
        let expected = usize::from(newest.is_some());
        if times != expected || newest.is_some_and(|newest| !told.contains(newest)) {
            return Some(format!("{times} summaries, and the newest is {newest:?}"));
        }
        let kept: Vec<String> = told
            .match_indices("read_artifact {\"artifact_id\": \"sha256:")
            .map(|(at, found)| {
                let from = at + found.len();
                let path = self.artifacts.join(&told[from..from + 64]);
                std::fs::read_to_string(path).unwrap_or_default()
            })
            .collect();
        for said in &self.said {
            if !told.contains(said) && !kept.iter().any(|kept| kept.contains(said)) {
                let begin: String = said.chars().take(20).collect();
                return Some(format!("{begin} is lost"));
            }
        }
        // What is said to be word for word is.
        for (at, found) in told.match_indices("--- input ") {
            let rest = &told[at + found.len()..];
            let (number, rest) = rest.split_once(", ")?;
            let number: usize = number.parse().ok()?;
            if let Some(words) = rest.strip_prefix("word for word ---\n")
                && !words.starts_with(&self.said[number - 1])
            {
                return Some(format!("input {number} is not word for word"));
            }
        }
        None
    }
}

/// A model that plays the script of [`Expected`] and checks what it is asked.
struct Player {
    expected: Arc<Mutex<Expected>>,
    control: Mutex<Option<Arc<Control>>>,
    summary: Summary,
}

impl Player {
    fn expected(&self) -> MutexGuard<'_, Expected> {
        self.expected.lock().unwrap()
    }

    fn answer(&self, request: &ModelRequest) -> Turn {
        let mut expected = self.expected();
        for turn_id in std::mem::take(&mut expected.steering) {
            let text = expected.queued.remove(&turn_id).unwrap();
            expected.said.push(text);
        }
        let last = request.messages.last().map(|message| &**message);
        let is_aside = matches!(last, Some(Message::User(parts)) if matches!(
            parts.as_slice(), [UserPart::Text(text)] if text.starts_with("Summarise the conversation")
        ));
        if is_aside {
            expected.summaries += 1;
            let text = format!("SUMMARY {} of it all.", expected.summaries);
            let written = matches!(self.summary, Summary::Written);
            expected.newest = written.then(|| text.clone());
            return match self.summary {
                Summary::Written => said(text),
                Summary::Empty => said(" ".to_owned()),
                Summary::Refused => failing("no summaries here"),
            };
        }
        expected.check(request);
        let Some(answer) = expected.answers.pop_front() else {
            return said("Done.".to_owned());
        };
        let mut sent = Vec::new();
        for (size, policy) in [
            (answer.steers, QueuePolicy::Steer),
            (answer.queues, QueuePolicy::Queue),
        ] {
            if let Some(size) = size {
                sent.push((expected.input(size), policy));
            }
        }
        drop(expected);
        let control = self.control.lock().unwrap().clone().unwrap();
        for (text, policy) in sent {
            let submitted = submit(text.clone(), policy);
            let taken = control.submit(submitted, TurnSource::Cli).unwrap();
            let turn_id = taken.turn_id.unwrap();
            let mut expected = self.expected();
            if policy == QueuePolicy::Steer {
                expected.steering.push(turn_id.clone());
            }
            expected.queued.insert(turn_id, text);
        }
        if answer.compacts {
            control.ask_to_compact().expect("a turn runs");
        }
        if answer.too_long {
            return failing("This model's maximum context length is 8192 tokens.");
        }
        let call = ScriptedCall {
            id: None,
            name: "look".to_owned(),
            arguments: json!({ "at": "x".repeat(answer.argument) }),
        };
        Turn {
            text: format!("Thinking. {}", "so ".repeat(answer.said / 3)),
            tool_calls: vec![call; answer.calls],
            ..Turn::default()
        }
    }
}

fn said(text: String) -> Turn {
    Turn {
        text,
        ..Turn::default()
    }
}

fn failing(message: &str) -> Turn {
    Turn {
        error: Some(ScriptedError {
            status: 400,
            message: message.to_owned(),
        }),
        ..Turn::default()
    }
}

fn submit(text: String, when_busy: QueuePolicy) -> SubmitTurn {
    SubmitTurn {
        text,
        when_busy,
        ..SubmitTurn::default()
    }
}

impl Provider for Player {
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
        // A script goes by how much the request says was answered; here each one is a script of its own.
        let turns = vec![self.answer(request); request.messages.len() + 1];
        Box::pin(async move {
            let script = ScriptedProvider::new("script", Transcript { turns });
            script.exchange(request, cancel, observe).await
        })
    }
}

/// One session, whose program may be started anew.
struct Session {
    root: PathBuf,
    player: Arc<Player>,
    window: Option<u64>,
    runs: u64,
    engine: Option<Engine>,
    control: Option<Arc<Control>>,
    thread_id: Option<ThreadId>,
}

impl Session {
    fn store(&self) -> SessionStore {
        SessionStore::of_project(&self.root)
    }

    /// Starts the program, on a new session or on the one there is.
    fn start(&mut self, queue: Vec<Queued>) {
        self.runs += 1;
        let clock: Arc<dyn Clock> = Arc::new(Now);
        let mint = Arc::new(IdMint::new(Arc::clone(&clock), self.runs));
        let env = SessionEnv {
            clock: Arc::clone(&clock),
            mint: Arc::clone(&mint),
            runtime_id: format!("rt_{}", self.runs).parse().unwrap(),
            redactor: Arc::new(Redactor::off()),
            anchors: None,
            holder: Holder::default(),
        };
        let mut thread = ThreadState::default();
        let mut session = SessionState::default();
        let writer = if self.runs == 1 {
            self.store().create(SessionCreated::default(), env).unwrap()
        } else {
            let directory = self.store().resolve("last").unwrap();
            let artifacts = directory.artifacts().unwrap();
            let listener = Listener {
                wants: &agent_engine::state::depends_on,
                tell: &mut |event| {
                    session.apply(event);
                    thread.apply(event, &|id| artifacts.read(id, 64 << 20).ok());
                },
            };
            let opened = directory.open_writer_telling(env, listener);
            opened.unwrap().writer
        };
        self.player.expected().artifacts = writer.directory().join("artifacts");
        let events = writer.listen();
        let journal: Arc<dyn Journal> = Arc::new(SessionJournal::new(writer, mint));
        let thread_id = self.thread_id.get_or_insert_with(|| {
            let thread_id: ThreadId = journal.ids().mint();
            let scope = Scope {
                thread_id: Some(thread_id.clone()),
                ..Scope::default()
            };
            let started: Payload = ThreadStarted::default().into();
            journal.append(&scope, started, Refs::default()).unwrap();
            thread_id
        });
        let thread_id = thread_id.clone();
        let approvals = Arc::new(PendingApprovals::new(OnAsk::Deny));
        let place = AuthorityPlace {
            tools: Tools::default(),
            home: self.root.clone(),
            sandbox: SandboxLevel::Full,
            project: self.root.clone(),
            tree_is_dirty: Box::new(|| None),
            ask_timeout: None,
            command_timeout_ms: None,
            output_limit: None,
        };
        let pending = Arc::clone(&approvals);
        let authority = SessionAuthority::new(Vec::new(), Mode::Ask, place, pending, clock);
        let authority = Arc::new(authority);
        let tools = Pipeline::new(PipelineParts {
            registry: Arc::new(Registry::default()),
            journal: Arc::clone(&journal),
            authority: Arc::clone(&authority) as Arc<_>,
            workspace: Workspace {
                root: self.root.clone(),
                extra_roots: Vec::new(),
            },
            baselines: Arc::new(Baselines::default()),
            settings: PipelineSettings::default(),
        });
        let control = Control::new(Arc::clone(&journal), thread_id.clone(), approvals, queue);
        let control = Arc::new(control);
        *self.player.control.lock().unwrap() = Some(Arc::clone(&control));
        self.control = Some(Arc::clone(&control));
        self.engine = Some(Engine::new(Parts {
            journal,
            events,
            tools,
            authority,
            models: vec![Model {
                provider: Arc::clone(&self.player) as Arc<dyn Provider>,
                settings: RequestSettings {
                    model: "m".to_owned(),
                    window: self.window,
                    ..RequestSettings::default()
                },
                price: Arc::new(|_| None),
            }],
            preamble: Preamble::default(),
            thread,
            session,
            control,
            live: Arc::new(NullSink),
            thread_id,
            settings: Settings {
                keep_inputs: true,
                sandbox: "full".to_owned(),
                loop_limits: LoopLimits {
                    repeats: 1_000,
                    failures: 1_000,
                },
                compact_at: 0.8,
            },
        }));
    }

    async fn act(&mut self, act: Act) {
        let interrupt = Interrupt::new();
        match act {
            Act::Turn(size, answers) => {
                let text = {
                    let mut expected = self.player.expected();
                    expected.answers = answers.into();
                    expected.input(size)
                };
                let control = Arc::clone(self.control.as_ref().unwrap());
                let submitted = submit(text.clone(), QueuePolicy::Queue);
                let answer = control.submit(submitted, TurnSource::Cli).unwrap();
                let mut next = answer.turn_id;
                self.player
                    .expected()
                    .queued
                    .insert(next.clone().unwrap(), text);
                let engine = self.engine.as_mut().unwrap();
                while let Some(turn_id) = next {
                    {
                        let mut expected = self.player.expected();
                        let text = expected.queued.remove(&turn_id).unwrap();
                        expected.said.push(text);
                        // What did not come to join is an input like any other.
                        expected.steering.retain(|waiting| *waiting != turn_id);
                    }
                    let ran = engine.run_turn(turn_id, Budget::default(), &interrupt);
                    ran.await.unwrap();
                    next = control.take_next().unwrap();
                }
            }
            Act::Compact => {
                let engine = self.engine.as_mut().unwrap();
                engine.compact_now(&interrupt).await.unwrap();
            }
            Act::Resume => {
                let queue = self.control.as_ref().unwrap().queue();
                self.engine = None;
                self.control = None;
                *self.player.control.lock().unwrap() = None;
                self.start(queue);
            }
        }
    }
}

/// The log tells each compaction with one end, and gives every input again, byte for byte.
fn check_log(store: &SessionStore) {
    let directory = store.resolve("last").unwrap();
    let artifacts = directory.artifacts().unwrap();
    let read = |id: &ArtifactId| artifacts.read(id, 64 << 20).ok();
    let mut rebuilder = Rebuilder::new(|_| &GENERIC);
    let mut is_compacting = false;
    let mut promised = None;
    for item in directory.reader().unwrap() {
        let event: Event = item.unwrap().event.unwrap();
        match &event.payload {
            Payload::ContextCompactionStarted(_) => {
                assert!(!std::mem::replace(&mut is_compacting, true));
            }
            Payload::ContextCompactionFailed(_) => {
                assert!(std::mem::take(&mut is_compacting), "an end of its own");
            }
            Payload::ContextCompactionCompleted(completed) => {
                assert!(std::mem::take(&mut is_compacting), "one end");
                promised.clone_from(&completed.continuation_ref);
            }
            Payload::ContextResolved(receipt) => {
                if let Some(promised) = promised.take() {
                    assert_eq!(receipt.context_id.as_str(), promised);
                }
            }
            _ => {}
        }
        if let Some(rebuilt) = rebuilder.apply(&event, &read) {
            let bytes = rebuilt.bytes.expect("all facts are there");
            let digest: [u8; 32] = Sha256::digest(&bytes).into();
            let hash = ArtifactId::from_digest(&digest).to_string();
            assert_eq!(hash, rebuilt.recorded_hash, "event {}", event.sequence);
        }
    }
    assert!(!is_compacting);
}

fn check(acts: Vec<Act>, window: Option<u64>, summary: Summary) {
    let directory = tempfile::tempdir().unwrap();
    let expected: Arc<Mutex<Expected>> = Arc::default();
    let mut session = Session {
        root: std::fs::canonicalize(directory.path()).unwrap(),
        player: Arc::new(Player {
            expected: Arc::clone(&expected),
            control: Mutex::default(),
            summary,
        }),
        window,
        runs: 0,
        engine: None,
        control: None,
        thread_id: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        session.start(Vec::new());
        for act in acts {
            session.act(act).await;
        }
        // One more turn sees whatever the last act left behind.
        session.act(Act::Turn(10, Vec::new())).await;
    });
    let problems = &expected.lock().unwrap().problems;
    assert!(problems.is_empty(), "{problems:#?}");
    check_log(&session.store());
}

fn answers() -> impl Strategy<Value = Answer> {
    let size = prop_oneof![0_usize..200, 0_usize..8_000];
    let input = || proptest::option::weighted(0.2, prop_oneof![20_usize..300, 20_usize..40_000]);
    let flags = (proptest::bool::weighted(0.1), proptest::bool::weighted(0.1));
    (size.clone(), 0_usize..3, size, input(), input(), flags).prop_map(
        |(said, calls, argument, steers, queues, (compacts, too_long))| Answer {
            said,
            calls,
            argument,
            steers,
            queues,
            compacts,
            too_long,
        },
    )
}

fn acts() -> impl Strategy<Value = Act> {
    let input = prop_oneof![3 => 10_usize..300, 1 => 3_000_usize..60_000];
    let turn = (input, proptest::collection::vec(answers(), 0..8));
    prop_oneof![
        6 => turn.prop_map(|(size, answers)| Act::Turn(size, answers)),
        1 => Just(Act::Compact),
        1 => Just(Act::Resume),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn what_the_user_said_is_in_the_next_input(
        acts in proptest::collection::vec(acts(), 1..9),
        window in proptest::option::weighted(0.8, 2_000_u64..30_000),
        summary in prop_oneof![
            4 => Just(Summary::Written), 1 => Just(Summary::Empty), 1 => Just(Summary::Refused)
        ],
    ) {
        check(acts, window, summary);
    }
}
