//! The way in: commands that change something, each with a typed answer. It can be used from any
//! thread while a turn runs; what it accepts is in the log before the answer is given.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::command::{
    Acknowledgement, ControlAnswer, InterruptTurn, RespondAction, SubmitTurn,
};
use agent_protocol::id::{ArtifactId, ThreadId, TurnId};
use agent_protocol::payload::conversation::{
    ArtifactKind, QueueChanged, QueueOperation, QueuePolicy, TurnSource, TurnSubmitted,
};
use agent_protocol::status::Status;
use agent_protocol::{Payload, Refs, Scope};
use agent_tool_runtime::{Journal, JournalError};

use crate::desk::Desk;
use crate::interrupt::{Interrupt, InterruptReason};

/// Text that stands in an event; longer text goes into an artifact.
pub(crate) const INLINE_TEXT: usize = 24 * 1024;

/// An input that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub turn_id: TurnId,
    pub policy: QueuePolicy,
    /// Whether it waits for the user's word, and not only for its turn.
    pub held: bool,
}

/// The control plane of one session.
pub struct Control {
    journal: Arc<dyn Journal>,
    thread_id: ThreadId,
    desk: Arc<Desk>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    running: Option<(TurnId, Interrupt)>,
    queue: Vec<Queued>,
    /// What every key that was ever used led to.
    keys: HashMap<String, TurnId>,
    /// The user wants room made before the next request.
    compact: bool,
}

impl Control {
    /// `queue` is what the log shows to be waiting.
    #[must_use]
    pub fn new(
        journal: Arc<dyn Journal>,
        thread_id: ThreadId,
        desk: Arc<Desk>,
        queue: Vec<Queued>,
    ) -> Self {
        let inner = Mutex::new(Inner {
            queue,
            ..Inner::default()
        });
        Self {
            journal,
            thread_id,
            desk,
            inner,
        }
    }

    /// Knows the keys of inputs that were submitted before, as the log shows them.
    #[must_use]
    pub fn knowing(self, keys: HashMap<String, TurnId>) -> Self {
        self.inner().keys = keys;
        self
    }

    /// Where open questions wait.
    #[must_use]
    pub fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Records an input. It is queued while a turn runs or others are about to, and accepted
    /// otherwise.
    ///
    /// # Errors
    /// When the log cannot be written; the input is then not accepted.
    pub fn submit(
        &self,
        submit: SubmitTurn,
        source: TurnSource,
    ) -> Result<ControlAnswer, JournalError> {
        let inner = self.inner();
        let is_busy = inner.running.is_some() || inner.queue.iter().any(|queued| !queued.held);
        self.take(inner, submit, source, is_busy)
    }

    /// Records an input that waits behind a turn which is about to go on.
    ///
    /// # Errors
    /// As [`Control::submit`].
    pub fn enqueue(
        &self,
        submit: SubmitTurn,
        source: TurnSource,
    ) -> Result<ControlAnswer, JournalError> {
        self.take(self.inner(), submit, source, true)
    }

    fn take(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        submit: SubmitTurn,
        source: TurnSource,
        busy: bool,
    ) -> Result<ControlAnswer, JournalError> {
        if let Some(key) = &submit.idempotency_key
            && let Some(turn_id) = inner.keys.get(key)
        {
            return Ok(ControlAnswer {
                acknowledgement: Acknowledgement::NoOp,
                turn_id: Some(turn_id.clone()),
                reason: Some("this input was submitted before".to_owned()),
            });
        }
        let turn_id: TurnId = self.journal.ids().mint();
        let scope = self.scope(&turn_id);
        let (text, input_ref) = self.text_or_artifact(&scope, submit.text)?;
        let key = submit.idempotency_key.clone();
        let submitted = TurnSubmitted {
            text,
            input_ref,
            input_parts: submit.parts,
            source,
            status: if busy {
                Status::Queued
            } else {
                Status::Accepted
            },
            idempotency_key: submit.idempotency_key,
        };
        self.append(&scope, submitted)?;
        // What is not in the log was not submitted, so its key may come again.
        if let Some(key) = key {
            inner.keys.insert(key, turn_id.clone());
        }
        if busy {
            inner.queue.push(Queued {
                turn_id: turn_id.clone(),
                policy: submit.when_busy,
                held: false,
            });
            self.queue_changed(&inner, QueueOperation::Added, &turn_id, submit.when_busy)?;
        }
        self.journal.sync()?;
        Ok(ControlAnswer {
            acknowledgement: if busy {
                Acknowledgement::Queued
            } else {
                Acknowledgement::Accepted
            },
            turn_id: Some(turn_id),
            reason: None,
        })
    }

    /// Stops the running turn; says so when there is none.
    pub fn interrupt(&self, command: &InterruptTurn, reason: InterruptReason) -> ControlAnswer {
        let inner = self.inner();
        match &inner.running {
            Some((running, interrupt))
                if command
                    .turn_id
                    .as_ref()
                    .is_none_or(|wanted| wanted == running) =>
            {
                interrupt.raise(reason);
                ControlAnswer {
                    acknowledgement: Acknowledgement::Accepted,
                    turn_id: Some(running.clone()),
                    reason: None,
                }
            }
            _ => no_op("no such turn is running"),
        }
    }

    /// Answers an open question.
    pub fn respond(&self, response: RespondAction) -> ControlAnswer {
        self.desk.respond(response)
    }

    /// Takes an input out of the queue.
    ///
    /// # Errors
    /// When the log cannot be written; the queue is then as before.
    pub fn remove_queued(&self, turn_id: &TurnId) -> Result<ControlAnswer, JournalError> {
        let mut inner = self.inner();
        let Some(at) = inner
            .queue
            .iter()
            .position(|queued| queued.turn_id == *turn_id)
        else {
            return Ok(no_op("no such input is waiting"));
        };
        let removed = inner.queue.remove(at);
        if let Err(error) =
            self.queue_changed(&inner, QueueOperation::Removed, turn_id, removed.policy)
        {
            inner.queue.insert(at, removed);
            return Err(error);
        }
        Ok(accepted(turn_id))
    }

    /// What waits now does not begin by itself any more: each input waits until it is promoted. For
    /// inputs whose reason may be gone, because the turn before them did not end well or the program
    /// was started anew.
    pub fn hold_queue(&self) {
        for queued in &mut self.inner().queue {
            queued.held = true;
        }
    }

    /// Puts an input at the head of the queue, held or not. While a turn runs it is next; otherwise whoever
    /// drives the engine takes it with [`Control::take_next`] and runs it now.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn promote_queued(&self, turn_id: &TurnId) -> Result<ControlAnswer, JournalError> {
        let mut inner = self.inner();
        let Some(at) = inner
            .queue
            .iter()
            .position(|queued| queued.turn_id == *turn_id)
        else {
            return Ok(no_op("no such input is waiting"));
        };
        let mut promoted = inner.queue.remove(at);
        let policy = promoted.policy;
        promoted.held = false;
        inner.queue.insert(0, promoted);
        self.queue_changed(&inner, QueueOperation::Promoted, turn_id, policy)?;
        Ok(accepted(turn_id))
    }

    /// Whether a turn is being worked on.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.inner().running.is_some()
    }

    /// Says what there is to go on with: the first input that waits.
    #[must_use]
    pub fn resume(&self) -> ControlAnswer {
        let inner = self.inner();
        match (&inner.running, inner.queue.first()) {
            (Some(_), _) => no_op("a turn is running"),
            (None, Some(first)) => accepted(&first.turn_id),
            (None, None) => no_op("nothing waits"),
        }
    }

    /// Has older history summarised before the next model request.
    pub fn ask_to_compact(&self) -> ControlAnswer {
        self.inner().compact = true;
        ControlAnswer {
            acknowledgement: Acknowledgement::Accepted,
            turn_id: None,
            reason: Some("room is made before the next request".to_owned()),
        }
    }

    pub(crate) fn take_compact(&self) -> bool {
        std::mem::take(&mut self.inner().compact)
    }

    /// The inputs that wait, in order.
    #[must_use]
    pub fn queue(&self) -> Vec<Queued> {
        self.inner().queue.clone()
    }

    /// Marks a turn as running; its handle is what [`Control::interrupt`] raises.
    pub(crate) fn turn_runs(&self, turn_id: &TurnId, interrupt: &Interrupt) {
        self.inner().running = Some((turn_id.clone(), interrupt.clone()));
    }

    pub(crate) fn turn_ended(&self) {
        self.inner().running = None;
    }

    /// Takes the next input that is not held, and records that work on it begins.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn take_next(&self) -> Result<Option<TurnId>, JournalError> {
        let mut inner = self.inner();
        let Some(at) = inner.queue.iter().position(|queued| !queued.held) else {
            return Ok(None);
        };
        let next = inner.queue.remove(at);
        self.queue_changed(
            &inner,
            QueueOperation::Started,
            &next.turn_id,
            QueuePolicy::Queue,
        )?;
        Ok(Some(next.turn_id))
    }

    /// Takes the inputs that shall join the running turn, and records it in the turn's scope.
    pub(crate) fn take_steering(&self, scope: &Scope) -> Result<(), JournalError> {
        let mut inner = self.inner();
        let joins = |queued: &Queued| queued.policy == QueuePolicy::Steer && !queued.held;
        while let Some(at) = inner.queue.iter().position(joins) {
            let next = inner.queue.remove(at);
            let changed = QueueChanged {
                op: QueueOperation::Started,
                queued_turn_id: Some(next.turn_id),
                order: order(&inner),
                policy: QueuePolicy::Steer,
            };
            self.append(scope, changed)?;
        }
        Ok(())
    }

    pub(crate) fn text_or_artifact(
        &self,
        scope: &Scope,
        text: String,
    ) -> Result<(Option<String>, Option<ArtifactId>), JournalError> {
        if text.len() <= INLINE_TEXT {
            return Ok((Some(text), None));
        }
        let kept = self.journal.put_artifact(
            scope,
            ArtifactKind::UserInput,
            "text/plain",
            text.as_bytes(),
            "",
        )?;
        Ok((None, Some(kept.artifact_id)))
    }

    fn queue_changed(
        &self,
        inner: &Inner,
        op: QueueOperation,
        turn_id: &TurnId,
        policy: QueuePolicy,
    ) -> Result<(), JournalError> {
        let changed = QueueChanged {
            op,
            queued_turn_id: Some(turn_id.clone()),
            order: order(inner),
            policy,
        };
        self.append(&self.scope(turn_id), changed)
    }

    fn scope(&self, turn_id: &TurnId) -> Scope {
        Scope {
            thread_id: Some(self.thread_id.clone()),
            turn_id: Some(turn_id.clone()),
            ..Scope::default()
        }
    }

    fn append(&self, scope: &Scope, payload: impl Into<Payload>) -> Result<(), JournalError> {
        self.journal
            .append(scope, payload.into(), Refs::default())
            .map(|_| ())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn order(inner: &Inner) -> Vec<TurnId> {
    inner
        .queue
        .iter()
        .map(|queued| queued.turn_id.clone())
        .collect()
}

fn no_op(reason: &str) -> ControlAnswer {
    ControlAnswer {
        acknowledgement: Acknowledgement::NoOp,
        turn_id: None,
        reason: Some(reason.to_owned()),
    }
}

fn accepted(turn_id: &TurnId) -> ControlAnswer {
    ControlAnswer {
        acknowledgement: Acknowledgement::Accepted,
        turn_id: Some(turn_id.clone()),
        reason: None,
    }
}
