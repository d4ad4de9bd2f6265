//! Search for protected names below a directory, before a command and after it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_fs::Dir;
use agent_fs::walk::{Entry, Listed, Next, Visitor, Walk, WalkedDir};
use rustix::fs::FileType;

use crate::git_data;
use crate::policy::{Policy, WriteDenied};
use crate::protected::Names;

/// Most directory entries that are searched before a command, in the workspace and in other writable directories,
/// which may be large caches. The upper levels come first.
pub(crate) const MOST_ENTRIES: usize = 50_000;
pub(crate) const MOST_ENTRIES_ELSEWHERE: usize = 20_000;

/// The same after a command, where everything was seen before it: a command that makes many files
/// must not be able to end the search.
pub(crate) const MOST_ENTRIES_AFTER: usize = 4_000_000;

/// Protected paths found in a directory, relative to it and in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundNames {
    pub(crate) paths: Vec<PathBuf>,
    /// Named by a rule, whatever else they are.
    pub(crate) denied: Vec<PathBuf>,
    /// False when there were more entries than the bound.
    pub(crate) complete: bool,
}

/// Search of one directory for protected names. It takes part in a walk: it is shown every directory that the walk
/// lists, and says which of those in it it wants to see. Links are not followed: what they point to has its own
/// name.
#[derive(Debug)]
pub struct NameSearch {
    tree: Arc<Dir>,
    names: Names,
    denied: WriteDenied,
    left: AtomicUsize,
    cut_short: AtomicBool,
    found: Mutex<FoundNames>,
}

impl NameSearch {
    /// Search of the policy's workspace before its command; what it finds belongs into
    /// [`Policy::found_names`].
    ///
    /// # Errors
    /// When the workspace cannot be opened.
    pub fn before(policy: &Policy) -> io::Result<Self> {
        let workspace = std::fs::canonicalize(&policy.workspace)?;
        let tree = Arc::new(Dir::open(&workspace)?);
        Ok(Self::new(
            &tree,
            &policy.names,
            &policy.denied,
            MOST_ENTRIES,
        ))
    }

    pub(crate) fn new(tree: &Arc<Dir>, names: &Names, denied: &WriteDenied, most: usize) -> Self {
        Self {
            tree: Arc::clone(tree),
            names: names.clone(),
            denied: denied.clone(),
            left: AtomicUsize::new(most),
            cut_short: AtomicBool::new(false),
            found: Mutex::default(),
        }
    }

    /// Looks for names in a directory; true for each entry that has to be entered.
    pub fn directory(&self, directory: &WalkedDir, entries: &[Listed]) -> Vec<bool> {
        let relative = as_path(directory.path());
        let mut looks_like_git = false;
        let wanted = entries
            .iter()
            .map(|entry| {
                looks_like_git |= entry.name.to_bytes() == b"HEAD";
                self.takes_another() && self.wants(relative, entry)
            })
            .collect();
        if looks_like_git {
            self.add_repository(relative);
        }
        wanted
    }

    /// Takes note of a directory that has to be entered and cannot be listed. It may be entered all the same, and
    /// still has the names that git and others ask for.
    pub fn unlisted(&self, path: &[u8], error: &io::Error) {
        let relative = as_path(path);
        // So far down that it cannot be named, nor what is in it: a program that goes there step by step finds it,
        // so the whole counts.
        if error.raw_os_error() == Some(libc::ENAMETOOLONG) {
            self.found().paths.push(relative.to_owned());
            return;
        }
        for name in self.names.at(relative) {
            let path = relative.join(name);
            if self.tree.exists(&path) {
                self.found().paths.push(path);
            }
        }
        self.add_repository(relative);
    }

    /// True once the bound has been reached.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.cut_short.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn finish(self) -> FoundNames {
        let found = self.found.into_inner();
        let mut found = found.unwrap_or_else(PoisonError::into_inner);
        for paths in [&mut found.paths, &mut found.denied] {
            paths.sort();
            paths.dedup();
        }
        found.complete = !self.cut_short.into_inner();
        found
    }

    /// Searches with a walk of its own.
    pub(crate) fn run(self) -> FoundNames {
        match self.tree.listing(Path::new("")) {
            Ok(start) => {
                let walk = Walk {
                    start,
                    is_parallel: false,
                    is_over: &|| self.is_over(),
                };
                walk.run((), || Alone(&self));
            }
            Err(error) => self.unlisted(b"", &error),
        }
        self.finish()
    }

    fn takes_another(&self) -> bool {
        let counted = (self.left).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        });
        if counted.is_err() {
            self.cut_short.store(true, Ordering::Relaxed);
        }
        counted.is_ok()
    }

    /// Notes a name if it is protected; true if it is to be entered.
    fn wants(&self, relative: &Path, entry: &Listed) -> bool {
        let name = OsStr::from_bytes(entry.name.to_bytes());
        let kind = entry.kind;
        let is_named = self.names.may_have(name) || kind == FileType::Symlink;
        if !is_named && self.denied.is_empty() && kind == FileType::RegularFile {
            return false;
        }
        let path = relative.join(name);
        if is_named && self.names.is_named(&path, kind.is_symlink()) {
            self.found().paths.push(path);
        } else if self.denied.names(&self.tree.path().join(&path)) {
            self.found().denied.push(path);
        } else {
            return kind.is_dir();
        }
        false
    }

    /// A repository without a work tree is not known by its name: git takes the directory for one
    /// when run inside it, and follows its configuration.
    fn add_repository(&self, relative: &Path) {
        let has = |name: &str| self.tree.exists(&relative.join(name));
        if git_data::is_repository(has) {
            let there = git_data::BARE_FOLLOWED.iter().filter(|name| has(name));
            let there: Vec<PathBuf> = there.map(|name| relative.join(name)).collect();
            self.found().paths.extend(there);
        }
    }

    fn found(&self) -> MutexGuard<'_, FoundNames> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Path of a directory that was listed, without the final slash.
fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path.strip_suffix(b"/").unwrap_or(path)))
}

/// Visitor of a walk that serves the search alone.
struct Alone<'a>(&'a NameSearch);

impl Visitor for Alone<'_> {
    type State = ();

    fn directory(
        &mut self,
        directory: &WalkedDir,
        (): (),
        entries: Vec<Listed>,
        _: bool,
        next: &mut Next<()>,
    ) {
        let wanted = self.0.directory(directory, &entries);
        for (entry, wanted) in entries.into_iter().zip(wanted) {
            if wanted {
                next.enter(entry.name, ());
            }
        }
    }

    fn unlisted(&mut self, path: &[u8], (): (), error: &io::Error) {
        self.0.unlisted(path, error);
    }

    fn file(&mut self, _: &Entry<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(root: &Path, most: usize) -> FoundNames {
        let names = crate::protected::tests::some();
        let tree = Arc::new(Dir::open(root).unwrap());
        NameSearch::new(&tree, &names, &WriteDenied::default(), most).run()
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
        let tree = Arc::new(Dir::open(&root).unwrap());
        let found = NameSearch::new(&tree, &Names::default(), &denied, 100).run();
        let expected = ["a/b/gen", "a/y.lock", "x.lock"].map(PathBuf::from);
        assert_eq!(found.denied, expected);
        assert!(found.paths.is_empty() && found.complete);
    }
}
