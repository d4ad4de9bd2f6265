//! The facts of a turn that ended, for a program that waits for it. The log says the same in full.

use agent_engine::state::{CommandRun, TurnFacts};
use agent_engine::verification::claims;
use agent_engine::{Engine, TurnEnd};
use agent_protocol::payload::conversation::Verification;
use agent_protocol::payload::{SideEffect, Usage};

/// The last turn of a run.
pub struct TurnReport {
    /// The end of the turn; none when no turn was worked on.
    pub end: Option<TurnEnd>,
    /// The final answer, also where it was too long for its event.
    pub final_text: Option<String>,
    pub commands: Vec<CommandRun>,
    pub verification: Verification,
    pub files_changed: Vec<SideEffect>,
    pub refused_calls: u64,
    pub steps: u64,
    pub usage: Usage,
    pub cost: Option<f64>,
    /// True if a command was refused for want of a sandbox.
    pub sandbox_missing: bool,
    pub open_actions: Vec<String>,
    /// The plan that waits for an answer, where nothing else does.
    pub plan: Option<String>,
    /// Sentences of the final text that the log does not show.
    pub claims_not_shown: Vec<String>,
    /// True if files were put back after the last verification of the session.
    pub is_undone: bool,
}

impl TurnReport {
    pub(super) fn new(engine: &Engine, end: Option<TurnEnd>) -> Self {
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
        Self {
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
            plan: engine.proposed_plan(),
        }
    }
}
