//! Where permission comes from. The gate implements [`Authority`]; this file is only the seam.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_policy::{Confinement, PermissionSemantics, ToolDefinition, Workspace};
use agent_protocol::Timestamp;
use agent_protocol::id::{ActionId, ToolCallId};
use agent_protocol::payload::permission::{
    ActionDecision, ActionRequired, DecidedBy, GrantScope, PermissionEvaluated,
};
use agent_protocol::payload::tool::{CallFlags, CatalogPolicy};
use agent_protocol::status::Mode;
use serde_json::Value;

use crate::cancel::Cancel;
use crate::intent::IntentOrigin;

/// Decides what may start, and asks where it cannot decide. It writes nothing: the pipeline
/// records every step.
pub trait Authority: Send + Sync {
    /// The ceiling in force now.
    fn mode(&self) -> Mode;

    /// The decision for one call, from semantics alone. It must not block.
    fn decide(&self, request: &PermissionRequest<'_>) -> Decision;

    /// Makes ready for an answer to the question about `call` that is about to be recorded as `action`.
    /// Called before `action.required` is written, so that no answer can come too early. From then on a
    /// change of what decides may answer it too.
    fn expect_answer(&self, action: &ActionId, call: PendingCall) {
        let _ = (action, call);
    }

    /// Takes no answer any more to a question that will not be asked, and says `reason` to who answers.
    fn withdraw(&self, action: &ActionId, reason: &str) {
        let _ = (action, reason);
    }

    /// Puts the question to whoever can answer it, and blocks until there is an answer, the time
    /// is over or `cancel` is raised. `action.required` is on disk before this is called.
    fn ask(&self, question: &Question, cancel: &Cancel) -> Answer;

    /// True of a file outside the project that the mode or a rule opens for reading.
    fn reads_outside(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Work on this turn begins; some decisions hold to a turn's end.
    fn turn_begins(&self, turn: &str) {
        let _ = turn;
    }

    /// What usually happens to calls of this tool in this mode, for the catalogue.
    fn forecast(&self, definition: &ToolDefinition) -> CatalogPolicy;
}

/// Everything a decision may rest on.
#[derive(Clone, Copy)]
pub struct PermissionRequest<'a> {
    pub tool: &'a ToolDefinition,
    pub input: &'a Value,
    pub semantics: &'a PermissionSemantics,
    pub flags: &'a CallFlags,
    pub workspace: &'a Workspace,
    pub origin: IntentOrigin,
}

/// A call that a question is about, with everything a decision may rest on.
#[derive(Clone, Debug)]
pub struct PendingCall {
    pub tool: ToolDefinition,
    pub input: Value,
    pub semantics: PermissionSemantics,
    pub flags: CallFlags,
    pub workspace: Arc<Workspace>,
    /// The mode that asks.
    pub mode: Mode,
    pub origin: IntentOrigin,
}

impl PendingCall {
    /// The call as it is judged.
    #[must_use]
    pub fn request(&self) -> PermissionRequest<'_> {
        PermissionRequest {
            tool: &self.tool,
            input: &self.input,
            semantics: &self.semantics,
            flags: &self.flags,
            workspace: &self.workspace,
            origin: self.origin,
        }
    }
}

/// What the gate decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The fact as it will stand in the log; `decision` in it is what counts. The pipeline fills in
    /// `binding` and, where they are empty, `resources`.
    pub evaluated: PermissionEvaluated,
    /// The reach the call gets if it starts.
    pub confinement: Confinement,
    /// How long an answer is waited for.
    pub ask_timeout: Option<Duration>,
    /// What an answer for the session would hold for; the binding of this one call when missing.
    pub approval_key: Option<String>,
}

/// What a person, a script or a policy has to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub action_id: ActionId,
    pub tool_call_id: ToolCallId,
    pub asked_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// As it stands in the log, masked.
    pub required: ActionRequired,
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Somebody decided.
    Decided {
        decision: ActionDecision,
        decided_by: DecidedBy,
        scope: GrantScope,
        note: Option<String>,
        /// Another input to use instead; it is validated and judged again.
        edited_input: Option<Value>,
        saved_rule: Option<String>,
    },
    /// Nobody can be asked (`--on-ask deny`).
    Unavailable,
    /// Nobody answered in time.
    Expired,
    /// The turn was cancelled while waiting.
    Cancelled,
    /// The question stays open and the process ends (`--on-ask wait`).
    LeftOpen,
}
