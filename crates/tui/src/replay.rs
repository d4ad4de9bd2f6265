//! A past session played again: the same fold and the same cells, with a place in time. Nothing is
//! executed, written or sent.

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Event, Timestamp};
use crossterm::event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::text::{Line, Span};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::highlight;
use crate::host::{Exit, Settings};
use crate::run::RunError;
use crate::state::State;
use crate::surface::Surface;
use crate::terminal::{Console, RealConsole, as_screen};
use crate::text::{cut, duration};
use crate::theme::Theme;
use crate::ui::overlay::{Overlay, Reader, Transcript};
use crate::view::{self, Frame};

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
const SLICE: usize = 1024;

/// A session and a place in it.
pub struct Player {
    source: Box<dyn EventSource>,
    state: State,
    /// How many events are in the state.
    position: u64,
    /// Where it is going.
    target: u64,
    checkpoints: Vec<(u64, State)>,
    pub transcript: Transcript,
    playing: bool,
    speed: u32,
    last_time: Option<Timestamp>,
    last_kind: String,
    problem: Option<String>,
    reading: Option<Reader>,
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
            transcript: Transcript::at_end(),
            playing: false,
            speed: 1,
            last_time: None,
            last_kind: String::new(),
            problem: None,
            reading: None,
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

    /// Goes to the state after `count` events.
    pub fn seek(&mut self, count: u64) {
        self.target = count.min(self.source.count());
        self.problem = None;
        if self.target < self.position
            && let Some((position, state)) = self
                .checkpoints
                .iter()
                .rev()
                .find(|(position, _)| *position <= self.target)
        {
            (self.position, self.state) = (*position, state.clone());
        }
        self.transcript.follow = true;
    }

    /// Folds a slice of the way to the target.
    pub fn advance(&mut self) {
        let left = usize::try_from(self.target.saturating_sub(self.position)).unwrap_or(SLICE);
        if left == 0 {
            return;
        }
        let events = match self.source.read(self.position, left.min(SLICE)) {
            Ok(events) if events.is_empty() => {
                self.target = self.position;
                return;
            }
            Ok(events) => events,
            Err(problem) => {
                self.problem = Some(crate::safe::one_line(&problem));
                return;
            }
        };
        for event in events {
            self.state.apply(&event);
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

    /// Moves the window on the transcript by lines.
    pub fn scroll(&mut self, lines: isize, columns: usize, theme: Theme) {
        self.transcript.scroll(&self.state, lines, columns, theme);
    }

    /// Takes a key; true when it leaves.
    pub fn key(&mut self, key: KeyEvent, columns: usize, theme: Theme) -> bool {
        if let Some(reader) = &mut self.reading {
            match key.code {
                KeyCode::Up => reader.scroll.by(-1),
                KeyCode::Down => reader.scroll.by(1),
                _ => self.reading = None,
            }
            return false;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if control => return true,
            KeyCode::Char(' ') => self.playing = !self.playing,
            KeyCode::Right | KeyCode::Char('l') => self.seek(self.position + 1),
            KeyCode::Left | KeyCode::Char('h') => self.seek(self.position.saturating_sub(1)),
            KeyCode::Char(']') => self.step_cell(true),
            KeyCode::Char('[') => self.step_cell(false),
            KeyCode::Home | KeyCode::Char('g') => self.seek(0),
            KeyCode::End | KeyCode::Char('G') => self.seek(self.source.count()),
            KeyCode::Char('+') => self.speed = (self.speed * 2).min(64),
            KeyCode::Char('-') => self.speed = (self.speed / 2).max(1),
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
            KeyCode::Char('w') => {
                let selected = self
                    .transcript
                    .selected
                    .and_then(|at| self.state.cells.get(at));
                if let Some(crate::state::cell::CellKind::Tool(tool)) =
                    selected.map(|cell| &cell.kind)
                    && let Overlay::Reader(reader) = view::documents::why(tool)
                {
                    self.reading = Some(reader);
                }
            }
            _ => {}
        }
        false
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
                let lines = view::overlay::document(&reader.document, columns, theme);
                (
                    lines
                        .into_iter()
                        .skip(reader.scroll.at)
                        .take(room)
                        .collect(),
                    None,
                )
            }
            None => {
                let (lines, top) =
                    view::window(&self.state, &self.transcript, columns, room, theme, 0);
                (lines, Some(top))
            }
        };
        lines.resize(room, Line::default());
        let count = self.source.count();
        let at = self
            .last_time
            .map(|time| time.to_string())
            .unwrap_or_default();
        let done = (self.position * 100).checked_div(count).unwrap_or(100);
        let mark = if self.playing { "▶" } else { "⏸" };
        let place = match (&self.problem, self.is_moving()) {
            (Some(problem), _) => format!("{mark} cannot read on: {problem}"),
            (None, true) => format!("{mark} reading event {} of {count}", self.position),
            (None, false) => format!(
                "{mark} event {} of {count} ({done}%) · {} · {at} · speed {}x",
                self.position, self.last_kind, self.speed
            ),
        };
        lines.push(Line::default());
        lines.push(Line::from(vec![Span::styled(
            cut(&place, columns),
            theme.strong(),
        )]));
        let elapsed = self.state.facts.turn.as_ref().and_then(|turn| {
            self.last_time
                .map(|now| format!("turn {} · ", duration(now.millis_since(turn.started_at))))
        });
        let keys = format!(
            "{}replay, nothing runs · Space plays · ←→ event · [ ] entry · g G ends · Tab Enter unfold · w why · q",
            elapsed.unwrap_or_default()
        );
        lines.push(Line::styled(cut(&keys, columns), theme.dim()));
        let mut frame = Frame {
            lines,
            cursor: None,
            full_screen: true,
            ..Frame::default()
        };
        frame.shown.transcript = top;
        frame
    }
}

/// Plays a session on the real terminal until the user leaves.
///
/// # Errors
/// When there is no terminal to use.
pub async fn replay(
    settings: Settings,
    source: Box<dyn EventSource>,
    at: Option<u64>,
    shutdown: CancellationToken,
) -> Result<Exit, RunError> {
    highlight::warm_up();
    as_screen(replay_on(
        RealConsole::new(),
        settings,
        source,
        at,
        shutdown,
    ))
    .await
}

/// The same on any console.
///
/// # Errors
/// When the console fails.
pub async fn replay_on<C: Console>(
    mut console: C,
    settings: Settings,
    source: Box<dyn EventSource>,
    at: Option<u64>,
    shutdown: CancellationToken,
) -> Result<Exit, RunError> {
    let terminal = |source| RunError::Terminal { source };
    let theme = Theme {
        depth: settings.colors,
        background: settings.background,
        plain_code: false,
    };
    let (columns, rows) = console.size().map_err(terminal)?;
    console.enter().map_err(terminal)?;
    let mut surface = Surface::new(columns, rows, settings.terminal_reflows);
    let mut player = Player::new(source, at);
    let mut bytes = Vec::new();
    player.advance();
    let exit = loop {
        let (columns, rows) = surface.size();
        let frame = player.frame(usize::from(columns), usize::from(rows), theme);
        if let Some((top, above)) = frame.shown.transcript {
            (player.transcript.top, player.transcript.above) = (top, above);
        }
        bytes.clear();
        surface.draw(&mut bytes, &[], &frame);
        console.write(&bytes).map_err(terminal)?;
        let wake = if player.is_moving() {
            Some(Instant::now())
        } else {
            player.pause().map(|pause| Instant::now() + pause)
        };
        let sleep = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break Exit::Ended,
            event = console.next_event() => match event {
                Some(Ok(TerminalEvent::Key(key))) if key.kind != KeyEventKind::Release => {
                    if player.key(key, usize::from(columns), theme) {
                        break Exit::Quit;
                    }
                }
                Some(Ok(TerminalEvent::Resize(columns, rows))) => surface.resize(columns, rows),
                Some(Ok(_)) => {}
                Some(Err(source)) => return Err(RunError::Terminal { source }),
                None => break Exit::Ended,
            },
            () = sleep => {
                if !player.is_moving() {
                    player.seek(player.position() + 1);
                }
            }
        }
        player.advance();
    };
    bytes.clear();
    surface.finish(&mut bytes);
    console.write(&bytes).map_err(terminal)?;
    console.leave().map_err(terminal)?;
    Ok(exit)
}
