//! The order of calls. A [`Batch`] takes the calls of one step as they come; its coordinator runs
//! them on threads: reading neighbours side by side, everything else alone and in order. What a call
//! left is recorded in call order, whoever was first.

mod coordinator;
mod launch;
mod workers;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use agent_protocol::Scope;
use agent_protocol::id::ActionId;

use self::coordinator::Coordinator;
pub(crate) use self::workers::Workers;
use crate::call::panic_words;
use crate::cancel::Cancel;
use crate::intent::ToolIntent;
use crate::journal::JournalError;
use crate::observation::Outcome;
use crate::open_call::OpenCall;
use crate::pipeline::Shared;
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
    Continue(Box<OpenCall>),
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
        let submitted = intents.into_iter().map(Message::Submit);
        Self::run_messages(shared, scope, cancel, submitted)
    }

    /// Takes a call up again that waited for an answer, on this thread.
    pub(crate) fn continue_here(
        shared: Arc<Shared>,
        cancel: &Cancel,
        open: OpenCall,
    ) -> Result<BatchReport, JournalError> {
        let scope = open.scope.clone();
        Self::run_messages(shared, scope, cancel, [Message::Continue(Box::new(open))])
    }

    fn run_messages(
        shared: Arc<Shared>,
        scope: Scope,
        cancel: &Cancel,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<BatchReport, JournalError> {
        let coordinator = Coordinator::new(shared, scope, cancel, Box::new(|_| {}));
        for message in messages {
            let _ = coordinator.messages.send(message);
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
