//! Progress on standard error: one line per step when that is a terminal, and wherever it goes, with what
//! decided each step, when details were asked for.

use std::io::{self, IsTerminal as _, Write as _};

use agent_history::describe;
use agent_history::describe::{Facts, Kind, Tone};
use agent_protocol::payload::model::ModelFailureKind;
use agent_protocol::payload::permission::Effect;
use agent_protocol::{Event, Payload};

use super::OutputForm;
use super::console::{Console, Shows};
use crate::app::App;
use crate::output::visible;
use agent_runtime::Session;
use agent_text::clip;

/// Starts showing, where somebody can see it and wants to.
pub(super) fn show(app: &App, session: &Session, form: OutputForm) -> Console {
    let verbose = app.output.is_verbose();
    let is_quiet = form == OutputForm::Quiet || app.output.is_quiet();
    let is_terminal = io::stderr().is_terminal();
    let is_run = matches!(
        form,
        OutputForm::Text | OutputForm::Json | OutputForm::Report
    );
    let mut shows = Shows::on_terminal(app, form == OutputForm::Text, is_quiet);
    shows.line &= is_run;
    let console = Console::new(app, shows);
    if shows.line || shows.answer {
        let mut listener = console.listener();
        session.subscribe(move |appended| listener(&appended.event));
    }
    if is_quiet {
        return console;
    }
    if !(is_run && is_terminal || verbose) {
        if form == OutputForm::Text {
            show_trouble(session);
        }
        return console;
    }
    app.output
        .detail(&format!("log: {}", app.short(session.log_path())));
    // A line that is kept in a file is not cut for a screen.
    let width = is_terminal.then(|| app.output.width());
    let printer = console.printer();
    session.subscribe(move |appended| {
        // The line that is replaced says it already.
        if !verbose && printer.shows_line() && is_pause(&appended.event) {
            return true;
        }
        let told = line(&appended.event).or_else(|| {
            verbose
                .then(|| detail(&appended.event))
                .flatten()
                .map(|text| format!("· {text}"))
        });
        let Some(told) = told.as_deref().map(visible) else {
            return true;
        };
        let told = width.map_or_else(|| told.clone(), |width| clip(&told, width));
        printer.line(&told).is_ok()
    });
    console
}

/// True if the model is asked again after a pause.
fn is_pause(event: &Event) -> bool {
    matches!(&event.payload, Payload::ModelFailed(failed) if failed.retry_in_ms.is_some())
}

/// Shows only what a reader of the answer in a file has to know: what in it the log does not show, and why it
/// takes so long when the model has to be asked again.
fn show_trouble(session: &Session) {
    session.subscribe(|appended| {
        let told = match &appended.event.payload {
            Payload::RuntimeWarning(warning) if warning.code.starts_with("final_answer_") => {
                line(&appended.event)
            }
            Payload::ModelFailed(_) if is_pause(&appended.event) => line(&appended.event),
            _ => None,
        };
        told.is_none_or(|told| writeln!(io::stderr(), "{}", visible(&told)).is_ok())
    });
}

/// A step of the work in one line, for everybody.
fn line(event: &Event) -> Option<String> {
    let is_step = match &event.payload {
        Payload::PermissionEvaluated(decision) => decision.decision == Effect::Deny,
        // The end of the turn says who stopped it.
        Payload::ModelFailed(failed) => failed.kind != ModelFailureKind::Cancelled,
        Payload::ToolObservation(_)
        | Payload::ContextCompactionStarted(_)
        | Payload::RuntimeWarning(_) => true,
        _ => false,
    };
    is_step.then(|| {
        let said = describe(event);
        let mark = match said.tone {
            Tone::Plain | Tone::Good => '+',
            Tone::Warn | Tone::Bad => '!',
        };
        match &said.subject {
            Some(subject) => format!("{mark} {subject} — {}", said.text),
            // The mark says already that it is a warning.
            None if said.kind == Kind::Problem => format!("{mark} {}", said.text),
            None => format!("{mark} {}", said.line()),
        }
    })
}

/// A decision or the use of a request or a turn, for those who asked for details.
fn detail(event: &Event) -> Option<String> {
    match &event.payload {
        Payload::TurnStarted(_)
        | Payload::RoutingDecided(_)
        | Payload::RoutingFallbackApplied(_)
        | Payload::ModelRequested(_)
        | Payload::PermissionEvaluated(_)
        | Payload::SandboxApplied(_)
        | Payload::EvidenceChanged(_)
        | Payload::TurnFailed(_) => Some(describe(event).line()),
        // The answer itself is on standard output.
        Payload::ModelCompleted(_) => {
            let said = describe(event);
            Some(format!("{}: {}", said.label, in_one_line(&said.facts)))
        }
        Payload::TurnCompleted(_) => {
            let said = describe(event);
            Some(format!("{}; {}", said.line(), in_one_line(&said.facts)))
        }
        _ => None,
    }
}

fn in_one_line(facts: &Facts) -> String {
    facts.lines().collect::<Vec<_>>().join("; ")
}
