//! The launcher: splits a sandbox off for every plan until the agent is gone. Unconfined itself,
//! it does nothing else: it reads only what the agent sends, and no command can reach it.
//!
//! It keeps one process in reserve whose namespaces exist already, because making those takes
//! as long as all the mounts. The reserve has no mount namespace: it would keep what the user
//! unmounts busy. Each serves for one command and is never used again.
//!
//! Network namespaces are used again, by launchers that live in them (`networks.rs`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::namespaces::{self, Forked, Membership, Origin, Users};
use super::networks::Networks;
use super::{Failure, bubblewrap, first_process, privileges, report_failure, take_control};
use crate::message;
use crate::plan::{Containment, Plan};
use crate::wire::{Reader, Writer};

pub(super) fn serve() -> io::Result<()> {
    let socket = take_control()?;
    // Out of reach of the terminal: an interrupt there is for the agent to act on. Leading a
    // group already is as good.
    let _ = rustix::process::setsid();
    let before = Membership::current();
    // The kernel reaps them: the agent holds a descriptor of each and needs no more.
    privileges::set_child_signal(libc::SIG_IGN);
    let mut launcher = Launcher {
        socket,
        before,
        reserve: None,
        place: Place::Outside(Networks::default()),
    };
    launcher.serve()
}

/// Body of a launcher in a network namespace of its own, from [`super::networks`].
pub(super) fn serve_network(socket: OwnedFd, before: Membership) -> io::Result<()> {
    let mut launcher = Launcher {
        socket,
        before,
        reserve: None,
        place: Place::Network,
    };
    launcher.serve()
}

struct Launcher {
    socket: OwnedFd,
    before: Membership,
    reserve: Option<Reserve>,
    place: Place,
}

/// Where a launcher lives.
enum Place {
    /// Where the agent does.
    Outside(Networks),
    /// In a network namespace that its commands get one after the other.
    Network,
}

/// A process that waits in namespaces of its own for a plan.
struct Reserve {
    pid: u64,
    pidfd: OwnedFd,
    socket: OwnedFd,
    /// Users mapped in its namespace.
    users: Users,
}

/// A plan and what its sandbox is connected to.
struct Request {
    frame: Reader,
    plan: Plan,
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Request {
    fn of(mut frame: Reader) -> io::Result<Self> {
        let fds = std::mem::take(&mut frame.fds);
        let Ok([control, stdout, stderr]) = <[OwnedFd; 3]>::try_from(fds) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let plan = Plan::decode(&mut frame)?;
        Ok(Self {
            frame,
            plan,
            control,
            stdout,
            stderr,
        })
    }

    fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [&self.control, &self.stdout, &self.stderr].map(AsFd::as_fd)
    }
}

impl Launcher {
    fn serve(&mut self) -> io::Result<()> {
        while let Some(frame) = Reader::receive(&self.socket)? {
            self.answer(Request::of(frame)?)?;
        }
        Ok(())
    }

    /// Has the sandbox made and says so; nothing of it stays open here.
    fn answer(&mut self, request: Request) -> io::Result<()> {
        let users = Users::of(&request.plan);
        if let Place::Outside(networks) = &mut self.place
            && has_usual_namespaces(&request.plan)
            && users == Users::Own
        {
            let plan = Writer::copy_of(&request.frame);
            while let Some(network) = networks.free(&self.before) {
                if network.launch(&plan, &request.fds(), &self.socket)? {
                    return Ok(());
                }
            }
        }
        let ready = has_usual_namespaces(&request.plan)
            .then(|| self.reserve.take())
            .flatten()
            .filter(|reserve| reserve.users == users)
            // One that died is replaced by a new process, which can say what is wrong.
            .filter(|reserve| {
                let plan = Writer::copy_of(&request.frame);
                plan.send(&reserve.socket, &request.fds()).is_ok()
            });
        if let Some(reserve) = ready {
            self.announce(reserve.pid, &reserve.pidfd)?;
        } else {
            let (go, waiting) = pair()?;
            match namespaces::fork(namespaces::flags(&request.plan) & !self.shared()) {
                Ok(Forked::Launcher { pid, pidfd }) => {
                    drop(waiting);
                    match users.map(pid).and_then(|()| announce_map(&go)) {
                        Ok(()) => self.announce(pid, &pidfd)?,
                        // Without the word the new process ends.
                        Err(failure) => report_failure(&failure, &self.socket),
                    }
                }
                Ok(Forked::Sandbox(origin)) => {
                    let new_network = self.shared() & libc::CLONE_NEWNET == 0;
                    self.forget();
                    drop(go);
                    privileges::set_child_signal(libc::SIG_DFL);
                    if Reader::receive(&waiting)?.is_some() {
                        match prepare(&request, &origin, new_network) {
                            Ok(()) => become_sandbox(request, &self.before),
                            Err(failure) => report_failure(&failure, &request.control),
                        }
                    }
                    std::process::exit(1);
                }
                Err(failure) => report_failure(&failure, &self.socket),
            }
        }
        let again = has_usual_namespaces(&request.plan);
        drop(request);
        if again && self.reserve.is_none() {
            self.reserve = self.fork_reserve(users);
        }
        Ok(())
    }

    /// The namespaces that every command of this launcher shares with it.
    const fn shared(&self) -> libc::c_int {
        match self.place {
            Place::Outside(_) => 0,
            Place::Network => libc::CLONE_NEWNET,
        }
    }

    /// Lets go of what belongs to the launcher, in a process that was split off.
    fn forget(&mut self) {
        close(&mut self.socket);
        self.reserve = None;
        if let Place::Outside(networks) = &mut self.place {
            *networks = Networks::default();
        }
    }

    /// Not on the sandbox's own socket, where the new process may speak first.
    fn announce(&self, pid: u64, pidfd: &OwnedFd) -> io::Result<()> {
        let mut spawned = Writer::with_tag(message::SPAWNED);
        spawned.number(pid).send(&self.socket, &[pidfd.as_fd()])
    }

    /// Forks the reserve. A failure is not reported: the next plan runs into it too.
    fn fork_reserve(&mut self, users: Users) -> Option<Reserve> {
        let (socket, theirs) = pair().ok()?;
        let flags = namespaces::USUAL & !libc::CLONE_NEWNS & !self.shared();
        match namespaces::fork(flags).ok()? {
            Forked::Launcher { pid, pidfd } => {
                // One whose users could not be mapped ends with its socket.
                users.map(pid).ok()?;
                Some(Reserve {
                    pid,
                    pidfd,
                    socket,
                    users,
                })
            }
            Forked::Sandbox(origin) => {
                let new_network = self.shared() & libc::CLONE_NEWNET == 0;
                self.forget();
                drop(socket);
                privileges::set_child_signal(libc::SIG_DFL);
                let outcome = run_reserve(theirs, &origin, users, new_network, &self.before);
                std::process::exit(i32::from(outcome.is_err()));
            }
        }
    }
}

/// Two ends that nothing else has.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((one, other))
}

/// Tells a new process that its users are there.
fn announce_map(go: &OwnedFd) -> Result<(), Failure> {
    use super::Context;
    Writer::with_tag(message::GO)
        .send(go, &[])
        .at("map the user", "")
}

/// Closes the launcher's own socket in a process that was split off.
fn close(socket: &mut OwnedFd) {
    if let Ok(nothing) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        *socket = nothing;
    }
}

/// True if the reserve has the namespaces that this plan asks for.
fn has_usual_namespaces(plan: &Plan) -> bool {
    plan.containment == Containment::Namespaces && plan.network_namespace
}

/// Body of the reserve: does as much as needs no plan, then carries out the plan. It ends with the
/// launcher.
fn run_reserve(
    socket: OwnedFd,
    origin: &Origin,
    users: Users,
    new_network: bool,
    before: &Membership,
) -> io::Result<()> {
    let prepared = users.map_own(origin).and_then(|()| match new_network {
        true => namespaces::loopback_up(),
        false => Ok(()),
    });
    if prepared.is_err() {
        return Err(io::ErrorKind::Other.into());
    }
    if let Some(frame) = Reader::receive(&socket)? {
        drop(socket);
        let request = Request::of(frame)?;
        match namespaces::leave_mounts() {
            Ok(()) => become_sandbox(request, before),
            Err(failure) => report_failure(&failure, &request.control),
        }
    }
    Ok(())
}

/// The first steps of a process that was made for this plan.
fn prepare(request: &Request, origin: &Origin, new_network: bool) -> Result<(), Failure> {
    let plan = &request.plan;
    match plan.containment {
        Containment::Namespaces => {
            Users::of(plan).map_own(origin)?;
            if plan.network_namespace && new_network {
                namespaces::loopback_up()?;
            }
            Ok(())
        }
        Containment::Bubblewrap => {
            become_owner(plan)?;
            connect(request)?;
            bubblewrap::become_bubblewrap(plan, &request.control)
        }
        Containment::InsideBubblewrap | Containment::Subreaper => become_owner(plan),
    }
}

/// Without namespaces of our own root is given up at once.
fn become_owner(plan: &Plan) -> Result<(), Failure> {
    use super::Context;
    let Some((uid, gid)) = plan.run_as else {
        return Ok(());
    };
    namespaces::become_user(uid, gid)?;
    // Changing users made our own /proc entries root's, and one of them is still to be written.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
        .at("change user", "")
}

fn become_sandbox(request: Request, before: &Membership) {
    match connect(&request) {
        Ok(()) => {
            let Request { plan, control, .. } = request;
            first_process(&plan, &control, before)
        }
        Err(failure) => report_failure(&failure, &request.control),
    }
}

/// The command's output goes where the agent listens.
fn connect(request: &Request) -> Result<(), Failure> {
    use super::Context;
    rustix::stdio::dup2_stdout(&request.stdout).at("connect", "standard output")?;
    rustix::stdio::dup2_stderr(&request.stderr).at("connect", "standard error")
}
