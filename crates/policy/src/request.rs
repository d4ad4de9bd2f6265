//! What a call asks for and how far it may reach, in words that any tool can use.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::payload::permission::{Access, ActionClass, Resource};

use crate::shell::{Analysis, Start, analyse};

/// The directories the session works in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// The project root, canonical.
    pub root: PathBuf,
    /// Further directories the user opened to the session, canonical.
    pub extra_roots: Vec<PathBuf>,
}

/// What a call would do; no more than the gate needs to decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PermissionSemantics {
    pub action_class: ActionClass,
    pub resources: Vec<ResourceAccess>,
    /// The shell text, for tools that run one.
    pub command: Option<CommandRequest>,
    /// Whether the call asks for the network.
    pub network: bool,
    /// Whether the call asks to run outside the sandbox.
    pub leaves_sandbox: bool,
    /// Whether what it writes does not exist yet.
    pub creates: bool,
    /// Facts a person should know before deciding, as short sentences.
    pub risk_facts: Vec<String>,
}

impl PermissionSemantics {
    /// The hosts it connects to, as addresses.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let resources = self.resources.iter();
        let hosts = resources.filter(|resource| resource.access == Access::Connect);
        hosts.map(|host| host.given.as_str())
    }
}

/// Something a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceAccess {
    pub access: Access,
    /// As the model wrote it.
    pub given: String,
    /// With `..` and symlinks resolved.
    pub resolved: Option<PathBuf>,
}

impl ResourceAccess {
    /// The form the log holds.
    #[must_use]
    pub fn to_resource(&self) -> Resource {
        Resource {
            access: self.access,
            given: self.given.clone(),
            resolved: self
                .resolved
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned()),
        }
    }
}

/// A command as it would be given to the shell.
#[derive(Clone, Debug)]
pub struct CommandRequest {
    pub text: String,
    /// Absolute.
    pub cwd: PathBuf,
    /// Reading of the text, once there is one; it travels with the call.
    analysis: Option<Arc<Analysis>>,
}

impl CommandRequest {
    /// A command that nobody has read yet.
    #[must_use]
    pub fn new(text: impl Into<String>, cwd: PathBuf) -> Self {
        Self {
            text: text.into(),
            cwd,
            analysis: None,
        }
    }

    /// The command that was read.
    #[must_use]
    pub fn analysed(analysis: Arc<Analysis>, cwd: PathBuf) -> Self {
        Self {
            text: analysis.script.clone(),
            cwd,
            analysis: Some(analysis),
        }
    }

    /// The reading that the command came with while it holds, or a new one.
    pub(crate) fn reading(&self, start: &Start<'_>) -> Arc<Analysis> {
        let known = self.analysis.as_ref();
        let known = known.filter(|known| known.script == self.text && known.holds(start));
        known.map_or_else(|| Arc::new(analyse(&self.text, start)), Arc::clone)
    }
}

/// The same command in the same place, whether it was read or not.
impl PartialEq for CommandRequest {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.cwd) == (&other.text, &other.cwd)
    }
}

/// How far a started call may reach. Neutral words: the tool that starts processes turns them into
/// a sandbox policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Names the profile in the log and in the approval binding.
    pub profile: String,
    /// It does no more than read, by a proof. The proof may be wrong, so nothing of the project is executed, and
    /// secrets, the rest of the machine, time, memory and output are kept from it. Nobody had to allow the call, unless
    /// it is given a service.
    pub by_proof: bool,
    /// A program that is shown its own credentials, because somebody said so.
    pub service: Option<String>,
    /// Whether the project may be written.
    pub project_writable: bool,
    /// How far git may write its own data.
    pub git: GitWrites,
    pub network: bool,
    /// Whether the host it names may be one that is not everybody's: this machine, its network.
    pub reaches_private: bool,
    /// Run without a sandbox: an explicit grant of its own.
    pub unconfined: bool,
    /// Paths that stay unreadable, as globs from deny rules.
    pub deny_read: Vec<String>,
    /// Files of the project whose names are those of secrets (`gate::is_secret`) stay unreadable too.
    pub hide_secrets: bool,
    /// Except these, which a rule lets the call read by name.
    pub shown_secrets: Vec<PathBuf>,
    /// Paths that stay unwritable, as globs from deny rules and protected paths.
    pub deny_write: Vec<String>,
    /// Directories besides the project that may be written.
    pub write_roots: Vec<PathBuf>,
    /// Files and directories outside the project that rules let the call read.
    pub read_roots: Vec<PathBuf>,
}

/// What a command may change of what git keeps in `.git`. Its configuration and hooks are never among it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GitWrites {
    #[default]
    Nothing,
    /// What commits need, while nothing runs that the repository names: nobody was asked.
    Commits,
    /// All of it, and hooks run: somebody allowed it.
    Everything,
}

/// The most time for a call that runs because of a proof.
pub const PROOF_TIMEOUT: Duration = Duration::from_secs(120);

impl Confinement {
    /// Whether something in the project stays unreadable.
    pub fn hides_something(&self) -> bool {
        self.hide_secrets || !self.deny_read.is_empty()
    }
}
