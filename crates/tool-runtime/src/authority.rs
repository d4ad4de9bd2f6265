//! Where permission comes from. The gate implements [`Authority`]; this file is only the seam.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::Timestamp;
use agent_protocol::id::{ActionId, ToolCallId};
use agent_protocol::payload::permission::{
    Access, ActionClass, ActionDecision, ActionRequired, DecidedBy, GrantScope,
    PermissionEvaluated, Resource,
};
use agent_protocol::payload::tool::{CallFlags, CatalogPolicy};
use agent_protocol::status::Mode;
use serde_json::Value;

use crate::cancel::Cancel;
use crate::context::Workspace;
use crate::tool::ToolDefinition;

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

/// What a call would do; no more than the gate needs to decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PermissionSemantics {
    pub action_class: ActionClass,
    pub resources: Vec<ResourceAccess>,
    /// The shell text, for tools that run one.
    pub command: Option<CommandRequest>,
    /// Whether the call asks for the network.
    pub network: bool,
    /// Whether the call asks to run outside the sandbox.
    pub leaves_sandbox: bool,
    /// Whether what it writes does not exist yet.
    pub creates: bool,
    /// Facts a person should know before deciding, as short sentences.
    pub risk_facts: Vec<String>,
}

/// Something a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceAccess {
    pub access: Access,
    /// As the model wrote it.
    pub given: String,
    /// With `..` and symlinks resolved.
    pub resolved: Option<PathBuf>,
}

impl ResourceAccess {
    /// The form the log holds.
    #[must_use]
    pub fn to_resource(&self) -> Resource {
        Resource {
            access: self.access,
            given: self.given.clone(),
            resolved: self
                .resolved
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned()),
        }
    }
}

/// A command as it would be given to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    pub text: String,
    /// Absolute.
    pub cwd: PathBuf,
}

/// Everything a decision may rest on.
#[derive(Clone, Copy)]
pub struct PermissionRequest<'a> {
    pub tool: &'a ToolDefinition,
    pub input: &'a Value,
    pub semantics: &'a PermissionSemantics,
    pub flags: &'a CallFlags,
    pub workspace: &'a Workspace,
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

/// How far a started call may reach. Neutral words: the tool that starts processes turns them into
/// a sandbox policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Names the profile in the log and in the approval binding.
    pub profile: String,
    /// Nobody allowed the call: it runs because it was proven only to read. The proof may be wrong, so
    /// nothing of the project is executed, and secrets, the rest of the machine, time, memory and output are
    /// kept from it.
    pub by_proof: bool,
    /// Whether the project may be written.
    pub project_writable: bool,
    pub network: bool,
    /// Run without a sandbox: an explicit grant of its own.
    pub unconfined: bool,
    /// Paths that stay unreadable, as globs from deny rules.
    pub deny_read: Vec<String>,
    /// Files of the project whose names are those of secrets (`gate::is_secret`) stay unreadable too.
    pub hide_secrets: bool,
    /// Except these, which a rule lets the call read by name.
    pub shown_secrets: Vec<PathBuf>,
    /// Paths that stay unwritable, as globs from deny rules and protected paths.
    pub deny_write: Vec<String>,
    /// Directories besides the project that may be written.
    pub write_roots: Vec<PathBuf>,
    /// Files and directories outside the project that rules let the call read.
    pub read_roots: Vec<PathBuf>,
}

/// The most time for a call that runs because of a proof.
pub const PROOF_TIMEOUT: Duration = Duration::from_secs(120);

impl Confinement {
    /// Whether something in the project stays unreadable.
    pub fn hides_something(&self) -> bool {
        self.hide_secrets || !self.deny_read.is_empty()
    }
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
