//! What the screen knows: a fold over events. The same events give the same state, whether they
//! happen now, were loaded from a log, or are played again.

mod call;
pub mod cell;
mod fold;
pub mod look;
pub mod pending;
mod stream;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use agent_protocol::Timestamp;
use agent_protocol::id::{ModelRequestId, ProcessId, SessionId, ToolCallId, TurnId};
use agent_protocol::payload::plan::PlanItem;
use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::payload::tool::{Capability, CatalogEntry, CatalogPolicy};
use agent_protocol::status::{Mode, Thinking};

use crate::safe::one_line;
use cell::{Cell, CellKind, Notice, NoticeLevel};
use pending::Pending;

/// Everything the log says that a screen shows.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub cells: Vec<Arc<Cell>>,
    /// Questions in the order they were asked.
    pub pending: Vec<Pending>,
    pub facts: Facts,
    /// What the user asked in a turn that failed before anything came of it.
    pub(crate) unanswered: Option<String>,
    /// The call, by its id, whose cell is still open.
    open_calls: HashMap<ToolCallId, usize>,
    /// The answer, by its request, that is still arriving.
    streams: HashMap<ModelRequestId, Stream>,
    /// What the gate said about a call that may be asked about next.
    evaluated: HashMap<ToolCallId, Evaluated>,
    /// The request live text belongs to.
    current_request: Option<ModelRequestId>,
    submitted: HashMap<TurnId, (String, Vec<String>)>,
    /// Those of them that are to join the running turn.
    steering: HashSet<TurnId>,
    /// What the last failed model request of the running turn said.
    last_failure: Option<String>,
    /// What is to be said about rules that were saved with an answer that is being recorded.
    saved_rules: Vec<String>,
    /// The line that says that the model is asked again, while it is.
    retry_cell: Option<usize>,
    /// Where the taking back of files that is going on began.
    rollback_from: Option<u64>,
    /// The running turn is a call of the user's own.
    own_turn: bool,
    /// Every cell before this one is done.
    first_open: usize,
}

/// What the gate said about a call.
#[derive(Clone, Debug, Default)]
struct Evaluated {
    why: String,
    parts: Vec<String>,
    redirects: Vec<String>,
    unproven: Option<String>,
    understood: bool,
    every_time: bool,
    rule: Option<String>,
    session_rule: Option<String>,
}

/// Where the cells of a model request are.
#[derive(Clone, Debug, Default)]
struct Stream {
    text_cell: Option<usize>,
    reasoning_cell: Option<usize>,
}

/// The status line and what the short commands show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    pub session_id: Option<SessionId>,
    pub title: Option<String>,
    /// Where commands run, if it was changed, as seen from the project.
    pub working_directory: Option<String>,
    pub model: Option<String>,
    pub mode: Option<Mode>,
    /// How much the model may think, where something is said about it.
    pub thinking: Option<Thinking>,
    pub sandbox: Option<SandboxStatus>,
    pub sandbox_detail: Option<String>,
    pub context: ContextFacts,
    pub cost: Option<f64>,
    /// Some request had no known price, so `cost` is a lower bound.
    pub cost_incomplete: bool,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    pub requests: u64,
    /// Inputs that wait, in order.
    pub queue: Vec<QueuedInput>,
    pub turn: Option<Turn>,
    /// The history is being summed up: what the model says meanwhile is no answer.
    pub compacting: bool,
    pub tools: Vec<ToolLine>,
    /// Commands that run in the background.
    pub background: BTreeSet<ProcessId>,
    /// The things to do, as the model set them last.
    pub plan: Vec<PlanItem>,
    pub last_sequence: u64,
    pub ended: bool,
}

/// An input that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedInput {
    pub turn_id: TurnId,
    pub text: String,
    /// It joins the running turn instead of waiting for its end.
    pub steers: bool,
}

/// The turn that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub turn_id: Option<TurnId>,
    pub started_at: Timestamp,
    /// What is being done or waited for.
    pub activity: String,
    pub retry_in_ms: Option<u64>,
    pub interrupting: bool,
}

/// What the next model input holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextFacts {
    pub used: Option<u64>,
    pub window: Option<u64>,
    pub cached: Option<u64>,
    /// Source and estimated tokens.
    pub items: Vec<(String, u64)>,
    pub omitted: Vec<(String, String)>,
}

impl ContextFacts {
    /// How full the window is.
    #[must_use]
    pub fn percent(&self) -> Option<u64> {
        let window = self.window.filter(|window| *window > 0)?;
        Some(self.used?.saturating_mul(100) / window)
    }
}

/// A tool of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolLine {
    pub name: String,
    pub policy: String,
    pub description: String,
    /// It reads from the network and can be called.
    pub fetches: bool,
}

impl ToolLine {
    /// The line of a catalogue's entry: what it does, in its first sentence.
    #[must_use]
    pub fn of(entry: &CatalogEntry) -> Self {
        let description = entry.description.as_deref().unwrap_or_default();
        let first = description.lines().next().unwrap_or_default();
        let first = first.split_once(". ").map_or(first, |(first, _)| first);
        Self {
            name: one_line(&entry.tool_name),
            policy: entry.policy.to_string(),
            fetches: entry.is_read_only
                && entry.capabilities.contains(&Capability::Network)
                && entry.policy != CatalogPolicy::Unavailable,
            description: one_line(first.trim_end_matches('.')),
        }
    }
}

impl State {
    /// Every cell before this index is done.
    #[must_use]
    pub fn first_open(&self) -> usize {
        self.first_open
    }

    /// What the session is called, or else what was asked first.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        let first = || {
            self.cells.iter().find_map(|cell| match &cell.kind {
                CellKind::User(user) => Some(cell::clip(&user.text, 200)),
                _ => None,
            })
        };
        let title = self.facts.title.as_deref().or_else(first)?;
        Some(one_line(title)).filter(|title| !title.trim().is_empty())
    }

    /// Whether a turn runs.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.facts.turn.is_some()
    }

    /// Whether something goes on that the user waits for.
    #[must_use]
    pub fn works(&self) -> bool {
        self.facts.turn.is_some() || self.facts.compacting
    }

    /// The text of an input that waits.
    #[must_use]
    pub fn queued_text(&self, turn_id: &TurnId) -> Option<&str> {
        self.submitted.get(turn_id).map(|(text, _)| text.as_str())
    }

    /// Adds a line that no event made. It is about the screen itself, not about the work.
    pub fn say(&mut self, level: NoticeLevel, text: impl Into<String>) {
        self.push_done(CellKind::Notice(Notice {
            level,
            text: text.into(),
            detail: None,
        }));
    }

    /// The call with this id, also a past one.
    #[must_use]
    pub fn call(&self, call_id: &ToolCallId) -> Option<&cell::ToolCell> {
        self.cells.iter().rev().find_map(|cell| match &cell.kind {
            CellKind::Tool(tool) if tool.call_id.as_ref() == Some(call_id) => Some(&**tool),
            _ => None,
        })
    }

    fn push_done(&mut self, kind: CellKind) -> usize {
        let index = self.push(kind);
        self.change(index, |cell| cell.done = true);
        index
    }

    fn push(&mut self, kind: CellKind) -> usize {
        self.cells.push(Arc::new(Cell {
            sequence: self.facts.last_sequence,
            version: 0,
            done: false,
            kind,
        }));
        self.cells.len() - 1
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut Cell)) {
        let Some(cell) = self.cells.get_mut(index) else {
            return;
        };
        let cell = Arc::make_mut(cell);
        change(cell);
        cell.version = cell.version.wrapping_add(1);
        while self
            .cells
            .get(self.first_open)
            .is_some_and(|cell| cell.done)
        {
            self.first_open += 1;
        }
    }
}
