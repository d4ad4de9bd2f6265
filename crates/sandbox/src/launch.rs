//! The outside of a launch: starts the helper, receives what it established, sends the go-ahead.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, pidfd_send_signal};

use crate::compile::{Compiled, compile};
use crate::control_group::ControlGroup;
use crate::infer::Boundary;
use crate::launcher::{Launcher, SandboxFds};
use crate::listener::Listener;
use crate::message;
use crate::pipeline::PipelineReport;
use crate::plan::{Containment, Plan};
use crate::policy::Policy;
use crate::probe::Capabilities;
use crate::report::{EnforcementReport, Layer, Level};
use crate::running::{Parts, Running, Sink, supervise};
use crate::session::Sandbox;
use crate::streams::Streams;
use crate::watch::Watch;
use crate::wire::{Reader, Writer};

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The answer on a machine that cannot confine.
    #[error("no sandbox on this system ({reason}); nothing was run")]
    Unavailable { reason: String },
    #[error("invalid sandbox policy: {problem}; nothing was run")]
    Policy { problem: String },
    #[error("cannot confine the command: {step} failed for `{target}`: {error}; nothing was run")]
    Step {
        step: String,
        target: String,
        error: String,
        errno: i32,
    },
    #[error("cannot start the command `{target}`; nothing was run")]
    Command { target: String, source: io::Error },
    #[error("the sandbox helper ended before the command could start; nothing was run")]
    HelperGone,
    #[error("cannot start the sandbox helper; nothing was run")]
    Helper { source: io::Error },
}

/// A sandbox that is complete and empty: the self-check passed and the command waits for
/// [`Confined::start`], so that the report can be on disk before anything happens. Dropping
/// it runs nothing.
#[derive(Debug)]
pub struct Confined {
    parts: Option<Parts>,
}

/// Builds the sandbox around a command that does not run yet, with a launcher of its own; a
/// [`Sandbox`] keeps one.
pub fn prepare(policy: &Policy, capabilities: &Capabilities) -> Result<Confined, LaunchError> {
    Sandbox::of(capabilities.clone()).prepare(policy)
}

/// A sandbox before any process of it exists.
pub(crate) struct Prepared {
    plan: Plan,
    report: EnforcementReport,
    watch: Watch,
    pipeline: Option<PipelineReport>,
    boundary: Option<Boundary>,
    free_disk: Option<(PathBuf, u64)>,
    /// Below which the command gets a control group.
    groups: Option<PathBuf>,
}

/// A sandbox whose first process exists.
pub(crate) struct Spawned {
    pid: u32,
    pidfd: OwnedFd,
    launcher: Arc<Launcher>,
    control: OwnedFd,
    streams: Streams,
}

impl Prepared {
    pub(crate) fn new(policy: &Policy, capabilities: &Capabilities) -> Result<Self, LaunchError> {
        let Compiled {
            plan,
            report,
            watch,
            pipeline,
            boundary,
        } = compile(policy, capabilities)?;
        prepare_private_tmp(policy, &plan)?;
        let confined = plan.seccomp.is_some();
        let free_disk = policy.limits.free_disk.filter(|_| confined);
        Ok(Self {
            plan,
            report,
            watch,
            pipeline,
            boundary,
            free_disk: free_disk.map(|least| (policy.workspace.clone(), least)),
            groups: capabilities.cgroup.clone().ok().filter(|_| confined),
        })
    }

    /// Forks the first process. Nothing is left behind when that fails.
    pub(crate) fn fork(&self, launcher: &Arc<Launcher>) -> Result<Spawned, LaunchError> {
        let (control, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| helper(error.into()))?;
        let (streams, writing) = Streams::open().map_err(helper)?;
        let ends = SandboxFds {
            control: theirs,
            stdout: writing.stdout,
            stderr: writing.stderr,
        };
        let (pid, pidfd) = launcher.fork(&self.plan, &ends)?;
        Ok(Spawned {
            pid,
            pidfd,
            launcher: Arc::clone(launcher),
            control,
            streams,
        })
    }

    /// Receives what the sandbox established.
    pub(crate) fn complete(self, spawned: Spawned) -> Result<Confined, LaunchError> {
        let mut first = InitProcess {
            pid: spawned.pid,
            pidfd: spawned.pidfd,
            outer: None,
        };
        let handshake = handshake(&self.plan, &spawned.control, &mut first);
        match handshake.and_then(|handshake| Ok((self.create_control_group(first.pid)?, handshake)))
        {
            Ok((group, handshake)) => Ok(Confined {
                parts: Some(Parts {
                    report: self.established(&handshake, group.is_some()),
                    group,
                    pid: first.pid,
                    pidfd: first.pidfd,
                    outer: first.outer,
                    _launcher: spawned.launcher,
                    control: spawned.control,
                    listener: handshake.listener,
                    watch: self.watch,
                    pipeline: self.pipeline,
                    boundary: self.boundary,
                    free_disk: self.free_disk,
                    streams: spawned.streams,
                }),
            }),
            Err(error) => {
                drop(spawned.control);
                end(&first.pidfd, first.outer.as_ref());
                Err(error)
            }
        }
    }

    /// Creates the control group. The first process has started nothing yet, so everything will be in it.
    fn create_control_group(&self, pid: u32) -> Result<Option<ControlGroup>, LaunchError> {
        let around = |parent: &PathBuf| ControlGroup::around(pid, parent, &self.plan.limits);
        self.groups.as_ref().map(around).transpose()
    }

    /// The report with what was only known from inside.
    fn established(&self, handshake: &Handshake, in_a_group: bool) -> EnforcementReport {
        let mut report = self.report.clone();
        report.layers.clone_from(&handshake.layers);
        report
            .layers
            .extend(in_a_group.then_some(Layer::ControlGroup));
        if !in_a_group && report.level != Level::None {
            let asked = report.limits.iter().any(|(name, _)| *name == "processes");
            report.limits.retain(|(name, _)| *name != "processes");
            match handshake.processes {
                Some(bound) => report.limits.insert(0, ("processes", bound)),
                None if asked => report
                    .notes
                    .push("this kernel cannot limit the number of processes".into()),
                None => {}
            }
        }
        if handshake.listener.is_none() && self.plan.seccomp.is_some() {
            report
                .notes
                .push("an outer sandbox receives the notifications of refused calls".into());
        }
        report
    }
}

pub(crate) fn helper(source: io::Error) -> LaunchError {
    LaunchError::Helper { source }
}

/// The command's home and temporary directory, owned by the user it runs as.
fn prepare_private_tmp(policy: &Policy, plan: &Plan) -> Result<(), LaunchError> {
    if plan.seccomp.is_none() {
        return Ok(());
    }
    let home = policy.private_tmp.join("home");
    let made = match std::fs::create_dir(&home) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    made.and_then(|()| match plan.run_as {
        Some((uid, gid)) => [&policy.private_tmp, &home]
            .into_iter()
            .try_for_each(|path| std::os::unix::fs::lchown(path, Some(uid), Some(gid))),
        None => Ok(()),
    })
    .map_err(|error| LaunchError::Policy {
        problem: format!(
            "private temporary directory `{}`: {error}",
            policy.private_tmp.display()
        ),
    })
}

/// [`prepare`] and [`Confined::start`] in one, for callers that record nothing in between.
pub fn spawn(
    policy: &Policy,
    capabilities: &Capabilities,
    sink: Sink,
) -> Result<Running, LaunchError> {
    prepare(policy, capabilities)?.start(sink)
}

impl Confined {
    pub fn report(&self) -> Option<&EnforcementReport> {
        self.parts.as_ref().map(|parts| &parts.report)
    }

    /// Runs the command.
    pub fn start(mut self, sink: Sink) -> Result<Running, LaunchError> {
        let Some(mut parts) = self.parts.take() else {
            return Err(LaunchError::HelperGone);
        };
        parts.streams.keep_order();
        let started = Writer::with_tag(message::GO)
            .send(&parts.control, &[])
            .map_err(|_| LaunchError::HelperGone)
            .and_then(|()| receive(&parts.control, &mut parts.listener, message::STARTED));
        match started {
            Ok(_) => supervise(parts, sink).map_err(|source| LaunchError::Helper { source }),
            Err(error) => {
                abandon(parts);
                Err(error)
            }
        }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            abandon(parts);
        }
    }
}

/// The processes that a launch made.
struct InitProcess {
    pid: u32,
    /// Everything dies with it.
    pidfd: OwnedFd,
    /// The `bwrap` around it.
    outer: Option<OwnedFd>,
}

/// Facts that the helper reported before it was ready.
struct Handshake {
    listener: Option<Listener>,
    layers: Vec<Layer>,
    processes: Option<u64>,
}

fn handshake(
    plan: &Plan,
    control: &OwnedFd,
    first: &mut InitProcess,
) -> Result<Handshake, LaunchError> {
    if plan.containment == Containment::Bubblewrap {
        // The helper on the other side of bubblewrap knows nothing of the first.
        let inside = Plan {
            containment: Containment::InsideBubblewrap,
            run_as: None,
            ..plan.clone()
        };
        let sent = inside.encode().send(control, &[]);
        sent.map_err(|_| LaunchError::HelperGone)?;
        let mut spawned = receive(control, &mut None, message::SPAWNED)?;
        let inner = spawned.fds.pop().ok_or(LaunchError::HelperGone)?;
        first.pid = pid_of(&inner).unwrap_or(0);
        first.outer = Some(std::mem::replace(&mut first.pidfd, inner));
    }
    let mut confined = receive(control, &mut None, message::CONFINED)?;
    let numbers = confined
        .list(Reader::number)
        .map_err(|_| LaunchError::HelperGone)?;
    let layers = Layer::ALL
        .into_iter()
        .filter(|layer| numbers.contains(&(*layer as u64)))
        .collect();
    let processes = confined.optional().unwrap_or(None);
    let listener = match (plan.seccomp, confined.fds.pop()) {
        (Some(seccomp), Some(socket)) => Some(Listener::new(socket, seccomp.internet)),
        _ => None,
    };
    Ok(Handshake {
        listener,
        layers,
        processes,
    })
}

/// The number under which this process sees the one behind a descriptor.
fn pid_of(pidfd: &OwnedFd) -> Option<u32> {
    use std::os::fd::AsRawFd;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

/// The next message, which has to be `wanted`. Refused calls are answered meanwhile.
pub(crate) fn receive(
    control: &OwnedFd,
    listener: &mut Option<Listener>,
    wanted: u8,
) -> Result<Reader, LaunchError> {
    while let Some(answering) = listener {
        let mut polled = [
            PollFd::new(control, PollFlags::IN),
            PollFd::new(&answering.socket, PollFlags::IN),
        ];
        let ready = poll(&mut polled, None).is_ok();
        let [heard, refused] = [0, 1].map(|at: usize| ready && !polled[at].revents().is_empty());
        if refused && !answering.answer() {
            *listener = None;
        }
        if heard {
            break;
        }
    }
    let frame = Reader::receive(control).map_err(|source| LaunchError::Helper { source })?;
    let mut frame = frame.ok_or(LaunchError::HelperGone)?;
    if frame.tag == wanted {
        return Ok(frame);
    }
    if frame.tag != message::FAILED {
        return Err(LaunchError::HelperGone);
    }
    let mut text = || frame.text().unwrap_or_default();
    let (step, target) = (text(), text());
    let errno = frame.number().unwrap_or(0) as i32;
    let error = frame.text().unwrap_or_default();
    Err(if step == "start the command" {
        LaunchError::Command {
            target,
            source: io::Error::from_raw_os_error(errno),
        }
    } else {
        LaunchError::Step {
            step,
            target,
            error,
            errno,
        }
    })
}

/// SandboxFds a sandbox in which nothing was run.
fn abandon(parts: Parts) {
    drop(parts.control);
    end(&parts.pidfd, parts.outer.as_ref());
}

/// Kills and waits for the end. Reaping is the launcher's business.
fn end(first: &OwnedFd, outer: Option<&OwnedFd>) {
    for process in [Some(first), outer].into_iter().flatten() {
        let _ = pidfd_send_signal(process, Signal::KILL);
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
    }
}
