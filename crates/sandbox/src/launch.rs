//! The outside of a launch: start the helper, hear what it established, give the word.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::draw::{Drawn, draw};
use crate::helper::MARK;
use crate::listener::Listener;
use crate::message;
use crate::plan::{Containment, Plan};
use crate::policy::Policy;
use crate::probe::Capabilities;
use crate::report::{EnforcementReport, Layer, Level};
use crate::running::{Parts, Running, Sink, supervise};
use crate::watch::Watch;
use crate::wire::{Reader, Writer};

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The answer on a machine that cannot confine.
    #[error("no sandbox on this system ({reason}); nothing was run")]
    Unavailable { reason: String },
    #[error("the policy is not usable: {problem}; nothing was run")]
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

/// Builds the sandbox around a command that does not run yet.
pub fn prepare(policy: &Policy, capabilities: &Capabilities) -> Result<Confined, LaunchError> {
    let Drawn {
        plan,
        report,
        watch,
    } = draw(policy, capabilities)?;
    prepare_private_tmp(policy, &plan)?;
    let free_disk = policy.limits.free_disk.filter(|_| plan.seccomp.is_some());
    launch(
        &plan,
        report,
        watch,
        free_disk.map(|least| (policy.workspace.clone(), least)),
    )
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
        let started = Writer::with_tag(message::GO)
            .send(&parts.control, &[])
            .map_err(|_| LaunchError::HelperGone)
            .and_then(|()| hear(&parts.control, &mut parts.listener, message::STARTED));
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

fn launch(
    plan: &Plan,
    report: EnforcementReport,
    watch: Watch,
    free_disk: Option<(PathBuf, u64)>,
) -> Result<Confined, LaunchError> {
    let helper = |source| LaunchError::Helper { source };
    let (control, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| helper(error.into()))?;
    let (stdout, their_stdout) = io::pipe().map_err(helper)?;
    let (stderr, their_stderr) = io::pipe().map_err(helper)?;
    // No `pre_exec`: that would fork the whole agent instead of using posix_spawn.
    let mut launcher = std::process::Command::new("/proc/self/exe")
        .arg0("agent-sandbox")
        .arg(MARK)
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(OwnedFd::from(their_stdout)))
        .stderr(Stdio::from(OwnedFd::from(their_stderr)))
        .spawn()
        .map_err(helper)?;
    let mut pidfd = None;
    match handshake(plan, &control, &mut pidfd) {
        Ok(met) => {
            let pidfd = pidfd.ok_or(LaunchError::HelperGone)?;
            let mut report = report;
            report.layers = met.layers;
            if !met.processes_limited && report.level != Level::None {
                report.limits.retain(|(name, _)| *name != "processes");
                report
                    .notes
                    .push("the number of processes is not bounded on this kernel".into());
            }
            if met.listener.is_none() && plan.seccomp.is_some() {
                report
                    .notes
                    .push("an outer sandbox hears of refused calls, so we do not".into());
            }
            Ok(Confined {
                parts: Some(Parts {
                    report,
                    pid: met.pid,
                    launcher,
                    pidfd,
                    control,
                    listener: met.listener,
                    watch,
                    free_disk,
                    stdout: stdout.into(),
                    stderr: stderr.into(),
                }),
            })
        }
        Err(error) => {
            drop(control);
            end(&mut launcher, pidfd.as_ref());
            Err(error)
        }
    }
}

/// What the helper told before it was ready.
struct Met {
    pid: u32,
    listener: Option<Listener>,
    layers: Vec<Layer>,
    processes_limited: bool,
}

/// Leaves the descriptor of the first process in `first`, also when a later step fails.
fn handshake(
    plan: &Plan,
    control: &OwnedFd,
    first: &mut Option<OwnedFd>,
) -> Result<Met, LaunchError> {
    let send = |plan: &Plan| {
        plan.encode()
            .send(control, &[])
            .map_err(|_| LaunchError::HelperGone)
    };
    send(plan)?;
    if plan.containment == Containment::Bubblewrap {
        // The helper on the other side of bubblewrap knows nothing of the first.
        send(&Plan {
            containment: Containment::InsideBubblewrap,
            run_as: None,
            ..plan.clone()
        })?;
    }
    let mut listener = None;
    let mut born = hear(control, &mut listener, message::BORN)?;
    let pidfd = first.insert(born.fds.pop().ok_or(LaunchError::HelperGone)?);
    let pid = pid_of(pidfd).unwrap_or(0);
    if let Some(seccomp) = plan.seccomp {
        let mut filtered = hear(control, &mut listener, message::LISTENER)?;
        listener = filtered
            .fds
            .pop()
            .map(|socket| Listener::new(socket, seccomp.internet));
    }
    let mut confined = hear(control, &mut listener, message::CONFINED)?;
    let numbers = confined
        .list(Reader::number)
        .map_err(|_| LaunchError::HelperGone)?;
    let layers = Layer::ALL
        .into_iter()
        .filter(|layer| numbers.contains(&(*layer as u64)))
        .collect();
    let processes_limited = confined.flag().unwrap_or(false);
    Ok(Met {
        pid,
        listener,
        layers,
        processes_limited,
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
fn hear(
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

/// Ends a sandbox in which nothing was run.
fn abandon(mut parts: Parts) {
    drop(parts.control);
    end(&mut parts.launcher, Some(&parts.pidfd));
}

/// Kills and reaps. The first process is our child too, unless bubblewrap is in between.
fn end(launcher: &mut Child, first: Option<&OwnedFd>) {
    if let Some(first) = first {
        let _ = pidfd_send_signal(first, Signal::KILL);
        let _ = waitid(WaitId::PidFd(first.as_fd()), WaitIdOptions::EXITED);
    }
    let _ = launcher.kill();
    let _ = launcher.wait();
}
