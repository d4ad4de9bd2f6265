//! The queue of work of a session, and the thread that works through it: one thing after the other.
//!
//! The thread has a scheduler of its own, so that the connection to the model and the engine hand each
//! piece of an answer over without waking another thread. Tools have threads of their own, and so has
//! everything else that waits for files.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use agent_engine::{Engine, EngineError, Interrupt, OwnCall, TurnEnd};
use agent_log::{SessionDirectory, SessionWriter};
use agent_protocol::command::Undo;
use agent_protocol::id::TurnId;
use agent_protocol::reply::{AnswerCode, ControlAnswer, ControlError, Reply};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::options::OnFailure;
use super::report::TurnReport;
use super::{Pending, ended, failed};
use crate::Runtime;
use crate::config::Config;
use crate::error::{Context as _, RuntimeError};
use crate::models::Chosen;

/// Something to do when everything that came before is done.
pub(super) enum Work {
    /// An input that was accepted.
    Turn(TurnId),
    /// A turn that an earlier run left open.
    OpenTurn(TurnId),
    /// The inputs that wait and are not held.
    Queue,
    /// An input that waits and shall not be held, if it is still there.
    Release(TurnId),
    /// A command the user typed.
    Own(Box<OwnCall>),
    /// The models of the next turn.
    Models(Chosen),
    Compact(ReplyTo),
    Undo(Box<Undo>, ReplyTo),
    /// The facts of the last turn.
    Report(Sender<Result<TurnReport, ControlError>>),
}

/// The sender of a command that waits for its reply.
pub(super) type ReplyTo = Sender<Result<Reply, ControlError>>;

/// The thread that works, seen from outside.
pub(super) struct Worker {
    queue: UnboundedSender<Work>,
    thread: JoinHandle<()>,
}

/// Everything the work needs.
pub(super) struct Workplace {
    pub(super) engine: Engine,
    pub(super) runtime: Runtime,
    pub(super) config: Arc<Config>,
    pub(super) directory: SessionDirectory,
    pub(super) writer: SessionWriter,
    pub(super) on_failure: Option<OnFailure>,
}

impl Worker {
    pub(super) fn start(place: Workplace) -> Result<Self, RuntimeError> {
        let (queue, waiting) = unbounded_channel();
        let scheduler = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the session's scheduler")?;
        let mut at_work = AtWork {
            place,
            last: None,
            failure: None,
        };
        let thread = std::thread::Builder::new()
            .name("session".to_owned())
            .spawn(move || {
                scheduler.block_on(at_work.work(waiting));
                drop(at_work);
                // A tool that ignored its cancellation must not keep the process alive.
                scheduler.shutdown_background();
            })
            .context("cannot start the session's thread")?;
        Ok(Self { queue, thread })
    }

    /// Queues work that nobody waits for.
    pub(super) fn send(&self, work: Work) {
        // A worker that has stopped does nothing more; what was recorded waits in the log.
        let _ = self.queue.send(work);
    }

    /// Queues work that has a reply.
    pub(super) fn ask(&self, work: impl FnOnce(ReplyTo) -> Work) -> Pending {
        let (reply, later) = channel();
        self.send(work(reply));
        Pending::Later(later)
    }

    /// Asks for the facts of the last turn, once the work before is done.
    pub(super) fn ask_report(&self) -> Receiver<Result<TurnReport, ControlError>> {
        let (reply, later) = channel();
        self.send(Work::Report(reply));
        later
    }

    /// Waits for the end of the work that is queued; of a session that ends, only what runs is left.
    pub(super) fn join(self) {
        drop(self.queue);
        // A panic of the worker was reported by its own thread.
        let _ = self.thread.join();
    }
}

struct AtWork {
    place: Workplace,
    /// The end of the last turn of this run.
    last: Option<TurnEnd>,
    /// The first thing that could not be recorded.
    failure: Option<ControlError>,
}

impl AtWork {
    async fn work(&mut self, mut waiting: UnboundedReceiver<Work>) {
        while let Some(next) = waiting.recv().await {
            let done = match self.one(next).await {
                Ok(()) => self.queue().await,
                failed => failed,
            };
            if let Err(error) = done {
                let error = failed(&error);
                if let Some(tell) = &self.place.on_failure {
                    tell(&error);
                }
                // Without a record there is no next turn.
                self.place.engine.control().hold_queue();
                self.failure.get_or_insert(error);
            }
        }
    }

    async fn one(&mut self, work: Work) -> Result<(), EngineError> {
        let is_ending = self.place.engine.control().is_ending();
        match work {
            // An input that was accepted begins, and is interrupted at once; what an earlier run left
            // open stays so.
            Work::OpenTurn(_) | Work::Queue | Work::Own(_) if is_ending => {}
            Work::Compact(reply) | Work::Undo(_, reply) if is_ending => {
                let _ = reply.send(Err(ended()));
            }
            Work::Turn(turn_id) => self.turn(turn_id).await?,
            Work::OpenTurn(turn_id) => self.open_turn(turn_id).await?,
            Work::Queue => {}
            Work::Release(turn_id) => self.place.engine.control().release_queued(&turn_id),
            Work::Own(call) => {
                let ran = self.place.engine.run_call(*call, &Interrupt::new()).await?;
                self.settle(ran).await?;
            }
            Work::Models(chosen) => self.place.engine.set_models(chosen.models, chosen.facts),
            Work::Compact(reply) => {
                let compacted = self.place.engine.compact_now(&Interrupt::new()).await;
                let answer = match &compacted {
                    Ok(true) => Ok(Reply::Answer(ControlAnswer::accepted())),
                    Ok(false) => Ok(Reply::Answer(ControlAnswer::no_op(
                        AnswerCode::NothingToCompact,
                        "nothing to compact yet",
                    ))),
                    Err(error) => Err(failed(error)),
                };
                let _ = reply.send(answer);
            }
            Work::Undo(asked, reply) => {
                let _ = reply.send(self.undo(*asked).await);
            }
            Work::Report(reply) => {
                let report = match self.failure.take() {
                    Some(failure) => Err(failure),
                    None => Ok(TurnReport::new(&self.place.engine, self.last.clone())),
                };
                let _ = reply.send(report);
            }
        }
        Ok(())
    }

    async fn turn(&mut self, turn_id: TurnId) -> Result<(), EngineError> {
        let budget = self.place.config.turn_budget();
        let interrupt = Interrupt::new();
        let running = self.place.engine.run_turn(turn_id, budget, &interrupt);
        let end = running.await?;
        self.settle(end).await
    }

    async fn open_turn(&mut self, turn_id: TurnId) -> Result<(), EngineError> {
        let budget = self.place.config.turn_budget();
        let interrupt = Interrupt::new();
        let running = self.place.engine.continue_turn(turn_id, budget, &interrupt);
        let end = running.await?;
        self.settle(end).await
    }

    /// Works on the inputs that wait and are not held.
    async fn queue(&mut self) -> Result<(), EngineError> {
        while !self.place.engine.control().is_ending()
            && let Some(next) = self.place.engine.control().take_next()?
        {
            self.turn(next).await?;
        }
        Ok(())
    }

    /// Inputs that waited during a turn begin when it is completed. After any other end the user may
    /// want something else, so they are held. Room that was asked for during its last request is made now.
    async fn settle(&mut self, end: TurnEnd) -> Result<(), EngineError> {
        let engine = &mut self.place.engine;
        if !matches!(end, TurnEnd::Completed(_)) {
            engine.control().hold_queue();
        }
        self.last = Some(end);
        if engine.was_asked_to_compact() && !engine.control().is_ending() {
            engine.compact_now(&Interrupt::new()).await?;
        }
        Ok(())
    }

    /// Puts files back. It waits for files, and the scheduler must not.
    async fn undo(&self, asked: Undo) -> Result<Reply, ControlError> {
        let place = &self.place;
        let (runtime, writer) = (place.runtime.clone(), place.writer.clone());
        let directory = place.directory.clone();
        let undo = move || super::undo::undo(&runtime, &directory, &writer, &asked, true);
        match tokio::task::spawn_blocking(undo).await {
            Ok(undone) => undone,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
