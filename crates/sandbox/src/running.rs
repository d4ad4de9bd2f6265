//! A command that runs: its output, its end, and how to bring the end about.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Signal, pidfd_send_signal};

use crate::control_group::ControlGroup;
use crate::infer::{Boundary, infer};
use crate::launcher::Launcher;
use crate::listener::Listener;
use crate::message;
use crate::pipeline::PipelineReport;
use crate::report::{EnforcementReport, Level};
use crate::streams::Streams;
use crate::violation::{Detection, Kind, Permit, Quarantined, Violation};
use crate::watch::{Outcome, Watch};
use crate::wire::{Reader, Writer};

/// Between TERM and KILL.
pub const GRACE: Duration = Duration::from_secs(2);

/// Interval at which free disk space is checked.
const TICK: Duration = Duration::from_millis(250);

/// Time until the first check of protected names while a command runs, and the least time between two checks. They
/// take a twentieth of the time at most.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Most bytes read after the end when something holds the pipe open.
const MAX_LEFT_OVER: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Receives output as it comes. Called on a thread of the command's own; while it blocks, the
/// command blocks too once the pipe is full, and nothing is buffered.
pub type Sink = Box<dyn FnMut(Stream, &[u8]) + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// Reason why we ended a command that did not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledBy {
    Deadline,
    Cancelled,
    /// The handle was dropped or the session ended.
    SessionEnd,
    MemoryLimit,
    DiskLimit,
    /// The sandbox itself was killed from outside.
    Outside,
}

impl KilledBy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::SessionEnd => "session_end",
            Self::MemoryLimit => "memory_limit",
            Self::DiskLimit => "disk_limit",
            Self::Outside => "outside",
        }
    }
}

/// Result of a command. By the time it exists every process of the command is dead (at levels `partial` and `none`:
/// as far as can be known) and the protected paths were compared.
#[derive(Debug, Clone)]
pub struct Finished {
    pub status: ExitStatus,
    pub killed_by: Option<KilledBy>,
    pub duration: Duration,
    pub violations: Vec<Violation>,
    pub quarantined: Vec<Quarantined>,
    /// True if protected paths may have been moved or put back after [`crate::Policy::walk_after`] was made.
    pub changed_after_walk: bool,
    /// The exit status of every member of the script's last pipeline, if the policy asked for it and
    /// the shell reported it.
    pub pipe_status: Option<Vec<i32>>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

/// A running command. Dropping it ends the command.
#[derive(Debug)]
pub struct Running {
    report: EnforcementReport,
    pid: u32,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Record of files that were written by others while a command runs.
#[derive(Debug, Clone)]
pub struct ExternalWrites(Arc<Shared>);

impl ExternalWrites {
    /// Adds a file, relative to the workspace: at a protected name it is not attributed to the command.
    pub fn add(&self, path: &Path) {
        self.0.state().external.push(path.to_owned());
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<RunState>,
    changed: Condvar,
    /// Wakes the supervisor: an end was asked for.
    wake: OwnedFd,
    /// Becomes readable, and stays so, at the end.
    done: OwnedFd,
}

#[derive(Debug, Default)]
struct RunState {
    end_asked: Option<KilledBy>,
    /// Written by others since, relative to the workspace.
    external: Vec<PathBuf>,
    finished: Option<Finished>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub fn report(&self) -> &EnforcementReport {
        &self.report
    }

    /// The first process of the sandbox as seen from outside; everything dies with it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Record of files that others write meanwhile.
    pub fn external_writes(&self) -> ExternalWrites {
        ExternalWrites(Arc::clone(&self.shared))
    }

    /// Becomes readable at the end of the command.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }

    /// Asks the command to end: TERM now, KILL after [`GRACE`]. Returns at once; the first
    /// reason given is the one reported.
    pub fn terminate(&self, reason: KilledBy) {
        self.shared.state().end_asked.get_or_insert(reason);
        // The counter cannot overflow: the supervisor resets it on every wake-up.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }

    pub fn finished(&self) -> Option<Finished> {
        self.shared.state().finished.clone()
    }

    /// Waits for the end. At the deadline, or when `cancel` becomes readable, the command is
    /// terminated; the call still returns only when it is gone.
    pub fn wait(&self, deadline: Option<Instant>, cancel: Option<BorrowedFd<'_>>) -> Finished {
        let mut armed = true;
        while armed {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let mut polled = vec![PollFd::new(&self.shared.done, PollFlags::IN)];
            polled.extend(cancel.map(|cancel| PollFd::from_borrowed_fd(cancel, PollFlags::IN)));
            let ready = poll(&mut polled, left.map(timespec).as_ref());
            if !polled[0].revents().is_empty() {
                break;
            }
            if polled
                .get(1)
                .is_some_and(|cancel| !cancel.revents().is_empty())
            {
                self.terminate(KilledBy::Cancelled);
                armed = false;
            } else if ready == Ok(0) {
                self.terminate(KilledBy::Deadline);
                armed = false;
            }
        }
        let mut state = self.shared.state();
        loop {
            if let Some(finished) = &state.finished {
                return finished.clone();
            }
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.finished().is_none() {
            self.terminate(KilledBy::SessionEnd);
        }
        if let Some(thread) = self.thread.take() {
            // A sink that panicked has already been reported on its own thread.
            let _ = thread.join();
        }
    }
}

/// Everything the supervisor of one command owns.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) report: EnforcementReport,
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
    /// The `bwrap` around it.
    pub(crate) outer: Option<OwnedFd>,
    /// Its parent, which reaps it.
    pub(crate) _launcher: Arc<Launcher>,
    pub(crate) group: Option<ControlGroup>,
    pub(crate) control: OwnedFd,
    pub(crate) listener: Option<Listener>,
    pub(crate) watch: Watch,
    pub(crate) pipeline: Option<PipelineReport>,
    pub(crate) boundary: Option<Boundary>,
    /// Kill the command when this directory's file system has less room than that.
    pub(crate) free_disk: Option<(PathBuf, u64)>,
    pub(crate) streams: Streams,
}

/// Takes over a command that was just started.
pub(crate) fn supervise(parts: Parts, sink: Sink) -> std::io::Result<Running> {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        done: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
    });
    let (report, pid) = (parts.report.clone(), parts.pid);
    let mut supervisor = Supervisor {
        begun: Instant::now(),
        output: OutputCollector {
            sink,
            totals: [0; 2],
            stderr_tail: VecDeque::new(),
            tail: VecDeque::new(),
        },
        killed_by: None,
        status: None,
        over: false,
        without_route: 0,
        violations: Vec::new(),
        found: Outcome::default(),
        next_check: Instant::now() + CHECK_INTERVAL,
        shared: Arc::clone(&shared),
        parts,
    };
    let thread = std::thread::Builder::new()
        .name("sandboxed command".into())
        .spawn(move || supervisor.run())?;
    Ok(Running {
        report,
        pid,
        shared,
        thread: Some(thread),
    })
}

struct Supervisor {
    parts: Parts,
    shared: Arc<Shared>,
    output: OutputCollector,
    begun: Instant,
    killed_by: Option<KilledBy>,
    status: Option<ExitStatus>,
    /// The helper has sent its last message; it only takes its mounts down now.
    over: bool,
    /// Packets that found no way out of the command's network namespace.
    without_route: u64,
    violations: Vec<Violation>,
    /// Moved to quarantine so far.
    found: Outcome,
    next_check: Instant,
}

/// Receiver of output: passes it on, counts it and keeps its end.
struct OutputCollector {
    sink: Sink,
    totals: [u64; 2],
    /// The end of the error output, for guesses about refusals.
    stderr_tail: VecDeque<u8>,
    /// The end of all output, for refusals that the policy confirms.
    tail: VecDeque<u8>,
}

/// Bytes at the end of an output that are looked through for refusals.
const TAIL: usize = 8192;

impl OutputCollector {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.totals[stream as usize] += bytes.len() as u64;
        let errors = (stream == Stream::Stderr).then_some(&mut self.stderr_tail);
        for tail in errors.into_iter().chain([&mut self.tail]) {
            tail.extend(&bytes[bytes.len().saturating_sub(TAIL)..]);
            let surplus = tail.len().saturating_sub(TAIL);
            tail.drain(..surplus);
        }
        (self.sink)(stream, bytes);
    }
}

impl Supervisor {
    fn run(&mut self) {
        self.follow();
        self.collect();
        let finished = self.finish();
        self.shared.state().finished = Some(finished);
        self.shared.changed.notify_all();
        // This counter is never read, so it stays readable.
        let _ = rustix::io::write(&self.shared.done, &1_u64.to_ne_bytes());
        self.leave_group();
    }

    /// The first process may still be taking its mounts down, and a group with a process in it
    /// cannot be removed.
    fn leave_group(&mut self) {
        let Some(group) = self.parts.group.take() else {
            return;
        };
        group.kill();
        let mut polled = [PollFd::new(&self.parts.pidfd, PollFlags::IN)];
        let _ = poll(&mut polled, Some(&timespec(GRACE)));
    }

    /// Passes output on until the first process says that all others are dead, or is itself.
    fn follow(&mut self) {
        let mut control_is_open = true;
        let mut kill_at: Option<Instant> = None;
        let mut kill_was_asked = false;
        loop {
            let timeout = match kill_at {
                Some(at) => Some(at.saturating_duration_since(Instant::now())),
                None => Some(self.until_next_check()),
            };
            let timeout = if self.parts.streams.has_more() {
                Some(Duration::ZERO)
            } else {
                timeout
            };
            let ready = self.sleep(control_is_open, timeout);
            self.pass_on();
            if ready.listener
                && self
                    .parts
                    .listener
                    .as_mut()
                    .is_some_and(|listener| !listener.answer())
            {
                self.retire_listener();
            }
            if ready.control {
                control_is_open = self.receive();
            }
            if ready.dead || self.over {
                return;
            }
            if ready.wake {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.shared.wake, &mut count);
            }
            self.check_protected();
            if self.disk_is_full() {
                self.shared
                    .state()
                    .end_asked
                    .get_or_insert(KilledBy::DiskLimit);
            }
            let asked = self.shared.state().end_asked;
            if let Some(reason) = asked
                && kill_at.is_none()
            {
                self.killed_by.get_or_insert(reason);
                let _ = Writer::with_tag(message::TERMINATE).send(&self.parts.control, &[]);
                kill_at = Some(Instant::now() + GRACE);
            }
            if kill_at.is_some_and(|at| at <= Instant::now()) {
                // Where no namespace ends with the first process, only that process finds the
                // others: killed first, it would leave them to the system.
                if self.is_contained() || kill_was_asked {
                    // Gone already is as good as killed.
                    let _ = pidfd_send_signal(&self.parts.pidfd, Signal::KILL);
                } else {
                    let _ = Writer::with_tag(message::KILL).send(&self.parts.control, &[]);
                    kill_was_asked = true;
                }
                kill_at = Some(Instant::now() + GRACE);
            }
        }
    }

    /// Time until the disk or protected names have to be checked again.
    fn until_next_check(&self) -> Duration {
        let left = self.next_check.saturating_duration_since(Instant::now());
        match self.parts.free_disk {
            Some(_) => left.min(TICK),
            None => left,
        }
    }

    /// Moves what the command has put at protected names so far to quarantine.
    fn check_protected(&mut self) {
        let began = Instant::now();
        if began < self.next_check {
            return;
        }
        let external = self.shared.state().external.clone();
        self.parts.watch.during(&external, &mut self.found);
        let took = began.elapsed();
        self.next_check = Instant::now() + CHECK_INTERVAL.max(took * 20);
    }

    /// True if everything dies with the first process.
    fn is_contained(&self) -> bool {
        !matches!(self.parts.report.level, Level::Partial | Level::None)
    }

    /// Waits until something can be done.
    fn sleep(&self, control_is_open: bool, timeout: Option<Duration>) -> Ready {
        let wanted = PollFlags::IN;
        let mut polled = vec![
            PollFd::new(&self.parts.pidfd, wanted),
            PollFd::new(&self.shared.wake, wanted),
            PollFd::from_borrowed_fd(self.parts.streams.ready(), wanted),
        ];
        let mut add = |present: bool, fd: BorrowedFd<'_>| {
            present.then(|| {
                // SAFETY: the descriptor belongs to `self.parts`, which outlives this call.
                let fd = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
                polled.push(PollFd::from_borrowed_fd(fd, wanted));
                polled.len() - 1
            })
        };
        // An end that has closed is left out, because poll reports it for ever.
        let control = add(control_is_open, self.parts.control.as_fd());
        let listener = self
            .parts
            .listener
            .as_ref()
            .and_then(|listener| add(true, listener.socket.as_fd()));
        if poll(&mut polled, timeout.map(timespec).as_ref()).is_err() {
            return Ready::default();
        }
        let is = |at: Option<usize>| at.is_some_and(|at| !polled[at].revents().is_empty());
        Ready {
            dead: is(Some(0)),
            wake: is(Some(1)),
            control: is(control),
            listener: is(listener),
        }
    }

    fn retire_listener(&mut self) {
        if let Some(mut listener) = self.parts.listener.take() {
            self.violations.extend(listener.take());
        }
    }

    fn disk_is_full(&self) -> bool {
        self.parts.free_disk.as_ref().is_some_and(|(path, least)| {
            rustix::fs::statvfs(path)
                .is_ok_and(|data| data.f_bavail.saturating_mul(data.f_frsize) < *least)
        })
    }

    /// Passes on what was printed, in the order in which it was printed; returns how many bytes it was.
    fn pass_on(&mut self) -> usize {
        let output = &mut self.output;
        let give = &mut |stream, bytes: &[u8]| output.take(stream, bytes);
        self.parts.streams.pass_on(give)
    }

    /// Receives one message from the helper; false when the connection has ended.
    fn receive(&mut self) -> bool {
        let Ok(Some(mut frame)) = Reader::receive(&self.parts.control) else {
            return false;
        };
        self.over |= matches!(frame.tag, message::EXITED | message::OUT_OF_MEMORY);
        let (how, value) = (frame.number().unwrap_or(0), frame.number().unwrap_or(0));
        if self.over {
            self.without_route = frame.number().unwrap_or(0);
        }
        match frame.tag {
            message::EXITED if how == 0 => self.status = Some(ExitStatus::Code(value as i32)),
            message::EXITED => self.status = Some(ExitStatus::Signal(value as i32)),
            message::OUT_OF_MEMORY => {
                self.killed_by.get_or_insert(KilledBy::MemoryLimit);
            }
            _ => {}
        }
        true
    }

    /// Everything is dead: take what is left in the pipes.
    fn collect(&mut self) {
        while !self.over && self.receive() {}
        let mut taken = 0;
        // The bound is for a survivor that keeps writing.
        while taken <= MAX_LEFT_OVER {
            match self.pass_on() {
                0 => break,
                count => taken += count,
            }
        }
        let output = &mut self.output;
        let give = &mut |stream, bytes: &[u8]| output.take(stream, bytes);
        self.parts.streams.drain(MAX_LEFT_OVER, give);
    }

    fn finish(&mut self) -> Finished {
        // Without our own walk.
        let duration = self.begun.elapsed();
        let status = self
            .status
            .unwrap_or(ExitStatus::Signal(Signal::KILL.as_raw()));
        let killed = ExitStatus::Signal(Signal::KILL.as_raw());
        let out_of_memory = status == killed
            && (self.parts.group.as_ref()).is_some_and(ControlGroup::ran_out_of_memory);
        let killed_by = self
            .killed_by
            .or(out_of_memory.then_some(KilledBy::MemoryLimit))
            .or(self.status.is_none().then_some(KilledBy::Outside));
        self.retire_listener();
        let mut violations = std::mem::take(&mut self.violations);
        let external = self.shared.state().external.clone();
        let mut found = std::mem::take(&mut self.found);
        self.parts.watch.after(&external, &mut found);
        let changed_after_walk = found.has_news();
        let (changed, quarantined) = found.into_parts();
        violations.extend(changed);
        if let Some(boundary) = &self.parts.boundary {
            if self.without_route > 0 {
                violations.push(Violation {
                    kind: Kind::Network,
                    target: "connections out of the sandbox".to_owned(),
                    count: self.without_route,
                    detection: Detection::KernelCounter,
                    permitted_by: Permit::Network,
                    expected: false,
                });
            }
            violations.extend(infer(
                boundary,
                self.output.tail.make_contiguous(),
                self.output.stderr_tail.make_contiguous(),
                status != ExitStatus::Code(0),
                self.without_route > 0,
            ));
        }
        Finished {
            status,
            killed_by,
            duration,
            violations,
            quarantined,
            changed_after_walk,
            pipe_status: self.parts.pipeline.as_ref().and_then(PipelineReport::read),
            stdout_bytes: self.output.totals[0],
            stderr_bytes: self.output.totals[1],
        }
    }
}

/// Descriptors that became ready.
#[derive(Default)]
struct Ready {
    dead: bool,
    wake: bool,
    control: bool,
    listener: bool,
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
