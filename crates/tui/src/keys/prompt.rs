//! Keys while a question is open.

use agent_protocol::payload::permission::{ActionAnswer, ActionDecision, GrantScope};
use agent_protocol::status::Mode;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::mode_after;
use super::overlay::{SCROLL_FIRST, scrolls};
use crate::compose::editor::Editor;
use crate::keymap::{Action, Place};
use crate::ui::guard::{CALM_MS, Press};
use crate::ui::prompt::{Editing, RuleDraft, Stage, respond};
use crate::ui::{Effect, Ui};

/// Said while keys go elsewhere.
const TYPED_ON: &str = "Typing goes to your message; the question waits until you pause.";

impl Ui {
    pub(super) fn prompt_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let now = self.now;
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        let is_text = prompt.is_writing();
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('g') {
            self.disturb();
            return vec![Effect::ExternalEditor];
        }
        if is_text {
            return self.text_key(key);
        }
        if matches!(prompt.stage, Stage::Choose) {
            let is_mode = self.settings.keys.is(Action::Mode, key);
            if is_mode && self.turn_mode(key) || key.code == KeyCode::Esc && self.keep_mode() {
                return Vec::new();
            }
        }
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        let pages = key.code == KeyCode::Char(' ') && prompt.guard.is_quiet(now);
        if scrolls(key) || pages {
            let before = prompt.guard.moved(now);
            let chooses = matches!(prompt.stage, Stage::Choose);
            if let Some(before) = before {
                self.type_on(before);
            }
            self.hint = None;
            return match chooses {
                true => self.choose_key(key),
                false => Vec::new(),
            };
        }
        if let Press::Typed(before) = prompt.guard.press(key, now) {
            for key in before.into_iter().chain([key]) {
                self.type_on(key);
            }
        }
        Vec::new()
    }

    /// Goes on to the next mode, which takes effect when the key rests. False when it was typed for something else.
    fn turn_mode(&mut self, key: KeyEvent) -> bool {
        let now = self.now;
        let next = self.mode_ahead().map_or(self.next_mode(), mode_after);
        let Some(prompt) = &mut self.prompt else {
            return false;
        };
        // What it would let through has to be seen first.
        let turns = prompt.seen_end && prompt.guard.go_round(key, now);
        if turns {
            prompt.mode = Some(next);
            self.hint = None;
        }
        turns
    }

    /// Takes the key for the next mode back, if it has not taken effect.
    fn keep_mode(&mut self) -> bool {
        let is_turning = self.mode_ahead().is_some();
        if is_turning {
            if let Some(prompt) = &mut self.prompt {
                prompt.guard.disturb(self.now);
            }
            self.hint("The mode stays as it is.");
        }
        is_turning
    }

    /// The mode that the key for it has come to, while it may still go on.
    pub(crate) fn mode_ahead(&self) -> Option<Mode> {
        let prompt = self.prompt.as_ref()?;
        let held = prompt.guard.held()?;
        (prompt.mode).filter(|_| self.settings.keys.is(Action::Mode, held))
    }

    /// A key that came while somebody was writing something else goes there, and the screen says so.
    pub(crate) fn type_on(&mut self, key: KeyEvent) {
        if self.settings.plain || self.overlay.is_some() {
            return;
        }
        if !matches!(key.code, KeyCode::Esc | KeyCode::Enter | KeyCode::BackTab) {
            let columns = self.composer_columns();
            self.composer.editor.key(key, columns);
        }
        self.hint = Some((TYPED_ON.to_owned(), self.now + CALM_MS + 1));
    }

    /// A key that answers the question, or leads to its next step.
    pub(crate) fn answer_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        // What was said about an earlier key no longer holds.
        self.hint = None;
        match self.prompt.as_ref().map(|prompt| &prompt.stage) {
            Some(Stage::Choose) => self.choose_key(key),
            Some(Stage::Rule(_)) => self.rule_key(key),
            Some(Stage::Edit(_)) => self.send_text(),
            Some(Stage::Note(_) | Stage::Answer(_)) | None => Vec::new(),
        }
    }

    fn choose_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(pending) = self.current().cloned() else {
            return Vec::new();
        };
        let question = !pending.is_permission();
        let keys = &self.settings.keys;
        let Some(key) = keys.usual(Place::Answering, key) else {
            return Vec::new();
        };
        let is_mode = keys.is(Action::Mode, key);
        let held = KeyModifiers::CONTROL | KeyModifiers::ALT;
        if key.modifiers.intersects(held) && !is_mode {
            return Vec::new();
        }
        // A page leaves one line of the last one, so that nothing is passed unseen.
        let page = self.prompt.as_ref().map_or(1, |prompt| prompt.page);
        let page = isize::try_from(page.saturating_sub(1).max(1)).unwrap_or(1);
        match key.code {
            KeyCode::Char(letter @ ('a' | 's' | 'w')) if pending.plan().is_some() => {
                match self.may_allow() {
                    true => self.approve_plan(&pending, letter),
                    false => Vec::new(),
                }
            }
            KeyCode::Char('a') if self.may_allow() => self.answer(respond(
                &pending,
                ActionDecision::AllowOnce,
                GrantScope::Once,
                None,
            )),
            KeyCode::Char('s') if !question && pending.every_time => {
                self.hint("This asks every time; press a to allow it once.");
                Vec::new()
            }
            KeyCode::Char('s') if !question && self.may_allow() => {
                let answer = pending.session_rule.clone().map(|rule| ActionAnswer {
                    saved_rule: Some(rule),
                    ..ActionAnswer::default()
                });
                self.answer(respond(
                    &pending,
                    ActionDecision::AllowSession,
                    GrantScope::Session,
                    answer,
                ))
            }
            KeyCode::Char('w') if pending.lacks_network() && self.may_allow() => {
                let answer = ActionAnswer {
                    edited_input: pending.with_network(),
                    ..ActionAnswer::default()
                };
                self.answer(respond(
                    &pending,
                    ActionDecision::AllowOnce,
                    GrantScope::Once,
                    Some(answer),
                ))
            }
            _ if is_mode => {
                if !self.may_allow() {
                    return Vec::new();
                }
                let turned = self.prompt.as_mut().and_then(|prompt| prompt.mode.take());
                vec![Effect::set_mode(turned.unwrap_or(self.next_mode()))]
            }
            KeyCode::Char('r') if !question => match &pending.suggested_rule {
                None => {
                    self.hint("Can't be saved as a rule (too broad).");
                    Vec::new()
                }
                Some(rule) if self.may_allow() => {
                    self.stage(Stage::Rule(Box::new(RuleDraft::new(rule))))
                }
                Some(_) => Vec::new(),
            },
            KeyCode::Char('d') => self.answer(respond(
                &pending,
                ActionDecision::Deny,
                GrantScope::Once,
                None,
            )),
            KeyCode::Char('n') => self.stage(Stage::Note(Editor::default())),
            KeyCode::Char('e') if question && pending.plan().is_none() => {
                self.stage(Stage::Answer(Editor::default()))
            }
            // The edited version goes with the rest of what is asked: that has to be read too.
            KeyCode::Char('e') if !self.may_allow() => Vec::new(),
            KeyCode::Char('e') => {
                let (names, texts): (Vec<String>, Vec<String>) =
                    pending.editable().into_iter().unzip();
                if names.is_empty() {
                    self.hint("Nothing to edit here.");
                    return Vec::new();
                }
                self.stage(Stage::Edit(Box::new(Editing {
                    names,
                    editors: texts.iter().map(|text| Editor::with(text)).collect(),
                    at: 0,
                    error: None,
                })))
            }
            KeyCode::Char('q') | KeyCode::Esc => self.answer(respond(
                &pending,
                ActionDecision::Abort,
                GrantScope::Once,
                None,
            )),
            KeyCode::Up | KeyCode::Char('k') => self.scroll_prompt(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll_prompt(1),
            KeyCode::PageUp => self.scroll_prompt(-page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll_prompt(page),
            KeyCode::Home | KeyCode::Char('g') => self.scroll_prompt(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.scroll_prompt(isize::MAX / 2),
            KeyCode::Enter => {
                self.hint("Press a, s, d… (Enter does nothing here).");
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Nothing is allowed before its end has been on the screen.
    fn may_allow(&mut self) -> bool {
        let seen = self.prompt.as_ref().is_some_and(|prompt| prompt.seen_end);
        if !seen {
            self.hint(SCROLL_FIRST);
        }
        seen
    }

    fn stage(&mut self, stage: Stage) -> Vec<Effect> {
        if let Some(prompt) = &mut self.prompt {
            prompt.stage = stage;
            // The next step is an answer of its own.
            prompt.guard.renew();
        }
        Vec::new()
    }

    fn scroll_prompt(&mut self, lines: isize) -> Vec<Effect> {
        if let Some(prompt) = &mut self.prompt {
            // The frame knows how far it goes and takes back what is too much.
            prompt.scroll = prompt.scroll.saturating_add_signed(lines);
        }
        Vec::new()
    }

    fn rule_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(pending) = self.current().cloned() else {
            return Vec::new();
        };
        let is_edit = self.settings.keys.is(Action::EditFirst, key);
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        let Stage::Rule(draft) = &mut prompt.stage else {
            return Vec::new();
        };
        let scope = match key.code {
            KeyCode::Char('p') => GrantScope::ProjectLocal,
            KeyCode::Char('u') => GrantScope::User,
            KeyCode::Esc => return self.stage(Stage::Choose),
            KeyCode::Char('w') => {
                if let Some(wider) = draft.preview.as_ref().and_then(|seen| seen.wider.clone()) {
                    draft.editor = Editor::with(&wider);
                }
                prompt.guard.renew();
                return Vec::new();
            }
            _ if is_edit => {
                draft.is_written = true;
                prompt.guard.renew();
                return Vec::new();
            }
            _ => return Vec::new(),
        };
        let Some(rule) = draft.rule() else {
            self.hint("This rule can't be saved; change it with e, or go back with Esc.");
            return Vec::new();
        };
        let answer = ActionAnswer {
            saved_rule: Some(rule),
            ..ActionAnswer::default()
        };
        self.answer(respond(
            &pending,
            ActionDecision::AllowSession,
            scope,
            Some(answer),
        ))
    }

    /// The rule is written, or is to stay the one that was offered.
    fn rule_written(&mut self, is_taken: bool) -> Vec<Effect> {
        if let Some(prompt) = &mut self.prompt
            && let Stage::Rule(draft) = &mut prompt.stage
        {
            if !is_taken {
                draft.editor = Editor::with(&draft.offered);
            }
            draft.is_written = false;
            prompt.guard.renew();
        }
        Vec::new()
    }

    fn text_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        self.hint = None;
        let columns = self.composer_columns();
        let plain_enter = key.code == KeyCode::Enter
            && !key
                .modifiers
                .intersects(KeyModifiers::ALT | KeyModifiers::SHIFT);
        let is_rule = self
            .prompt
            .as_ref()
            .is_some_and(|prompt| matches!(prompt.stage, Stage::Rule(_)));
        match key.code {
            KeyCode::Esc if is_rule => return self.rule_written(false),
            // A rule has one line; where it is saved is another step.
            KeyCode::Enter if is_rule => return self.rule_written(true),
            KeyCode::Esc => return self.stage(Stage::Choose),
            _ => {}
        }
        let now = self.now;
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        match &prompt.stage {
            Stage::Edit(_) if plain_enter => {
                // This allows something: it counts as any answer does.
                if let Press::Typed(_) = prompt.guard.press(key, now) {
                    self.hint("Pause, then press Enter to allow it as edited.");
                }
                return Vec::new();
            }
            _ if plain_enter => return self.send_text(),
            // An Enter that something follows was none.
            _ => drop(prompt.guard.disturb(now)),
        }
        match &mut prompt.stage {
            Stage::Note(editor) | Stage::Answer(editor) => {
                editor.key(key, columns);
            }
            Stage::Edit(editing) if key.code == KeyCode::Tab => {
                editing.at = (editing.at + 1) % editing.editors.len().max(1);
            }
            Stage::Edit(editing) => {
                let at = editing.at;
                if let Some(editor) = editing.editors.get_mut(at) {
                    editor.key(key, columns);
                    editing.error = None;
                }
            }
            Stage::Rule(draft) => {
                draft.editor.key(key, columns);
            }
            Stage::Choose => {}
        }
        Vec::new()
    }

    pub(crate) fn send_text(&mut self) -> Vec<Effect> {
        let Some(pending) = self.current().cloned() else {
            return Vec::new();
        };
        let mode = pending.plan().map(|_| self.mode_after_plan('a'));
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        let (decision, answer) = match &mut prompt.stage {
            Stage::Note(editor) => (
                ActionDecision::Deny,
                ActionAnswer {
                    note: Some(editor.text().to_owned()).filter(|note| !note.trim().is_empty()),
                    ..ActionAnswer::default()
                },
            ),
            Stage::Answer(editor) => (
                ActionDecision::Answer,
                ActionAnswer {
                    answer: Some(serde_json::Value::String(editor.text().to_owned())),
                    ..ActionAnswer::default()
                },
            ),
            Stage::Edit(editing) => {
                let texts: Vec<String> = editing
                    .editors
                    .iter()
                    .map(|editor| editor.text().to_owned())
                    .collect();
                match pending.edited(&texts) {
                    Ok(input) => (
                        ActionDecision::AllowOnce,
                        ActionAnswer {
                            edited_input: Some(input),
                            mode,
                            ..ActionAnswer::default()
                        },
                    ),
                    Err(problem) => {
                        editing.error = Some(problem);
                        return Vec::new();
                    }
                }
            }
            Stage::Choose | Stage::Rule(_) => return Vec::new(),
        };
        self.answer(respond(&pending, decision, GrantScope::Once, Some(answer)))
    }
}
