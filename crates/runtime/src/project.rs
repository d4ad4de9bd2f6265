//! Which directory is the project, and where its files are.

use std::path::{Path, PathBuf};

/// A project and the places `agent` uses in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// The nearest ancestor of `cwd` with `.agent/` or `.git`, else `cwd` itself.
    pub fn discover(cwd: &Path) -> Self {
        // A `.git` file marks a work tree as well as a directory does; `.agent` has to be a
        // directory, since a stray file of that name says nothing.
        let is_root = |directory: &&Path| {
            directory.join(".agent").is_dir() || directory.join(".git").exists()
        };
        let root = cwd.ancestors().find(is_root).unwrap_or(cwd);
        Self {
            root: root.to_path_buf(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `.agent`, which need not exist yet.
    pub fn agent_dir(&self) -> PathBuf {
        self.root.join(".agent")
    }

    /// Settings a team may commit.
    pub fn config(&self) -> PathBuf {
        self.agent_dir().join("config.toml")
    }

    /// Personal settings for this project.
    pub fn local_config(&self) -> PathBuf {
        self.agent_dir().join("config.local.toml")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn check(layout: &[&str], cwd: &str, expected: &str) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join(cwd)).unwrap();
        for entry in layout {
            let path = directory.path().join(entry.trim_end_matches('/'));
            if entry.ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::write(path, "").unwrap();
            }
        }
        let found = Project::discover(&directory.path().join(cwd));
        assert_eq!(found.root(), directory.path().join(expected));
    }

    #[test]
    fn the_nearest_marker_wins() {
        check(&["a/.git/", "a/b/.agent/"], "a/b/c", "a/b");
        check(&["a/.agent/", "a/b/.git/"], "a/b/c", "a/b");
        check(&["a/.git"], "a/b", "a");
    }

    #[test]
    fn a_file_called_agent_is_no_marker() {
        check(&["a/.git/", "a/b/.agent"], "a/b", "a");
    }
}
