//! Policy in, confined process out.
//!
//! One command at a time is given namespaces, mounts, Landlock, seccomp and limits of its
//! own, its output is passed on, and its whole process tree ends with it. The crate decides
//! nothing about permission, keeps no log, reads neither environment nor home directory, and
//! runs no command whose confinement it could not see from inside. It is the only crate with
//! `unsafe`.
//!
//! Start reading at [`Policy`], then [`prepare`], which starts this same binary as the helper
//! in `helper/`, where the confinement happens.

mod policy;
mod probe;
mod report;
mod violation;

pub mod environment;
pub mod protected;
pub mod tool_dirs;

mod draw;
mod git_link;
mod plan;
mod secrets;
mod syscalls;
mod watch;

mod message;
mod wire;

mod launch;
mod listener;
mod running;

mod helper;

pub use helper::dispatch_helper;
pub use launch::{Confined, LaunchError, prepare, spawn};
pub use policy::{Command, Limits, Mode, Network, Policy, WriteAccess};
pub use probe::{Capabilities, Feature, Finding, probe};
pub use report::{EnforcementReport, Layer, Level};
pub use running::{ExitStatus, Finished, GRACE, KilledBy, Running, Sink, Stream};
pub use violation::{Detection, Kind, Permit, Quarantined, Violation};
