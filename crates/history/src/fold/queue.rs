//! `queue`: inputs that wait, and in which order.

use agent_protocol::id::{ArtifactId, TurnId};
use agent_protocol::payload::conversation::{QueueOperation, QueuePolicy, TurnSource};
use agent_protocol::status::Status;
use agent_protocol::{Event, Payload, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Cursor, Fact, Fold, Step};

/// The inputs that wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    pub cursor: Cursor,
    /// In the order they will run.
    pub turns: Vec<QueuedTurn>,
    /// Whether the order is as the log last said.
    pub order: Fact<Vec<TurnId>>,
}

/// An input that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedTurn {
    pub turn_id: TurnId,
    pub source: TurnSource,
    pub policy: QueuePolicy,
    pub text: Option<String>,
    pub input_ref: Option<ArtifactId>,
    pub submitted_at: Option<Timestamp>,
}

impl Fold for QueueSnapshot {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => self.order.doubt(),
            Step::Next => {}
        }
        match &event.payload {
            Payload::TurnSubmitted(submitted) if submitted.status == Status::Queued => {
                let Some(turn_id) = &event.scope.turn_id else {
                    return;
                };
                self.turns.retain(|turn| turn.turn_id != *turn_id);
                self.turns.push(QueuedTurn {
                    turn_id: turn_id.clone(),
                    source: submitted.source,
                    policy: QueuePolicy::Queue,
                    text: submitted.text.clone(),
                    input_ref: submitted.input_ref.clone(),
                    submitted_at: Some(event.timestamp),
                });
                self.remember_order();
            }
            Payload::QueueChanged(changed) => {
                for turn in &mut self.turns {
                    if Some(&turn.turn_id) == changed.queued_turn_id.as_ref() {
                        turn.policy = changed.policy;
                    }
                }
                if changed.op == QueueOperation::Cleared {
                    self.turns.clear();
                } else {
                    let place = |id: &TurnId| changed.order.iter().position(|other| other == id);
                    self.turns.retain(|turn| place(&turn.turn_id).is_some());
                    self.turns.sort_by_key(|turn| place(&turn.turn_id));
                }
                self.remember_order();
            }
            Payload::TurnStarted(_) | Payload::TurnCompleted(_) | Payload::TurnFailed(_) => {
                if let Some(turn_id) = &event.scope.turn_id {
                    let before = self.turns.len();
                    self.turns.retain(|turn| turn.turn_id != *turn_id);
                    if self.turns.len() != before {
                        self.remember_order();
                    }
                }
            }
            _ => {}
        }
    }
}

impl QueueSnapshot {
    fn remember_order(&mut self) {
        self.order = Fact::Known(self.turns.iter().map(|turn| turn.turn_id.clone()).collect());
    }
}
