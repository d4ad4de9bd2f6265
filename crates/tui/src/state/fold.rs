//! One event into the state. Each event class that a screen shows has its place here; the others
//! change nothing a person would miss.

use agent_history::describe;
use agent_history::describe::{BlockKind, Kind, Tone, phrases};
use agent_protocol::payload::conversation::{
    HistoryStatus, NO_MODEL, QueueChanged, QueueOperation, QueuePolicy, TurnCompleted, TurnFailed,
    TurnOutcome, TurnSubmitted,
};
use agent_protocol::status::Status;
use agent_protocol::{Event, Payload};

use super::call::changes;
use super::cell::{
    CallStage, CellKind, KEPT_DIFF, KEPT_TEXT, Notice, NoticeLevel, TurnEnd, UserCell, clip,
    head_and_tail,
};
use super::{QueuedInput, State, ToolLine, Turn};
use crate::host::LiveText;
use crate::safe::one_line;

impl State {
    /// Takes in one event.
    pub fn apply(&mut self, event: &Event) {
        self.facts.last_sequence = event.sequence;
        if self.facts.session_id.is_none() {
            self.facts.session_id = Some(event.session_id.clone());
        }
        match &event.payload {
            Payload::SessionCreated(created) => {
                self.facts.mode = created.mode;
                self.facts.title.clone_from(&created.title);
                if created.parent.is_some() {
                    // What was open where the session branched off is not open here.
                    self.close_open_cells(true);
                    self.pending.clear();
                    self.facts.turn = None;
                    self.facts.compacting = false;
                    self.facts.queue.clear();
                    self.facts.session_id = Some(event.session_id.clone());
                    self.facts.background.clear();
                    self.notice_of(event);
                    let text = "The conversation goes on from there; forking changes no files.";
                    self.notice(NoticeLevel::Information, text.to_owned(), None);
                }
            }
            Payload::SessionUpdated(updated) => {
                let changed = &updated.changed;
                if let Some(mode) = changed.mode {
                    self.facts.mode = Some(mode);
                }
                if let Some(model) = &changed.model {
                    self.facts.model = Some(one_line(model));
                }
                if let Some(path) = &changed.working_directory {
                    let text = format!("working directory: {path}");
                    self.notice(NoticeLevel::Information, text, None);
                    self.facts.working_directory = Some(one_line(path));
                }
                if let Some(thinking) = changed.thinking {
                    self.facts.thinking = Some(thinking);
                }
                if let Some(title) = &changed.title {
                    self.facts.title = Some(one_line(title));
                }
                self.facts.ended = changed.status == Some(Status::Ended);
                if self.facts.ended {
                    // No command outlives its session.
                    self.facts.background.clear();
                }
                self.facts.compacting &= !self.facts.ended;
            }
            Payload::TurnSubmitted(submitted) => self.turn_submitted(event, submitted),
            Payload::TurnStarted(started) => {
                self.last_failure = None;
                self.show_submitted(event.scope.turn_id.as_ref());
                self.facts.mode = Some(started.mode);
                self.facts.compacting = false;
                // A call of the user's own asks no model.
                self.own_turn = started.model == NO_MODEL;
                if !started.model.is_empty() && !self.own_turn {
                    self.facts.model = Some(one_line(&started.model));
                }
                self.facts.turn = Some(Turn {
                    turn_id: event.scope.turn_id.clone(),
                    started_at: event.timestamp,
                    activity: "starting".into(),
                    retry_in_ms: None,
                    interrupting: false,
                });
            }
            Payload::TurnCompleted(completed) => self.turn_completed(completed),
            Payload::TurnFailed(failed) => self.turn_failed(event, failed),
            Payload::RunStatus(status) if status.phase == Status::Retrying => {
                // What went wrong was said when it did.
                let wait = status.metadata.retry_in_ms;
                self.activity("waiting to ask the model again", wait);
            }
            Payload::RunStatus(status) => {
                let title = match &status.detail {
                    Some(detail) => format!("{}: {detail}", status.title),
                    None => status.title.clone(),
                };
                self.activity(&title, status.metadata.retry_in_ms);
            }
            Payload::QueueChanged(changed) => self.queue_changed(changed),
            Payload::ModelRequested(requested) => {
                self.facts.requests += 1;
                self.current_request = Some(requested.model_request_id.clone());
                if requested.purpose.is_none() {
                    let effort = requested.options.reasoning_effort.as_deref();
                    let thinking = effort.and_then(|word| word.parse().ok());
                    self.facts.thinking = thinking.or(self.facts.thinking);
                }
                self.facts.model = Some(format!(
                    "{}/{}",
                    one_line(&requested.provider),
                    one_line(&requested.model)
                ));
                if !self.facts.compacting {
                    self.activity(&format!("waiting for {}", requested.model), None);
                }
            }
            Payload::ModelDelta(delta) => self.model_delta(delta),
            Payload::ModelCompleted(completed) => self.model_completed(completed),
            Payload::ModelFailed(failed) => self.model_failed(event, failed),
            Payload::ReasoningDelta(delta) => self.reasoning_delta(delta),
            Payload::ReasoningSummary(summary) => {
                if let Some(text) = summary.text.as_ref().filter(|_| !self.facts.compacting) {
                    let index = self.reasoning_cell(&summary.model_request_id);
                    self.change(index, |cell| {
                        if let CellKind::Reasoning(reasoning) = &mut cell.kind {
                            reasoning.record();
                            reasoning.text = head_and_tail(text, KEPT_DIFF).0;
                            reasoning.bytes = text.len() as u64;
                            reasoning.characters = text.chars().count() as u64;
                        }
                        cell.done = true;
                    });
                }
            }
            Payload::ContextResolved(resolved) => {
                let context = &mut self.facts.context;
                context.used = Some(
                    resolved
                        .budget
                        .last_input_tokens
                        .unwrap_or(resolved.budget.estimated_tokens),
                );
                context.window = resolved.budget.window_tokens;
                context.cached = resolved.budget.cached_tokens;
                let named = |source: &str, reference: &Option<String>| match reference {
                    Some(reference) => one_line(&format!("{source} {reference}")),
                    None => one_line(source),
                };
                context.items = resolved
                    .included
                    .iter()
                    .map(|item| (named(&item.source, &item.reference), item.tokens))
                    .collect();
                context.omitted = resolved
                    .omitted
                    .iter()
                    .map(|item| (named(&item.source, &item.reference), one_line(&item.reason)))
                    .collect();
            }
            Payload::ContextCompactionStarted(_) => {
                self.facts.compacting = true;
                self.activity("compacting the history", None);
            }
            Payload::ContextCompactionCompleted(done) => {
                self.facts.compacting = false;
                // The event counts the conversation alone; instructions and tools are in the window too.
                let saved = done.tokens_before.saturating_sub(done.tokens_after);
                let used = &mut self.facts.context.used;
                *used = Some(match *used {
                    Some(before) => before.saturating_sub(saved).max(done.tokens_after),
                    None => done.tokens_after,
                });
                self.notice_of(event);
            }
            Payload::ContextCompactionFailed(_) => {
                self.facts.compacting = false;
                self.notice_of(event);
            }
            Payload::CostRecorded(cost) => {
                match (cost.session_total, cost.amount) {
                    (Some(total), _) => self.facts.cost = Some(total),
                    (None, Some(amount)) => {
                        self.facts.cost = Some(self.facts.cost.unwrap_or(0.0) + amount);
                    }
                    (None, None) => self.facts.cost_incomplete = true,
                }
                if cost.amount.is_none() {
                    self.facts.cost_incomplete = true;
                }
            }
            Payload::ToolCatalogResolved(catalog) => {
                self.facts.tools = catalog.tools.iter().map(ToolLine::of).collect();
            }
            Payload::QuotaLow(_)
            | Payload::QuotaBlocked(_)
            | Payload::RuntimeWarning(_)
            | Payload::RuntimeError(_)
            | Payload::RoutingFallbackApplied(_)
            | Payload::RoutingNotPossible(_)
            | Payload::HookFailed(_)
            | Payload::Unknown(_) => self.notice_of(event),
            Payload::PolicyChanged(policy) => {
                if let Some(mode) = policy.changed.mode {
                    self.facts.mode = Some(mode);
                }
                let said = phrases::policy(policy);
                if !policy.changed.rules_added.is_empty() && !self.pending.is_empty() {
                    // It came with an answer: the call that was asked about tells it.
                    self.saved_rules.extend(said);
                } else {
                    for said in said {
                        self.notice(NoticeLevel::Information, said, None);
                    }
                }
            }
            Payload::ProcessStarted(started) if started.background => {
                self.facts.background.insert(started.process_id.clone());
                self.apply_to_call(event);
            }
            Payload::ProcessCompleted(completed) => {
                self.facts.background.remove(&completed.process_id);
                self.apply_to_call(event);
            }
            Payload::ProcessTerminated(terminated) => {
                self.facts.background.remove(&terminated.process_id);
                self.apply_to_call(event);
            }
            Payload::ProcessFailed(failed) => {
                if let Some(process_id) = &failed.process_id {
                    self.facts.background.remove(process_id);
                }
                self.apply_to_call(event);
            }
            Payload::HistoryReconstructed(history) if history.status == HistoryStatus::Degraded => {
                self.notice_of(event);
            }
            Payload::HistoryRollbackStarted(_) => self.rollback_from = Some(event.sequence),
            Payload::HistoryRollbackCompleted(rollback) => {
                let begun = self.rollback_from.take().and_then(|at| at.checked_sub(1));
                let mut text = describe(event).text;
                if let Some(before) = begun.filter(|_| !rollback.files_restored.is_empty()) {
                    text.push_str(&format!("; undo this with /undo {before}"));
                }
                self.notice(NoticeLevel::Information, text, None);
            }
            _ => self.apply_to_call(event),
        }
    }

    /// Takes in text that is not recorded yet. Without a request it would belong to, it is left for
    /// its events to tell.
    pub fn apply_live(&mut self, live: &LiveText) {
        let Some(request) = self.current_request.clone() else {
            return;
        };
        if self.facts.compacting {
            return;
        }
        match live {
            LiveText::Answer(text) if !text.is_empty() => {
                let index = self.text_cell(&request);
                self.change_text(index, |assistant| assistant.text.push_str(text));
                self.activity("the model is answering", None);
            }
            LiveText::Answer(_) => {}
            LiveText::Reasoning(text) => {
                // Its cell begins now, so that it stands before the answer.
                let index = self.reasoning_cell(&request);
                self.change(index, |cell| {
                    if let CellKind::Reasoning(reasoning) = &mut cell.kind
                        && !reasoning.recorded
                    {
                        let room = KEPT_DIFF.saturating_sub(reasoning.text.len());
                        reasoning.text.push_str(clip(text, room));
                        reasoning.bytes += text.len() as u64;
                        reasoning.characters += text.chars().count() as u64;
                    }
                });
                self.activity("the model is thinking", None);
            }
            LiveText::Call(tool) => self.activity(&format!("the model is calling {tool}"), None),
        }
    }

    /// Shows an event in the words that every reader has for it.
    pub(super) fn notice_of(&mut self, event: &Event) {
        let said = describe(event);
        let level = match said.tone {
            Tone::Plain | Tone::Good => NoticeLevel::Information,
            Tone::Warn => NoticeLevel::Warning,
            Tone::Bad => NoticeLevel::Error,
        };
        // The sign of a problem says already that it is one.
        let text = match said.kind {
            Kind::Problem | Kind::Record => said.text.clone(),
            _ => said.line(),
        };
        let prose = said
            .blocks
            .iter()
            .find(|block| block.kind == BlockKind::Prose);
        self.notice(level, text, prose.map(|block| block.text.as_str()));
    }

    pub(super) fn notice(&mut self, level: NoticeLevel, text: String, detail: Option<&str>) {
        self.push_done(CellKind::Notice(Notice {
            level,
            text: one_line(&text),
            detail: detail.map(|detail| clip(detail, KEPT_TEXT).to_owned()),
        }));
    }

    pub(super) fn activity(&mut self, text: &str, retry_in_ms: Option<u64>) {
        if let Some(turn) = &mut self.facts.turn {
            turn.activity = one_line(text);
            turn.retry_in_ms = retry_in_ms;
        }
    }

    fn turn_submitted(&mut self, event: &Event, submitted: &TurnSubmitted) {
        let Some(turn_id) = event.scope.turn_id.clone() else {
            return;
        };
        let text = submitted
            .text
            .clone()
            .unwrap_or_else(|| "(a long input, kept as an artifact)".to_owned());
        let attachments = submitted
            .input_parts
            .iter()
            .map(|part| one_line(part.name.as_deref().unwrap_or(part.kind.as_str())))
            .collect();
        self.submitted.insert(turn_id.clone(), (text, attachments));
        if submitted.status != Status::Queued {
            self.show_submitted(Some(&turn_id));
        }
    }

    /// Shows an input when work on it begins; until then it is in the queue.
    fn show_submitted(&mut self, turn_id: Option<&agent_protocol::id::TurnId>) {
        let Some(turn_id) = turn_id else { return };
        if let Some((text, attachments)) = self.submitted.remove(turn_id) {
            self.facts.queue.retain(|queued| queued.turn_id != *turn_id);
            self.steering.remove(turn_id);
            self.push_done(CellKind::User(UserCell {
                text,
                turn_id: Some(turn_id.clone()),
                attachments,
            }));
        }
    }

    fn queue_changed(&mut self, changed: &QueueChanged) {
        if changed.op == QueueOperation::Started {
            self.show_submitted(changed.queued_turn_id.as_ref());
        }
        if changed.op == QueueOperation::Removed
            && let Some(turn_id) = &changed.queued_turn_id
        {
            self.submitted.remove(turn_id);
            self.steering.remove(turn_id);
        }
        if changed.op == QueueOperation::Added
            && changed.policy == QueuePolicy::Steer
            && let Some(turn_id) = &changed.queued_turn_id
        {
            self.steering.insert(turn_id.clone());
        }
        let queue = changed.order.iter().map(|turn_id| QueuedInput {
            turn_id: turn_id.clone(),
            text: self
                .submitted
                .get(turn_id)
                .map(|(text, _)| one_line(text))
                .unwrap_or_default(),
            steers: self.steering.contains(turn_id),
        });
        self.facts.queue = queue.collect();
    }

    fn turn_completed(&mut self, completed: &TurnCompleted) {
        self.close_open_cells(false);
        let verification = &completed.verification;
        self.push_done(CellKind::TurnEnd(Box::new(TurnEnd {
            problem: None,
            cancelled: false,
            degraded: completed.outcome == TurnOutcome::Degraded,
            verification: Some(verification.status),
            verified_by: verification.command.as_deref().map(one_line),
            files: changes(&completed.files_changed),
            cost: completed.cost,
            input_tokens: completed.usage.input,
            output_tokens: completed.usage.output,
            duration_ms: completed.duration_ms,
            refused_calls: completed.refused_calls.unwrap_or(0),
        })));
        self.facts.turn = None;
    }

    /// What was asked in this turn, if nothing came of it.
    fn unanswered(&self, event: &Event) -> Option<String> {
        for cell in self.cells.iter().rev() {
            match &cell.kind {
                CellKind::User(user) if user.turn_id == event.scope.turn_id => {
                    return Some(user.text.clone());
                }
                CellKind::Notice(_) | CellKind::Reasoning(_) => {}
                _ => return None,
            }
        }
        None
    }

    fn turn_failed(&mut self, event: &Event, failed: &TurnFailed) {
        self.close_open_cells(true);
        if failed.status != Status::Cancelled && !self.own_turn {
            self.unanswered = self.unanswered(event);
        }
        // After a crash an open question stays open; after an interrupt there is nothing to allow.
        if failed.status == Status::Cancelled {
            self.pending.clear();
        }
        let duration_ms = self
            .facts
            .turn
            .as_ref()
            .map(|turn| event.timestamp.millis_since(turn.started_at));
        // What the user did needs no code to look up, and what was just said is not said again.
        let said = std::mem::take(&mut self.last_failure);
        let problem = if failed.code == "interrupted" {
            "Interrupted.".to_owned()
        } else if failed.status == Status::Cancelled {
            one_line(&failed.message)
        } else if said.is_some_and(|said| failed.message.starts_with(&said)) {
            String::new()
        } else {
            one_line(&format!(
                "{} ({} {})",
                failed.message, failed.category, failed.code
            ))
        };
        self.push_done(CellKind::TurnEnd(Box::new(TurnEnd {
            problem: Some(problem),
            cancelled: failed.status == Status::Cancelled,
            files: changes(&failed.files_changed),
            cost: failed.cost,
            duration_ms,
            ..TurnEnd::default()
        })));
        self.facts.turn = None;
    }

    fn close_open_cells(&mut self, interrupted: bool) {
        for index in self.first_open..self.cells.len() {
            if self.cells[index].done {
                continue;
            }
            self.change(index, |cell| {
                if let CellKind::Assistant(assistant) = &mut cell.kind {
                    assistant.interrupted = interrupted;
                }
                if let CellKind::Tool(tool) = &mut cell.kind {
                    tool.stage = CallStage::Ended;
                }
                cell.done = true;
            });
        }
        self.retry_cell = None;
        for said in std::mem::take(&mut self.saved_rules) {
            self.notice(NoticeLevel::Information, said, None);
        }
        self.streams.clear();
        self.open_calls.clear();
        self.evaluated.clear();
    }
}
