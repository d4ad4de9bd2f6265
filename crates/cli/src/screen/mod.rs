//! A session with a screen: the engine works, the screen shows the log and sends commands, and this
//! module carries them between the two.

mod host;
mod save_rule;

use std::sync::Arc;

use agent_engine::live::{Live, LiveText};
use agent_engine::{Control, Interrupt, InterruptReason, Model, SessionAuthority};
use agent_protocol::command::{
    Acknowledgement, ControlAnswer, ControlCommand, InterruptTurn, RespondAction, SubmitTurn,
};
use agent_protocol::id::{ThreadId, TurnId};
use agent_protocol::payload::conversation::TurnSource;
use agent_protocol::payload::permission::{DecidedBy, GrantScope, PolicyChanged, PolicyChanges};
use agent_protocol::{Payload, Refs, Scope};
use agent_session::SessionWriter;
use agent_tool_runtime::Journal;
use agent_tui::{HostMessage, Input, Output};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::headless;
use crate::workbench::Workbench;

/// What the screen begins with.
pub(crate) struct Beginning {
    /// Submitted at once, as if it had been typed.
    pub(crate) prompt: Option<String>,
    pub(crate) models: Vec<Model>,
    /// Facts to record before the first turn.
    pub(crate) facts: Vec<Payload>,
}

/// Runs a session on the terminal until the user leaves.
pub(crate) fn run(
    app: &App,
    config: &Config,
    bench: Workbench,
    begin: Beginning,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .or_fail()?;
    let closer = bench.closer();
    let ended = runtime.block_on(session(app, config, bench, begin));
    closer.close()?;
    runtime.shutdown_background();
    ended
}

async fn session(
    app: &App,
    config: &Config,
    bench: Workbench,
    begin: Beginning,
) -> Result<Exit, Failure> {
    let scope = Scope {
        thread_id: Some(bench.thread_id.clone()),
        ..Scope::default()
    };
    for fact in begin.facts {
        bench
            .journal
            .append(&scope, fact, Refs::default())
            .or_fail()?;
    }
    let (inputs, shown) = unbounded_channel();
    let (outputs, sent) = unbounded_channel();
    let (turns, mut waiting) = unbounded_channel();
    show_log(&bench.writer, &inputs)?;
    let model = begin.models.first().map(Model::name).unwrap_or_default();
    let settings = host::settings(app, config, &model);
    let shutdown = CancellationToken::new();
    let screen = tokio::spawn(agent_tui::run(settings, shown, outputs, shutdown.clone()));

    let courier = Courier {
        control: Arc::clone(&bench.control),
        authority: Arc::clone(&bench.authority),
        journal: Arc::clone(&bench.journal),
        thread_id: bench.thread_id.clone(),
        host: host::Host::new(app, config, &bench),
        rules: save_rule::RuleFiles::new(app),
        inputs: inputs.clone(),
        turns: turns.clone(),
    };
    if let Some(prompt) = begin.prompt {
        courier.command(ControlCommand::SubmitTurn(SubmitTurn {
            text: prompt,
            ..SubmitTurn::default()
        }));
    }
    let control = Arc::clone(&bench.control);
    if let Some(turn_id) = control.take_next().or_fail()? {
        let _ = turns.send(turn_id);
    }
    drop(turns);
    let carried = tokio::spawn(courier.carry(sent));
    let live = Arc::new(ToScreen(inputs.clone()));
    let mut engine = bench.engine(app, config, begin.models, live);

    let ui_ended = CancellationToken::new();
    let ended = ui_ended.clone();
    let interrupt_control = Arc::clone(&control);
    let watched = tokio::spawn(async move {
        let exit = screen.await;
        // Whoever leaves while a turn runs ends it; its facts are written.
        interrupt_control.interrupt(&InterruptTurn::default(), InterruptReason::Terminated);
        ended.cancel();
        exit
    });
    loop {
        let turn_id: TurnId = tokio::select! {
            biased;
            () = ui_ended.cancelled() => break,
            next = waiting.recv() => match next { Some(turn_id) => turn_id, None => break },
        };
        let mut next = Some(turn_id);
        while let Some(turn_id) = next.take() {
            let interrupt = Interrupt::new();
            if ui_ended.is_cancelled() {
                break;
            }
            if let Err(error) = engine
                .run_turn(turn_id, headless::budget(config), &interrupt)
                .await
            {
                let _ = inputs.send(Input::Host(HostMessage::Problem(error.to_string())));
                break;
            }
            next = control.take_next().or_fail()?;
        }
    }
    shutdown.cancel();
    let exit = watched.await.or_fail()?.or_fail()?.or_fail()?;
    carried.abort();
    Ok(match exit {
        agent_tui::Exit::Signal(2) => Exit::Interrupted,
        agent_tui::Exit::Signal(_) => Exit::Terminated,
        _ => Exit::Done,
    })
}

/// Gives the screen what is in the log, and from then on every line as it is written.
fn show_log(writer: &SessionWriter, inputs: &UnboundedSender<Input>) -> Result<(), Failure> {
    let log = std::fs::read(writer.log_path()).or_fail()?;
    let past = log
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .filter_map(|line| agent_protocol::Event::from_line(line).ok().map(Arc::new));
    let _ = inputs.send(Input::History(past.collect()));
    let inputs = inputs.clone();
    writer.subscribe(move |appended| {
        inputs
            .send(Input::Event(Arc::new(appended.event.clone())))
            .is_ok()
    });
    Ok(())
}

/// Text on its way to the screen.
struct ToScreen(UnboundedSender<Input>);

impl Live for ToScreen {
    fn show(&self, text: LiveText<'_>) {
        let text = match text {
            LiveText::Answer(text) => agent_tui::LiveText::Answer(text.to_owned()),
            LiveText::Reasoning(text) => agent_tui::LiveText::Reasoning(text.to_owned()),
            LiveText::Call(name) => agent_tui::LiveText::Call(name.to_owned()),
        };
        let _ = self.0.send(Input::Live(text));
    }
}

/// Carries what the screen sends to whom it concerns.
struct Courier {
    control: Arc<Control>,
    authority: Arc<SessionAuthority>,
    journal: Arc<dyn Journal>,
    thread_id: ThreadId,
    host: host::Host,
    rules: save_rule::RuleFiles,
    inputs: UnboundedSender<Input>,
    turns: UnboundedSender<TurnId>,
}

impl Courier {
    async fn carry(self, mut sent: UnboundedReceiver<Output>) {
        while let Some(output) = sent.recv().await {
            match output {
                Output::Command(command) => self.command(command),
                Output::Host(request) => {
                    if let Some(answer) = self.host.answer(request) {
                        self.say(answer);
                    }
                }
            }
        }
    }

    fn say(&self, message: HostMessage) {
        let _ = self.inputs.send(Input::Host(message));
    }

    /// Saves the rule that comes with an answer, if one does, then passes the answer on. An answer
    /// whose rule cannot be saved holds this once, and says so.
    fn respond(&self, mut response: RespondAction) -> ControlAnswer {
        let asked = response
            .answer
            .as_ref()
            .and_then(|answer| answer.saved_rule.clone());
        if let Some(rule) = asked
            && let Err(problem) = self.save_rule(&rule, response.scope)
        {
            self.say(HostMessage::Problem(problem));
            response.scope = GrantScope::Once;
            if let Some(answer) = &mut response.answer {
                answer.saved_rule = None;
            }
        }
        self.control.respond(response)
    }

    fn save_rule(&self, rule: &str, scope: GrantScope) -> Result<(), String> {
        let saved = self.rules.save(rule, scope)?;
        let changed = PolicyChanged {
            scope,
            changed: PolicyChanges {
                rules_added: vec![saved.to_string()],
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: "saved while answering a question".to_owned(),
        };
        let log = Scope {
            thread_id: Some(self.thread_id.clone()),
            ..Scope::default()
        };
        self.journal
            .append(&log, changed.into(), Refs::default())
            .map_err(|error| error.to_string())?;
        self.authority.add_rule(saved);
        Ok(())
    }

    fn command(&self, command: ControlCommand) {
        let answer = match command {
            ControlCommand::SubmitTurn(submit) => {
                let answer = self.control.submit(submit, TurnSource::Tui);
                if let Ok(ControlAnswer {
                    acknowledgement: Acknowledgement::Accepted,
                    turn_id: Some(turn_id),
                    ..
                }) = &answer
                {
                    let _ = self.turns.send(turn_id.clone());
                }
                answer
            }
            ControlCommand::InterruptTurn(interrupt) => {
                Ok(self.control.interrupt(&interrupt, InterruptReason::User))
            }
            ControlCommand::RespondAction(response) => Ok(self.respond(response)),
            ControlCommand::RemoveQueuedTurn(queued) => self.control.remove_queued(&queued.turn_id),
            ControlCommand::PromoteQueuedTurn(queued) => {
                self.control.promote_queued(&queued.turn_id)
            }
            ControlCommand::SetMode(mode) => {
                let scope = Scope {
                    thread_id: Some(self.thread_id.clone()),
                    ..Scope::default()
                };
                let changed = PolicyChanged {
                    scope: GrantScope::Session,
                    changed: PolicyChanges {
                        mode: Some(mode),
                        ..PolicyChanges::default()
                    },
                    by: DecidedBy::User,
                    reason: "chosen on the screen".to_owned(),
                };
                let recorded = self.journal.append(&scope, changed.into(), Refs::default());
                recorded.map(|_| {
                    self.authority.set_mode(mode);
                    ControlAnswer {
                        acknowledgement: Acknowledgement::Accepted,
                        ..ControlAnswer::default()
                    }
                })
            }
            _ => {
                return self.say(HostMessage::Problem(
                    "this cannot be done from the screen yet".to_owned(),
                ));
            }
        };
        match answer {
            Ok(answer) => {
                if answer.acknowledgement == Acknowledgement::NoOp
                    && let Some(reason) = answer.reason
                {
                    self.say(HostMessage::Notice(reason));
                }
            }
            Err(error) => self.say(HostMessage::Problem(error.to_string())),
        }
    }
}
