//! What the read models say of a session that nobody writes: work that has not ended is not going
//! on either. The log alone does not show that; whether somebody holds the session does.

use std::collections::HashSet;

use agent_protocol::CallStatus;
use agent_protocol::id::TurnId;
use agent_protocol::payload::permission::Effect;
use agent_protocol::status::Status;

use super::{Calls, Fact, ProcessState, ReadModels};

impl ReadModels {
    /// Puts right what looks as if it were going on, for a session nobody writes. Open questions
    /// stay open, and what waits for one, or was answered since, goes on when the session does; the
    /// rest is lost.
    pub fn nobody_writes(&mut self) {
        let paused = self.calls.nobody_writes();
        let pending = &self.permission_sandbox.pending;
        let state_of = |turn_id: Option<&TurnId>| {
            let is_asked = pending
                .iter()
                .any(|action| turn_id.is_none() || action.turn_id.as_ref() == turn_id);
            let is_paused = turn_id.map_or(!paused.is_empty(), |turn_id| paused.contains(turn_id));
            if is_asked {
                Status::WaitingPermission
            } else if is_paused {
                // It was answered, and nobody has gone on with it yet.
                Status::Blocked
            } else {
                Status::Lost
            }
        };
        for thread in self.threads.threads.values_mut() {
            for turn in &mut thread.turns {
                if is_going_on(turn.status) {
                    turn.status = state_of(Some(&turn.turn_id));
                }
            }
            settle(&mut thread.status, !pending.is_empty(), || state_of(None));
        }
        let snapshot = &mut self.session_snapshot;
        settle(&mut snapshot.status, !pending.is_empty(), || state_of(None));
        for process in self.execution_environment.active.values_mut() {
            process.state = ProcessState::Unknown;
        }
    }
}

impl Calls {
    /// Settles the calls alone; returns the turns that go on when the session does.
    pub fn nobody_writes(&mut self) -> HashSet<TurnId> {
        let mut paused = HashSet::new();
        for call in self.open_mut() {
            if !call.state.is_pending() {
                call.status = CallStatus::Lost;
                continue;
            }
            paused.extend(call.turn_id.clone());
            match call.state.answer() {
                Some(Effect::Allow) => call.status = CallStatus::Allowed,
                Some(Effect::Deny) => call.status = CallStatus::Denied,
                Some(Effect::Ask) | None => {}
            }
        }
        paused
    }
}

/// Work for which somebody has to be there.
fn is_going_on(status: Status) -> bool {
    matches!(
        status,
        Status::Accepted
            | Status::Preparing
            | Status::Running
            | Status::Streaming
            | Status::Retrying
            | Status::WaitingResource
            | Status::WaitingPermission
            | Status::WaitingInput
    )
}

fn settle(status: &mut Fact<Status>, is_asked: bool, state: impl Fn() -> Status) {
    if let Fact::Known(now) | Fact::Stale(now) = status
        && (is_asked || is_going_on(*now))
    {
        *now = state();
    }
}
