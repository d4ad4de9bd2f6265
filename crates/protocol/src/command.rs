//! The only way in: control commands. Every change goes through one of these, whoever asks, and
//! leaves events behind; a screen that shows something it did not read from the log is wrong.

use serde_json::Value;

use crate::id::{ActionId, ProcessId, SessionId, ThreadId, TurnId};
use crate::payload::conversation::{Budget, InputPart, QueuePolicy};
use crate::payload::permission::{ActionAnswer, ActionDecision, GrantScope};
use crate::record::{record, words};
use crate::status::Mode;

/// What can be asked of the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlCommand {
    SubmitTurn(SubmitTurn),
    InterruptTurn(InterruptTurn),
    RespondAction(RespondAction),
    ResumeThread(ResumeThread),
    RemoveQueuedTurn(QueuedTurn),
    PromoteQueuedTurn(QueuedTurn),
    SetMode(Mode),
    SetModel(String),
    Compact,
    GetSession(Window),
    GetThreadRead(ThreadId),
    GetToolInventory(ToolInventoryQuery),
    GetExecutionEnvironment,
    EvaluatePermission(PermissionQuery),
    WriteProcessStdin(ProcessInputRequest),
    TerminateProcess(ProcessId),
    ExportReplay(ExportRequest),
    ExportEvidence(ExportRequest),
    ExportReview(ExportRequest),
    EndSession,
}

record! {
    /// Take this input.
    SubmitTurn {
        text: String,
        parts*: InputPart,
        budget: Budget,
        /// What to do while another turn runs.
        when_busy: QueuePolicy,
        /// The same key twice is one turn.
        idempotency_key?: String,
    }
}
record! {
    /// Stop the running turn.
    InterruptTurn { turn_id?: TurnId, reason: String, }
}
record! {
    /// Answer a pending question; the only thing that resumes a paused action.
    RespondAction {
        action_id: ActionId,
        decision: ActionDecision,
        scope: GrantScope,
        answer?: ActionAnswer,
    }
}
record! {
    /// Go on with a past session.
    ResumeThread { session_id: SessionId, thread_id?: ThreadId, }
}
record! {
    /// An input that waits.
    QueuedTurn { turn_id: TurnId, }
}
record! {
    /// A part of a session.
    Window { cursor?: u64, limit?: u64, }
}
record! {
    /// For whom the tools are listed.
    ToolInventoryQuery { mode?: Mode, include_hidden: bool, }
}
record! {
    /// What the gate would say, without doing anything.
    PermissionQuery { tool: String, input: Value, mode?: Mode, }
}
record! {
    /// Input for a running command.
    ProcessInputRequest { process_id: ProcessId, text: String, }
}
record! {
    /// What to export.
    ExportRequest { turn_id?: TurnId, include_images: bool, }
}

words! {
    /// What became of a command.
    Acknowledgement {
        /// Nothing was there to act on; the reason says what.
        NoOp = "no_op",
        Accepted = "accepted",
        Queued = "queued",
        Refused = "refused",
    }
}

record! {
    /// The typed answer to a command that changes something.
    ControlAnswer {
        acknowledgement: Acknowledgement,
        turn_id?: TurnId,
        reason?: String,
    }
}
