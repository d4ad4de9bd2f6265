//! Threads of one session know nothing of each other: whatever the order in which they write, each
//! state is the one that a log with that thread alone gives, and the session's state is the sum.
#![allow(clippy::unwrap_used, reason = "a failure is the report")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use agent_engine::prompt::Preamble;
use agent_engine::state::depends_on;
use agent_engine::verification::failures::Failures;
use agent_engine::{Rebuilder, SessionState, ThreadState};
use agent_protocol::id::{ArtifactId, IdMint, ThreadId};

use agent_log::{Appended, Holder, Redactor, SessionEnv, SessionStore, SessionWriter};
use agent_protocol::payload::conversation::{
    ArtifactKind, HistoryRollbackCompleted, SessionCreated, ThreadRole, ThreadStarted, TurnFailed,
    TurnStarted, TurnSubmitted,
};
use agent_protocol::payload::model::{
    ContextCompactionCompleted, ContextCompactionStarted, ContextResolved, CostRecorded,
    ModelCompleted, ModelRequested,
};
use agent_protocol::payload::permission::{ActionRequired, ActionResolved};
use agent_protocol::payload::process::ProcessStarted;
use agent_protocol::payload::tool::{
    Baseline, ToolArgs, ToolData, ToolIntent, ToolObservation, ToolResult, ToolStarted,
};
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::{Clock, Event, Payload, Refs, Scope, Timestamp};
use agent_provider::quirks::GENERIC;
use proptest::prelude::*;
use serde_json::json;

const MAIN: &str = "thr_main";
const CHILD: &str = "thr_child";

struct Now;

impl Clock for Now {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(1_794_799_680_000)
    }
}

/// Something a thread does.
#[derive(Clone, Copy, Debug)]
enum Act {
    BeginTurn,
    /// A question to the model, which calls a tool.
    Call(Tool),
    /// A question to the model, which answers with words.
    Answer,
    /// A call whose question stays open.
    Question,
    /// An answer to the oldest open question.
    Resolve,
    FailTurn,
    Compact,
}

#[derive(Clone, Copy, Debug)]
enum Tool {
    Read,
    Edit,
    Check { passes: bool },
}

/// Something that happens to the session.
#[derive(Clone, Copy, Debug)]
enum Step {
    Of(&'static str, Act),
    Undo,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let act = prop_oneof![
        2 => Just(Act::BeginTurn),
        1 => Just(Act::Call(Tool::Read)),
        2 => Just(Act::Call(Tool::Edit)),
        2 => any::<bool>().prop_map(|passes| Act::Call(Tool::Check { passes })),
        2 => Just(Act::Answer),
        1 => Just(Act::Question),
        1 => Just(Act::Resolve),
        1 => Just(Act::FailTurn),
        1 => Just(Act::Compact),
    ];
    let step = prop_oneof![
        12 => (prop::sample::select(vec![MAIN, CHILD]), act)
            .prop_map(|(thread, act)| Step::Of(thread, act)),
        1 => Just(Step::Undo),
    ];
    prop::collection::vec(step, 0..28)
}

/// A log while it is written, and what is folded from it meanwhile.
struct Log {
    _directory: tempfile::TempDir,
    store: SessionStore,
    writer: SessionWriter,
    events: Receiver<Arc<Appended>>,
    threads: BTreeMap<&'static str, ThreadState>,
    session: SessionState,
    /// How many ids each thread has used.
    used: BTreeMap<&'static str, u32>,
    turn: BTreeMap<&'static str, String>,
}

impl Log {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SessionStore::of_project(directory.path());
        let clock: Arc<dyn Clock> = Arc::new(Now);
        let env = SessionEnv {
            mint: Arc::new(IdMint::new(Arc::clone(&clock), 7)),
            clock,
            runtime_id: "rt_test".parse().unwrap(),
            redactor: Arc::new(Redactor::off()),
            anchors: None,
            holder: Holder::default(),
        };
        let writer = store.create(SessionCreated::default(), env).unwrap();
        let threads = [
            (MAIN, ThreadState::default()),
            (
                CHILD,
                ThreadState::child(CHILD.parse().unwrap(), Vec::new()),
            ),
        ];
        let mut log = Self {
            _directory: directory,
            events: writer.listen(),
            store,
            writer,
            threads: threads.into(),
            session: SessionState::default(),
            used: BTreeMap::new(),
            turn: BTreeMap::new(),
        };
        log.tell(MAIN, ThreadStarted::default());
        let child = ThreadStarted {
            parent_thread_id: Some(MAIN.parse().unwrap()),
            role: ThreadRole::Subagent,
        };
        log.tell(CHILD, child);
        log.catch_up();
        log
    }

    /// The log of the steps that a thread and the session take.
    fn of(steps: &[Step], thread: Option<&str>) -> Self {
        let mut log = Self::new();
        for step in steps {
            match step {
                Step::Of(by, act) if thread.is_none_or(|only| only == *by) => log.act(by, *act),
                Step::Of(..) => {}
                Step::Undo => log.undo(),
            }
        }
        log
    }

    /// An id that does not depend on what other threads do.
    fn id<I: std::str::FromStr>(&mut self, thread: &'static str) -> I {
        let used = self.used.entry(thread).or_default();
        *used += 1;
        format!("{thread}_{used}").parse().ok().unwrap()
    }

    fn scope(&self, thread: &'static str) -> Scope {
        Scope {
            thread_id: Some(thread.parse().unwrap()),
            turn_id: self.turn.get(thread).map(|id| id.parse().unwrap()),
            ..Scope::default()
        }
    }

    fn tell(&mut self, thread: &'static str, payload: impl Into<Payload>) {
        self.tell_in(&self.scope(thread), payload, Refs::default());
    }

    fn tell_in(&mut self, scope: &Scope, payload: impl Into<Payload>, refs: Refs) {
        self.writer.append(scope, payload, refs).unwrap();
    }

    /// Folds what was written; some events are told only when they are on disk.
    fn catch_up(&mut self) {
        self.writer.sync().unwrap();
        let artifacts = self.writer.artifacts();
        while let Ok(appended) = self.events.try_recv() {
            self.session.apply(&appended.event);
            for state in self.threads.values_mut() {
                state.apply(&appended.event, &|id| artifacts.read(id, 1 << 20).ok());
            }
        }
    }

    fn keep(&self, thread: &'static str, bytes: &[u8]) -> ArtifactId {
        let scope = self.scope(thread);
        let kind = ArtifactKind::Other;
        let kept = self
            .writer
            .put_artifact(&scope, kind, "text/plain", bytes, None);
        kept.unwrap().artifact_id
    }

    fn undo(&mut self) {
        let undone = HistoryRollbackCompleted {
            files_restored: vec![changed("undone")],
            ..HistoryRollbackCompleted::default()
        };
        self.tell_in(&Scope::default(), undone, Refs::default());
        self.catch_up();
    }

    fn act(&mut self, thread: &'static str, act: Act) {
        match act {
            Act::BeginTurn => {
                let turn: String = self.id(thread);
                let submitted = TurnSubmitted {
                    text: Some(format!("please do {turn}")),
                    ..TurnSubmitted::default()
                };
                self.turn.insert(thread, turn);
                self.tell(thread, submitted);
                self.tell(thread, TurnStarted::default());
            }
            Act::Answer => {
                let _ = self.ask(thread, true);
            }
            Act::Call(tool) => self.call(thread, tool),
            Act::Question => {
                let scope = self.intend(thread, "bash");
                let scope = Scope {
                    action_id: Some(self.id(thread)),
                    ..scope
                };
                self.tell_in(&scope, ActionRequired::default(), Refs::default());
            }
            Act::Resolve => {
                let waiting = self.session.waiting_calls(&thread.parse().unwrap());
                let open = waiting.iter().filter_map(|call| {
                    let question = call.question.as_ref()?;
                    let is_open = self.session.open_actions.contains_key(&question.action_id);
                    is_open.then(|| Scope {
                        action_id: Some(question.action_id.clone()),
                        ..call.scope.clone()
                    })
                });
                if let Some(scope) = open.min_by_key(|scope| scope.action_id.clone()) {
                    self.tell_in(&scope, ActionResolved::default(), Refs::default());
                }
            }
            Act::FailTurn => {
                let failed = TurnFailed {
                    message: format!("{thread} had enough"),
                    ..TurnFailed::default()
                };
                self.tell(thread, failed);
            }
            Act::Compact => self.compact(thread),
        }
        self.catch_up();
    }

    /// A request to the model and its answer; gives the scope of a call that it makes.
    fn ask(&mut self, thread: &'static str, with_words: bool) -> (Scope, ModelRequested) {
        let resolved = ContextResolved::default();
        let preamble = self.keep(thread, &Preamble::default().to_bytes());
        let refs = Refs::default().with("preamble", preamble);
        let scope = self.scope(thread);
        self.tell_in(&scope, resolved, refs);
        let catalogue = self.keep(thread, b"[]");
        let requested = ModelRequested {
            request_no: self.session.requests + 1,
            attempt: 1,
            strategy: "openai-chat".to_owned(),
            model_request_id: self.id(thread),
            tool_catalog_ref: Some(catalogue),
            ..ModelRequested::default()
        };
        self.tell(thread, requested.clone());
        let request_id = &requested.model_request_id;
        let completed = ModelCompleted {
            model_request_id: request_id.clone(),
            stop_reason: "end_turn".to_owned(),
            text: with_words.then(|| format!("answer to {request_id}")),
            ..ModelCompleted::default()
        };
        self.tell(thread, completed);
        let cost = CostRecorded {
            model_request_id: request_id.clone(),
            amount: Some(if thread == MAIN { 1.0 } else { 0.25 }),
            ..CostRecorded::default()
        };
        self.tell(thread, cost);
        (scope, requested)
    }

    fn intend(&mut self, thread: &'static str, tool: &str) -> Scope {
        let (scope, requested) = self.ask(thread, false);
        let intent = ToolIntent {
            intent_id: self.id(thread),
            tool_name: tool.to_owned(),
            raw_input: Some(json!({})),
            model_request_id: Some(requested.model_request_id),
            ..ToolIntent::default()
        };
        let scope = Scope {
            tool_call_id: Some(self.id(thread)),
            ..scope
        };
        self.tell_in(&scope, intent, Refs::default());
        scope
    }

    fn call(&mut self, thread: &'static str, tool: Tool) {
        let name = match tool {
            Tool::Read => "read",
            Tool::Edit => "edit",
            Tool::Check { .. } => "bash",
        };
        let scope = self.intend(thread, name);
        let path = format!("{}.rs", self.id::<String>(thread));
        let mut data = ToolData::default();
        let mut side_effects = Vec::new();
        match tool {
            Tool::Read => {
                data.baseline = Some(Baseline {
                    path,
                    sha256: "sha256:1".to_owned(),
                    ..Baseline::default()
                });
            }
            Tool::Edit => side_effects.push(changed(&path)),
            Tool::Check { passes } => {
                let command = "cargo test";
                let args = ToolArgs {
                    safe_args: Some(json!({ "command": command })),
                    ..ToolArgs::default()
                };
                self.tell_in(&scope, args, Refs::default());
                data.exit_code = Some(i32::from(!passes));
            }
        }
        let started = ToolStarted {
            invocation_id: self.id(thread),
            ..ToolStarted::default()
        };
        self.tell_in(&scope, started, Refs::default());
        if let Tool::Check { .. } = tool {
            let process = ProcessStarted {
                process_id: self.id(thread),
                command_summary: "cargo test".to_owned(),
                cwd: "/project".to_owned(),
                ..ProcessStarted::default()
            };
            self.tell_in(&scope, process, Refs::default());
        }
        let result = ToolResult {
            ok: true,
            data,
            side_effects,
            ..ToolResult::default()
        };
        self.tell_in(&scope, result, Refs::default());
        let observation = ToolObservation {
            observation_id: self.id(thread),
            tool_name: name.to_owned(),
            ok: true,
            model_text: Some(format!("{name} of {thread}")),
            ..ToolObservation::default()
        };
        self.tell_in(&scope, observation, Refs::default());
        self.catch_up();
        for run in self.threads[thread].turn.pending_verifications() {
            let record = run.record(self.id(thread), true, Failures::default());
            self.tell_in(&scope, record, Refs::default());
        }
    }

    /// Replaces all but the last entry of a thread's conversation.
    fn compact(&mut self, thread: &'static str) {
        self.tell(thread, ContextCompactionStarted::default());
        let items = self.threads[thread].conversation.items();
        let Some([.., last, _]) = items.get(..).filter(|items| items.len() > 1) else {
            return;
        };
        let up_to_sequence = last.sequence;
        let text = format!("{} entries of {thread}", items.len() - 1);
        let completed = ContextCompactionCompleted {
            summary_ref: self.keep(thread, text.as_bytes()),
            up_to_sequence,
            continuation_ref: Some(self.id(thread)),
            ..ContextCompactionCompleted::default()
        };
        self.tell(thread, completed);
    }

    fn recorded(&self) -> Vec<Event> {
        let directory = self.store.resolve("last").unwrap();
        let lines = directory.reader().unwrap();
        lines.filter_map(|item| item.unwrap().event).collect()
    }

    /// Everything a thread knows; where its events are in the log is left out.
    fn known(&self, thread: &str) -> String {
        without_sequences(&self.threads[thread])
    }

    /// The same, folded from the file.
    fn resumed(&self, thread: &'static str) -> String {
        let mut state = match thread {
            MAIN => ThreadState::default(),
            _ => ThreadState::child(thread.parse().unwrap(), Vec::new()),
        };
        let artifacts = self.writer.artifacts();
        for event in self.recorded() {
            if depends_on(event.payload.type_name()) {
                state.apply(&event, &|id| artifacts.read(id, 1 << 20).ok());
            }
        }
        without_sequences(&state)
    }

    /// Every model input of a thread, rebuilt.
    fn inputs(&self, thread: &str) -> Vec<(String, Option<Vec<u8>>)> {
        let mut rebuilder = Rebuilder::new(|_| &GENERIC);
        let artifacts = self.writer.artifacts();
        let thread: ThreadId = thread.parse().unwrap();
        let mut inputs = Vec::new();
        for event in self.recorded() {
            let rebuilt = rebuilder.apply(&event, &|id| artifacts.read(id, 1 << 20).ok());
            if event.scope.thread_id.as_ref() == Some(&thread) {
                let named = rebuilt.map(|input| (input.model_request_id.to_string(), input.bytes));
                inputs.extend(named);
            }
        }
        inputs
    }
}

fn without_sequences(state: &ThreadState) -> String {
    let known = format!("{state:#?}");
    let lines = known.lines().filter(|line| {
        let field = line.trim_start();
        !field.starts_with("sequence: ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn changed(path: &str) -> SideEffect {
    SideEffect {
        kind: SideEffectKind::Created,
        path: path.to_owned(),
        sha256_after: Some(format!("sha256:{path}")),
        ..SideEffect::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_thread_knows_what_it_would_know_alone(steps in steps()) {
        let both = Log::of(&steps, None);
        let alone = [MAIN, CHILD].map(|thread| (thread, Log::of(&steps, Some(thread))));
        for (thread, log) in &alone {
            prop_assert_eq!(both.known(thread), log.known(thread), "{} live", thread);
            prop_assert_eq!(both.resumed(thread), log.known(thread), "{} resumed", thread);
            let inputs = both.inputs(thread);
            prop_assert!(inputs.iter().all(|(_, bytes)| bytes.is_some()));
            prop_assert_eq!(inputs, log.inputs(thread));
        }

        let [main, child] = alone.each_ref().map(|(_, log)| &log.session);
        let both = &both.session;
        prop_assert_eq!(both.requests, main.requests + child.requests);
        prop_assert_eq!(both.cost.total().unwrap(), main.cost.known() + child.cost.known());
        let open = |state: &SessionState| state.open_actions.clone();
        let mut expected = open(main);
        expected.extend(open(child));
        prop_assert_eq!(open(both), expected);
        for (thread, state) in [(MAIN, main), (CHILD, child)] {
            let thread: ThreadId = thread.parse().unwrap();
            let calls = |state: &SessionState| {
                let waiting = state.waiting_calls(&thread);
                waiting.into_iter().map(|call| call.tool_call_id).collect::<Vec<_>>()
            };
            prop_assert_eq!(calls(both), calls(state));
        }
    }
}

/// An undo names no thread: it takes back files that every thread may have verified.
#[test]
fn what_names_no_thread_reaches_every_thread() {
    let mut log = Log::new();
    for thread in [MAIN, CHILD] {
        log.act(thread, Act::BeginTurn);
        log.act(thread, Act::Call(Tool::Edit));
        log.act(thread, Act::Call(Tool::Check { passes: true }));
    }
    assert!(log.threads.values().all(|state| !state.is_undone));
    log.undo();
    assert!(log.threads.values().all(|state| state.is_undone));
}

/// The main thread of a fork has another id than that of its parent, and takes in what that one did.
#[test]
fn a_thread_without_a_parent_follows_the_one_before_it() {
    let mut log = Log::new();
    log.act(MAIN, Act::BeginTurn);
    log.act(CHILD, Act::BeginTurn);
    let next = "thr_next";
    log.tell(next, ThreadStarted::default());
    log.act(next, Act::BeginTurn);
    let said = log.threads[MAIN].conversation.items().len();
    assert_eq!(said, 2, "an input of each main thread, none of the child");
}
