//! A workspace that is a linked git worktree: its `.git` is a file that points elsewhere.

use std::path::{Path, PathBuf};

/// Repository of a linked worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitLink {
    pub(crate) common: PathBuf,
    /// The repository knows this worktree too. The file alone proves nothing: the author
    /// of the workspace could have written it, and it must not open another repository.
    pub(crate) points_back: bool,
}

impl GitLink {
    pub(crate) fn of(workspace: &Path) -> Option<Self> {
        let file = workspace.join(".git");
        if !std::fs::symlink_metadata(&file).ok()?.is_file() {
            return None;
        }
        let own = first_line(&file)?;
        let own =
            std::fs::canonicalize(workspace.join(own.strip_prefix("gitdir:")?.trim())).ok()?;
        let common =
            std::fs::canonicalize(own.join(first_line(&own.join("commondir"))?.trim())).ok()?;
        if !own.starts_with(common.join("worktrees")) || !common.join("HEAD").is_file() {
            return None;
        }
        let back = first_line(&own.join("gitdir"))
            .and_then(|path| std::fs::canonicalize(path.trim()).ok());
        let points_back =
            back.is_some_and(|back| std::fs::canonicalize(&file).is_ok_and(|file| file == back));
        Some(Self {
            common,
            points_back,
        })
    }
}

/// The first line of a small file; links of git are one line long.
fn first_line(file: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    agent_fs::open_regular(file)
        .ok()?
        .take(8192)
        .read_to_string(&mut text)
        .ok()?;
    Some(text.lines().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worktree_counts_only_if_its_repository_knows_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        let (work, own) = (folder.join("work"), folder.join("main/.git/worktrees/work"));
        std::fs::create_dir_all(&work).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(folder.join("main/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(own.join("commondir"), "../..\n").unwrap();
        std::fs::write(work.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        let common = folder.join("main/.git");
        assert_eq!(
            GitLink::of(&work),
            Some(GitLink {
                common: common.clone(),
                points_back: false
            })
        );
        std::fs::write(
            own.join("gitdir"),
            format!("{}\n", work.join(".git").display()),
        )
        .unwrap();
        assert_eq!(
            GitLink::of(&work),
            Some(GitLink {
                common,
                points_back: true
            })
        );
        std::fs::write(work.join(".git"), "gitdir: /etc\n").unwrap();
        assert_eq!(GitLink::of(&work), None);
    }
}
