//! From intent to observation: registry, gate, scheduler, result policy.
//!
//! The model proposes a [`ToolIntent`]; this crate looks the tool up, validates the input, asks for
//! permission, schedules, executes, normalises, bounds and records, and hands out an
//! [`Observation`]. Every step leaves its event in the [`Journal`], so that nothing is done that
//! the log does not tell.
//!
//! What this crate deliberately cannot do: it names no concrete tool, starts no process, speaks to
//! no model and knows nothing of async; tools are plain functions on threads. Nobody outside the
//! gate can build a [`ToolInvocation`], and nothing executes without one.
//!
//! Where to start: [`tool`] is what a tool has to say about itself, [`journal`] where facts go;
//! [`pipeline`] is what the calls of a session share, `call` the beginning of one, `admission` its gate
//! step, [`scheduler`] its execution and `conclusion` its end.

mod admission;
mod arguments;
pub mod authority;
mod base;
pub mod baseline;
mod call;
pub mod cancel;
mod conclusion;
pub mod context;
pub mod intent;
pub mod invocation;
pub mod journal;
pub mod observation;
pub mod open_call;
pub mod pipeline;
pub mod policy;
mod question;
pub mod registry;
pub mod result;
pub mod scheduler;
pub mod spelling;
pub mod tool;
pub mod wrapper;

pub use agent_policy::{
    CommandRequest, Confinement, PatchField, PathField, PermissionSemantics, ResourceAccess,
    Reveals, Subject, ToolDefinition, Tools, Workspace,
};
pub use authority::{Answer, Authority, Decision, PendingCall, PermissionRequest, Question};
pub use baseline::Baselines;
pub use cancel::{Cancel, CancelReason};
pub use context::{ExecutionContext, NormalizeContext, ProgressUpdate, RuntimeContext};
pub use intent::{IntentOrigin, ToolIntent};
pub use invocation::ToolInvocation;
pub use journal::{ArtifactWriter, Journal, JournalError, Recorded, Unrevealed};
pub use observation::{Observation, Outcome};
pub use open_call::{OpenCall, OpenCalls, OpenQuestion};
pub use pipeline::{Pipeline, PipelineParts, Settings};
pub use registry::{CatalogueRecord, Registered, RegistrationError, Registry};
pub use result::{Body, ExecutionFailure, Normalized, Omission, RawResult, ValidationFailure};
pub use scheduler::{Batch, BatchReport};
pub use spelling::{Field, Missing, Ours, Plain, Spelling, Spellings};
pub use tool::{Plan, Prepared, Preview, Tool, Visibility, VisibilityContext, WorkPhase};
