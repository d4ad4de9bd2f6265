//! Step three: limits, and nothing left to regain.

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Context, Failure};
use crate::plan::LimitPlan;

/// The kernel keeps the first 300 numbers of a namespace for itself and refuses to go below.
const FEWEST_PROCESSES: u64 = 301;

/// Bounds the number of processes inside this pid namespace and returns the bound. Kernels
/// before 6.14 know only a limit for the whole machine; there it stays unset.
pub(super) fn limit_processes(wanted: u64) -> Option<u64> {
    let file = "/proc/sys/kernel/pid_max";
    let bound = wanted.max(FEWEST_PROCESSES);
    std::fs::write(file, bound.to_string()).ok()?;
    let kept = std::fs::read_to_string(file).ok()?;
    (kept.trim() == bound.to_string()).then_some(bound)
}

pub(super) fn limit_resources(limits: &LimitPlan, contained: bool) -> Result<(), Failure> {
    // Memory pressure should meet the command before anything of the user's.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let lower = |resource: Resource, name: &str, limit: Option<u64>| -> Result<(), Failure> {
        let Some(limit) = limit else { return Ok(()) };
        // A lower bound that the host already set stays.
        let hard = rustix::process::getrlimit(resource)
            .maximum
            .unwrap_or(u64::MAX)
            .min(limit);
        setrlimit(
            resource,
            Rlimit {
                current: Some(hard),
                maximum: Some(hard),
            },
        )
        .at("limit", name)
    };
    lower(Resource::Core, "core", Some(0))?;
    lower(Resource::Nofile, "open_files", limits.open_files)?;
    lower(Resource::Fsize, "file_size", limits.file_size)?;
    lower(Resource::Data, "data", limits.data)?;
    // Small amounts of memory in the kernel that nothing else bounds: queues of messages, timers.
    lower(Resource::Msgqueue, "message queues", Some(819_200))?;
    lower(Resource::Sigpending, "pending signals", Some(65_536))?;
    if contained {
        // Counted per user namespace. Without one it would count the whole desktop.
        lower(Resource::Nproc, "processes", limits.processes)?;
    }
    Ok(())
}

/// Sets the disposition of `SIGCHLD`: children that ended stay until they are waited for, or are
/// reaped by the kernel.
pub(super) fn set_child_signal(disposition: libc::sighandler_t) {
    // SAFETY: neither disposition runs code of ours.
    unsafe { libc::signal(libc::SIGCHLD, disposition) };
}

/// Drops every capability for good, and root too where the command runs as another user.
pub(super) fn drop_capabilities(run_as: Option<(u32, u32)>) -> Result<(), Failure> {
    rustix::thread::clear_ambient_capability_set().at("drop capabilities", "ambient")?;
    for number in 0..64 {
        // SAFETY: a system call with plain numbers. The first number the kernel does not know is
        // refused, and without the right to change the set it stays: the self-check reads what
        // is left in either case.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } != 0 {
            break;
        }
    }
    if let Some((uid, gid)) = run_as {
        super::namespaces::become_user(uid, gid)?;
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
    .at("drop capabilities", "")?;
    rustix::thread::set_no_new_privs(true).at("refuse new privileges", "")
}
