//! What a branch does not hold itself: where the session it came from is, said by the commands that
//! only look at a session's own events.

use agent_evidence::replay::parent_of;
use agent_log::SessionDirectory;

use crate::app::App;

/// Says where `what` is that came before a branch; nothing when the session is no branch. `command`
/// gives the command that shows it, from the parent's id and the event it was branched at.
pub(crate) fn elsewhere(
    app: &App,
    session: &SessionDirectory,
    what: &str,
    command: impl FnOnce(&str, u64) -> String,
) -> Option<String> {
    let parent = parent_of(session)?;
    let (id, sequence) = (parent.session_id.as_str(), parent.sequence);
    let from = format!("forked from {id} after event {sequence}");
    Some(match app.sessions().resolve(id) {
        Ok(_) => format!(
            "{from}: for {what} before that, `{}`",
            command(id, sequence)
        ),
        Err(_) => format!("{from}, which is missing: {what} before that is unknown"),
    })
}
