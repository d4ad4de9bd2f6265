//! The command `undo`: a plan from the log and the disk, carried out and recorded.

use agent_log::{SessionDirectory, SessionWriter};
use agent_protocol::command::{Undo, UndoExtent};
use agent_protocol::reply::{AnswerCode, ControlAnswer, ControlError, ControlErrorCode, Reply};

use super::refused;
use crate::Runtime;
use crate::error::RuntimeError;
use crate::undo::{Chosen, Entry, Extent, Plan, carry_out};

/// Puts files back as `asked`. A session that this user's state does not know (`is_known`) puts nothing
/// back that makes something run later.
pub(super) fn undo(
    runtime: &Runtime,
    session: &SessionDirectory,
    writer: &SessionWriter,
    asked: &Undo,
    is_known: bool,
) -> Result<Reply, ControlError> {
    let plan = plan(runtime, session, asked, is_known).map_err(|error| refused(&error))?;
    if let Some(expected) = &asked.expected_plan
        && *expected != plan.fingerprint()
    {
        let changed = "the files or the session changed in the meantime; nothing was undone";
        return Err(ControlError::new(ControlErrorCode::PlanChanged, changed));
    }
    if !plan.has_work() && plan.entries.is_empty() {
        let nothing = "nothing to undo";
        let answer = ControlAnswer::no_op(AnswerCode::NothingToUndo, nothing);
        return Ok(Reply::Answer(answer));
    }
    let decide = |entry: &Entry| {
        let mut decisions = asked.decisions.iter();
        let decision = decisions.find(|decision| decision.path == entry.name);
        decision.map_or(asked.on_conflict, |decision| decision.on_conflict)
    };
    let done = carry_out(
        runtime.project.root(),
        writer,
        &plan,
        &reason(asked),
        decide,
    );
    done.map(Reply::Undone).map_err(|error| refused(&error))
}

fn plan(
    runtime: &Runtime,
    session: &SessionDirectory,
    asked: &Undo,
    is_known: bool,
) -> Result<Plan, RuntimeError> {
    let chosen = Chosen::new(runtime, &asked.files)?;
    let extent = Extent::of(&asked.extent);
    let mut plan = Plan::make(runtime.project.root(), session, &extent, &chosen)?;
    if !is_known {
        plan.leave_out_protected();
    }
    Ok(plan)
}

/// The reason in the log.
fn reason(asked: &Undo) -> String {
    let what = match &asked.extent {
        UndoExtent::LastChange => "the user took back the last change".to_owned(),
        UndoExtent::Turn { turn } => format!("the user took back turn {turn}"),
        UndoExtent::After { sequence } => format!("the user went back to event {sequence}"),
        UndoExtent::Session => "the user took back the session's changes".to_owned(),
    };
    match asked.with_conversation {
        true => format!("{what}; the conversation goes on in a fork from there"),
        false => what,
    }
}
