//! A word about a log that can be read and not be trusted.

use agent_log::{DamageKind, SessionDirectory, verify_chain};

use crate::app::App;

/// Says where the chain of the log is broken. A tail torn by a crash is no damage: the session
/// takes it back when it goes on.
pub(super) fn tell(app: &App, session: &SessionDirectory) {
    // Whoever reads the events next says why the log cannot be read.
    let Some(chain) = session
        .open_log()
        .ok()
        .and_then(|log| verify_chain(log, session.id()).ok())
    else {
        return;
    };
    let torn = |kind: &DamageKind| matches!(kind, DamageKind::TornTail { .. });
    if let Some(first) = chain.damage.iter().find(|damage| !torn(&damage.kind)) {
        app.output.note(&format!(
            "the log is damaged at {first}, so this may not be accurate; `agent audit {}` lists \
             the damage",
            session.id()
        ));
    }
}
