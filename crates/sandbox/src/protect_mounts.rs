//! Protected parts of writable directories: the directories that are watched, and the mounts that
//! keep parts of them read-only.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::git_data::GitKept;
use crate::git_link::GitLink;
use crate::policy::{Policy, WriteAccess};
use crate::protected_dir::{ProtectedDir, ProtectedPaths};
use crate::search::{MOST_ENTRIES, MOST_ENTRIES_ELSEWHERE};

/// Writable directories, each with the paths in it that must not change. The workspace comes first.
pub(crate) fn protected_dirs(
    policy: &Policy,
    workspace: &Path,
    session_dir: &Path,
    writable: &[PathBuf],
    link: Option<&GitLink>,
) -> io::Result<Vec<(ProtectedDir, ProtectedPaths)>> {
    let granted = policy.write_access.writes_git();
    let kept = match policy.write_access {
        WriteAccess::WorkspaceWithCommits => GitKept::Commits,
        _ => GitKept::Names,
    };
    let mut main = ProtectedDir::of_names(workspace, MOST_ENTRIES, &policy.names, &policy.denied)?;
    for path in &policy.protected {
        if let Ok(path) = workspace.join(path).strip_prefix(workspace)
            && !path.as_os_str().is_empty()
        {
            main.protect(path.to_owned());
        }
    }
    if let Ok(inside) = session_dir.strip_prefix(workspace) {
        main.protect(inside.to_owned());
    }
    let git = link.map_or_else(|| workspace.join(".git"), |link| link.common.clone());
    main.follow_configuration(&git.join("config"));
    // The directory itself, and the link to it where there is one.
    let own_git = std::fs::canonicalize(workspace.join(".git")).ok();
    if let Some(own_git) = own_git.filter(|git| granted && git.is_dir())
        && let Ok(inside) = own_git.strip_prefix(workspace)
    {
        main.grant_git(Path::new(".git"), kept);
        main.grant_git(inside, kept);
    }
    let mut dirs = vec![main];
    for root in writable {
        if link.is_some_and(|link| link.common == *root) {
            dirs.push(ProtectedDir::of_git(root, kept)?);
        } else if !root.starts_with(workspace) {
            let most = MOST_ENTRIES_ELSEWHERE;
            let mut dir = ProtectedDir::of_names(root, most, &policy.names, &policy.denied)?;
            // The workspace has its own, which may grant more.
            dir.leave_out(workspace.strip_prefix(root).ok());
            let inside = policy.protected.iter();
            for path in inside.filter_map(|path| path.strip_prefix(root).ok()) {
                if !path.as_os_str().is_empty() {
                    dir.protect(path.to_owned());
                }
            }
            dirs.push(dir);
        }
    }
    // Only the workspace was walked through by the caller.
    let mut found_names = policy.found_names.clone();
    Ok(dirs
        .into_iter()
        .map(|dir| {
            let found = dir.scan(found_names.take());
            (dir, found)
        })
        .collect())
}

/// Absolute paths that must not change in one directory.
pub(crate) fn named((dir, found): &(ProtectedDir, ProtectedPaths)) -> Vec<PathBuf> {
    let paths = found.read_only.iter().chain(&found.compared);
    paths.map(|path| dir.tree.path().join(path)).collect()
}

/// Mounts over writable directories, parents before children.
#[derive(Default)]
pub(crate) struct ProtectMounts {
    /// Bound onto themselves so that they cannot be renamed.
    pub(crate) pins: Vec<PathBuf>,
    pub(crate) read_only: Vec<PathBuf>,
}

pub(crate) fn protect_mounts(dirs: &[(ProtectedDir, ProtectedPaths)]) -> ProtectMounts {
    let mut read_only = BTreeSet::new();
    let mut pins = BTreeSet::new();
    for (dir, found) in dirs {
        let root = dir.tree.path();
        let above = |path: &Path| -> Vec<PathBuf> {
            let parents = path.ancestors().skip(1);
            let parents = parents.take_while(|parent| *parent != root);
            parents.map(Path::to_owned).collect()
        };
        for path in &found.read_only {
            // A link cannot be a mount point: it is compared after the run, and what it points
            // to is protected under its own name.
            let Ok(resolved) = std::fs::canonicalize(root.join(path)) else {
                continue;
            };
            if resolved.starts_with(root) && resolved != root {
                pins.extend(above(&resolved));
                read_only.insert(resolved);
            }
        }
        for path in &found.present {
            let full = root.join(path);
            if std::fs::canonicalize(&full).is_ok_and(|resolved| resolved == full && full.is_dir())
            {
                pins.extend(above(&full));
                pins.insert(full);
            }
        }
    }
    // What lies below a read-only path is read-only with it.
    let covered = |path: &Path| {
        path.ancestors()
            .skip(1)
            .any(|parent| read_only.contains(parent))
    };
    let keep: Vec<PathBuf> = read_only
        .iter()
        .filter(|path| !covered(path))
        .cloned()
        .collect();
    let pins = pins
        .iter()
        .filter(|path| !covered(path) && !read_only.contains(*path))
        .cloned()
        .collect();
    ProtectMounts {
        pins,
        read_only: keep,
    }
}
