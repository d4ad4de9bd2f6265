//! One session on the screen: the screen is drawn first, then the session is opened behind it; the
//! [`super::sender`] carries what the screen sends to it.

use std::sync::Arc;

use agent_log::SessionDirectory;
use agent_protocol::Payload;
use agent_protocol::command::{
    ControlCommand, EndSession, InterruptReason, ResumeThread, SubmitTurn,
};
use agent_protocol::id::SessionId;
use agent_protocol::status::Mode;
use agent_runtime::{LiveText, OnAsk, OpenOptions, Session, SessionModels, StreamSink};
use agent_tui::compose::attachments;
use agent_tui::theme::{TerminalHints, detect};
use agent_tui::{HostMessage, Input, Settings};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::sender::{self, Sender};
use super::{ChooseModels, editor, host, past};
use crate::app::App;
use crate::config::{self, Config, StatusItem, Theme};
use crate::failure::{Failure, OrFail as _};
use crate::headless::tell_stopped;
use crate::session_args::SessionArgs;

/// Everything a session is opened with.
pub(super) struct Opening {
    pub(super) app: Arc<App>,
    pub(super) config: Arc<Config>,
    pub(super) program: &'static str,
    pub(super) session: SessionArgs,
    /// Decisions that led here.
    pub(super) facts: Vec<Payload>,
    pub(super) prompt: Option<String>,
    pub(super) prefill: String,
    /// Said on the screen before anything else.
    pub(super) notice: Option<String>,
    pub(super) models: ChooseModels,
}

/// The state it was left in.
pub(super) struct Closed {
    pub(super) exit: agent_tui::Exit,
    pub(super) session_id: SessionId,
    /// The mode it was left in.
    pub(super) mode: Mode,
}

/// Runs a session on the terminal until the user leaves it.
pub(super) async fn run(opening: Opening) -> Result<Closed, Failure> {
    let (app, config) = (Arc::clone(&opening.app), Arc::clone(&opening.config));
    let existing = existing(&opening)?;
    let (inputs, shown) = unbounded_channel();
    let (outputs, sent) = unbounded_channel();
    let glimpsed = match &existing {
        Some(directory) => past::glimpse(directory, &inputs)?,
        None => None,
    };
    let settings = Settings {
        prefill: opening.prefill.clone(),
        external_editor: Some(editor::external(&app)),
        ..settings(&app, &config)
    };
    if let Some(notice) = &opening.notice {
        let _ = inputs.send(Input::Host(HostMessage::Notice(notice.clone())));
    }
    let shutdown = CancellationToken::new();
    let screen = tokio::spawn(agent_tui::run(settings, shown, outputs, shutdown.clone()));
    let session = match open(&opening, &inputs).await {
        Ok(session) => Arc::new(session),
        Err(failure) => {
            shutdown.cancel();
            let _ = screen.await;
            return Err(failure);
        }
    };
    past::follow(&session, glimpsed, &inputs)?;
    if let Some(sandbox) = session.sandbox() {
        let _ = inputs.send(Input::Host(HostMessage::Sandbox(sandbox)));
    }
    for note in session.notes() {
        let _ = inputs.send(Input::Host(HostMessage::Notice(note.clone())));
    }
    let sender = Sender::new(&app, &config, &session, &inputs)?;
    if let Some(text) = opening.prompt {
        sender.command(ControlCommand::SubmitTurn(SubmitTurn {
            parts: attachments(&text),
            text,
            ..SubmitTurn::default()
        }));
    }
    // A turn that an earlier run left open comes first, with its question.
    let resume = ControlCommand::ResumeThread(ResumeThread {
        session_id: session.id().clone(),
        thread_id: None,
    });
    let resumed = session.handle(resume, &sender::peer());
    if let Err(error) = resumed {
        sender.tell(Err(error));
    }
    sender.start(sent).or_fail()?;
    let exit = screen.await;
    // Leaving while a turn runs ends it; its facts are written.
    let closed = tokio::task::spawn_blocking({
        let session = Arc::clone(&session);
        move || {
            let reason = InterruptReason::Terminated;
            let end = ControlCommand::EndSession(EndSession { reason });
            // Ending twice is ending once.
            let _ = session.handle(end, &sender::peer());
            session.close()
        }
    });
    let stopped = closed.await.or_fail()??;
    tell_stopped(&app, "session", &stopped);
    Ok(Closed {
        exit: exit.or_fail()?.or_fail()?,
        session_id: session.id().clone(),
        mode: session.mode().unwrap_or(config.permissions.mode.value),
    })
}

fn existing(opening: &Opening) -> Result<Option<SessionDirectory>, Failure> {
    let asked = opening.session.name();
    let found = asked.map(|asked| opening.app.session_to_continue(asked));
    Ok(found.transpose()?)
}

/// Chooses the models and opens the session, beside the screen that is already there.
async fn open(opening: &Opening, inputs: &UnboundedSender<Input>) -> Result<Session, Failure> {
    let (app, config) = (Arc::clone(&opening.app), Arc::clone(&opening.config));
    let (program, session) = (opening.program, opening.session.clone());
    let choose = Arc::clone(&opening.models);
    let facts = opening.facts.clone();
    let (live, problems) = (inputs.clone(), inputs.clone());
    let opened = tokio::task::spawn_blocking(move || {
        let chosen = choose(&app, &config)?;
        let session = app.open(OpenOptions {
            config: Some(config),
            on_ask: OnAsk::Interactive,
            models: SessionModels::Given(chosen),
            hold_queue: true,
            facts,
            live: Some(Arc::new(ToScreen(live))),
            on_failure: Some(Arc::new(move |error| {
                let _ = problems.send(Input::Host(sender::problem(error)));
            })),
            ..session.options(program)
        })?;
        Ok(session)
    });
    opened.await.or_fail()?
}

/// Text on its way to the screen.
struct ToScreen(UnboundedSender<Input>);

impl StreamSink for ToScreen {
    fn show(&self, text: LiveText<'_>) {
        let text = match text {
            LiveText::Answer(text) => agent_tui::LiveText::Answer(text.to_owned()),
            LiveText::Reasoning(text) => agent_tui::LiveText::Reasoning(text.to_owned()),
            LiveText::Call(name) => agent_tui::LiveText::Call(name.to_owned()),
        };
        let _ = self.0.send(Input::Live(text));
    }
}

/// A part of the status line as the screen knows it.
fn status_item(item: &StatusItem) -> agent_tui::StatusItem {
    use agent_tui::StatusItem as Shown;
    match item {
        StatusItem::Model => Shown::Model,
        StatusItem::Thinking => Shown::Thinking,
        StatusItem::Mode => Shown::Mode,
        StatusItem::Sandbox => Shown::Sandbox,
        StatusItem::Context => Shown::Context,
        StatusItem::Cost => Shown::Cost,
        StatusItem::Vim => Shown::Vim,
        StatusItem::Branch => Shown::Branch,
        StatusItem::Queue => Shown::Queue,
        StatusItem::Background => Shown::Background,
        StatusItem::Project => Shown::Project,
        StatusItem::Title => Shown::Title,
    }
}

fn variable<'a>(app: &'a App, name: &str) -> Option<&'a str> {
    let value = app.host.environment.get(name);
    value.and_then(std::ffi::OsStr::to_str)
}

/// Colours of the terminal, as its environment says.
pub(crate) fn theme(app: &App) -> agent_tui::theme::Theme {
    let (depth, background) = detect(TerminalHints {
        // `--color` says it, or the environment does.
        no_color: !app.output.has_color(),
        term: variable(app, "TERM"),
        colorterm: variable(app, "COLORTERM"),
        colorfgbg: variable(app, "COLORFGBG"),
    });
    agent_tui::theme::Theme {
        depth,
        background,
        ..Default::default()
    }
}

/// What the screen has to know about terminal, project and settings.
pub(crate) fn settings(app: &App, config: &Config) -> Settings {
    let agent_tui::theme::Theme {
        depth: colors,
        background,
        ..
    } = theme(app);
    let theme = match config.ui.theme.value {
        Theme::Auto => agent_tui::ThemeChoice::Auto,
        Theme::Light => agent_tui::ThemeChoice::Light,
        Theme::Dark => agent_tui::ThemeChoice::Dark,
        Theme::None => agent_tui::ThemeChoice::None,
    };
    let model = config.model.default.as_ref();
    Settings {
        colors,
        background,
        theme,
        // Where nothing can be drawn over, lines are all there is.
        plain: config.ui.plain.value || variable(app, "TERM") == Some("dumb"),
        full_screen: config.ui.full_screen.value,
        vim_keys: config.ui.vim_keys.value,
        mode: config.permissions.mode.value,
        model: model.map(|set| set.value.clone()).unwrap_or_default(),
        cwd: app.short_or_root(app.project.root()),
        branch: agent_runtime::branch(app.project.root()),
        history: host::history(app),
        notify: config.ui.notify.value,
        is_inside_tmux: variable(app, "TMUX").is_some_and(|tmux| !tmux.is_empty()),
        tab_title: config.ui.tab_title.value,
        program_status: config.ui.program_status.value,
        status: config.ui.status.value.iter().map(status_item).collect(),
        // They were looked at when the settings were read.
        keys: config::key_map(config).unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Settings::default()
    }
}
