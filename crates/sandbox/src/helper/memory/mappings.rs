//! Memory of mappings: the kernel's records of them, and shared pages that are mapped and were given up.

use std::collections::BTreeMap;

use super::process::Process;
use super::{CloseLook, Kernel};

/// Kernel memory per mapping.
const RECORD: u64 = 256;

/// The most that mappings can take besides what is resident.
pub(super) fn bound(processes: &[Process], kernel: &Kernel) -> u64 {
    processes.iter().map(|process| worst(process, kernel)).sum()
}

fn worst(process: &Process, kernel: &Kernel) -> u64 {
    let most = (process.size / kernel.page).min(kernel.mappings);
    process.other + most * RECORD
}

pub(super) fn held(processes: &[Process], kernel: &Kernel, look: &CloseLook) -> u64 {
    let mut shared = BTreeMap::new();
    let (mut records, mut resident, mut unknown) = (0, 0, 0);
    for process in processes {
        let maps = match std::fs::read(format!("/proc/{}/maps", process.pid)) {
            _ if look.is_over() => None,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
            // It has ended.
            Err(_) => Some(Vec::new()),
            Ok(maps) => Some(maps),
        };
        match maps {
            Some(maps) => {
                let maps = String::from_utf8_lossy(&maps);
                records += maps.lines().count() as u64 * RECORD;
                add_shared(&maps, &mut shared);
                resident += process.resident_shared;
            }
            None => unknown += worst(process, kernel),
        }
    }
    let shared: u64 = shared.values().sum();
    records + shared.saturating_sub(resident) + unknown
}

/// Adds the shared mappings without a file in a list of the kernel, by what tells them apart.
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

#[cfg(test)]
mod tests {
    use super::*;

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
