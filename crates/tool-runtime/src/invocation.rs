//! A call that was validated and authorised. Holding a [`ToolInvocation`] is the proof.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_protocol::id::{IntentId, InvocationId, ToolCallId};
use serde_json::Value;

use crate::tool::Plan;
use agent_policy::Confinement;

/// An authorised call. Only the gate step of the pipeline builds one, executing consumes it, and it
/// cannot be copied: so it runs once.
///
/// Nobody else can build one; with one in hand it can be executed:
/// ```
/// use agent_tool_runtime::{ExecutionContext, Tool, ToolInvocation};
/// fn once(tool: &dyn Tool, invocation: ToolInvocation, context: &ExecutionContext) {
///     let _ = tool.execute(invocation, context);
/// }
/// ```
/// but not twice,
/// ```compile_fail,E0382
/// use agent_tool_runtime::{ExecutionContext, Tool, ToolInvocation};
/// fn twice(tool: &dyn Tool, invocation: ToolInvocation, context: &ExecutionContext) {
///     let _ = tool.execute(invocation, context);
///     let _ = tool.execute(invocation, context);
/// }
/// ```
/// nor a copy of it,
/// ```compile_fail,E0308
/// use agent_tool_runtime::{ExecutionContext, Tool, ToolInvocation};
/// fn copied(tool: &dyn Tool, invocation: &ToolInvocation, context: &ExecutionContext) {
///     let _ = tool.execute(invocation.clone(), context);
/// }
/// ```
/// and its constructor and fields are out of reach:
/// ```compile_fail,E0624
/// use agent_tool_runtime::{ExecutionContext, Tool, ToolInvocation};
/// fn made_up(tool: &dyn Tool, context: &ExecutionContext) {
///     let _ = tool.execute(ToolInvocation::admit(unreachable!()), context);
/// }
/// ```
/// ```compile_fail,E0451
/// use agent_tool_runtime::{ExecutionContext, Tool, ToolInvocation};
/// fn changed(tool: &dyn Tool, invocation: ToolInvocation, context: &ExecutionContext) {
///     let other = ToolInvocation { raw_input: serde_json::Value::Null, ..invocation };
///     let _ = tool.execute(other, context);
/// }
/// ```
pub struct ToolInvocation {
    invocation_id: InvocationId,
    intent_id: IntentId,
    tool_call_id: ToolCallId,
    raw_input: Value,
    input: Box<dyn Any + Send + Sync>,
    confinement: Confinement,
    plan: Plan,
    cwd: PathBuf,
}

/// What the gate step puts into an invocation.
pub(crate) struct Admitted {
    pub(crate) invocation_id: InvocationId,
    pub(crate) intent_id: IntentId,
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) raw_input: Value,
    pub(crate) input: Box<dyn Any + Send + Sync>,
    pub(crate) confinement: Confinement,
    pub(crate) plan: Plan,
    pub(crate) cwd: PathBuf,
}

impl ToolInvocation {
    /// The end of the gate step; nothing else in the crate calls this.
    pub(crate) fn admit(admitted: Admitted) -> Self {
        Self {
            invocation_id: admitted.invocation_id,
            intent_id: admitted.intent_id,
            tool_call_id: admitted.tool_call_id,
            raw_input: admitted.raw_input,
            input: admitted.input,
            confinement: admitted.confinement,
            plan: admitted.plan,
            cwd: admitted.cwd,
        }
    }

    #[must_use]
    pub fn invocation_id(&self) -> &InvocationId {
        &self.invocation_id
    }

    #[must_use]
    pub fn intent_id(&self) -> &IntentId {
        &self.intent_id
    }

    #[must_use]
    pub fn tool_call_id(&self) -> &ToolCallId {
        &self.tool_call_id
    }

    /// The typed input the tool's `validate` made; nothing if that was of another type.
    #[must_use]
    pub fn input<T: 'static>(&self) -> Option<&T> {
        self.input.downcast_ref()
    }

    /// Takes the typed input out; the invocation is used up.
    #[must_use]
    pub fn into_input<T: 'static>(self) -> Option<Box<T>> {
        self.input.downcast().ok()
    }

    /// The input as the model gave it, or as the user edited it.
    #[must_use]
    pub fn raw_input(&self) -> &Value {
        &self.raw_input
    }

    /// How far the call may reach.
    #[must_use]
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.plan.timeout
    }

    #[must_use]
    pub fn background(&self) -> bool {
        self.plan.background
    }

    /// Absolute.
    #[must_use]
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }
}
