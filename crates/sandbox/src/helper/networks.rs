//! Network namespaces, which are used again: making and taking down one costs as much as everything
//! else about a short command.
//!
//! In each lives a launcher of its own, which makes the other namespaces of a command anew. A
//! network serves one command at a time, and the next one has it once no process of the one before
//! is left: commands neither meet in it, nor are the attempts and the memory of one counted as
//! another's.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::namespaces::{self, Forked, Membership, Origin, Users};
use super::{Context as _, Failure, launcher, report_failure};
use crate::message;
use crate::wire::{Reader, Writer};

/// Networks that are kept at most. More commands at once get one that ends with them.
const KEPT: usize = 6;

/// The networks of a session.
#[derive(Default)]
pub(super) struct Networks(Vec<Network>);

/// A network namespace and the launcher in it.
pub(super) struct Network {
    pid: u64,
    socket: OwnedFd,
    /// First process of its last command; everything inside has ended when this has.
    command: Option<OwnedFd>,
    /// True when the launcher does not answer any more.
    is_gone: bool,
}

impl Networks {
    /// A network without a command in it. None where no more are kept, or none can be made: the
    /// command's own namespaces, made the usual way, say what is wrong.
    pub(super) fn free(&mut self, before: &Membership) -> Option<&mut Network> {
        self.0.retain(|network| !network.is_gone);
        let at = match self.0.iter().position(Network::is_free) {
            Some(at) => at,
            None if self.0.len() < KEPT => {
                let network = Self::make(before).ok()?;
                self.0.push(network);
                self.0.len() - 1
            }
            None => return None,
        };
        self.0.get_mut(at)
    }

    fn make(before: &Membership) -> Result<Network, Failure> {
        let (socket, theirs) = launcher::pair().at("make a network", "")?;
        let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNET;
        match namespaces::fork(flags)? {
            Forked::Launcher { pid, .. } => {
                drop(theirs);
                match Reader::receive(&socket).at("make a network", "")? {
                    Some(frame) if frame.tag == message::GO => Ok(Network {
                        pid,
                        socket,
                        command: None,
                        is_gone: false,
                    }),
                    _ => Err(io::Error::other("not made")).at("make a network", ""),
                }
            }
            Forked::Sandbox(origin) => {
                let served = serve(&theirs, &origin, before);
                std::process::exit(i32::from(served.is_err()));
            }
        }
    }
}

/// Body of the launcher in a network.
fn serve(socket: &OwnedFd, origin: &Origin, before: &Membership) -> io::Result<()> {
    let socket = keep_only(socket)?;
    let prepared = Users::Own
        .map_own(origin)
        .and_then(|()| namespaces::loopback_up());
    if prepared.is_err() {
        return Err(io::ErrorKind::Other.into());
    }
    Writer::with_tag(message::GO).send(&socket, &[])?;
    launcher::serve_network(socket, before.clone())
}

/// A copy of the socket, when everything else but the standard streams is closed: the agent hears of
/// the end of a command by its socket, and of its output by pipes, so nobody else may hold them.
fn keep_only(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let kept = rustix::io::fcntl_dupfd_cloexec(socket, 3)?;
    let number = kept.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, number - 1), (number + 1, libc::c_uint::MAX)] {
        // SAFETY: the values that own these descriptors are in frames which this process never
        // returns to, because it ends by `exit`: none is used or closed once more.
        if first <= last && unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(kept)
}

impl Network {
    fn is_free(&self) -> bool {
        let Some(command) = &self.command else {
            return true;
        };
        let mut ended = [PollFd::new(command, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut ended, Some(&at_once)), Ok(1..)) && self.is_quiet()
    }

    /// True if no connection is left, not even one that the kernel keeps for a minute after both ends
    /// are gone: it would hold a port that the next command may want.
    fn is_quiet(&self) -> bool {
        let counts = ["sockstat", "sockstat6"].map(|name| {
            let path = format!("/proc/{}/net/{name}", self.pid);
            std::fs::read_to_string(path).unwrap_or_default()
        });
        // Where the machine has no version 6, its file is missing; the other one always exists.
        counts[0].contains("TCP: inuse 0 ")
            && counts[0].contains(" tw 0 ")
            && (counts[1].is_empty() || counts[1].contains("TCP6: inuse 0\n"))
    }

    /// Has the sandbox made by the launcher inside, and passes on what that says to the agent. False
    /// when there is no such launcher any more, and nothing was made.
    pub(super) fn launch(
        &mut self,
        plan: &Writer,
        fds: &[BorrowedFd<'_>],
        agent: &OwnedFd,
    ) -> io::Result<bool> {
        if plan.send(&self.socket, fds).is_err() {
            self.is_gone = true;
            return Ok(false);
        }
        if let Ok(Some(mut frame)) = Reader::receive(&self.socket) {
            let said = Writer::copy_of(&frame);
            let fds = std::mem::take(&mut frame.fds);
            said.send(agent, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
            if frame.tag == message::SPAWNED {
                self.command = fds.into_iter().next();
            }
            return Ok(true);
        }
        // It may have passed on the plan before it ended, so nobody else gets it.
        self.is_gone = true;
        let ended: Result<(), _> = Err(io::Error::other("its launcher has ended"));
        if let Err(failure) = ended.at("enter namespaces", "") {
            report_failure(&failure, agent);
        }
        Ok(true)
    }
}
