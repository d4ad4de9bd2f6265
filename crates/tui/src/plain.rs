//! Plain mode: lines of words, one after the other, for screen readers and for terminals that can
//! do nothing else. Nothing is drawn over, nothing blinks, no sign stands without its word.

use std::io::{BufRead as _, Write as _};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use agent_protocol::command::{ControlCommand, InterruptTurn};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::host::{Exit, Input, Output, Settings};
use crate::run::RunError;
use crate::safe;
use crate::state::cell::{Cell, CellKind};
use crate::theme::{Background, ColorDepth, Theme};
use crate::ui::overlay::Overlay;
use crate::ui::prompt::{GUARD_MS, Stage};
use crate::ui::{Effect, Ui};
use crate::view::{cells, overlay, prompt};

/// Wide enough that sentences stay whole; the terminal breaks them as it likes.
const COLUMNS: usize = 100;

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
    let started = Instant::now();
    let mut plain = Plain::new(settings);
    loop {
        for line in plain.take_lines() {
            let written = writeln!(std::io::stdout(), "{line}");
            written.map_err(|source| RunError::Terminal { source })?;
        }
        let now = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let effects = tokio::select! {
            () = shutdown.cancelled() => return Ok(Exit::Ended),
            _ = interrupts.recv() => plain.interrupt(),
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
    out: Vec<String>,
    asked: Option<agent_protocol::id::ActionId>,
    interrupted: bool,
}

impl Plain {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut ui = Ui::new(settings);
        ui.theme = Theme {
            depth: ColorDepth::None,
            background: Background::Dark,
            plain_code: false,
        };
        let mut plain = Self {
            ui,
            out: Vec::new(),
            asked: None,
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
        let effects = match &self.ui.prompt {
            Some(prompt) => {
                let writing = !matches!(prompt.stage, Stage::Choose | Stage::Rule);
                if !writing
                    && prompt
                        .drawn_at
                        .is_none_or(|drawn| self.ui.now < drawn + GUARD_MS)
                {
                    self.out.push(
                        "That came before the question could be read; please answer again.".into(),
                    );
                    return Vec::new();
                }
                self.answer(line, writing)
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

    fn answer(&mut self, line: &str, writing: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        if writing {
            let text = line.to_owned();
            self.ui.text_from_editor(Ok(text));
            effects.extend(
                self.ui
                    .key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)),
            );
            return effects;
        }
        let Some(letter) = line
            .trim()
            .chars()
            .next()
            .filter(|_| line.trim().chars().count() == 1)
        else {
            self.out
                .push("Answer with one letter: a, s, r, d, n, e or q.".into());
            return effects;
        };
        effects.extend(
            self.ui
                .key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)),
        );
        match self.ui.prompt.as_ref().map(|prompt| &prompt.stage) {
            Some(Stage::Note(_)) => self
                .out
                .push("Denied. What should the model be told?".into()),
            Some(Stage::Answer(_)) => self.out.push("Your answer:".into()),
            Some(Stage::Rule) => self.out.push(
                "Save the rule where? p: for you in this project, u: for you everywhere.".into(),
            ),
            Some(Stage::Edit(editing)) => {
                let text = editing
                    .editors
                    .first()
                    .map(|editor| editor.text().to_owned())
                    .unwrap_or_default();
                self.out
                    .push("Enter the new text; this is the old one:".into());
                self.out.extend(text.lines().map(str::to_owned));
            }
            _ => {}
        }
        effects
    }

    /// Ctrl-C: stop the turn; again, or with nothing running: leave.
    pub fn interrupt(&mut self) -> Vec<Effect> {
        if self.interrupted || !self.ui.state.busy() {
            return vec![Effect::Exit(Exit::Quit)];
        }
        self.interrupted = true;
        self.out.push("Interrupting. Ctrl-C again leaves.".into());
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
                reason: "the user pressed Ctrl-C".into(),
            },
        ))]
    }

    fn after(&mut self) {
        while self.ui.printed.cells < self.ui.state.first_open() {
            let cell = self.ui.state.cells[self.ui.printed.cells].clone();
            self.out.extend(words(&cell));
            self.ui.printed.cells += 1;
        }
        if let Some((hint, _)) = self.ui.hint.take() {
            self.out.push(hint);
        }
        self.print_overlay();
        self.print_question();
    }

    fn print_overlay(&mut self) {
        match self.ui.overlay.take() {
            Some(Overlay::Reader(reader)) => {
                let theme = self.ui.theme;
                self.out
                    .push(format!("{}:", safe::one_line(&reader.document.title)));
                let lines = overlay::document(&reader.document, COLUMNS, theme);
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
            Some(Overlay::FirstRun(found)) => {
                self.out
                    .push("No model is set up yet. Any one of these is enough:".into());
                self.out
                    .extend(found.to_set.iter().map(|line| safe::one_line(line)));
            }
            Some(Overlay::Trust(question, _)) => {
                self.out.push(format!(
                    "{} is not trusted and can only tighten. Start without plain mode to trust it.",
                    safe::one_line(&question.file)
                ));
            }
            Some(Overlay::Transcript(_)) | None => {}
        }
    }

    fn print_question(&mut self) {
        let Some(pending) = self.ui.current() else {
            self.asked = None;
            return;
        };
        let ready = !prompt::is_loading(&self.ui, pending);
        if !ready || self.asked.as_ref() == Some(&pending.action_id) {
            return;
        }
        self.asked = Some(pending.action_id.clone());
        let waiting = self.ui.waiting();
        self.out.push(format!(
            "Question, {waiting} waiting: {}",
            safe::one_line(&pending.title)
        ));
        let body = prompt::body(&self.ui, pending, COLUMNS);
        self.out.extend(body.iter().map(spoken));
        self.out.push("Answer with one letter and Enter. d: deny. n: deny with a note. a: allow once. s: allow this session. r: allow and save a rule. e: edit first. q: abort the turn.".into());
        let now = self.ui.now;
        if let Some(prompt) = &mut self.ui.prompt {
            // All of it was printed.
            prompt.drawn(now);
            prompt.seen_end = true;
        }
    }
}

fn spoken(line: &ratatui::text::Line<'static>) -> String {
    line.to_string().trim_end().to_owned()
}

/// A cell in words.
fn words(cell: &Cell) -> Vec<String> {
    match &cell.kind {
        CellKind::User(user) => vec![format!("You: {}", safe::content(user.text.trim_end()))],
        CellKind::Assistant(said) => vec![format!("Agent: {}", safe::content(said.text.trim()))],
        CellKind::Reasoning(_) => Vec::new(),
        _ => {
            let theme = Theme {
                depth: ColorDepth::None,
                background: Background::Dark,
                plain_code: false,
            };
            cells::draw(cell, cells::Fold::Folded, 1000, theme)
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
        ("? unverified", "unverified"),
        ("! ", ""),
        (" · ", ", "),
        ("· ", "note: "),
    ];
    pairs.iter().fold(line.to_owned(), |text, (sign, word)| {
        text.replace(sign, word)
    })
}
