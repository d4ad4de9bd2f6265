//! Files in git's own data that name programs to run, or that make git read such files elsewhere.
//! They stay read-only even when commits are granted.

use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use agent_fs::Dir;

/// In every git directory, that of a submodule and of a linked worktree included.
const FOLLOWED: [&str; 6] = [
    "config",
    "config.worktree",
    "hooks",
    "commondir",
    "gitdir",
    "info/attributes",
];

/// What git writes and no commit needs: files that it does not show and attributes (`info`), and rebases, which list
/// commands.
const NOT_FOR_COMMITS: [&str; 3] = ["info", "rebase-merge", "rebase-apply"];

/// The part of a git directory that stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitKept {
    /// What names programs.
    Names,
    /// All that commits do not need.
    Commits,
}

/// Directories that a link could replace as a whole.
const HOLDERS: [&str; 3] = ["info", "modules", "worktrees"];

/// Bounds on the search through submodules of submodules.
const DEEPEST: usize = 12;
const MOST: usize = 4_000;

/// The paths of one git directory, relative to the tree it is in.
#[derive(Debug, Default)]
pub(crate) struct GitData {
    /// Existing paths that must not change.
    pub(crate) followed: Vec<PathBuf>,
    /// Directories of submodules and worktrees: they change, and a new one would be followed.
    pub(crate) directories: Vec<PathBuf>,
}

impl GitData {
    /// Reads the git directory at `git`.
    pub(crate) fn of(tree: &Dir, git: &Path, kept: GitKept) -> Self {
        let mut found = Self::default();
        found.add(tree, git, kept, 0);
        found
    }

    fn add(&mut self, tree: &Dir, git: &Path, kept: GitKept, depth: usize) {
        if depth > DEEPEST || self.directories.len() > MOST {
            return;
        }
        let links = HOLDERS
            .iter()
            .map(|name| git.join(name))
            .filter(|path| tree.kind(path) == Some(FileType::Symlink));
        self.followed.extend(links);
        let holders = ["modules", "worktrees"].map(|name| git.join(name));
        let directories = holders.into_iter().filter(|path| is_directory(tree, path));
        self.directories.extend(directories);
        let further = match kept {
            GitKept::Names => &[][..],
            GitKept::Commits => &NOT_FOR_COMMITS,
        };
        let files = FOLLOWED.iter().chain(further);
        let files = files.map(|name| git.join(name));
        self.followed.extend(files.filter(|path| tree.exists(path)));
        self.add_modules(tree, &git.join("modules"), kept, depth + 1);
        for name in tree.names(&git.join("worktrees")).unwrap_or_default() {
            let worktree = git.join("worktrees").join(name);
            self.directories.push(worktree.clone());
            self.add(tree, &worktree, kept, depth + 1);
        }
    }

    /// A submodule's name may have slashes, so that there are plain directories on the way.
    fn add_modules(&mut self, tree: &Dir, directory: &Path, kept: GitKept, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        for name in tree.names(directory).unwrap_or_default() {
            if self.directories.len() > MOST {
                return;
            }
            let one = directory.join(name);
            let is_git = ["HEAD", "config", "objects"]
                .iter()
                .any(|name| tree.exists(&one.join(name)));
            self.directories.push(one.clone());
            if is_git {
                self.add(tree, &one, kept, depth);
            } else {
                self.add_modules(tree, &one, kept, depth + 1);
            }
        }
    }
}

fn is_directory(tree: &Dir, path: &Path) -> bool {
    tree.kind(path) == Some(FileType::Directory)
}

/// True if git would take a directory with these names in it for a bare repository, and follow its
/// configuration when run there.
pub(crate) fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

/// Names that such a directory must not get; without them it is harmless.
pub(crate) const BARE_FOLLOWED: [&str; 4] = ["config", "config.worktree", "hooks", "commondir"];

/// Paths inside the work tree `root` that a repository's configuration points to: hooks kept with
/// the project, and further configuration. `git` is the directory of that configuration, if it is
/// in there. All are relative to the work tree.
pub(crate) fn pointed_to(config: &[u8], root: &Path, git: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut section = String::new();
    for line in String::from_utf8_lossy(config).lines().map(str::trim) {
        let mut rest = line;
        if let Some((head, after)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            let name = head.split([' ', '\t', '"', '.']).next();
            section = name.unwrap_or_default().to_ascii_lowercase();
            rest = after.trim();
        }
        let Some((key, value)) = rest.split_once('=') else {
            continue;
        };
        let base = match (section.as_str(), key.trim().to_ascii_lowercase().as_str()) {
            ("core", "hookspath") => Some(Path::new("")),
            ("include" | "includeif", "path") => git,
            _ => continue,
        };
        let value = Path::new(value.trim().trim_matches('"'));
        let inside = value.strip_prefix(root).ok().map(Path::to_owned);
        let path = inside.or_else(|| Some(base?.join(value)));
        found.extend(
            path.and_then(|path| plain(&path))
                .filter(|path| !git.is_some_and(|git| path.starts_with(git)))
                .map(whole_if_hidden),
        );
    }
    found
}

/// The same path without `.` and `..`, unless it leads out.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            _ => return None,
        }
    }
    (!plain.as_os_str().is_empty()).then_some(plain)
}

/// Hooks in `.husky/_` only call those beside it.
fn whole_if_hidden(path: PathBuf) -> PathBuf {
    let first = path.components().next().map(|part| part.as_os_str());
    match first {
        Some(name) if name.as_encoded_bytes().starts_with(b".") => PathBuf::from(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Dir) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let tree = Dir::open(folder.path()).unwrap();
        (folder, tree)
    }

    #[test]
    fn submodules_and_worktrees_are_followed_however_they_are_named() {
        let (_folder, tree) = tree(&[
            (".git/config", ""),
            (".git/HEAD", ""),
            (".git/modules/a/b/config", ""),
            (".git/modules/a/b/modules/c/hooks/x", ""),
            (".git/modules/a/b/modules/c/HEAD", ""),
            (".git/worktrees/w/commondir", ""),
            (".git/worktrees/w/index", ""),
        ]);
        let found = GitData::of(&tree, Path::new(".git"), GitKept::Names);
        let paths = |list: &[&str]| -> Vec<PathBuf> { list.iter().map(PathBuf::from).collect() };
        assert_eq!(
            found.followed,
            paths(&[
                ".git/config",
                ".git/modules/a/b/config",
                ".git/modules/a/b/modules/c/hooks",
                ".git/worktrees/w/commondir",
            ])
        );
        assert_eq!(
            found.directories,
            paths(&[
                ".git/modules",
                ".git/worktrees",
                ".git/modules/a",
                ".git/modules/a/b",
                ".git/modules/a/b/modules",
                ".git/modules/a/b/modules/c",
                ".git/worktrees/w",
            ])
        );
    }

    #[test]
    fn what_no_commit_needs_is_kept_from_commits() {
        let (_folder, tree) = tree(&[
            (".git/HEAD", ""),
            (".git/config", ""),
            (".git/info/exclude", ""),
            (".git/rebase-merge/git-rebase-todo", ""),
            (".git/modules/a/HEAD", ""),
            (".git/modules/a/info/exclude", ""),
        ]);
        let paths = |kept| GitData::of(&tree, Path::new(".git"), kept).followed;
        let paths_of = |list: &[&str]| -> Vec<PathBuf> { list.iter().map(PathBuf::from).collect() };
        assert_eq!(paths(GitKept::Names), paths_of(&[".git/config"]));
        assert_eq!(
            paths(GitKept::Commits),
            paths_of(&[
                ".git/config",
                ".git/info",
                ".git/rebase-merge",
                ".git/modules/a/info",
            ])
        );
    }

    #[test]
    fn configuration_points_to_hooks_and_more_configuration() {
        let check = |config: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            let found = pointed_to(config.as_bytes(), Path::new("/w"), Some(Path::new(".git")));
            assert_eq!(found, expected, "{config}");
        };
        check("[core]\n\thooksPath = .husky/_\n", &[".husky"]);
        check("[CORE] HooksPath=\"tools/hooks\"\n", &["tools/hooks"]);
        check("[include]\n\tpath = ../.gitconfig\n", &[".gitconfig"]);
        check(
            "[includeIf \"gitdir:~/x/\"]\n\tpath = ../a/../more.inc\n",
            &["more.inc"],
        );
        check("[core]\n\thooksPath = /w/hooks\n", &["hooks"]);
        check("[core]\n\thooksPath = /usr/share/hooks\n", &[]);
        check(
            "[core]\n\thooksPath = ../out\n[include]\npath = more\n",
            &[],
        );
        check("[other]\n\thooksPath = x\nhooksPath\n[\n", &[]);
    }

    #[test]
    fn a_repository_is_known_by_what_git_looks_for() {
        let check = |names: &[&str], expected: bool| {
            assert_eq!(is_repository(|name| names.contains(&name)), expected);
        };
        check(&["HEAD", "objects", "refs"], true);
        check(&["HEAD", "commondir"], true);
        check(&["objects", "refs", "config"], false);
        check(&["HEAD", "refs"], false);
    }
}
