//! Step one: a process in namespaces of its own, which the agent is the parent of.

use std::ffi::OsString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::{Gid, Uid, getgid, getuid};

use super::{Context, Failure};
use crate::plan::{Containment, Plan};
use crate::report::Layer;

const KINDS: [(&str, Layer, libc::c_int); 7] = [
    ("user", Layer::UserNamespace, libc::CLONE_NEWUSER),
    ("mnt", Layer::MountNamespace, libc::CLONE_NEWNS),
    ("pid", Layer::PidNamespace, libc::CLONE_NEWPID),
    ("ipc", Layer::IpcNamespace, libc::CLONE_NEWIPC),
    ("uts", Layer::UtsNamespace, libc::CLONE_NEWUTS),
    ("net", Layer::NetworkNamespace, libc::CLONE_NEWNET),
    ("cgroup", Layer::CgroupNamespace, libc::CLONE_NEWCGROUP),
];

/// The namespaces of this process, to be compared after the move.
#[derive(Clone, Debug, Default)]
pub(super) struct Membership(Vec<OsString>);

impl Membership {
    pub(super) fn current() -> Self {
        Self(KINDS.iter().map(|(name, ..)| link(name)).collect())
    }

    /// The kinds that differ from what they are now.
    pub(super) fn left(&self) -> Vec<Layer> {
        let pairs = KINDS.iter().zip(&self.0);
        pairs
            .filter(|((name, ..), before)| link(name) != **before)
            .map(|((_, layer, _), _)| *layer)
            .collect()
    }
}

fn link(name: &str) -> OsString {
    std::fs::read_link(format!("/proc/self/ns/{name}"))
        .map(OsString::from)
        .unwrap_or_default()
}

/// Gives up root for the owner of the workspace, and with it every capability.
pub(super) fn become_user(uid: u32, gid: u32) -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[]).at("give up groups", "")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).at("change group", gid.as_raw())?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).at("change user", uid.as_raw())
}

/// Users that exist in the user namespace of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// The user that started the agent and no other; any account may map that.
    Own,
    /// All users, under the same numbers. For root in another user's project: its directories,
    /// which only root may enter, are put into place before root is given up for the owner.
    All,
}

impl Users {
    pub(super) fn of(plan: &Plan) -> Self {
        match (plan.containment, plan.run_as) {
            (Containment::Namespaces, Some(_)) => Self::All,
            _ => Self::Own,
        }
    }

    /// The part of the launcher, which may map others than itself: for the process `pid`.
    pub(super) fn map(self, pid: u64) -> Result<(), Failure> {
        if self == Self::Own {
            return Ok(());
        }
        for name in ["uid_map", "gid_map"] {
            let ours = std::fs::read_to_string(format!("/proc/self/{name}"));
            let ours = ours.at("map the users", name)?;
            // Every range that exists here, under its own numbers.
            let lines = ours.lines().filter_map(|line| {
                let mut fields = line.split_ascii_whitespace();
                let (first, _, count) = (fields.next()?, fields.next()?, fields.next()?);
                Some(format!("{first} {first} {count}\n"))
            });
            let same: String = lines.collect();
            // In one write: the kernel takes the whole map or none of it.
            std::fs::write(format!("/proc/{pid}/{name}"), same).at("map the users", name)?;
        }
        Ok(())
    }

    /// What the new process itself does to map its user.
    pub(super) fn map_own(self, origin: &Origin) -> Result<(), Failure> {
        match self {
            Self::Own => map_user(origin),
            Self::All => Ok(()),
        }
    }
}

/// The namespaces of a command without network.
pub(super) const USUAL: libc::c_int = {
    let mut flags = 0;
    let mut at = 0;
    while at < KINDS.len() {
        flags |= KINDS[at].2;
        at += 1;
    }
    flags
};

/// The namespaces this plan asks for.
pub(super) fn flags(plan: &Plan) -> libc::c_int {
    match (plan.containment, plan.network_namespace) {
        (Containment::Namespaces, true) => USUAL,
        (Containment::Namespaces, false) => USUAL & !libc::CLONE_NEWNET,
        _ => 0,
    }
}

/// The two who return from [`fork`].
pub(super) enum Forked {
    Launcher { pid: u64, pidfd: OwnedFd },
    Sandbox(Origin),
}

/// Ids of the launcher, as seen from outside the new namespaces.
pub(super) struct Origin {
    uid: u32,
    gid: u32,
}

/// Splits off the first process of the sandbox.
pub(super) fn fork(flags: libc::c_int) -> Result<Forked, Failure> {
    let origin = Origin {
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
    };
    let mut pidfd: libc::c_int = -1;
    // SAFETY: without CLONE_VM this is a fork: the child gets a copy of memory and, because
    // the stack argument is null, continues on its copy of this stack. The process has one
    // thread, so no lock can be held by a thread that the child does not have. The kernel
    // writes one integer to `pidfd`, the third argument on every architecture.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            flags | libc::CLONE_PIDFD | libc::SIGCHLD,
            ptr::null_mut::<libc::c_void>(),
            &raw mut pidfd,
            ptr::null_mut::<libc::c_void>(),
            0,
        )
    };
    match pid {
        0 => Ok(Forked::Sandbox(origin)),
        1.. => Ok(Forked::Launcher {
            pid: pid as u64,
            // SAFETY: with CLONE_PIDFD the call made this descriptor, which has no owner yet.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
        _ => Err(io::Error::last_os_error()).at("enter namespaces", ""),
    }
}

/// The same numbers inside as outside: files keep their owners.
fn map_user(origin: &Origin) -> Result<(), Failure> {
    let Origin { uid, gid } = origin;
    let put = |name: &str, text: String| {
        std::fs::write(format!("/proc/self/{name}"), text).at("map the user", name)
    };
    put("setgroups", "deny".into())?;
    put("uid_map", format!("{uid} {uid} 1"))?;
    put("gid_map", format!("{gid} {gid} 1"))
}

/// A copy of the mounts for a process that is in the other namespaces already.
pub(super) fn leave_mounts() -> Result<(), Failure> {
    // SAFETY: the process has one thread and shares nothing with another but what a fork does.
    match unsafe { libc::unshare(libc::CLONE_NEWNS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).at("enter namespaces", ""),
    }
}

/// Brings up the loopback of a new network namespace.
pub(super) fn loopback_up() -> Result<(), Failure> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )
    .at("bring up the loopback", "")?;
    // SAFETY: `ifreq` is plain data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open and `request` is a valid `ifreq` for the whole call,
    // which only reads it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error()).at("bring up the loopback", "")
    }
}
