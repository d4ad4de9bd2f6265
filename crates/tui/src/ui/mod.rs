//! The screen's own state around the folded one: what is being typed, asked and looked at. Changed
//! by keys and inputs, drawn by `view`; nothing here touches a terminal.

mod address;
pub mod guard;
pub mod overlay;
mod past;
mod processes;
pub mod prompt;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agent_protocol::command::{ControlCommand, SetMode, SetModel, SetThinking};
use agent_protocol::id::{ActionId, ArtifactId};
use agent_protocol::status::{Mode, Thinking};
use crossterm::event::Event as TerminalEvent;

use crate::compose::Composer;
use crate::host::{Exit, HostMessage, HostRequest, Input, RewindPlan, Settings, Start};
use crate::state::State;
use crate::state::cell::NoticeLevel;
use crate::state::pending::{Pending, Subject};
use crate::theme::Theme;
use guard::Guard;
use overlay::{Choices, Overlay, Picker, Reader, Scroll, Transcript};
pub use past::{Begun, Printed};
use prompt::Prompt;

/// Something the loop has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Command(ControlCommand),
    Host(HostRequest),
    Exit(Exit),
    /// Open the text being edited in the user's editor.
    ExternalEditor,
    /// Stop the process until the shell brings it back.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Tell the user through the terminal that something waits.
    Notify(String),
    /// Put text into the clipboard, which is known by these words.
    Copy {
        text: String,
        what: &'static str,
    },
}

impl Effect {
    pub(crate) fn set_mode(mode: Mode) -> Self {
        Self::Command(ControlCommand::SetMode(SetMode { mode }))
    }

    pub(crate) fn set_thinking(thinking: Thinking) -> Self {
        Self::Command(ControlCommand::SetThinking(SetThinking { thinking }))
    }

    pub(crate) fn set_model(model: String) -> Self {
        Self::Command(ControlCommand::SetModel(SetModel { model }))
    }
}

/// Everything that is drawn.
pub struct Ui {
    pub state: State,
    pub composer: Composer,
    pub prompt: Option<Prompt>,
    pub overlay: Option<Overlay>,
    /// Stands before the questions of the start, as each prompt has its own.
    pub start_guard: Guard,
    /// The window on the transcript in full-screen mode.
    pub transcript: Transcript,
    pub settings: Settings,
    pub theme: Theme,
    pub branch: Option<String>,
    pub files: Option<Vec<String>>,
    pub preview: Option<(String, String)>,
    pub artifacts: HashMap<ArtifactId, Result<String, String>>,
    /// How much of the transcript is in the scrollback.
    pub printed: Printed,
    pub focused: bool,
    /// A turn has ended, and nobody has pressed a key since.
    pub is_news: bool,
    /// The screen is being left: what waits for its end has it.
    pub closing: bool,
    /// A hint that replaces the status line until the moment.
    pub hint: Option<(String, u64)>,
    /// Milliseconds of the screen's clock.
    pub now: u64,
    /// The width of the last frame, for keys that move by rows.
    pub columns: usize,
    requested: HashSet<HostRequestKey>,
    answered: HashSet<ActionId>,
    /// When something was last typed or pasted.
    pub(crate) typed_at: Option<u64>,
    armed: Option<(Armed, u64)>,
    /// Since when something goes on that the user waits for.
    works_since: Option<u64>,
    /// Events that came after a glimpse of the past, until the past itself is there.
    since_glimpse: Option<Vec<Arc<agent_protocol::Event>>>,
    /// The list of things to do is shown whole.
    pub(crate) whole_plan: bool,
    pub(crate) pending_control_x: bool,
    /// Where the next settling leads.
    leaving: Option<Exit>,
    pub(crate) kept_body: RefCell<Option<KeptBody>>,
}

type KeptBody = (
    crate::view::prompt::BodyKey,
    Arc<Vec<ratatui::text::Line<'static>>>,
);

/// A key that has to be pressed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    Quit,
    EditEarlier,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HostRequestKey {
    Artifact(ArtifactId),
    Files,
    Preview(String),
}

/// What the last frame showed; the answer of the screen to the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub prompt: Option<ShownPrompt>,
    pub scroll: Option<Scroll>,
    pub transcript: Option<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPrompt {
    pub action_id: ActionId,
    pub scroll: Scroll,
    /// There was no room for any of it.
    pub hidden: bool,
}

const ARMED_MS: u64 = 1500;
const HINT_MS: u64 = 4000;

impl Ui {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let theme = settings.theme();
        let overlay = match &settings.start {
            Start::Composer => None,
            Start::FirstRun(found) => Some(Overlay::FirstRun(found.clone(), Scroll::default())),
            Start::Trust(question) => Some(Overlay::Trust(question.clone(), Scroll::default())),
            Start::Mode(project) => Some(Overlay::Mode(project.clone(), Scroll::default())),
            Start::Sessions(sessions) => {
                let choices = Choices::Sessions(sessions.clone());
                Some(Overlay::Picker(Picker::new("resume a session", choices)))
            }
        };
        let mut state = State::default();
        state.facts.mode = Some(settings.mode);
        state.facts.model = Some(settings.model.clone()).filter(|model| !model.is_empty());
        Self {
            state,
            composer: Composer::new(
                settings.history.clone(),
                &settings.prefill,
                settings.vim_keys,
            ),
            prompt: None,
            overlay,
            start_guard: Guard::default(),
            transcript: Transcript::at_end(),
            theme,
            branch: settings.branch.clone(),
            settings,
            files: None,
            preview: None,
            artifacts: HashMap::new(),
            printed: Printed::default(),
            focused: true,
            is_news: false,
            closing: false,
            hint: None,
            now: 0,
            columns: 80,
            requested: HashSet::new(),
            answered: HashSet::new(),
            typed_at: None,
            armed: None,
            works_since: None,
            since_glimpse: None,
            whole_plan: false,
            pending_control_x: false,
            leaving: None,
            kept_body: RefCell::new(None),
        }
    }

    /// Takes in what the host sent.
    pub fn input(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Event(event) => {
                self.state.apply(&event);
                // Whoever asked in vain asks again without typing it again.
                if let Some(text) = self.state.unanswered.take()
                    && self.composer.editor.is_empty()
                {
                    self.composer.editor.set(&text);
                }
                if let Some(since) = &mut self.since_glimpse {
                    since.push(event);
                }
            }
            Input::Tail(events) => {
                for event in events {
                    self.state.apply(&event);
                }
                self.skip_old_cells();
                self.in_force();
                self.printed.glimpse = true;
                self.since_glimpse = Some(Vec::new());
            }
            Input::Past(past) => self.take_past(*past),
            Input::History(events) => {
                for event in events {
                    self.state.apply(&event);
                }
                self.skip_old_cells();
                self.in_force();
            }
            Input::Live(live) => self.state.apply_live(&live),
            Input::Host(message) => self.host(message),
        }
        self.settle()
    }

    /// Takes in a terminal event.
    pub fn terminal(&mut self, event: &TerminalEvent) -> Vec<Effect> {
        match event {
            TerminalEvent::Key(key) => self.key(*key),
            TerminalEvent::Paste(text) => {
                self.paste(text);
                self.settle()
            }
            TerminalEvent::FocusGained => {
                self.focused = true;
                Vec::new()
            }
            TerminalEvent::FocusLost => {
                self.focused = false;
                Vec::new()
            }
            TerminalEvent::Mouse(_) => {
                self.disturb();
                Vec::new()
            }
            TerminalEvent::Resize(..) => Vec::new(),
        }
    }

    fn paste(&mut self, text: &str) {
        // Whoever pastes something does not want to leave with the next key.
        self.disarm();
        self.disturb();
        if let Some(Overlay::Key(secret, _)) = &mut self.overlay {
            secret.0.push_str(text.trim());
        }
        if self.overlay.is_some() {
            return;
        }
        let editor = match &mut self.prompt {
            // What is pasted over a question is never an answer to it.
            Some(prompt) => match &mut prompt.stage {
                prompt::Stage::Note(editor) | prompt::Stage::Answer(editor) => Some(editor),
                prompt::Stage::Edit(editing) => {
                    let at = editing.at;
                    editing.editors.get_mut(at)
                }
                prompt::Stage::Rule(draft) if draft.is_written => Some(&mut draft.editor),
                _ => None,
            },
            None => None,
        };
        match editor {
            Some(editor) => editor.insert(text),
            None => {
                self.offer_address(text);
                self.composer.paste(text);
                self.composer.edited();
            }
        }
    }

    fn host(&mut self, message: HostMessage) {
        match message {
            HostMessage::Artifact { id, content } => {
                let text = content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                self.artifacts.insert(id, text);
            }
            HostMessage::Files(mut files) => {
                files
                    .iter_mut()
                    .for_each(|file| *file = crate::safe::one_line(file));
                self.files = Some(files);
            }
            HostMessage::Preview { path, text } => self.preview = Some((path, text)),
            HostMessage::Models(models) => {
                let now = self.state.facts.model.as_deref();
                let picker = Picker::new("model", Choices::Models(models)).beginning_at(now);
                self.overlay = Some(Overlay::Picker(picker));
            }
            HostMessage::Sessions(sessions) => {
                let picker = Picker::new("open a session", Choices::Sessions(sessions));
                self.overlay = Some(Overlay::Picker(picker));
            }
            HostMessage::Document(document) => {
                self.overlay = Some(Overlay::Reader(Reader::new(document)));
            }
            HostMessage::Processes(processes) => self.list_processes(processes),
            HostMessage::Tail {
                process_id,
                is_running,
                is_again,
                document,
            } => self.show_tail(process_id, (is_running, is_again), document),
            HostMessage::Tools(tools) => {
                self.state.facts.tools = tools;
                self.overlay = Some(crate::view::documents::tools(&self.state.facts));
            }
            // Where no file would change, there is one way to go back.
            HostMessage::Rewind(plan) if plan.files.is_empty() => {
                let RewindPlan { at, text, .. } = plan;
                self.leaving = Some(Exit::Fork { at, text });
            }
            HostMessage::Rewind(plan) => {
                self.overlay = Some(Overlay::Rewind(plan, Scroll::default()));
            }
            HostMessage::Rule { asked, preview } => {
                if let Some(prompt) = &mut self.prompt
                    && prompt.action_id == asked.action_id
                    && let prompt::Stage::Rule(draft) = &mut prompt.stage
                    && draft.editor.text() == asked.rule
                {
                    draft.preview = Some(preview);
                }
            }
            HostMessage::Sandbox(status) => {
                // What a command has run in says more.
                self.state.facts.sandbox.get_or_insert(status);
            }
            HostMessage::Notice(text) => {
                self.state
                    .say(NoticeLevel::Information, crate::safe::one_line(&text));
            }
            HostMessage::Problem(text) => {
                self.state
                    .say(NoticeLevel::Error, crate::safe::one_line(&text));
            }
            HostMessage::Branch(branch) => {
                self.branch = branch.map(|name| crate::safe::one_line(&name))
            }
        }
    }

    /// After every change: the question on the screen is the first open one, and what it needs is
    /// asked for.
    pub fn settle(&mut self) -> Vec<Effect> {
        let mut effects: Vec<Effect> = self.leaving.take().map(Effect::Exit).into_iter().collect();
        match (self.state.works(), self.works_since) {
            (true, None) => self.works_since = Some(self.now),
            (false, Some(_)) => {
                self.works_since = None;
                self.is_news = true;
                if !self.focused && self.settings.notify {
                    effects.push(Effect::Notify("agent: turn finished".to_owned()));
                }
            }
            _ => {}
        }
        self.answered.retain(|id| {
            self.state
                .pending
                .iter()
                .any(|pending| pending.action_id == *id)
        });
        let current = self.current().map(|pending| {
            (
                pending.action_id.clone(),
                pending.subject(),
                pending.title.clone(),
            )
        });
        match current {
            None => self.prompt = None,
            Some((action_id, subject, title)) => {
                if self
                    .prompt
                    .as_ref()
                    .is_none_or(|prompt| prompt.action_id != action_id)
                {
                    self.prompt = Some(Prompt::new(action_id, self.typed_at));
                    if !self.focused && self.settings.notify {
                        // Without words of our own in front, some terminals would take a title for
                        // a command of theirs.
                        let text = crate::safe::one_line(&title);
                        effects.push(Effect::Notify(format!("agent asks: {text}")));
                    }
                }
                if let Subject::Diff(artifact) = subject
                    && self
                        .requested
                        .insert(HostRequestKey::Artifact(artifact.clone()))
                {
                    effects.push(Effect::Host(HostRequest::Artifact(artifact)));
                }
            }
        }
        if let Some(prompt) = &mut self.prompt
            && let prompt::Stage::Rule(draft) = &mut prompt.stage
        {
            effects.extend(draft.ask(&prompt.action_id).map(Effect::Command));
        }
        if self.prompt.is_none() && self.composer.wants_files() {
            if self.requested.insert(HostRequestKey::Files) {
                effects.push(Effect::Host(HostRequest::Files));
            }
            if let Some(menu) = self.composer.menu(self.files.as_deref())
                && menu.kind == crate::compose::MenuKind::Files
                && let Some((path, _)) = menu.entries.get(menu.selected)
                && self.preview.as_ref().is_none_or(|(shown, _)| shown != path)
                && self.requested.insert(HostRequestKey::Preview(path.clone()))
            {
                effects.push(Effect::Host(HostRequest::Preview { path: path.clone() }));
            }
        } else {
            // The next `@` looks again: files come and go.
            self.requested.remove(&HostRequestKey::Files);
            self.requested
                .retain(|key| !matches!(key, HostRequestKey::Preview(_)));
        }
        effects
    }

    /// The question on the screen.
    #[must_use]
    pub fn current(&self) -> Option<&Pending> {
        self.state
            .pending
            .iter()
            .find(|pending| !self.answered.contains(&pending.action_id))
    }

    /// How many questions wait, the one on the screen included.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state
            .pending
            .iter()
            .filter(|pending| !self.answered.contains(&pending.action_id))
            .count()
    }

    /// Milliseconds that what goes on has taken on this screen.
    #[must_use]
    pub fn elapsed(&self) -> Option<u64> {
        self.works_since.map(|since| self.now.saturating_sub(since))
    }

    /// Remembers what the frame showed.
    pub fn drawn(&mut self, shown: &Shown) {
        if let (Some(prompt), Some(seen)) = (&mut self.prompt, &shown.prompt)
            && prompt.action_id == seen.action_id
        {
            prompt.guard.drawn(self.now);
            prompt.scroll = seen.scroll.at;
            prompt.page = seen.scroll.page;
            // What was read before and is gone from the screen has to come back to be allowed.
            prompt.seen_end &= !seen.hidden;
            prompt.seen_end |= seen.scroll.at >= seen.scroll.last;
        }
        if let Some(scroll) = shown.scroll {
            match &mut self.overlay {
                Some(Overlay::Reader(reader)) => reader.scroll = scroll,
                Some(Overlay::Rewind(_, place)) => *place = scroll,
                Some(
                    Overlay::Trust(_, place)
                    | Overlay::FirstRun(_, place)
                    | Overlay::Mode(_, place),
                ) => {
                    *place = scroll;
                    self.start_guard.drawn(self.now);
                }
                _ => {}
            }
        }
        if let Some((top, above)) = shown.transcript {
            let transcript = match &mut self.overlay {
                Some(Overlay::Transcript(transcript)) => transcript,
                _ => &mut self.transcript,
            };
            (transcript.top, transcript.above) = (top, above);
        }
    }

    /// When something on the screen changes by itself, if anything does.
    #[must_use]
    pub fn next_wake(&self) -> Option<u64> {
        // While a question is open nothing moves.
        let spins = self.state.works() && !self.settings.plain && self.current().is_none();
        let spinner = spins.then(|| self.now + 100);
        let hint = self.hint.as_ref().map(|(_, until)| *until);
        let armed = self.armed.map(|(_, until)| until);
        let guard = self
            .guard()
            .and_then(Guard::ends)
            .filter(|until| *until > self.now);
        let look = self.next_look();
        [spinner, hint, armed, guard, look]
            .into_iter()
            .flatten()
            .min()
    }

    /// Time passes.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        if self.hint.as_ref().is_some_and(|(_, until)| now >= *until) {
            self.hint = None;
        }
        if self.armed.is_some_and(|(_, until)| now >= until) {
            self.armed = None;
        }
    }

    pub(crate) fn hint(&mut self, text: impl Into<String>) {
        self.hint = Some((text.into(), self.now + HINT_MS));
    }

    /// Whether `key` was pressed shortly before; arms it otherwise.
    pub(crate) fn arm(&mut self, key: Armed) -> bool {
        let again = self
            .armed
            .is_some_and(|(armed, until)| armed == key && self.now < until);
        if again {
            // What was said about the first one is done.
            self.hint = None;
        }
        self.armed = (!again).then_some((key, self.now + ARMED_MS));
        again
    }

    pub(crate) fn disarm(&mut self) {
        if self.armed.take().is_some() {
            self.hint = None;
        }
    }

    pub(crate) fn answer(&mut self, command: ControlCommand) -> Vec<Effect> {
        if let ControlCommand::RespondAction(response) = &command {
            self.answered.insert(response.action_id.clone());
        }
        let mut effects = vec![Effect::Command(command)];
        effects.extend(self.settle());
        effects
    }
}
