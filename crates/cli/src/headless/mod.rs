//! A session without a screen: one turn (and what is queued behind it), its progress on standard
//! error, its result on standard output, its exit code from the facts.

mod console;
mod progress;
mod report;
mod signals;

use std::io::{self, Write as _};
use std::sync::Arc;

use agent_protocol::command::{ControlCommand, Peer, PeerKind, ResumeThread, SubmitTurn};
use agent_protocol::id::ProcessId;
use agent_protocol::payload::conversation::InputPart;
use agent_protocol::reply::{ControlError, ControlErrorCode, Reply};
use agent_runtime::{Session, TurnReport};
use agent_text::counted;
use clap::ValueEnum;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};

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
    /// Nothing; the caller prints the story.
    #[value(skip)]
    Quiet,
    /// Nothing but progress; the caller makes something of the answer.
    #[value(skip)]
    Report,
}

/// The task of a headless run.
pub(crate) struct Task {
    /// Missing to go on with what is open or queued.
    pub(crate) prompt: Option<String>,
    /// Files and images that the prompt names with `@`.
    pub(crate) attached: Vec<InputPart>,
    pub(crate) form: OutputForm,
    pub(crate) include_transient: bool,
    pub(crate) require_verified: bool,
}

/// End of the work in a session.
pub(crate) enum Ended {
    /// With these facts; true if the answer is on the terminal already.
    Reported(Box<RunReport>, bool),
    /// By a signal that came before it had begun.
    Stopped(Exit),
}

/// Runs turns in `session` until nothing is left to do, and prints what came of it.
pub(crate) fn run(app: &App, session: Session, task: Task) -> Result<Exit, Failure> {
    let form = task.form;
    let (report, is_shown) = match work(app, session, task)? {
        Ended::Reported(report, is_shown) => (report, is_shown),
        Ended::Stopped(exit) => return Ok(exit),
    };
    match form {
        OutputForm::Text => report.print(&app.output, is_shown).or_fail()?,
        OutputForm::Json => app.output.json(&report).or_fail()?,
        OutputForm::StreamJson | OutputForm::Quiet | OutputForm::Report => {}
    }
    Ok(report.exit())
}

/// Runs turns in `session` until nothing is left to do.
pub(crate) fn work(app: &App, session: Session, task: Task) -> Result<Ended, Failure> {
    for note in session.notes() {
        app.output.note(note);
    }
    if task.form == OutputForm::StreamJson {
        stream_events(&session, task.include_transient)?;
    }
    let console = progress::show(app, &session, task.form);
    let session = Arc::new(session);
    let peer = Peer::new(PeerKind::Headless, "agent run");
    let signals = signals::watch(&session, &peer).or_fail()?;
    let ended = turns(app, &session, &peer, task.prompt, task.attached);
    let stopped = session.close();
    let is_shown = console.end();
    tell_stopped(app, "run", &stopped?);
    let ended = match ended {
        // A signal came first.
        Err(error) if error.code == ControlErrorCode::SessionEnded => {
            let exit = signals.exit().ok_or_else(|| Failure::from(error))?;
            return Ok(Ended::Stopped(exit));
        }
        ended => ended?,
    };
    let report = RunReport::new(session.id(), ended, task.require_verified);
    Ok(Ended::Reported(Box::new(report), is_shown))
}

/// Submits the prompt, resumes what is open, and waits for the end of it all. An input is in the log
/// before the open turn goes on, so that it is not lost however that ends.
fn turns(
    app: &App,
    session: &Session,
    peer: &Peer,
    prompt: Option<String>,
    parts: Vec<InputPart>,
) -> Result<TurnReport, ControlError> {
    if let Some(text) = prompt {
        let submit = SubmitTurn {
            text,
            parts,
            ..SubmitTurn::default()
        };
        let taken = session.handle(ControlCommand::SubmitTurn(submit), peer)?;
        if let Reply::Answer(answer) = taken {
            for notice in answer.notices {
                app.output.note(&notice.message);
            }
        }
    }
    let resume = ResumeThread {
        session_id: session.id().clone(),
        thread_id: None,
    };
    match session.handle(ControlCommand::ResumeThread(resume), peer) {
        // What was submitted before a signal came is ended with its facts written.
        Err(error) if error.code != ControlErrorCode::SessionEnded => Err(error),
        _ => session.wait(),
    }
}

/// Says which background commands ended with the run.
pub(crate) fn tell_stopped(app: &App, over: &str, running: &[(ProcessId, String)]) {
    if running.is_empty() {
        return;
    }
    let named: Vec<String> = running
        .iter()
        .map(|(id, command)| format!("`{command}` ({id})"))
        .collect();
    let count = counted(running.len() as u64, "background command");
    app.output.note(&format!(
        "the {over} is over; stopped {count}: {}",
        named.join(", ")
    ));
}

/// Prints each line of this run as it is written, those that are there already first.
fn stream_events(session: &Session, include_transient: bool) -> Result<(), Failure> {
    let print = |line: &[u8]| -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(line)?;
        stdout.write_all(b"\n")?;
        stdout.flush()
    };
    let log = std::fs::read(session.log_path()).or_fail()?;
    let first = usize::try_from(session.first_sequence()).unwrap_or(usize::MAX);
    for line in log
        .split(|byte| *byte == b'\n')
        .skip(first)
        .filter(|line| !line.is_empty())
    {
        print(line).or_fail()?;
    }
    session.subscribe(move |appended| {
        // Nobody reads any more: stop telling, the log goes on.
        (!appended.is_durable && !include_transient) || print(&appended.line).is_ok()
    });
    Ok(())
}
