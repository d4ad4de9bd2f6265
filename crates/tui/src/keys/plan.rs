//! Keys on the question about a plan: an approval says in which mode work goes on.

use agent_protocol::payload::permission::{ActionAnswer, ActionDecision, GrantScope};
use agent_protocol::status::Mode;

use crate::state::pending::Pending;
use crate::ui::prompt::respond;
use crate::ui::{Effect, Ui};

impl Ui {
    /// The mode after an approval with this key.
    pub(crate) fn mode_after_plan(&self, key: char) -> Mode {
        match (key, self.state.facts.mode) {
            ('s', _) => Mode::AcceptEdits,
            ('w', _) => Mode::Auto,
            (_, Some(mode)) if !mode.only_reads() => mode,
            _ => Mode::Ask,
        }
    }

    pub(super) fn approve_plan(&mut self, pending: &Pending, key: char) -> Vec<Effect> {
        let answer = ActionAnswer {
            mode: Some(self.mode_after_plan(key)),
            ..ActionAnswer::default()
        };
        self.answer(respond(
            pending,
            ActionDecision::AllowOnce,
            GrantScope::Once,
            Some(answer),
        ))
    }
}
