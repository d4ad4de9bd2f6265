//! Everything the engine knows, folded from events. Live and after a restart it is the same fold
//! over the same lines.
//!
//! [`ThreadState`] is what one thread knows: conversation, fact sheet, facts of its turn.
//! [`SessionState`] is what all threads share: cost, requests, open questions and calls. Versions of
//! files and path locks are shared too; the tool runtime keeps them ([`Baselines`], [`Pipeline`]).
//!
//! [`ChildThreads`] has the rule by which events belong to threads.
//!
//! [`Baselines`]: agent_tool_runtime::Baselines
//! [`Pipeline`]: agent_tool_runtime::Pipeline
//! [`ChildThreads`]: agent_history::fold::ChildThreads

mod session;
mod thread;
mod turn;

pub use session::{Cost, SessionState};
pub use thread::ThreadState;
pub use turn::{CommandRun, TurnFacts, VerificationRun};

/// True if events of a class can change a state, or what the tools and the authority remember. The
/// others are much of a long log, and need not be parsed to resume it.
#[must_use]
pub fn depends_on(type_name: &str) -> bool {
    !matches!(
        type_name,
        "artifact.changed"
            | "model.delta"
            | "output.redacted"
            | "output.spilled"
            | "process.output"
            | "reasoning.delta"
            | "reasoning.summary"
            | "routing.candidates.resolved"
            | "routing.decided"
            | "routing.single_candidate"
            | "run.status"
            | "sandbox.applied"
            | "thread.updated"
            | "tool.progress"
    )
}
