//! What each key of the player does, and the documents it opens.

use agent_history::workspace::{PathAt, PathState};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::panel::{self, Panel, Split};
use super::{Mark, Player};
use crate::diff;
use crate::host::{Document, DocumentFormat};
use crate::safe;
use crate::state::cell::{CellKind, ToolCell};
use crate::theme::Theme;
use crate::ui::overlay::{Overlay, Reader};
use crate::view;

/// The most bytes of a file that are shown.
const SHOWN_BYTES: usize = 1 << 20;

/// What the keys do.
const KEYS: &str = "\
Playing
  Space        play, pause; at the end: play from the start
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

impl Player {
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
            KeyCode::Char(' ') => {
                // At the end there is nothing left to play: it begins again.
                if !self.playing && self.is_at_end() {
                    self.seek(0);
                }
                self.playing = !self.playing;
            }
            KeyCode::Right | KeyCode::Char('l') if self.is_at_end() => {
                self.notice = Some("This is the end; g goes to the start.".to_owned());
            }
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
        self.reading = Some(Reader::new(Document {
            title: title.to_owned(),
            text,
            format,
        }));
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
                let name = safe::one_line(&file.path);
                let diff = diff::between(&name, &before, &after);
                (diff, DocumentFormat::Diff)
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
}
