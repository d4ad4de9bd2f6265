//! Turns of a session that wait and the one that runs. It can be used from any thread while a turn
//! runs; what it accepts is in the log before the answer is given.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::command::{InterruptReason, InterruptTurn, RespondAction, SubmitTurn};
use agent_protocol::id::{ArtifactId, ThreadId, TurnId};
use agent_protocol::payload::conversation::{
    ArtifactKind, QueueChanged, QueueOperation, QueuePolicy, TurnSource, TurnSubmitted,
};
use agent_protocol::reply::{Acknowledgement, AnswerCode, ControlAnswer};
use agent_protocol::status::{Status, Thinking};
use agent_protocol::{Payload, Refs, Scope};
use agent_tool_runtime::{Journal, JournalError};

use crate::approvals::PendingApprovals;
use crate::interrupt::Interrupt;

/// Text that stands in an event; longer text goes into an artifact.
pub(crate) const INLINE_TEXT: usize = 24 * 1024;

/// An input that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub turn_id: TurnId,
    pub policy: QueuePolicy,
    /// True if it waits for the user's word, and not only for its turn.
    pub held: bool,
}

/// The work that resuming a session begins with.
#[derive(Clone, Debug, PartialEq)]
pub enum Resumed {
    /// A turn that an earlier run left open.
    OpenTurn(TurnId),
    /// An input that waits.
    Input(TurnId),
    /// There is none; the answer says why.
    Nothing(ControlAnswer),
}

/// The turns of one session, and the questions they wait for.
pub struct Control {
    journal: Arc<dyn Journal>,
    thread_id: ThreadId,
    approvals: Arc<PendingApprovals>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    running: Option<(TurnId, Interrupt)>,
    /// A turn that an earlier run left open; it is resumed before any other begins.
    left_open: Option<TurnId>,
    /// The session ends: a turn that begins is interrupted at once.
    ending: Option<InterruptReason>,
    queue: Vec<Queued>,
    /// The user wants room made before the next request.
    compact: bool,
    /// The user's own word on how much the model may think, where there is one.
    thinking: Option<Thinking>,
    /// The turn that each key led to which was ever used.
    keys: HashMap<String, TurnId>,
}

impl Control {
    /// The control of a thread in which the log shows `queue` to be waiting.
    #[must_use]
    pub fn new(
        journal: Arc<dyn Journal>,
        thread_id: ThreadId,
        approvals: Arc<PendingApprovals>,
        queue: Vec<Queued>,
    ) -> Self {
        let inner = Mutex::new(Inner {
            queue,
            ..Inner::default()
        });
        Self {
            journal,
            thread_id,
            approvals,
            inner,
        }
    }

    /// Adds the keys of inputs that were submitted before, as the log shows them.
    #[must_use]
    pub fn knowing(self, keys: HashMap<String, TurnId>) -> Self {
        self.inner().keys = keys;
        self
    }

    /// Adds a turn that an earlier run left open. Inputs wait behind it.
    #[must_use]
    pub fn behind(self, left_open: Option<TurnId>) -> Self {
        self.inner().left_open = left_open;
        self
    }

    /// The questions that wait for an answer.
    #[must_use]
    pub fn approvals(&self) -> &Arc<PendingApprovals> {
        &self.approvals
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
        let mut inner = self.inner();
        let busy = inner.running.is_some()
            || inner.left_open.is_some()
            || inner.queue.iter().any(|queued| !queued.held);
        if let Some(key) = &submit.idempotency_key
            && let Some(turn_id) = inner.keys.get(key)
        {
            let before = "this input was submitted before";
            return Ok(
                ControlAnswer::no_op(AnswerCode::SubmittedBefore, before).of_turn(turn_id.clone())
            );
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
            ..ControlAnswer::default()
        })
    }

    /// Stops the running turn; says so when there is none.
    pub fn interrupt(&self, command: &InterruptTurn) -> ControlAnswer {
        let inner = self.inner();
        match &inner.running {
            Some((running, interrupt))
                if command
                    .turn_id
                    .as_ref()
                    .is_none_or(|wanted| wanted == running) =>
            {
                interrupt.raise(command.reason);
                accepted(running)
            }
            _ => ControlAnswer::no_op(AnswerCode::NoSuchTurn, "no such turn is running"),
        }
    }

    /// Answers an open question, after `prepare`; see [`PendingApprovals::respond`].
    pub fn respond(
        &self,
        response: RespondAction,
        prepare: impl FnOnce(&mut RespondAction),
    ) -> ControlAnswer {
        self.approvals.respond(response, prepare)
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
            return Ok(no_such_input());
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

    /// Holds the inputs that wait now: each waits until it is promoted. For inputs whose reason may be
    /// gone, because the turn before them did not end well or the program was started anew.
    pub fn hold_queue(&self) {
        for queued in &mut self.inner().queue {
            queued.held = true;
        }
    }

    /// Lets an input begin that was held, in its place of the queue.
    pub fn release_queued(&self, turn_id: &TurnId) {
        let mut inner = self.inner();
        let mut queue = inner.queue.iter_mut();
        if let Some(queued) = queue.find(|queued| queued.turn_id == *turn_id) {
            queued.held = false;
        }
    }

    /// Puts an input at the head of the queue, held or not. While a turn runs it is next; otherwise
    /// [`Control::take_next`] gives it now.
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
            return Ok(no_such_input());
        };
        let mut promoted = inner.queue.remove(at);
        let policy = promoted.policy;
        promoted.held = false;
        inner.queue.insert(0, promoted);
        self.queue_changed(&inner, QueueOperation::Promoted, turn_id, policy)?;
        Ok(accepted(turn_id))
    }

    /// The turn or input to resume with: a turn that was left open, which is taken by this, or else the
    /// first input that is not held.
    pub fn take_resumed(&self) -> Resumed {
        let inner = self.inner();
        if inner.running.is_some() {
            return Resumed::Nothing(ControlAnswer::no_op(
                AnswerCode::TurnIsRunning,
                "a turn is running",
            ));
        }
        if let Some(turn_id) = inner.left_open.clone() {
            return Resumed::OpenTurn(turn_id);
        }
        match inner.queue.iter().find(|queued| !queued.held) {
            Some(first) => Resumed::Input(first.turn_id.clone()),
            None => Resumed::Nothing(ControlAnswer::no_op(
                AnswerCode::NothingWaits,
                "nothing waits",
            )),
        }
    }

    /// Has older history summarised before the next model request, or behind the turn that runs when it has
    /// none any more; nothing when no turn runs.
    pub fn ask_to_compact(&self) -> Option<ControlAnswer> {
        let mut inner = self.inner();
        inner.compact |= inner.running.is_some();
        inner.running.is_some().then(|| ControlAnswer {
            reason: Some("room is made before the next request".to_owned()),
            ..ControlAnswer::accepted()
        })
    }

    /// Lets the model think so much from the next request on.
    pub fn set_thinking(&self, thinking: Thinking) {
        self.inner().thinking = Some(thinking);
    }

    pub(crate) fn thinking(&self) -> Option<Thinking> {
        self.inner().thinking
    }

    pub(crate) fn take_compact(&self) -> bool {
        std::mem::take(&mut self.inner().compact)
    }

    /// True while a turn is being worked on.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.inner().running.is_some()
    }

    /// Stops the turn that runs, and every one that begins from now on: the session ends.
    pub fn end(&self, reason: InterruptReason) {
        let mut inner = self.inner();
        inner.ending.get_or_insert(reason);
        if let Some((_, interrupt)) = &inner.running {
            interrupt.raise(reason);
        }
    }

    /// True once [`Control::end`] was called.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.inner().ending.is_some()
    }

    /// The inputs that wait, in order.
    #[must_use]
    pub fn queue(&self) -> Vec<Queued> {
        self.inner().queue.clone()
    }

    /// Marks a turn as running; [`Control::interrupt`] raises its handle.
    pub fn turn_runs(&self, turn_id: &TurnId, interrupt: &Interrupt) {
        let mut inner = self.inner();
        inner.left_open.take_if(|open| open == turn_id);
        inner.running = Some((turn_id.clone(), interrupt.clone()));
        if let Some(reason) = inner.ending {
            interrupt.raise(reason);
        }
    }

    /// Marks the running turn as ended.
    pub fn turn_ended(&self) {
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

fn no_such_input() -> ControlAnswer {
    ControlAnswer::no_op(AnswerCode::NoSuchInput, "no such input is waiting")
}

fn accepted(turn_id: &TurnId) -> ControlAnswer {
    ControlAnswer::accepted().of_turn(turn_id.clone())
}
