//! The process that sandboxes are forked from: this same binary, started once with nothing
//! in it and kept for the session. Starting a program anew for each command cost more than the
//! namespaces and mounts together.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::helper::MARK;
use crate::launch::{LaunchError, receive};
use crate::message;
use crate::plan::Plan;

/// The agent's end, held by everyone who has a sandbox from it. Dropping it ends the process,
/// and so does our own death; what was split off has a socket of its own and ends by that.
#[derive(Debug)]
pub(crate) struct Launcher {
    process: Child,
    /// `None` only while being dropped.
    socket: Option<OwnedFd>,
}

/// Descriptors that a sandbox starts with.
pub(crate) struct SandboxFds {
    pub(crate) control: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Launcher {
    pub(crate) fn start() -> io::Result<Self> {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // No `pre_exec`: that would fork the whole agent instead of using posix_spawn.
        let process = Command::new("/proc/self/exe")
            .arg0("agent-sandbox")
            .arg(MARK)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            process,
            socket: Some(socket),
        })
    }

    /// Asks for a sandbox and returns pid and descriptor of its first process; everything else
    /// is sent on the sandbox's own socket.
    pub(crate) fn fork(
        &self,
        plan: &Plan,
        ends: &SandboxFds,
    ) -> Result<(u32, OwnedFd), LaunchError> {
        let socket = self.socket.as_ref().ok_or(LaunchError::HelperGone)?;
        let fds = [&ends.control, &ends.stdout, &ends.stderr].map(AsFd::as_fd);
        plan.encode()
            .send(socket, &fds)
            .map_err(|_| LaunchError::HelperGone)?;
        let mut spawned =
            receive(socket, &mut None, message::SPAWNED).map_err(|error| match error {
                // A launcher that died with our request unread resets the connection.
                LaunchError::Helper { .. } => LaunchError::HelperGone,
                other => other,
            })?;
        let pidfd = spawned.fds.pop().ok_or(LaunchError::HelperGone)?;
        Ok((spawned.number().unwrap_or(0) as u32, pidfd))
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // It ends when the socket does.
        drop(self.socket.take());
        let _ = self.process.wait();
    }
}
