//! What stands before the user's next words: how the turn before ended, where the session began, and that
//! nothing may be changed.

use agent_history::imported_from;
use agent_protocol::status::{Mode, Status};
use agent_protocol::{Event, Payload};

const PLAN_MODE: &str = "[The mode is plan: look around and change nothing. When you know what is to be done, hand \
your plan to the user with propose_plan; they approve, edit or reject it.]";

/// The fold of events into notes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    next: Option<String>,
    /// The last turn began in mode plan.
    in_plan_mode: bool,
}

impl Notes {
    /// Takes in one event. The end of a turn comes after its own input has entered, its beginning before.
    pub(crate) fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::SessionCreated(created) => {
                if let Some(program) = imported_from(created) {
                    let note = "what was called there, and what came of it, is not shown";
                    self.next = Some(format!("[This session began in {program}; {note}.]"));
                }
            }
            Payload::TurnFailed(failed) => {
                self.next = Some(match failed.status {
                    Status::Cancelled => {
                        "[The turn before this one was interrupted by the user.]".to_owned()
                    }
                    _ => format!(
                        "[The turn before this one did not finish: {}]",
                        failed.message
                    ),
                });
            }
            Payload::TurnStarted(started) => {
                let note = match (self.in_plan_mode, started.mode == Mode::Plan) {
                    (_, true) => PLAN_MODE.to_owned(),
                    (true, false) => format!("[The mode is {} now.]", started.mode),
                    (false, false) => return,
                };
                self.in_plan_mode = started.mode == Mode::Plan;
                self.add(note);
            }
            _ => {}
        }
    }

    /// Adds a note.
    pub(crate) fn add(&mut self, note: String) {
        self.next = Some(match self.next.take() {
            Some(before) => format!("{before}\n{note}"),
            None => note,
        });
    }

    /// The note for the input that enters now.
    pub(crate) fn take(&mut self) -> Option<String> {
        self.next.take()
    }
}
