//! Making room: older history is replaced, in the model's input only, by a fact sheet from the log and
//! a short prose summary by the model. The log keeps everything.

use std::collections::HashSet;
use std::sync::Arc;

use agent_protocol::Refs;
use agent_protocol::id::{ContextId, ToolCallId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::model::{
    CompactionOutcome, CompactionTrigger, ContextCompactionCompleted, ContextCompactionFailed,
    ContextCompactionStarted, ContextOmission, RequestPurpose, RoutingDecided,
};
use agent_provider::conversation::{Message, ToolChoice, UserPart};
use agent_provider::{ErrorKind, ModelError};

use crate::context::ContextPolicy;
use crate::conversation::Item;
use crate::engine::{Engine, EngineError};
use crate::exchange::ExchangeError;
use crate::interrupt::Interrupt;
use crate::limits::Limits;
use crate::model::Model;

/// Entries at the end of the conversation that stay word for word.
const KEEP_ENTRIES: usize = 6;

/// Bytes for what the user said where the model's window is not known, and the bounds where it is.
const WORDS: usize = 64 * 1024;
const LEAST_WORDS: usize = 4 * 1024;
const MOST_WORDS: usize = 256 * 1024;

/// What stands in place of messages that a question for a summary has no room for.
const LEFT_OUT: &str = "[Earlier messages are left out here.]";

const ASK: &str = "Summarise the conversation so far for yourself, so that you can go on with the work without \
seeing it again. Write at most 400 words: what the user wants, what has been found out, what was decided and why, what is \
done, what is left, and what you were about to do. Do not repeat file contents, and do not call tools.";

impl Engine {
    /// Replaces older history, where there is some; `false` when there is none or the user did not
    /// wait for it. When the summary fails, the fact sheet stands alone.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub(crate) async fn compact(
        &mut self,
        trigger: CompactionTrigger,
        limits: &mut Limits,
        interrupt: &Interrupt,
    ) -> Result<bool, EngineError> {
        let state = self.thread();
        let allowance = self.kept_allowance(trigger);
        let waiting = self.waiting_calls().into_iter();
        let waiting: HashSet<ToolCallId> = waiting.map(|call| call.tool_call_id).collect();
        let items = state.conversation.items();
        let Some(cut) = cut_point(items, self.policy(), allowance, &waiting) else {
            return Ok(false);
        };
        let up_to_sequence = state.conversation.items()[cut - 1].sequence;
        let turns = state.facts.turns();
        let tokens_before = self.estimated_tokens();
        let started = ContextCompactionStarted {
            trigger,
            turns: turns.clone(),
            tokens_before,
        };
        self.append(started, Refs::default())?;

        let (prose, error) = match self.summarise(trigger, limits, interrupt).await {
            Ok(prose) => (Some(self.mask(&prose)), None),
            Err(ExchangeError::Journal(error)) => return Err(error.into()),
            Err(ExchangeError::Model(error)) => {
                if interrupt.reason().is_some() || error.kind == ErrorKind::Cancelled {
                    self.give_up_compaction(trigger, "it was interrupted")?;
                    return Ok(false);
                }
                (None, Some(error.message))
            }
        };
        let room = self.room_for_words();
        let mut keep = |text: &str| {
            let kept = self.put_artifact(ArtifactKind::UserInput, "text/plain", text.as_bytes());
            kept.map(|kept| kept.artifact_id)
        };
        let facts = &self.thread().facts;
        let (mut text, preserved) = facts.write(up_to_sequence, room, &mut keep)?;
        let mut prose_bytes = None;
        if let Some(prose) = &prose {
            text.push_str("\nSummary of the conversation, written by the model\n\n");
            let sheet_bytes = text.len();
            text.push_str(prose);
            text.push('\n');
            prose_bytes = Some((text.len() - sheet_bytes) as u64);
        }
        let dropped = vec![format!(
            "{cut} entries of the conversation up to event {up_to_sequence}"
        )];
        let kept = self.put_artifact(ArtifactKind::Summary, "text/plain", text.as_bytes())?;
        let preview: String = prose
            .as_deref()
            .unwrap_or(&text)
            .chars()
            .take(400)
            .collect();
        let tokens_after = self.estimated_after(cut, text.len());
        let outcome = if error.is_some() {
            CompactionOutcome::Degraded
        } else {
            CompactionOutcome::Completed
        };
        let completed = ContextCompactionCompleted {
            trigger,
            turns,
            summary_ref: kept.artifact_id.clone(),
            summary_preview: preview,
            preserved,
            dropped,
            up_to_sequence,
            continuation_ref: Some(self.mint::<ContextId>().to_string()),
            tokens_before,
            tokens_after,
            summarised_by_model: prose.is_some(),
            prose_bytes,
            outcome: Some(outcome),
            error,
        };
        self.append(
            completed,
            Refs::default().with("summary", &kept.artifact_id),
        )?;
        self.forget_reported();
        self.follow_input();
        Ok(true)
    }

    /// Ends a compaction that left history as it was.
    fn give_up_compaction(
        &mut self,
        trigger: CompactionTrigger,
        why: &str,
    ) -> Result<(), EngineError> {
        let failed = ContextCompactionFailed {
            trigger,
            error: why.to_owned(),
            retryable: true,
        };
        self.append(failed, Refs::default()).map(drop)
    }

    /// Ends the compaction that a program began which did not live to end it.
    pub(crate) fn end_cut_compaction(&mut self) -> Result<(), EngineError> {
        match self.thread().compacting {
            Some(trigger) => self.give_up_compaction(trigger, "the program ended before it did"),
            None => Ok(()),
        }
    }

    /// Bytes that the fact sheet may use for what the user said.
    fn room_for_words(&self) -> usize {
        let room = self.conversation_room();
        let bytes = room.map(|tokens| self.policy().bytes(tokens / 4));
        bytes.map_or(WORDS, |bytes| {
            usize::try_from(bytes)
                .unwrap_or(MOST_WORDS)
                .clamp(LEAST_WORDS, MOST_WORDS)
        })
    }

    /// How many tokens the entries that stay may take: a part of the room there is, or of the
    /// conversation where that is unknown or was found to be smaller than believed. What is left has to
    /// last for a while, or every step would ask for a summary.
    fn kept_allowance(&self, trigger: CompactionTrigger) -> u64 {
        let quarter = self.estimated_tokens() / 4;
        match self.conversation_room() {
            Some(room) if trigger == CompactionTrigger::ContextLength => quarter.min(room * 2 / 5),
            Some(room) => room * 2 / 5,
            None if trigger == CompactionTrigger::ContextLength => quarter,
            None => u64::MAX,
        }
    }

    async fn summarise(
        &mut self,
        trigger: CompactionTrigger,
        limits: &mut Limits,
        interrupt: &Interrupt,
    ) -> Result<String, ExchangeError> {
        let small = self.small_model().cloned();
        if let Some(small) = small.filter(|small| fits(small, self.estimated_tokens())) {
            self.record_side_job(&small)?;
            match self.summarise_by(&small, trigger, limits, interrupt).await {
                // A side job is not worth stopping for: the model of the turn does it instead.
                Err(ExchangeError::Model(error)) if error.kind != ErrorKind::Cancelled => {}
                other => return other,
            }
        }
        let model = self.model();
        self.summarise_by(&model, trigger, limits, interrupt).await
    }

    async fn summarise_by(
        &mut self,
        model: &Model,
        trigger: CompactionTrigger,
        limits: &mut Limits,
        interrupt: &Interrupt,
    ) -> Result<String, ExchangeError> {
        let mut prepared = self.prepare().map_err(journal_error)?;
        let request = &mut prepared.resolved.request;
        let left_out = ask_for_summary(&mut request.messages, trigger, true);
        request.tool_choice = Some(ToolChoice::None);
        request.tool_choice_after_tool_result = None;
        request.model.clone_from(&model.settings.model);
        request.max_output_tokens = model.settings.max_output_tokens;
        request.reasoning_effort = model.settings.reasoning_effort;
        if left_out > 0 {
            let omission = ContextOmission {
                source: format!("the first {left_out} messages of the conversation"),
                reference: None,
                reason: "the server found the input too long".to_owned(),
            };
            prepared.resolved.receipt.omitted.push(omission);
        }
        let expected = prepared.expected(model);
        match limits.before_side_job(&expected) {
            Ok(room) => prepared.limit_output(room),
            // The limit ends the turn before its next request, if that is too much as well.
            Err(stop) => {
                let error = ModelError::new(ErrorKind::Quota, stop.message());
                return Err(ExchangeError::Model(error));
            }
        }
        let purpose = RequestPurpose::Summary;
        let asked = self.ask_aside(prepared, model, purpose, interrupt);
        let answer = asked.await?;
        self.take_stock(model, &answer, &expected, limits)
            .map_err(journal_error)?;
        let prose = answer.response.text();
        if prose.trim().is_empty() {
            let error = ModelError::new(ErrorKind::Malformed, "the summary has no words");
            return Err(ExchangeError::Model(error));
        }
        Ok(prose)
    }

    /// That another model than the turn's does a side job, and why.
    fn record_side_job(&mut self, small: &Model) -> Result<(), ExchangeError> {
        let decided = RoutingDecided {
            requested: small.choice(),
            selected: small.choice(),
            reason: "side job: summary of the conversation".to_owned(),
            source: "model.small".to_owned(),
            candidate_count: 1,
            fallback_chain: vec![self.model().choice()],
            limit_state: None,
        };
        self.append(decided, Refs::default())
            .map(drop)
            .map_err(journal_error)
    }
}

fn journal_error(error: EngineError) -> ExchangeError {
    match error {
        EngineError::Journal(error) => error.into(),
    }
}

/// Whether the conversation and an answer fit into a model's window, as far as that is known.
fn fits(model: &Model, conversation: u64) -> bool {
    let answer = u64::from(model.settings.max_output_tokens.unwrap_or(0));
    model
        .settings
        .window
        .is_none_or(|window| conversation.saturating_add(answer) < window)
}

/// Turns a conversation into the question for its summary; gives back how many messages were left
/// out. `begins_with_user` is how it is asked; older logs have questions that began anywhere.
pub(crate) fn ask_for_summary(
    messages: &mut Vec<Arc<Message>>,
    trigger: CompactionTrigger,
    begins_with_user: bool,
) -> usize {
    let all = messages.len();
    if trigger == CompactionTrigger::ContextLength {
        // It was too long once already: ask over the later half only, from something a user said.
        let half = messages.len() / 2;
        let from = (half..messages.len()).find(|at| matches!(*messages[*at], Message::User(_)));
        messages.drain(..from.unwrap_or(half));
        while matches!(
            messages.first().map(Arc::as_ref),
            Some(Message::ToolResult(_))
        ) {
            messages.remove(0);
        }
    }
    let said = |text: &str| Arc::new(Message::User(vec![UserPart::Text(text.to_owned())]));
    let left_out = all - messages.len();
    let is_user = matches!(messages.first().map(Arc::as_ref), Some(Message::User(_)));
    if begins_with_user && left_out > 0 && !is_user {
        messages.insert(0, said(LEFT_OUT));
    }
    messages.push(said(ASK));
    left_out
}

/// How many entries from the start are replaced: all but the last few, and of those no more than
/// fit into `allowance` tokens, so that room is made however large they are. What the user asked is in
/// the fact sheet word for word, so the request a turn began with may be replaced too, and a turn may
/// be shortened as often as it needs. A call in `waiting` stays, because its result is yet to come.
fn cut_point(
    items: &[Item],
    policy: &ContextPolicy,
    allowance: u64,
    waiting: &HashSet<ToolCallId>,
) -> Option<usize> {
    let mut tokens = 0;
    let kept = items
        .iter()
        .rev()
        .take(KEEP_ENTRIES)
        .take_while(|item| {
            tokens += policy.entry_tokens(&item.entry);
            tokens <= allowance
        })
        .count()
        .max(1);
    let waits = |item: &Item| {
        let mut calls = item.entry.calls().iter();
        calls.any(|call| waiting.contains(&call.tool_call_id))
    };
    let first_waiting = items.iter().position(waits).unwrap_or(items.len());
    let cut = items.len().saturating_sub(kept).min(first_waiting);
    // A summary alone is not worth another one.
    (cut > 1).then_some(cut)
}

#[cfg(test)]
mod tests {
    use agent_protocol::id::ArtifactId;

    use super::*;
    use crate::conversation::Entry;

    fn entries(sizes: &[usize]) -> Vec<Item> {
        sizes
            .iter()
            .enumerate()
            .map(|(number, bytes)| {
                let entry = Entry::Summary {
                    text: "x".repeat(*bytes),
                    artifact: ArtifactId::from_digest(&[0; 32]),
                    prose_bytes: 0,
                    excerpts: 0,
                };
                Item::new(number as u64, entry)
            })
            .collect()
    }

    fn check(sizes: &[usize], allowance: u64, expected: Option<usize>) {
        let policy = ContextPolicy::default();
        let cut = cut_point(&entries(sizes), &policy, allowance, &HashSet::new());
        assert_eq!(cut, expected, "{sizes:?} in {allowance}");
    }

    /// Four bytes are a token here.
    #[test]
    fn the_last_entries_stay_as_far_as_they_fit() {
        check(&[40; 10], 1_000, Some(4));
        check(&[40; 10], 30, Some(7));
        check(&[40; 10], 5, Some(9));
        check(&[40, 40, 400_000, 40], 100, Some(3));
        check(&[40, 400_000], 100, None);
        check(&[], 100, None);
    }
}
