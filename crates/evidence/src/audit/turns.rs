//! Whether every turn begins once, ends once, and asks the model only with what it needs.

use std::collections::{HashMap, HashSet};

use agent_protocol::id::{ModelRequestId, TurnId};
use agent_protocol::payload::conversation::{QueueOperation, QueuePolicy};
use agent_protocol::payload::permission::DecidedBy;
use agent_protocol::{Event, Payload};

use super::AuditReport;

#[derive(Default)]
pub(super) struct TurnCheck {
    open: HashMap<TurnId, OpenTurn>,
    ended: HashSet<TurnId>,
    requests: HashMap<ModelRequestId, u64>,
    pending_actions: HashMap<String, u64>,
}

#[derive(Default)]
struct OpenTurn {
    first_sequence: u64,
    is_submitted: bool,
    is_started: bool,
    has_catalog: bool,
    has_context: bool,
}

impl TurnCheck {
    pub(super) fn count(&self) -> u64 {
        (self.open.len() + self.ended.len()) as u64
    }

    pub(super) fn has_ended(&self, turn_id: &TurnId) -> bool {
        self.ended.contains(turn_id)
    }

    pub(super) fn take(&mut self, event: &Event, report: &mut AuditReport) {
        self.take_request(event, report);
        self.take_action(event, report);
        self.take_queue(event);
        let Some(turn_id) = &event.scope.turn_id else {
            if concerns_a_turn(&event.payload) {
                let message = format!("`{}` names no turn", event.payload.type_name());
                report.error_at(event, "turn_missing", message);
            }
            return;
        };
        if self.ended.contains(turn_id) {
            if concerns_a_turn(&event.payload) || begins_work(&event.payload) {
                let message = format!(
                    "`{}` after turn {turn_id} had ended",
                    event.payload.type_name()
                );
                report.error_at(event, "event_after_turn_end", message);
            }
            return;
        }
        let turn = self
            .open
            .entry(turn_id.clone())
            .or_insert_with(|| OpenTurn {
                first_sequence: event.sequence,
                ..OpenTurn::default()
            });
        let problem = match &event.payload {
            Payload::TurnSubmitted(_) if turn.is_submitted => {
                Some(("turn_submitted_twice", "is submitted twice"))
            }
            Payload::TurnSubmitted(_) => {
                turn.is_submitted = true;
                None
            }
            Payload::TurnStarted(_) if !turn.is_submitted => {
                Some(("turn_not_submitted", "is started but was never submitted"))
            }
            Payload::TurnStarted(_) if turn.is_started => {
                Some(("turn_started_twice", "is started twice"))
            }
            Payload::TurnStarted(_) => {
                turn.is_started = true;
                None
            }
            Payload::ToolCatalogResolved(_) => {
                turn.has_catalog = true;
                None
            }
            Payload::ContextResolved(_) => {
                turn.has_context = true;
                None
            }
            Payload::ModelRequested(requested) if requested.attempt <= 1 => {
                let had_context = std::mem::take(&mut turn.has_context);
                if !turn.has_catalog {
                    Some((
                        "model_without_catalog",
                        "asks the model before its tools are resolved",
                    ))
                } else if !had_context {
                    Some((
                        "model_without_context",
                        "asks the model before its input is resolved",
                    ))
                } else {
                    None
                }
            }
            Payload::TurnCompleted(_) if !turn.is_started => {
                self.end(turn_id);
                Some(("turn_not_started", "is completed but was never started"))
            }
            Payload::TurnFailed(_) if !turn.is_submitted => {
                self.end(turn_id);
                Some(("turn_not_submitted", "failed but was never submitted"))
            }
            Payload::TurnCompleted(_) | Payload::TurnFailed(_) => {
                self.end(turn_id);
                None
            }
            _ => None,
        };
        if let Some((code, what)) = problem {
            report.error_at(event, code, format!("turn {turn_id} {what}"));
        }
    }

    /// An input that joined a running turn ends with it, and one that was taken out of the queue
    /// never begins.
    fn take_queue(&mut self, event: &Event) {
        let Payload::QueueChanged(changed) = &event.payload else {
            return;
        };
        let joins = changed.op == QueueOperation::Started
            && changed.policy == QueuePolicy::Steer
            && changed.queued_turn_id != event.scope.turn_id;
        let Some(turn_id) = &changed.queued_turn_id else {
            return;
        };
        let waits = |turn: &OpenTurn| turn.is_submitted && !turn.is_started;
        if (joins || changed.op == QueueOperation::Removed)
            && self.open.get(turn_id).is_some_and(waits)
        {
            self.end(turn_id);
        }
    }

    fn end(&mut self, turn_id: &TurnId) {
        self.open.remove(turn_id);
        self.ended.insert(turn_id.clone());
    }

    fn take_request(&mut self, event: &Event, report: &mut AuditReport) {
        let ended = match &event.payload {
            Payload::ModelRequested(requested) => {
                self.requests
                    .insert(requested.model_request_id.clone(), event.sequence);
                return;
            }
            Payload::ModelCompleted(completed) => &completed.model_request_id,
            Payload::ModelFailed(failed) => &failed.model_request_id,
            _ => return,
        };
        if self.requests.remove(ended).is_none() {
            let message = format!("request {ended} ends but is not open");
            report.error_at(event, "model_end_without_request", message);
        }
    }

    fn take_action(&mut self, event: &Event, report: &mut AuditReport) {
        let Some(action_id) = &event.scope.action_id else {
            return;
        };
        match &event.payload {
            Payload::ActionRequired(_) => {
                self.pending_actions
                    .insert(action_id.to_string(), event.sequence);
            }
            Payload::ActionResolved(resolved) => {
                let was_pending = self.pending_actions.remove(action_id.as_str()).is_some();
                // What policy decides at once may be resolved without anyone having been asked.
                if !was_pending && resolved.decided_by != DecidedBy::Policy {
                    let message = format!("action {action_id} is answered but is not open");
                    report.error_at(event, "action_not_open", message);
                }
            }
            _ => {}
        }
    }

    pub(super) fn finish(&self, report: &mut AuditReport) {
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_by_key(|(_, turn)| turn.first_sequence);
        for (turn_id, turn) in open {
            let what = if turn.is_started {
                "has not ended"
            } else {
                "has not started"
            };
            report.note(
                "open_turn",
                Some(turn.first_sequence),
                format!("turn {turn_id} {what}"),
            );
        }
        for (request, sequence) in &self.requests {
            report.note(
                "open_request",
                Some(*sequence),
                format!("model request {request} has not ended"),
            );
        }
        for (action, sequence) in &self.pending_actions {
            report.note(
                "open_action",
                Some(*sequence),
                format!("action {action} waits for an answer"),
            );
        }
    }
}

fn concerns_a_turn(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::TurnSubmitted(_)
            | Payload::TurnStarted(_)
            | Payload::TurnCompleted(_)
            | Payload::TurnFailed(_)
    )
}

fn begins_work(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::ModelRequested(_) | Payload::ToolIntent(_) | Payload::ToolStarted(_)
    )
}
