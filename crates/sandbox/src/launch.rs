//! The outside of a launch: start the helper, hear what it established, give the word.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::helper::MARK;
use crate::message;
use crate::plan::{Containment, LimitPlan, MountPlan, Plan};
use crate::policy::{Command, Mode, Policy};
use crate::probe::Capabilities;
use crate::report::{EnforcementReport, Level};
use crate::running::{Parts, Running, Sink, supervise};
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
    let Mode::Off { reason } = &policy.mode else {
        return Err(LaunchError::Unavailable {
            reason: capabilities.reasons().join("; "),
        });
    };
    let plan = Plan {
        containment: Containment::Subreaper,
        network_namespace: false,
        run_as: None,
        bubblewrap: PathBuf::new(),
        mounts: MountPlan::default(),
        landlock: None,
        seccomp: None,
        limits: LimitPlan::default(),
        cwd: policy.cwd.clone(),
        arguments: arguments(&policy.command),
        environment: policy.environment.clone(),
    };
    let report = EnforcementReport {
        level: Level::None,
        layers: Vec::new(),
        landlock_abi: None,
        hidden: Vec::new(),
        readable: Vec::new(),
        writable: Vec::new(),
        protected: Vec::new(),
        protected_search_complete: true,
        network: policy.network,
        limits: Vec::new(),
        environment_names: names(&plan.environment),
        cwd: plan.cwd.clone(),
        uid: rustix::process::getuid().as_raw(),
        notes: vec![reason.clone()],
    };
    launch(&plan, report)
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
        let Some(parts) = self.parts.take() else {
            return Err(LaunchError::HelperGone);
        };
        let started = Writer::with_tag(message::GO)
            .send(&parts.control, &[])
            .map_err(|_| LaunchError::HelperGone)
            .and_then(|()| hear(&parts.control, message::STARTED));
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

fn launch(plan: &Plan, report: EnforcementReport) -> Result<Confined, LaunchError> {
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
    match handshake(plan, &control) {
        Ok((pid, pidfd)) => Ok(Confined {
            parts: Some(Parts {
                report,
                pid,
                launcher,
                pidfd,
                control,
                stdout: stdout.into(),
                stderr: stderr.into(),
            }),
        }),
        Err(error) => {
            drop(control);
            end_launcher(&mut launcher);
            Err(error)
        }
    }
}

fn handshake(plan: &Plan, control: &OwnedFd) -> Result<(u32, OwnedFd), LaunchError> {
    plan.encode()
        .send(control, &[])
        .map_err(|source| LaunchError::Helper { source })?;
    let mut born = hear(control, message::BORN)?;
    let pid = born.number().unwrap_or(0) as u32;
    let pidfd = born.fds.pop().ok_or(LaunchError::HelperGone)?;
    hear(control, message::CONFINED)?;
    Ok((pid, pidfd))
}

/// The next message, which has to be `wanted`.
fn hear(control: &OwnedFd, wanted: u8) -> Result<Reader, LaunchError> {
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
    let _ = pidfd_send_signal(&parts.pidfd, Signal::KILL);
    end_launcher(&mut parts.launcher);
    let _ = waitid(WaitId::PidFd(parts.pidfd.as_fd()), WaitIdOptions::EXITED);
}

fn end_launcher(launcher: &mut Child) {
    let _ = launcher.kill();
    let _ = launcher.wait();
}

fn arguments(command: &Command) -> Vec<OsString> {
    match command {
        // The two dashes end bash's options: a command may itself begin with one.
        Command::Shell(bytes) => ["bash", "--noprofile", "--norc", "-c", "--"]
            .into_iter()
            .map(OsString::from)
            .chain([OsString::from_vec(bytes.clone())])
            .collect(),
        Command::Program { program, arguments } => [program.clone()]
            .into_iter()
            .chain(arguments.iter().cloned())
            .collect(),
    }
}

fn names(environment: &[(OsString, OsString)]) -> Vec<String> {
    environment
        .iter()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect()
}
