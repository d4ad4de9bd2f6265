//! Policy in, confined process out.
//!
//! One command at a time is given namespaces, mounts, Landlock, seccomp and limits of its
//! own, its output is passed on, and its whole process tree ends with it. The crate decides
//! nothing about permission, keeps no log, reads neither environment nor home directory, and
//! runs no command whose confinement it could not see from inside. It is the only crate with
//! `unsafe`.
//!
//! Start reading at [`Policy`], then [`Sandbox`], which starts this same binary once as the
//! launcher in `helper/` and forks a sandbox from it for every command.

mod policy;
mod probe;
mod report;
mod violation;

pub mod environment;
pub mod protected;
pub mod tool_dirs;

mod backup;
mod compile;
mod executable;
mod git_data;
mod git_link;
mod infer;
mod plan;
mod protect_mounts;
mod protected_dir;
mod search;
mod secrets;
mod syscalls;
mod view;
mod watch;

mod message;
mod pipeline;
mod wire;

mod control_group;
mod launch;
mod launcher;
mod listener;
mod running;
mod session;
mod streams;

mod helper;

pub use helper::dispatch_helper;
pub use launch::{Confined, LaunchError, prepare, spawn};
pub use policy::{
    Command, Execution, Limits, Mode, Network, Policy, ReadAccess, WorkspaceWalk, WriteAccess,
    WriteDenied,
};
pub use probe::{Capabilities, Feature, Finding, probe};
pub use report::{EnforcementReport, Layer, Level};
pub use running::{ExitStatus, ExternalWrites, Finished, GRACE, KilledBy, Running, Sink, Stream};
pub use search::{FoundNames, NameSearch};
pub use session::Sandbox;
pub use violation::{Detection, Kind, Permit, Quarantined, Violation};
