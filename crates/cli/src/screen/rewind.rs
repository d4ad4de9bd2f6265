//! Going back to before a message: what it would change, and doing it once the session is closed. The files are put
//! back in the session that changed them; the conversation goes on in a fork.

use std::sync::Arc;

use agent_protocol::command::{ControlCommand, Undo, UndoExtent};
use agent_protocol::reply::Reply;
use agent_runtime::Session;
use agent_runtime::undo::{Chosen, Extent, Plan};
use agent_text::counted;
use agent_tui::{HostMessage, RewindPlan};

use super::{past, sender};
use crate::app::App;
use crate::commands::undo::as_text;
use crate::config::Config;
use crate::failure::Failure;

fn extent(at: u64) -> UndoExtent {
    UndoExtent::After {
        sequence: at.saturating_sub(1),
    }
}

/// What going back to before the event `at` would change.
pub(super) fn plan(
    app: &App,
    session: &Session,
    at: u64,
    text: String,
) -> Result<HostMessage, Failure> {
    let chosen = Chosen::new(app, &[])?;
    let root = app.project.root();
    let plan = Plan::make(root, session.directory(), &Extent::of(&extent(at)), &chosen)?;
    let is_told = plan.has_work() || !plan.entries.is_empty() || !plan.gaps.is_empty();
    let told = is_told.then(|| as_text(&plan, app));
    // The first line names the session, which is the one on the screen.
    let files = told.as_deref().and_then(|told| told.split_once('\n'));
    Ok(HostMessage::Rewind(RewindPlan {
        at,
        text,
        files: files.map(|(_, files)| files.to_owned()).unwrap_or_default(),
        fingerprint: plan.fingerprint(),
    }))
}

/// Puts the files back as the plan with this fingerprint says, and branches off. Gives the new session's id, and
/// what is to be said of it.
pub(super) fn carry_out(
    app: &Arc<App>,
    config: &Config,
    session: &str,
    at: u64,
    fingerprint: String,
) -> Result<(String, String), Failure> {
    let directory = app.session(session)?;
    let open = app.open_at_rest(&directory, "agent")?;
    let undo = ControlCommand::Undo(Undo {
        extent: extent(at),
        expected_plan: Some(fingerprint),
        with_conversation: true,
        ..Undo::default()
    });
    let mut said = match open.handle(undo, &sender::peer())? {
        Reply::Undone(report) => {
            let mut said = format!("Went back: {} restored", counted(report.paths, "path"));
            if !report.refused.is_empty() {
                let kept = report.refused.iter().map(|refused| refused.path.as_str());
                let kept: Vec<&str> = kept.collect();
                said.push_str(&format!(", left as they are: {}", kept.join(", ")));
            }
            said.push_str(&format!(
                ". To take it back, /resume {session} and /undo {}.",
                report.before
            ));
            said
        }
        _ => "Went back; no file had to change.".to_owned(),
    };
    drop(open);
    let fork = past::fork(app, config, session, at)?;
    said.push_str(" This is a fork from before that message.");
    Ok((fork, said))
}
