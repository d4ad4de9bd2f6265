//! Policy of a sandbox: one command and everything it may reach.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protected::Names;
use crate::search::{FoundNames, NameSearch};

/// One command and its reach. Everything here was decided at the start of the session or by
/// the gate; nothing is read from the environment, the home directory or the workspace itself.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The project. Absolute; it is resolved once and then bound by descriptor.
    pub workspace: PathBuf,
    /// Working directory of the command; inside the workspace.
    pub cwd: PathBuf,
    pub command: Command,
    /// The whole environment of the command; see [`crate::environment::build`]. `HOME` and
    /// `TMPDIR` are added when absent and point into the private temporary directory; without a sandbox
    /// `HOME` is the user's.
    pub environment: Vec<(OsString, OsString)>,
    /// The user's home directory, hidden from the command.
    pub home: Option<PathBuf>,
    /// More directories and files that must look empty: the read deny list.
    pub hidden: Vec<PathBuf>,
    /// Directories bound back read-only over hidden ones; see [`crate::tool_dirs::find`].
    pub readable: Vec<PathBuf>,
    /// Writable directories besides the workspace, from the user's own configuration.
    pub writable: Vec<PathBuf>,
    /// The names that make something run later.
    pub names: Names,
    /// Protected paths besides those names, relative to the workspace or inside it.
    pub protected: Vec<PathBuf>,
    /// Protected by what a rule says of them, wherever they are in what may be written.
    pub denied: WriteDenied,
    /// Protected names in the workspace, if a walk of the caller's has looked for them already; see
    /// [`crate::NameSearch::before`].
    pub found_names: Option<FoundNames>,
    /// Walk over the workspace that the caller makes when the command has ended.
    pub walk_after: Option<WorkspaceWalk>,
    pub write_access: WriteAccess,
    pub read_access: ReadAccess,
    pub execution: Execution,
    /// Files that are shown in place of others, read-only: which one, and where.
    pub replaced: Vec<(PathBuf, PathBuf)>,
    pub network: Network,
    pub limits: Limits,
    /// Holds the log. Never writable from inside; what the comparison after the run removes
    /// from the workspace goes to its folder `quarantine`.
    pub session_dir: PathBuf,
    /// Becomes `/tmp` inside. Outside every hidden and every writable directory of the host; the caller creates and removes it.
    pub private_tmp: PathBuf,
    /// Have bash report the status of every member of the script's last pipeline; see
    /// [`crate::Finished::pipe_status`]. Only for [`Command::Shell`].
    pub report_pipeline: bool,
    pub mode: Mode,
}

impl Policy {
    /// The tightest policy that can still build a project: workspace writable, metadata
    /// read-only, no network.
    pub fn new(workspace: &Path, session_dir: &Path, private_tmp: &Path, command: Command) -> Self {
        Self {
            workspace: workspace.to_owned(),
            cwd: workspace.to_owned(),
            command,
            environment: Vec::new(),
            home: None,
            hidden: Vec::new(),
            readable: Vec::new(),
            writable: Vec::new(),
            names: Names::default(),
            protected: Vec::new(),
            denied: WriteDenied::default(),
            found_names: None,
            walk_after: None,
            write_access: WriteAccess::Workspace,
            read_access: ReadAccess::Machine,
            execution: Execution::Anything,
            replaced: Vec::new(),
            network: Network::Off,
            limits: Limits::default(),
            session_dir: session_dir.to_owned(),
            private_tmp: private_tmp.to_owned(),
            report_pipeline: false,
            mode: Mode::Required,
        }
    }
}

/// Predicate for files and directories that rules deny to change, by absolute path. It is not
/// called for what is below a named directory.
#[derive(Clone, Default)]
pub struct WriteDenied(Option<Arc<Denies>>);

type Denies = dyn Fn(&Path) -> bool + Send + Sync;

impl WriteDenied {
    pub fn new(names: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(names)))
    }

    /// True if there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn names(&self, path: &Path) -> bool {
        self.0.as_ref().is_some_and(|names| names(path))
    }
}

impl fmt::Debug for WriteDenied {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_empty() {
            "nothing"
        } else {
            "by rules"
        })
    }
}

/// Walk over a workspace that its owner makes anyway, so that the search for protected names needs none of its own.
#[derive(Clone)]
pub struct WorkspaceWalk(Arc<Shows>);

type Shows = dyn Fn(&NameSearch) -> bool + Send + Sync;

impl WorkspaceWalk {
    /// `show` walks through the workspace and shows the search every directory that it wants to see; false if it
    /// could not.
    pub fn new(show: impl Fn(&NameSearch) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(show))
    }

    pub(crate) fn show(&self, search: &NameSearch) -> bool {
        (self.0)(search)
    }
}

impl fmt::Debug for WorkspaceWalk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the caller's")
    }
}

/// Command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Exactly these bytes, by `bash --noprofile --norc -c`.
    Shell(Vec<u8>),
    /// A program, looked up in the policy's `PATH` when it has no slash.
    Program {
        program: OsString,
        arguments: Vec<OsString>,
    },
}

/// Part of the workspace that a command may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAccess {
    /// Nothing but its private temporary directory.
    ReadOnly,
    /// The workspace without its protected paths.
    Workspace,
    /// Also git's own data as far as commits need it: neither hooks and configuration nor `info` and unfinished
    /// rebases, which hide files and list commands.
    WorkspaceWithCommits,
    /// Also the rest of git's own data; hooks and configuration stay read-only.
    WorkspaceWithGit,
}

impl WriteAccess {
    /// True if git may write its own data.
    pub(crate) fn writes_git(self) -> bool {
        matches!(self, Self::WorkspaceWithCommits | Self::WorkspaceWithGit)
    }
}

/// Part of the machine that a command may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadAccess {
    /// Everything that is not hidden.
    Machine,
    /// The workspace, what programs of the system need to start, what is readable or writable by the
    /// policy, and `opened`: files and directories that it was decided to read.
    Needed { opened: Vec<PathBuf> },
}

/// Files that a command may execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    Anything,
    /// Nothing of the workspace, of other directories that commands may write, or of the temporary
    /// directories: only what the user's own system and tool directories hold.
    NothingOfTheProject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// A loopback of its own and nothing else.
    Off,
    /// The host's network for this one command. UNIX sockets stay closed.
    Host,
}

/// Choice between confinement and none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Required,
    /// No confinement, on the word of the user's own or managed configuration.
    Off {
        reason: String,
    },
}

/// Bounds on what one command can use up. `None` leaves the host's own bound in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Processes and threads at one time.
    pub processes: Option<u32>,
    pub open_files: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
    /// Bytes of private memory of one process.
    pub data: Option<u64>,
    /// Resident bytes of all processes together: checked four times a second, and enforced by
    /// the kernel where the command has a control group.
    pub memory: Option<u64>,
    /// The command is killed when the workspace's file system has less room than this.
    pub free_disk: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            processes: Some(1024),
            open_files: Some(4096),
            file_size: Some(4 * GIB),
            data: Some(4 * GIB),
            memory: Some(8 * GIB),
            free_disk: Some(GIB / 4),
        }
    }
}
