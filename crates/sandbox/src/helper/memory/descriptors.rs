//! Memory of open files: pipes most of all, and the kernel's records of pending notifications.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use rustix::fs::FileType;

use super::process::Process;
use super::{CloseLook, Kernel};

/// Kernel memory per open file.
const FILE: u64 = 1 << 10;
/// The same for one piece of news about a file with a long name, and for one descriptor in a set that is
/// waited for.
const NEWS: u64 = 512;
const WAITED_FOR: u64 = 192;

/// The most that these processes can hold in open files.
pub(super) fn bound(processes: &[Process], kernel: &Kernel) -> u64 {
    let all = processes.iter().map(|process| process.descriptors).sum();
    let sets = processes.iter().map(|process| {
        // Half of them sets, and the other half in each.
        let half = process.descriptors / 2 + 1;
        half.saturating_mul(half)
    });
    pipes(all, kernel) + news(all, kernel) + waited_for(sets.sum(), kernel) + all * FILE
}

/// Bound on the memory of so many pipes. A user with many pipes gets two pages for each further one.
fn pipes(number: u64, kernel: &Kernel) -> u64 {
    let all = number.saturating_mul(kernel.pipe);
    match kernel.pipes {
        Some(together) => all.min(together + number * 2 * kernel.page),
        None => all,
    }
}

fn news(watchers: u64, kernel: &Kernel) -> u64 {
    let each = kernel.news.saturating_mul(NEWS);
    watchers.min(kernel.watchers).saturating_mul(each)
}

fn waited_for(number: u64, kernel: &Kernel) -> u64 {
    number.min(kernel.waited_for) * WAITED_FOR
}

/// The open files of all processes.
#[derive(Default)]
pub(super) struct Descriptors {
    /// By number, as the lists of the kernel have them.
    pub(super) sockets: BTreeSet<u64>,
    /// Descriptors that could not be inspected.
    pub(super) unknown: u64,
    pipes: BTreeSet<(u64, u64)>,
    /// Inotify descriptors.
    watchers: u64,
    /// Descriptors in sets that are waited for, at most.
    waited_for: u64,
    number: u64,
}

impl Descriptors {
    pub(super) fn of(processes: &[Process], kernel: &Kernel, look: &CloseLook) -> Self {
        let mut found = Self::default();
        for process in processes {
            if found.add(process, look).is_none() {
                found.unknown += process.descriptors;
                found.waited_for += (process.descriptors / 2 + 1).pow(2).min(kernel.waited_for);
            }
        }
        found
    }

    /// Nothing where the process could not be inspected, or not in time.
    fn add(&mut self, process: &Process, look: &CloseLook) -> Option<()> {
        let entries = match std::fs::read_dir(format!("/proc/{}/fd", process.pid)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
            // It has ended.
            Err(_) => return Some(()),
        };
        let mut sets = 0;
        for entry in entries.flatten() {
            if look.is_over() {
                return None;
            }
            let path = entry.path();
            let data = match std::fs::metadata(&path) {
                Ok(data) => data,
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
                // Closed meanwhile.
                Err(_) => continue,
            };
            self.number += 1;
            match FileType::from_raw_mode(data.mode()) {
                FileType::Fifo => {
                    self.pipes.insert((data.dev(), data.ino()));
                }
                FileType::Socket => {
                    self.sockets.insert(data.ino());
                }
                // Files of the kernel's own share one inode, which has no type.
                FileType::Unknown => {
                    let name = std::fs::read_link(&path).unwrap_or_default();
                    let name = name.as_os_str().as_encoded_bytes();
                    self.watchers += u64::from(name == b"anon_inode:inotify");
                    sets += u64::from(name == b"anon_inode:[eventpoll]");
                }
                _ => {}
            }
        }
        self.waited_for += sets * process.descriptors;
        Some(())
    }

    pub(super) fn held(&self, kernel: &Kernel) -> u64 {
        pipes(self.pipes.len() as u64 + self.unknown, kernel)
            + news(self.watchers + self.unknown, kernel)
            + waited_for(self.waited_for, kernel)
            + (self.number + self.unknown) * FILE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_beyond_those_of_full_size_have_two_pages() {
        let kernel = |together| Kernel {
            page: 4096,
            mappings: 10,
            pipes: together,
            pipe: 1 << 20,
            watchers: 4,
            news: 100,
            waited_for: 50,
            sent: 0,
            received: 0,
            tcp: 0,
        };
        let bounded = kernel(Some(64 << 20));
        assert_eq!(pipes(3, &bounded), 3 << 20);
        assert_eq!(pipes(1000, &bounded), (64 << 20) + 1000 * 8192);
        assert_eq!(pipes(1000, &kernel(None)), 1000 << 20);
        assert_eq!(news(9, &bounded), 4 * 100 * NEWS);
        assert_eq!(waited_for(70, &bounded), 50 * WAITED_FOR);
    }
}
