//! A directory that commands may write, and what in it they may not: looked for before a command
//! starts, to be mounted read-only, and after it ended, to be compared.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use crate::git_data::{GitData, GitKept, pointed_to};
use crate::policy::{WorkspaceWalk, WriteDenied};
use crate::protected::Names;
use crate::search::{self, FoundNames, NameSearch};
use agent_fs::Dir;

/// Most paths named by rules that get a read-only mount of their own.
const MOST_DENIED_MOUNTS: usize = 500;

/// Directory that commands may write, with the rules for what in it must not change. All paths are
/// relative to it.
#[derive(Debug)]
pub(crate) struct ProtectedDir {
    pub(crate) tree: Arc<Dir>,
    /// Most entries that are searched for protected names.
    most: usize,
    /// Protected names, built in and from rules.
    names: Names,
    denied: WriteDenied,
    /// Git directories that may be written.
    git: Vec<PathBuf>,
    /// What in them may not.
    kept: GitKept,
    /// Protected by the policy, whatever their names.
    also: Vec<PathBuf>,
    /// Paths that git's configuration points to.
    pointed_to: Vec<PathBuf>,
    left_out: Option<PathBuf>,
}

/// Protected paths that exist now.
#[derive(Debug, Default)]
pub(crate) struct ProtectedPaths {
    /// Nothing of it may change.
    pub(crate) read_only: Vec<PathBuf>,
    /// May change, and is noticed when it is new.
    pub(crate) present: Vec<PathBuf>,
    /// Part of the project, which tools write again as it was: only compared.
    pub(crate) compared: Vec<PathBuf>,
    /// False when the search stopped at its bound.
    pub(crate) complete: bool,
}

impl ProtectedDir {
    /// A directory in which protected names are searched for.
    pub(crate) fn of_names(
        root: &Path,
        most: usize,
        names: &Names,
        denied: &WriteDenied,
    ) -> io::Result<Self> {
        Ok(Self {
            tree: Arc::new(Dir::open(root)?),
            most,
            names: names.clone(),
            denied: denied.clone(),
            git: Vec::new(),
            kept: GitKept::Names,
            also: Vec::new(),
            pointed_to: Vec::new(),
            left_out: None,
        })
    }

    /// A git directory that may be written as a whole, outside the workspace it belongs to.
    pub(crate) fn of_git(git: &Path, kept: GitKept) -> io::Result<Self> {
        Ok(Self {
            git: vec![PathBuf::new()],
            kept,
            ..Self::of_names(git, 0, &Names::default(), &WriteDenied::default())?
        })
    }

    pub(crate) fn protect(&mut self, path: PathBuf) {
        self.also.push(path);
    }

    /// Lets git write its data at `git`, but for what is kept.
    pub(crate) fn grant_git(&mut self, git: &Path, kept: GitKept) {
        self.kept = kept;
        if !self.git.iter().any(|known| known == git) {
            self.git.push(git.to_owned());
        }
    }

    /// Leaves out a path that another `ProtectedDir` covers.
    pub(crate) fn leave_out(&mut self, path: Option<&Path>) {
        self.left_out = path.map(Path::to_owned);
    }

    /// Follows the configuration of the repository whose work tree this is; `config` is its file.
    pub(crate) fn follow_configuration(&mut self, config: &Path) {
        const LARGEST: u64 = 1 << 20;
        let name = Path::new("config");
        let git = config.parent().unwrap_or(Path::new("/"));
        let text = Dir::open(git).and_then(|git| git.read(name, LARGEST));
        let root = self.tree.path();
        let inside = git.strip_prefix(root).ok();
        self.pointed_to = text.map_or_else(|_| Vec::new(), |text| pointed_to(&text, root, inside));
    }

    pub(crate) fn is_by_policy(&self, path: &Path) -> bool {
        let denied = |path: &Path| self.denied.names(&self.tree.path().join(path));
        self.also.iter().any(|also| path.starts_with(also)) || path.ancestors().any(denied)
    }

    /// Protected paths that exist before a command; `found` are the names, if a walk has looked for them.
    pub(crate) fn scan(&self, found: Option<FoundNames>) -> ProtectedPaths {
        self.paths(found.or_else(|| self.search(self.most, None)))
    }

    /// Protected paths that exist after a command, looked for in `walk` if there is one. Only where the first scan
    /// was complete can the second be.
    pub(crate) fn rescan(
        &self,
        saw_everything: bool,
        walk: Option<&WorkspaceWalk>,
    ) -> ProtectedPaths {
        let most = match saw_everything && self.most > 0 {
            true => search::MOST_ENTRIES_AFTER,
            false => self.most,
        };
        self.paths(self.search(most, walk))
    }

    /// The protected names that exist now; `None` where none are searched for.
    fn search(&self, most: usize, walk: Option<&WorkspaceWalk>) -> Option<FoundNames> {
        if most == 0 {
            return None;
        }
        let start = || NameSearch::new(&self.tree, &self.names, &self.denied, most);
        let search = start();
        match walk {
            Some(walk) if walk.show(&search) => Some(search.finish()),
            // A walk that broke off may have shown a part.
            Some(_) => Some(start().run()),
            None => Some(search.run()),
        }
    }

    fn paths(&self, there: Option<FoundNames>) -> ProtectedPaths {
        let mut found = ProtectedPaths {
            complete: true,
            ..ProtectedPaths::default()
        };
        let mut denied = Vec::new();
        if let Some(there) = there {
            found.complete = there.complete;
            let ours = |path: &PathBuf| {
                let mut out = self.left_out.iter();
                !out.any(|out| path.starts_with(out))
            };
            (found.present, found.read_only) = there
                .paths
                .into_iter()
                .filter(ours)
                .partition(|path| self.git.contains(path));
            denied.extend(there.denied.into_iter().filter(ours));
        }
        let (restored, read_only) = found
            .read_only
            .into_iter()
            .partition(|path| self.is_restored(path));
        found.read_only = read_only;
        // Each costs a mount; the rest is compared.
        let compared = denied.split_off(denied.len().min(MOST_DENIED_MOUNTS));
        found.read_only.append(&mut denied);
        for git in &self.git {
            let data = GitData::of(&self.tree, git, self.kept);
            found.read_only.extend(data.followed);
            found.present.extend(data.directories);
        }
        let there = |path: &&PathBuf| self.tree.exists(path);
        found
            .read_only
            .extend(self.also.iter().filter(there).cloned());
        let covered = |path: &Path| {
            let mut above = path.ancestors();
            above.any(|above| found.read_only.iter().any(|known| known == above))
        };
        let pointed_to = self.pointed_to.iter().filter(there);
        let mut all: Vec<PathBuf> = pointed_to
            .filter(|path| !covered(path))
            .cloned()
            .chain(compared)
            .chain(restored)
            .collect();
        all.sort();
        all.dedup();
        found.compared = all;
        found
    }

    /// True if a protected name is compared and restored rather than mounted read-only: files that
    /// tools rewrite, and files of the project where git may write, which could otherwise stop
    /// halfway.
    fn is_restored(&self, path: &Path) -> bool {
        let is_gits = path.components().any(|part| {
            let part = part.as_os_str().to_ascii_lowercase();
            part == ".git" || part == ".agent"
        });
        self.names.is_rewritten(path)
            || !self.git.is_empty()
                && !is_gits
                && self.names.is_named(path, false)
                && self.tree.kind(path) == Some(FileType::RegularFile)
    }
}
