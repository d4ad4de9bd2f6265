//! Model inputs rebuilt from the log alone, so that what a receipt claims can be checked byte by byte.

use std::collections::BTreeMap;

use agent_history::fold::{ChildThreads, Owner};
use agent_protocol::id::{ArtifactId, ModelRequestId, ThreadId};
use agent_protocol::payload::model::{CompactionTrigger, ModelRequested};
use agent_protocol::payload::tool::{CatalogEntry, CatalogPolicy};
use agent_protocol::{Event, Payload};
use agent_provider::conversation::{ModelRequest, ReasoningEffort, ToolSpec};
use agent_provider::dialect::{self, Dialect};
use agent_provider::quirks::Quirks;

use crate::compaction::ask_for_summary;
use crate::conversation::{ArtifactText, Conversation};
use crate::engine::tool_spec;
use crate::exchange::choice_from_word;
use crate::prompt::Preamble;

/// One model input, made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    pub model_request_id: ModelRequestId,
    pub sequence: u64,
    /// What the log says was sent.
    pub recorded_hash: String,
    /// What the log's facts give; `None` when a fact is missing.
    pub bytes: Option<Vec<u8>>,
}

/// Rebuilds every model input of a log, of all its threads. Feed it the events in order.
pub struct Rebuilder {
    quirks: fn(&str) -> &'static Quirks,
    threads: ChildThreads,
    /// The events that belong to the session, with which every child begins.
    session: Thread,
    main: Thread,
    children: BTreeMap<ThreadId, Thread>,
}

/// The parts of a thread's model inputs that the events before a request decide.
#[derive(Clone, Default)]
struct Thread {
    conversation: Conversation,
    preamble: Option<ArtifactId>,
    compacting: Option<CompactionTrigger>,
}

impl Rebuilder {
    /// `quirks` gives the habits of the server behind a provider's name.
    #[must_use]
    pub fn new(quirks: fn(&str) -> &'static Quirks) -> Self {
        Self {
            quirks,
            threads: ChildThreads::default(),
            session: Thread::default(),
            main: Thread::default(),
            children: BTreeMap::new(),
        }
    }

    /// Takes in one event; gives an input for each request that went on the wire.
    pub fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) -> Option<Rebuilt> {
        let thread = match self.threads.owner(event) {
            Owner::Session => {
                self.session.apply(event, artifact);
                for child in self.children.values_mut() {
                    child.apply(event, artifact);
                }
                &mut self.main
            }
            Owner::Main => &mut self.main,
            Owner::Child(id) => {
                let begun = || self.session.clone();
                self.children.entry(id.clone()).or_insert_with(begun)
            }
        };
        let rebuilt = match &event.payload {
            Payload::ModelRequested(requested) => Some(Rebuilt {
                model_request_id: requested.model_request_id.clone(),
                sequence: event.sequence,
                recorded_hash: requested.input_hash.clone(),
                bytes: thread.input(requested, self.quirks, artifact),
            }),
            _ => None,
        };
        thread.apply(event, artifact);
        rebuilt
    }
}

impl Thread {
    fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) {
        match &event.payload {
            Payload::ContextResolved(_) => {
                let named = event
                    .refs
                    .0
                    .get("preamble")
                    .and_then(|_| event.refs.artifact_ids().next());
                self.preamble = named.or_else(|| self.preamble.take());
            }
            Payload::ContextCompactionStarted(started) => self.compacting = Some(started.trigger),
            Payload::ContextCompactionCompleted(_) | Payload::ContextCompactionFailed(_) => {
                self.compacting = None;
            }
            _ => {}
        }
        self.conversation.apply(event, artifact);
    }

    fn input(
        &self,
        requested: &ModelRequested,
        quirks: fn(&str) -> &'static Quirks,
        artifact: ArtifactText<'_>,
    ) -> Option<Vec<u8>> {
        let system = Preamble::parts_from_bytes(&artifact(self.preamble.as_ref()?)?)?;
        let catalogue = artifact(requested.tool_catalog_ref.as_ref()?)?;
        let catalogue = std::str::from_utf8(&catalogue).ok()?;
        let catalogue: Vec<CatalogEntry> = serde_json::from_str(catalogue).ok()?;
        let tools: Vec<ToolSpec> = catalogue
            .into_iter()
            .filter(|entry| entry.policy != CatalogPolicy::Unavailable)
            .map(tool_spec)
            .collect();
        let mut messages = self.conversation.messages();
        if let Some(trigger) = self.compacting {
            let is_said = requested.purpose.is_some();
            ask_for_summary(&mut messages, trigger, is_said);
        }
        let options = &requested.options;
        if options.images == Some(false) {
            crate::images::leave_out(&mut messages);
        }
        let request = ModelRequest {
            model: requested.model.clone(),
            system,
            messages,
            tools,
            tool_choice: options.tool_choice.as_deref().and_then(choice_from_word),
            max_output_tokens: options
                .max_output_tokens
                .and_then(|limit| u32::try_from(limit).ok()),
            temperature: options.temperature,
            reasoning_effort: options
                .reasoning_effort
                .as_deref()
                .and_then(effort_from_word),
            ..ModelRequest::default()
        };
        let dialect = Dialect::from_word(&requested.strategy)?;
        Some(dialect::encode(
            dialect,
            &request,
            quirks(&requested.provider),
        ))
    }
}

fn effort_from_word(word: &str) -> Option<ReasoningEffort> {
    use ReasoningEffort::{High, Low, Medium, Minimal};
    [Minimal, Low, Medium, High]
        .into_iter()
        .find(|effort| effort.as_str() == word)
}
