//! Tree of files at one moment, and what differs between two.

use std::collections::HashMap;

use crate::Stamp;

/// Metadata of everything below a directory at one moment, by path.
#[derive(Debug, Default)]
pub struct Snapshot {
    entries: HashMap<Vec<u8>, Stamp>,
    /// Directories that could not be listed: nothing is known of what is in them.
    closed: Vec<Vec<u8>>,
}

/// Path whose entry differs between two snapshots, with both entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference<'a> {
    pub path: &'a [u8],
    pub before: Option<Stamp>,
    pub after: Option<Stamp>,
}

impl Snapshot {
    #[must_use]
    pub fn with_capacity(entries: usize) -> Self {
        Self {
            entries: HashMap::with_capacity(entries),
            closed: Vec::new(),
        }
    }

    pub fn extend(
        &mut self,
        entries: impl IntoIterator<Item = (Vec<u8>, Stamp)>,
        closed: impl IntoIterator<Item = Vec<u8>>,
    ) {
        self.entries.extend(entries);
        self.closed.extend(closed);
    }

    /// Sets the entry of one path, or removes it.
    pub fn set(&mut self, path: &[u8], stamp: Option<Stamp>) {
        match stamp {
            Some(stamp) => self.entries.insert(path.to_vec(), stamp),
            None => self.entries.remove(path),
        };
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Directories that could not be listed.
    #[must_use]
    pub fn closed(&self) -> &[Vec<u8>] {
        &self.closed
    }

    /// The paths that differ: deletions first, the inner before the outer, then the rest, the outer before the
    /// inner. Something that became of another kind is both. What lies below a directory that one of the two could
    /// not list is left out.
    #[must_use]
    pub fn diff<'a>(&'a self, later: &'a Self) -> Vec<Difference<'a>> {
        let mut gone = Vec::new();
        let mut here = Vec::new();
        let is_known = |path: &[u8]| {
            let mut closed = self.closed.iter().chain(&later.closed);
            !closed.any(|directory| is_below(path, directory))
        };
        let differs = |path: &'a [u8], before, after| Difference {
            path,
            before,
            after,
        };
        for (path, was) in self.entries.iter().filter(|(path, _)| is_known(path)) {
            match later.entries.get(path) {
                None => gone.push(differs(path, Some(*was), None)),
                Some(now) if now.kind() != was.kind() => {
                    gone.push(differs(path, Some(*was), None));
                    here.push(differs(path, None, Some(*now)));
                }
                Some(now) if now != was => here.push(differs(path, Some(*was), Some(*now))),
                Some(_) => {}
            }
        }
        for (path, now) in &later.entries {
            if !self.entries.contains_key(path) && is_known(path) {
                here.push(differs(path, None, Some(*now)));
            }
        }
        gone.sort_unstable_by(|one, other| other.path.cmp(one.path));
        here.sort_unstable_by(|one, other| one.path.cmp(other.path));
        gone.append(&mut here);
        gone
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(kind: u32, size: u64) -> Stamp {
        Stamp {
            size,
            mode: kind | 0o644,
            owner: 0,
            group: 0,
            links: 1,
            device: 1,
            inode: 1,
            modified: 0,
            changed: 0,
        }
    }

    const FILE: u32 = 0o100_000;
    const DIRECTORY: u32 = 0o040_000;

    fn snapshot(entries: &[(&str, u32, u64)], closed: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::with_capacity(entries.len());
        let entries = entries.iter();
        snapshot.extend(
            entries.map(|(path, kind, size)| (path.as_bytes().to_vec(), stamp(*kind, *size))),
            closed.iter().map(|path| path.as_bytes().to_vec()),
        );
        snapshot
    }

    fn check(before: &Snapshot, after: &Snapshot, expected: &[&str]) {
        let told = before.diff(after).into_iter().map(|difference| {
            let sign = match (difference.before, difference.after) {
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            format!("{sign}{}", String::from_utf8_lossy(difference.path))
        });
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn differences_come_in_the_order_in_which_they_can_be_undone_backwards() {
        let before = snapshot(
            &[
                ("a", DIRECTORY, 0),
                ("a/x", FILE, 1),
                ("b", FILE, 1),
                ("c", FILE, 1),
                ("e", FILE, 1),
            ],
            &[],
        );
        let after = snapshot(
            &[
                ("b", FILE, 2),
                ("c", DIRECTORY, 0),
                ("c/y", FILE, 1),
                ("e", FILE, 1),
            ],
            &[],
        );
        check(&before, &after, &["-c", "-a/x", "-a", "~b", "+c", "+c/y"]);
        check(&before, &before, &[]);
    }

    #[test]
    fn nothing_is_told_of_what_is_in_a_closed_directory() {
        let open = snapshot(
            &[("d", DIRECTORY, 0), ("d/x", FILE, 1), ("dx", FILE, 1)],
            &[],
        );
        let closed = snapshot(&[("d", DIRECTORY, 0)], &["d"]);
        check(&open, &closed, &["-dx"]);
        check(&closed, &open, &["+dx"]);
    }
}
