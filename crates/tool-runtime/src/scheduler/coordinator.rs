//! The one thread that decides what runs beside what, watches the clock and records what has ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use agent_protocol::payload::tool::Concurrency;
use agent_protocol::{ActionHappened, Code, Phase, Scope};

use super::{BatchReport, Executed, Message, Sink};
use crate::admission::Admission;
use crate::call::{Call, Ending, Refusal, StartFacts};
use crate::cancel::{Cancel, CancelReason};
use crate::journal::JournalError;
use crate::open_call::OpenCall;
use crate::pipeline::Shared;
use crate::result::ExecutionFailure;

/// Runs a batch, alone on its thread. Calls go through validation and permission one by one, in
/// order and not before their turn: what a call is checked against is what the calls before it
/// left.
pub(super) struct Coordinator {
    pub(super) shared: Arc<Shared>,
    scope: Scope,
    pub(super) cancel: Cancel,
    sink: Sink,
    inbox: Receiver<Message>,
    pub(super) messages: Sender<Message>,
    queue: VecDeque<Queued>,
    pub(super) running: BTreeMap<usize, Running>,
    pub(super) ended: BTreeMap<usize, (Call, Ending)>,
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
    /// A call that waited for an answer in an earlier process.
    continues: Option<Box<OpenCall>>,
}

pub(super) struct Running {
    pub(super) call: Call,
    pub(super) start: StartFacts,
    pub(super) is_read_only: bool,
    pub(super) is_exclusive: bool,
    pub(super) lock_key: Option<String>,
    pub(super) cancel: Cancel,
    pub(super) deadline: Option<Instant>,
    /// When a call that was told to stop is no longer waited for.
    pub(super) give_up_at: Option<Instant>,
    pub(super) given_up: Arc<AtomicBool>,
}

impl Coordinator {
    pub(super) fn new(shared: Arc<Shared>, scope: Scope, cancel: &Cancel, sink: Sink) -> Self {
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

    pub(super) fn run(mut self) -> Result<BatchReport, JournalError> {
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
                    continues: None,
                });
            }
            Message::Continue(open) => {
                let number = self.submitted;
                self.submitted += 1;
                self.queue.push_back(Queued {
                    number,
                    call: self.shared.reopen(&open),
                    refusal: None,
                    continues: Some(open),
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

    pub(super) fn end_execution(&mut self, number: usize, running: Running, result: Executed) {
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
        if !self.ended.contains_key(&self.recorded) {
            return Ok(());
        }
        // Results, artifacts and observations share one write: nobody hears of them before the sync.
        let gathered = self.shared.journal.gather();
        let mut outcomes = Vec::new();
        while let Some((call, ending)) = self.ended.remove(&self.recorded) {
            outcomes.push(self.shared.conclude(call, ending)?);
            self.recorded += 1;
        }
        self.shared.journal.sync()?;
        drop(gathered);
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
            continues,
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
        let mut drain = || self.drain();
        let admission = match &continues {
            Some(open) => shared.readmit(&mut call, open, &cancel, &mut drain)?,
            None => shared.admit(&mut call, &cancel, &mut drain)?,
        };
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

    pub(super) fn stop_reason(&self) -> Option<&'static str> {
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
    pub(super) fn drain(&mut self) -> Result<(), JournalError> {
        while !self.running.is_empty() {
            self.wait()?;
        }
        self.hand_out()
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f32())
}
