//! Overlays and questions, printed.

use ratatui::text::Line;

use super::{Plain, spoken};
use crate::safe;
use crate::text::{Break, wrap};
use crate::ui::overlay::Overlay;
use crate::view::{overlay, plan, prompt, question};

impl Plain {
    pub(super) fn print_overlay(&mut self) {
        match self.ui.overlay.take() {
            Some(Overlay::Reader(reader)) => {
                let theme = self.ui.theme;
                self.out
                    .push(format!("{}:", safe::one_line(&reader.document.title)));
                let lines = overlay::document(&reader.document, self.columns, theme);
                self.out.extend(lines.iter().map(spoken));
            }
            Some(Overlay::Picker(picker)) => {
                self.out.push(format!("{}:", picker.title));
                self.out.extend(
                    picker
                        .rows()
                        .into_iter()
                        .map(|(_, label, detail)| format!("{label}  {detail}")),
                );
                self.out
                    .push("Name the one you want with the command, for example /mode ask.".into());
            }
            Some(Overlay::FirstRun(found, scroll)) => {
                self.out.push("No model is set up yet.".into());
                for (what, there) in &found.found {
                    let word = if *there { "found" } else { "not found" };
                    self.out.push(format!("{word}: {}", safe::one_line(what)));
                }
                self.out.push("Any one of these is enough:".into());
                self.out
                    .extend(found.to_set.iter().map(|line| safe::one_line(line)));
                self.out
                    .extend(found.notes.iter().map(|note| safe::one_line(note)));
                self.out
                    .push("Or run `agent config key PROVIDER` to enter a key.".into());
                self.out.push(
                    "d and Enter: the demo, without a model. Enter: check again. q and Enter: quit."
                        .into(),
                );
                self.ui.overlay = Some(Overlay::FirstRun(found, scroll));
                self.ui.start_guard.drawn(self.ui.now);
            }
            Some(Overlay::Trust(question, scroll)) => {
                self.out.push(overlay::trust_in_words(&question));
                let lines = crate::diff::render(&question.diff, self.columns, self.ui.theme);
                self.out.extend(lines.iter().map(spoken));
                self.out.push(
                    "t and Enter: trust exactly this content. i and Enter: ignore it. q and Enter: quit."
                        .into(),
                );
                self.ui.overlay = Some(Overlay::Trust(question, scroll));
                self.ui.start_guard.drawn(self.ui.now);
            }
            Some(Overlay::Rewind(plan, scroll)) => {
                let lines = overlay::rewind(&plan, self.columns, self.ui.theme);
                self.out.extend(lines.iter().map(spoken));
                self.out.push(
                    "b and Enter: both, files and conversation. c and Enter: the conversation alone. Enter: leave it."
                        .into(),
                );
                self.ui.overlay = Some(Overlay::Rewind(plan, scroll));
            }
            Some(Overlay::Mode(project, scroll)) => {
                self.out.push(overlay::AUTO_TITLE.into());
                for text in overlay::auto_in_words(&self.ui, &project) {
                    let lines = wrap(&Line::from(text), self.columns, 0, Break::Words);
                    self.out.extend(lines.iter().map(spoken));
                }
                self.out.push(
                    "y and Enter: work in mode auto here. n and Enter: keep asking. q and Enter: quit."
                        .into(),
                );
                self.ui.overlay = Some(Overlay::Mode(project, scroll));
                self.ui.start_guard.drawn(self.ui.now);
            }
            Some(Overlay::Transcript(_) | Overlay::Key(..)) | None => {}
        }
    }

    pub(super) fn print_question(&mut self) {
        let Some(pending) = self.ui.current() else {
            self.asked = None;
            return;
        };
        let ready = !prompt::is_loading(&self.ui, pending);
        if !ready || self.asked.as_ref() == Some(&pending.action_id) {
            return;
        }
        self.asked = Some(pending.action_id.clone());
        let title: String = question::title(&self.ui, pending)
            .iter()
            .map(|piece| piece.text.as_str())
            .collect();
        let body = question::body(&self.ui, pending, self.columns);
        let key = |usual: &str| self.ui.settings.keys.answer(usual);
        let mut answers = "Answer with one letter and Enter.".to_owned();
        let mut offer = |usual: &str, words: &str| {
            answers.push_str(&format!(" {}: {words}.", key(usual)));
        };
        if pending.is_permission() {
            offer("d", "deny");
            offer("n", "deny with a note");
            offer("q", "abort the turn");
            offer("a", "allow once");
            if pending.misses_network() {
                offer("w", "allow once, with network");
            }
            match &pending.session_rule {
                _ if pending.every_time => {}
                Some(_) => offer("s", "allow all edits this session"),
                None => offer("s", "allow this session"),
            }
            if pending.suggested_rule.is_some() {
                offer("r", "allow by a rule");
            }
            offer("e", "edit first");
        } else if pending.plan().is_some() {
            offer("d", "reject");
            offer("n", "reject with a note");
            offer("q", "abort the turn");
            for letter in ['a', 's', 'w'] {
                let mode = self.ui.mode_after_plan(letter);
                offer(&letter.to_string(), plan::approval(mode));
            }
            offer("e", "edit first");
        } else {
            offer("d", "no");
            offer("n", "no, with a note");
            offer("q", "abort the turn");
            offer("a", "yes");
            offer("e", "answer in words");
        }
        let head = match self.ui.waiting() {
            1 => format!("Question: {title}"),
            waiting => format!("Question, the first of {waiting}: {title}"),
        };
        self.out.push(head);
        self.out.extend(body.iter().map(spoken));
        let answers = wrap(&Line::from(answers), self.columns, 0, Break::Words);
        self.out.extend(answers.iter().map(spoken));
        let now = self.ui.now;
        if let Some(prompt) = &mut self.ui.prompt {
            // All of it was printed.
            prompt.guard.drawn(now);
            prompt.seen_end = true;
        }
    }
}
