//! One turn: submit → context → model request → stream → intents → tools → observations → next
//! request … → terminal. Each step is an event before it has an effect, and the end is computed
//! from what is on disk.

use agent_protocol::id::{EvidenceId, TurnId};
use agent_protocol::payload::conversation::{
    Budget, EvidenceChanged, EvidenceKind, EvidenceStatus, RunMetadata, RunStatus, RuntimeWarning,
    ThreadUpdated, TurnCompleted, TurnFailed, TurnOutcome, TurnStarted,
};
use agent_protocol::payload::model::{
    CompactionTrigger, CostRecorded, QuotaBlocked, RoutingFallbackApplied,
};
use agent_protocol::status::{Status, VerificationStatus};
use agent_protocol::{Payload, Refs};
use agent_provider::error::{ErrorKind, ModelError};
use agent_provider::event::StopReason;
use agent_tool_runtime::{Outcome, ToolIntent};

use crate::engine::{Engine, EngineError};
use crate::exchange::{Answer, ExchangeError};
use crate::interrupt::{Interrupt, InterruptReason};
use crate::limits::{Limits, Stop};
use crate::verification::claims;

/// How a turn ended, for whoever waits for it. The log says the same in full.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEnd {
    /// `turn.completed` is on disk.
    Completed(Box<TurnCompleted>),
    /// `turn.failed` is on disk.
    Failed(Box<TurnFailed>),
    /// Questions are open; the turn goes on when they are answered.
    LeftOpen,
}

/// Why the loop stopped.
enum End {
    /// The model had no more to say.
    Said {
        text: String,
        stop: StopReason,
    },
    LeftOpen,
    /// A person refused a call and wanted no more of the turn.
    Aborted,
    Limit(Stop),
    Interrupted,
    Model(ModelError),
    CutCall,
}

impl Engine {
    /// Works on a submitted turn until it ends.
    ///
    /// # Errors
    /// When the log cannot be written; the turn then has no end in it and is repaired on resume.
    pub async fn run_turn(
        &mut self,
        turn_id: TurnId,
        budget: Budget,
        interrupt: &Interrupt,
    ) -> Result<TurnEnd, EngineError> {
        self.begin(&turn_id, interrupt);
        let mode = self.mode();
        let started = TurnStarted {
            model: self.model().name(),
            mode,
            budget: budget.clone(),
        };
        self.append(started, Refs::default())?;
        self.thread_status(Status::Running, None)?;
        self.status(Status::Preparing, "preparing", None)?;
        self.go_on(budget, interrupt).await
    }

    /// Goes on with a turn whose open questions have been answered.
    ///
    /// # Errors
    /// As [`Engine::run_turn`].
    pub async fn continue_turn(
        &mut self,
        turn_id: TurnId,
        budget: Budget,
        interrupt: &Interrupt,
    ) -> Result<TurnEnd, EngineError> {
        self.begin(&turn_id, interrupt);
        self.thread_status(Status::Running, Some("an open question was answered"))?;
        self.go_on(budget, interrupt).await
    }

    async fn go_on(
        &mut self,
        budget: Budget,
        interrupt: &Interrupt,
    ) -> Result<TurnEnd, EngineError> {
        let timer = budget.timeout_ms.map(|limit| {
            let interrupt = interrupt.clone();
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(limit)).await;
                interrupt.raise(InterruptReason::Timeout);
            })
        });
        let mut limits = Limits::new(budget, self.patience());
        let end = self.steps(&mut limits, interrupt).await;
        if let Some(timer) = timer {
            timer.abort();
        }
        let finished = end.and_then(|end| self.finish(end, &limits, interrupt));
        self.ended();
        finished
    }

    async fn steps(
        &mut self,
        limits: &mut Limits,
        interrupt: &Interrupt,
    ) -> Result<End, EngineError> {
        let mut compacted_for_length = false;
        let mut larger_output = false;
        self.resolve_catalog()?;
        loop {
            if interrupt.reason().is_some() {
                return Ok(End::Interrupted);
            }
            self.new_step();
            self.steer()?;
            if self.must_compact() {
                self.compact(CompactionTrigger::Threshold, interrupt)
                    .await?;
            }
            let prepared = self.prepare()?;
            let expected = self.model().ceiling(prepared.estimated_tokens());
            if let Err(stop) = limits.before_request(self.turn_elapsed_ms(), expected) {
                return Ok(End::Limit(stop));
            }
            self.status(Status::Running, "asking the model", Some(limits.steps()))?;
            let answer = match self.ask(prepared, larger_output, interrupt).await {
                Ok(answer) => answer,
                Err(ExchangeError::Journal(error)) => return Err(error.into()),
                Err(ExchangeError::Model(error)) => {
                    if interrupt.reason().is_some() || error.kind == ErrorKind::Cancelled {
                        return Ok(End::Interrupted);
                    }
                    if error.kind == ErrorKind::ContextLength && !compacted_for_length {
                        compacted_for_length = true;
                        self.compact(CompactionTrigger::ContextLength, interrupt)
                            .await?;
                        continue;
                    }
                    if self.fall_back(&error)? {
                        continue;
                    }
                    return Ok(End::Model(error));
                }
            };
            let cost = self.record_cost(&answer)?;
            limits.after_request(answer.usage.total, cost);
            if answer.response.has_cut_call() {
                if larger_output {
                    return Ok(End::CutCall);
                }
                larger_output = true;
                continue;
            }
            if answer.tool_call_ids.is_empty() {
                let text = answer.response.text();
                return Ok(End::Said {
                    text,
                    stop: answer.response.stop,
                });
            }
            if let Some(end) = self.call_tools(&answer, limits, interrupt)? {
                return Ok(end);
            }
        }
    }

    /// Runs the calls of an answer through the tool runtime and takes stock.
    fn call_tools(
        &mut self,
        answer: &Answer,
        limits: &mut Limits,
        interrupt: &Interrupt,
    ) -> Result<Option<End>, EngineError> {
        let intents: Vec<ToolIntent> = answer
            .response
            .tool_calls()
            .zip(&answer.tool_call_ids)
            .map(|(call, id)| ToolIntent {
                tool_call_id: Some(id.clone()),
                tool_name: call.name.clone(),
                arguments: call.arguments_text.clone(),
                provider_call_id: Some(call.provider_call_id.clone()),
                model_request_id: self.last_request().cloned(),
                ..ToolIntent::default()
            })
            .collect();
        let arguments: Vec<String> = intents
            .iter()
            .map(|intent| intent.arguments.clone())
            .collect();
        let report = self.run_batch(intents, interrupt.cancel())?;
        self.record_verifications()?;
        if report.aborted {
            return Ok(Some(End::Aborted));
        }
        let mut left_open = report.left_open.is_some();
        for (outcome, arguments) in report.outcomes.iter().zip(&arguments) {
            match outcome {
                Outcome::LeftOpen { .. } => left_open = true,
                Outcome::Observed(observation) => {
                    let seen = observation.fact();
                    let said = observation.model_text();
                    if let Err(stop) = limits.after_call(&seen.tool_name, arguments, said, seen.ok)
                    {
                        return Ok(Some(End::Limit(stop)));
                    }
                }
            }
        }
        Ok(left_open.then_some(End::LeftOpen))
    }

    /// Each verification that ended becomes a record of its own.
    fn record_verifications(&mut self) -> Result<(), EngineError> {
        for run in self.state().turn.pending_verifications() {
            let evidence_id: EvidenceId = self.mint();
            let evidence = EvidenceChanged {
                evidence_id,
                kind: EvidenceKind::Verification,
                status: if run.exit_code == 0 {
                    EvidenceStatus::Passed
                } else {
                    EvidenceStatus::Failed
                },
                command: Some(run.command.clone()),
                cwd: None,
                exit_code: Some(run.exit_code),
                covers_edits: Some(self.state().turn.verification.covers_edits()),
                artifacts: Vec::new(),
            };
            let mut scope = self.scope().clone();
            scope.tool_call_id = Some(run.tool_call_id);
            self.append_in(&scope, evidence, Refs::default())?;
        }
        Ok(())
    }

    fn record_cost(&mut self, answer: &Answer) -> Result<Option<f64>, EngineError> {
        let model = self.model();
        let amount = (model.price)(&answer.response.usage);
        let before = self.state().cost.total();
        let recorded = CostRecorded {
            model_request_id: self.last_request().cloned().unwrap_or_default(),
            usage: answer.usage.clone(),
            amount,
            currency: "USD".to_owned(),
            price_source: model.price_source.clone(),
            session_total: before.zip(amount).map(|(before, amount)| before + amount),
        };
        self.append(recorded, Refs::default())?;
        self.counted(&answer.usage);
        Ok(amount)
    }

    /// Moves on to the next model, if there is one and the failure is not ours.
    fn fall_back(&mut self, error: &ModelError) -> Result<bool, EngineError> {
        let ours = matches!(
            error.kind,
            ErrorKind::BadRequest | ErrorKind::ContextLength | ErrorKind::Refused
        );
        let from = self.model().choice();
        if ours || !self.next_model() {
            return Ok(false);
        }
        let applied = RoutingFallbackApplied {
            from,
            to: self.model().choice(),
            reason: format!("{}: {}", error.kind.as_str(), error.message),
            error_ref: error.request_id.clone(),
        };
        self.append(applied, Refs::default())?;
        Ok(true)
    }

    fn finish(
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
                if let Some(limit) = stop.kind() {
                    let blocked = QuotaBlocked {
                        limit,
                        required_action: "raise the limit or submit a new turn".to_owned(),
                    };
                    self.append(blocked, Refs::default())?;
                }
                let status = if matches!(stop, Stop::Time { .. }) {
                    Status::TimedOut
                } else {
                    Status::Failed
                };
                failure(status, "limit", stop.code(), stop.message(), true)
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
            End::CutCall => failure(
                Status::Failed,
                "model",
                "output_limit",
                "the model's answer was cut inside a tool call twice; nothing of that call was run"
                    .to_owned(),
                true,
            ),
        };
        let turn = &self.state().turn;
        let failed = TurnFailed {
            last_stable_sequence: Some(self.last_sequence()),
            usage: Some(turn.usage.clone()),
            cost: turn.cost.total(),
            files_changed: turn.files_changed(),
            ..failed
        };
        self.append(failed.clone(), Refs::default())?;
        self.thread_status(Status::Idle, Some(&failed.message))?;
        self.sync()?;
        Ok(TurnEnd::Failed(Box::new(failed)))
    }

    fn complete(
        &mut self,
        text: String,
        stop: &StopReason,
        limits: &Limits,
    ) -> Result<TurnEnd, EngineError> {
        self.check_claims(&text)?;
        let turn = &self.state().turn;
        let verification = turn.verification.record();
        let unmet = turn.refused > 0 && verification.status != VerificationStatus::Passed;
        let whole = matches!(
            stop,
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse
        );
        let mut refs = Refs::default();
        for evidence in &verification.evidence_ids {
            refs.add("evidence", evidence);
        }
        let (final_text, final_text_ref) = self.text_or_artifact(text)?;
        let turn = &self.state().turn;
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
            files_changed: turn.files_changed(),
            usage: turn.usage.clone(),
            cost: turn.cost.total(),
            steps: Some(limits.steps()),
            refused_calls: Some(turn.refused),
            duration_ms: Some(self.turn_elapsed_ms()),
        };
        // Complete means that every fact behind it is on disk.
        self.sync()?;
        let recorded = self.append(completed, refs)?;
        self.thread_status(Status::Idle, None)?;
        self.sync()?;
        match recorded {
            Payload::TurnCompleted(completed) => Ok(TurnEnd::Completed(Box::new(completed))),
            _ => Ok(TurnEnd::LeftOpen),
        }
    }

    /// A final text that says more than the log shows is marked, with the events that speak.
    fn check_claims(&mut self, text: &str) -> Result<(), EngineError> {
        let turn = &self.state().turn;
        let conflicts = claims::conflicts(text, &turn.shown);
        if conflicts.is_empty() {
            return Ok(());
        }
        let evidence_refs = turn
            .verification
            .record()
            .evidence_ids
            .iter()
            .map(ToString::to_string)
            .collect();
        let said: Vec<&str> = conflicts
            .iter()
            .map(|claim| claim.sentence.as_str())
            .collect();
        let warning = RuntimeWarning {
            code: "final_answer_conflict".to_owned(),
            message: format!("not shown by the log: {}", said.join("; ")),
            evidence_refs,
        };
        self.append(warning, Refs::default())?;
        Ok(())
    }

    fn thread_status(&mut self, status: Status, reason: Option<&str>) -> Result<(), EngineError> {
        let active = matches!(status, Status::Running | Status::WaitingPermission);
        let updated = ThreadUpdated {
            status,
            status_reason: reason.map(str::to_owned),
            active_turn_id: self.scope().turn_id.clone().filter(|_| active),
        };
        self.append(updated, Refs::default())?;
        Ok(())
    }

    fn status(&mut self, phase: Status, title: &str, step: Option<u64>) -> Result<(), EngineError> {
        let status = RunStatus {
            phase,
            title: title.to_owned(),
            metadata: RunMetadata {
                step,
                ..RunMetadata::default()
            },
            ..RunStatus::default()
        };
        self.append(status, Refs::default())?;
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
