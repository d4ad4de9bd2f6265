//! Plain mode: lines of words, one after the other, for screen readers and for terminals that can
//! do nothing else. Nothing is drawn over, nothing blinks, no sign stands without its word.

mod print;

use std::io::{BufRead as _, Write as _};
use std::ops::Range;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use agent_protocol::command::{ControlCommand, InterruptReason, InterruptTurn};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;

use crate::compose::editor::Editor;
use crate::host::{Exit, Input, Output, Settings};
use crate::run::{RunError, Signals};
use crate::safe;
use crate::state::State;
use crate::state::cell::{CallStage, CellKind};
use crate::terminal::usual_for_unknown;
use crate::theme::{ColorDepth, Theme};
use crate::ui::guard::{Guard, Press};
use crate::ui::overlay::Overlay;
use crate::ui::prompt::Stage;
use crate::ui::{Effect, Ui};
use crate::view;

/// Lines are no wider than this, or than the terminal is.
const COLUMNS: usize = 100;

const TOO_EARLY: &str =
    "That came too early, or together with something else; please answer again.";

/// Runs the plain screen on standard input and output.
pub(crate) async fn run(
    settings: Settings,
    mut inputs: UnboundedReceiver<Input>,
    outputs: UnboundedSender<Output>,
    shutdown: CancellationToken,
) -> Result<Exit, RunError> {
    let (send_line, mut lines) = unbounded_channel();
    // A thread of its own: a blocked read must not keep the process from ending.
    let _ = std::thread::Builder::new()
        .name("lines".into())
        .spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() || send_line.send(line.unwrap_or_default()).is_err() {
                    break;
                }
            }
        });
    let mut interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
        .map_err(|source| RunError::Signals { source })?;
    let mut signals = Signals::ending()?;
    let started = Instant::now();
    let mut plain = Plain::new(settings);
    if let Ok((columns, _)) = crossterm::terminal::size().map(usual_for_unknown) {
        plain.columns = usize::from(columns).clamp(20, COLUMNS);
    }
    loop {
        for line in plain.take_lines() {
            let written = writeln!(std::io::stdout(), "{line}");
            written.map_err(|source| RunError::Terminal { source })?;
        }
        let now = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ripens = plain.ui.guard().and_then(Guard::ends);
        let ripens = ripens.filter(|at| *at > now(started));
        let ripens = async {
            match ripens {
                Some(at) => tokio::time::sleep_until(started + Duration::from_millis(at)).await,
                None => std::future::pending().await,
            }
        };
        let effects = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(Exit::Ended),
            number = signals.next() => return Ok(Exit::Signal(number)),
            _ = interrupts.recv() => plain.interrupt(),
            () = ripens => {
                plain.ui.tick(now(started));
                plain.ripen()
            }
            line = lines.recv() => match line {
                Some(line) => {
                    plain.ui.tick(now(started));
                    plain.line(&line)
                }
                None => return Ok(Exit::Quit),
            },
            input = inputs.recv() => match input {
                Some(input) => {
                    plain.ui.tick(now(started));
                    plain.input(input)
                }
                None => {
                    // What was said last still has to be heard.
                    for line in plain.take_lines() {
                        let _ = writeln!(std::io::stdout(), "{line}");
                    }
                    return Ok(Exit::Ended);
                }
            },
        };
        for effect in effects {
            let output = match effect {
                Effect::Command(command) => Output::Command(command),
                Effect::Host(request) => Output::Host(request),
                Effect::Exit(exit) => return Ok(exit),
                _ => continue,
            };
            if outputs.send(output).is_err() {
                return Ok(Exit::Ended);
            }
        }
        // Time for a burst of events to arrive together.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The plain screen without its input and output.
pub struct Plain {
    pub ui: Ui,
    /// How wide lines may be.
    pub columns: usize,
    out: Vec<String>,
    asked: Option<agent_protocol::id::ActionId>,
    /// The call that was last said to be running.
    started: Option<agent_protocol::id::ToolCallId>,
    /// The rule that was told, while one is to be saved.
    told_rule: Option<String>,
    /// Lines of a text that is being written.
    gathered: Vec<String>,
    interrupted: bool,
}

impl Plain {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut ui = Ui::new(settings);
        ui.theme = Theme {
            depth: ColorDepth::None,
            ..ui.theme
        };
        let mut plain = Self {
            ui,
            columns: COLUMNS,
            out: Vec::new(),
            asked: None,
            started: None,
            told_rule: None,
            gathered: Vec::new(),
            interrupted: false,
        };
        plain.out.push(format!(
            "agent {}. Type a message and press Enter; /help lists commands.",
            plain.ui.settings.version
        ));
        plain.print_overlay();
        plain
    }

    /// What is to be printed now.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.out)
    }

    pub fn input(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.ui.input(input);
        self.after();
        effects
    }

    /// One line the user entered.
    pub fn line(&mut self, line: &str) -> Vec<Effect> {
        self.interrupted = false;
        if self.ui.overlay.is_some() {
            return self.answer_overlay(line);
        }
        let effects = match &self.ui.prompt {
            Some(prompt) => {
                if prompt.is_writing() {
                    self.write(line)
                } else if line.trim_start().starts_with("/mode ") {
                    // Another mode is an answer of its own.
                    self.ui.run_command(line.trim())
                } else {
                    self.answer(line);
                    return Vec::new();
                }
            }
            None => {
                self.ui.composer.editor.set(line);
                self.ui.composer.menu_close();
                self.ui
                    .key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE))
            }
        };
        self.after();
        effects
    }

    /// A line while the first-run or trust question is open: its first letter counts.
    fn answer_overlay(&mut self, line: &str) -> Vec<Effect> {
        let code = line
            .trim()
            .chars()
            .next()
            .map_or(KeyCode::Enter, KeyCode::Char);
        if matches!(self.ui.overlay, Some(Overlay::Rewind(..))) {
            let code = match code {
                KeyCode::Enter => KeyCode::Esc,
                code => code,
            };
            return self.ui.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        if let Press::Typed(_) = self.ui.start_guard.press(key, self.ui.now) {
            self.out.push(TOO_EARLY.into());
        }
        Vec::new()
    }

    /// A line while a question is open. One letter answers it, if no other line follows.
    fn answer(&mut self, line: &str) {
        let now = self.ui.now;
        let Some(prompt) = &mut self.ui.prompt else {
            return;
        };
        let mut letters = line.trim().chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else {
            prompt.guard.disturb(now);
            self.out
                .push("Answer with one letter, as listed above.".into());
            return;
        };
        let key = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE);
        if let Press::Typed(_) = prompt.guard.press(key, now) {
            self.out.push(TOO_EARLY.into());
        }
    }

    /// Takes the answer that no other line followed.
    pub fn ripen(&mut self) -> Vec<Effect> {
        let before = self.ui.prompt.as_ref().map(|prompt| prompt.stage.clone());
        let effects = self.ui.ripen();
        let stage = self.ui.prompt.as_ref().map(|prompt| prompt.stage.clone());
        let stage = stage.filter(|stage| before.as_ref() != Some(stage));
        match stage {
            Some(Stage::Note(_)) => self
                .out
                .push("Deny, and what should the model be told?".into()),
            Some(Stage::Answer(_)) => self.out.push("Your answer:".into()),
            Some(Stage::Rule(draft)) if draft.is_written => self.out.push(format!(
                "Enter the new rule; an empty line keeps the current one: {}",
                safe::one_line(draft.editor.text())
            )),
            Some(Stage::Edit(_)) => self.print_part(),
            _ => {}
        }
        self.after();
        effects
    }

    /// What the session says of the rule that is to be saved, once it has.
    fn print_rule(&mut self) {
        let Some(prompt) = &mut self.ui.prompt else {
            return;
        };
        let Stage::Rule(draft) = &prompt.stage else {
            self.told_rule = None;
            return;
        };
        let Some(preview) = draft.preview.as_ref().filter(|_| !draft.is_written) else {
            return;
        };
        if self.told_rule.as_ref() == Some(&preview.rule) {
            return;
        }
        self.told_rule = Some(preview.rule.clone());
        let key = self.ui.settings.keys.answer("e");
        self.out
            .push(format!("Rule: {}", safe::one_line(&preview.rule)));
        self.out.extend(view::rule::in_words(preview));
        let mut answers = match preview.problem {
            Some(_) => "It can't be saved.".to_owned(),
            None => "Save it where? p: for you in this project. u: for you everywhere.".to_owned(),
        };
        answers.push_str(&format!(" {key}: change it."));
        if preview.wider.is_some() {
            answers.push_str(" w: wider.");
        }
        self.out.push(answers);
        prompt.guard.drawn(self.ui.now);
    }

    /// The part of the input that is to be written anew.
    fn print_part(&mut self) {
        let Some(Stage::Edit(editing)) = self.ui.prompt.as_ref().map(|prompt| &prompt.stage) else {
            return;
        };
        let name = editing.names.get(editing.at).cloned().unwrap_or_default();
        let text = editing.editors.get(editing.at).map(Editor::text);
        let text = safe::content(text.unwrap_or_default());
        self.out.push(match text.contains('\n') {
            true => format!(
                "Enter the new {name}, then a line with only a dot; a dot alone keeps the current \
                 one:"
            ),
            false => format!("Enter the new {name}; an empty line keeps the current one:"),
        });
        self.out.extend(text.lines().map(str::to_owned));
    }

    /// A line of what is being written: a note, an answer, or a part of the input.
    fn write(&mut self, line: &str) -> Vec<Effect> {
        let enter = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        let stage = self.ui.prompt.as_mut().map(|prompt| &mut prompt.stage);
        let Some(Stage::Edit(editing)) = stage else {
            if !(line.is_empty() && matches!(stage, Some(Stage::Rule(_)))) {
                self.ui.text_from_editor(Ok(line.to_owned()));
            }
            self.told_rule = None;
            return self.ui.key(enter);
        };
        if let Some(editor) = editing.editors.get_mut(editing.at) {
            let has_lines = editor.text().contains('\n');
            if has_lines && line != "." {
                self.gathered.push(line.to_owned());
                return Vec::new();
            }
            if has_lines && !self.gathered.is_empty() {
                let mut text = std::mem::take(&mut self.gathered).join("\n");
                if editor.text().ends_with('\n') {
                    text.push('\n');
                }
                editor.set(&text);
            } else if !has_lines && !line.is_empty() {
                editor.set(line);
            }
        }
        if editing.at + 1 < editing.editors.len() {
            editing.at += 1;
            self.print_part();
            return Vec::new();
        }
        self.ui.send_text()
    }

    /// Ctrl-C: stop the turn; again, or with nothing running: leave.
    pub fn interrupt(&mut self) -> Vec<Effect> {
        if self.interrupted || !self.ui.state.busy() {
            return vec![Effect::Exit(Exit::Quit)];
        }
        self.interrupted = true;
        self.out
            .push("Interrupting. Press Ctrl-C again to quit.".into());
        let turn_id = self
            .ui
            .state
            .facts
            .turn
            .as_ref()
            .and_then(|turn| turn.turn_id.clone());
        vec![Effect::Command(ControlCommand::InterruptTurn(
            InterruptTurn {
                turn_id,
                reason: InterruptReason::User,
            },
        ))]
    }

    fn after(&mut self) {
        while let Some(range) = view::next_finished(&self.ui) {
            self.out.extend(words(&self.ui.state, &range));
            self.ui.printed.cells = range.end;
        }
        self.say_running();
        if let Some((hint, _)) = self.ui.hint.take() {
            self.out.push(hint);
        }
        self.print_overlay();
        self.print_question();
        self.print_rule();
    }

    /// A command may take a while: that it began is said once.
    fn say_running(&mut self) {
        let cells = &self.ui.state.cells[self.ui.state.first_open()..];
        let runs = cells.iter().find_map(|cell| match &cell.kind {
            CellKind::Tool(tool) if tool.stage == CallStage::Running => Some(tool),
            _ => None,
        });
        if let Some(tool) = runs.filter(|tool| tool.takes_a_while && tool.call_id != self.started) {
            self.started.clone_from(&tool.call_id);
            self.out.push(format!("running: {}", tool.target));
        }
    }
}

fn spoken(line: &Line<'static>) -> String {
    line.to_string().trim_end().to_owned()
}

/// A finished piece of the transcript in words.
fn words(state: &State, range: &Range<usize>) -> Vec<String> {
    match state.cells.get(range.start).map(|cell| &cell.kind) {
        Some(CellKind::User(user)) => {
            vec![format!("You: {}", safe::content(user.text.trim_end()))]
        }
        Some(CellKind::Assistant(said)) => {
            vec![format!("Agent: {}", safe::content(said.text.trim()))]
        }
        Some(CellKind::Reasoning(_)) => Vec::new(),
        _ => {
            let theme = Theme {
                depth: ColorDepth::None,
                ..Theme::default()
            };
            view::finished(state, range, 1000, theme)
                .iter()
                .map(|line| in_words(&spoken(line)))
                .collect()
        }
    }
}

/// Signs become the words they stand for.
fn in_words(line: &str) -> String {
    let pairs = [
        ("✓ verified", "verified"),
        ("✓ ", "ok: "),
        ("✗ error: ", "error: "),
        ("✗ ", "failed: "),
        ("⊘ ", "denied: "),
        ("─ ", "end of turn: "),
        ("? not verified", "not verified"),
        ("? could not be judged", "could not be judged"),
        ("! ", ""),
        (" · ", ", "),
        ("· ", "note: "),
    ];
    pairs.iter().fold(line.to_owned(), |text, (sign, word)| {
        text.replace(sign, word)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_protocol::payload::conversation::TurnStarted;
    use agent_protocol::payload::permission::ActionRequired;
    use agent_protocol::{Event, Payload, Refs, Scope, Timestamp};
    use serde_json::{Value, json};

    use super::*;

    fn event(sequence: u64, payload: impl Into<Payload>) -> Input {
        Input::Event(Arc::new(Event {
            event_id: "ev_1".parse().unwrap(),
            timestamp: Timestamp::default(),
            sequence,
            schema_version: "1".into(),
            runtime_id: "rt_1".parse().unwrap(),
            session_id: "ses_1".parse().unwrap(),
            scope: Scope {
                turn_id: Some("turn_1".parse().unwrap()),
                action_id: Some("act_1".parse().unwrap()),
                ..Scope::default()
            },
            payload: payload.into(),
            refs: Refs::default(),
            prev: String::new(),
        }))
    }

    /// A plain screen with a question about this input, long enough ago to be answered.
    fn asking(input: Value) -> Plain {
        let mut plain = Plain::new(Settings::default());
        plain.input(event(1, TurnStarted::default()));
        let asked = ActionRequired {
            tool_name: Some("write".into()),
            safe_args: Some(input),
            ..ActionRequired::default()
        };
        plain.input(event(2, asked));
        plain.take_lines();
        plain.ui.tick(10_000);
        plain
    }

    /// Time passes, and nothing else comes.
    fn later(plain: &mut Plain) -> Vec<Effect> {
        plain.ui.tick(plain.ui.now + 1000);
        plain.ripen()
    }

    fn check(input: Value, lines: &[&str], expected: Value) {
        let mut plain = asking(input);
        let mut effects = Vec::new();
        for line in lines {
            effects.extend(plain.line(line));
            effects.extend(later(&mut plain));
        }
        let edited = effects.iter().find_map(|effect| match effect {
            Effect::Command(ControlCommand::RespondAction(response)) => {
                response.answer.as_ref()?.edited_input.clone()
            }
            _ => None,
        });
        assert_eq!(
            edited,
            Some(expected),
            "{lines:?}: {:?}",
            plain.take_lines()
        );
    }

    #[test]
    fn what_is_asked_can_be_written_anew() {
        check(
            json!({"command": "ls"}),
            &["e", "ls -l"],
            json!({"command": "ls -l"}),
        );
        check(
            json!({"command": "ls"}),
            &["e", ""],
            json!({"command": "ls"}),
        );
        check(
            json!({"path": "a", "content": "one\n\ttwo\n"}),
            &["e", "1", "\t2", "."],
            json!({"path": "a", "content": "1\n\t2\n"}),
        );
        let two = |first: &str, second: &str| {
            json!({"path": "a", "edits": [
                {"old_string": "1", "new_string": first},
                {"old_string": "2", "new_string": second},
            ]})
        };
        check(two("a", "b\nc"), &["e", "x", "."], two("x", "b\nc"));
    }

    #[test]
    fn a_line_that_came_too_early_is_no_answer() {
        let mut plain = asking(json!({"command": "ls"}));
        plain.ui.tick(0);
        assert_eq!(plain.line("a"), []);
        assert_eq!(later(&mut plain), []);
        assert_eq!(plain.take_lines(), [TOO_EARLY]);
        plain.ui.tick(10_000);
        assert_eq!(plain.line("a"), []);
        assert_eq!(later(&mut plain).len(), 1);
    }

    #[test]
    fn several_lines_at_once_are_no_answer() {
        let mut plain = asking(json!({"command": "ls"}));
        for line in ["a", "s", "a", "a sentence", "a"] {
            assert_eq!(plain.line(line), []);
        }
        assert_eq!(later(&mut plain), []);
        assert!(plain.take_lines().contains(&TOO_EARLY.to_owned()));
    }
}
