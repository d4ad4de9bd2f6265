//! The agent's end of the system call filter: every refused call is answered and remembered.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::syscalls::describe;
use crate::violation::Violation;

/// Kinds of refusals kept; further kinds are only refused.
const MOST_GROUPS: usize = 64;

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// True if internet sockets are left to the network namespace.
    internet: bool,
    refused: Vec<Violation>,
}

impl Listener {
    pub(crate) fn new(socket: OwnedFd, internet: bool) -> Self {
        Self {
            socket,
            internet,
            refused: Vec::new(),
        }
    }

    /// Answers one call; false when no process is left that could make one.
    pub(crate) fn answer(&mut self) -> bool {
        // SAFETY: plain data for which all zeros is valid, and what the kernel asks for.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open, and the kernel writes at most one `seccomp_notif`
        // into `call`, which is ours alone.
        let received = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV as libc::Ioctl,
                &raw mut call,
            )
        };
        if received != 0 {
            // ENOENT and EINTR: the caller was killed while it waited. Others end the service.
            return matches!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)
            );
        }
        let (violation, errno) = describe(i64::from(call.data.nr), &call.data.args, self.internet);
        let reply = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: -errno,
            flags: 0,
        };
        // SAFETY: the descriptor is open and `reply` is a whole `seccomp_notif_resp` that the
        // kernel only reads. If the caller died meanwhile the kernel says so, which is fine.
        unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND as libc::Ioctl,
                &raw const reply,
            )
        };
        self.remember(violation);
        true
    }

    fn remember(&mut self, violation: Violation) {
        let same = |known: &&mut Violation| {
            known.target == violation.target && known.expected == violation.expected
        };
        if let Some(known) = self.refused.iter_mut().find(same) {
            known.count += 1;
        } else if self.refused.len() < MOST_GROUPS {
            self.refused.push(violation);
        }
    }

    /// Calls that were refused since the last `take`.
    pub(crate) fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.refused)
    }
}
