//! Keys while a question is open.

use agent_protocol::payload::permission::{ActionAnswer, ActionDecision, GrantScope};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::compose::editor::Editor;
use crate::ui::prompt::{Editing, Stage, respond};
use crate::ui::{Effect, Ui};

impl Ui {
    pub(super) fn prompt_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let now = self.now;
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        if matches!(prompt.stage, Stage::Choose) && !prompt.guard.takes_key(now) {
            // The user was writing something else: that is where it goes.
            if key.code != KeyCode::Esc && key.code != KeyCode::Enter {
                let columns = self.composer_columns();
                self.composer.editor.key(key, columns);
            }
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('g') {
            return vec![Effect::ExternalEditor];
        }
        // What was said about an earlier key no longer holds.
        self.hint = None;
        match prompt.stage {
            Stage::Choose => self.choose_key(key),
            Stage::Rule => self.rule_key(key),
            Stage::Note(_) | Stage::Answer(_) | Stage::Edit(_) => self.text_key(key),
        }
    }

    fn choose_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(pending) = self.current().cloned() else {
            return Vec::new();
        };
        let question = !pending.is_permission();
        if key
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            return Vec::new();
        }
        // A page leaves one line of the last one, so that nothing is passed unseen.
        let page = self.prompt.as_ref().map_or(1, |prompt| prompt.page);
        let page = isize::try_from(page.saturating_sub(1).max(1)).unwrap_or(1);
        match key.code {
            KeyCode::Char('a') if self.may_allow() => self.answer(respond(
                &pending,
                ActionDecision::AllowOnce,
                GrantScope::Once,
                None,
            )),
            KeyCode::Char('s') if !question && pending.every_time => {
                self.hint("this is asked about every time; a allows it once");
                Vec::new()
            }
            KeyCode::Char('s') if !question && self.may_allow() => self.answer(respond(
                &pending,
                ActionDecision::AllowSession,
                GrantScope::Session,
                None,
            )),
            KeyCode::Char('r')
                if !question && pending.suggested_rule.is_some() && self.may_allow() =>
            {
                self.stage(Stage::Rule)
            }
            KeyCode::Char('r') if !question && pending.suggested_rule.is_none() => {
                self.hint("no rule is offered for this: none would fit only this");
                Vec::new()
            }
            KeyCode::Char('d') => self.answer(respond(
                &pending,
                ActionDecision::Deny,
                GrantScope::Once,
                None,
            )),
            KeyCode::Char('n') => self.stage(Stage::Note(Editor::default())),
            KeyCode::Char('e') if question => self.stage(Stage::Answer(Editor::default())),
            // The edited version goes with the rest of what is asked: that has to be read too.
            KeyCode::Char('e') if !self.may_allow() => Vec::new(),
            KeyCode::Char('e') => {
                let (names, texts): (Vec<String>, Vec<String>) =
                    pending.editable().into_iter().unzip();
                if names.is_empty() {
                    self.hint("there is nothing to edit");
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
                self.hint("choose with a key: nothing is allowed by Enter");
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Nothing is allowed before its end has been on the screen.
    fn may_allow(&mut self) -> bool {
        let seen = self.prompt.as_ref().is_some_and(|prompt| prompt.seen_end);
        if !seen {
            self.hint("read it to its end first: Space or PgDn");
        }
        seen
    }

    fn stage(&mut self, stage: Stage) -> Vec<Effect> {
        if let Some(prompt) = &mut self.prompt {
            prompt.stage = stage;
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
        let scope = match key.code {
            KeyCode::Char('p') => GrantScope::ProjectLocal,
            KeyCode::Char('u') => GrantScope::User,
            KeyCode::Esc => return self.stage(Stage::Choose),
            _ => return Vec::new(),
        };
        let answer = ActionAnswer {
            saved_rule: pending.suggested_rule.clone(),
            ..ActionAnswer::default()
        };
        self.answer(respond(
            &pending,
            ActionDecision::AllowSession,
            scope,
            Some(answer),
        ))
    }

    fn text_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let columns = self.composer_columns();
        let plain_enter = key.code == KeyCode::Enter
            && !key
                .modifiers
                .intersects(KeyModifiers::ALT | KeyModifiers::SHIFT);
        if key.code == KeyCode::Esc {
            return self.stage(Stage::Choose);
        }
        if plain_enter {
            return self.send_text();
        }
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
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
            Stage::Choose | Stage::Rule => {}
        }
        Vec::new()
    }

    fn send_text(&mut self) -> Vec<Effect> {
        let Some(pending) = self.current().cloned() else {
            return Vec::new();
        };
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
                            ..ActionAnswer::default()
                        },
                    ),
                    Err(problem) => {
                        editing.error = Some(problem);
                        return Vec::new();
                    }
                }
            }
            Stage::Choose | Stage::Rule => return Vec::new(),
        };
        self.answer(respond(&pending, decision, GrantScope::Once, Some(answer)))
    }
}
