//! `thread_read_model`: where a thread stands, what it waits for, how its turns went.

use std::collections::BTreeMap;

use agent_protocol::id::{ActionId, TurnId};
use agent_protocol::payload::Usage;
use agent_protocol::payload::conversation::{
    QueueChanged, QueueOperation, QueuePolicy, TurnOutcome, TurnSource, Verification,
};
use agent_protocol::status::Status;
use agent_protocol::{Event, Payload, Timestamp};
use serde::{Deserialize, Serialize};

use super::served::Served;
use super::{Cursor, Fact, Fold, Step, push_bounded};
use agent_text::brief;

const INCIDENTS: usize = 50;
const WAITING: Status = Status::WaitingPermission;
/// The thread of events that name none.
const MAIN: &str = "main";

/// Every thread of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Threads {
    pub cursor: Cursor,
    /// By thread id; events that name no thread belong to `main`.
    pub threads: BTreeMap<String, ThreadReadModel>,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadReadModel {
    pub status: Fact<Status>,
    pub status_reason: Option<String>,
    pub active_turn_id: Option<TurnId>,
    /// Open questions, in the order they were asked.
    pub pending_actions: Vec<ActionId>,
    /// Inputs that wait.
    pub queued: Vec<TurnId>,
    /// The turns, in the order they were submitted.
    pub turns: Vec<TurnBrief>,
    /// Where each turn is in that list.
    places: BTreeMap<TurnId, usize>,
    served: Served,
    pub last_outcome: Option<Status>,
    /// The latest warnings and errors.
    pub incidents: Vec<Incident>,
}

/// One turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnBrief {
    pub turn_id: TurnId,
    /// Terminal only when the log says so.
    pub status: Status,
    pub source: TurnSource,
    /// The first words of the input.
    pub input: String,
    pub submitted_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub first_sequence: u64,
    pub last_sequence: Option<u64>,
    /// The model that answered last, as the server named it; before an answer the one that is asked.
    pub model: Option<String>,
    /// The turn this input became a part of, because it was to steer it. It ends with that turn.
    pub joined_into: Option<TurnId>,
    pub outcome: Option<TurnOutcome>,
    pub stop_reason: Option<String>,
    pub final_text: Option<String>,
    pub verification: Option<Verification>,
    pub files_changed: u64,
    pub usage: Option<Usage>,
    pub cost: Option<f64>,
    pub steps: Option<u64>,
    pub refused_calls: Option<u64>,
    /// Why it failed.
    pub code: Option<String>,
    pub message: Option<String>,
}

/// Something unusual.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    pub sequence: u64,
    pub code: String,
    pub message: String,
    pub is_error: bool,
}

impl Threads {
    /// The thread that works on what the user says.
    #[must_use]
    pub fn main(&self) -> Option<&ThreadReadModel> {
        // The main thread is started first, and ids sort by time.
        self.threads
            .values()
            .find(|thread| !thread.turns.is_empty())
            .or_else(|| self.threads.values().next())
    }

    /// Every turn of the session, in the order they were submitted.
    pub fn turns(&self) -> Vec<&TurnBrief> {
        let mut turns: Vec<_> = self
            .threads
            .values()
            .flat_map(|thread| &thread.turns)
            .collect();
        turns.sort_by_key(|turn| turn.first_sequence);
        turns
    }
}

impl Fold for Threads {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => self.threads.values_mut().for_each(ThreadReadModel::doubt),
            Step::Next => {}
        }
        if !concerns_threads(&event.payload) {
            return;
        }
        let id = event
            .scope
            .thread_id
            .as_ref()
            .map_or(MAIN, |id| id.as_str());
        if !self.threads.contains_key(id) {
            self.threads
                .insert(id.to_owned(), ThreadReadModel::default());
        }
        if let Some(thread) = self.threads.get_mut(id) {
            thread.take(event);
        }
    }
}

fn concerns_threads(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::ThreadStarted(_)
            | Payload::ThreadUpdated(_)
            | Payload::TurnSubmitted(_)
            | Payload::TurnStarted(_)
            | Payload::TurnCompleted(_)
            | Payload::TurnFailed(_)
            | Payload::RunStatus(_)
            | Payload::ActionRequired(_)
            | Payload::ActionResolved(_)
            | Payload::QueueChanged(_)
            | Payload::ModelRequested(_)
            | Payload::ModelCompleted(_)
            | Payload::ContextCompactionStarted(_)
            | Payload::ContextCompactionCompleted(_)
            | Payload::ContextCompactionFailed(_)
            | Payload::RuntimeWarning(_)
            | Payload::RuntimeError(_)
    )
}

impl ThreadReadModel {
    /// A gap may hide the end of whatever was going on.
    fn doubt(&mut self) {
        self.status.doubt();
        for turn in &mut self.turns {
            if !turn.status.is_terminal() {
                turn.status = Status::Unknown;
            }
        }
    }

    fn take(&mut self, event: &Event) {
        let answered = self.served.take(event);
        if let Some(answered) = answered.filter(|answered| !answered.is_aside)
            && let Some(turn) = self.turn_of(event)
        {
            turn.model = Some(answered.model);
        }
        match &event.payload {
            Payload::ThreadStarted(_) => self.status = Fact::Known(Status::Idle),
            Payload::ThreadUpdated(updated) => {
                self.status = Fact::Known(updated.status);
                self.status_reason.clone_from(&updated.status_reason);
                if updated.active_turn_id.is_some() {
                    self.active_turn_id.clone_from(&updated.active_turn_id);
                }
            }
            Payload::RunStatus(status) => {
                self.status = Fact::Known(status.phase);
                self.status_reason.clone_from(&status.detail);
            }
            Payload::ActionRequired(required) => {
                self.pending_actions.extend(event.scope.action_id.clone());
                self.status = Fact::Known(Status::WaitingPermission);
                self.status_reason = Some(required.title.clone());
                if let Some(turn) = self.turn_of(event) {
                    turn.status = Status::WaitingPermission;
                }
            }
            Payload::ActionResolved(_) => {
                self.pending_actions
                    .retain(|id| Some(id) != event.scope.action_id.as_ref());
                if self.pending_actions.is_empty() {
                    self.status = Fact::Known(Status::Running);
                    self.status_reason = None;
                    let turn = self.turn_of(event);
                    if let Some(turn) = turn.filter(|turn| turn.status == WAITING) {
                        turn.status = Status::Running;
                    }
                }
            }
            Payload::QueueChanged(queue) => self.take_queue(event, queue),
            Payload::ModelRequested(_)
            | Payload::ModelCompleted(_)
            | Payload::ContextCompactionStarted(_)
            | Payload::ContextCompactionCompleted(_)
            | Payload::ContextCompactionFailed(_) => {}
            Payload::RuntimeWarning(warning) => {
                self.note(event, &warning.code, &warning.message, false);
            }
            Payload::RuntimeError(error) => self.note(event, &error.code, &error.message, true),
            _ => self.take_turn(event),
        }
    }

    /// The turn an event belongs to, if it is known.
    fn turn_of(&mut self, event: &Event) -> Option<&mut TurnBrief> {
        let index = self.places.get(event.scope.turn_id.as_ref()?)?;
        self.turns.get_mut(*index)
    }

    /// An input that steers becomes a part of the running turn, and one that is taken out of the
    /// queue will not be worked on: neither waits any more.
    fn take_queue(&mut self, event: &Event, queue: &QueueChanged) {
        self.queued.clone_from(&queue.order);
        let place = queue.queued_turn_id.as_ref();
        let place = place.and_then(|turn| self.places.get(turn));
        let Some(turn) = place.and_then(|place| self.turns.get_mut(*place)) else {
            return;
        };
        match (queue.op, queue.policy) {
            (QueueOperation::Started, QueuePolicy::Steer) => {
                let into = event.scope.turn_id.clone();
                turn.joined_into = into.filter(|into| *into != turn.turn_id);
                if turn.joined_into.is_some() {
                    turn.status = Status::Running;
                    turn.started_at = Some(event.timestamp);
                }
            }
            (QueueOperation::Removed, _) => {
                turn.status = Status::Cancelled;
                turn.ended_at = Some(event.timestamp);
                turn.last_sequence = Some(event.sequence);
            }
            _ => {}
        }
    }

    fn note(&mut self, event: &Event, code: &str, message: &str, is_error: bool) {
        let incident = Incident {
            sequence: event.sequence,
            code: code.to_owned(),
            message: brief(message, 500),
            is_error,
        };
        push_bounded(&mut self.incidents, incident, INCIDENTS);
    }

    fn take_turn(&mut self, event: &Event) {
        let Some(turn_id) = &event.scope.turn_id else {
            return;
        };
        let index = match self.places.get(turn_id) {
            Some(index) if *index < self.turns.len() => *index,
            _ => {
                self.places.insert(turn_id.clone(), self.turns.len());
                self.turns.push(TurnBrief {
                    turn_id: turn_id.clone(),
                    first_sequence: event.sequence,
                    ..TurnBrief::default()
                });
                self.turns.len() - 1
            }
        };
        let turn = &mut self.turns[index];
        match &event.payload {
            Payload::TurnSubmitted(submitted) => {
                turn.status = submitted.status;
                turn.source = submitted.source;
                turn.input = brief(submitted.text.as_deref().unwrap_or_default(), 200);
                turn.submitted_at = Some(event.timestamp);
            }
            Payload::TurnStarted(started) => {
                turn.status = Status::Running;
                turn.started_at = Some(event.timestamp);
                turn.model = Some(started.model.clone());
                self.active_turn_id = Some(turn_id.clone());
                self.status = Fact::Known(Status::Running);
            }
            Payload::TurnCompleted(completed) => {
                turn.status = Status::Completed;
                turn.outcome = Some(completed.outcome);
                turn.stop_reason = Some(completed.stop_reason.clone());
                turn.final_text = completed.final_text.as_deref().map(|text| brief(text, 500));
                turn.verification = Some(completed.verification.clone());
                turn.files_changed = completed.files_changed.len() as u64;
                turn.usage = Some(completed.usage.clone());
                turn.cost = completed.cost;
                turn.steps = completed.steps;
                turn.refused_calls = completed.refused_calls;
                self.end_turn(index, event);
            }
            Payload::TurnFailed(failed) => {
                turn.status = if failed.status.is_terminal() {
                    failed.status
                } else {
                    Status::Failed
                };
                turn.code = Some(failed.code.clone());
                turn.message = Some(brief(&failed.message, 500));
                turn.files_changed = failed.files_changed.len() as u64;
                turn.usage.clone_from(&failed.usage);
                turn.cost = failed.cost;
                self.end_turn(index, event);
            }
            _ => {}
        }
    }

    fn end_turn(&mut self, index: usize, event: &Event) {
        let turn = &mut self.turns[index];
        turn.ended_at = Some(event.timestamp);
        turn.last_sequence = Some(event.sequence);
        self.last_outcome = Some(turn.status);
        let ended = turn.clone();
        for joined in &mut self.turns {
            if joined.joined_into.as_ref() == Some(&ended.turn_id) {
                joined.status = ended.status;
                joined.outcome = ended.outcome;
                joined.stop_reason.clone_from(&ended.stop_reason);
                joined.code.clone_from(&ended.code);
                joined.message.clone_from(&ended.message);
                joined.ended_at = ended.ended_at;
                joined.last_sequence = ended.last_sequence;
            }
        }
        let turn = &self.turns[index];
        if self.active_turn_id.as_ref() == Some(&turn.turn_id) {
            self.active_turn_id = None;
        }
        self.status = Fact::Known(Status::Idle);
        self.status_reason = None;
    }
}
