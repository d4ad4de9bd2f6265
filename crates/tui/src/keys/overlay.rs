//! Keys while something covers the screen.

use agent_protocol::status::{Mode, Thinking};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::host::{Exit, ExportForm, HostRequest, ProcessRequest, RewindPlan, Secret, Start};
use crate::state::cell::CellKind;
use crate::theme::ThemeChoice;
use crate::ui::overlay::{Choices, Overlay, Picker, Scroll, Transcript};
use crate::ui::{Effect, Ui};
use crate::view;

impl Ui {
    pub(super) fn overlay_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(mut overlay) = self.overlay.take() else {
            return Vec::new();
        };
        // A question below hears that somebody is at the keys.
        if let Some(prompt) = &mut self.prompt {
            prompt.guard.disturb(self.now);
        }
        let (stays, mut effects) = match &mut overlay {
            Overlay::Transcript(transcript) => self.transcript_key(transcript, key),
            Overlay::Rewind(plan, scroll) => rewind_key(plan, scroll, key),
            Overlay::Reader(reader) if key.code == KeyCode::Char('x') => {
                (true, self.stop_watched(reader))
            }
            Overlay::Reader(reader) => (scroll_key(&mut reader.scroll, key), Vec::new()),
            Overlay::Picker(picker) => {
                let (stays, place) = picker_key(picker, key);
                let chosen = place.map(|place| self.chosen(&picker.choices, place));
                (stays, chosen.unwrap_or_default())
            }
            Overlay::Key(secret, behind) => match key_key(secret, key) {
                KeyStep::Entered => {
                    let secret = std::mem::take(secret);
                    (true, vec![Effect::Host(HostRequest::KeepKey(secret))])
                }
                KeyStep::Typed => (true, Vec::new()),
                KeyStep::Left => {
                    let behind = std::mem::take(behind);
                    self.overlay = Some(Overlay::FirstRun(behind, Scroll::default()));
                    (false, Vec::new())
                }
            },
            Overlay::FirstRun(_, scroll) | Overlay::Trust(_, scroll) | Overlay::Mode(_, scroll) => {
                if scrolls(key)
                    || (key.code == KeyCode::Char(' ') && self.start_guard.is_quiet(self.now))
                {
                    self.start_guard.moved(self.now);
                    scroll_key(scroll, key);
                } else {
                    // What was typed for something else decides nothing.
                    self.start_guard.press(key, self.now);
                }
                (true, Vec::new())
            }
        };
        // A handler may have opened another overlay; that one wins.
        if stays && self.overlay.is_none() {
            self.overlay = Some(overlay);
        } else if effects.is_empty() && self.is_choosing_session() {
            effects.push(Effect::Exit(Exit::Quit));
        }
        effects
    }

    /// True if there is nothing behind the list that is shown.
    pub(crate) fn is_choosing_session(&self) -> bool {
        matches!(self.settings.start, Start::Sessions(_))
    }

    /// A key that answers the question before a session.
    pub(crate) fn start_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let host = |request| vec![Effect::Host(request)];
        let exit = |exit| vec![Effect::Exit(exit)];
        match (&mut self.overlay, key.code) {
            (Some(Overlay::FirstRun(..)), KeyCode::Char('d')) => exit(Exit::Demo),
            (Some(Overlay::FirstRun(found, _)), KeyCode::Char('k')) => {
                let behind = std::mem::take(found);
                self.overlay = Some(Overlay::Key(Secret::default(), behind));
                Vec::new()
            }
            (Some(Overlay::FirstRun(..)), KeyCode::Esc) => exit(Exit::Quit),
            (Some(Overlay::FirstRun(..)), KeyCode::Enter) => exit(Exit::LookAgain),
            (Some(Overlay::Trust(_, scroll)), KeyCode::Char('t')) => {
                if scroll.at >= scroll.last {
                    // The host ends this screen; until then there is nothing else to see.
                    return host(HostRequest::TrustProject);
                }
                self.hint(SCROLL_FIRST);
                Vec::new()
            }
            (Some(Overlay::Trust(..)), KeyCode::Char('i')) => host(HostRequest::IgnoreProject),
            (Some(Overlay::Mode(_, scroll)), KeyCode::Char('y')) => {
                if scroll.at >= scroll.last {
                    return host(HostRequest::WorkIn(Mode::Auto));
                }
                self.hint(SCROLL_FIRST);
                Vec::new()
            }
            (Some(Overlay::Mode(..)), KeyCode::Char('n')) => host(HostRequest::WorkIn(Mode::Ask)),
            (
                Some(Overlay::FirstRun(..) | Overlay::Trust(..) | Overlay::Mode(..)),
                KeyCode::Char('q'),
            ) => exit(Exit::Quit),
            (
                Some(
                    Overlay::FirstRun(_, scroll)
                    | Overlay::Trust(_, scroll)
                    | Overlay::Mode(_, scroll),
                ),
                _,
            ) => {
                scroll_key(scroll, key);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn transcript_key(
        &mut self,
        transcript: &mut Transcript,
        key: KeyEvent,
    ) -> (bool, Vec<Effect>) {
        let page = 10;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let step = match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return (false, Vec::new()),
            KeyCode::Char('t') if control => return (false, Vec::new()),
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp | KeyCode::Char('b') => -page,
            KeyCode::PageDown | KeyCode::Char(' ') => page,
            KeyCode::Home | KeyCode::Char('g') => {
                (transcript.top, transcript.above, transcript.follow) = (0, 0, false);
                return (true, Vec::new());
            }
            KeyCode::End | KeyCode::Char('G') => {
                transcript.follow = true;
                return (true, Vec::new());
            }
            KeyCode::Tab | KeyCode::Char('n') => {
                transcript.select(&self.state, 1);
                return (true, Vec::new());
            }
            KeyCode::BackTab | KeyCode::Char('p') => {
                transcript.select(&self.state, -1);
                return (true, Vec::new());
            }
            KeyCode::Enter => {
                if let Some(selected) = transcript.selected {
                    if !transcript.unfolded.remove(&selected) {
                        transcript.unfolded.insert(selected);
                    }
                    // What was asked for is in view, wherever the last drawing left the window.
                    (transcript.top, transcript.above, transcript.follow) = (selected, 0, false);
                }
                return (true, Vec::new());
            }
            KeyCode::Char('a') => {
                transcript.all_unfolded = !transcript.all_unfolded;
                transcript.unfolded.clear();
                return (true, Vec::new());
            }
            KeyCode::Char('y') => {
                let text = transcript
                    .selected
                    .and_then(|selected| self.state.cells.get(selected))
                    .map(|cell| view::plain_text(cell));
                let what = "the entry";
                let copy = text.map(|text| Effect::Copy { text, what });
                return (true, copy.into_iter().collect());
            }
            KeyCode::Char('w') => {
                if let Some(CellKind::Tool(tool)) = transcript
                    .selected
                    .and_then(|selected| self.state.cells.get(selected))
                    .map(|cell| &cell.kind)
                {
                    self.overlay = Some(view::documents::why(tool));
                }
                return (true, Vec::new());
            }
            _ => return (true, Vec::new()),
        };
        transcript.scroll(&self.state, step, self.columns, self.theme);
        (true, Vec::new())
    }
}

impl Transcript {
    /// Moves the window by lines; only the cells it passes are laid out.
    pub fn scroll(
        &mut self,
        state: &crate::state::State,
        lines: isize,
        columns: usize,
        theme: crate::theme::Theme,
    ) {
        let height = |cell: usize| view::cell_height(state, self, cell, columns, theme);
        let (mut top, mut above) = (self.top, self.above);
        if lines < 0 {
            let mut left = lines.unsigned_abs();
            while left > above && top > 0 {
                left -= above;
                top -= 1;
                above = height(top);
            }
            above = above.saturating_sub(left);
        } else {
            above += lines.unsigned_abs();
            while top + 1 < state.cells.len() && above >= height(top) {
                above -= height(top);
                top += 1;
            }
        }
        (self.top, self.above, self.follow) = (top, above, false);
    }

    /// Selects the next or previous cell that can be folded out.
    pub fn select(&mut self, state: &crate::state::State, step: isize) {
        let foldable = |cell: usize| {
            state.cells.get(cell).is_some_and(|cell| {
                matches!(
                    cell.kind,
                    CellKind::Tool(_) | CellKind::Reasoning(_) | CellKind::Notice(_)
                )
            })
        };
        let mut at = match self.selected {
            Some(selected) => selected,
            None if step < 0 => state.cells.len(),
            None => self.top.wrapping_sub(1),
        };
        loop {
            at = at.wrapping_add_signed(step);
            if at >= state.cells.len() {
                return;
            }
            if foldable(at) {
                break;
            }
        }
        self.selected = Some(at);
        (self.top, self.above, self.follow) = (at, 0, false);
    }
}

/// Said when what is asked has not been on the screen to its end.
pub(super) const SCROLL_FIRST: &str = "Scroll to the end to allow (Space, PgDn, End).";

/// True for keys that move a text and are never anything else; a mouse wheel sends some of them.
pub(super) fn scrolls(key: KeyEvent) -> bool {
    matches!(
        key.code,
        KeyCode::Up
            | KeyCode::Down
            | KeyCode::PageUp
            | KeyCode::PageDown
            | KeyCode::Home
            | KeyCode::End
    )
}

/// Moves by the usual keys; false when the key leaves.
fn scroll_key(scroll: &mut Scroll, key: KeyEvent) -> bool {
    let page = isize::try_from(scroll.page.saturating_sub(2).max(1)).unwrap_or(1);
    match key.code {
        KeyCode::Esc | KeyCode::Char('q') | KeyCode::Enter => return false,
        KeyCode::Up | KeyCode::Char('k') => scroll.by(-1),
        KeyCode::Down | KeyCode::Char('j') => scroll.by(1),
        KeyCode::PageUp | KeyCode::Char('b') => scroll.by(-page),
        KeyCode::PageDown | KeyCode::Char(' ') => scroll.by(page),
        KeyCode::Home | KeyCode::Char('g') => scroll.at = 0,
        KeyCode::End | KeyCode::Char('G') => scroll.at = scroll.last,
        _ => {}
    }
    true
}

/// A key over the plan of going back.
fn rewind_key(plan: &RewindPlan, scroll: &mut Scroll, key: KeyEvent) -> (bool, Vec<Effect>) {
    let (at, text) = (plan.at, plan.text.clone());
    let exit = match key.code {
        KeyCode::Char('b') => Exit::Rewind {
            at,
            text,
            fingerprint: plan.fingerprint.clone(),
        },
        KeyCode::Char('c') => Exit::Fork { at, text },
        // Going back is chosen, and not walked into.
        KeyCode::Enter => return (true, Vec::new()),
        _ => return (scroll_key(scroll, key), Vec::new()),
    };
    (false, vec![Effect::Exit(exit)])
}

enum KeyStep {
    Typed,
    Entered,
    Left,
}

/// Takes in a key press while a key is being entered.
fn key_key(secret: &mut Secret, key: KeyEvent) -> KeyStep {
    match key.code {
        KeyCode::Esc => return KeyStep::Left,
        KeyCode::Enter if !secret.0.trim().is_empty() => return KeyStep::Entered,
        KeyCode::Backspace => {
            secret.0.pop();
        }
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => secret.0.clear(),
        KeyCode::Char(character) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
            secret.0.push(character);
        }
        _ => {}
    }
    KeyStep::Typed
}

/// Whether the list stays, and the place that was chosen in it.
fn picker_key(picker: &mut Picker, key: KeyEvent) -> (bool, Option<usize>) {
    let rows = picker.rows();
    match key.code {
        KeyCode::Esc => return (false, None),
        KeyCode::Up => picker.selected = picker.selected.saturating_sub(1),
        KeyCode::Down => picker.selected = (picker.selected + 1).min(rows.len().saturating_sub(1)),
        KeyCode::Backspace => {
            picker.filter.pop();
            picker.selected = 0;
        }
        KeyCode::Enter => {
            let Some((place, _, _)) = rows.get(picker.selected) else {
                return (true, None);
            };
            return (false, Some(*place));
        }
        KeyCode::Char(character) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
            picker.filter.push(character);
            picker.selected = 0;
        }
        _ => {}
    }
    (true, None)
}

impl Ui {
    fn chosen(&mut self, choices: &Choices, place: usize) -> Vec<Effect> {
        if let (Choices::Themes, Some(choice)) = (choices, ThemeChoice::ALL.get(place)) {
            self.choose_theme(*choice);
        }
        chosen(choices, place)
    }
}

/// What choosing the entry at `place` leads to.
pub(super) fn chosen(choices: &Choices, place: usize) -> Vec<Effect> {
    let effect = match choices {
        Choices::Models(models) => models
            .get(place)
            .map(|model| Effect::set_model(model.clone())),
        Choices::Thinking => Thinking::ALL
            .get(place)
            .map(|level| Effect::set_thinking(*level)),
        Choices::Modes => Mode::ALL.get(place).map(|mode| Effect::set_mode(*mode)),
        Choices::Exports => ExportForm::ALL
            .get(place)
            .map(|form| Effect::Host(HostRequest::Export { form: *form })),
        Choices::Themes => None,
        Choices::Sessions(sessions) => sessions
            .get(place)
            .map(|session| Effect::Exit(Exit::Resume(session.session_id.clone()))),
        Choices::Processes(processes) => processes.get(place).map(|process| {
            let tail = ProcessRequest::Tail(process.process_id.to_string());
            Effect::Host(HostRequest::Processes(tail))
        }),
        Choices::Rewind(messages) => messages.get(place).map(|(at, text)| {
            Effect::Host(HostRequest::Rewind {
                at: *at,
                text: text.clone(),
            })
        }),
        Choices::Messages(messages) => messages.get(place).map(|(at, text)| {
            Effect::Exit(Exit::Fork {
                at: *at,
                text: text.clone(),
            })
        }),
    };
    effect.into_iter().collect()
}
