//! A past session played again: the same fold and the same cells, with a place in time. Nothing is
//! executed, written or sent.
//!
//! [`Player`] is the session and a place in it; `jump` finds the next event of a kind, `keys` says
//! what a key does, `panel` shows the audit card of a call or the files as they were, `picture` draws
//! the whole, `stage` runs it on a terminal.

mod jump;
mod keys;
mod panel;
mod picture;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use agent_evidence::replay::{Card, Cards};
use agent_history::workspace::{PathAt, Workspace};
use agent_protocol::id::{ArtifactId, ToolCallId};
use agent_protocol::{Event, Timestamp};

use crate::safe;
use crate::state::State;
use crate::state::cell::CellKind;
use crate::theme::Theme;
use crate::ui::overlay::{Reader, Transcript};

pub use jump::Mark;
pub use panel::Panel;
pub use stage::{replay, replay_on};

/// Where the events come from, by their place. The log is read in pieces, so that a long one opens
/// at once.
pub trait EventSource: Send {
    /// How many events there are.
    fn count(&self) -> u64;
    /// Events from `from` on, at most `most`; fewer only at the end.
    ///
    /// # Errors
    /// What cannot be read, in words.
    fn read(&mut self, from: u64, most: usize) -> Result<Vec<Arc<Event>>, String>;
    /// The bytes of an artifact of the session, for the content of files as they were.
    ///
    /// # Errors
    /// Why they are not there, in words.
    fn artifact(&self, id: &ArtifactId) -> Result<Vec<u8>, String> {
        Err(format!("artifact {id} cannot be read here"))
    }
}

impl EventSource for Vec<Arc<Event>> {
    fn count(&self) -> u64 {
        self.len() as u64
    }

    fn read(&mut self, from: u64, most: usize) -> Result<Vec<Arc<Event>>, String> {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.len());
        Ok(self[from..self.len().min(from + most)].to_vec())
    }
}

/// Events between two kept states; going back folds at most this many again.
const CHECKPOINT: u64 = 2048;
/// Events folded between two frames.
const SLICE: u64 = 1024;
/// Events read, and held, at a time.
const PIECE: usize = 128;

/// A session and a place in it.
pub struct Player {
    source: Box<dyn EventSource>,
    state: State,
    /// How many events are in the state.
    position: u64,
    /// Where it is going.
    target: u64,
    checkpoints: Vec<(u64, State)>,
    /// Folded as far as the player ever came; it can tell any earlier moment.
    workspace: Workspace,
    pub transcript: Transcript,
    playing: bool,
    speed: u32,
    last_time: Option<Timestamp>,
    last_kind: String,
    problem: Option<String>,
    notice: Option<String>,
    reading: Option<Reader>,
    /// What is being searched for, while it is typed.
    typing: Option<String>,
    searched: Option<String>,
    panel: Panel,
    panel_scroll: usize,
    selected_file: usize,
    /// The card that is shown, with how many events are in it.
    card: Option<CardInView>,
}

struct CardInView {
    call: ToolCallId,
    position: u64,
    cards: Cards,
    card: Card,
}

impl Player {
    /// Opens at the event `at`; `None` is the end.
    #[must_use]
    pub fn new(source: Box<dyn EventSource>, at: Option<u64>) -> Self {
        let target = at
            .map_or(source.count(), |at| at.saturating_add(1))
            .min(source.count());
        Self {
            source,
            state: State::default(),
            position: 0,
            target,
            checkpoints: vec![(0, State::default())],
            workspace: Workspace::default(),
            transcript: Transcript::at_end(),
            playing: false,
            speed: 1,
            last_time: None,
            last_kind: String::new(),
            problem: None,
            notice: None,
            reading: None,
            typing: None,
            searched: None,
            panel: Panel::None,
            panel_scroll: 0,
            selected_file: 0,
            card: None,
        }
    }

    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether it is still on its way.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.position != self.target && self.problem.is_none()
    }

    /// True if the last event is in view.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        !self.is_moving() && self.position >= self.source.count()
    }

    /// Goes to the first event that there is something to see of.
    pub fn begin(&mut self) {
        self.seek(0);
        self.advance();
        if self.state.cells.is_empty() {
            self.step_cell(true);
        }
    }

    /// The files that changed up to here, as they were here.
    #[must_use]
    pub fn files(&self) -> Vec<PathAt> {
        match self.position.checked_sub(1) {
            Some(sequence) => self.workspace.at(sequence),
            None => Vec::new(),
        }
    }

    /// Goes to the state after `count` events; the first event is always there to be seen.
    pub fn seek(&mut self, count: u64) {
        self.target = count.max(1).min(self.source.count());
        self.problem = None;
        if self.target < self.position
            && let Some((position, state)) = self
                .checkpoints
                .iter()
                .rev()
                // The event in view is folded anew: its class and time are what the player tells.
                .find(|(position, _)| *position < self.target)
        {
            (self.position, self.state) = (*position, state.clone());
        }
        self.transcript.follow = true;
        self.transcript.selected = None;
    }

    /// Folds a slice of the way to the target.
    pub fn advance(&mut self) {
        let end = self.target.min(self.position.saturating_add(SLICE));
        while self.position < end.min(self.target) && self.problem.is_none() {
            let left = usize::try_from(end - self.position).unwrap_or(PIECE);
            self.fold(left.min(PIECE));
        }
        if !self.is_moving() && self.panel == Panel::Card {
            self.refresh_card();
        }
    }

    fn fold(&mut self, most: usize) {
        let events = match self.source.read(self.position, most) {
            Ok(events) if events.is_empty() => {
                self.target = self.position;
                return;
            }
            Ok(events) => events,
            Err(problem) => {
                self.problem = Some(safe::one_line(&problem));
                return;
            }
        };
        for event in events {
            self.state.apply(&event);
            if event.sequence >= self.workspace.next_sequence() {
                let source = &self.source;
                self.workspace.apply(&event, &|id| source.artifact(id).ok());
            }
            self.position += 1;
            self.last_time = Some(event.timestamp);
            if self.position == self.target {
                event.payload.type_name().clone_into(&mut self.last_kind);
            }
            let newest = self.checkpoints.last().map_or(0, |(position, _)| *position);
            if self.position >= newest + CHECKPOINT {
                self.checkpoints.push((self.position, self.state.clone()));
            }
        }
    }

    /// Goes to the next event that begins a cell, or back to the one before.
    fn step_cell(&mut self, forward: bool) {
        let cells = &self.state.cells;
        if forward {
            let (count, from) = (cells.len(), self.position);
            self.playing = false;
            // Cells ahead are not folded yet: go event by event until one appears.
            while self.state.cells.len() == count && self.position < self.source.count() {
                self.seek(self.position + 1);
                self.advance();
                if self.problem.is_some() || self.position > from + 10_000 {
                    break;
                }
            }
        } else {
            let here = self.position.saturating_sub(1);
            let before = cells
                .iter()
                .rev()
                .map(|cell| cell.sequence)
                .find(|sequence| *sequence < here);
            self.seek(before.map_or(0, |sequence| sequence + 1));
        }
    }

    /// Goes to the next event of a kind, or to the one before; stays where there is none.
    pub fn go_to(&mut self, mark: &Mark, forward: bool) {
        self.playing = false;
        match self.find(mark, forward) {
            Ok(Some(place)) => {
                self.notice = None;
                self.seek(place + 1);
            }
            Ok(None) => {
                let way = if forward { "further" } else { "earlier" };
                self.notice = Some(format!("no {way} {}", mark.name()));
            }
            Err(problem) => self.problem = Some(safe::one_line(&problem)),
        }
    }

    fn find(&mut self, mark: &Mark, forward: bool) -> Result<Option<u64>, String> {
        if forward {
            let mut from = self.position;
            loop {
                let events = self.source.read(from, PIECE)?;
                if let Some(found) = events.iter().position(|event| mark.is_at(event)) {
                    return Ok(Some(from + found as u64));
                }
                from += events.len() as u64;
                if events.is_empty() {
                    return Ok(None);
                }
            }
        }
        // The event in view is the last one of the state; the one before it is where to look.
        let mut end = self.position.saturating_sub(1);
        while end > 0 {
            let from = end.saturating_sub(PIECE as u64);
            let length = usize::try_from(end - from).unwrap_or(PIECE);
            let events = self.source.read(from, length)?;
            if let Some(found) = events.iter().rposition(|event| mark.is_at(event)) {
                return Ok(Some(from + found as u64));
            }
            end = from;
        }
        Ok(None)
    }

    /// The call whose card is shown: the selected one, or the last one there is.
    fn call_in_view(&self) -> Option<ToolCallId> {
        let call = |cell: &Arc<crate::state::cell::Cell>| match &cell.kind {
            CellKind::Tool(tool) => tool.call_id.clone(),
            _ => None,
        };
        let selected = self.transcript.selected;
        let selected = selected.and_then(|at| call(self.state.cells.get(at)?));
        selected.or_else(|| self.state.cells.iter().rev().find_map(call))
    }

    /// Brings the card up to the event in view.
    fn refresh_card(&mut self) {
        let Some(call) = self.call_in_view() else {
            self.card = None;
            return;
        };
        let kept = self.card.take();
        let kept = kept.filter(|kept| kept.call == call && kept.position <= self.position);
        let (mut cards, mut from) = match kept {
            Some(kept) if kept.position == self.position => {
                self.card = Some(kept);
                return;
            }
            Some(kept) => (kept.cards, kept.position),
            None => (Cards::new(call.clone()), 0),
        };
        while from < self.position {
            let left = usize::try_from(self.position - from).unwrap_or(PIECE);
            let Ok(events) = self.source.read(from, left.min(PIECE)) else {
                return;
            };
            if events.is_empty() {
                break;
            }
            for event in &events {
                cards.take(event);
            }
            from += events.len() as u64;
        }
        self.panel_scroll = 0;
        self.card = Some(CardInView {
            call,
            position: self.position,
            card: cards.clone().finish(None),
            cards,
        });
    }

    /// Moves the window on the transcript by lines.
    pub fn scroll(&mut self, lines: isize, columns: usize, theme: Theme) {
        self.transcript.scroll(&self.state, lines, columns, theme);
    }

    /// How long until the next event is due, while playing.
    fn pause(&mut self) -> Option<Duration> {
        if !self.playing || self.position >= self.source.count() {
            self.playing = false;
            return None;
        }
        let next = self
            .source
            .read(self.position, 1)
            .ok()?
            .into_iter()
            .next()?;
        let millis = self
            .last_time
            .map_or(0, |last| next.timestamp.millis_since(last));
        Some(Duration::from_millis(
            (millis / u64::from(self.speed)).clamp(1, 1000),
        ))
    }
}
