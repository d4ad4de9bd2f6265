//! Capabilities of this machine, found by trying.

use std::path::{Path, PathBuf};

use crate::control_group::delegated;
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

/// Mechanisms that can be enforced here, each absence with its reason. Probed once, then passed to
/// every launch; a launch that cannot keep what was found fails and runs nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    pub user_namespaces: Finding<()>,
    /// The ABI version.
    pub landlock: Finding<u32>,
    pub seccomp: Finding<()>,
    pub bubblewrap: Finding<PathBuf>,
    /// The control group below which each command gets one of its own.
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

    /// Reasons why the level is not full, in words for a person; empty at level full.
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
        cgroup: Err(String::new()),
    };
    if found.seccomp.is_ok() {
        found.user_namespaces = try_out(scratch, &found);
        if found.user_namespaces.is_err() && found.bubblewrap.is_ok() && found.landlock.is_ok() {
            let works = try_out(scratch, &found);
            found.bubblewrap = works.and(found.bubblewrap);
        }
    }
    // Last, so that a group which cannot be used is not taken for a lack of something else.
    found.cgroup = delegated();
    if found.cgroup.is_ok() && found.level() != Level::None {
        let works = try_out(scratch, &found);
        found.cgroup = works.and(found.cgroup);
    }
    found
}

/// Capabilities found with a few system calls; `None` where these are not conclusive. Then, and
/// when user namespaces are missing, only trying decides.
pub(crate) fn survey() -> Option<Capabilities> {
    if is_filtered() || is_inside_a_container() || restricts_namespaces_by_program() {
        return None;
    }
    let found = Capabilities {
        user_namespaces: user_namespace(),
        landlock: landlock(),
        seccomp: seccomp(),
        bubblewrap: bubblewrap(),
        cgroup: delegated(),
    };
    found.user_namespaces.is_ok().then_some(found)
}

/// True if a seccomp filter is already around this process: what it refuses is unknown.
fn is_filtered() -> bool {
    // SAFETY: a question about this process, with plain numbers.
    (unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) }) != 0
}

/// True if parts of `/proc` are covered, as containers do: the kernel then refuses a new one.
fn is_inside_a_container() -> bool {
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else {
        return true;
    };
    mounts.split(|byte| *byte == b'\n').any(|line| {
        let place = line.split(|byte| *byte == b' ').nth(4);
        place.is_some_and(|place| {
            place.starts_with(b"/proc/") && place != b"/proc/sys/fs/binfmt_misc"
        })
    })
}

/// True if the system gives a namespace to everyone but its capabilities only to listed programs.
fn restricts_namespaces_by_program() -> bool {
    let set = std::fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    set.is_ok_and(|text| text.trim() != "0") && !rustix::process::getuid().is_root()
}

/// Makes a user namespace and leaves it at once.
fn user_namespace() -> Finding<()> {
    extern "C" fn leave(_: *mut libc::c_void) -> libc::c_int {
        0
    }
    const STACK: usize = 16 << 10;
    let mut stack = vec![0_u8; STACK];
    // SAFETY: the end of `stack` is one past its last byte, inside the same allocation.
    let top = unsafe { stack.as_mut_ptr().add(STACK) };
    let top = top.wrapping_sub(top as usize % 16);
    // SAFETY: CLONE_VFORK stops this thread until the child is gone, so `stack` outlives it;
    // the child touches nothing but that stack. Without an exit signal it is found only by
    // the wait below.
    let pid = unsafe {
        libc::clone(
            leave,
            top.cast::<libc::c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_NEWUSER,
            std::ptr::null_mut(),
        )
    };
    if pid < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    // SAFETY: waits for the process just made; the status is not asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WCLONE) };
    Ok(())
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
    let _ = agent_fs::remove_tree(&folder);
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
