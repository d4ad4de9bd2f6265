//! The trait of all tools, and what it works on. A tool as data is [`ToolDefinition`].

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use agent_protocol::payload::tool::{Baseline, CallFlags};
use agent_protocol::status::Mode;
use serde_json::Value;

use crate::context::{ExecutionContext, NormalizeContext, RuntimeContext};
use crate::invocation::ToolInvocation;
use crate::result::{ExecutionFailure, Normalized, RawResult, ValidationFailure};
use agent_policy::{PermissionSemantics, ToolDefinition};

/// A capability the model can ask for. The pipeline calls the methods in the order they stand here;
/// `execute` is never the first. A tool holds no allow or deny code: it says what a call would
/// touch, and the gate decides.
pub trait Tool: Send + Sync {
    /// Everything known about the tool before any call.
    fn definition(&self) -> &ToolDefinition;

    /// Answers whether the tool can be used in this session, mode and phase. The pipeline checks this again
    /// for every call, whatever the model was shown.
    fn visibility(&self, context: &VisibilityContext) -> Visibility {
        Visibility::of_mode(self.definition(), context.mode)
    }

    /// True if [`execute`](Self::execute) looks around first and calls [`ExecutionContext::sync`]
    /// itself before its first effect. For any other tool that changes something, the pipeline waits
    /// for the disk before it starts.
    fn syncs_before_effects(&self) -> bool {
        false
    }

    /// Checks an input that already fits the schema against the state of the world, and says what
    /// the call would touch. Changes nothing. It is called again right before execution when time
    /// has passed, so it must give the same answer for the same state.
    ///
    /// # Errors
    /// When the call cannot be carried out as things stand.
    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure>;

    /// Does it. Runs on a thread of its own; a panic becomes `internal_error`. Anything that waits
    /// watches [`ExecutionContext::cancel`].
    ///
    /// # Errors
    /// When there is no result; the failure says whether anything changed.
    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure>;

    /// Puts a raw result into words: facts, no advice. Bounding, escaping and marking as untrusted
    /// is done by the result policy afterwards.
    fn normalize(&self, raw: &RawResult, context: &NormalizeContext<'_>) -> Normalized;
}

/// Circumstances that the visibility of a tool may depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisibilityContext {
    pub mode: Mode,
    pub phase: WorkPhase,
    /// Tools this session was started without, by name.
    pub disabled: Vec<String>,
    /// Tools that cannot be used now, with the reason as the end of a sentence.
    pub unavailable: BTreeMap<String, String>,
    /// True if the model of the turn writes its changes as patches.
    pub takes_patches: bool,
}

/// Phase of the session's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkPhase {
    /// Ordinary work.
    #[default]
    Work,
    /// A plan is made; nothing is changed yet.
    Plan,
}

/// Answer to whether a tool can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    Visible,
    /// Not on the menu, because another tool does the same for this model; a call of it is run.
    Unlisted,
    /// Not now, and why, as the end of a sentence.
    Hidden {
        reason: String,
    },
}

impl Visibility {
    /// What the mode makes of a tool: read-only hides what changes things.
    #[must_use]
    pub fn of_mode(definition: &ToolDefinition, mode: Mode) -> Self {
        if mode.only_reads() && !definition.is_read_only {
            return Self::Hidden {
                reason: format!("it changes things, and the mode is {mode}"),
            };
        }
        Self::Visible
    }

    /// The same, off the menu unless `listed`.
    #[must_use]
    pub fn listed_if(self, listed: bool) -> Self {
        match self {
            Self::Visible if !listed => Self::Unlisted,
            other => other,
        }
    }
}

/// An input that can be carried out as things stand, and what it would touch.
pub struct Prepared {
    /// The tool's own typed input; it comes back by [`ToolInvocation::input`].
    pub input: Box<dyn Any + Send + Sync>,
    /// The paths the call is about, relative to the project root where they are inside it.
    pub normalised_paths: Vec<String>,
    /// What the gate decides from.
    pub semantics: PermissionSemantics,
    pub plan: Plan,
    /// The same kinds of facts as in the definition, but of this very call.
    pub flags: CallFlags,
    /// The file versions the call rests on; an approval holds for these only.
    pub baselines: Vec<Baseline>,
    /// What a person should see before deciding.
    pub preview: Option<Preview>,
}

/// Wishes of a call for its run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// For keyed tools: calls with the same key never overlap.
    pub lock_key: Option<String>,
    pub timeout: Option<Duration>,
    /// True if the work goes on after the call has returned.
    pub background: bool,
    /// Where it runs; empty means the project root.
    pub cwd: Option<String>,
}

/// Change as a person sees it before deciding, kept as an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// A unified diff.
    pub diff: Vec<u8>,
}
