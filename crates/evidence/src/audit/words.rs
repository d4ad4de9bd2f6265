//! What was said: that the answers of a turn hang together with what streamed in, with the calls
//! that came of them, and with what the turn says at its end.

use std::collections::{HashMap, HashSet};

use agent_protocol::id::{ArtifactId, ModelRequestId, ToolCallId};
use agent_protocol::payload::Usage;
use agent_protocol::payload::conversation::{TurnCompleted, TurnOutcome};
use agent_protocol::payload::model::{ModelCompleted, ModelDelta};
use agent_protocol::status::VerificationStatus;
use agent_protocol::{Event, Payload, Phase};

use super::AuditReport;

/// How a turn ends that asked no model: `agent call` gives it the calls of its caller.
const CALLS_ONLY: &str = "end_of_calls";

#[derive(Default)]
pub(super) struct WordCheck {
    turn: Turn,
    /// What streamed in of the answers that are not whole, piece by piece.
    pieces: HashMap<ModelRequestId, Vec<ModelDelta>>,
    /// Calls that answers announced and that have not been asked for yet.
    announced: HashSet<ToolCallId>,
    has_compacted: bool,
}

/// What the running turn has come to.
#[derive(Default)]
struct Turn {
    last: Option<LastAnswer>,
    usage: Usage,
    refused: u64,
    /// Requests without an answer.
    open: HashMap<ModelRequestId, u64>,
}

#[derive(Default)]
struct LastAnswer {
    /// The answers that it continues, while their text is in the log.
    before: String,
    text: Option<String>,
    text_ref: Option<ArtifactId>,
    stop_reason: String,
    has_calls: bool,
}

impl LastAnswer {
    /// Everything said up to here, if the next answer continues it.
    fn continued(self) -> String {
        let is_cut = matches!(self.stop_reason.as_str(), "max_tokens" | "pause_turn");
        match self.text {
            Some(text) if is_cut && !self.has_calls => self.before + &text,
            _ => String::new(),
        }
    }
}

impl WordCheck {
    pub(super) fn take(&mut self, event: &Event, report: &mut AuditReport) {
        match &event.payload {
            Payload::TurnStarted(_) => {
                self.turn = Turn::default();
                self.announced.clear();
            }
            Payload::ModelRequested(requested) => {
                let request = requested.model_request_id.clone();
                self.pieces.remove(&request);
                self.turn.open.insert(request, event.sequence);
            }
            Payload::ModelFailed(failed) => {
                self.pieces.remove(&failed.model_request_id);
                self.turn.open.remove(&failed.model_request_id);
                if let Some(usage) = &failed.usage {
                    add(&mut self.turn.usage, usage);
                }
            }
            Payload::ModelDelta(delta) => {
                let pieces = self.pieces.entry(delta.model_request_id.clone());
                pieces.or_default().push(delta.clone());
            }
            Payload::ModelCompleted(completed) => self.answered(event, completed, report),
            Payload::ToolIntent(intent) => {
                let (Some(call), Some(request)) =
                    (&event.scope.tool_call_id, &intent.model_request_id)
                else {
                    return;
                };
                if !self.announced.remove(call) {
                    report.error_at(
                        event,
                        "intent_without_answer",
                        format!("call {call} is said to come of request {request}, whose answer does not name it"),
                    );
                }
            }
            Payload::ToolFailed(failed) if failed.phase == Phase::Permission => {
                self.turn.refused += 1;
            }
            // The summary of a compaction is an answer, but not one of the turn's.
            Payload::ContextCompactionStarted(_) => self.has_compacted = true,
            Payload::ContextCompactionCompleted(_) | Payload::ContextCompactionFailed(_) => {
                self.has_compacted = false;
            }
            Payload::TurnCompleted(completed) => self.turn_ends(event, completed, report),
            _ => {}
        }
    }

    fn answered(&mut self, event: &Event, completed: &ModelCompleted, report: &mut AuditReport) {
        self.turn.open.remove(&completed.model_request_id);
        add(&mut self.turn.usage, &completed.usage);
        let pieces = self.pieces.remove(&completed.model_request_id);
        if let (Some(pieces), Some(text)) = (pieces, &completed.text)
            && !pieces.iter().all(|piece| is_piece(piece, text))
        {
            report.error_at(
                event,
                "answer_differs",
                "the answer is not the one that streamed in".into(),
            );
        }
        if self.has_compacted {
            return;
        }
        self.announced
            .extend(completed.tool_call_ids.iter().cloned());
        let before = self.turn.last.take().unwrap_or_default();
        self.turn.last = Some(LastAnswer {
            before: before.continued(),
            text: completed.text.clone(),
            text_ref: completed.text_ref.clone(),
            stop_reason: completed.stop_reason.clone(),
            has_calls: !completed.tool_call_ids.is_empty(),
        });
    }

    fn turn_ends(&mut self, event: &Event, completed: &TurnCompleted, report: &mut AuditReport) {
        let turn = std::mem::take(&mut self.turn);
        for call in std::mem::take(&mut self.announced) {
            report.error_at(
                event,
                "call_unrecorded",
                format!("an answer asked for call {call}, and nothing is recorded of it"),
            );
        }
        for (request, sequence) in &turn.open {
            report.error(
                "request_open_in_ended_turn",
                Some(*sequence),
                format!("model request {request} has no end although its turn has one"),
            );
        }
        if completed.stop_reason == CALLS_ONLY {
            return;
        }
        if let Some(last) = &turn.last
            && !is_final(last, completed)
        {
            report.error_at(
                event,
                "final_text_differs",
                "the final text is not the model's last answer".into(),
            );
        }
        let counts = [
            ("input", completed.usage.input, turn.usage.input),
            ("output", completed.usage.output, turn.usage.output),
        ];
        for (what, said, counted) in counts {
            let counted = counted.unwrap_or(0);
            if let Some(said) = said.filter(|said| *said != counted) {
                report.error_at(
                    event,
                    "usage_differs",
                    format!(
                        "the turn says {said} {what} tokens, but its answers come to {counted}"
                    ),
                );
            }
        }
        let refused = completed.refused_calls.unwrap_or(turn.refused);
        let unmet = turn.refused > 0 && completed.verification.status != VerificationStatus::Passed;
        let is_whole = matches!(
            completed.stop_reason.as_str(),
            "end_turn" | "stop_sequence" | "tool_use"
        );
        let outcome = if unmet || !is_whole {
            TurnOutcome::Degraded
        } else {
            TurnOutcome::Completed
        };
        // Work that is not shown to be right is degraded; earlier versions did not say so.
        let is_unshown = matches!(
            completed.verification.status,
            VerificationStatus::Failed | VerificationStatus::Stale
        );
        let is_right = outcome == completed.outcome
            || (is_unshown && completed.outcome == TurnOutcome::Degraded);
        if refused != turn.refused || !is_right {
            report.error_at(
                event,
                "outcome_differs",
                format!(
                    "the turn says `{}` with {refused} refused calls, but its events show `{outcome}` with {}",
                    completed.outcome, turn.refused
                ),
            );
        }
    }
}

/// Whether a piece stands in the whole where it says. Where something was masked, places move.
fn is_piece(piece: &ModelDelta, whole: &str) -> bool {
    if piece.text.contains("[redacted:") || whole.contains("[redacted:") {
        return true;
    }
    let from = usize::try_from(piece.index).unwrap_or(usize::MAX);
    whole
        .get(from..)
        .is_some_and(|rest| rest.starts_with(&piece.text))
}

fn is_final(last: &LastAnswer, completed: &TurnCompleted) -> bool {
    if let (Some(said), Some(kept)) = (&last.text_ref, &completed.final_text_ref) {
        return said == kept;
    }
    let said = last.text.as_deref().unwrap_or_default();
    let kept = completed.final_text.as_deref().unwrap_or_default();
    // What a model says to refuse is its answer, and no final text.
    let is_refusal = kept.is_empty() && last.stop_reason == "refusal";
    let is_elsewhere = last.text.is_none() || completed.final_text_ref.is_some();
    let is_continued = kept.strip_prefix(&*last.before) == Some(said);
    said == kept || is_continued || is_refusal || is_elsewhere
}

fn add(total: &mut Usage, more: &Usage) {
    let sum = |total: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *total = Some(total.unwrap_or(0).saturating_add(more));
        }
    };
    sum(&mut total.input, more.input);
    sum(&mut total.output, more.output);
}
