//! Messages between the agent and its helper, in the order in which they are sent.

/// Agent to launcher, with the three descriptors of a sandbox, or to the helper that
/// bubblewrap started: the plan.
pub(crate) const PLAN: u8 = 1;
/// Launcher to agent, or from inside bubblewrap on the sandbox's own socket: the first process
/// exists; a descriptor of it, and from the launcher its pid.
pub(crate) const SPAWNED: u8 = 2;
/// Helper to agent: the self-check passed; the layers seen in force and facts about limits,
/// with a descriptor for notifications of refused calls unless an outer sandbox already listens.
pub(crate) const CONFINED: u8 = 4;
/// Agent to helper: run the command now.
pub(crate) const GO: u8 = 5;
/// Helper to agent: the command runs; its pid as seen inside.
pub(crate) const STARTED: u8 = 6;
/// Agent to helper: send TERM to everything inside.
pub(crate) const TERMINATE: u8 = 7;
/// Helper to agent: the command ended and every other process inside is dead; 0 and its exit
/// code, or 1 and the signal; then how many packets found no way out of its network namespace.
pub(crate) const EXITED: u8 = 8;
/// Helper to agent: everything was killed because it used too much memory.
pub(crate) const OUT_OF_MEMORY: u8 = 9;
/// Helper to agent: nothing was run; the step that failed and the error number.
pub(crate) const FAILED: u8 = 10;
/// Agent to helper: kill everything inside, now.
pub(crate) const KILL: u8 = 11;
