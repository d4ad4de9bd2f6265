//! Memory figures of one process that the kernel reports at once.

use std::os::unix::fs::MetadataExt;

/// Kernel memory per thread: its stack and its records.
const THREAD: u64 = 32 << 10;

/// One process, in bytes.
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) size: u64,
    /// Mapped and neither private data nor program text.
    pub(super) other: u64,
    pub(super) resident_shared: u64,
    /// Open descriptors.
    pub(super) descriptors: u64,
    resident: u64,
    page_tables: u64,
    threads: u64,
}

impl Process {
    pub(super) fn of(pid: i32) -> Option<Self> {
        // A process chooses its own name, which need not be text.
        let text = std::fs::read(format!("/proc/{pid}/status")).ok()?;
        let mut process = Self::parse(pid, &String::from_utf8_lossy(&text));
        // Kernels before 6.2 say nothing of the number; the room for descriptors is never less.
        let open = std::fs::metadata(format!("/proc/{pid}/fd")).map_or(0, |data| data.size());
        if open > 0 {
            process.descriptors = open;
        }
        Some(process)
    }

    fn parse(pid: i32, text: &str) -> Self {
        let value = |name: &str| -> u64 {
            let mut lines = text.lines();
            let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = found.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
            number.unwrap_or(0)
        };
        let bytes = |name: &str| value(name) << 10;
        let size = bytes("VmSize");
        Self {
            pid,
            size,
            other: size.saturating_sub(bytes("VmData") + bytes("VmStk") + bytes("VmExe")),
            resident_shared: bytes("RssShmem"),
            descriptors: value("FDSize"),
            resident: bytes("VmRSS"),
            page_tables: bytes("VmPTE"),
            threads: value("Threads"),
        }
    }

    /// Bytes that it certainly holds.
    pub(super) fn held(&self) -> u64 {
        self.resident + self.page_tables + self.threads * THREAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_by_its_names() {
        let text = "Name:\tx\nFDSize:\t64\nVmSize:\t  1000 kB\nVmRSS:\t  50 kB\nRssShmem:\t  12 kB\n\
                    VmData:\t  300 kB\nVmStk:\t   5 kB\nVmExe:\t   5 kB\nVmPTE:\t   8 kB\nThreads:\t2\n";
        let process = Process::parse(7, text);
        assert_eq!(process.held(), (50 << 10) + (8 << 10) + 2 * THREAD);
        assert_eq!(
            (process.size, process.other, process.resident_shared),
            (1000 << 10, 690 << 10, 12 << 10)
        );
        assert_eq!(process.descriptors, 64);
        // One that has ended and waits to be reaped.
        assert_eq!(Process::parse(7, "Name:\tx\nThreads:\t1\n").held(), THREAD);
    }
}
