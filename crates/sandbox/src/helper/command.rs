//! The last step: start the command itself.

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::{Context, Failure};
use crate::pipeline::READ_FIRST;
use crate::plan::{Containment, Plan};

/// Room for the child until it has become another program.
const STACK: usize = 64 << 10;

/// Everything the child needs, laid out before it exists.
struct Image {
    /// Paths at which the program may be, in the order of `PATH`.
    candidates: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// A Landlock rule set to enter, or -1.
    scope: c_int,
    /// Descriptor for standard input until the command opens another, or -1.
    stdin: c_int,
    /// Written by the child, which shares our memory until it has become the command.
    error: c_int,
}

/// Starts the command and returns its pid, or why it could not be started.
pub(super) fn start(plan: &Plan) -> Result<Pid, Failure> {
    let name = plan.arguments.first().cloned().unwrap_or_default();
    let shown = name.to_string_lossy().into_owned();
    let text = |value: &OsStr| CString::new(value.as_bytes()).map_err(io::Error::from);
    let arguments: Vec<CString> = plan
        .arguments
        .iter()
        .map(|argument| text(argument))
        .collect::<Result<_, _>>()
        .at("start the command", &shown)?;
    let prelude = plan.prelude.as_deref().and_then(readable);
    let read_first = prelude
        .as_ref()
        .map(|_| (READ_FIRST.0.as_ref(), READ_FIRST.1.as_ref()));
    let environment: Vec<CString> = plan
        .environment
        .iter()
        .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
        .chain(read_first)
        .map(|(name, value): (&OsStr, &OsStr)| {
            let mut pair = name.to_owned();
            pair.push("=");
            pair.push(value);
            text(&pair)
        })
        .collect::<Result<_, _>>()
        .at("start the command", "its environment")?;
    let scope = match (&plan.landlock, plan.containment) {
        (Some(landlock), Containment::Subreaper) => super::landlock::signal_scope(landlock.abi),
        _ => None,
    };
    let mut image = Image {
        candidates: candidates(&name, plan).at("start the command", &shown)?,
        arguments: pointers(&arguments),
        environment: pointers(&environment),
        scope: scope.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        stdin: prelude.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        error: 0,
    };
    let mut stack = vec![0_u8; STACK];
    // SAFETY: the end of `stack` is one past its last byte, inside the same allocation, and
    // rounding down to 16 keeps it inside; the ABI wants that alignment.
    let top = unsafe { stack.as_mut_ptr().add(STACK) };
    let top = top.wrapping_sub(top as usize % 16);
    // SAFETY: CLONE_VFORK stops this, the only thread, until the child has called exec or
    // exit, so `image` and `stack` outlive the child's use of them and nothing else touches
    // them meanwhile. `become_command` makes only system calls on memory prepared here.
    let pid = unsafe {
        libc::clone(
            become_command,
            top.cast::<c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            ptr::from_mut(&mut image).cast::<c_void>(),
        )
    };
    if pid < 0 {
        return Err(io::Error::last_os_error()).at("start a process", "");
    }
    // SAFETY: `image.error` is a plain integer of ours; the volatile read keeps the compiler
    // from assuming that it was not written since.
    let error = unsafe { ptr::read_volatile(&image.error) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error)).at("start the command", shown);
    }
    Pid::from_raw(pid)
        .ok_or(io::Error::from(io::ErrorKind::Other))
        .at("start a process", "")
}

extern "C" fn become_command(image: *mut c_void) -> c_int {
    // SAFETY: `image` is the address `start` passed, exclusively ours while `start` is
    // stopped by CLONE_VFORK. Every call below is a system call without allocation or locks;
    // the signal table is a copy (no CLONE_SIGHAND), so resetting it touches only the child.
    unsafe {
        let image = &mut *image.cast::<Image>();
        libc::setsid();
        let default: libc::sigaction = std::mem::zeroed();
        for signal in 1..=64 {
            libc::sigaction(signal, &default, ptr::null_mut());
        }
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        if image.scope >= 0 && libc::syscall(libc::SYS_landlock_restrict_self, image.scope, 0) != 0
        {
            ptr::write_volatile(&mut image.error, *libc::__errno_location());
            libc::_exit(127);
        }
        if image.stdin >= 0 {
            libc::dup2(image.stdin, 0);
        }
        let mut error = libc::ENOENT;
        for candidate in &image.candidates {
            libc::execve(
                candidate.as_ptr(),
                image.arguments.as_ptr(),
                image.environment.as_ptr(),
            );
            // As a shell would: a directory without the program is passed over, a program
            // that may not be run is remembered.
            match *libc::__errno_location() {
                libc::ENOENT | libc::ENOTDIR => {}
                other => error = other,
            }
        }
        ptr::write_volatile(&mut image.error, error);
        libc::_exit(127)
    }
}

/// A descriptor from which these bytes can be read, and then nothing.
fn readable(bytes: &[u8]) -> Option<OwnedFd> {
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
    // An unread pipe holds that much; what does not fit is not written.
    let written = rustix::io::write(&writing, bytes).ok()?;
    rustix::io::ioctl_fionbio(&reading, false).ok()?;
    (written == bytes.len()).then_some(reading)
}

fn candidates(name: &OsStr, plan: &Plan) -> io::Result<Vec<CString>> {
    if name.as_bytes().contains(&b'/') {
        return Ok(vec![CString::new(name.as_bytes())?]);
    }
    let path = plan
        .environment
        .iter()
        .find(|(name, _)| name == "PATH")
        .map_or_else(
            || OsString::from("/usr/local/bin:/usr/bin:/bin"),
            |(_, value)| value.clone(),
        );
    path.into_vec()
        .split(|byte| *byte == b':')
        .filter(|directory| directory.starts_with(b"/"))
        .map(|directory| Ok(CString::new([directory, b"/", name.as_bytes()].concat())?))
        .collect()
}

/// The array that exec wants: addresses and a null at the end. `texts` has to outlive it.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts
        .iter()
        .map(|text| text.as_ptr())
        .chain([ptr::null()])
        .collect()
}
