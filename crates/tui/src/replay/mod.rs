//! A past session played again: the same fold and the same cells, with a place in time. Nothing is
//! executed, written or sent.
//!
//! [`Player`] is the session and a place in it; `jump` finds the next event of a kind, `panel` shows
//! the audit card of a call or the files as they were, `stage` runs it on a terminal.

mod jump;
mod panel;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::id::{ArtifactId, ToolCallId};
use agent_protocol::{Event, Timestamp};
use agent_session::replay::{Card, Cards};
use agent_session::workspace::{PathAt, PathState, Workspace};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use crate::host::{Document, DocumentFormat};
use crate::safe;
use crate::state::State;
use crate::state::cell::{CellKind, ToolCell};
use crate::text::{cut, duration};
use crate::theme::Theme;
use crate::ui::overlay::{Overlay, Reader, Scroll, Transcript};
use crate::view::{self, Frame};

use panel::Split;

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
/// The most bytes of a file that are shown.
const SHOWN_BYTES: usize = 1 << 20;

/// What the keys do.
const KEYS: &str = "\
Playing
  Space        play, pause
  + -          faster, slower
  ← →  h l     one event
  [ ]          one entry of the transcript
  g G          to the start, to the end

Going to the next one; the capital letter goes back
  c            call
  t            turn
  e            change to a file
  d            denial
  f            failure
  p            question or answer
  /            search; n N the next, the one before

Looking
  i            audit card of the call: the selected one, or the last
  o            files as they were: ↑ ↓ choose, Enter shows one, x its changes
  Tab Enter    select an entry, fold it out; a folds out all
  w            why: the decisions about the selected call
  ↑ ↓ PgUp PgDn  scroll; the card, while it is open
  q Esc        close the card or the files; leave
";

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

    fn scroll_card(&mut self, lines: isize, columns: usize, theme: Theme) {
        // How wide the panel is does not hang on how high the screen is.
        let (width, _) = Split::of(Panel::Card, columns, 0).panel(columns, 0);
        let most = self.card.as_ref().map_or(0, |shown| {
            panel::card_lines(&shown.card, width, theme)
                .len()
                .saturating_sub(1)
        });
        self.panel_scroll = self.panel_scroll.saturating_add_signed(lines).min(most);
    }

    /// Takes a key; true when it leaves.
    pub fn key(&mut self, key: KeyEvent, columns: usize, theme: Theme) -> bool {
        if self.reading.is_some() {
            self.read_key(key, columns, theme);
            return false;
        }
        if self.typing.is_some() {
            self.search_key(key);
            return false;
        }
        self.notice = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return true,
            KeyCode::Char('q') | KeyCode::Esc if self.panel != Panel::None => {
                self.panel = Panel::None;
            }
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char(' ') => self.playing = !self.playing,
            KeyCode::Right | KeyCode::Char('l') => self.seek(self.position + 1),
            KeyCode::Left | KeyCode::Char('h') => self.seek(self.position.saturating_sub(1)),
            KeyCode::Char(']') => self.step_cell(true),
            KeyCode::Char('[') => self.step_cell(false),
            KeyCode::Home | KeyCode::Char('g') => self.seek(0),
            KeyCode::End | KeyCode::Char('G') => self.seek(self.source.count()),
            KeyCode::Char('+') => self.speed = (self.speed * 2).min(64),
            KeyCode::Char('-') => self.speed = (self.speed / 2).max(1),
            KeyCode::Char('i') => self.toggle(Panel::Card),
            KeyCode::Char('o') => self.toggle(Panel::Files),
            KeyCode::Char('?') => self.open("keys", KEYS.to_owned(), DocumentFormat::Plain),
            KeyCode::Char('/') => self.typing = Some(String::new()),
            KeyCode::Char(letter @ ('n' | 'N')) => {
                if let Some(text) = self.searched.clone() {
                    self.go_to(&Mark::Text(text), letter == 'n');
                }
            }
            KeyCode::Char('x') if self.panel == Panel::Files => self.open_changes(),
            KeyCode::Enter if self.panel == Panel::Files => self.open_file(),
            KeyCode::Up if self.panel == Panel::Files => {
                self.selected_file = self.selected_file.saturating_sub(1);
            }
            KeyCode::Down if self.panel == Panel::Files => {
                let last = self.files().len().saturating_sub(1);
                self.selected_file = (self.selected_file + 1).min(last);
            }
            KeyCode::Up if self.panel == Panel::Card => self.scroll_card(-1, columns, theme),
            KeyCode::Down if self.panel == Panel::Card => self.scroll_card(1, columns, theme),
            KeyCode::PageUp if self.panel == Panel::Card => self.scroll_card(-10, columns, theme),
            KeyCode::PageDown if self.panel == Panel::Card => self.scroll_card(10, columns, theme),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1, columns, theme),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1, columns, theme),
            KeyCode::PageUp => self.scroll(-10, columns, theme),
            KeyCode::PageDown => self.scroll(10, columns, theme),
            KeyCode::Tab => self.transcript.select(&self.state, 1),
            KeyCode::BackTab => self.transcript.select(&self.state, -1),
            KeyCode::Char('a') => self.transcript.all_unfolded = !self.transcript.all_unfolded,
            KeyCode::Enter => {
                if let Some(selected) = self.transcript.selected
                    && !self.transcript.unfolded.remove(&selected)
                {
                    self.transcript.unfolded.insert(selected);
                }
            }
            KeyCode::Char('w') => self.open_why(),
            KeyCode::Char(letter) => {
                if let Some(mark) = Mark::of_key(letter) {
                    self.go_to(&mark, letter.is_ascii_lowercase());
                }
            }
            _ => {}
        }
        if self.panel == Panel::Card && !self.is_moving() {
            self.refresh_card();
        }
        false
    }

    fn read_key(&mut self, key: KeyEvent, columns: usize, theme: Theme) {
        let Some(reader) = &mut self.reading else {
            return;
        };
        let lines = view::overlay::document(&reader.document, columns, theme);
        reader.scroll.last = lines.len().saturating_sub(1);
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => reader.scroll.by(-1),
            KeyCode::Down | KeyCode::Char('j') => reader.scroll.by(1),
            KeyCode::PageUp => reader.scroll.by(-10),
            KeyCode::PageDown | KeyCode::Char(' ') => reader.scroll.by(10),
            _ => self.reading = None,
        }
    }

    fn search_key(&mut self, key: KeyEvent) {
        let Some(text) = &mut self.typing else {
            return;
        };
        match key.code {
            KeyCode::Char(letter) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                text.push(letter);
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Enter => {
                let text = self.typing.take().filter(|text| !text.is_empty());
                if let Some(text) = text.or_else(|| self.searched.clone()) {
                    self.searched = Some(text.clone());
                    self.go_to(&Mark::Text(text), true);
                }
            }
            _ => self.typing = None,
        }
    }

    fn toggle(&mut self, panel: Panel) {
        self.panel_scroll = 0;
        self.panel = if self.panel == panel {
            Panel::None
        } else {
            panel
        };
    }

    fn open(&mut self, title: &str, text: String, format: DocumentFormat) {
        self.reading = Some(Reader {
            document: Document {
                title: title.to_owned(),
                text,
                format,
            },
            scroll: Scroll::default(),
        });
    }

    fn selected_tool(&self) -> Option<&ToolCell> {
        let cell = self.state.cells.get(self.transcript.selected?)?;
        match &cell.kind {
            CellKind::Tool(tool) => Some(tool),
            _ => None,
        }
    }

    fn open_why(&mut self) {
        if let Some(Overlay::Reader(reader)) = self.selected_tool().map(view::documents::why) {
            self.reading = Some(reader);
        }
    }

    fn selected_path(&self) -> Option<PathAt> {
        let mut files = self.files();
        let at = self.selected_file.min(files.len().checked_sub(1)?);
        Some(files.swap_remove(at))
    }

    /// The content of the selected file as it was at the event in view.
    fn open_file(&mut self) {
        let Some(file) = self.selected_path() else {
            return;
        };
        let title = format!("{} at event {}", file.path, self.position.saturating_sub(1));
        let text = match self.text_of(&file.now) {
            Ok(text) => text,
            Err(why) => why,
        };
        self.open(&title, text, DocumentFormat::Plain);
    }

    /// What became of the selected file between the session's start and the event in view.
    fn open_changes(&mut self) {
        let Some(file) = self.selected_path() else {
            return;
        };
        let title = format!(
            "{} until event {}",
            file.path,
            self.position.saturating_sub(1)
        );
        let side = |state: &PathState| match state {
            PathState::Missing => Ok(String::new()),
            state => self.text_of(state),
        };
        let (text, format) = match (side(&file.start), side(&file.now)) {
            (Ok(before), Ok(after)) => {
                let diff = similar::TextDiff::from_lines(&before, &after);
                let mut diff = diff.unified_diff();
                let name = safe::one_line(&file.path);
                let diff = diff.header(&format!("a/{name}"), &format!("b/{name}"));
                (diff.to_string(), DocumentFormat::Diff)
            }
            (Err(why), _) | (_, Err(why)) => (why, DocumentFormat::Plain),
        };
        self.open(&title, text, format);
    }

    fn text_of(&self, state: &PathState) -> Result<String, String> {
        let id = state.content().and_then(|content| content.artifact());
        let bytes = id.and_then(|id| self.source.artifact(&id).ok());
        let mut bytes = bytes.ok_or_else(|| panel::in_words(state))?;
        if let PathState::Symlink(_) = state {
            return Ok(format!("A link to {}", String::from_utf8_lossy(&bytes)));
        }
        let left = bytes.len().saturating_sub(SHOWN_BYTES);
        bytes.truncate(SHOWN_BYTES);
        if bytes.contains(&0) {
            return Err(format!("Binary, {} bytes.", bytes.len() + left));
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if left > 0 {
            text.push_str(&format!("\n[{left} bytes not shown here]\n"));
        }
        Ok(text)
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

    /// The screen of the player.
    #[must_use]
    pub fn frame(&self, columns: usize, height: usize, theme: Theme) -> Frame {
        let room = height.saturating_sub(3);
        let (mut lines, top) = match &self.reading {
            Some(reader) => {
                let title = Line::styled(
                    cut(&safe::one_line(&reader.document.title), columns),
                    theme.strong(),
                );
                let lines = view::overlay::document(&reader.document, columns, theme);
                let text = lines.into_iter().skip(reader.scroll.at);
                let mut lines: Vec<_> = std::iter::once(title).chain(text).take(room).collect();
                lines.resize(room, Line::default());
                (lines, None)
            }
            None => {
                let split = Split::of(self.panel, columns, room);
                let (width, rows) = split.transcript(columns, room);
                let (lines, top) =
                    view::window(&self.state, &self.transcript, width, rows, theme, 0);
                let panel = self.panel_lines(split.panel(columns, room), theme);
                (split.join(lines, panel, columns, room, theme), Some(top))
            }
        };
        lines.push(Line::default());
        lines.push(Line::from(vec![Span::styled(
            cut(&self.place(columns), columns),
            theme.strong(),
        )]));
        lines.push(Line::styled(cut(&self.help(columns), columns), theme.dim()));
        let mut frame = Frame {
            lines,
            cursor: None,
            full_screen: true,
            ..Frame::default()
        };
        frame.shown.transcript = top;
        frame
    }

    fn panel_lines(&self, (columns, rows): (usize, usize), theme: Theme) -> Vec<Line<'static>> {
        match self.panel {
            Panel::None => Vec::new(),
            Panel::Files => {
                let files = self.files();
                let selected = self.selected_file.min(files.len().saturating_sub(1));
                panel::file_lines(&files, selected, columns, rows, theme)
            }
            Panel::Card => match &self.card {
                Some(shown) => panel::card_lines(&shown.card, columns, theme)
                    .into_iter()
                    .skip(self.panel_scroll)
                    .take(rows)
                    .collect(),
                None => vec![Line::styled("no call yet", theme.dim())],
            },
        }
    }

    /// Where it is, in one line.
    fn place(&self, columns: usize) -> String {
        let count = self.source.count();
        // Events go by their number in the log, as in the text and with `--at`: the first is 0.
        let (here, last) = (self.position.saturating_sub(1), count.saturating_sub(1));
        let done = (here * 100).checked_div(last).unwrap_or(100);
        let mark = if self.playing { "▶" } else { "⏸" };
        match (&self.problem, &self.typing, &self.notice) {
            (Some(problem), _, _) => format!("{mark} cannot read on: {problem}"),
            (None, Some(text), _) => format!("search: {}▏", safe::one_line(text)),
            (None, None, Some(notice)) => format!("{mark} {notice}"),
            (None, None, None) if self.is_moving() => {
                format!("{mark} reading event {here} of {last}")
            }
            (None, None, None) => {
                let place = match count {
                    0 => return format!("{mark} no event"),
                    _ => format!("{mark} event {here} of {last} ({done}%)"),
                };
                let speed = match self.speed {
                    1 => String::new(),
                    speed => format!(" · speed {speed}x"),
                };
                let at = self.last_time.map(|time| time.to_string());
                let at = at.unwrap_or_default();
                // Of the time the hour is worth more than the day.
                let hour = at.get(11..19).unwrap_or_default();
                let kind = &self.last_kind;
                let forms = [
                    format!("{place} · {kind} · {at}{speed}"),
                    format!("{place} · {kind} · {hour}{speed}"),
                    format!("{place} · {kind}{speed}"),
                ];
                widest(forms, columns)
            }
        }
    }

    fn help(&self, columns: usize) -> String {
        if self.reading.is_some() {
            return "↑ ↓ PgUp PgDn scroll · any other key closes".to_owned();
        }
        if self.typing.is_some() {
            return "Enter searches from here on · Esc leaves".to_owned();
        }
        let elapsed = self.state.facts.turn.as_ref().and_then(|turn| {
            self.last_time
                .map(|now| format!("turn {} · ", duration(now.millis_since(turn.started_at))))
        });
        let elapsed = elapsed.unwrap_or_default();
        let forms = match self.panel {
            Panel::None => [
                "replay, nothing runs · ? keys · q leaves · Space plays · ←→ event · c call · t turn · i card · o files",
                "replay, nothing runs · ? keys · q leaves · Space plays · ←→ event · i card",
                "replay, nothing runs · ? keys · q leaves · Space plays",
            ],
            Panel::Card => [
                "card: ↑ ↓ PgUp PgDn scroll · q closes it · ? keys · Space plays · ←→ event · c call · o files",
                "card: ↑ ↓ PgUp PgDn scroll · q closes it · ? keys · ←→ event",
                "card: ↑ ↓ PgUp PgDn scroll · q closes it",
            ],
            Panel::Files => [
                "files: ↑ ↓ choose · Enter shows · x changes · q closes them · ? keys · Space plays · ←→ event",
                "files: ↑ ↓ choose · Enter shows · x changes · q closes them · ? keys",
                "files: ↑ ↓ Enter · x changes · q closes them",
            ],
        };
        widest(forms.map(|form| format!("{elapsed}{form}")), columns)
    }
}

/// The first of `forms`, which get shorter, that fits; the last one if none does.
fn widest(forms: [String; 3], columns: usize) -> String {
    let fits = |form: &&String| crate::text::width(form) <= columns;
    let form = forms.iter().find(fits).or(forms.last());
    form.cloned().unwrap_or_default()
}
