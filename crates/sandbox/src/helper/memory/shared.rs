//! Memory that belongs to no single process: files that are kept in memory, System V segments, messages
//! and semaphores.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::plan::Plan;

/// Kernel memory per file in memory, besides its content.
const FILE: u64 = 1 << 10;
/// The same for one message, one semaphore, and one semaphore that a process wants undone.
const MESSAGE: u64 = 64;
const SEMAPHORE: u64 = 64;
const UNDO: u64 = 2;

/// As `statfs` calls a file system that is kept in memory.
const IN_MEMORY: rustix::fs::FsWord = 0x0102_1994;

pub(super) struct Shared {
    /// Places that the command may write and that are kept in memory, with what they held before.
    places: Vec<(PathBuf, u64)>,
    /// True if segments, messages and semaphores are the command's own.
    contained: bool,
}

impl Shared {
    pub(super) fn before(plan: &Plan, contained: bool) -> Self {
        let mounts = &plan.mounts;
        let fixed = ["/dev/shm", "/tmp"].iter().map(PathBuf::from);
        let project = mounts.workspace_writable.then(|| mounts.workspace.clone());
        let writable = mounts.writable.iter().cloned();
        let all = fixed.chain(project).chain(writable);
        let mut seen = Vec::new();
        let mut places = Vec::new();
        for place in all.filter(|_| contained) {
            let Ok(device) = std::fs::metadata(&place).map(|data| data.dev()) else {
                continue;
            };
            if is_in_memory(&place) && !seen.contains(&device) {
                seen.push(device);
                let before = content(&place);
                places.push((place, before));
            }
        }
        Self { places, contained }
    }

    pub(super) fn held(&self, processes: usize) -> u64 {
        let files = self.places.iter();
        let files = files.map(|(place, before)| content(place).saturating_sub(*before));
        let mut total = files.sum();
        if self.contained {
            let read = |name: &str| {
                let text = std::fs::read_to_string(format!("/proc/sysvipc/{name}"));
                text.unwrap_or_default()
            };
            let of_one = SEMAPHORE + UNDO * processes as u64;
            total += sum(&read("shm"), "rss")
                // The kernel rounds up to the next power of two.
                + sum(&read("msg"), "cbytes") * 2
                + sum(&read("msg"), "qnum") * MESSAGE
                + sum(&read("sem"), "nsems") * of_one;
        }
        total
    }
}

fn is_in_memory(place: &Path) -> bool {
    rustix::fs::statfs(place).is_ok_and(|data| data.f_type == IN_MEMORY)
}

fn content(place: &Path) -> u64 {
    rustix::fs::statvfs(place).map_or(0, |data| {
        let blocks = data.f_blocks.saturating_sub(data.f_bfree);
        let files = data.f_files.saturating_sub(data.f_ffree);
        blocks.saturating_mul(data.f_frsize) + files * FILE
    })
}

/// The sum of a column of a list of the kernel.
fn sum(text: &str, column: &str) -> u64 {
    let mut lines = text.lines();
    let mut names = lines.next().unwrap_or_default().split_ascii_whitespace();
    let Some(at) = names.position(|name| name == column) else {
        return 0;
    };
    let value = |line: &str| -> Option<u64> { line.split_ascii_whitespace().nth(at)?.parse().ok() };
    lines.filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name() {
        let text =
            "       key      shmid perms size rss swap\n 0 1 600 4096 8192 0\n 0 2 600 9 1 0\n";
        assert_eq!(sum(text, "rss"), 8193);
        assert_eq!(sum(text, "nsems"), 0);
        assert_eq!(sum("", "rss"), 0);
    }
}
