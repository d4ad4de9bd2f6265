//! Report of what is in force around one command, established before it starts.

use std::path::PathBuf;

use crate::policy::Network;

/// Strength of the confinement, from strong to weak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Namespaces, mounts, Landlock and seccomp.
    Full,
    /// The same without Landlock, which this kernel lacks.
    NoLandlock,
    /// Namespaces and mounts made by an installed `bwrap`, Landlock and seccomp by us.
    Bubblewrap,
    /// Landlock and seccomp only: protected paths are merely compared, file modes outside the
    /// workspace can change, processes may outlive the call.
    Partial,
    /// Nothing.
    None,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NoLandlock => "no_landlock",
            Self::Bubblewrap => "bubblewrap",
            Self::Partial => "partial",
            Self::None => "none",
        }
    }

    /// True if a command may run at this level without a person's approval.
    pub fn may_run_unasked(self) -> bool {
        matches!(self, Self::Full | Self::NoLandlock | Self::Bubblewrap)
    }
}

/// One mechanism, named as in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    UserNamespace,
    MountNamespace,
    PidNamespace,
    IpcNamespace,
    UtsNamespace,
    NetworkNamespace,
    CgroupNamespace,
    ReadOnlyRoot,
    NoCapabilities,
    NoNewPrivileges,
    Landlock,
    Seccomp,
    ResourceLimits,
    ControlGroup,
    /// Nothing of the project can be executed.
    ProjectNotExecutable,
    /// Only the project, what programs need and what was opened is there.
    MachineHidden,
}

impl Layer {
    pub fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::UtsNamespace => "uts_namespace",
            Self::NetworkNamespace => "network_namespace",
            Self::CgroupNamespace => "cgroup_namespace",
            Self::ReadOnlyRoot => "read_only_root",
            Self::NoCapabilities => "no_capabilities",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::ResourceLimits => "resource_limits",
            Self::ControlGroup => "control_group",
            Self::ProjectNotExecutable => "project_not_executable",
            Self::MachineHidden => "machine_hidden",
        }
    }

    pub(crate) const ALL: [Self; 16] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::NetworkNamespace,
        Self::CgroupNamespace,
        Self::ReadOnlyRoot,
        Self::NoCapabilities,
        Self::NoNewPrivileges,
        Self::Landlock,
        Self::Seccomp,
        Self::ResourceLimits,
        Self::ControlGroup,
        Self::ProjectNotExecutable,
        Self::MachineHidden,
    ];
}

/// The facts behind `sandbox.applied`. The layers are those the helper saw in force from
/// inside, not those it was asked to set up; the control group is the one we put it into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnforcementReport {
    pub level: Level,
    pub layers: Vec<Layer>,
    pub landlock_abi: Option<u32>,
    /// Directories that look empty inside.
    pub hidden: Vec<PathBuf>,
    /// Directories bound back read-only over hidden ones.
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    /// Existing protected paths, read-only inside (at level `partial`: compared only).
    pub protected: Vec<PathBuf>,
    /// False when the search for nested repositories stopped at its bound.
    pub protected_search_complete: bool,
    pub network: Network,
    /// Name and value of each limit in force.
    pub limits: Vec<(&'static str, u64)>,
    pub environment_names: Vec<String>,
    pub cwd: PathBuf,
    /// The user the command runs as.
    pub uid: u32,
    /// Reasons why the level is not `full`, and other remarks for a reader.
    pub notes: Vec<String>,
}

impl EnforcementReport {
    /// A hash over all of the above, so that a later reader can tell two reports apart.
    pub fn hash(&self) -> String {
        let mut text = format!("{:?}", self.level);
        for layer in &self.layers {
            text.push_str(layer.name());
            text.push('\n');
        }
        text.push_str(&format!(
            "{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{}{:?}",
            self.landlock_abi,
            self.hidden,
            self.readable,
            self.writable,
            self.protected,
            self.protected_search_complete,
            self.network,
            self.limits,
            self.environment_names,
            self.cwd,
            self.uid,
            self.notes,
        ));
        format!("sha256:{}", agent_text::sha256_hex(text.as_bytes()))
    }
}
