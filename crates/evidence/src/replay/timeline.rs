//! The fold behind every form of replay: an event goes in, its entry comes out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;

use agent_history::fold::{Calls, Fold as _, ReadModels};
use agent_protocol::id::{ModelRequestId, ToolCallId, TurnId};
use agent_protocol::{Event, EventType, Payload};

use super::entry::Entry;
use super::summary::Summary;

/// Text of an unfinished answer that is kept; the rest is in the log.
const KEPT: usize = 16 * 1024;

/// A session as far as it was told.
#[derive(Debug, Clone)]
pub struct Timeline {
    models: ReadModels,
    calls: Calls,
    teller: Teller,
    /// What open requests have said so far.
    streaming: Vec<(ModelRequestId, String)>,
    imported_from: Option<String>,
    /// How many calls were open when the log stopped, if nobody writes the session any more.
    left: Option<u64>,
}

/// Tells events with the numbers of their turns and calls, and knows nothing else of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Teller {
    turns: Numbers<TurnId>,
    calls: Numbers<ToolCallId>,
}

/// Numbers things in the order they are first met, from 1.
#[derive(Debug, Clone)]
struct Numbers<T>(HashMap<T, u64>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    fn of(&mut self, id: &T) -> u64 {
        if let Some(number) = self.0.get(id) {
            return *number;
        }
        let next = self.0.len() as u64 + 1;
        self.0.insert(id.clone(), next);
        next
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            models: ReadModels::default(),
            calls: Calls::all(),
            teller: Teller::default(),
            streaming: Vec::new(),
            imported_from: None,
            left: None,
        }
    }
}

impl Timeline {
    /// Takes the next event and tells it.
    pub fn take(&mut self, event: &Event) -> Entry {
        self.fold(event);
        self.teller.tell(event)
    }

    /// Takes an event without telling it: what comes before the part that is shown.
    pub fn pass(&mut self, event: &Event) {
        self.fold(event);
        self.teller.pass(event);
    }

    fn fold(&mut self, event: &Event) {
        self.models.fold(event);
        self.calls.fold(event);
        match &event.payload {
            Payload::SessionCreated(created) => {
                self.imported_from = agent_history::imported_from(created).map(str::to_owned);
            }
            Payload::ModelRequested(requested) => {
                let id = requested.model_request_id.clone();
                self.streaming.push((id, String::new()));
            }
            Payload::ModelDelta(delta) => {
                let open = self.streaming.iter_mut();
                let mut open = open.filter(|(id, _)| *id == delta.model_request_id);
                if let Some((_, text)) = open.next()
                    && text.len() < KEPT
                {
                    text.push_str(&delta.text);
                }
            }
            Payload::ModelCompleted(completed) => self.answered(&completed.model_request_id),
            Payload::ModelFailed(failed) => self.answered(&failed.model_request_id),
            _ => {}
        }
    }

    fn answered(&mut self, request: &ModelRequestId) {
        self.streaming.retain(|(id, _)| id != request);
    }

    /// The read models after the events so far: the ones a live session has, too.
    #[must_use]
    pub fn models(&self) -> &ReadModels {
        &self.models
    }

    /// Every call so far.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The number of a call in this replay.
    #[must_use]
    pub fn call_number(&self, id: &ToolCallId) -> Option<u64> {
        self.teller.calls.0.get(id).copied()
    }

    /// The call with this number, or whose id begins like this.
    #[must_use]
    pub fn find_calls(&self, asked: &str) -> Vec<&ToolCallId> {
        let bare = asked.strip_prefix('#').unwrap_or(asked);
        if let Ok(number) = bare.parse::<u64>() {
            let numbered = self.teller.calls.0.iter();
            let found = numbered.filter(|(_, have)| **have == number);
            return found.map(|(id, _)| id).collect();
        }
        let matches = |id: &&ToolCallId| {
            let word = id.as_str();
            let without = word.strip_prefix("call_").unwrap_or(word);
            !asked.is_empty() && (word.starts_with(asked) || without.starts_with(asked))
        };
        let exact = self.teller.calls.0.keys().find(|id| id.as_str() == asked);
        match exact {
            Some(id) => vec![id],
            None => {
                let mut found: Vec<_> = self.teller.calls.0.keys().filter(matches).collect();
                found.sort();
                found
            }
        }
    }

    /// Says of open work that nobody goes on with it. The events do not tell: whether somebody
    /// holds the session does. The read models stay what the events make them.
    pub(super) fn nobody_writes(&mut self) {
        if self.left.is_none() {
            self.left = Some(self.calls.open().count() as u64);
            self.calls.nobody_writes();
        }
    }

    /// How many calls were open when the log stopped, if nobody writes the session any more.
    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }

    /// The program whose record this was, if the session was imported.
    #[must_use]
    pub fn imported_from(&self) -> Option<&str> {
        self.imported_from.as_deref()
    }

    /// What open requests have said so far.
    pub fn unfinished_texts(&self) -> impl Iterator<Item = &str> {
        self.streaming
            .iter()
            .map(|(_, text)| text.as_str())
            .filter(|text| !text.is_empty())
    }

    pub(super) fn open_requests(&self) -> u64 {
        self.streaming.len() as u64
    }

    /// What the events so far amount to.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }
}

impl Teller {
    /// Tells the next event.
    pub(super) fn tell(&mut self, event: &Event) -> Entry {
        Entry {
            sequence: event.sequence,
            event_id: event.event_id.clone(),
            timestamp: event.timestamp,
            class: class(&event.payload),
            turn: event.scope.turn_id.as_ref().map(|id| self.turns.of(id)),
            call: event
                .scope
                .tool_call_id
                .as_ref()
                .map(|id| self.calls.of(id)),
            tool_call_id: event.scope.tool_call_id.clone(),
            description: agent_history::describe(event),
        }
    }

    /// Numbers what an event is about without telling it.
    pub(super) fn pass(&mut self, event: &Event) {
        if let Some(id) = &event.scope.turn_id {
            self.turns.of(id);
        }
        if let Some(id) = &event.scope.tool_call_id {
            self.calls.of(id);
        }
    }
}

fn class(payload: &Payload) -> Cow<'static, str> {
    match payload.event_type() {
        Some(class) => Cow::Borrowed(EventType::as_str(class)),
        None => Cow::Owned(payload.type_name().to_owned()),
    }
}
