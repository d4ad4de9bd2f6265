//! A session that is being worked in: every command, on behalf of any peer, and what it leads to.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_engine::live::NullSink;
use agent_engine::{Control, Interrupt, Model, OwnCall, Resumed, SessionAuthority};
use agent_log::{AnchorStore, Appended, SessionDirectory, SessionWriter};
use agent_policy::gate::SandboxLevel;
use agent_protocol::command::{
    BeginCalls, ControlCommand, InterruptReason, Peer, PermissionQuery, ResumeThread, Shell,
    SubmitTurn, ToolInventoryQuery, Undo,
};
use agent_protocol::id::{ProcessId, TurnId};
use agent_protocol::payload::conversation::{SessionChanges, SessionUpdated, TurnSource};
use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::payload::tool::CatalogPolicy;
use agent_protocol::reply::{
    Acknowledgement, AnswerCode, ControlAnswer, ControlError, ControlErrorCode, Reply,
};
use agent_protocol::status::{Mode, Thinking};
use agent_protocol::{Payload, Refs, Scope};
use agent_tool_runtime::{
    Authority as _, IntentOrigin, Journal, JournalError, Pipeline, ToolIntent,
};

mod directories;
mod permissions;

use super::calls::{CallTurn, called_reply, no_calls};
use super::guard::ShutdownGuard;
use super::open::open_parts;
use super::options::{OpenOptions, SessionModels};
use super::reading::Reading;
use super::report::TurnReport;
use super::work::{Work, Worker, Workplace};
use super::{Pending, attach, ended, failed, no_engine, refused, unavailable};
use crate::Runtime;
use crate::config::{Config, Overrides};
use crate::error::{OrFail as _, RuntimeError};
use crate::models;
use crate::rule_file::RuleFiles;

pub(super) struct LiveSession {
    runtime: Runtime,
    config: Arc<Config>,
    directory: SessionDirectory,
    anchors: AnchorStore,
    writer: SessionWriter,
    journal: Arc<dyn Journal>,
    authority: Arc<SessionAuthority>,
    control: Arc<Control>,
    pipeline: Pipeline,
    /// The thread that commands work in.
    scope: Scope,
    sandbox: SandboxLevel,
    rule_files: RuleFiles,
    /// The permission rules in force, one per line.
    rules: Mutex<String>,
    first_sequence: u64,
    notes: Vec<String>,
    /// True while the log has a turn that has not ended.
    turn_is_open: Arc<AtomicBool>,
    /// Works on turns; missing where there is no model.
    worker: Mutex<Option<Worker>>,
    has_engine: bool,
    calls: Mutex<Calls>,
    guard: Mutex<Option<ShutdownGuard>>,
    is_ending: AtomicBool,
}

/// Calls that no model makes.
#[derive(Default)]
struct Calls {
    /// Every event from the opening on, where no engine takes them.
    events: Option<Receiver<Arc<Appended>>>,
    turn: Option<CallTurn>,
}

impl LiveSession {
    pub(super) fn open(runtime: &Runtime, mut options: OpenOptions) -> Result<Self, RuntimeError> {
        let config = match options.config.take() {
            Some(config) => config,
            None => Arc::new(runtime.config(&Overrides::default())?),
        };
        options.find_session(runtime)?;
        let chosen = match std::mem::take(&mut options.models) {
            SessionModels::Without => None,
            SessionModels::FromSettings => Some(models::choose_for(runtime, &config, &options)?),
            SessionModels::Given(chosen) => Some(chosen),
        };
        let mut directories = Vec::new();
        for path in std::mem::take(&mut options.directories) {
            let directory = directories::directory_to_add(runtime, &path);
            directories.push(directory.map_err(|error| RuntimeError::usage(error.message))?);
        }
        let parts = open_parts(runtime, &config, &options)?;
        let guard = parts.guard();
        let scope = Scope {
            thread_id: Some(parts.thread_id.clone()),
            ..Scope::default()
        };
        for fact in options.facts {
            let recorded = parts.journal.append(&scope, fact, Refs::default());
            recorded.or_fail()?;
        }
        if options.hold_queue {
            // What waits was meant for a run that is over.
            parts.control.hold_queue();
        }
        let mut session = Self {
            runtime: runtime.clone(),
            config: Arc::clone(&config),
            directory: runtime.session(parts.writer.session_id().as_str())?,
            anchors: AnchorStore::new(&runtime.host.directories.state),
            writer: parts.writer.clone(),
            journal: Arc::clone(&parts.journal),
            authority: Arc::clone(&parts.authority),
            control: Arc::clone(&parts.control),
            pipeline: parts.pipeline.clone(),
            scope,
            sandbox: parts.sandbox_level,
            rule_files: RuleFiles::new(runtime),
            rules: Mutex::new(parts.rules.clone()),
            first_sequence: parts.first_sequence,
            notes: Vec::new(),
            turn_is_open: Arc::new(AtomicBool::new(parts.open_turn.is_some())),
            worker: Mutex::default(),
            has_engine: chosen.is_some(),
            calls: Mutex::default(),
            guard: Mutex::new(Some(guard)),
            is_ending: AtomicBool::new(false),
        };
        for directory in &directories {
            let added = session.add_directory(directory, "named when the session was opened");
            added.map_err(RuntimeError::failed)?;
        }
        session.follow_turns();
        let Some(chosen) = chosen else {
            lock(&session.calls).events = Some(parts.events);
            return Ok(session);
        };
        let small = models::small(runtime, &config).unwrap_or_else(|unused| {
            session.notes.push(unused.to_string());
            None
        });
        let live = options.live.unwrap_or_else(|| Arc::new(NullSink));
        let engine = parts
            .engine(runtime, &config, chosen.models, small, live)
            .with_routing(chosen.facts);
        let worker = Worker::start(Workplace {
            engine,
            runtime: runtime.clone(),
            config,
            directory: session.directory.clone(),
            writer: session.writer.clone(),
            on_failure: options.on_failure,
        })?;
        session.worker = Mutex::new(Some(worker));
        Ok(session)
    }

    /// Notes from the log itself when a turn begins and ends.
    fn follow_turns(&self) {
        let is_open = Arc::clone(&self.turn_is_open);
        self.writer.subscribe(move |appended| {
            match &appended.event.payload {
                Payload::TurnStarted(_) => is_open.store(true, Ordering::SeqCst),
                Payload::TurnCompleted(_) | Payload::TurnFailed(_) => {
                    is_open.store(false, Ordering::SeqCst);
                }
                _ => {}
            }
            true
        });
    }

    pub(super) fn dispatch(&self, command: ControlCommand, peer: &Peer) -> Pending {
        let reading = Reading {
            session: &self.directory,
            anchors: &self.anchors,
            redactor: self.writer.redactor(),
        };
        if let Some(answer) = reading.answer(&command) {
            return Pending::Ready(answer);
        }
        let is_end = matches!(
            command,
            ControlCommand::EndSession(_) | ControlCommand::EndCalls
        );
        if self.is_ending.load(Ordering::SeqCst) && !is_end {
            return Pending::Ready(Err(ended()));
        }
        Pending::Ready(match command {
            ControlCommand::SubmitTurn(submit) => self.submit(submit, peer),
            ControlCommand::InterruptTurn(interrupt) => {
                Ok(Reply::Answer(self.control.interrupt(&interrupt)))
            }
            ControlCommand::RespondAction(response) => self.respond(response).map(Reply::Answer),
            ControlCommand::PreviewRule(asked) => self.preview_rule(&asked),
            ControlCommand::ResumeThread(resume) => self.resume(&resume),
            ControlCommand::RemoveQueuedTurn(queued) => {
                recorded(self.control.remove_queued(&queued.turn_id)).map(Reply::Answer)
            }
            ControlCommand::PromoteQueuedTurn(queued) => {
                let answer = recorded(self.control.promote_queued(&queued.turn_id));
                // When nothing runs, this is the user's word that it may.
                self.send(Work::Queue);
                answer.map(Reply::Answer)
            }
            ControlCommand::SetMode(set) => self.set_mode(set.mode),
            ControlCommand::SetModel(set) => self.set_model(&set.model, peer),
            ControlCommand::ChangeDirectory(change) => self.change_directory(&change.path),
            ControlCommand::AddDirectory(added) => {
                let reason = format!("added by the user, in {}", peer.program);
                self.add_directory(Path::new(&added.path), &reason)
            }
            ControlCommand::SetThinking(set) => self.set_thinking(set.thinking, peer),
            ControlCommand::Compact => match self.control.ask_to_compact() {
                Some(answer) => Ok(Reply::Answer(answer)),
                None => return self.ask(Work::Compact),
            },
            ControlCommand::Undo(asked) => return self.undo(asked),
            ControlCommand::Shell(shell) => self.shell(&shell, peer),
            ControlCommand::BeginCalls(begin) => self.begin_calls(begin, peer),
            ControlCommand::CallTool(call) => self.in_calls(|turn, events| {
                let called = recorded(turn.call(call, events))?;
                let nothing =
                    || ControlError::new(ControlErrorCode::Failed, "the call has no outcome");
                called.ok_or_else(nothing).map(called_reply)
            }),
            ControlCommand::RejectCall(rejected) => {
                self.in_calls(|turn, _| recorded(turn.reject(&rejected)).map(called_reply))
            }
            ControlCommand::EndCalls => self.end_calls(),
            ControlCommand::GetToolInventory(query) => self.tools(&query),
            ControlCommand::EvaluatePermission(query) => self.evaluate(&query),
            ControlCommand::GetProcesses(query) => {
                let guard = lock(&self.guard);
                let guard = guard.as_ref();
                Ok(Reply::Processes(
                    guard
                        .map(|guard| guard.processes(&query))
                        .unwrap_or_default(),
                ))
            }
            ControlCommand::TerminateProcess(process) => {
                Ok(Reply::Answer(self.terminate(&process.process_id)))
            }
            ControlCommand::EndSession(end) => {
                self.end(end.reason);
                Ok(Reply::Answer(ControlAnswer::accepted()))
            }
            ControlCommand::GetSession(_)
            | ControlCommand::GetThreadRead(_)
            | ControlCommand::GetExecutionEnvironment
            | ControlCommand::ExportReplay(_)
            | ControlCommand::ExportEvidence(_)
            | ControlCommand::ExportReview(_) => Err(unavailable("it was answered already")),
        })
    }

    fn submit(&self, mut submit: SubmitTurn, peer: &Peer) -> Result<Reply, ControlError> {
        if !self.has_engine {
            return Err(no_engine());
        }
        let notices = attach::attach(&*self.journal, &self.scope, &self.runtime, &mut submit);
        let notices = recorded(notices)?;
        let waits_for_a_turn = self.turn_is_open.load(Ordering::SeqCst);
        let answer = recorded(self.control.submit(submit, peer.source()))?;
        match (answer.acknowledgement, &answer.turn_id) {
            (Acknowledgement::Accepted, Some(turn_id)) => self.send(Work::Turn(turn_id.clone())),
            // The end of the last turn was there to be seen when this was sent: it is the user's answer
            // to that end, and does not wait for another word.
            (Acknowledgement::Queued, Some(turn_id)) if !waits_for_a_turn => {
                self.send(Work::Release(turn_id.clone()));
            }
            _ => {}
        }
        Ok(Reply::Answer(ControlAnswer { notices, ..answer }))
    }

    fn resume(&self, resume: &ResumeThread) -> Result<Reply, ControlError> {
        if resume.session_id != *self.writer.session_id() {
            return Err(unavailable(
                "this is another session; open the one to resume",
            ));
        }
        if !self.has_engine {
            return Err(no_engine());
        }
        let (turn_id, work) = match self.control.take_resumed() {
            Resumed::OpenTurn(turn_id) => (turn_id.clone(), Work::OpenTurn(turn_id)),
            Resumed::Input(turn_id) => (turn_id, Work::Queue),
            Resumed::Nothing(answer) => return Ok(Reply::Answer(answer)),
        };
        self.send(work);
        Ok(Reply::Answer(ControlAnswer::accepted().of_turn(turn_id)))
    }

    /// Chooses the model of the next turn. One that cannot be used is refused with what is missing.
    fn set_model(&self, name: &str, peer: &Peer) -> Result<Reply, ControlError> {
        if !self.has_engine {
            return Err(no_engine());
        }
        let chosen = models::choose_named(&self.runtime, &self.config, name);
        let chosen = chosen.map_err(|error| refused(&error))?;
        let changed = SessionChanges {
            model: chosen.models.first().map(Model::name),
            ..SessionChanges::default()
        };
        self.record_choice(changed, peer)?;
        self.send(Work::Models(chosen));
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }

    fn set_thinking(&self, thinking: Thinking, peer: &Peer) -> Result<Reply, ControlError> {
        if !self.has_engine {
            return Err(no_engine());
        }
        let changed = SessionChanges {
            thinking: Some(thinking),
            ..SessionChanges::default()
        };
        self.record_choice(changed, peer)?;
        self.control.set_thinking(thinking);
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }

    fn record_choice(&self, changed: SessionChanges, peer: &Peer) -> Result<(), ControlError> {
        let reason = match peer.source() {
            TurnSource::Tui => "chosen on the screen".to_owned(),
            _ => format!("chosen by {}", peer.program),
        };
        recorded(self.append(SessionUpdated { changed, reason }))
    }

    fn undo(&self, asked: Undo) -> Pending {
        if self.has_engine {
            return self.ask(|reply| Work::Undo(Box::new(asked), reply));
        }
        let (directory, writer) = (&self.directory, &self.writer);
        Pending::Ready(super::undo::undo(
            &self.runtime,
            directory,
            writer,
            &asked,
            true,
        ))
    }

    /// A command that the user typed: judged, confined and recorded like any other, as a turn of its own.
    fn shell(&self, typed: &Shell, peer: &Peer) -> Result<Reply, ControlError> {
        if !self.has_engine {
            return Err(no_engine());
        }
        let registry = self.pipeline.registry();
        let Some(shell) = registry.shell() else {
            return Err(unavailable("no tool of this session runs commands"));
        };
        let command = &typed.command;
        let mut input = shell.input_about(command);
        if let Some(field) = shell.network_field.as_ref().filter(|_| typed.network) {
            input[field] = true.into();
        }
        input["description"] = "typed by the user".into();
        let turn_id: TurnId = self.journal.ids().mint();
        self.send(Work::Own(Box::new(OwnCall {
            turn_id: turn_id.clone(),
            text: format!("!{command}"),
            source: peer.source(),
            intent: ToolIntent {
                origin: IntentOrigin::User,
                ..ToolIntent::new(&shell.name, &input)
            },
        })));
        Ok(Reply::Answer(ControlAnswer::accepted().of_turn(turn_id)))
    }

    fn begin_calls(&self, begin: BeginCalls, peer: &Peer) -> Result<Reply, ControlError> {
        let mut calls = lock(&self.calls);
        if calls.events.is_none() {
            return Err(unavailable(
                "a model works in this session; open one without it for calls",
            ));
        }
        if calls.turn.is_some() {
            let reason = "a turn is running";
            let answer = ControlAnswer::no_op(AnswerCode::TurnIsRunning, reason);
            return Ok(Reply::Answer(answer));
        }
        let turn_id: TurnId = self.journal.ids().mint();
        let interrupt = Interrupt::new();
        self.control.turn_runs(&turn_id, &interrupt);
        let turn = CallTurn::begin(
            &self.journal,
            &self.pipeline,
            &self.authority,
            &self.scope,
            turn_id.clone(),
            interrupt,
            (begin.title, peer.source()),
        );
        let turn = turn.inspect_err(|_| self.control.turn_ended());
        calls.turn = Some(recorded(turn)?);
        Ok(Reply::Answer(ControlAnswer::accepted().of_turn(turn_id)))
    }

    /// Does something in the turn of calls that is open.
    fn in_calls(
        &self,
        act: impl FnOnce(&mut CallTurn, &Receiver<Arc<Appended>>) -> Result<Reply, ControlError>,
    ) -> Result<Reply, ControlError> {
        let mut calls = lock(&self.calls);
        match &mut *calls {
            Calls {
                events: Some(events),
                turn: Some(turn),
            } => act(turn, events),
            _ => Err(no_calls()),
        }
    }

    fn end_calls(&self) -> Result<Reply, ControlError> {
        let mut calls = lock(&self.calls);
        let turn = calls.turn.take();
        let (Some(turn), Some(events)) = (turn, &calls.events) else {
            return Err(no_calls());
        };
        self.control.turn_ended();
        recorded(turn.end(events))?;
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }

    fn tools(&self, query: &ToolInventoryQuery) -> Result<Reply, ControlError> {
        if query.mode.is_some_and(|mode| mode != self.authority.mode()) {
            return Err(unavailable("the tools are those of the mode in force"));
        }
        let mut tools = self.pipeline.catalogue();
        tools.retain(|entry| query.include_hidden || entry.policy != CatalogPolicy::Unavailable);
        Ok(Reply::Tools(tools))
    }

    fn evaluate(&self, query: &PermissionQuery) -> Result<Reply, ControlError> {
        let mode = query.mode.unwrap_or(self.authority.mode());
        let workspace = self.pipeline.workspace();
        let registry = self.pipeline.registry();
        let tool = registry.resolve(&query.tool).map(|tool| tool.definition());
        let evaluate = |tool| self.authority.evaluate(tool, &query.input, mode, workspace);
        let evaluated = tool.and_then(evaluate);
        let no_call = "this is not a call: no such tool, or its input names nothing";
        evaluated
            .map(|evaluated| Reply::Permission(Box::new(evaluated)))
            .ok_or_else(|| ControlError::new(ControlErrorCode::NotFound, no_call))
    }

    fn terminate(&self, process_id: &ProcessId) -> ControlAnswer {
        let guard = lock(&self.guard);
        let is_running = guard
            .as_ref()
            .is_some_and(|guard| guard.terminate(process_id));
        match is_running {
            true => ControlAnswer::accepted(),
            false => ControlAnswer::no_op(AnswerCode::NoSuchProcess, "no such command is running"),
        }
    }

    fn end(&self, reason: InterruptReason) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.control.end(reason);
    }

    pub(super) fn wait(&self) -> Result<TurnReport, ControlError> {
        let worker = lock(&self.worker);
        let asked = worker
            .as_ref()
            .map(Worker::ask_report)
            .ok_or_else(no_engine)?;
        // Others may send commands meanwhile.
        drop(worker);
        asked.recv().unwrap_or_else(|_| Err(ended()))
    }

    pub(super) fn close(&self) -> Result<Vec<(ProcessId, String)>, RuntimeError> {
        self.end(InterruptReason::Terminated);
        let worker = lock(&self.worker).take();
        if let Some(worker) = worker {
            worker.join();
        }
        let guard = lock(&self.guard).take();
        guard.map_or(Ok(Vec::new()), |guard| {
            let running = guard.running();
            guard.close().map(|()| running)
        })
    }

    fn send(&self, work: Work) {
        if let Some(worker) = &*lock(&self.worker) {
            worker.send(work);
        }
    }

    fn ask(&self, work: impl FnOnce(super::work::ReplyTo) -> Work) -> Pending {
        match &*lock(&self.worker) {
            Some(worker) => worker.ask(work),
            None => Pending::Ready(Err(no_engine())),
        }
    }

    fn append(&self, fact: impl Into<Payload>) -> Result<(), JournalError> {
        self.journal
            .append(&self.scope, fact.into(), Refs::default())
            .map(|_| ())
    }

    pub(super) fn directory(&self) -> &SessionDirectory {
        &self.directory
    }

    pub(super) fn writer(&self) -> &SessionWriter {
        &self.writer
    }

    pub(super) fn first_sequence(&self) -> u64 {
        self.first_sequence
    }

    pub(super) fn mode(&self) -> Mode {
        self.authority.mode()
    }

    pub(super) fn rules(&self) -> String {
        lock(&self.rules).clone()
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The level in the words of the log.
    pub(super) fn sandbox(&self) -> SandboxStatus {
        match self.sandbox {
            SandboxLevel::Full => SandboxStatus::Full,
            SandboxLevel::Partial => SandboxStatus::Partial,
            SandboxLevel::Off => SandboxStatus::Off,
            SandboxLevel::Unavailable => SandboxStatus::Unavailable,
        }
    }
}

/// The result of something that had to be recorded.
fn recorded<T>(result: Result<T, JournalError>) -> Result<T, ControlError> {
    result.map_err(|error| failed(&error))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
