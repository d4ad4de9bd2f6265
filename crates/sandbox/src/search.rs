//! The search for protected names below a directory, before a command and after it.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, RawDir};

use crate::git_data;
use crate::policy::WriteDenied;
use crate::protected::Names;
use agent_fs::Dir;

/// Most directory entries that are searched before a command, in the workspace and in other writable directories,
/// which may be large caches. The upper levels come first.
pub(crate) const MOST_ENTRIES: usize = 50_000;
pub(crate) const MOST_ENTRIES_ELSEWHERE: usize = 20_000;

/// The same after a command, where everything was seen before it: a command that makes many files
/// must not be able to end the search.
pub(crate) const MOST_ENTRIES_AFTER: usize = 4_000_000;

/// The protected paths that exist in a directory, relative to it and in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) paths: Vec<PathBuf>,
    /// Named by a rule, whatever else they are.
    pub(crate) denied: Vec<PathBuf>,
    /// False when there were more entries than the bound.
    pub(crate) complete: bool,
}

/// Searches a directory level by level, at most so many entries of it. Links are not followed:
/// what they point to has its own name.
pub(crate) fn existing(tree: &Dir, names: &Names, denied: &WriteDenied, most: usize) -> Existing {
    let mut search = Search {
        tree,
        names,
        denied,
        left: most,
        buffer: Vec::with_capacity(32 << 10),
        found: Existing {
            complete: true,
            ..Existing::default()
        },
    };
    let mut level = vec![PathBuf::new()];
    while !level.is_empty() && search.found.complete {
        let mut next = Vec::new();
        for relative in level {
            search.list(&relative, &mut next);
        }
        level = next;
    }
    let mut found = search.found;
    for paths in [&mut found.paths, &mut found.denied] {
        paths.sort();
        paths.dedup();
    }
    found
}

struct Search<'a> {
    tree: &'a Dir,
    names: &'a Names,
    denied: &'a WriteDenied,
    left: usize,
    buffer: Vec<u8>,
    found: Existing,
}

impl Search<'_> {
    /// Searches one directory and adds those in it that are still to be searched.
    fn list(&mut self, relative: &Path, next: &mut Vec<PathBuf>) {
        let directory = match self.tree.listing(relative) {
            Ok(directory) => directory,
            // So far down that it cannot be named, nor what is in it: a program that goes there step by step finds
            // it, so the whole counts.
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                self.found.paths.push(relative.to_owned());
                return;
            }
            Err(_) => return self.ask_for_names(relative),
        };
        let mut looks_like_git = false;
        let mut buffer = std::mem::take(&mut self.buffer);
        let spare: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
        let mut entries = RawDir::new(&directory, spare);
        while let Some(Ok(entry)) = entries.next() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if self.left == 0 {
                self.found.complete = false;
                break;
            }
            self.left -= 1;
            looks_like_git |= name == "HEAD";
            let kind = entry.file_type();
            let named = self.names.may_have(name) || kind == FileType::Symlink;
            if !named && self.denied.is_empty() && kind == FileType::RegularFile {
                continue;
            }
            let path = relative.join(name);
            let kind = match kind {
                FileType::Unknown => self.tree.kind(&path).unwrap_or(FileType::Unknown),
                kind => kind,
            };
            if named && self.names.is_named(&path, kind.is_symlink()) {
                self.found.paths.push(path);
            } else if self.denied.names(&self.tree.path().join(&path)) {
                self.found.denied.push(path);
            } else if kind.is_dir() {
                next.push(path);
            }
        }
        self.buffer = buffer;
        if looks_like_git {
            self.add_repository(relative);
        }
    }

    /// A directory that may be entered and not listed still has the names that git and others ask
    /// for.
    fn ask_for_names(&mut self, relative: &Path) {
        for name in self.names.at(relative) {
            let path = relative.join(name);
            if self.tree.exists(&path) {
                self.found.paths.push(path);
            }
        }
        self.add_repository(relative);
    }

    /// A repository without a work tree is not known by its name: git takes the directory for one
    /// when run inside it, and follows its configuration.
    fn add_repository(&mut self, relative: &Path) {
        let has = |name: &str| self.tree.exists(&relative.join(name));
        if git_data::is_repository(has) {
            let there = git_data::BARE_FOLLOWED.iter().filter(|name| has(name));
            let there: Vec<PathBuf> = there.map(|name| relative.join(name)).collect();
            self.found.paths.extend(there);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(root: &Path, most: usize) -> Existing {
        let names = crate::protected::tests::some();
        let tree = Dir::open(root).unwrap();
        existing(&tree, &names, &WriteDenied::default(), most)
    }

    #[test]
    fn nested_repositories_are_found_however_deep() {
        let workspace = tempfile::tempdir().unwrap();
        for directory in [
            "a/b/c/.git",
            "a/b/c/d/e/f/g/.git",
            ".vscode",
            "src/.vscode",
            ".github/workflows",
        ] {
            std::fs::create_dir_all(workspace.path().join(directory)).unwrap();
        }
        std::fs::create_dir_all(workspace.path().join("w")).unwrap();
        std::fs::write(workspace.path().join("w/.git"), "gitdir: /elsewhere").unwrap();
        let found = look(workspace.path(), 100);
        let expected = [
            ".github/workflows",
            ".vscode",
            "a/b/c/.git",
            "a/b/c/d/e/f/g/.git",
            "w/.git",
        ];
        assert_eq!(found.paths, expected.map(PathBuf::from));
        assert!(found.complete && !look(workspace.path(), 10).complete);
    }

    #[test]
    fn a_repository_without_a_work_tree_is_found_by_what_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        for directory in [
            "plain/objects",
            "bare.git/objects",
            "bare.git/refs",
            "bare.git/hooks",
        ] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in [
            "HEAD",
            "bare.git/HEAD",
            "bare.git/config",
            "plain/config",
            "plain/HEAD",
        ] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let expected = ["bare.git/config", "bare.git/hooks"].map(PathBuf::from);
        assert_eq!(look(root, 100).paths, expected);
        // The workspace itself can be one.
        std::fs::write(root.join("commondir"), "bare.git").unwrap();
        assert!(look(root, 100).paths.contains(&"commondir".into()));
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_asked_for_its_names() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let closed = place.path().join("closed");
        std::fs::create_dir_all(closed.join(".git")).unwrap();
        let mode = |mode: u32| {
            std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o311);
        let found = look(place.path(), 100);
        mode(0o755);
        assert_eq!(found.paths, [PathBuf::from("closed/.git")]);
    }

    #[test]
    fn a_link_in_place_of_a_forges_directory_counts() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join(".gitea")).unwrap();
        std::os::unix::fs::symlink("elsewhere", place.path().join(".github")).unwrap();
        let found = look(place.path(), 100);
        assert_eq!(found.paths, [PathBuf::from(".github")]);
    }

    #[test]
    fn paths_named_by_rules_are_found_and_not_entered() {
        let place = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(place.path()).unwrap();
        std::fs::create_dir_all(root.join("a/b/gen/deep")).unwrap();
        for file in ["x.lock", "a/y.lock", "a/b/gen/deep/z.lock", "a/plain"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let denied = WriteDenied::new(|path| {
            path.extension().is_some_and(|end| end == "lock") || path.ends_with("gen")
        });
        let tree = Dir::open(&root).unwrap();
        let found = existing(&tree, &Names::default(), &denied, 100);
        let expected = ["a/b/gen", "a/y.lock", "x.lock"].map(PathBuf::from);
        assert_eq!(found.denied, expected);
        assert!(found.paths.is_empty() && found.complete);
    }
}
