//! After the start: reap, obey the agent, and leave nothing behind.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

use super::memory::MemoryMeter;
use super::network;
use crate::message;
use crate::plan::{Containment, Plan};
use crate::wire::{Reader, Writer};

/// Interval at which the memory of all processes is summed up.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Waits for the command to end, or for the agent to be gone, and ends everything then.
/// `without_route` is the count of [`network::without_route`] before the command was started.
pub(super) fn watch_over(
    command: Pid,
    plan: &Plan,
    control: &OwnedFd,
    without_route: Option<u64>,
    memory: Option<&MemoryMeter>,
) -> ! {
    let contained = plan.containment != Containment::Subreaper;
    // Our copies of the command's output would keep its pipes open.
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::empty(),
    );
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let ended = follow(command, memory, control, contained);
    if contained {
        end_everyone();
    } else {
        end_descendants();
    }
    if let Ok(Some((tag, how, value))) = ended {
        let refused = match (without_route, network::without_route(plan)) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => 0,
        };
        let mut exited = Writer::with_tag(tag);
        exited.number(how).number(value).number(refused);
        // If the agent is gone the answer is not needed.
        let _ = exited.send(control, &[]);
    }
    std::process::exit(0)
}

/// Kills every other process of the namespace and waits until they are gone. Our own exit
/// would do that too, but it also takes the mounts down, which the agent need not wait for.
fn end_everyone() {
    loop {
        // SAFETY: a plain system call. In a namespace of our own, -1 means every process in
        // it but ourselves.
        unsafe { libc::kill(-1, libc::SIGKILL) };
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No child at all means no descendant either: orphans would be our children.
            Err(_) => return,
        }
    }
}

type Ended = (u8, u64, u64);

/// The message to send, or `None` when the agent is gone or wants everything gone.
fn follow(
    command: Pid,
    memory: Option<&MemoryMeter>,
    control: &OwnedFd,
    contained: bool,
) -> io::Result<Option<Ended>> {
    let children = child_signals()?;
    loop {
        // Before the first sleep too: the command may have ended before we listened.
        if let Some(ended) = reap(command)? {
            return Ok(Some(ended));
        }
        let mut polled = [
            PollFd::new(control, PollFlags::IN),
            PollFd::new(&children, PollFlags::IN),
        ];
        match poll(&mut polled, memory.is_some().then_some(&TICK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !polled[1].revents().is_empty() {
            let mut drained = [0; 128];
            let _ = rustix::io::read(&children, &mut drained);
        }
        if !polled[0].revents().is_empty() {
            match Reader::receive(control)? {
                Some(frame) if frame.tag == message::TERMINATE => terminate(command, contained),
                // Asked to kill, or the agent is gone.
                _ => return Ok(None),
            }
        }
        if memory.is_some_and(|memory| memory.is_passed(&inside(contained))) {
            return Ok(Some((message::OUT_OF_MEMORY, 0, 0)));
        }
    }
}

/// A descriptor that becomes readable when a child ends.
fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set lives on this stack and is initialised by `sigemptyset` before use;
    // `signalfd` returns a new descriptor that has no other owner.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Collects every child that ended, orphans included.
fn reap(command: Pid) -> io::Result<Option<Ended>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(code) = status.exit_status() {
                    return Ok(Some((message::EXITED, 0, code as u64)));
                }
                if let Some(signal) = status.terminating_signal() {
                    return Ok(Some((message::EXITED, 1, signal as u64)));
                }
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Asks everything inside to end.
fn terminate(command: Pid, contained: bool) {
    if contained {
        // SAFETY: a plain system call. In a namespace of our own, -1 means every process in
        // it but ourselves.
        unsafe { libc::kill(-1, libc::SIGTERM) };
        return;
    }
    let _ = rustix::process::kill_process_group(command, Signal::TERM);
    for pid in descendants() {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Kills what the command left behind when no namespace does it for us. Orphans become our
/// children, so every round finds what the last one set free; the bound keeps a process that
/// forks faster than we look from holding us for ever.
fn end_descendants() {
    for _ in 0..200 {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                // No child at all means no descendant either: orphans would be our children.
                Err(_) => return,
                Ok(None) => break,
            }
        }
        for pid in descendants() {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Every living process below this one, from `/proc`.
fn descendants() -> Vec<Pid> {
    let parents: Vec<(i32, i32)> = processes()
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut family = vec![getpid().as_raw_nonzero().get()];
    let mut at = 0;
    while at < family.len() {
        let parent = family[at];
        family.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
        at += 1;
    }
    family
        .into_iter()
        .skip(1)
        .filter_map(Pid::from_raw)
        .collect()
}

/// Everything that is ours, ourselves included.
fn inside(contained: bool) -> Vec<i32> {
    if contained {
        return processes().collect();
    }
    let below = descendants();
    below.iter().map(|pid| pid.as_raw_nonzero().get()).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The parent of a process that still runs; a zombie only waits to be reaped.
fn parent_of(pid: i32) -> Option<i32> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    // The name is in parentheses and may itself contain any.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    (fields.next()? != "Z").then(|| fields.next()?.parse().ok())?
}
