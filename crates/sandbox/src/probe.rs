//! What this machine can enforce, found by trying.

use std::path::{Path, PathBuf};

use crate::launch::{LaunchError, prepare};
use crate::policy::{Command, Policy};
use crate::report::Level;

/// Present with a value, or absent with the reason in words.
pub type Finding<T> = Result<T, String>;

/// One mechanism that a level may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    UserNamespaces,
    Landlock,
    Seccomp,
    Bubblewrap,
    Cgroup,
}

/// What can be enforced here, each absence with its reason. Probed once, then passed to every
/// launch; a launch that cannot keep what was found fails and runs nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    pub user_namespaces: Finding<()>,
    /// The ABI version.
    pub landlock: Finding<u32>,
    pub seccomp: Finding<()>,
    pub bubblewrap: Finding<PathBuf>,
    /// A control group of our own to put commands in.
    pub cgroup: Finding<PathBuf>,
}

impl Capabilities {
    /// The strongest level these allow.
    pub fn level(&self) -> Level {
        match (
            &self.user_namespaces,
            &self.landlock,
            &self.seccomp,
            &self.bubblewrap,
        ) {
            (Ok(()), Ok(_), Ok(()), _) => Level::Full,
            (Ok(()), Err(_), Ok(()), _) => Level::NoLandlock,
            (Err(_), Ok(_), Ok(()), Ok(_)) => Level::Bubblewrap,
            (Err(_), Ok(_), Ok(()), Err(_)) => Level::Partial,
            _ => Level::None,
        }
    }

    /// The same machine with one mechanism switched off; for tests and for a careful user.
    #[must_use]
    pub fn without(mut self, feature: Feature) -> Self {
        let reason = || String::from("switched off");
        match feature {
            Feature::UserNamespaces => self.user_namespaces = Err(reason()),
            Feature::Landlock => self.landlock = Err(reason()),
            Feature::Seccomp => self.seccomp = Err(reason()),
            Feature::Bubblewrap => self.bubblewrap = Err(reason()),
            Feature::Cgroup => self.cgroup = Err(reason()),
        }
        self
    }

    /// Why the level is not full, in words for a person; empty at level full.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut note = |name: &str, reason: Option<&String>| {
            if let Some(reason) = reason {
                reasons.push(format!("{name}: {reason}"));
            }
        };
        note("user namespaces", self.user_namespaces.as_ref().err());
        note("Landlock", self.landlock.as_ref().err());
        note("seccomp", self.seccomp.as_ref().err());
        if self.user_namespaces.is_err() {
            note("bubblewrap", self.bubblewrap.as_ref().err());
        }
        reasons
    }
}

/// The oldest Landlock that covers what we rely on: renames between directories, truncation.
const LEAST_LANDLOCK: u32 = 3;

/// Fixed places: the search path is not ours to trust.
const BUBBLEWRAP: [&str; 2] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"];

/// Finds out what can be enforced, by building a whole sandbox with nothing in it. Works in
/// new folders below `scratch` and removes them again.
pub fn probe(scratch: &Path) -> Capabilities {
    let mut found = Capabilities {
        user_namespaces: Ok(()),
        landlock: landlock(),
        seccomp: seccomp(),
        bubblewrap: bubblewrap(),
        cgroup: cgroup(),
    };
    if found.seccomp.is_ok() {
        found.user_namespaces = try_out(scratch, &found);
        if found.user_namespaces.is_err() && found.bubblewrap.is_ok() && found.landlock.is_ok() {
            let works = try_out(scratch, &found);
            found.bubblewrap = works.and(found.bubblewrap);
        }
    }
    found
}

/// Builds and drops the sandbox that these would give.
fn try_out(scratch: &Path, capabilities: &Capabilities) -> Finding<()> {
    let text =
        |error: std::io::Error| format!("cannot make a folder in `{}`: {error}", scratch.display());
    let folder = (0..100)
        .map(|number| scratch.join(format!("sandbox-probe-{}-{number}", std::process::id())))
        .find(|folder| std::fs::create_dir(folder).is_ok())
        .ok_or_else(|| text(std::io::ErrorKind::PermissionDenied.into()))?;
    let [workspace, session, temporary] =
        ["workspace", "session", "tmp"].map(|name| folder.join(name));
    let made = [&workspace, &session, &temporary]
        .into_iter()
        .try_for_each(std::fs::create_dir);
    let outcome = made.map_err(text).and_then(|()| {
        let command = Command::Program {
            program: "true".into(),
            arguments: Vec::new(),
        };
        let policy = Policy::new(&workspace, &session, &temporary, command);
        match prepare(&policy, capabilities) {
            Ok(_) => Ok(()),
            Err(LaunchError::Step {
                step,
                target,
                error,
                ..
            }) => Err(format!("{step} {target}: {error}")),
            Err(other) => Err(other.to_string()),
        }
    });
    // What is left here is three empty folders.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn landlock() -> Finding<u32> {
    const VERSION: u32 = 1;
    // SAFETY: with a null attribute and this flag the call only returns a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0,
            VERSION,
        )
    };
    match u32::try_from(abi) {
        Ok(abi) if abi >= LEAST_LANDLOCK => Ok(abi),
        Ok(abi) => Err(format!("ABI {abi} is older than {LEAST_LANDLOCK}")),
        Err(_) => Err(match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOSYS) => "not built into this kernel".into(),
            Some(libc::EOPNOTSUPP) => "disabled when this kernel was started".into(),
            _ => std::io::Error::last_os_error().to_string(),
        }),
    }
}

fn seccomp() -> Finding<()> {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one `u32`, which lives on this stack.
    let known = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    if known == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().to_string())
    }
}

fn bubblewrap() -> Finding<PathBuf> {
    let found = BUBBLEWRAP
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    found.ok_or_else(|| "not installed".into())
}

/// A version 2 control group of ours in which memory and processes can be bounded.
fn cgroup() -> Finding<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .ok_or("no version 2 hierarchy")?;
    let group = Path::new("/sys/fs/cgroup").join(own);
    let enabled = std::fs::read_to_string(group.join("cgroup.subtree_control"))
        .map_err(|_| String::from("no version 2 hierarchy at /sys/fs/cgroup"))?;
    if !["memory", "pids"]
        .iter()
        .all(|name| enabled.split_ascii_whitespace().any(|word| word == *name))
    {
        return Err("memory and pids are not delegated to us".into());
    }
    match rustix::fs::access(&group, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(group),
        Err(_) => Err("our control group is not writable".into()),
    }
}
