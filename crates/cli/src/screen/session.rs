//! One session on the screen: the screen is drawn first, then the session is opened behind it; the
//! engine works, and the [courier](super::courier) carries between the two.

use std::sync::Arc;

use agent_engine::live::{LiveText, StreamSink};
use agent_engine::{
    Engine, EngineError, Interrupt, InterruptReason, Model, OnAsk, SessionAuthority, TurnEnd,
};
use agent_log::{SessionDirectory, SessionStore, SessionWriter};
use agent_policy::gate::SandboxLevel;
use agent_protocol::command::{ControlCommand, InterruptTurn, SubmitTurn};
use agent_protocol::id::{SessionId, TurnId};
use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::status::Mode;
use agent_protocol::{Payload, Refs, Scope};
use agent_tool_runtime::{Authority as _, ToolIntent};
use agent_tui::theme::{TerminalHints, detect};
use agent_tui::{HostMessage, Input, Settings};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::courier::Courier;
use super::{ChooseModels, editor, host, past};
use crate::app::App;
use crate::config::{Config, Theme};
use crate::failure::{Failure, OrFail as _};
use crate::session_args::SessionArgs;
use agent_runtime::models::Chosen;
use agent_runtime::session::{self, OpenOptions, Workbench};
use agent_runtime::undo::{self, Extent, OnConflict, Plan};

/// What a session is opened with.
pub(super) struct Opening {
    pub(super) app: Arc<App>,
    pub(super) config: Arc<Config>,
    pub(super) program: &'static str,
    pub(super) session: SessionArgs,
    /// Decisions that led here.
    pub(super) facts: Vec<Payload>,
    pub(super) prompt: Option<String>,
    pub(super) prefill: String,
    pub(super) models: ChooseModels,
}

/// How it was left.
pub(super) struct Closed {
    pub(super) exit: agent_tui::Exit,
    pub(super) session_id: SessionId,
    /// The mode it was left in.
    pub(super) mode: Mode,
}

/// Something for the engine to do when it has done what came before.
pub(super) enum Work {
    Turn(TurnId),
    /// A turn that an earlier run left open, with its question.
    GoOn(TurnId),
    /// What waits in the queue, now that it may begin.
    Queue,
    /// An input of the queue that is not to be held, if it is still there.
    Next(TurnId),
    /// A command the user typed.
    Own(String),
    /// Use these models from the next turn on, which records how they were chosen.
    Models(Vec<Model>, Vec<Payload>),
    Compact,
    /// Take back the last change to files, or all after an event.
    Undo(Option<u64>),
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
    let shutdown = CancellationToken::new();
    let screen = tokio::spawn(agent_tui::run(settings, shown, outputs, shutdown.clone()));
    let opened = match open(&opening).await {
        Ok(opened) => opened,
        Err(failure) => {
            shutdown.cancel();
            let _ = screen.await;
            return Err(failure);
        }
    };
    let (bench, chosen) = opened;
    let session_id = bench.writer.session_id().clone();
    past::follow(&bench.writer, glimpsed, &inputs)?;
    let _ = inputs.send(Input::Host(HostMessage::Sandbox(status_of(
        bench.sandbox_level,
    ))));
    let (closer, authority) = (bench.closer(), Arc::clone(&bench.authority));
    let worked = work(&opening, bench, chosen, sent, inputs, screen, shutdown).await;
    closer.close()?;
    Ok(Closed {
        exit: worked?,
        session_id,
        mode: authority.mode(),
    })
}

fn existing(opening: &Opening) -> Result<Option<SessionDirectory>, Failure> {
    let store = SessionStore::of_project(opening.app.project.root());
    let asked = opening.session.session.as_deref();
    asked
        .map(|asked| store.resolve(asked).or_usage())
        .transpose()
}

/// Opens the session and chooses the models, beside the screen that is already there.
async fn open(opening: &Opening) -> Result<(Workbench, Chosen), Failure> {
    let (app, config) = (Arc::clone(&opening.app), Arc::clone(&opening.config));
    let (program, session) = (opening.program, opening.session.clone());
    let choose = Arc::clone(&opening.models);
    let opened = tokio::task::spawn_blocking(move || {
        let chosen = choose(&app, &config)?;
        let wanted = OpenOptions {
            on_ask: OnAsk::Interactive,
            ..session.options(program)
        };
        Ok((session::open(&app, &config, &wanted)?, chosen))
    });
    opened.await.or_fail()?
}

type ScreenTask = tokio::task::JoinHandle<Result<agent_tui::Exit, agent_tui::RunError>>;

async fn work(
    opening: &Opening,
    bench: Workbench,
    chosen: Chosen,
    sent: UnboundedReceiver<agent_tui::Output>,
    inputs: UnboundedSender<Input>,
    screen: ScreenTask,
    shutdown: CancellationToken,
) -> Result<agent_tui::Exit, Failure> {
    let (app, config) = (&opening.app, &opening.config);
    let scope = Scope {
        thread_id: Some(bench.thread_id.clone()),
        ..Scope::default()
    };
    for fact in opening.facts.iter().cloned() {
        bench
            .journal
            .append(&scope, fact, Refs::default())
            .or_fail()?;
    }
    // What waits was meant for a run that is over.
    bench.control.hold_queue();
    let (queue, waiting) = unbounded_channel();
    if let Some(turn_id) = bench.open_turn.clone() {
        let _ = queue.send(Work::GoOn(turn_id));
    }
    let courier = Courier::new(app, config, &bench, &inputs, queue)?;
    if let Some(prompt) = &opening.prompt {
        courier.command(ControlCommand::SubmitTurn(SubmitTurn {
            text: prompt.clone(),
            ..SubmitTurn::default()
        }));
    }
    let left = CancellationToken::new();
    let control = Arc::clone(&bench.control);
    let watched = tokio::spawn({
        let left = left.clone();
        async move {
            let exit = screen.await;
            // Whoever leaves while a turn runs ends it; its facts are written.
            left.cancel();
            control.interrupt(&InterruptTurn::default(), InterruptReason::Terminated);
            exit
        }
    });
    let (authority, writer) = (Arc::clone(&bench.authority), bench.writer.clone());
    let live = Arc::new(ToScreen(inputs.clone()));
    let engine = bench
        .engine(app, config, chosen.models, app.small_model(config), live)
        .with_routing(chosen.facts);
    // From here on the questions of an earlier run take answers, so keys may come.
    let carried = tokio::spawn(courier.carry(sent));
    let mut worker = Worker {
        engine,
        authority,
        writer,
        app: Arc::clone(app),
        config: Arc::clone(config),
        inputs,
        left,
    };
    let worked = worker.work(waiting).await;
    shutdown.cancel();
    let exit = watched.await.or_fail()?.or_fail()?.or_fail()?;
    carried.abort();
    worked.map(|()| exit)
}

/// Does one thing after the other.
struct Worker {
    engine: Engine,
    authority: Arc<SessionAuthority>,
    writer: SessionWriter,
    app: Arc<App>,
    config: Arc<Config>,
    inputs: UnboundedSender<Input>,
    /// The user has left the screen.
    left: CancellationToken,
}

impl Worker {
    async fn work(&mut self, mut waiting: UnboundedReceiver<Work>) -> Result<(), Failure> {
        loop {
            let next = tokio::select! {
                biased;
                () = self.left.cancelled() => return Ok(()),
                next = waiting.recv() => next,
            };
            let Some(next) = next else { return Ok(()) };
            let done = match next {
                Work::Turn(turn_id) => self.turn(turn_id).await,
                Work::GoOn(turn_id) => self.go_on(turn_id).await,
                Work::Queue => Ok(()),
                Work::Next(turn_id) => {
                    let promoted = self.engine.control().promote_queued(&turn_id);
                    promoted.map(|_| ()).map_err(EngineError::from)
                }
                Work::Own(command) => self.own(&command).await,
                Work::Models(models, routing) => {
                    self.engine.set_models(models, routing);
                    Ok(())
                }
                Work::Compact => self.compact().await,
                Work::Undo(to) => {
                    match self.undo(to) {
                        Ok(None) => {}
                        Ok(Some(text)) => self.say(HostMessage::Notice(text)),
                        Err(failure) => {
                            self.say(HostMessage::Problem(failure.in_words()));
                        }
                    }
                    Ok(())
                }
            };
            let done = match done {
                Ok(()) => self.queue().await,
                failed => failed,
            };
            if let Err(error) = done {
                let failure = Failure::from(anyhow::Error::from(error));
                self.say(HostMessage::Problem(failure.in_words()));
            }
        }
    }

    fn say(&self, message: HostMessage) {
        let _ = self.inputs.send(Input::Host(message));
    }

    async fn turn(&mut self, turn_id: TurnId) -> Result<(), EngineError> {
        let budget = self.config.turn_budget();
        let interrupt = Interrupt::new();
        let ended = self.engine.run_turn(turn_id, budget, &interrupt).await?;
        self.settle(&ended);
        Ok(())
    }

    /// Goes on with a turn that was left open.
    async fn go_on(&mut self, turn_id: TurnId) -> Result<(), EngineError> {
        let budget = self.config.turn_budget();
        let interrupt = Interrupt::new();
        let going_on = self.engine.continue_turn(turn_id, budget, &interrupt);
        let ended = going_on.await?;
        self.settle(&ended);
        Ok(())
    }

    /// What was queued during a turn begins when that turn is completed. After any other end the
    /// user may want something else, so it waits for their word.
    fn settle(&self, ended: &TurnEnd) {
        if !matches!(ended, TurnEnd::Completed(_)) {
            self.engine.control().hold_queue();
        }
    }

    /// Works on what is queued and not held.
    async fn queue(&mut self) -> Result<(), EngineError> {
        while !self.left.is_cancelled()
            && let Some(next) = self.engine.control().take_next()?
        {
            self.turn(next).await?;
        }
        Ok(())
    }

    /// A command the user typed: judged, confined and recorded like any other.
    async fn own(&mut self, command: &str) -> Result<(), EngineError> {
        let input = serde_json::json!({
            "command": command,
            "description": "typed by the user",
        });
        self.authority.set_typed(true);
        let intent = ToolIntent::new("bash", &input);
        let ran = self
            .engine
            .run_call(format!("!{command}"), intent, &Interrupt::new())
            .await;
        self.authority.set_typed(false);
        self.settle(&ran?);
        Ok(())
    }

    /// Puts files back as they were. What somebody else changed since is left alone. What was done
    /// is in the log, and on the screen from there; only that there is nothing to do is answered.
    fn undo(&self, to: Option<u64>) -> Result<Option<String>, Failure> {
        let session = self.app.session(self.writer.session_id().as_str())?;
        let extent = to.map_or(Extent::LastChange, Extent::After);
        let root = self.app.project.root();
        let plan = Plan::make(root, &session, &extent, &undo::Chosen::new(&self.app, &[])?)?;
        if !plan.has_work() && plan.entries.is_empty() {
            return Ok(Some("nothing to undo".to_owned()));
        }
        let reason = match to {
            Some(to) => format!("the user went back to event {to}"),
            None => "the user took back the last change".to_owned(),
        };
        undo::carry_out(root, &self.writer, &plan, &reason, |_| OnConflict::Keep)?;
        Ok(None)
    }

    async fn compact(&mut self) -> Result<(), EngineError> {
        if !self.engine.compact_now(&Interrupt::new()).await? {
            self.say(HostMessage::Notice("nothing to compact yet".to_owned()));
        }
        Ok(())
    }
}

/// The level in the words of the log.
fn status_of(level: SandboxLevel) -> SandboxStatus {
    match level {
        SandboxLevel::Full => SandboxStatus::Full,
        SandboxLevel::Partial => SandboxStatus::Partial,
        SandboxLevel::Off => SandboxStatus::Off,
        SandboxLevel::Unavailable => SandboxStatus::Unavailable,
    }
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

/// What the screen has to know about terminal, project and settings.
pub(crate) fn settings(app: &App, config: &Config) -> Settings {
    let variable = |name: &str| {
        app.host
            .environment
            .get(name)
            .and_then(std::ffi::OsStr::to_str)
    };
    let (colors, background) = detect(TerminalHints {
        // `--color` says it, or the environment does.
        no_color: !app.output.has_color(),
        term: variable("TERM"),
        colorterm: variable("COLORTERM"),
        colorfgbg: variable("COLORFGBG"),
    });
    let background = match config.ui.theme.value {
        Theme::Auto => background,
        Theme::Light => agent_tui::Background::Light,
        Theme::Dark => agent_tui::Background::Dark,
    };
    let model = config.model.default.as_ref();
    Settings {
        colors,
        background,
        // Where nothing can be drawn over, lines are all there is.
        plain: config.ui.plain.value || variable("TERM") == Some("dumb"),
        full_screen: config.ui.full_screen.value,
        vim_keys: config.ui.vim_keys.value,
        mode: config.permissions.mode.value,
        model: model.map(|set| set.value.clone()).unwrap_or_default(),
        cwd: app.short_or_root(app.project.root()),
        branch: agent_runtime::branch(app.project.root()),
        history: host::history(app),
        notify: config.ui.notify.value,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Settings::default()
    }
}
