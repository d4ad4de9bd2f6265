//! One turn: submit → context → model request → stream → intents → tools → observations → next
//! request … → terminal. Each step is an event before it has an effect, and the end is computed
//! from what is on disk.

use agent_protocol::Refs;
use agent_protocol::command::InterruptReason;
use agent_protocol::id::{ArtifactId, EvidenceId, TurnId};
use agent_protocol::payload::conversation::{
    Budget, NO_MODEL, RunMetadata, RunStatus, ThreadUpdated, TurnCompleted, TurnFailed, TurnSource,
    TurnStarted, TurnSubmitted,
};
use agent_protocol::payload::model::CompactionTrigger;
use agent_protocol::status::Status;
use agent_provider::conversation::AssistantPart;
use agent_provider::error::{ErrorKind, ModelError};
use agent_provider::event::StopReason;
use agent_tool_runtime::{IntentOrigin, Outcome, ToolIntent};

use crate::conversation::Entry;
use crate::cut;
use crate::engine::{Engine, EngineError};
use crate::exchange::{Answer, ExchangeError};
use crate::interrupt::Interrupt;
use crate::limits::{CallFacts, Limits, Stop};
use crate::verification::CheckStatus;
use crate::verification::failures::{self, Failures};

/// The most calls a verification names as the changes it covers.
const MOST_EDITS: usize = 200;

/// Bytes of what a model said that are kept as the reason of a call.
const LONGEST_REASON: usize = 500;

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

/// A call that the user made, to be run as a turn of its own.
pub struct OwnCall {
    pub turn_id: TurnId,
    /// The text of the turn in the log.
    pub text: String,
    pub source: TurnSource,
    pub intent: ToolIntent,
}

/// Reason why the loop stopped.
pub(crate) enum End {
    /// The model had no more to say.
    Said {
        text: String,
        stop: StopReason,
    },
    /// It had nothing to say at all.
    Nothing,
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
        let _timer = Timer::start(&budget, interrupt);
        self.append(started, Refs::default())?;
        self.record_routing()?;
        self.thread_status(Status::Running, None)?;
        self.status(Status::Preparing, "preparing", None)?;
        self.go_on(budget, interrupt).await
    }

    /// Goes on with a turn that was left open with a call that waits: the call is run if somebody
    /// allowed it, refused if somebody did not, and asked about again if nobody answered. Nothing
    /// that had started is started again.
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
        let _timer = Timer::start(&budget, interrupt);
        self.record_routing()?;
        self.thread_status(Status::Running, Some("continuing where the turn left off"))?;
        let waiting = self.waiting_calls();
        // A call the user made themselves has no model that wants to know.
        let last = self.thread().conversation.items().last();
        let is_own =
            !waiting.is_empty() && last.is_some_and(|last| matches!(last.entry, Entry::Own(_)));
        for call in waiting {
            let report = self.continue_call(call, interrupt.cancel()).await?;
            self.record_verifications()?;
            let end = if report.aborted {
                Some(End::Aborted)
            } else if report.left_open.is_some() {
                Some(End::LeftOpen)
            } else {
                None
            };
            if let Some(end) = end {
                let limits = self.limits(budget);
                let finished = self.finish(end, &limits, interrupt);
                self.ended();
                return finished;
            }
        }
        let said = self.last_word().filter(|_| interrupt.reason().is_none());
        if let Some(end) = said {
            let limits = self.limits(budget);
            let finished = self.finish(end, &limits, interrupt);
            self.ended();
            return finished;
        }
        if is_own && interrupt.reason().is_none() {
            let limits = self.limits(budget);
            let finished = self.complete(String::new(), &StopReason::EndTurn, &limits);
            self.ended();
            return finished;
        }
        self.go_on(budget, interrupt).await
    }

    /// How the turn ends, if its last answer is there and asks for nothing more: the program ended
    /// between the answer and the end of the turn. No server is asked to go on with its own words.
    fn last_word(&self) -> Option<End> {
        let items = self.thread().conversation.items();
        let Entry::Step(step) = &items.last()?.entry else {
            return None;
        };
        let is_said = step.answered && step.calls.is_empty() && !step.text.trim().is_empty();
        (is_said && !cut::is_unfinished(items)).then(|| End::Said {
            text: cut::whole(items, &step.text),
            stop: StopReason::from_word(&step.stop_reason),
        })
    }

    /// What watches this turn, with what it has used already.
    fn limits(&self, budget: Budget) -> Limits {
        let turn = &self.thread().turn;
        let tokens = turn.usage.total.unwrap_or(0);
        // Money is a matter of the session, the rest of the turn.
        let spent = self.session().cost.known();
        Limits::new(budget, self.loop_limits()).going_on(turn.requests, tokens, spent)
    }

    /// Runs a call the user made themselves, as a turn of its own that asks no model. The gate
    /// judges it like any other.
    ///
    /// # Errors
    /// As [`Engine::run_turn`].
    pub async fn run_call(
        &mut self,
        call: OwnCall,
        interrupt: &Interrupt,
    ) -> Result<TurnEnd, EngineError> {
        self.begin(&call.turn_id, interrupt);
        let limits = Limits::new(Budget::default(), self.loop_limits());
        let end = self.own_call(call, interrupt).await;
        let finished = end.and_then(|end| self.finish(end, &limits, interrupt));
        self.ended();
        finished
    }

    async fn own_call(&mut self, call: OwnCall, interrupt: &Interrupt) -> Result<End, EngineError> {
        let (text, input_ref) = self.text_or_artifact(call.text)?;
        let submitted = TurnSubmitted {
            text,
            input_ref,
            source: call.source,
            status: Status::Accepted,
            ..TurnSubmitted::default()
        };
        self.append(submitted, Refs::default())?;
        let started = TurnStarted {
            model: NO_MODEL.to_owned(),
            mode: self.mode(),
            ..TurnStarted::default()
        };
        self.append(started, Refs::default())?;
        self.thread_status(Status::Running, None)?;
        self.new_step();
        self.resolve_catalog()?;
        let report = self
            .run_batch(vec![call.intent], interrupt.cancel())
            .await?;
        self.record_verifications()?;
        Ok(if interrupt.reason().is_some() {
            End::Interrupted
        } else if report.aborted {
            End::Aborted
        } else if report.left_open.is_some() {
            End::LeftOpen
        } else {
            End::Said {
                text: String::new(),
                stop: StopReason::EndTurn,
            }
        })
    }

    async fn go_on(
        &mut self,
        budget: Budget,
        interrupt: &Interrupt,
    ) -> Result<TurnEnd, EngineError> {
        let mut limits = self.limits(budget);
        let end = self.steps(&mut limits, interrupt).await;
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
        let mut cut_call = false;
        self.end_cut_compaction()?;
        // The menu belongs to the first step, the first to be shown it.
        self.new_step();
        self.resolve_catalog()?;
        let mut is_new_step = true;
        loop {
            if interrupt.reason().is_some() {
                return Ok(End::Interrupted);
            }
            if !std::mem::take(&mut is_new_step) {
                self.new_step();
            }
            self.follow_mode()?;
            self.steer()?;
            if let Some(end) = self.show_attached(interrupt).await? {
                return Ok(end);
            }
            if self.was_asked_to_compact() {
                self.compact(CompactionTrigger::User, limits, interrupt)
                    .await?;
            } else if self.must_compact() {
                self.compact(CompactionTrigger::Threshold, limits, interrupt)
                    .await?;
            }
            if interrupt.reason().is_some() {
                return Ok(End::Interrupted);
            }
            let mut prepared = self.prepare()?;
            let model = self.model();
            if larger_output {
                prepared.ask_for_more(&model);
            }
            let expected = prepared.expected(&model);
            match limits.before_request(self.turn_elapsed_ms(), &expected) {
                Ok(room) => prepared.limit_output(room),
                Err(stop) => return Ok(End::Limit(stop)),
            }
            self.status(Status::Running, "asking the model", Some(limits.steps()))?;
            let answer = match self.ask(prepared, interrupt).await {
                Ok(answer) => answer,
                Err(ExchangeError::Journal(error)) => return Err(error.into()),
                Err(ExchangeError::Model(error)) => {
                    if interrupt.reason().is_some() || error.kind == ErrorKind::Cancelled {
                        return Ok(End::Interrupted);
                    }
                    if error.kind == ErrorKind::ContextLength && !compacted_for_length {
                        compacted_for_length = true;
                        let trigger = CompactionTrigger::ContextLength;
                        // The same input would be too long again.
                        if self.compact(trigger, limits, interrupt).await?
                            || interrupt.reason().is_some()
                        {
                            continue;
                        }
                    }
                    if self.fall_back(&error)? {
                        continue;
                    }
                    return Ok(End::Model(error));
                }
            };
            compacted_for_length = false;
            self.take_stock(&model, &answer, &expected, limits)?;
            self.counted(&answer.usage);
            if answer.response.has_cut_call() {
                if cut_call {
                    return Ok(End::CutCall);
                }
                (cut_call, larger_output) = (true, true);
                let title = "the answer was cut inside a tool call; asking for a longer one";
                self.status(Status::Retrying, title, Some(limits.steps()))?;
                continue;
            }
            (cut_call, larger_output) = (false, false);
            if answer.tool_call_ids.is_empty() {
                self.catch_up();
                let items = self.thread().conversation.items();
                if cut::is_unfinished(items) {
                    larger_output = answer.response.stop == StopReason::MaxTokens;
                    let title = "the answer is not at its end; asking for the rest";
                    self.status(Status::Running, title, Some(limits.steps()))?;
                    continue;
                }
                let text = cut::whole(items, &answer.response.text_or_refusal());
                if text.trim().is_empty() && !self.thread().turn.did_something() {
                    return Ok(End::Nothing);
                }
                return Ok(End::Said {
                    text,
                    stop: answer.response.stop,
                });
            }
            if let Some(end) = self.call_tools(&answer, limits, interrupt).await? {
                return Ok(end);
            }
        }
    }

    /// Shows what the inputs of this turn attach, by calls that no model asked for; the gate judges them like
    /// any other.
    async fn show_attached(&mut self, interrupt: &Interrupt) -> Result<Option<End>, EngineError> {
        let Some(turn_id) = &self.scope().turn_id else {
            return Ok(None);
        };
        let unread = self.thread().conversation.unread(turn_id);
        if unread.is_empty() {
            return Ok(None);
        }
        let intents = unread.iter().map(|call| ToolIntent {
            origin: IntentOrigin::Program,
            ..ToolIntent::new(&call.tool_name, &call.input)
        });
        let report = self
            .run_batch(intents.collect(), interrupt.cancel())
            .await?;
        Ok(if report.aborted {
            Some(End::Aborted)
        } else {
            report.left_open.map(|_| End::LeftOpen)
        })
    }

    /// Runs the calls of an answer through the tool runtime and takes stock.
    async fn call_tools(
        &mut self,
        answer: &Answer,
        limits: &mut Limits,
        interrupt: &Interrupt,
    ) -> Result<Option<End>, EngineError> {
        let intents: Vec<ToolIntent> = answer
            .response
            .tool_calls()
            .zip(reasons(&answer.response.parts))
            .zip(&answer.tool_call_ids)
            .map(|((call, reason), id)| ToolIntent {
                tool_call_id: Some(id.clone()),
                tool_name: call.name.clone(),
                arguments: call.arguments_text.clone(),
                reason,
                provider_call_id: Some(call.provider_call_id.clone()),
                model_request_id: self.last_request().cloned(),
                ..ToolIntent::default()
            })
            .collect();
        let arguments: Vec<String> = intents
            .iter()
            .map(|intent| intent.arguments.clone())
            .collect();
        let report = self.run_batch(intents, interrupt.cancel()).await?;
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
                    let turn = &self.thread().turn;
                    let invocation = seen.invocation_id.as_ref();
                    let call = CallFacts {
                        tool: &seen.tool_name,
                        arguments,
                        outcome: observation.model_text(),
                        ok: seen.ok,
                        changed_files: !seen.side_effects.is_empty(),
                        may_change: invocation.is_some_and(|id| turn.may_change(id)),
                    };
                    if let Err(stop) = limits.after_call(&call) {
                        return Ok(Some(End::Limit(stop)));
                    }
                }
            }
        }
        Ok(left_open.then_some(End::LeftOpen))
    }

    /// Each verification that ended becomes a record of its own.
    pub(crate) fn record_verifications(&mut self) -> Result<(), EngineError> {
        for run in self.thread().turn.pending_verifications() {
            let turn = &self.thread().turn;
            let is_current = run.changes == turn.verification.changes();
            let mut refs = Refs::default();
            let mut edits = turn.changed_by(run.changes);
            edits.retain(|call| **call != run.tool_call_id);
            let covers = is_current && !edits.is_empty();
            // The newest are the ones a reader looks for, and a line has to end somewhere.
            for call in &edits[edits.len().saturating_sub(MOST_EDITS)..] {
                refs.add("edits", call);
            }
            let evidence_id: EvidenceId = match run.evidence_id.clone() {
                Some(id) => id,
                None => self.mint(),
            };
            let failed = match run.found.status {
                CheckStatus::Passed => Failures::default(),
                _ => self.failures_in(run.output.as_ref()),
            };
            let evidence = run.record(evidence_id, covers, failed);
            let mut scope = self.scope().clone();
            scope.tool_call_id = Some(run.tool_call_id);
            self.append_in(&scope, evidence, refs)?;
        }
        Ok(())
    }

    /// The tests that a command's output names as failed.
    fn failures_in(&self, output: Option<&ArtifactId>) -> Failures {
        let Some(mut file) = output.and_then(|id| self.open_artifact(id)) else {
            return Failures::default();
        };
        // Nobody fails a turn because its output cannot be read again.
        let text = failures::read_bounded(&mut file).unwrap_or_default();
        failures::find(&text)
    }

    pub(crate) fn thread_status(
        &mut self,
        status: Status,
        reason: Option<&str>,
    ) -> Result<(), EngineError> {
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

/// The reason a model gave for each of its calls: what it said last before the call in the same answer,
/// or else what the call itself says it is for. It is shown and decides nothing.
fn reasons(parts: &[AssistantPart]) -> Vec<Option<String>> {
    let mut said = "";
    let mut reasons = Vec::new();
    for part in parts {
        match part {
            AssistantPart::Text(text) if !text.trim().is_empty() => said = text.trim(),
            AssistantPart::ToolCall(_) if !said.is_empty() => {
                reasons.push(Some(clipped(said)));
            }
            AssistantPart::ToolCall(call) => {
                let input = call.arguments_value();
                let described = input.as_ref().and_then(|input| input.get("description"));
                let described = described.and_then(|text| text.as_str()).map(str::trim);
                reasons.push(described.filter(|text| !text.is_empty()).map(clipped));
            }
            AssistantPart::Text(_) | AssistantPart::Reasoning { .. } => {}
        }
    }
    reasons
}

/// A text of no more than [`LONGEST_REASON`] bytes.
fn clipped(text: &str) -> String {
    if text.len() <= LONGEST_REASON {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(LONGEST_REASON)])
}

/// Ends a turn when its time is over; stops watching when it is dropped.
struct Timer(tokio::task::JoinHandle<()>);

impl Timer {
    fn start(budget: &Budget, interrupt: &Interrupt) -> Option<Self> {
        let limit = std::time::Duration::from_millis(budget.timeout_ms?);
        let interrupt = interrupt.clone();
        Some(Self(tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            interrupt.raise(InterruptReason::Timeout);
        })))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}
