//! Directories that hold programs, for commands that may execute nothing of the project.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Never a place for programs: file systems of the kernel, and what everybody can write.
const NO_PROGRAMS: [&str; 5] = ["/dev", "/proc", "/sys", "/tmp", "/var/tmp"];

/// So many entries of a directory are named one by one where the directory as a whole cannot be.
const MOST_ENTRIES: usize = 256;

/// The directories of the machine in which nothing of `planted` lies: all at the root, or one level
/// below where something does; and of what is `hidden`, the directories of `tools` and of the `PATH`.
pub(crate) fn outside(
    planted: &[PathBuf],
    hidden: &[PathBuf],
    environment: &[(OsString, OsString)],
    tools: &[PathBuf],
) -> Vec<PathBuf> {
    let planted: Vec<PathBuf> = planted
        .iter()
        .cloned()
        .chain(NO_PROGRAMS.iter().map(PathBuf::from))
        .collect();
    let closed: Vec<PathBuf> = planted.iter().chain(hidden).cloned().collect();
    let mut found = Vec::new();
    for path in directories(Path::new("/")) {
        match overlap(&path, &closed) {
            Overlap::Free => found.push(path),
            Overlap::Around => {
                let below = directories(&path).into_iter();
                found.extend(below.filter(|path| overlap(path, &closed) == Overlap::Free));
            }
            Overlap::Inside => {}
        }
    }
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, value)| std::env::split_paths(value).collect::<Vec<_>>());
    let named = tools.iter().cloned().chain(path.unwrap_or_default());
    found.extend(
        named
            .filter_map(|path| std::fs::canonicalize(path).ok())
            .filter(|path| overlap(path, &planted) == Overlap::Free),
    );
    found.sort();
    found.dedup();
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlap {
    Free,
    /// Holds something closed.
    Around,
    Inside,
}

fn overlap(path: &Path, closed: &[PathBuf]) -> Overlap {
    if closed.iter().any(|closed| path.starts_with(closed)) {
        Overlap::Inside
    } else if closed.iter().any(|closed| closed.starts_with(path)) {
        Overlap::Around
    } else {
        Overlap::Free
    }
}

/// The directories in a directory, with links followed: `/bin` is often one.
fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .take(MOST_ENTRIES)
        .filter_map(|entry| std::fs::canonicalize(entry.path()).ok())
        .filter(|path| path.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_project_is_a_place_for_programs() {
        let folder = tempfile::tempdir_in("/var")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        for name in ["project/bin", "tools/bin"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("project/bin", root.join("link")).unwrap();
        let path = std::env::join_paths([root.join("link"), root.join("tools/bin")]).unwrap();
        let planted = [root.join("project")];
        let found = outside(&planted, &[], &[("PATH".into(), path)], &[]);
        assert!(found.contains(&PathBuf::from("/usr")), "{found:?}");
        let inside = |path: &PathBuf| planted.iter().any(|planted| planted.starts_with(path));
        assert!(!found.iter().any(inside), "{found:?}");
        assert!(!found.iter().any(|path| path.starts_with(&planted[0])));
    }
}
