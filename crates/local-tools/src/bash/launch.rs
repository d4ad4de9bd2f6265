//! From a call's reach to a sandbox policy, and from the sandbox's words to the log's.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use agent_policy::GitWrites;
use agent_policy::gate::{PROTECTED_NAMES, Where};
use agent_protocol::Code;
use agent_protocol::id::ProcessId;
use agent_protocol::payload::process::{
    Detection, ProcessFailureCategory, ProcessLimits, SandboxApplied, SandboxLayer, SandboxStatus,
    SandboxViolation, ViolationKind,
};
use agent_sandbox::protected::{Names, Scope};
use agent_sandbox::{
    Command, EnforcementReport, Execution, LaunchError, Level, Limits, Mode, Network, Policy,
    ReadAccess, Sandbox, Violation, WriteAccess, WriteDenied, environment,
};
use agent_tool_runtime::{Cancel, Confinement};

use super::scan::{ChangeTracker, Purpose, Scan, ScanLimits};
use crate::deny::{DenyGlobs, at_home, plain};
use crate::search::denied_globs;

/// A program's own credentials, for commands that are given them.
#[derive(Clone)]
pub struct ServiceAccess {
    /// The name of the program.
    pub program: String,
    pub variables: Vec<(OsString, OsString)>,
    /// Where the program keeps them, if no variable holds any, and the variable that says so.
    pub directory: Option<(OsString, PathBuf)>,
}

impl ServiceAccess {
    /// What a command is shown, without a value.
    fn shown(&self) -> Vec<String> {
        let names = self
            .variables
            .iter()
            .map(|(name, _)| name.to_string_lossy());
        let place = self
            .directory
            .iter()
            .map(|(_, place)| place.to_string_lossy());
        names.chain(place).map(Cow::into_owned).collect()
    }
}

impl fmt::Debug for ServiceAccess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.program, self.shown().join(", "))
    }
}

/// Settings for all commands, decided once for the session.
#[derive(Clone, Debug)]
pub struct CommandSettings {
    /// The sandbox, shared by all commands of the session.
    pub sandbox: Arc<Sandbox>,
    /// Required, or off by the user's word.
    pub mode: Mode,
    /// The whole environment of commands; see `agent_sandbox::environment::build`.
    pub environment: Vec<(OsString, OsString)>,
    /// The user's home directory, hidden from commands.
    pub home: Option<PathBuf>,
    /// More directories and files that must look empty.
    pub hidden: Vec<PathBuf>,
    /// Directories bound back read-only over hidden ones.
    pub readable: Vec<PathBuf>,
    /// Credentials that are shown to commands which are given them, and to no other.
    pub services: Vec<ServiceAccess>,
    /// Directories besides the project that commands may write.
    pub writable: Vec<PathBuf>,
    /// Paths that commands may not write, besides the names that are always protected.
    pub protected: Vec<PathBuf>,
    /// Ceilings for one command.
    pub limits: Limits,
    /// Holds the log.
    pub session_dir: PathBuf,
    /// Directory of each command's private temporary directory and of the images of files.
    pub temporary: PathBuf,
    /// Bounds on the search for changes to project files.
    pub scan: ScanLimits,
    /// A command that prints more is ended.
    pub max_output_bytes: u64,
    /// The same for all commands of the session together.
    pub max_total_output_bytes: u64,
    /// For a command that asks for no time of its own.
    pub timeout: Duration,
    /// The most a command may ask for.
    pub max_timeout: Duration,
}

impl CommandSettings {
    /// The policy of a command that is no call of a tool but is confined as one: `private` becomes
    /// its `/tmp`. Looks through the project only where deny rules hide something in it.
    ///
    /// # Errors
    /// When the project cannot be looked at.
    pub fn policy(
        &self,
        workspace: &Path,
        cwd: &Path,
        private: &Path,
        command: Command,
        confinement: &Confinement,
    ) -> io::Result<Policy> {
        let confinement = &self.written_out(confinement);
        let hidden = if !confinement.hides_something() {
            Vec::new()
        } else {
            let denied = denied_globs(confinement, workspace);
            let tracker = ChangeTracker::new(&self.temporary, self.scan);
            let hides = |path: &[u8]| denied.hides(path);
            let cancel = Cancel::new();
            let scan = tracker.scan(workspace, &cancel, Purpose::Denied, Some(&hides), None)?;
            hidden(&scan, workspace, confinement)
        };
        let mut policy = policy(self, workspace, cwd, private, command, confinement);
        hide(&mut policy, self, hidden);
        Ok(policy)
    }

    /// The credentials that the call is given, if there are any.
    fn given(&self, confinement: &Confinement) -> Option<&ServiceAccess> {
        let service = confinement.service.as_ref()?;
        self.services
            .iter()
            .find(|access| access.program == *service)
    }

    /// What of credentials the call is shown, by name.
    pub(super) fn shown_credentials(&self, confinement: &Confinement) -> Vec<String> {
        let given = self.given(confinement);
        given.map(ServiceAccess::shown).unwrap_or_default()
    }

    /// The same reach with patterns that do not depend on the user any more.
    pub(super) fn written_out(&self, confinement: &Confinement) -> Confinement {
        let mut confinement = confinement.clone();
        let (read, write) = (&mut confinement.deny_read, &mut confinement.deny_write);
        for pattern in read.iter_mut().chain(write) {
            *pattern = at_home(pattern, self.home.as_deref());
        }
        confinement
    }
}

/// The temporary directory of one command, removed with it whatever the command did to it.
pub(super) struct Private(tempfile::TempDir);

impl Private {
    pub(super) fn new(place: &Path) -> io::Result<Self> {
        let made = tempfile::Builder::new()
            .prefix("command-")
            .tempdir_in(place);
        made.map(Self)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // What cannot be removed is only litter.
        let _ = agent_fs::remove_tree(self.0.path());
    }
}

/// The paths of the project that deny rules hide, and secrets where those are hidden.
pub(super) fn hidden(scan: &Scan, root: &Path, confinement: &Confinement) -> Vec<PathBuf> {
    let is_shown = |path: &PathBuf| {
        let mut shown = confinement.shown_secrets.iter();
        shown.any(|shown| shown.starts_with(path))
    };
    let denied = scan.denied.iter();
    denied
        .map(|path| root.join(crate::search::walk::as_path(path)))
        .filter(|path| !is_shown(path))
        .collect()
}

/// Hides these paths too, behind those that are hidden from every command.
pub(super) fn hide(policy: &mut Policy, settings: &CommandSettings, hidden: Vec<PathBuf>) {
    let at = settings.hidden.len();
    policy.hidden.splice(at..at, hidden);
}

/// More than any reader needs, for commands that run because of a proof. The bound on processes is the
/// lowest that the kernel takes for a whole namespace.
const PROOF_LIMITS: Limits = Limits {
    processes: Some(301),
    open_files: Some(1024),
    file_size: Some(256 << 20),
    data: Some(2 << 30),
    memory: Some(2 << 30),
    free_disk: None,
};
/// The same for what it prints.
pub(super) const PROOF_OUTPUT: u64 = 64 << 20;

/// The lower of each bound.
fn lower(set: &Limits, most: &Limits) -> Limits {
    fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
    Limits {
        processes: least(set.processes, most.processes),
        open_files: least(set.open_files, most.open_files),
        file_size: least(set.file_size, most.file_size),
        data: least(set.data, most.data),
        memory: least(set.memory, most.memory),
        free_disk: set.free_disk,
    }
}

/// Confines a command that was not allowed but proven to read only: the proof may be wrong.
fn confine_to_reading(policy: &mut Policy, own: &[PathBuf], opened: &[PathBuf]) {
    // What is the agent's own is opened to nobody.
    let own: Vec<PathBuf> = (own.iter())
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .collect();
    let is_own = |path: &PathBuf| own.iter().any(|own| path.starts_with(own));
    policy.read_access = ReadAccess::Needed {
        opened: opened
            .iter()
            .filter(|path| !is_own(path))
            .cloned()
            .collect(),
    };
    policy.execution = Execution::NothingOfTheProject;
    policy.limits = lower(&policy.limits, &PROOF_LIMITS);
    let writable = policy.writable.iter().cloned();
    let planted: Vec<PathBuf> = [policy.workspace.clone()]
        .into_iter()
        .chain(writable)
        .collect();
    policy.environment = environment::reading(&policy.environment, &planted);
}

/// The gate's list in the sandbox's words.
fn protected_names() -> Names {
    static NAMES: LazyLock<Names> = LazyLock::new(|| {
        Names::new(PROTECTED_NAMES.iter().map(|(name, _, counts)| {
            let place = match counts {
                Where::Anywhere => Scope::Anywhere,
                Where::Project => Scope::OutsideDependencies,
                Where::Root => Scope::Root,
                Where::RootRewritten => Scope::RootRewritten,
            };
            (*name, place)
        }))
    });
    NAMES.clone()
}

/// The policy of one command, without the paths of the project that are hidden from it.
pub(super) fn policy(
    settings: &CommandSettings,
    workspace: &Path,
    cwd: &Path,
    private: &Path,
    command: Command,
    confinement: &Confinement,
) -> Policy {
    let mut policy = Policy::new(workspace, &settings.session_dir, private, command);
    cwd.clone_into(&mut policy.cwd);
    policy.environment.clone_from(&settings.environment);
    policy.home.clone_from(&settings.home);
    policy.names = protected_names();
    // What lies elsewhere is hidden where a rule names it plainly: nobody searches the whole disk.
    let elsewhere = confinement.deny_read.iter();
    let elsewhere = elsewhere.filter_map(|pattern| plain(pattern, workspace));
    policy.hidden = [settings.hidden.clone(), elsewhere.collect()].concat();
    policy.readable.clone_from(&settings.readable);
    policy.writable = [settings.writable.clone(), confinement.write_roots.clone()].concat();
    policy.protected.clone_from(&settings.protected);
    let mut searched = Vec::new();
    for pattern in &confinement.deny_write {
        match plain(pattern, workspace) {
            Some(path) => policy.protected.push(path),
            None => searched.push(pattern.clone()),
        }
    }
    if !searched.is_empty() {
        let globs = DenyGlobs::with_directories(&searched, workspace);
        policy.denied = WriteDenied::new(move |path| globs.names(path));
    }
    policy.write_access = if !confinement.project_writable {
        WriteAccess::ReadOnly
    } else {
        match confinement.git {
            GitWrites::Nothing => WriteAccess::Workspace,
            GitWrites::Commits => WriteAccess::WorkspaceWithCommits,
            GitWrites::Everything => WriteAccess::WorkspaceWithGit,
        }
    };
    if confinement.git == GitWrites::Commits {
        policy.environment = environment::committing(&policy.environment);
    }
    policy.network = if confinement.network {
        Network::Host
    } else {
        Network::Off
    };
    policy.limits = settings.limits.clone();
    policy.mode = match &settings.mode {
        Mode::Required if confinement.unconfined => Mode::Off {
            reason: "this call was allowed to leave the sandbox".to_owned(),
        },
        mode => mode.clone(),
    };
    if confinement.by_proof {
        confine_to_reading(&mut policy, &settings.hidden, &confinement.read_roots);
    } else {
        policy.readable.extend_from_slice(&confinement.read_roots);
    }
    if let Some(access) = settings.given(confinement) {
        policy.environment.extend(access.variables.iter().cloned());
        if let Some((name, place)) = &access.directory {
            policy.environment.push((name.clone(), place.into()));
            policy.readable.push(place.clone());
        }
    }
    policy
}

/// The established sandbox, as a fact.
pub(super) fn applied(
    report: &EnforcementReport,
    profile: &str,
    timeout_ms: Option<u64>,
    secrets: Vec<String>,
) -> SandboxApplied {
    let texts = |paths: &[PathBuf]| {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
    };
    let limit = |name: &str| {
        report
            .limits
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    };
    SandboxApplied {
        profile_id: profile.to_owned(),
        mechanism: mechanism(report.level).to_owned(),
        abi: report.landlock_abi,
        status: match report.level {
            Level::Full | Level::NoLandlock | Level::Bubblewrap => SandboxStatus::Full,
            Level::Partial => SandboxStatus::Partial,
            // Also where it was switched off: `mechanism` is `none` then, and `reason` says why.
            Level::None => SandboxStatus::Unavailable,
        },
        layers: report
            .layers
            .iter()
            .map(|layer| SandboxLayer {
                name: layer.name().to_owned(),
                holds: true,
                detail: None,
            })
            .collect(),
        read_roots: texts(&report.readable),
        write_roots: texts(&report.writable),
        hidden: texts(&report.hidden),
        protected: texts(&report.protected),
        network: if report.network == Network::Host {
            "host"
        } else {
            "off"
        }
        .to_owned(),
        env_keys: report.environment_names.clone(),
        secrets,
        process_limits: ProcessLimits {
            processes: limit("processes"),
            open_files: limit("open_files"),
            file_bytes: limit("file_size"),
            data_bytes: limit("data"),
            output_bytes: None,
            timeout_ms,
        },
        cwd: report.cwd.display().to_string(),
        reason: (!report.notes.is_empty()).then(|| report.notes.join("; ")),
        report_hash: Some(report.hash()),
    }
}

/// Name of the mechanism that confines commands at a level.
pub(super) fn mechanism(level: Level) -> &'static str {
    match level {
        Level::Full => "namespaces+landlock+seccomp",
        Level::NoLandlock => "namespaces+seccomp",
        Level::Bubblewrap => "bubblewrap+landlock+seccomp",
        Level::Partial => "landlock+seccomp",
        Level::None => "none",
    }
}

/// A group of refusals, as a fact.
pub(super) fn violation(violation: &Violation, process_id: &ProcessId) -> SandboxViolation {
    SandboxViolation {
        kind: match violation.kind {
            agent_sandbox::Kind::Read => ViolationKind::Read,
            agent_sandbox::Kind::Write => ViolationKind::Write,
            agent_sandbox::Kind::Network => ViolationKind::Network,
            agent_sandbox::Kind::Privilege => ViolationKind::Syscall,
        },
        target: Some(violation.target.clone()),
        count: violation.count,
        detection: match violation.detection {
            agent_sandbox::Detection::SeccompNotification => Detection::SeccompNotification,
            agent_sandbox::Detection::BeforeAfterComparison => Detection::BeforeAfterComparison,
            agent_sandbox::Detection::KernelCounter => Detection::KernelCounter,
            agent_sandbox::Detection::NamedPath
            | agent_sandbox::Detection::InferredFromErrnoText => Detection::InferredFromOutput,
        },
        process_id: Some(process_id.clone()),
        permitted_by: Some(violation.permitted_by.name().to_owned()),
        ..SandboxViolation::default()
    }
}

/// Code and category of a launch that failed.
pub(super) fn failure(error: &LaunchError) -> (Code, ProcessFailureCategory) {
    match error {
        LaunchError::Unavailable { .. } | LaunchError::Step { .. } | LaunchError::Policy { .. } => {
            (Code::SandboxUnavailable, ProcessFailureCategory::Sandbox)
        }
        _ => (Code::SpawnFailed, ProcessFailureCategory::Spawn),
    }
}

/// An error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
