//! The end of a turn, computed from what is on disk: completed, failed, or left open with its
//! questions.

use agent_protocol::id::EvidenceId;
use agent_protocol::payload::conversation::{
    Claim, ClaimVerdict, RuntimeWarning, TurnCompleted, TurnFailed, TurnOutcome,
};
use agent_protocol::payload::model::QuotaBlocked;
use agent_protocol::status::{Status, VerificationStatus};
use agent_protocol::{Payload, Refs};
use agent_provider::event::StopReason;

use crate::engine::{Engine, EngineError};
use crate::interrupt::{Interrupt, InterruptReason};
use crate::limits::{Limits, Stop};
use crate::turn::{End, TurnEnd};
use crate::verification::claims;

/// The most statements of a final text that are judged one by one.
const MOST_CLAIMS: usize = 16;

impl Engine {
    /// Records how a turn ended.
    pub(crate) fn finish(
        &mut self,
        end: End,
        limits: &Limits,
        interrupt: &Interrupt,
    ) -> Result<TurnEnd, EngineError> {
        let failed = match end {
            End::Said { text, stop } => return self.complete(text, &stop, limits),
            End::LeftOpen => {
                self.thread_status(
                    Status::WaitingPermission,
                    Some("a question waits for an answer"),
                )?;
                self.sync()?;
                return Ok(TurnEnd::LeftOpen);
            }
            End::Limit(stop) => {
                let model = self.model();
                let (required_action, message) = match &stop {
                    Stop::UnknownCost { .. } => {
                        let action = format!(
                            "set `input_price` and `output_price` under [providers.{}.models.\"{}\"], or leave the limit out",
                            model.provider.name(),
                            model.settings.model
                        );
                        let message = format!("{}; {action}", stop.message());
                        (action, message)
                    }
                    _ => (
                        "raise the limit or submit a new turn".to_owned(),
                        stop.message(),
                    ),
                };
                if let Some(limit) = stop.kind() {
                    let blocked = QuotaBlocked {
                        limit,
                        required_action,
                    };
                    self.append(blocked, Refs::default())?;
                }
                let status = if matches!(stop, Stop::Time { .. }) {
                    Status::TimedOut
                } else {
                    Status::Failed
                };
                failure(status, "limit", stop.code(), message, true)
            }
            End::Aborted => failure(
                Status::Cancelled,
                "user",
                "aborted",
                "the user refused a call and ended the turn".to_owned(),
                false,
            ),
            End::Interrupted => match interrupt.reason() {
                Some(InterruptReason::Timeout) => failure(
                    Status::TimedOut,
                    "limit",
                    "timeout",
                    "the turn reached its time limit".to_owned(),
                    true,
                ),
                Some(InterruptReason::Terminated) => failure(
                    Status::Cancelled,
                    "runtime",
                    "terminated",
                    "the program was told to end".to_owned(),
                    true,
                ),
                Some(InterruptReason::User) | None => failure(
                    Status::Cancelled,
                    "user",
                    "interrupted",
                    "interrupted by the user".to_owned(),
                    true,
                ),
            },
            End::Model(error) => failure(
                Status::Failed,
                "model",
                error.kind.as_str(),
                match &error.hint {
                    Some(hint) => format!("{}; {hint}", error.message),
                    None => error.message.clone(),
                },
                error.retryable,
            ),
            End::Nothing => failure(
                Status::Failed,
                "model",
                "empty_answer",
                "the model answered with nothing: no text and no call".to_owned(),
                true,
            ),
            End::CutCall => failure(
                Status::Failed,
                "model",
                "output_limit",
                "the model's answer was cut inside a tool call twice; nothing of that call was run"
                    .to_owned(),
                true,
            ),
        };
        let turn = &self.thread().turn;
        let failed = TurnFailed {
            last_stable_sequence: Some(self.last_sequence()),
            usage: Some(turn.usage.clone()),
            cost: turn.cost.total(),
            files_changed: turn.files_changed(),
            ..failed
        };
        self.append(failed.clone(), Refs::default())?;
        self.thread_status(Status::Idle, Some(&failed.message))?;
        Ok(TurnEnd::Failed(Box::new(failed)))
    }

    /// The model had no more to say: the facts decide what that is worth.
    pub(crate) fn complete(
        &mut self,
        text: String,
        stop: &StopReason,
        limits: &Limits,
    ) -> Result<TurnEnd, EngineError> {
        // A command in the background may have ended since the last round.
        self.catch_up();
        self.record_verifications()?;
        let claims = self.check_claims(&text)?;
        let turn = &self.thread().turn;
        let verification = turn.verification.record();
        let status = verification.status;
        let unmet = turn.refused > 0 && status != VerificationStatus::Passed
            || matches!(
                status,
                VerificationStatus::Failed | VerificationStatus::Stale
            );
        let whole = matches!(
            stop,
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse
        );
        let mut refs = Refs::default();
        for evidence in &verification.evidence_ids {
            refs.add("evidence", evidence);
        }
        let (final_text, final_text_ref) = self.text_or_artifact(text)?;
        let turn = &self.thread().turn;
        let completed = TurnCompleted {
            outcome: if unmet || !whole {
                TurnOutcome::Degraded
            } else {
                TurnOutcome::Completed
            },
            stop_reason: stop.as_str().to_owned(),
            final_text,
            final_text_ref,
            verification,
            claims: (!claims.is_empty()).then_some(claims),
            files_changed: turn.files_changed(),
            usage: turn.usage.clone(),
            cost: turn.cost.total(),
            steps: Some(limits.steps()),
            refused_calls: Some(turn.refused),
            duration_ms: Some(self.turn_elapsed_ms()),
        };
        // Complete means that every fact behind it is on disk: the end of a turn is told once it is synced
        // itself, and everything before it with it.
        let recorded = self.append(completed, refs)?;
        self.thread_status(Status::Idle, None)?;
        match recorded {
            Payload::TurnCompleted(completed) => Ok(TurnEnd::Completed(Box::new(completed))),
            _ => Ok(TurnEnd::LeftOpen),
        }
    }

    /// Judges what a final text claims. What the log does not show is marked, with the events that
    /// speak.
    fn check_claims(&mut self, text: &str) -> Result<Vec<Claim>, EngineError> {
        let judged = claims::judge(text, &self.thread().track);
        let turn_evidence = self.thread().turn.verification.evidence_ids().to_vec();
        let mut recorded = Vec::new();
        for claim in judged.into_iter().take(MOST_CLAIMS) {
            let own = claim.run.as_ref().and_then(|run| run.evidence_id.clone());
            let evidence: Vec<EvidenceId> = own.into_iter().collect();
            if claim.verdict != ClaimVerdict::Supported {
                let speaking = if evidence.is_empty() {
                    &turn_evidence
                } else {
                    &evidence
                };
                self.mark_claim(&claim, speaking)?;
            }
            recorded.push(Claim {
                about: Some(claim.claim.about.as_str().to_owned()),
                text: claim.claim.sentence,
                verdict: claim.verdict,
                evidence_ids: evidence,
            });
        }
        Ok(recorded)
    }

    fn mark_claim(
        &mut self,
        claim: &claims::JudgedClaim,
        evidence: &[EvidenceId],
    ) -> Result<(), EngineError> {
        let mut refs = Refs::default();
        if let Some(request) = self.last_request() {
            refs.add("said_in", request);
        }
        for evidence_id in evidence {
            refs.add("evidence", evidence_id);
        }
        let code = match claim.verdict {
            ClaimVerdict::Contradicted => "final_answer_conflict",
            _ => "final_answer_unproven",
        };
        let warning = RuntimeWarning {
            code: code.to_owned(),
            message: claim.message(),
            evidence_refs: evidence.iter().map(ToString::to_string).collect(),
        };
        self.append(warning, refs)?;
        Ok(())
    }
}

fn failure(
    status: Status,
    category: &str,
    code: &str,
    message: String,
    retryable: bool,
) -> TurnFailed {
    TurnFailed {
        status,
        category: category.to_owned(),
        code: code.to_owned(),
        message,
        retryable,
        ..TurnFailed::default()
    }
}
