//! Keys into commands and changes of the screen. The order of the questions asked of a key is the
//! order in which the parts of the screen own it: overlay, question, composer.

mod back;
mod command;
mod copy;
mod overlay;
mod plan;
mod prompt;

use agent_protocol::command::{
    ControlCommand, InterruptReason, InterruptTurn, QueuedTurn, Shell, SubmitTurn,
};
use agent_protocol::payload::conversation::QueuePolicy;
use agent_protocol::payload::permission::{ActionDecision, GrantScope};
use agent_protocol::status::Mode;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::compose::{MenuKind, attachments};
use crate::host::{Exit, HostRequest};
use crate::keymap::{Action, Chord, Place};
use crate::ui::overlay::{Choices, Overlay, Transcript};
use crate::ui::prompt::{Stage, respond};
use crate::ui::{Armed, Effect, Ui};

impl Ui {
    /// Takes in one key.
    pub fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        let control =
            |letter| key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char(letter);
        // Twice means in a row: any other key between takes the first one back.
        if !control('c') && key.code != KeyCode::Esc {
            self.disarm();
        }
        self.typed_at = Some(self.now);
        self.is_news = false;
        let pressed = key;
        let writes = self.overlay.is_none() && self.prompt.is_none();
        let place = if writes {
            Place::Writing
        } else {
            Place::Anywhere
        };
        let key = match self.settings.keys.usual(place, key) {
            Some(key) => key,
            // What lost its meaning may be a character.
            None if writes => KeyEvent::new(KeyCode::Null, KeyModifiers::NONE),
            None => return self.settle(),
        };
        let control =
            |letter| key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char(letter);
        let mut effects = if control('c') {
            self.disturb();
            self.interrupt_or_quit()
        } else if control('z') {
            self.disturb();
            vec![Effect::Suspend]
        } else if control('l') {
            self.disturb();
            vec![Effect::Redraw]
        } else if self.overlay.is_some() {
            self.overlay_key(key)
        } else if self.prompt.is_some() {
            self.prompt_key(key)
        } else {
            self.composer_key(pressed)
        };
        effects.extend(self.settle());
        effects
    }

    fn interrupt_or_quit(&mut self) -> Vec<Effect> {
        if self.arm(Armed::Quit) {
            return vec![Effect::Exit(Exit::Quit)];
        }
        if self.overlay.is_some() {
            if self.is_choosing_session()
                || matches!(
                    self.overlay,
                    Some(
                        Overlay::FirstRun(..)
                            | Overlay::Key(..)
                            | Overlay::Trust(..)
                            | Overlay::Mode(..)
                    )
                )
            {
                return vec![Effect::Exit(Exit::Quit)];
            }
            self.overlay = None;
            return Vec::new();
        }
        self.hint("press Ctrl-C again to quit");
        if let Some(pending) = self.current().cloned() {
            return self.answer(respond(
                &pending,
                ActionDecision::Abort,
                GrantScope::Once,
                None,
            ));
        }
        if self.composer.search.is_some() {
            self.composer.search_end(false);
        } else if !self.composer.editor.is_empty() {
            self.composer.editor.set("");
        } else if self.state.busy() {
            return self.interrupt();
        }
        Vec::new()
    }

    fn interrupt(&mut self) -> Vec<Effect> {
        let Some(turn) = &mut self.state.facts.turn else {
            return Vec::new();
        };
        turn.interrupting = true;
        vec![Effect::Command(ControlCommand::InterruptTurn(
            InterruptTurn {
                turn_id: turn.turn_id.clone(),
                reason: InterruptReason::User,
            },
        ))]
    }

    fn composer_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if self.composer.search.is_some() {
            return self.search_key(key);
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        if std::mem::take(&mut self.pending_control_x) && control && key.code == KeyCode::Char('e')
        {
            return vec![Effect::ExternalEditor];
        }
        if let Some(menu) = self.composer.menu(self.files.as_deref()) {
            match key.code {
                KeyCode::Up => {
                    self.composer.menu_move(&menu, -1);
                    return Vec::new();
                }
                KeyCode::Down => {
                    self.composer.menu_move(&menu, 1);
                    return Vec::new();
                }
                KeyCode::Tab => {
                    self.composer.menu_take(&menu);
                    return Vec::new();
                }
                KeyCode::Esc => {
                    self.composer.menu_close();
                    return Vec::new();
                }
                KeyCode::Enter if !alt => {
                    self.composer.menu_take(&menu);
                    let name = self.composer.editor.text().trim().to_owned();
                    // A command that needs nothing more is done with the same key.
                    return match crate::commands::parse(&name) {
                        Ok((command, ""))
                            if menu.kind == MenuKind::Commands
                                && (command.arguments.is_empty()
                                    || command.arguments.starts_with('[')) =>
                        {
                            self.submit(QueuePolicy::Queue)
                        }
                        _ => Vec::new(),
                    };
                }
                _ => {}
            }
        }
        let is_help = self.settings.keys.is(Action::Help, key);
        if self.settings.keys.is(Action::Plan, key) {
            self.whole_plan = !self.whole_plan;
            return Vec::new();
        }
        let key = match self.settings.keys.usual(Place::Writing, key) {
            Some(key) => key,
            // A character that no longer means anything is a character.
            None if Chord::of(key).character().is_some() => key,
            None => return Vec::new(),
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::Enter if !alt && !key.modifiers.contains(KeyModifiers::SHIFT) => {
                if self.composer.editor.text()[..self.composer.editor.cursor()].ends_with('\\') {
                    let cursor = self.composer.editor.cursor();
                    self.composer.editor.replace(cursor - 1..cursor, "\n");
                    return Vec::new();
                }
                return self.submit(QueuePolicy::Queue);
            }
            KeyCode::Char('s') if control => return self.submit(QueuePolicy::Steer),
            KeyCode::Up if alt && self.composer.editor.is_empty() => {
                return self.take_back_queued();
            }
            KeyCode::Char('r') if control => {
                self.composer.search_older();
                return Vec::new();
            }
            KeyCode::Char('t') if control => {
                self.overlay = Some(Overlay::Transcript(Transcript::in_detail()));
                return Vec::new();
            }
            KeyCode::Char('g') if control => return vec![Effect::ExternalEditor],
            KeyCode::Char('x') if control => {
                self.pending_control_x = true;
                return Vec::new();
            }
            KeyCode::Char('d') if control && self.composer.editor.is_empty() => {
                return vec![Effect::Exit(Exit::Quit)];
            }
            KeyCode::BackTab => {
                return vec![Effect::set_mode(self.next_mode())];
            }
            _ if is_help && self.composer.editor.is_empty() => {
                self.show_help();
                return Vec::new();
            }
            KeyCode::PageUp | KeyCode::PageDown => {
                return self.page_key(key.code);
            }
            KeyCode::Backspace if !control && !alt && self.composer.delete_paste_mark() => {
                return Vec::new();
            }
            KeyCode::Esc if !self.composer.editor.is_inserting() => return self.escape(),
            _ => {}
        }
        let columns = self.composer_columns();
        if self.composer.editor.key(key, columns) {
            self.composer.edited();
        } else {
            match key.code {
                KeyCode::Up => self.composer.recall(-1),
                KeyCode::Down => self.composer.recall(1),
                KeyCode::Char('p') if control => self.composer.recall(-1),
                KeyCode::Char('n') if control => self.composer.recall(1),
                _ => {}
            }
        }
        Vec::new()
    }

    /// The columns the composer's text is drawn with.
    pub(crate) fn composer_columns(&self) -> usize {
        self.columns.saturating_sub(2)
    }

    fn page_key(&mut self, code: KeyCode) -> Vec<Effect> {
        if self.settings.full_screen {
            let step = if code == KeyCode::PageUp { -10 } else { 10 };
            let mut transcript = std::mem::take(&mut self.transcript);
            transcript.scroll(&self.state, step, self.columns, self.theme);
            self.transcript = transcript;
        } else {
            self.overlay = Some(Overlay::Transcript(Transcript::in_detail()));
        }
        Vec::new()
    }

    fn escape(&mut self) -> Vec<Effect> {
        if self.state.busy() {
            return self.interrupt();
        }
        if self.composer.editor.is_empty() && self.arm(Armed::EditEarlier) {
            return self.go_back("", Choices::Rewind);
        } else if self.composer.editor.is_empty() {
            self.hint("press Esc again to go back to an earlier message");
        }
        Vec::new()
    }

    pub(crate) fn next_mode(&self) -> Mode {
        mode_after(self.state.facts.mode.unwrap_or(Mode::Ask))
    }

    fn search_key(&mut self, pressed: KeyEvent) -> Vec<Effect> {
        let Some(key) = self.settings.keys.usual(Place::Writing, pressed) else {
            return Vec::new();
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('r') if control => self.composer.search_older(),
            KeyCode::Char('g') if control => self.composer.search_end(false),
            KeyCode::Esc => self.composer.search_end(false),
            KeyCode::Backspace => self.composer.search_delete(),
            KeyCode::Char(character) if !control => self.composer.search_type(character),
            // Any other key takes what was found and then means what it means.
            _ => {
                self.composer.search_end(true);
                if key.code != KeyCode::Enter {
                    return self.composer_key(pressed);
                }
            }
        }
        Vec::new()
    }

    fn submit(&mut self, when_busy: QueuePolicy) -> Vec<Effect> {
        if self.composer.editor.text().trim().is_empty() {
            return self.run_queued();
        }
        let text = self.composer.submit();
        self.transcript.follow = true;
        let mut effects = vec![Effect::Host(HostRequest::Remember {
            prompt: text.clone(),
        })];
        if text.starts_with('/') && !text.contains('\n') {
            effects.extend(self.run_command(&text));
        } else if let Some(command) = text.strip_prefix('!') {
            let command = command.trim();
            let behind = command.strip_prefix("network ").map(str::trim_start);
            let shell = Shell {
                command: behind.unwrap_or(command).to_owned(),
                network: behind.is_some(),
            };
            if !shell.command.is_empty() {
                effects.push(Effect::Command(ControlCommand::Shell(shell)));
            }
        } else {
            effects.push(Effect::Command(ControlCommand::SubmitTurn(SubmitTurn {
                parts: attachments(&text),
                text,
                when_busy,
                ..SubmitTurn::default()
            })));
        }
        effects
    }

    /// After a restart queued inputs wait for the user; Enter on an empty composer lets them run.
    fn run_queued(&self) -> Vec<Effect> {
        match self.state.facts.queue.first() {
            Some(first) if !self.state.busy() => {
                let queued = QueuedTurn {
                    turn_id: first.turn_id.clone(),
                };
                vec![Effect::Command(ControlCommand::PromoteQueuedTurn(queued))]
            }
            _ => Vec::new(),
        }
    }

    /// The last queued input goes back into the composer.
    fn take_back_queued(&mut self) -> Vec<Effect> {
        let Some(turn_id) = self
            .state
            .facts
            .queue
            .last()
            .map(|last| last.turn_id.clone())
        else {
            return Vec::new();
        };
        if let Some(text) = self.state.queued_text(&turn_id) {
            let text = text.to_owned();
            self.composer.editor.set(&text);
        }
        vec![Effect::Command(ControlCommand::RemoveQueuedTurn(
            QueuedTurn { turn_id },
        ))]
    }

    /// What the external editor should open.
    #[must_use]
    pub fn text_for_editor(&self) -> String {
        match self.prompt.as_ref().map(|prompt| &prompt.stage) {
            Some(Stage::Note(editor) | Stage::Answer(editor)) => editor.text().to_owned(),
            Some(Stage::Edit(editing)) => editing
                .editors
                .get(editing.at)
                .map(|editor| editor.text().to_owned())
                .unwrap_or_default(),
            Some(Stage::Rule(draft)) if draft.is_written => draft.editor.text().to_owned(),
            _ => self.composer.editor.text().to_owned(),
        }
    }

    /// Takes back what the external editor saved.
    pub fn text_from_editor(&mut self, saved: Result<String, String>) {
        let text = match saved {
            Ok(text) => text,
            Err(problem) => {
                self.hint(crate::safe::one_line(&problem));
                return;
            }
        };
        // Editors end the last line; that is no part of the text unless it was there before.
        let text = match self.text_for_editor().ends_with('\n') {
            true => text.as_str(),
            false => text.strip_suffix('\n').unwrap_or(&text),
        };
        match self.prompt.as_mut().map(|prompt| &mut prompt.stage) {
            Some(Stage::Note(editor) | Stage::Answer(editor)) => editor.set(text),
            Some(Stage::Edit(editing)) => {
                let at = editing.at;
                if let Some(editor) = editing.editors.get_mut(at) {
                    editor.set(text);
                }
            }
            Some(Stage::Rule(draft)) if draft.is_written => draft.editor.set(text.trim()),
            _ => self.composer.editor.set(text),
        }
    }
}

/// The mode behind this one, going round.
pub(crate) fn mode_after(mode: Mode) -> Mode {
    match mode {
        Mode::ReadOnly => Mode::Plan,
        Mode::Plan => Mode::Ask,
        Mode::Ask => Mode::AcceptEdits,
        Mode::AcceptEdits => Mode::Auto,
        // `full` is never reached by going round; it has to be named.
        Mode::Auto | Mode::Full => Mode::ReadOnly,
    }
}

/// A key by its name, as tests and documents write it: `a`, `C-a`, `M-enter`, `esc`.
#[cfg(test)]
pub(crate) fn parse(name: &str) -> KeyEvent {
    let mut modifiers = KeyModifiers::NONE;
    let mut rest = name;
    while let Some((letter, tail)) = rest
        .split_once('-')
        .filter(|(letter, tail)| letter.len() == 1 && !tail.is_empty())
    {
        modifiers |= match letter {
            "C" => KeyModifiers::CONTROL,
            "M" => KeyModifiers::ALT,
            "S" => KeyModifiers::SHIFT,
            _ => break,
        };
        rest = tail;
    }
    let code = match rest {
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "tab" => KeyCode::Tab,
        "backtab" => {
            // As terminals send it.
            modifiers |= KeyModifiers::SHIFT;
            KeyCode::BackTab
        }
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "backspace" => KeyCode::Backspace,
        "pageup" => KeyCode::PageUp,
        "pagedown" => KeyCode::PageDown,
        "home" => KeyCode::Home,
        "end" => KeyCode::End,
        "space" => KeyCode::Char(' '),
        other => KeyCode::Char(other.chars().next().unwrap()),
    };
    KeyEvent::new(code, modifiers)
}

#[cfg(test)]
mod tests;
