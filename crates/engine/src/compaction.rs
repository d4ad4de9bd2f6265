//! Making room: older history is replaced, in the model's input only, by a fact sheet from the log and
//! a short prose summary by the model. The log keeps everything.

use std::sync::Arc;

use agent_protocol::Refs;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::model::{
    CompactionTrigger, ContextCompactionCompleted, ContextCompactionFailed,
    ContextCompactionStarted, Preserved, RoutingDecided,
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

const ASK: &str = "Summarise the conversation so far for yourself, so that you can go on with the work without \
seeing it again. Write at most 400 words: what the user wants, what has been found out, what was decided and why, what is \
done, what is left, and what you were about to do. Do not repeat file contents, and do not call tools.";

impl Engine {
    /// Replaces older history, where there is some; `false` when there is none. When the summary
    /// fails, the fact sheet stands alone.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub(crate) async fn compact(
        &mut self,
        trigger: CompactionTrigger,
        limits: &mut Limits,
        interrupt: &Interrupt,
    ) -> Result<bool, EngineError> {
        let state = self.state();
        let allowance = self.kept_allowance(trigger);
        let Some(cut) = cut_point(state.conversation.items(), self.policy(), allowance) else {
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

        let (prose, failure) = match self.summarise(trigger, limits, interrupt).await {
            Ok(prose) => (Some(prose), None),
            Err(ExchangeError::Journal(error)) => return Err(error.into()),
            Err(ExchangeError::Model(error)) => (None, Some(error.message)),
        };
        if let Some(error) = failure {
            let failed = ContextCompactionFailed {
                trigger,
                error: format!("{error}; going on with the fact sheet alone"),
                retryable: true,
            };
            self.append(failed, Refs::default())?;
        }
        let state = self.state();
        let mut text = state.facts.to_text();
        if let Some(prose) = &prose {
            text.push_str("\nSummary of the conversation, written by the model\n\n");
            text.push_str(prose);
            text.push('\n');
        }
        let preserved = Preserved {
            action_ids: state.facts.open_actions(),
            incidents: state.facts.incidents(),
            evidence_ids: state.facts.evidence(),
            requests: state.facts.requests(),
        };
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
        let completed = ContextCompactionCompleted {
            trigger,
            turns,
            summary_ref: kept.artifact_id.clone(),
            summary_preview: preview,
            preserved,
            dropped,
            up_to_sequence,
            continuation_ref: None,
            tokens_before,
            tokens_after,
            summarised_by_model: prose.is_some(),
        };
        self.append(
            completed,
            Refs::default().with("summary", &kept.artifact_id),
        )?;
        self.forget_reported();
        Ok(true)
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
        ask_for_summary(&mut request.messages, trigger);
        request.tool_choice = Some(ToolChoice::None);
        request.tool_choice_after_tool_result = None;
        request.model.clone_from(&model.settings.model);
        request.max_output_tokens = model.settings.max_output_tokens;
        request.reasoning_effort = model.settings.reasoning_effort;
        let expected = prepared.expected(model);
        match limits.before_side_job(&expected) {
            Ok(room) => prepared.limit_output(room),
            // The limit ends the turn before its next request, if that is too much as well.
            Err(stop) => {
                let error = ModelError::new(ErrorKind::Quota, stop.message());
                return Err(ExchangeError::Model(error));
            }
        }
        let answer = self.ask_aside(prepared, model, interrupt).await?;
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

/// Turns a conversation into the question for its summary.
pub(crate) fn ask_for_summary(messages: &mut Vec<Arc<Message>>, trigger: CompactionTrigger) {
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
    let ask = Message::User(vec![UserPart::Text(ASK.to_owned())]);
    messages.push(Arc::new(ask));
}

/// How many entries from the start are replaced: all but the last few, and of those no more than
/// fit into `allowance` tokens, so that room is made however large they are. What the user asked is in
/// the fact sheet word for word, so the request a turn began with may be replaced too, and a turn may
/// be shortened as often as it needs.
fn cut_point(items: &[Item], policy: &ContextPolicy, allowance: u64) -> Option<usize> {
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
    let cut = items.len().saturating_sub(kept);
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
                };
                Item::new(number as u64, entry)
            })
            .collect()
    }

    fn check(sizes: &[usize], allowance: u64, expected: Option<usize>) {
        let cut = cut_point(&entries(sizes), &ContextPolicy::default(), allowance);
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
