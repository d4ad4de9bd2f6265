//! The slash commands at work.

use agent_protocol::command::{
    AddDirectory, ChangeDirectory, ControlCommand, SubmitTurn, Undo, UndoExtent,
};
use agent_protocol::status::{Mode, Thinking};

use crate::commands::{self, Does};
use crate::compose::attachments;
use crate::host::{Exit, ExportForm, HostRequest, Prepared};
use crate::state::cell::{CellKind, NoticeLevel};
use crate::theme::{ColorDepth, ThemeChoice};
use crate::ui::overlay::{Choices, Overlay, Picker, Transcript};
use crate::ui::{Effect, Ui};
use crate::view::documents;

impl Ui {
    pub(super) fn show_help(&mut self) {
        self.overlay = Some(documents::help(&self.settings.keys));
    }

    pub(crate) fn run_command(&mut self, line: &str) -> Vec<Effect> {
        // Only in builds with debug assertions, and in no menu: how a test, or whoever works on this,
        // sees what a panic of the screen leaves behind.
        debug_assert!(line.trim() != "/panic", "the screen was told to panic");
        let (command, arguments) = match commands::parse(line) {
            Ok(parsed) => parsed,
            Err(problem) => {
                self.state.say(NoticeLevel::Error, problem);
                return Vec::new();
            }
        };
        let host = |request| vec![Effect::Host(request)];
        let undo = |extent| {
            let undo = Undo {
                extent,
                ..Undo::default()
            };
            vec![Effect::Command(ControlCommand::Undo(undo))]
        };
        match command.does {
            Does::Help => self.show_help(),
            Does::Model if arguments.is_empty() => return host(HostRequest::Models),
            Does::Model => {
                return vec![Effect::set_model(arguments.to_owned())];
            }
            Does::Thinking if arguments.is_empty() => {
                let now = self.state.facts.thinking.map(|level| level.to_string());
                let picker = Picker::new("thinking", Choices::Thinking);
                self.overlay = Some(Overlay::Picker(picker.beginning_at(now.as_deref())));
            }
            Does::Thinking => match arguments.parse::<Thinking>() {
                Ok(thinking) => return vec![Effect::set_thinking(thinking)],
                Err(error) => self.state.say(NoticeLevel::Error, error.to_string()),
            },
            Does::Mode if arguments.is_empty() => {
                let now = self.state.facts.mode.map(|mode| mode.to_string());
                let picker = Picker::new("mode", Choices::Modes).beginning_at(now.as_deref());
                self.overlay = Some(Overlay::Picker(picker));
            }
            Does::Mode => match arguments.parse::<Mode>() {
                Ok(mode) => return vec![Effect::set_mode(mode)],
                Err(error) => self.state.say(NoticeLevel::Error, error.to_string()),
            },
            Does::Plan => {
                let mut effects = vec![Effect::set_mode(Mode::Plan)];
                if !arguments.is_empty() {
                    effects.push(Effect::Command(ControlCommand::SubmitTurn(SubmitTurn {
                        parts: attachments(arguments),
                        text: arguments.to_owned(),
                        ..SubmitTurn::default()
                    })));
                }
                return effects;
            }
            Does::Permissions => return host(HostRequest::Permissions),
            Does::Sandbox => return host(HostRequest::Sandbox),
            Does::ChangeDirectory => {
                let path = arguments.to_owned();
                let change = ControlCommand::ChangeDirectory(ChangeDirectory { path });
                return vec![Effect::Command(change)];
            }
            Does::AddDirectory if arguments.is_empty() => {
                let text = "/add-dir takes the path of a directory";
                self.state.say(NoticeLevel::Error, text);
            }
            Does::AddDirectory => {
                let path = arguments.to_owned();
                let add = ControlCommand::AddDirectory(AddDirectory { path });
                return vec![Effect::Command(add)];
            }
            Does::Context => self.overlay = Some(documents::context(&self.state.facts)),
            Does::Compact => return vec![Effect::Command(ControlCommand::Compact)],
            Does::Cost => self.overlay = Some(documents::cost(&self.state.facts)),
            Does::Diff => return host(HostRequest::Diff),
            Does::Init => return host(HostRequest::Prepared(Prepared::Init)),
            Does::Review => match Prepared::review(arguments) {
                Some(review) => return host(HostRequest::Prepared(review)),
                None => {
                    let text = "/review takes a branch, `commit SHA`, or nothing";
                    self.state.say(NoticeLevel::Error, text);
                }
            },
            Does::Undo => match arguments.parse() {
                Ok(sequence) => return undo(UndoExtent::After { sequence }),
                Err(_) if arguments.is_empty() => return undo(UndoExtent::LastChange),
                Err(_) => self
                    .state
                    .say(NoticeLevel::Error, "/undo takes the number of an event"),
            },
            Does::Resume => return host(HostRequest::Sessions),
            Does::Fork => return self.go_back(arguments, Choices::Messages),
            Does::Rewind => return self.go_back(arguments, Choices::Rewind),
            Does::Copy => return self.copy(arguments),
            Does::Replay => return vec![Effect::Exit(Exit::Replay)],
            Does::Why => return self.why(arguments),
            Does::Tools => return host(HostRequest::Tools),
            Does::Processes => return self.processes(arguments),
            Does::Status => {
                self.overlay = Some(documents::status(self));
            }
            Does::Export if arguments.is_empty() => {
                let picker = Picker::new("write this session to a file", Choices::Exports);
                self.overlay = Some(Overlay::Picker(picker));
            }
            Does::Export => match ExportForm::named(arguments) {
                Some(form) => return host(HostRequest::Export { form }),
                None => {
                    let forms = ExportForm::ALL.map(ExportForm::name).join(", ");
                    let text = format!("/export takes one of: {forms}");
                    self.state.say(NoticeLevel::Error, text);
                }
            },
            Does::Theme => self.change_theme(arguments),
            Does::Transcript => self.overlay = Some(Overlay::Transcript(Transcript::in_detail())),
            Does::Clear => return vec![Effect::Exit(Exit::NewSession)],
            Does::Quit => return vec![Effect::Exit(Exit::Quit)],
        }
        Vec::new()
    }

    fn why(&mut self, call: &str) -> Vec<Effect> {
        let tools = self
            .state
            .cells
            .iter()
            .rev()
            .filter_map(|cell| match &cell.kind {
                CellKind::Tool(tool) => Some(tool),
                _ => None,
            });
        let found = tools.into_iter().find(|tool| {
            call.is_empty()
                || tool
                    .call_id
                    .as_ref()
                    .is_some_and(|id| id.as_str().starts_with(call))
        });
        match found {
            Some(tool) => self.overlay = Some(documents::why(tool)),
            None if call.is_empty() => self.hint("no calls yet"),
            None => {
                let text = format!("no call {}", crate::safe::one_line(call));
                self.state.say(NoticeLevel::Error, text);
            }
        }
        Vec::new()
    }

    fn change_theme(&mut self, name: &str) {
        match ThemeChoice::named(name) {
            Some(choice) => self.choose_theme(choice),
            None if name.is_empty() => {
                let now = self.settings.theme.name();
                let picker = Picker::new("colours", Choices::Themes).beginning_at(Some(now));
                self.overlay = Some(Overlay::Picker(picker));
            }
            None => {
                let names = ThemeChoice::ALL.map(ThemeChoice::name).join(", ");
                let text = format!("/theme takes one of: {names}");
                self.state.say(NoticeLevel::Error, text);
            }
        }
    }

    pub(super) fn choose_theme(&mut self, choice: ThemeChoice) {
        // Who asks for colours here has them, whatever the environment said.
        if matches!(choice, ThemeChoice::Dark | ThemeChoice::Light) {
            let shows = &mut self.settings.colors;
            *shows = (*shows).max(ColorDepth::Ansi16);
        }
        self.settings.theme = choice;
        self.theme = self.settings.theme();
        self.hint(choice.in_words());
    }
}
