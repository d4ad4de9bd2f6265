//! The calls a command may not make, and what each refusal means to a reader of the log.

use libc::{c_int, c_long};

use crate::violation::{Detection, Kind, Permit, Violation};

/// Answer to a refused call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Passed to the agent, which answers "operation not permitted".
    Refuse,
    /// Passed to the agent, which answers that there is no such call, so that libraries with a
    /// second way take it.
    RefuseAsMissing,
    /// Answered as missing by the filter itself: ordinary programs try it all the time.
    SilentlyMissing,
}

use Answer::{Refuse, RefuseAsMissing, SilentlyMissing};

/// Calls that are refused whatever their arguments.
pub(crate) const REFUSED: &[(c_long, &str, Answer)] = &[
    // Other processes.
    (libc::SYS_ptrace, "ptrace", Refuse),
    (libc::SYS_process_vm_readv, "process_vm_readv", Refuse),
    (libc::SYS_process_vm_writev, "process_vm_writev", Refuse),
    (libc::SYS_pidfd_getfd, "pidfd_getfd", Refuse),
    (libc::SYS_kcmp, "kcmp", Refuse),
    // Mounts and namespaces.
    (libc::SYS_mount, "mount", Refuse),
    (libc::SYS_umount2, "umount2", Refuse),
    (libc::SYS_pivot_root, "pivot_root", Refuse),
    (libc::SYS_chroot, "chroot", Refuse),
    (libc::SYS_open_tree, "open_tree", Refuse),
    (libc::SYS_move_mount, "move_mount", Refuse),
    (libc::SYS_fsopen, "fsopen", Refuse),
    (libc::SYS_fsconfig, "fsconfig", Refuse),
    (libc::SYS_fsmount, "fsmount", Refuse),
    (libc::SYS_fspick, "fspick", Refuse),
    (libc::SYS_mount_setattr, "mount_setattr", Refuse),
    (OPEN_TREE_ATTR, "open_tree_attr", Refuse),
    (libc::SYS_unshare, "unshare", Refuse),
    (libc::SYS_setns, "setns", Refuse),
    // Its flags are in memory, where a filter cannot look; C libraries fall back to clone.
    (libc::SYS_clone3, "clone3", SilentlyMissing),
    // Its mode is in memory too; the few programs that know the call also know `openat`.
    (libc::SYS_openat2, "openat2", SilentlyMissing),
    // Memory that no count of ours includes.
    (libc::SYS_memfd_secret, "memfd_secret", SilentlyMissing),
    (libc::SYS_vmsplice, "vmsplice", SilentlyMissing),
    // Ways round the filter.
    (libc::SYS_io_uring_setup, "io_uring_setup", RefuseAsMissing),
    (libc::SYS_io_uring_enter, "io_uring_enter", RefuseAsMissing),
    (
        libc::SYS_io_uring_register,
        "io_uring_register",
        RefuseAsMissing,
    ),
    (libc::SYS_open_by_handle_at, "open_by_handle_at", Refuse),
    (libc::SYS_personality, "personality", Refuse),
    // Wide surfaces of the kernel.
    (libc::SYS_bpf, "bpf", Refuse),
    (libc::SYS_perf_event_open, "perf_event_open", Refuse),
    (libc::SYS_userfaultfd, "userfaultfd", Refuse),
    (libc::SYS_keyctl, "keyctl", Refuse),
    (libc::SYS_add_key, "add_key", Refuse),
    (libc::SYS_request_key, "request_key", Refuse),
    (libc::SYS_fanotify_init, "fanotify_init", Refuse),
    (libc::SYS_lookup_dcookie, "lookup_dcookie", Refuse),
    // The machine.
    (libc::SYS_kexec_load, "kexec_load", Refuse),
    (libc::SYS_kexec_file_load, "kexec_file_load", Refuse),
    (libc::SYS_init_module, "init_module", Refuse),
    (libc::SYS_finit_module, "finit_module", Refuse),
    (libc::SYS_delete_module, "delete_module", Refuse),
    (libc::SYS_reboot, "reboot", Refuse),
    (libc::SYS_swapon, "swapon", Refuse),
    (libc::SYS_swapoff, "swapoff", Refuse),
    (libc::SYS_acct, "acct", Refuse),
    (libc::SYS_quotactl, "quotactl", Refuse),
    (libc::SYS_quotactl_fd, "quotactl_fd", Refuse),
    (libc::SYS_syslog, "syslog", Refuse),
    (libc::SYS_vhangup, "vhangup", Refuse),
    (libc::SYS_sethostname, "sethostname", Refuse),
    (libc::SYS_setdomainname, "setdomainname", Refuse),
    (libc::SYS_settimeofday, "settimeofday", Refuse),
    (libc::SYS_clock_settime, "clock_settime", Refuse),
    (libc::SYS_adjtimex, "adjtimex", Refuse),
    (libc::SYS_clock_adjtime, "clock_adjtime", Refuse),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_iopl, "iopl", Refuse),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ioperm, "ioperm", Refuse),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_modify_ldt, "modify_ldt", Refuse),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_uselib, "uselib", Refuse),
];

/// Calls that open a file: where their flags are, and the mode that counts when they create.
pub(crate) const OPENING: &[(c_long, u32, u32)] = &[
    (libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
];

/// `O_CREAT`, and the bit of `O_TMPFILE` that is its own.
pub(crate) const CREATING: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

/// Calls that give a file its mode, and which argument that is.
pub(crate) const FILE_MODES: &[(c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];

pub(crate) const RUNS_AS_OWNER: u32 = libc::S_ISUID | libc::S_ISGID;

const FCHMODAT2: c_long = 452;

/// Newer than the constants of the C library; the same number on every architecture.
const OPEN_TREE_ATTR: c_long = 467;

/// A protocol that no family has. The filter refuses it without telling the agent, so that
/// the self-check can see the filter at work and need not wait for an answer.
pub(crate) const SELF_CHECK_PROTOCOL: std::num::NonZeroU32 = std::num::NonZeroU32::MAX;

/// Clone flags that make a namespace.
pub(crate) const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u32;

/// Terminal requests that type for the user or reach the console.
pub(crate) const REFUSED_IOCTLS: [u32; 3] = [
    libc::TIOCSTI as u32,
    libc::TIOCLINUX as u32,
    libc::TIOCSETD as u32,
];

/// Address that a C library connects to when it looks for a name-service cache: every `ls -l` does.
const NAME_SERVICE_CACHE: u64 =
    (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;

/// One refused call as the kernel reported it, and the number to answer with.
pub(crate) fn describe(number: c_long, arguments: &[u64; 6], internet: bool) -> (Violation, c_int) {
    let mut answer = libc::EPERM;
    let mut expected = false;
    let (kind, target, permitted_by) = match number {
        libc::SYS_socket | libc::SYS_socketpair => {
            let family = arguments[0] as c_int;
            let name = family_name(family);
            expected = number == libc::SYS_socket
                && family == libc::AF_UNIX
                && arguments[1] == NAME_SERVICE_CACHE;
            let permit = match family {
                libc::AF_INET | libc::AF_INET6 if !internet => Permit::Network,
                _ => Permit::SandboxOff,
            };
            let call = if number == libc::SYS_socket {
                "socket"
            } else {
                "socketpair"
            };
            (Kind::Network, format!("{call}({name})"), permit)
        }
        libc::SYS_clone => (
            Kind::Privilege,
            "clone with a new namespace".into(),
            Permit::SandboxOff,
        ),
        libc::SYS_ioctl => (
            Kind::Privilege,
            format!("ioctl({:#x})", arguments[1] as u32),
            Permit::SandboxOff,
        ),
        _ => {
            let known = REFUSED.iter().find(|(known, ..)| *known == number);
            if known.is_some_and(|(_, _, answer)| *answer == RefuseAsMissing) {
                answer = libc::ENOSYS;
            }
            let name = known.map_or_else(
                || format!("system call {number}"),
                |(_, name, _)| (*name).into(),
            );
            (Kind::Privilege, name, Permit::SandboxOff)
        }
    };
    let detection = Detection::SeccompNotification;
    (
        Violation {
            kind,
            target,
            count: 1,
            detection,
            permitted_by,
            expected,
        },
        answer,
    )
}

fn family_name(family: c_int) -> String {
    match family {
        libc::AF_UNIX => "AF_UNIX".into(),
        libc::AF_INET => "AF_INET".into(),
        libc::AF_INET6 => "AF_INET6".into(),
        libc::AF_NETLINK => "AF_NETLINK".into(),
        libc::AF_PACKET => "AF_PACKET".into(),
        libc::AF_VSOCK => "AF_VSOCK".into(),
        libc::AF_ALG => "AF_ALG".into(),
        libc::AF_BLUETOOTH => "AF_BLUETOOTH".into(),
        other => format!("family {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(number: c_long, arguments: [u64; 6], target: &str, expected: bool, answer: c_int) {
        let (violation, errno) = describe(number, &arguments, true);
        assert_eq!(
            (violation.target.as_str(), violation.expected, errno),
            (target, expected, answer)
        );
    }

    #[test]
    fn refusals_are_named_and_the_cache_lookup_is_expected() {
        check(
            libc::SYS_socket,
            [40, 1, 0, 0, 0, 0],
            "socket(AF_VSOCK)",
            false,
            libc::EPERM,
        );
        check(
            libc::SYS_socket,
            [1, 1, 0, 0, 0, 0],
            "socket(AF_UNIX)",
            false,
            libc::EPERM,
        );
        check(
            libc::SYS_socket,
            [1, NAME_SERVICE_CACHE, 0, 0, 0, 0],
            "socket(AF_UNIX)",
            true,
            libc::EPERM,
        );
        check(libc::SYS_ptrace, [0; 6], "ptrace", false, libc::EPERM);
        check(
            libc::SYS_io_uring_setup,
            [0; 6],
            "io_uring_setup",
            false,
            libc::ENOSYS,
        );
    }

    #[test]
    fn no_call_is_listed_twice() {
        let mut numbers: Vec<_> = REFUSED.iter().map(|(number, ..)| number).collect();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), REFUSED.len());
    }
}
