//! The past of a session that is opened: what of it is printed, and how a glimpse gives way to all of
//! it.

use super::Ui;
use super::overlay::Overlay;
use crate::state::State;
use crate::state::look::row_around;

/// Cells of a past session that are printed when it is opened.
const HISTORY_CELLS: usize = 60;

/// What has been printed above the live part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    pub cells: usize,
    /// Where the answer goes on that is open.
    pub answer: Begun,
    /// The open answer, and how much of it was recorded when it was last looked through.
    pub looked: (usize, usize),
    /// Cells of a long past that were not printed, still to be said.
    pub skipped: usize,
    /// There is more past than is known yet, still to be said.
    pub glimpse: bool,
    /// Whether the scrollback has a line, so that the next cell needs a gap.
    pub any: bool,
}

/// How much of an answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Bytes of its text in blocks that are finished.
    pub bytes: usize,
    /// The place in the text after them, as it is shown, up to which the next block is printed too.
    pub source: usize,
}

impl Ui {
    /// Puts the whole past in the place of the glimpse that stood for it. What is printed stays
    /// printed: it is the same end.
    pub(super) fn take_past(&mut self, past: State) {
        let printed = self.printed.cells.checked_sub(1);
        let last = printed
            .and_then(|at| self.state.cells.get(at))
            .map(|cell| cell.sequence);
        let before = self.state.cells.len();
        let model = self.state.facts.model.take();
        self.state = past;
        self.in_force();
        for event in self.since_glimpse.take().unwrap_or_default() {
            if event.sequence > self.state.facts.last_sequence {
                self.state.apply(&event);
            }
        }
        self.state.facts.model = self.state.facts.model.take().or(model);
        match last {
            Some(last) => {
                let cells = &self.state.cells;
                self.printed.cells = cells.partition_point(|cell| cell.sequence <= last);
            }
            None => self.skip_old_cells(),
        }
        let more = self.state.cells.len().saturating_sub(before);
        let open = match &mut self.overlay {
            Some(Overlay::Transcript(transcript)) => Some(transcript),
            _ => None,
        };
        for transcript in open.into_iter().chain([&mut self.transcript]) {
            transcript.top += more;
            transcript.selected = transcript.selected.map(|at| at + more);
            transcript.unfolded = transcript.unfolded.iter().map(|at| at + more).collect();
        }
    }

    /// Mode and model are what holds now, whatever held when the session was left.
    pub(super) fn in_force(&mut self) {
        self.state.unanswered = None;
        self.state.facts.mode = Some(self.settings.mode);
        if !self.settings.model.is_empty() {
            self.state.facts.model = Some(self.settings.model.clone());
        }
    }

    /// Of a long past only the end is printed; all of it is in the transcript.
    pub(super) fn skip_old_cells(&mut self) {
        let open = self.state.first_open();
        if open > self.printed.cells + HISTORY_CELLS {
            let from = open - HISTORY_CELLS;
            let from = row_around(&self.state.cells, from).map_or(from, |row| row.start);
            let from = from.max(self.printed.cells);
            self.printed.skipped += from - self.printed.cells;
            self.printed.cells = from;
            self.printed.answer = Begun::default();
        }
    }
}
