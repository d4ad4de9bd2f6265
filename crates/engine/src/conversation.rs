//! The conversation of one thread: a fold of its events into what the next model input repeats.
//!
//! Live, on resume and when an input is rebuilt for an audit, the same fold runs over the same
//! events, so the bytes are the same. It takes observations only, never raw results, and it never
//! looks at the workspace.

mod own;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use agent_protocol::id::{ArtifactId, ModelRequestId, ToolCallId, TurnId};
use agent_protocol::payload::conversation::TurnSubmitted;
use agent_protocol::payload::model::{ContextCompactionCompleted, ModelCompleted};
use agent_protocol::payload::tool::{
    Baseline, ToolIntent, ToolObservation, ToolResult as Recorded,
};
use agent_protocol::{Code, Event, Payload};
use agent_provider::conversation::{
    Arguments, AssistantPart, Message, ToolCall, ToolResult, UserPart,
};
use agent_tool_runtime::wrapper::wrap_untrusted;
use serde_json::Value;

use crate::continuation::Continuation;
use crate::entering::Entering;
use crate::notes::Notes;
pub use own::{Attached, OwnCalls};

/// Looks up the text of an artifact; `None` when it is missing or altered.
pub type ArtifactText<'a> = &'a dyn Fn(&ArtifactId) -> Option<Vec<u8>>;

/// What stands in place of content whose artifact is gone.
const MISSING: &str = "[this content is no longer available: its artifact is missing]";
/// What stands in place of what came of a call that has no observation.
const NOT_OBSERVED: &str = "[no observation was recorded for this call]";

/// The conversation so far.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    items: Vec<Item>,
    submitted: BTreeMap<TurnId, UserInput>,
    entering: Entering,
    calls: BTreeMap<ToolCallId, usize>,
    /// Requests whose answers are for something else, e.g. the summary of a compaction. Logs from
    /// before requests said what they are for have none: their answers were sent on, and are told so.
    aside: BTreeSet<ModelRequestId>,
    notes: Notes,
    /// Events that were inherited: a fork's own count on from there.
    base: u64,
}

/// One entry of the conversation, with the event it began with.
#[derive(Clone, Debug)]
pub struct Item {
    /// Sequence of the first event of this entry; in a fork, counted on from what it inherited.
    pub sequence: u64,
    /// What it is.
    pub entry: Entry,
    /// Artifacts whose content belongs here and is gone.
    pub(crate) gone: Vec<ArtifactId>,
    /// What it says in a request, once that was asked for.
    messages: OnceLock<Vec<Arc<Message>>>,
}

impl Item {
    /// An entry that began with the event `sequence`.
    #[must_use]
    pub fn new(sequence: u64, entry: Entry) -> Self {
        Self {
            sequence,
            entry,
            gone: Vec::new(),
            messages: OnceLock::new(),
        }
    }

    fn entry_mut(&mut self) -> &mut Entry {
        self.messages = OnceLock::new();
        &mut self.entry
    }

    fn messages(&self) -> &[Arc<Message>] {
        self.messages
            .get_or_init(|| self.entry.messages().into_iter().map(Arc::new).collect())
    }
}

/// What an entry of the conversation is.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Something the user said.
    User {
        turn_id: Option<TurnId>,
        input: UserInput,
    },
    /// A fact sheet and summary that stand for everything before.
    Summary {
        text: String,
        artifact: ArtifactId,
        /// Bytes at the end of the text that a model wrote.
        prose_bytes: usize,
        /// Inputs of the user that it does not repeat whole.
        excerpts: usize,
    },
    /// One answer of the model and what came of its calls.
    Step(Step),
    /// Something the user ran themselves.
    Own(OwnCalls),
}

/// What a user said.
#[derive(Clone, Debug, Default)]
pub struct UserInput {
    pub text: String,
    /// Images by their artifact, media type and bytes as a `data:` address.
    pub images: Vec<String>,
    pub attached: Attached,
    /// Artifacts of it that are gone.
    gone: Vec<ArtifactId>,
}

impl UserInput {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.images.is_empty() && self.gone.is_empty()
    }
}

/// One answer of the model.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub model_request_id: ModelRequestId,
    pub text: String,
    pub continuation: Continuation,
    pub calls: Vec<Call>,
    /// Whether the answer has ended. Calls may arrive before it has.
    pub answered: bool,
    /// Why it ended, in the log's word.
    pub stop_reason: String,
}

/// One call, of an answer or of the user.
#[derive(Clone, Debug)]
pub struct Call {
    pub tool_call_id: ToolCallId,
    pub provider_call_id: String,
    pub name: String,
    /// An object as compact JSON, as it is repeated with every request.
    pub arguments: Option<String>,
    /// The version of a file whose content the observation has, or that the call made.
    pub file: Option<Baseline>,
    pub result: Option<CallResult>,
}

/// What the model sees of a call.
#[derive(Clone, Debug)]
pub struct CallResult {
    pub text: String,
    pub ok: bool,
    /// Bytes that the observation left out of what there was.
    pub omitted_bytes: u64,
    /// The text is gone.
    is_gone: bool,
}

impl Conversation {
    /// Takes in one event. Events that say nothing to the model change nothing.
    pub fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) {
        match &event.payload {
            Payload::SessionCreated(created) => {
                self.notes.apply(event);
                if let Some(parent) = &created.parent {
                    self.base += parent.sequence + 1;
                    // What was not finished or begun before the fork is not going to be.
                    self.submitted.clear();
                    self.calls.clear();
                }
            }
            Payload::TurnSubmitted(submitted) => self.submit(event, submitted, artifact),
            Payload::ModelRequested(requested) if requested.purpose.is_some() => {
                self.aside.insert(requested.model_request_id.clone());
            }
            Payload::ContextCompactionFailed(_) => self.aside.clear(),
            Payload::ToolIntent(intent) => self.intend(event, intent, artifact),
            Payload::ToolResult(result) => self.file_of(event, result),
            Payload::ToolObservation(observation) => self.observe(event, observation, artifact),
            Payload::ModelCompleted(completed) => self.answer(event, completed, artifact),
            Payload::TurnFailed(_) => {
                // What was asked stands before the news of its end.
                if let Some(turn_id) = self.entering.turn(event) {
                    self.enter(event, turn_id);
                }
                self.notes.apply(event);
            }
            // Another program's modes are not ours to keep.
            Payload::TurnStarted(_) if !self.entering.is_recorded(event) => {
                self.notes.apply(event);
            }
            Payload::PolicyChanged(changed) => self.note_directories(changed),
            Payload::SessionUpdated(updated) => self.note_working_directory(updated),
            Payload::ContextCompactionCompleted(compaction) => {
                self.compact(event, compaction, artifact);
            }
            _ => {}
        }
        if let Some(turn_id) = self.entering.turn(event) {
            self.enter(event, turn_id);
        }
    }

    fn submit(&mut self, event: &Event, submitted: &TurnSubmitted, artifact: ArtifactText<'_>) {
        let Some(turn_id) = event.scope.turn_id.clone() else {
            return;
        };
        let mut gone = Vec::new();
        let text = text_or_artifact(
            submitted.text.as_deref(),
            submitted.input_ref.as_ref(),
            artifact,
            &mut gone,
        );
        let mut images = Vec::new();
        for part in &submitted.input_parts {
            let media_type = part.media_type.as_deref();
            let media_type = media_type.filter(|kind| kind.starts_with("image/"));
            let (Some(id), Some(media_type)) = (&part.artifact, media_type) else {
                continue;
            };
            match artifact(id) {
                Some(bytes) => images.push(crate::images::data_url(media_type, &bytes)),
                None => gone.push(id.clone()),
            }
        }
        let input = UserInput {
            text,
            images,
            attached: Attached::of(submitted),
            gone,
        };
        self.submitted.insert(turn_id, input);
    }

    /// A submitted input enters the conversation when work on it begins.
    fn enter(&mut self, event: &Event, turn_id: &TurnId) {
        let Some(mut input) = self.submitted.remove(turn_id) else {
            return;
        };
        if self.entering.is_recorded(event) && input.is_empty() {
            // The record begins in the middle: nobody said this.
            return;
        }
        if let Some(note) = self.notes.take() {
            input.text = format!("{note}\n\n{}", input.text);
        }
        let gone = std::mem::take(&mut input.gone);
        let entry = Entry::User {
            turn_id: Some(turn_id.clone()),
            input,
        };
        let item = Item::new(self.base + event.sequence, entry);
        self.items.push(Item { gone, ..item });
    }

    fn intend(&mut self, event: &Event, intent: &ToolIntent, artifact: ArtifactText<'_>) {
        let Some(call_id) = &event.scope.tool_call_id else {
            return;
        };
        // Another program's tools have other names and inputs; servers need not take them.
        if self.entering.is_recorded(event) {
            return;
        }
        let kept = || {
            let bytes = artifact(intent.raw_input_ref.as_ref()?)?;
            serde_json::from_slice::<Value>(&bytes).ok()
        };
        let arguments = match &intent.raw_input {
            Some(input) => input.is_object().then(|| input.to_string()),
            None => kept()
                .filter(Value::is_object)
                .map(|input| input.to_string()),
        };
        let name = intent
            .requested_name
            .clone()
            .unwrap_or_else(|| intent.tool_name.clone());
        let provider_call_id = intent
            .provider_call_id
            .clone()
            .unwrap_or_else(|| call_id.to_string());
        let call = Call {
            tool_call_id: call_id.clone(),
            provider_call_id,
            name,
            arguments,
            file: None,
            result: None,
        };
        let at = match &intent.model_request_id {
            Some(request) => Some(self.step_of(self.base + event.sequence, request)),
            None => self.own_of(event.scope.turn_id.as_ref()),
        };
        if let Some(at) = at
            && let Some(calls) = self.items[at].entry_mut().calls_mut()
        {
            calls.push(call);
            self.calls.insert(call_id.clone(), at);
        }
    }

    /// A result says which file it is about. One that says "unchanged" has none of its text.
    fn file_of(&mut self, event: &Event, result: &Recorded) {
        let Some(call_id) = &event.scope.tool_call_id else {
            return;
        };
        let has_text = result.ok && result.code != Code::FileUnchanged;
        if let Some(at) = self.calls.get(call_id).filter(|_| has_text)
            && let Some(item) = self.items.get_mut(*at)
            && let Some(call) = item.entry.call_mut(call_id)
        {
            call.file.clone_from(&result.data.baseline);
        }
    }

    fn observe(
        &mut self,
        event: &Event,
        observation: &ToolObservation,
        artifact: ArtifactText<'_>,
    ) {
        let Some(call_id) = &event.scope.tool_call_id else {
            return;
        };
        let Some(at) = self.calls.remove(call_id) else {
            return;
        };
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let gone_before = item.gone.len();
        let text = text_or_artifact(
            observation.model_text.as_deref(),
            observation.model_text_ref.as_ref(),
            artifact,
            &mut item.gone,
        );
        let is_gone = item.gone.len() > gone_before;
        let wrapped = wrap_untrusted(call_id, &observation.tool_name, &text);
        if let Some(call) = item.entry_mut().call_mut(call_id) {
            call.result = Some(CallResult {
                text: wrapped,
                ok: observation.ok,
                omitted_bytes: observation.omitted_bytes,
                is_gone,
            });
        }
    }

    fn answer(&mut self, event: &Event, completed: &ModelCompleted, artifact: ArtifactText<'_>) {
        if self.aside.remove(&completed.model_request_id) {
            return;
        }
        let at = self.step_of(self.base + event.sequence, &completed.model_request_id);
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let text = text_or_artifact(
            completed.text.as_deref(),
            completed.text_ref.as_ref(),
            artifact,
            &mut item.gone,
        );
        let continuation = completed.continuation_ref.as_ref().and_then(|id| {
            let kept = artifact(id).and_then(|bytes| Continuation::from_bytes(&bytes));
            if kept.is_none() {
                item.gone.push(id.clone());
            }
            kept
        });
        if let Entry::Step(step) = item.entry_mut() {
            step.text = text;
            step.continuation = continuation.unwrap_or_default();
            step.answered = true;
            step.stop_reason.clone_from(&completed.stop_reason);
        }
    }

    fn step_of(&mut self, sequence: u64, request: &ModelRequestId) -> usize {
        let found = self.items.iter().rposition(
            |item| matches!(&item.entry, Entry::Step(step) if step.model_request_id == *request),
        );
        found.unwrap_or_else(|| {
            let step = Step {
                model_request_id: request.clone(),
                ..Step::default()
            };
            self.items.push(Item::new(sequence, Entry::Step(step)));
            self.items.len() - 1
        })
    }

    fn compact(
        &mut self,
        event: &Event,
        compaction: &ContextCompactionCompleted,
        artifact: ArtifactText<'_>,
    ) {
        let mut gone = Vec::new();
        let text = text_or_artifact(None, Some(&compaction.summary_ref), artifact, &mut gone);
        // The summary of another program need not repeat what the user said.
        let stays = self.entering.is_recorded(event);
        let is_said = |item: &Item| stays && matches!(item.entry, Entry::User { .. });
        self.items
            .retain(|item| item.sequence > compaction.up_to_sequence || is_said(item));
        // Of an older log it is only known whether a model had a part in it.
        let prose = compaction.prose_bytes.unwrap_or(u64::MAX);
        let prose_bytes = if compaction.summarised_by_model {
            usize::try_from(prose).unwrap_or(usize::MAX).min(text.len())
        } else {
            0
        };
        let entry = Entry::Summary {
            text,
            artifact: compaction.summary_ref.clone(),
            prose_bytes,
            excerpts: compaction.preserved.excerpts.len(),
        };
        let item = Item::new(compaction.up_to_sequence, entry);
        let is_before = |before: &Item| before.sequence <= compaction.up_to_sequence;
        let at = self.items.partition_point(is_before);
        self.items.insert(at, Item { gone, ..item });
        self.aside.clear();
        self.calls.clear();
        for (at, item) in self.items.iter().enumerate() {
            let open = item.entry.calls().iter();
            let open = open.filter(|call| call.result.is_none());
            self.calls
                .extend(open.map(|call| (call.tool_call_id.clone(), at)));
        }
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The messages of the next model input.
    #[must_use]
    pub fn messages(&self) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            messages.extend(item.messages().iter().cloned());
            messages.extend(crate::cut::word_behind(&self.items[at..]));
        }
        messages
    }
}

impl Entry {
    /// What it says in a request.
    fn messages(&self) -> Vec<Message> {
        let said = |text: String| vec![Message::User(vec![UserPart::Text(text)])];
        match self {
            Self::User { input, .. } => {
                let text = std::iter::once(UserPart::Text(input.in_words()));
                let images = input.images.iter().map(|url| crate::images::part(url));
                vec![Message::User(text.chain(images).collect())]
            }
            Self::Summary { text, .. } => said(text.clone()),
            Self::Step(step) => step.messages(),
            Self::Own(own) => said(own.in_words()),
        }
    }

    /// The calls it holds.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        match self {
            Self::Step(step) => &step.calls,
            Self::Own(own) => &own.calls,
            Self::User { input, .. } => &input.attached.calls,
            Self::Summary { .. } => &[],
        }
    }

    fn call_mut(&mut self, id: &ToolCallId) -> Option<&mut Call> {
        let calls = self.calls_mut().into_iter().flatten();
        calls.into_iter().find(|call| call.tool_call_id == *id)
    }

    fn calls_mut(&mut self) -> Option<&mut Vec<Call>> {
        match self {
            Self::Step(step) => Some(&mut step.calls),
            Self::Own(own) => Some(&mut own.calls),
            Self::User { input, .. } => Some(&mut input.attached.calls),
            Self::Summary { .. } => None,
        }
    }
}

impl Call {
    /// True if the text of its observation is there.
    pub(crate) fn has_text(&self) -> bool {
        self.result.as_ref().is_some_and(|told| !told.is_gone)
    }
}

impl Step {
    fn messages(&self) -> Vec<Message> {
        if self.calls.is_empty() && !crate::cut::can_be_repeated(self) {
            return Vec::new();
        }
        let mut calls = Vec::with_capacity(self.calls.len());
        for (index, call) in self.calls.iter().enumerate() {
            let arguments_text = match &call.arguments {
                Some(arguments) => arguments.clone(),
                // What could not be read is not sent back: servers refuse it. The observation says
                // what was wrong.
                None => "{}".to_owned(),
            };
            calls.push(AssistantPart::ToolCall(ToolCall {
                provider_call_id: call.provider_call_id.clone(),
                name: call.name.clone(),
                arguments_text,
                arguments: Arguments::Object,
                opaque: self.continuation.call_opaque(index),
            }));
        }
        let parts = self.continuation.arrange(&self.text, calls);
        if parts.is_empty() {
            return Vec::new();
        }
        let mut messages = vec![Message::Assistant(parts)];
        for call in &self.calls {
            let (text, is_error) = match &call.result {
                Some(result) => (result.text.clone(), !result.ok),
                None => (NOT_OBSERVED.to_owned(), true),
            };
            messages.push(Message::ToolResult(ToolResult {
                provider_call_id: call.provider_call_id.clone(),
                name: call.name.clone(),
                text,
                is_error,
            }));
        }
        messages
    }
}

fn text_or_artifact(
    text: Option<&str>,
    reference: Option<&ArtifactId>,
    artifact: ArtifactText<'_>,
    gone: &mut Vec<ArtifactId>,
) -> String {
    match (text, reference) {
        (Some(text), _) => text.to_owned(),
        (None, Some(id)) => artifact(id)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .unwrap_or_else(|| {
                gone.push(id.clone());
                MISSING.to_owned()
            }),
        (None, None) => String::new(),
    }
}
