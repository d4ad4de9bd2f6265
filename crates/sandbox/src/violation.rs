//! Facts about what a command tried and was refused, and how each was noticed.

use std::path::PathBuf;

/// A group of refused attempts. An empty list is no claim that nothing was attempted: file
/// accesses refused by mounts or Landlock leave no trace that this program can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    /// The system call, the path or the line of output, as text for people.
    pub target: String,
    pub count: u64,
    pub detection: Detection,
    /// The one setting that would have permitted it.
    pub permitted_by: Permit,
    /// True for attempts that ordinary programs make without meaning anything by it, such as
    /// asking a name-service cache that is not there.
    pub expected: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Read,
    Write,
    Network,
    /// A call into the kernel that no build or test needs.
    Privilege,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Network => "network",
            Self::Privilege => "privilege",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    /// Seccomp notified us of the call and we refused it.
    SeccompNotification,
    /// A protected path differed after the run.
    BeforeAfterComparison,
    /// The kernel counted it in the command's own network namespace.
    KernelCounter,
    /// An error in the output names a path that the policy keeps from the command.
    NamedPath,
    /// The command printed an error that reads like a refusal. A guess.
    InferredFromErrnoText,
}

impl Detection {
    pub fn name(self) -> &'static str {
        match self {
            Self::SeccompNotification => "seccomp_notification",
            Self::BeforeAfterComparison => "before_after_comparison",
            Self::KernelCounter => "kernel_counter",
            Self::NamedPath => "named_path",
            Self::InferredFromErrnoText => "inferred_from_errno_text",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// `network = true` for this command.
    Network,
    /// Permission to write git's data.
    GitWrite,
    /// A directory in the user's list of writable ones.
    WritableRoot,
    /// A directory in the user's list of readable ones.
    ReadableRoot,
    /// A call that may write the project.
    ProjectWrite,
    /// Rules that do not deny writing it.
    NoDenyRule,
    /// Only a command outside the sandbox could do this.
    SandboxOff,
}

impl Permit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network = true",
            Self::GitWrite => "git write access",
            Self::WritableRoot => "sandbox.writable",
            Self::ReadableRoot => "sandbox.readable",
            Self::ProjectWrite => "write access to the project",
            Self::NoDenyRule => "no deny rule for it",
            Self::SandboxOff => "sandbox = \"off\"",
        }
    }
}

/// Something the comparison after a run took out of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Former path, relative to the workspace.
    pub path: PathBuf,
    /// Path in quarantine; `None` if it could not be moved.
    pub moved_to: Option<PathBuf>,
}
