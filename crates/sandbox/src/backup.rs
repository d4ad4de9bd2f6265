//! Backup of protected files that no mount protects, restored after a command changed them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use agent_fs::Dir;

/// Bounds on what is saved in memory. A file beyond them is compared and not put back.
const MOST_FILES: usize = 2_000;
const MOST_NAMES: usize = 20_000;
const LARGEST_FILE: u64 = 1 << 20;
const MOST_BYTES: usize = 32 << 20;

/// Regular files below protected paths, by their path in the tree.
#[derive(Debug, Default)]
pub(crate) struct Backup {
    files: BTreeMap<PathBuf, SavedFile>,
    bytes: usize,
    /// Every name, also of files that are not saved.
    seen: BTreeSet<PathBuf>,
    /// True if there were more names than are remembered.
    cut_short: bool,
}

#[derive(Debug)]
struct SavedFile {
    mode: u32,
    content: Vec<u8>,
}

impl Backup {
    /// Remembers the files at and below `path`. Links are not followed.
    pub(crate) fn save(&mut self, tree: &Dir, path: &Path) {
        let Ok(data) = tree.stat(path) else {
            return;
        };
        let kind = FileType::from_raw_mode(data.st_mode);
        if kind.is_dir() {
            for name in tree.names(path).unwrap_or_default() {
                // Objects are named by their content: a changed one is noticed by git itself.
                if name != "objects" {
                    self.save(tree, &path.join(name));
                }
            }
            return;
        }
        if self.seen.len() >= MOST_NAMES {
            self.cut_short = true;
            return;
        }
        self.seen.insert(path.to_owned());
        let small = u64::try_from(data.st_size).is_ok_and(|size| size <= LARGEST_FILE);
        if kind.is_file()
            && small
            && self.files.len() < MOST_FILES
            && let Ok(content) = tree.read(path, LARGEST_FILE + 1)
            && self.bytes + content.len() <= MOST_BYTES
        {
            self.bytes += content.len();
            let mode = data.st_mode & 0o7777;
            self.files
                .insert(path.to_owned(), SavedFile { mode, content });
        }
    }

    /// The files at and below `path` that are not there any more or differ.
    pub(crate) fn differing(&self, tree: &Dir, path: &Path) -> Vec<PathBuf> {
        let below = self.files.iter().filter(|(file, _)| file.starts_with(path));
        below
            .filter(|(file, saved)| !saved.is_still_at(tree, file))
            .map(|(file, _)| file.clone())
            .collect()
    }

    /// True if this file is certainly new; in doubt it is not.
    pub(crate) fn is_new(&self, file: &Path) -> bool {
        !self.cut_short && !self.seen.contains(file)
    }

    /// Writes a file as it was, in place of nothing: what is there now has to be moved first.
    pub(crate) fn restore(&self, tree: &Dir, file: &Path) -> io::Result<()> {
        let saved = self.files.get(file).ok_or(io::ErrorKind::NotFound)?;
        tree.create(file, saved.mode, &saved.content)
    }
}

impl SavedFile {
    fn is_still_at(&self, tree: &Dir, file: &Path) -> bool {
        tree.stat(file).is_ok_and(|data| {
            FileType::from_raw_mode(data.st_mode).is_file()
                && data.st_mode & 0o7777 == self.mode
                && u64::try_from(data.st_size).ok() == Some(self.content.len() as u64)
        }) && tree
            .read(file, LARGEST_FILE + 1)
            .is_ok_and(|content| content == self.content)
    }
}
