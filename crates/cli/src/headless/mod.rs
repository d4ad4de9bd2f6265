//! A session without a screen: one turn (and what is queued behind it), its progress on standard
//! error, its result on standard output, its exit code from the facts.

mod progress;
mod report;
mod signals;

use std::io::{self, Write as _};
use std::sync::Arc;

use agent_engine::live::NullSink;
use agent_engine::state::{CommandRun, TurnFacts};
use agent_engine::verification::claims;
use agent_engine::{Engine, Interrupt, Model, TurnEnd};
use agent_protocol::Payload;
use agent_protocol::command::SubmitTurn;
use agent_protocol::id::ProcessId;
use agent_protocol::payload::conversation::{TurnSource, Verification};
use agent_protocol::payload::{SideEffect, Usage};
use clap::ValueEnum;

use crate::app::App;
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use agent_runtime::session::Workbench;
use agent_text::counted;

pub(crate) use report::RunReport;

/// What a headless run prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    /// The final answer.
    #[default]
    Text,
    /// One object at the end.
    Json,
    /// The log's own events, one per line, as they are written.
    StreamJson,
    /// Nothing; somebody else tells the story.
    #[value(skip)]
    Quiet,
}

/// What a headless run is asked to do.
pub(crate) struct Task {
    /// Missing to go on with what is open or queued.
    pub(crate) prompt: Option<String>,
    pub(crate) form: OutputForm,
    pub(crate) include_transient: bool,
    pub(crate) require_verified: bool,
    pub(crate) models: Vec<Model>,
    /// How the models were chosen, to be recorded in the first turn.
    pub(crate) facts: Vec<Payload>,
}

/// Runs turns until nothing is left to do.
pub(crate) fn run(
    app: &App,
    config: &Config,
    bench: Workbench,
    task: Task,
) -> Result<Exit, Failure> {
    let session_id = bench.writer.session_id().clone();
    if task.form == OutputForm::StreamJson {
        stream_events(&bench, task.include_transient)?;
    }
    progress::show(app, &bench.writer, task.form);
    // One thread: the connection and the engine hand each piece of an answer over without waking
    // anybody. Tools have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail()?;
    let closer = bench.closer();
    let artifacts = bench.writer.artifacts().clone();
    let ended = runtime.block_on(turns(app, config, bench, &task));
    let running = closer.running();
    closer.close()?;
    tell_stopped(app, &running);
    let ended = ended?;
    // A tool that ignored its cancellation must not keep the process alive.
    runtime.shutdown_background();
    let report = RunReport::new(&session_id, ended, &artifacts, task.require_verified);
    let exit = report.exit();
    match task.form {
        OutputForm::Text => report.print(&app.output).or_fail()?,
        OutputForm::Json => app.output.json(&report).or_fail()?,
        OutputForm::StreamJson | OutputForm::Quiet => {}
    }
    Ok(exit)
}

/// Says which background commands ended with the run.
fn tell_stopped(app: &App, running: &[(ProcessId, String)]) {
    if running.is_empty() {
        return;
    }
    let named: Vec<String> = running
        .iter()
        .map(|(id, command)| format!("`{command}` ({id})"))
        .collect();
    let count = counted(running.len() as u64, "background command");
    app.output.note(&format!(
        "the run is over; stopped {count}: {}",
        named.join(", ")
    ));
}

/// How the last turn ended, with the facts a report needs.
pub(crate) struct Ended {
    pub(crate) end: Option<TurnEnd>,
    /// The final answer, also where it was too long for its event.
    pub(crate) final_text: Option<String>,
    pub(crate) commands: Vec<CommandRun>,
    pub(crate) verification: Verification,
    pub(crate) files_changed: Vec<SideEffect>,
    pub(crate) refused_calls: u64,
    pub(crate) steps: u64,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<f64>,
    pub(crate) sandbox_missing: bool,
    pub(crate) open_actions: Vec<String>,
    /// Sentences of the final text that the log does not show.
    pub(crate) claims_not_shown: Vec<String>,
    /// Whether files were taken back after the last verification of the session.
    pub(crate) is_undone: bool,
}

async fn turns(
    app: &App,
    config: &Config,
    bench: Workbench,
    task: &Task,
) -> Result<Ended, Failure> {
    let control = Arc::clone(&bench.control);
    let open_turn = bench.open_turn.clone();
    let mut engine = bench
        .engine(
            app,
            config,
            task.models.clone(),
            app.small_model(config),
            Arc::new(NullSink),
        )
        .with_routing(task.facts.clone());
    let mut end = None;
    let interrupt = Interrupt::new();
    signals::watch(&interrupt).or_fail()?;
    let mut prompt = task.prompt.clone().map(|text| SubmitTurn {
        text,
        ..SubmitTurn::default()
    });
    if let Some(turn_id) = open_turn {
        // It waits in the log from now on: how the open turn goes on does not lose it.
        if let Some(submit) = prompt.take() {
            control.enqueue(submit, TurnSource::Cli).or_fail()?;
        }
        let ended = engine
            .continue_turn(turn_id, config.turn_budget(), &interrupt)
            .await
            .or_fail()?;
        let stop = !matches!(ended, TurnEnd::Completed(_));
        end = Some(ended);
        if stop {
            return Ok(taken(&engine, end));
        }
    }
    if let Some(submit) = prompt {
        let answer = control.submit(submit, TurnSource::Cli).or_fail()?;
        // Inputs that waited before this one are worked on first, in order.
        if let (true, Some(turn_id)) = (control.queue().is_empty(), answer.turn_id) {
            end = Some(
                engine
                    .run_turn(turn_id, config.turn_budget(), &interrupt)
                    .await
                    .or_fail()?,
            );
        }
    }
    while interrupt.reason().is_none()
        && !matches!(end, Some(TurnEnd::Failed(_) | TurnEnd::LeftOpen))
    {
        let Some(turn_id) = control.take_next().or_fail()? else {
            break;
        };
        end = Some(
            engine
                .run_turn(turn_id, config.turn_budget(), &interrupt)
                .await
                .or_fail()?,
        );
    }
    Ok(taken(&engine, end))
}

fn taken(engine: &Engine, end: Option<TurnEnd>) -> Ended {
    let state = engine.thread();
    // The facts of a turn of an earlier run are not those of this one.
    let none = TurnFacts::default();
    let turn = end.as_ref().map_or(&none, |_| &state.turn);
    let final_text = match &end {
        Some(TurnEnd::Completed(completed)) => match &completed.final_text_ref {
            Some(kept) => engine.kept_text(kept),
            None => completed.final_text.clone(),
        },
        _ => None,
    };
    let claims = final_text
        .as_deref()
        .map(|text| claims::conflicts(text, &state.track));
    let claims = claims.unwrap_or_default().into_iter();
    let open_actions = engine.session().open_actions.keys();
    Ended {
        end,
        claims_not_shown: claims.map(|claim| claim.sentence).collect(),
        is_undone: state.is_undone,
        final_text,
        commands: turn.commands.clone(),
        verification: turn.verification.record(),
        files_changed: turn.files_changed(),
        refused_calls: turn.refused,
        steps: turn.requests,
        usage: turn.usage.clone(),
        cost: turn.cost.total(),
        sandbox_missing: turn.sandbox_missing,
        open_actions: open_actions.map(ToString::to_string).collect(),
    }
}

/// Prints each line of this run as it is written, those that are there already first.
fn stream_events(bench: &Workbench, include_transient: bool) -> Result<(), Failure> {
    let print = |line: &[u8]| -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(line)?;
        stdout.write_all(b"\n")?;
        stdout.flush()
    };
    let log = std::fs::read(bench.writer.log_path()).or_fail()?;
    let first = usize::try_from(bench.first_sequence).unwrap_or(usize::MAX);
    for line in log
        .split(|byte| *byte == b'\n')
        .skip(first)
        .filter(|line| !line.is_empty())
    {
        print(line).or_fail()?;
    }
    bench.writer.subscribe(move |appended| {
        // Nobody reads any more: stop telling, the log goes on.
        (!appended.is_durable && !include_transient) || print(&appended.line).is_ok()
    });
    Ok(())
}
