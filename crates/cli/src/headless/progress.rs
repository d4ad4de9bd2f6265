//! What happens, as it happens, on standard error when that is a terminal: one line per step.

use std::io::{self, IsTerminal as _, Write as _};

use agent_protocol::payload::permission::Effect;
use agent_protocol::{Event, Payload};
use agent_session::SessionWriter;

use crate::app::App;
use crate::output::{clip, visible};

/// Starts showing, where somebody can see it and wants to.
pub(super) fn show(app: &App, writer: &SessionWriter) {
    if app.output.is_quiet() || !io::stderr().is_terminal() {
        return;
    }
    let width = app.output.width();
    writer.subscribe(move |appended| {
        let Some(line) = line(&appended.event) else {
            return true;
        };
        writeln!(io::stderr(), "{}", clip(&visible(&line), width)).is_ok()
    });
}

fn line(event: &Event) -> Option<String> {
    match &event.payload {
        Payload::PermissionEvaluated(decision) if decision.decision == Effect::Deny => {
            Some(format!("  denied: {}", decision.reason))
        }
        Payload::ToolObservation(seen) => {
            let mark = if seen.ok { '+' } else { '!' };
            Some(format!("{mark} {} — {}", seen.title, seen.summary))
        }
        Payload::ModelFailed(failed) => Some(format!("! model: {}", failed.message)),
        Payload::ContextCompactionStarted(_) => {
            Some("… making room in the conversation".to_owned())
        }
        Payload::RuntimeWarning(warning) => Some(format!("! {}", warning.message)),
        _ => None,
    }
}
