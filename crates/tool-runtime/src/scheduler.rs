//! The order of calls. A [`Batch`] takes the calls of one step as they come and runs them on
//! threads: reading neighbours side by side, everything else alone and in order. What a call left
//! is recorded in call order, whoever was first.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent_protocol::id::ActionId;
use agent_protocol::payload::tool::{
    Concurrency, ExecutionPlanFacts, ProgressStatus, ToolProgress, ToolStarted,
};
use agent_protocol::{ActionHappened, Code, Phase, Refs, Scope};

use crate::admission::{Admission, Admit};
use crate::cancel::{Cancel, CancelReason};
use crate::context::{ExecutionContext, ExecutionParts};
use crate::intent::ToolIntent;
use crate::journal::JournalError;
use crate::observation::Outcome;
use crate::pipeline::{Call, Ending, Refusal, Shared, StartFacts, panic_words};
use crate::result::{ExecutionFailure, RawResult};

/// The calls of one step. Submit them as the model names them; reading ones may start at once, the
/// rest waits for [`finish`](Self::finish), because a model that is cut off has decided nothing.
/// Dropping a batch cancels what has not ended.
pub struct Batch {
    messages: Sender<Message>,
    coordinator: Option<JoinHandle<Result<BatchReport, JournalError>>>,
}

/// How a batch ended.
#[derive(Debug, Default)]
pub struct BatchReport {
    /// In call order.
    pub outcomes: Vec<Outcome>,
    /// A person refused a call and does not want the rest of the turn.
    pub aborted: bool,
    /// A question that stays open.
    pub left_open: Option<ActionId>,
}

type Sink = Box<dyn FnMut(&Outcome) + Send>;
type Executed = Result<RawResult, ExecutionFailure>;

enum Message {
    Submit(ToolIntent),
    Finish,
    Abandon,
    Done(usize, Box<Executed>),
    /// The cancel handle was raised; only wakes the coordinator.
    Wake,
}

impl Batch {
    pub(crate) fn start(
        shared: Arc<Shared>,
        scope: Scope,
        cancel: &Cancel,
        sink: Sink,
    ) -> io::Result<Self> {
        let coordinator = Coordinator::new(shared, scope, cancel, sink);
        let messages = coordinator.messages.clone();
        let coordinator = thread::Builder::new()
            .name("tool-batch".to_owned())
            .spawn(move || coordinator.run())?;
        Ok(Self {
            messages,
            coordinator: Some(coordinator),
        })
    }

    /// Runs calls that are all known on this thread, which saves two hand-overs.
    pub(crate) fn run_here(
        shared: Arc<Shared>,
        scope: Scope,
        cancel: &Cancel,
        intents: impl IntoIterator<Item = ToolIntent>,
    ) -> Result<BatchReport, JournalError> {
        let coordinator = Coordinator::new(shared, scope, cancel, Box::new(|_| {}));
        for intent in intents {
            let _ = coordinator.messages.send(Message::Submit(intent));
        }
        let _ = coordinator.messages.send(Message::Finish);
        coordinator.run()
    }

    /// Adds the next call.
    pub fn submit(&self, intent: ToolIntent) {
        // A coordinator that is gone has an error to tell, which `finish` returns.
        let _ = self.messages.send(Message::Submit(intent));
    }

    /// Says that all calls are submitted, and waits for their outcomes.
    ///
    /// # Errors
    /// When the log cannot be written; calls that were running have been cancelled then.
    pub fn finish(mut self) -> Result<BatchReport, JournalError> {
        let _ = self.messages.send(Message::Finish);
        self.join()
    }

    /// Gives the batch up: what has not ended is cancelled, and its facts are recorded.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn abandon(mut self) -> Result<BatchReport, JournalError> {
        let _ = self.messages.send(Message::Abandon);
        self.join()
    }

    fn join(&mut self) -> Result<BatchReport, JournalError> {
        match self.coordinator.take().map(JoinHandle::join) {
            Some(Ok(report)) => report,
            Some(Err(panic)) => Err(JournalError::new(
                "run the calls of this step",
                panic_words(&*panic),
            )),
            None => Ok(BatchReport::default()),
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.coordinator.is_some() {
            let _ = self.messages.send(Message::Abandon);
            let _ = self.join();
        }
    }
}

/// Runs a batch, alone on its thread. Calls go through validation and permission one by one, in
/// order and not before their turn: what a call is checked against is what the calls before it
/// left.
struct Coordinator {
    shared: Arc<Shared>,
    scope: Scope,
    cancel: Cancel,
    sink: Sink,
    inbox: Receiver<Message>,
    messages: Sender<Message>,
    queue: VecDeque<Queued>,
    running: BTreeMap<usize, Running>,
    ended: BTreeMap<usize, (Call, Ending)>,
    submitted: usize,
    recorded: usize,
    /// No more calls will come.
    complete: bool,
    /// Why nothing more is started.
    stopped: Option<&'static str>,
    report: BatchReport,
}

struct Queued {
    number: usize,
    call: Call,
    refusal: Option<Refusal>,
}

struct Running {
    call: Call,
    start: StartFacts,
    is_read_only: bool,
    is_exclusive: bool,
    lock_key: Option<String>,
    cancel: Cancel,
    deadline: Option<Instant>,
    /// When a call that was told to stop is no longer waited for.
    give_up_at: Option<Instant>,
    given_up: Arc<AtomicBool>,
}

impl Coordinator {
    fn new(shared: Arc<Shared>, scope: Scope, cancel: &Cancel, sink: Sink) -> Self {
        let (messages, inbox) = channel();
        let cancel = cancel.child();
        let waker = messages.clone();
        cancel.on_raise(move || {
            let _ = waker.send(Message::Wake);
        });
        Self {
            shared,
            scope,
            cancel,
            sink,
            inbox,
            messages,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            submitted: 0,
            recorded: 0,
            complete: false,
            stopped: None,
            report: BatchReport::default(),
        }
    }

    fn run(mut self) -> Result<BatchReport, JournalError> {
        let result = self.run_to_end();
        if result.is_err() {
            // Nothing can be recorded any more, so nothing may go on.
            for running in self.running.values() {
                running.given_up.store(true, Ordering::Release);
                running.cancel.raise(CancelReason::Interrupted);
            }
        }
        result.map(|()| self.report)
    }

    fn run_to_end(&mut self) -> Result<(), JournalError> {
        loop {
            self.hand_out()?;
            if self.start_next()? {
                continue;
            }
            if self.complete && self.queue.is_empty() && self.running.is_empty() {
                self.hand_out()?;
                return Ok(());
            }
            self.wait()?;
        }
    }

    /// Waits for one message, or for the next moment at which a running call is out of time.
    fn wait(&mut self) -> Result<(), JournalError> {
        let next = self
            .running
            .values()
            .filter_map(|running| running.give_up_at.or(running.deadline))
            .min();
        let message = match next {
            None => self
                .inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(moment) => self
                .inbox
                .recv_timeout(moment.saturating_duration_since(Instant::now())),
        };
        match message {
            Ok(message) => self.handle(message)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.complete = true,
        }
        self.watch_the_clock();
        Ok(())
    }

    fn handle(&mut self, message: Message) -> Result<(), JournalError> {
        match message {
            Message::Submit(intent) => {
                let (call, refusal) = self.shared.open(&self.scope, intent)?;
                let number = self.submitted;
                self.submitted += 1;
                self.queue.push_back(Queued {
                    number,
                    call,
                    refusal,
                });
            }
            Message::Finish => self.complete = true,
            Message::Abandon => {
                self.complete = true;
                self.cancel.raise(CancelReason::Interrupted);
            }
            Message::Wake => {}
            Message::Done(number, result) => {
                if let Some(running) = self.running.remove(&number) {
                    self.end_execution(number, running, *result);
                }
            }
        }
        Ok(())
    }

    /// Raises the handles of calls whose time is over, and gives up those that do not stop.
    fn watch_the_clock(&mut self) {
        let now = Instant::now();
        let grace = self.shared.settings.grace;
        let mut stuck = Vec::new();
        for (number, running) in &mut self.running {
            if running.deadline.is_some_and(|deadline| deadline <= now) {
                running.cancel.raise(CancelReason::Timeout);
            }
            if running.give_up_at.is_none() && running.cancel.is_raised() {
                running.give_up_at = Some(now + grace);
            }
            if running.give_up_at.is_some_and(|moment| moment <= now) {
                stuck.push(*number);
            }
        }
        for number in stuck {
            if let Some(running) = self.running.remove(&number) {
                running.given_up.store(true, Ordering::Release);
                let code = match running.cancel.reason() {
                    Some(CancelReason::Timeout) => Code::Timeout,
                    _ => Code::Cancelled,
                };
                let message = format!(
                    "{}: it did not stop within {} after it was told to, and is no longer waited for",
                    running.call.tool_name,
                    seconds(grace)
                );
                let failure = ExecutionFailure::new(code, message).having(ActionHappened::Unknown);
                self.end_execution(number, running, Err(failure));
            }
        }
    }

    fn end_execution(&mut self, number: usize, running: Running, result: Executed) {
        let result = result.map_err(|mut failure| {
            // A tool that only knows that it was told to stop need not know why.
            if failure.code == Code::Cancelled
                && running.cancel.reason() == Some(CancelReason::Timeout)
            {
                failure.code = Code::Timeout;
            }
            failure
        });
        let ending = Ending::Executed {
            start: running.start,
            result,
            ended_at: self.shared.journal.now(),
        };
        self.ended.insert(number, (running.call, ending));
    }

    /// Records what has ended, in call order, and hands it out once it is safe on disk.
    fn hand_out(&mut self) -> Result<(), JournalError> {
        let mut outcomes = Vec::new();
        while let Some((call, ending)) = self.ended.remove(&self.recorded) {
            outcomes.push(self.shared.conclude(call, ending)?);
            self.recorded += 1;
        }
        if outcomes.is_empty() {
            return Ok(());
        }
        self.shared.journal.sync()?;
        for outcome in outcomes {
            (self.sink)(&outcome);
            self.report.outcomes.push(outcome);
        }
        Ok(())
    }

    /// Takes the next call on, if its turn has come. Says whether anything happened.
    fn start_next(&mut self) -> Result<bool, JournalError> {
        let Some(next) = self.queue.front() else {
            return Ok(false);
        };
        if next.refusal.is_none() && self.stop_reason().is_none() && !self.may_start(&next.call) {
            if let Some(next) = self.queue.front_mut() {
                next.call.held = !self.running.is_empty();
            }
            return Ok(false);
        }
        let Some(Queued {
            number,
            mut call,
            refusal,
        }) = self.queue.pop_front()
        else {
            return Ok(false);
        };
        if let Some(refusal) = refusal {
            self.ended.insert(number, (call, Ending::Refused(refusal)));
            return Ok(true);
        }
        if let Some(reason) = self.stop_reason() {
            let refusal = Refusal {
                phase: Phase::Schedule,
                code: Code::Cancelled,
                message: format!("{}: {reason}; it was not started", call.tool_name),
                ..Refusal::default()
            };
            self.ended.insert(number, (call, Ending::Refused(refusal)));
            return Ok(true);
        }
        let shared = Arc::clone(&self.shared);
        let cancel = self.cancel.clone();
        let admission = shared.admit(&mut call, &cancel, &mut || self.drain())?;
        match admission {
            Admission::Admitted(admit) => self.start(number, call, *admit)?,
            Admission::Refused(refusal) => {
                self.ended.insert(number, (call, Ending::Refused(refusal)));
            }
            Admission::Aborted(refusal) => {
                self.report.aborted = true;
                self.stopped = Some("the user ended the turn");
                self.ended.insert(number, (call, Ending::Refused(refusal)));
            }
            Admission::LeftOpen(action_id) => {
                self.report.left_open = Some(action_id.clone());
                self.stopped = Some("an earlier call waits for an approval");
                self.ended
                    .insert(number, (call, Ending::LeftOpen(action_id)));
            }
        }
        Ok(true)
    }

    fn stop_reason(&self) -> Option<&'static str> {
        self.stopped.or_else(|| {
            self.cancel
                .is_raised()
                .then_some("the turn was cancelled before its turn came")
        })
    }

    /// Whether a call may run beside what runs now. Neighbours only: it is asked for the first call
    /// in the queue alone.
    fn may_start(&self, call: &Call) -> bool {
        let Some(tool) = &call.tool else {
            return true;
        };
        let definition = tool.definition();
        let neighbourly =
            definition.is_read_only && definition.concurrency != Concurrency::Exclusive;
        if !self.complete && !neighbourly {
            return false;
        }
        if self.running.is_empty() {
            return true;
        }
        let settings = &self.shared.settings;
        neighbourly
            && !settings.serial
            && self.running.len() < settings.parallel.max(1)
            && self
                .running
                .values()
                .all(|running| running.is_read_only && !running.is_exclusive)
    }

    /// Waits until nothing runs, and records what that left.
    fn drain(&mut self) -> Result<(), JournalError> {
        while !self.running.is_empty() {
            self.wait()?;
        }
        self.hand_out()
    }

    fn start(&mut self, number: usize, mut call: Call, admit: Admit) -> Result<(), JournalError> {
        let definition = call.tool.as_ref().map(|tool| tool.definition().clone());
        let Some(definition) = definition else {
            return Ok(());
        };
        let lock_key = (definition.concurrency == Concurrency::Keyed)
            .then(|| admit.plan.lock_key.clone())
            .flatten();
        let clashes = !admit.flags.is_read_only
            || self
                .running
                .values()
                .any(|running| lock_key.is_some() && running.lock_key == lock_key);
        if clashes && !self.running.is_empty() {
            call.held = true;
            self.drain()?;
        }
        let waited = millis(call.submitted.elapsed());
        if call.held {
            let queued = ToolProgress {
                phase: Phase::Schedule,
                status: ProgressStatus::Queued,
                elapsed_ms: waited,
                waited_ms: Some(waited),
                lock_key: lock_key.clone(),
                ..ToolProgress::default()
            };
            self.shared
                .record(&mut call.scope, queued, Refs::default())?;
        }
        if let Some(reason) = self.stop_reason() {
            let refusal = Refusal {
                phase: Phase::Schedule,
                code: Code::Cancelled,
                message: format!("{}: {reason}; it was not started", call.tool_name),
                ..Refusal::default()
            };
            self.ended.insert(number, (call, Ending::Refused(refusal)));
            return Ok(());
        }
        let confined = definition.needs_sandbox && !admit.confinement.unconfined;
        let profile = if confined && !admit.confinement.profile.is_empty() {
            format!("+{}", admit.confinement.profile)
        } else {
            String::new()
        };
        let started = ToolStarted {
            invocation_id: admit.invocation.invocation_id().clone(),
            intent_id: call.intent_id.clone(),
            tool_name: call.tool_name.clone(),
            executor: format!(
                "{}:{}@{}{profile}",
                definition.owner, definition.name, definition.version
            ),
            args_ref: None,
            args_sha256: admit.args_sha256.clone(),
            cwd: admit.invocation.cwd().to_string_lossy().into_owned(),
            timeout_ms: admit.plan.timeout.map(millis),
            sandboxed: confined,
            permission_ref: admit.permission_ref.to_string(),
            action_id: admit.action_id.clone(),
            sandbox_ref: None,
            flags: admit.flags.clone(),
            plan: ExecutionPlanFacts {
                concurrency: definition.concurrency,
                lock_key: lock_key.clone(),
                waited_ms: waited,
                background: admit.plan.background,
                cancellable: definition.cancellable,
                streams_progress: definition.streams_progress,
            },
        };
        let refs = Refs::default().with("permission", &admit.permission_ref);
        self.shared.record(&mut call.scope, started, refs)?;
        if !admit.flags.is_read_only {
            self.shared.journal.sync()?;
        }
        let is_exclusive = definition.concurrency == Concurrency::Exclusive;
        self.execute(number, call, admit, is_exclusive, lock_key);
        Ok(())
    }

    fn execute(
        &mut self,
        number: usize,
        call: Call,
        admit: Admit,
        is_exclusive: bool,
        lock_key: Option<String>,
    ) {
        let cancel = self.cancel.child();
        let given_up = Arc::new(AtomicBool::new(false));
        let deadline = admit
            .plan
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let context = ExecutionContext::new(ExecutionParts {
            journal: Arc::clone(&self.shared.journal),
            scope: call.scope.clone(),
            invocation_id: admit.invocation.invocation_id().clone(),
            tool_call_id: call.tool_call_id.clone(),
            workspace: Arc::clone(&self.shared.workspace),
            baselines: Arc::clone(&self.shared.baselines),
            cancel: cancel.clone(),
            deadline,
            given_up: Arc::clone(&given_up),
        });
        let running = Running {
            start: StartFacts {
                invocation_id: admit.invocation.invocation_id().clone(),
                started_at: self.shared.journal.now(),
                permission: admit.permission,
            },
            is_read_only: admit.flags.is_read_only,
            is_exclusive,
            lock_key,
            cancel,
            deadline,
            give_up_at: None,
            given_up,
            call,
        };
        let invocation = admit.invocation;
        let name = running.call.tool_name.clone();
        let tool = running.call.tool.clone();
        let messages = self.messages.clone();
        let spawned = thread::Builder::new()
            .name(format!("tool-{name:.11}"))
            .spawn(move || {
                let result = match tool {
                    Some(tool) => {
                        catch_unwind(AssertUnwindSafe(|| tool.tool.execute(invocation, &context)))
                            .unwrap_or_else(|panic| {
                                let words = panic_words(&*panic);
                                let message = format!("the tool `{name}` failed inside: {words}");
                                Err(ExecutionFailure::new(Code::InternalError, message))
                            })
                    }
                    None => Err(ExecutionFailure::new(
                        Code::InternalError,
                        "the tool is gone",
                    )),
                };
                // Before the coordinator hears of it, so that the context's handles are closed.
                drop(context);
                let _ = messages.send(Message::Done(number, Box::new(result)));
            });
        match spawned {
            Ok(_) => {
                self.running.insert(number, running);
            }
            Err(error) => {
                let message = format!("cannot start a thread for the call: {error}");
                let failure =
                    ExecutionFailure::new(Code::InternalError, message).having(ActionHappened::No);
                self.end_execution(number, running, Err(failure));
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f32())
}
