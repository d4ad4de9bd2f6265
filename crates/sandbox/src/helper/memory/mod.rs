//! Memory that everything inside holds, where no control group counts it.
//!
//! Resident pages are only part of it: the kernel also keeps page tables, mappings, open files, pipes, sockets and
//! shared memory for a command. Cheap figures are read every time. The rest has a cheap upper bound, and is measured
//! only where the bounds could pass the limit. A figure that cannot be measured, or not in time, counts as its bound.

mod descriptors;
mod mappings;
mod process;
mod shared;
mod sockets;

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use descriptors::Descriptors;
use process::Process;
use shared::Shared;
use sockets::Sockets;

use crate::plan::{Containment, Plan};

/// Processor time for measuring one kind, and all the time that it may take: a busy machine gives it less of each
/// second, and the command must not outgrow the figure meanwhile.
const LOOK: Duration = Duration::from_millis(500);
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// The measuring of one kind, with an end.
struct CloseLook {
    processor: Duration,
    end: Instant,
}

impl CloseLook {
    fn begin() -> Self {
        Self {
            processor: processor_time() + LOOK,
            end: Instant::now() + LONGEST_LOOK,
        }
    }

    fn is_over(&self) -> bool {
        processor_time() > self.processor || Instant::now() > self.end
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// State that a count needs besides the list of processes. It is made before the seccomp filter, which would refuse
/// the socket that lists sockets.
pub(super) struct MemoryMeter {
    limit: u64,
    shared: Shared,
    sockets: Sockets,
    /// Read when it is first needed, which most commands are too short for.
    kernel: OnceCell<Kernel>,
}

impl MemoryMeter {
    /// Nothing where there is no limit.
    pub(super) fn of(plan: &Plan) -> Option<Self> {
        let limit = plan.limits.memory?;
        let contained = plan.containment != Containment::Subreaper;
        Some(Self {
            limit,
            shared: Shared::before(plan, contained),
            sockets: Sockets::new(plan.network_namespace),
            kernel: OnceCell::new(),
        })
    }

    /// True if these processes hold more than they may.
    pub(super) fn is_passed(&self, processes: &[i32]) -> bool {
        self.used(processes) > self.limit
    }

    /// Bytes held, at least as many as there are as far as it matters for the limit.
    fn used(&self, processes: &[i32]) -> u64 {
        let kernel = self.kernel.get_or_init(Kernel::read);
        let processes = processes.iter().copied().filter_map(Process::of);
        let processes: Vec<Process> = processes.collect();
        let held = processes.iter().map(Process::held).sum::<u64>();
        let mut total = held + self.shared.held(processes.len());
        let bound = mappings::bound(&processes, kernel)
            + descriptors::bound(&processes, kernel)
            + self.sockets.bound(&processes, kernel);
        if total > self.limit || total.saturating_add(bound) <= self.limit {
            return total;
        }
        total += mappings::held(&processes, kernel, &CloseLook::begin());
        let open = Descriptors::of(&processes, kernel, &CloseLook::begin());
        total += open.held(kernel);
        total + self.sockets.held(&open, kernel, &CloseLook::begin())
    }
}

/// The bounds that the kernel itself sets.
struct Kernel {
    page: u64,
    /// Mappings of one process.
    mappings: u64,
    /// Bytes in all pipes of a user that may have more than the least; nothing means no bound.
    pipes: Option<u64>,
    /// Bytes in one pipe.
    pipe: u64,
    /// Inotify instances, and the events queued in each.
    watchers: u64,
    news: u64,
    /// Descriptors in all sets that are waited for.
    waited_for: u64,
    /// Bytes that one socket keeps to be sent, and to be read; TCP finds its own measure.
    sent: u64,
    received: u64,
    tcp: u64,
}

impl Kernel {
    fn read() -> Self {
        let page = page_size();
        let pipes = setting("fs/pipe-user-pages-soft").unwrap_or(16_384);
        // Older kernels show some of these to the machine's own network alone.
        let of_sockets = |name: &str| setting(name).unwrap_or(4 << 20);
        Self {
            page,
            mappings: setting("vm/max_map_count").unwrap_or(65_530),
            pipes: (pipes > 0).then_some(pipes.saturating_mul(page)),
            pipe: setting("fs/pipe-max-size").unwrap_or(1 << 20),
            watchers: setting("fs/inotify/max_user_instances").unwrap_or(128),
            news: setting("fs/inotify/max_queued_events").unwrap_or(16_384),
            waited_for: setting("fs/epoll/max_user_watches").unwrap_or(1 << 22),
            // A program gets twice what it asks for.
            sent: 2 * of_sockets("net/core/wmem_max"),
            received: 2 * of_sockets("net/core/rmem_max"),
            tcp: of_sockets("net/ipv4/tcp_wmem") + of_sockets("net/ipv4/tcp_rmem"),
        }
    }
}

/// The last number of a kernel setting, which is its upper bound where there are three.
fn setting(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.split_ascii_whitespace().next_back()?.parse().ok()
}

fn page_size() -> u64 {
    // SAFETY: a question without arguments in memory.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(page).unwrap_or(4096)
}
