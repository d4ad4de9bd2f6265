//! Step five: the system call filter, the last thing to be set up because it also binds us.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
};

use super::{Context, Failure};
use crate::plan::SeccompPlan;
use crate::syscalls::{
    Answer, CREATING, FILE_MODES, NAMESPACE_FLAGS, OPENING, REFUSED, REFUSED_IOCTLS, RUNS_AS_OWNER,
    SELF_CHECK_PROTOCOL,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Numbers from here on belong to the x32 entry, which renames every call.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

// Offsets in the `seccomp_data` that a filter sees.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// Offset of the low half of an argument, which is all that the kernel reads of the ints and
/// flags we look at: comparing the high half too would be a way round.
const fn argument(index: u32) -> u32 {
    16 + index * 8
}

/// Installs the filter. The descriptor receives notifications of refused calls; there is none when an outer
/// sandbox already listens, and the filter then answers by itself.
pub(super) fn install(plan: SeccompPlan) -> Result<Option<OwnedFd>, Failure> {
    let listening = program(plan, libc::SECCOMP_RET_USER_NOTIF);
    let killable =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    for flags in [killable, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER] {
        match load(&listening, flags) {
            Ok(listener) => {
                // SAFETY: with NEW_LISTENER the call returned a new descriptor that has no owner yet.
                return Ok(Some(unsafe { OwnedFd::from_raw_fd(listener) }));
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBUSY)) => {}
            Err(error) => return Err(error).at("install the system call filter", ""),
        }
    }
    let answering = program(plan, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    load(&answering, 0).at("install the system call filter", "")?;
    Ok(None)
}

fn load(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_int> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `program` points at `len` instructions that live through the call; the kernel
    // copies and checks them and does not write.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as libc::c_int)
    }
}

/// Assembles the filter; `refuse` is what a refused call returns to the kernel.
fn program(plan: SeccompPlan, refuse: u32) -> Vec<libc::sock_filter> {
    let missing = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut code = Assembler::default();
    code.load(ARCHITECTURE_AT);
    code.unless_equal(ARCHITECTURE, |code| {
        code.answer(libc::SECCOMP_RET_KILL_PROCESS)
    });
    code.load(NUMBER);
    #[cfg(target_arch = "x86_64")]
    code.when(BPF_JGE, X32, |code| {
        code.answer(libc::SECCOMP_RET_KILL_PROCESS)
    });
    // First, because these are the only frequent calls whose arguments matter: the kernel
    // remembers the answer for calls that are allowed whatever their arguments.
    for (number, flags, mode) in OPENING {
        code.when(BPF_JEQ, *number as u32, |code| {
            code.load(argument(*flags));
            code.when(BPF_JSET, CREATING, |code| {
                code.load(argument(*mode));
                code.when(BPF_JSET, RUNS_AS_OWNER, |code| code.answer(refuse));
            });
            code.answer(libc::SECCOMP_RET_ALLOW);
        });
    }
    for (number, _, answer) in REFUSED {
        let answer = if *answer == Answer::SilentlyMissing {
            missing
        } else {
            refuse
        };
        code.when(BPF_JEQ, *number as u32, |code| code.answer(answer));
    }
    if !plan.memory_files {
        code.when(BPF_JEQ, libc::SYS_memfd_create as u32, |code| {
            code.answer(missing)
        });
    }
    code.when(BPF_JEQ, libc::SYS_clone as u32, |code| {
        code.load(argument(0));
        code.when(BPF_JSET, NAMESPACE_FLAGS, |code| code.answer(refuse));
        code.answer(libc::SECCOMP_RET_ALLOW);
    });
    code.when(BPF_JEQ, libc::SYS_ioctl as u32, |code| {
        code.load(argument(1));
        for request in REFUSED_IOCTLS {
            code.when(BPF_JEQ, request, |code| code.answer(refuse));
        }
        code.answer(libc::SECCOMP_RET_ALLOW);
    });
    code.when(BPF_JEQ, libc::SYS_socket as u32, |code| {
        code.load(argument(0));
        if plan.internet {
            for family in [libc::AF_INET, libc::AF_INET6] {
                code.when(BPF_JEQ, family as u32, internet_protocol);
            }
        }
        code.when(BPF_JEQ, libc::AF_VSOCK as u32, |code| {
            code.load(argument(2));
            let answer = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
            code.when(BPF_JEQ, SELF_CHECK_PROTOCOL.get(), |code| {
                code.answer(answer)
            });
            code.answer(refuse);
        });
        // Interface and address lists come by netlink's protocol 0; the others are surface.
        code.when(BPF_JEQ, libc::AF_NETLINK as u32, |code| {
            code.load(argument(2));
            code.when(BPF_JEQ, libc::NETLINK_ROUTE as u32, |code| {
                code.answer(libc::SECCOMP_RET_ALLOW)
            });
        });
        code.answer(refuse);
    });
    code.when(BPF_JEQ, libc::SYS_socketpair as u32, |code| {
        // Of other families some can make pairs too, and those reach the network.
        code.load(argument(0));
        code.unless_equal(libc::AF_UNIX as u32, |code| code.answer(refuse));
        // A datagram pair can be sent to any path, so it is as good as a UNIX socket.
        code.load(argument(1));
        code.and(0xf);
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            code.when(BPF_JEQ, kind as u32, |code| {
                code.answer(libc::SECCOMP_RET_ALLOW)
            });
        }
        code.answer(refuse);
    });
    code.when(BPF_JEQ, libc::SYS_seccomp as u32, |code| {
        // Filters of its own are fine; a listener that could wave calls through is not.
        code.load(argument(1));
        let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32;
        code.when(BPF_JSET, listener, |code| {
            code.answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32)
        });
        code.answer(libc::SECCOMP_RET_ALLOW);
    });
    // A file that runs as its owner would outlast the sandbox; for root, that owner is root.
    for (number, mode) in FILE_MODES {
        code.when(BPF_JEQ, *number as u32, |code| {
            code.load(argument(*mode));
            code.when(BPF_JSET, RUNS_AS_OWNER, |code| code.answer(refuse));
            code.answer(libc::SECCOMP_RET_ALLOW);
        });
    }
    code.answer(libc::SECCOMP_RET_ALLOW);
    code.0
}

/// Answers for a socket of the internet: the protocols that programs use. Others would be loaded into the
/// kernel on demand, and the memory meter has no list of what they hold; programs that try
/// one fall back when it is missing.
fn internet_protocol(code: &mut Assembler) {
    const KNOWN: [(libc::c_int, &[libc::c_int]); 2] = [
        (libc::SOCK_STREAM, &[0, libc::IPPROTO_TCP]),
        (
            libc::SOCK_DGRAM,
            &[
                0,
                libc::IPPROTO_UDP,
                libc::IPPROTO_ICMP,
                libc::IPPROTO_ICMPV6,
            ],
        ),
    ];
    code.load(argument(1));
    code.and(0xf);
    // The kernel refuses these without capabilities.
    code.when(BPF_JEQ, libc::SOCK_RAW as u32, |code| {
        code.answer(libc::SECCOMP_RET_ALLOW)
    });
    for (kind, protocols) in KNOWN {
        code.when(BPF_JEQ, kind as u32, |code| {
            code.load(argument(2));
            for protocol in protocols {
                code.when(BPF_JEQ, *protocol as u32, |code| {
                    code.answer(libc::SECCOMP_RET_ALLOW)
                });
            }
            code.answer(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32);
        });
    }
    code.answer(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32);
}

/// Writes instructions; jumps skip forward over a block.
#[derive(Default)]
struct Assembler(Vec<libc::sock_filter>);

impl Assembler {
    fn push(&mut self, code: u32, jt: u8, jf: u8, k: u32) {
        self.0.push(libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        });
    }

    fn load(&mut self, offset: u32) {
        self.push(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
    }

    fn and(&mut self, mask: u32) {
        self.push(BPF_ALU | BPF_AND | BPF_K, 0, 0, mask);
    }

    fn answer(&mut self, value: u32) {
        self.push(BPF_RET | BPF_K, 0, 0, value);
    }

    /// Runs `block` only if the comparison holds.
    fn when(&mut self, comparison: u32, value: u32, block: impl FnOnce(&mut Self)) {
        let at = self.0.len();
        self.push(BPF_JMP | comparison | BPF_K, 0, 0, value);
        block(self);
        self.0[at].jf = self.distance(at);
    }

    fn unless_equal(&mut self, value: u32, block: impl FnOnce(&mut Self)) {
        let at = self.0.len();
        self.push(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, value);
        block(self);
        self.0[at].jt = self.distance(at);
    }

    /// Blocks are a few instructions long; the kernel refuses a program whose jumps are wrong.
    fn distance(&self, at: usize) -> u8 {
        (self.0.len() - at - 1) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program on a call as the kernel would.
    fn run(plan: SeccompPlan, architecture: u32, number: i64, arguments: [u64; 3]) -> u32 {
        let code = program(plan, libc::SECCOMP_RET_USER_NOTIF);
        let load = |offset: u32| match offset {
            NUMBER => number as u32,
            ARCHITECTURE_AT => architecture,
            other => arguments[(other as usize - 16) / 8] as u32,
        };
        let (mut at, mut held) = (0, 0);
        loop {
            let step = &code[at];
            at += 1;
            let class = u32::from(step.code);
            let mut jump = |holds: bool| at += usize::from(if holds { step.jt } else { step.jf });
            match class {
                c if c == BPF_LD | BPF_W | BPF_ABS => held = load(step.k),
                c if c == BPF_ALU | BPF_AND | BPF_K => held &= step.k,
                c if c == BPF_JMP | BPF_JEQ | BPF_K => jump(held == step.k),
                c if c == BPF_JMP | BPF_JGE | BPF_K => jump(held >= step.k),
                c if c == BPF_JMP | BPF_JSET | BPF_K => jump(held & step.k != 0),
                c if c == BPF_RET | BPF_K => return step.k,
                other => panic!("unknown instruction {other}"),
            }
        }
    }

    fn check(number: i64, arguments: [u64; 3], expected: u32) {
        let answer = run(OPEN, ARCHITECTURE, number, arguments);
        assert_eq!(answer, expected, "call {number} with {arguments:x?}");
    }

    const OPEN: SeccompPlan = SeccompPlan {
        internet: true,
        memory_files: true,
    };

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

    #[test]
    fn each_call_gets_its_answer() {
        check(libc::SYS_read, [0; 3], ALLOW);
        check(libc::SYS_ptrace, [0; 3], NOTIFY);
        check(
            libc::SYS_clone3,
            [0; 3],
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        );
        check(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0], ALLOW);
        check(libc::SYS_clone, [libc::CLONE_NEWUSER as u64, 0, 0], NOTIFY);
        check(libc::SYS_socket, [libc::AF_INET as u64, 1, 0], ALLOW);
        for family in [libc::AF_INET, libc::AF_INET6] {
            let missing = libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32;
            for (kind, protocol, expected) in [
                (libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 6, ALLOW),
                (libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0, ALLOW),
                (libc::SOCK_DGRAM, 17, ALLOW),
                (libc::SOCK_DGRAM, 1, ALLOW),
                (libc::SOCK_RAW, 1, ALLOW),
                // Multipath TCP, SCTP, UDP-Lite.
                (libc::SOCK_STREAM, 262, missing),
                (libc::SOCK_STREAM, 132, missing),
                (libc::SOCK_SEQPACKET, 132, missing),
                (libc::SOCK_DGRAM, 136, missing),
            ] {
                check(
                    libc::SYS_socket,
                    [family as u64, kind as u64, protocol],
                    expected,
                );
            }
        }
        check(libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0], NOTIFY);
        // The kernel drops the upper half of an int, so it must not fool us.
        check(
            libc::SYS_socket,
            [libc::AF_UNIX as u64 | 2 << 32, 1, 0],
            NOTIFY,
        );
        check(
            libc::SYS_ioctl,
            [0, u64::from(REFUSED_IOCTLS[0]) | 1 << 40, 0],
            NOTIFY,
        );
        check(libc::SYS_ioctl, [0, 0x5401, 0], ALLOW);
        check(libc::SYS_socket, [libc::AF_NETLINK as u64, 3, 0], ALLOW);
        check(libc::SYS_socket, [libc::AF_NETLINK as u64, 3, 15], NOTIFY);
        check(
            libc::SYS_socketpair,
            [1, libc::SOCK_STREAM as u64 | 0o2000000, 0],
            ALLOW,
        );
        check(
            libc::SYS_socketpair,
            [1, libc::SOCK_DGRAM as u64 | 0o2000000, 0],
            NOTIFY,
        );
        check(
            libc::SYS_socketpair,
            [1, libc::SOCK_SEQPACKET as u64, 0],
            ALLOW,
        );
        check(libc::SYS_socketpair, [1, libc::SOCK_RDM as u64, 0], NOTIFY);
        for family in [libc::AF_INET, libc::AF_TIPC, libc::AF_VSOCK] {
            check(
                libc::SYS_socketpair,
                [family as u64, libc::SOCK_STREAM as u64, 0],
                NOTIFY,
            );
        }
        check(
            libc::SYS_seccomp,
            [1, 8, 0],
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        );
        check(libc::SYS_seccomp, [1, 0, 0], ALLOW);
    }

    #[test]
    fn other_entries_into_the_kernel_are_fatal() {
        let plan = OPEN;
        assert_eq!(run(plan, 0x4000_0003, libc::SYS_read, [0; 3]), KILL);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            run(plan, ARCHITECTURE, libc::SYS_read | i64::from(X32), [0; 3]),
            KILL
        );
    }

    #[test]
    fn files_in_memory_are_missing_where_nothing_counts_them() {
        let answer = |memory_files| {
            let plan = SeccompPlan {
                memory_files,
                ..OPEN
            };
            run(plan, ARCHITECTURE, libc::SYS_memfd_create, [0; 3])
        };
        assert_eq!(answer(true), ALLOW);
        assert_eq!(answer(false), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    }

    #[test]
    fn without_a_network_namespace_the_filter_closes_the_internet() {
        let plan = SeccompPlan {
            internet: false,
            ..OPEN
        };
        assert_eq!(
            run(
                plan,
                ARCHITECTURE,
                libc::SYS_socket,
                [libc::AF_INET as u64, 1, 0]
            ),
            NOTIFY
        );
    }
}
