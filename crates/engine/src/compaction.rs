//! Making room: older history is replaced, in the model's input only, by a fact sheet from the log and
//! a short prose summary by the model. The log keeps everything.

use agent_protocol::Refs;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::model::{
    CompactionTrigger, ContextCompactionCompleted, ContextCompactionFailed,
    ContextCompactionStarted, Preserved,
};
use agent_provider::conversation::{Message, ToolChoice, UserPart};

use crate::conversation::{Entry, Item};
use crate::engine::{Engine, EngineError};
use crate::exchange::ExchangeError;
use crate::interrupt::Interrupt;

/// Entries at the end of the conversation that stay word for word.
const KEEP_ENTRIES: usize = 6;

const ASK: &str = "Summarise the conversation so far for yourself, so that you can go on with the work without \
seeing it again. Write at most 400 words: what the user wants, what has been found out, what was decided and why, what is \
done, what is left, and what you were about to do. Do not repeat file contents, and do not call tools.";

impl Engine {
    /// Replaces older history. When the summary fails, the fact sheet stands alone.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub(crate) async fn compact(
        &mut self,
        trigger: CompactionTrigger,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        let state = self.state();
        let Some(cut) = cut_point(state.conversation.items()) else {
            return Ok(());
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

        let (prose, failure) = match self.summarise(trigger, interrupt).await {
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
        Ok(())
    }

    async fn summarise(
        &mut self,
        trigger: CompactionTrigger,
        interrupt: &Interrupt,
    ) -> Result<String, ExchangeError> {
        let mut prepared = self.prepare().map_err(|error| match error {
            EngineError::Journal(error) => error,
        })?;
        let request = &mut prepared.resolved.request;
        ask_for_summary(&mut request.messages, trigger);
        request.tool_choice = Some(ToolChoice::None);
        request.tool_choice_after_tool_result = None;
        let answer = self.ask_aside(prepared, interrupt).await?;
        Ok(answer.response.text())
    }
}

/// Turns a conversation into the question for its summary.
pub(crate) fn ask_for_summary(messages: &mut Vec<Message>, trigger: CompactionTrigger) {
    if trigger == CompactionTrigger::ContextLength {
        // It was too long once already: ask over the later half only, from something a user said.
        let half = messages.len() / 2;
        let from = (half..messages.len()).find(|at| matches!(messages[*at], Message::User(_)));
        messages.drain(..from.unwrap_or(half));
        while matches!(messages.first(), Some(Message::ToolResult(_))) {
            messages.remove(0);
        }
    }
    messages.push(Message::User(vec![UserPart::Text(ASK.to_owned())]));
}

/// How many entries from the start are replaced: all but the last few, never splitting off what the user
/// asked last.
fn cut_point(items: &[Item]) -> Option<usize> {
    let last_request = items
        .iter()
        .rposition(|item| matches!(item.entry, Entry::User { .. }))?;
    let cut = items.len().saturating_sub(KEEP_ENTRIES);
    // The request itself is in the fact sheet word for word, so the turn it began may be cut too.
    let cut = if last_request < cut {
        cut
    } else {
        last_request.min(cut)
    };
    (cut > 1).then_some(cut)
}
