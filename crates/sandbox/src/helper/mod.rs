//! The inside: the same binary started again, alone in its process, before any thread or
//! runtime. As launcher it waits for plans and splits a process off for each; that one carries
//! the plan out step by step, checks from within that it holds, and only then starts the
//! command.
//!
//! Reading order: [`dispatch_helper`], `launcher`, `first_process`, then one file per step.

mod bubblewrap;
mod command;
mod init;
mod landlock;
mod launcher;
mod memory;
mod mounts;
mod namespaces;
mod network;
mod networks;
mod privileges;
mod seccomp;
mod self_check;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memory::MemoryMeter;
use namespaces::Membership;
use rustix::process::{PidfdFlags, getpid, getuid, pidfd_open};

use crate::message;
use crate::plan::{Containment, Plan};
use crate::report::Layer;
use crate::wire::{Reader, Writer};

/// The first argument that makes this program the launcher of sandboxes.
pub(crate) const MARK: &str = "__sandbox-launcher";
/// The first argument of the helper that bubblewrap starts: one plan, carried out right here.
const INSIDE_MARK: &str = "__sandbox-inside";

/// Turns this process into a sandbox helper if it was started as one; returns otherwise.
///
/// Must be the first statement of `main`: a helper that already has threads cannot enter
/// namespaces. Being a helper is no privilege: a user who can start one with a plan of their own
/// could have run the command directly.
pub fn dispatch_helper() {
    let mark = std::env::args_os().nth(1);
    if mark.as_deref() == Some(OsStr::new(MARK)) {
        end_with(launcher::serve());
    }
    if mark.as_deref() == Some(OsStr::new(INSIDE_MARK)) {
        end_with(serve_inside());
    }
}

#[cfg(feature = "dispatch-before-main")]
mod before_main {
    extern "C" fn dispatch() {
        super::dispatch_helper();
    }

    // SAFETY: the loader calls every pointer in this section once, on the only thread, with
    // libc initialised; glibc passes arguments that `dispatch` may ignore under the C calling
    // convention. `std` sets up its own argument list in an earlier slot of the same section.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static DISPATCH: extern "C" fn() = dispatch;
}

/// Step that failed, and its error; nothing was run.
#[derive(Debug)]
pub(crate) struct Failure {
    step: &'static str,
    target: String,
    error: io::Error,
}

/// Names the step and the thing when an operation fails.
trait Context<T> {
    fn at(self, step: &'static str, target: impl ToString) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn at(self, step: &'static str, target: impl ToString) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step,
            target: target.to_string(),
            error: error.into(),
        })
    }
}

/// Layers and limits that the helper found in force.
#[derive(Debug, Default)]
struct Confinement {
    layers: Vec<Layer>,
    /// The bound on the number of processes.
    processes: Option<u64>,
    /// Hears of refused calls. Until the agent has it nothing here may be refused with a
    /// notification, because no one would answer.
    listener: Option<OwnedFd>,
}

fn end_with(outcome: io::Result<()>) -> ! {
    std::process::exit(i32::from(outcome.is_err()))
}

/// Carries out one plan in this process, which bubblewrap has contained.
fn serve_inside() -> io::Result<()> {
    let control = take_control()?;
    if let Some(mut frame) = Reader::receive(&control)? {
        let plan = Plan::decode(&mut frame)?;
        match announce(&control) {
            Ok(()) => first_process(&plan, &control, &Membership::default()),
            Err(failure) => report_failure(&failure, &control),
        }
    }
    Ok(())
}

/// Hands the agent a descriptor of this process, which everything dies with.
fn announce(control: &OwnedFd) -> Result<(), Failure> {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).at("open a pid descriptor", "")?;
    Writer::with_tag(message::SPAWNED)
        .send(control, &[own.as_fd()])
        .at("report", "the agent")
}

fn report_failure(failure: &Failure, control: &OwnedFd) {
    let mut failed = Writer::with_tag(message::FAILED);
    failed
        .bytes(failure.step.as_bytes())
        .bytes(failure.target.as_bytes());
    failed.number(failure.error.raw_os_error().unwrap_or(0) as u64);
    failed.bytes(failure.error.to_string().as_bytes());
    // Without the agent there is no one to report to.
    let _ = failed.send(control, &[]);
}

/// The socket arrives as standard input, because that needs no code between fork and exec.
fn take_control() -> io::Result<OwnedFd> {
    // SAFETY: nothing in this process owns a descriptor above 2 yet, so none is closed under
    // an owner's feet; whatever is open there was inherited by accident.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(control)
}

/// Confines itself, waits for the word, runs the command and cleans up after it.
fn first_process(plan: &Plan, control: &OwnedFd, before: &Membership) -> ! {
    let started = (|| {
        let (seen, memory) = confine(plan, before)?;
        let mut confined = Writer::with_tag(message::CONFINED);
        confined.list(&seen.layers, |out, layer| {
            out.number(*layer as u64);
        });
        confined.optional(seen.processes);
        let fds: Vec<BorrowedFd<'_>> = seen.listener.iter().map(OwnedFd::as_fd).collect();
        confined.send(control, &fds).at("report", "the agent")?;
        drop(seen.listener);
        match Reader::receive(control).at("wait for the agent", "")? {
            Some(frame) if frame.tag == message::GO => {
                let without_route = network::without_route(plan);
                command::start(plan).map(|command| (command, without_route, memory))
            }
            // The agent changed its mind or is gone: nothing was run.
            _ => std::process::exit(0),
        }
    })();
    let (command, without_route, memory) = started.unwrap_or_else(|failure: Failure| {
        report_failure(&failure, control);
        std::process::exit(1);
    });
    let mut started = Writer::with_tag(message::STARTED);
    // If the agent is gone, the loop below sees the same broken socket and ends everything.
    let _ = started
        .number(command.as_raw_nonzero().get() as u64)
        .send(control, &[]);
    init::watch_over(command, plan, control, without_route, memory.as_ref())
}

/// The steps, in the order in which each still has what it needs.
fn confine(
    plan: &Plan,
    before: &Membership,
) -> Result<(Confinement, Option<MemoryMeter>), Failure> {
    let mut seen = Confinement::default();
    let confined = plan.seccomp.is_some();
    match plan.containment {
        Containment::Namespaces => {
            mounts::arrange(&plan.mounts, plan.network_namespace)?;
            seen.processes = plan.limits.processes.and_then(privileges::limit_processes);
        }
        Containment::Bubblewrap | Containment::InsideBubblewrap => {}
        Containment::Subreaper => {
            rustix::process::set_child_subreaper(Some(getpid())).at("adopt orphans", "")?;
        }
    }
    let contained = plan.containment != Containment::Subreaper;
    if confined {
        privileges::limit_resources(&plan.limits, contained)?;
        let as_root = plan.run_as.is_none() && getuid().is_root();
        if contained && !as_root {
            seen.processes = plan.limits.processes;
        }
    }
    if plan.containment == Containment::Namespaces {
        mounts::seal_proc()?;
    }
    // Being a leader already is as good.
    let _ = rustix::process::setsid();
    if confined {
        let owner = plan
            .run_as
            .filter(|_| plan.containment == Containment::Namespaces);
        privileges::drop_capabilities(owner)?;
        let hidden = rustix::process::DumpableBehavior::NotDumpable;
        rustix::process::set_dumpable_behavior(hidden).at("hide from the command", "")?;
    }
    // With the rights that the command will have.
    rustix::process::chdir(&plan.cwd).at("enter the working directory", plan.cwd.display())?;
    // Before the filter, which would refuse the socket that it asks.
    let memory = MemoryMeter::of(plan);
    if let Some(landlock) = &plan.landlock {
        landlock::restrict(landlock)?;
    }
    if let Some(seccomp) = plan.seccomp {
        seen.listener = seccomp::install(seccomp)?;
    }
    seen.layers = self_check::inspect(plan, before)?;
    Ok((seen, memory))
}
