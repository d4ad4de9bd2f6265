//! How much memory everything inside holds, where no control group counts it.
//!
//! What is resident in a process is only part of it: memory that is shared stays when nobody maps
//! it, in a file of `/dev/shm`, in a System V segment, or in a shared mapping whose pages were
//! given up. Files without a name in memory are refused by the filter.

use std::collections::BTreeMap;

/// Bytes held by these processes, at least as many as there are. `contained` says that shared
/// memory is the command's own too.
pub(super) fn used(processes: &[i32], contained: bool, limit: u64) -> u64 {
    let sizes: Vec<(i32, Sizes)> = processes
        .iter()
        .filter_map(|pid| Some((*pid, Sizes::of(*pid)?)))
        .collect();
    let page = page_size();
    let resident: u64 = sizes.iter().map(|(_, sizes)| sizes.resident).sum();
    let mut total = resident * page;
    if contained {
        total += shared_files() + segments();
    }
    // Most programs map far less than the limit; only then is it worth to look closer.
    let mapped: u64 = sizes.iter().map(|(_, sizes)| sizes.other).sum();
    if total <= limit && mapped * page > limit {
        total += given_up(&sizes, page);
    }
    total
}

/// Of one process, in pages.
struct Sizes {
    resident: u64,
    /// Mapped and neither private data nor program text.
    other: u64,
}

impl Sizes {
    fn of(pid: i32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_ascii_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let [size, resident, _, program, _, data, ..] = fields[..] else {
            return None;
        };
        Some(Self {
            resident,
            other: size.saturating_sub(program + data),
        })
    }
}

/// What is in `/dev/shm`.
fn shared_files() -> u64 {
    let data = rustix::fs::statvfs("/dev/shm");
    data.map_or(0, |data| {
        let blocks = data.f_blocks.saturating_sub(data.f_bfree);
        blocks.saturating_mul(data.f_frsize)
    })
}

/// What System V segments hold.
fn segments() -> u64 {
    let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    resident_segments(&text)
}

fn resident_segments(text: &str) -> u64 {
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default().split_ascii_whitespace();
    let Some(at) = names.into_iter().position(|name| name == "rss") else {
        return 0;
    };
    let held = |line: &str| -> Option<u64> { line.split_ascii_whitespace().nth(at)?.parse().ok() };
    lines.filter_map(held).sum()
}

/// Shared mappings without a file, less what is resident of them. A process that cannot be looked
/// at is taken at its worst.
fn given_up(sizes: &[(i32, Sizes)], page: u64) -> u64 {
    let mut mappings = BTreeMap::new();
    let (mut resident, mut unknown) = (0, 0);
    for (pid, sizes) in sizes {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
        match read("maps") {
            Ok(maps) => add_shared(&maps, &mut mappings),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                unknown += sizes.other * page;
            }
            // It has ended.
            Err(_) => {}
        }
        resident += read("status").map_or(0, |status| resident_shared(&status));
    }
    let shared: u64 = mappings.values().sum();
    shared.saturating_sub(resident) + unknown
}

/// Adds the shared mappings in a list of the kernel, by what tells them apart.
fn add_shared(maps: &str, mappings: &mut BTreeMap<(String, String), u64>) {
    for line in maps
        .lines()
        .filter(|line| line.contains("/dev/zero (deleted)"))
    {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else {
            continue;
        };
        let bounds = range.split_once('-').and_then(|(from, to)| {
            let number = |text| u64::from_str_radix(text, 16).ok();
            number(to)?.checked_sub(number(from)?)
        });
        if let (Some(size), true, Some(offset), Some(inode)) =
            (bounds, rights.ends_with('s'), fields.next(), fields.nth(1))
        {
            // The same part mapped twice is one.
            let key = (inode.to_owned(), offset.to_owned());
            let known = mappings.entry(key).or_insert(0);
            *known = size.max(*known);
        }
    }
}

fn resident_shared(status: &str) -> u64 {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("RssShmem:"));
    let value = value.and_then(|value| value.split_ascii_whitespace().next()?.parse::<u64>().ok());
    value.unwrap_or(0) * 1024
}

fn page_size() -> u64 {
    // SAFETY: a question without arguments in memory.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(page).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read_by_their_columns() {
        let sizes = Sizes::parse("1000 50 20 10 0 300 0\n").unwrap();
        assert_eq!((sizes.resident, sizes.other), (50, 690));
        assert!(Sizes::parse("1 2 3").is_none() && Sizes::parse("").is_none());
        let segments =
            "       key      shmid perms size rss swap\n 0 1 600 4096 8192 0\n 0 2 600 9 1 0\n";
        assert_eq!(resident_segments(segments), 8193);
        assert_eq!(resident_segments(""), 0);
        assert_eq!(
            resident_shared("VmRSS:\t9 kB\nRssShmem:\t  12 kB\n"),
            12 << 10
        );
    }

    #[test]
    fn a_shared_mapping_counts_once_however_many_have_it() {
        let maps = "7f0000000000-7f0000002000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n\
                    7f0000004000-7f0000005000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n\
                    7f0000006000-7f0000007000 rw-s 00000000 00:01 78 /dev/zero (deleted)\n\
                    7f0000008000-7f0000009000 rw-p 00000000 00:00 0 \n";
        let mut found = BTreeMap::new();
        add_shared(maps, &mut found);
        add_shared(maps, &mut found);
        assert_eq!(found.values().sum::<u64>(), 0x3000);
    }
}
