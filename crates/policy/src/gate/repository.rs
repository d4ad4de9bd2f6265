//! Programs that a git repository names in its configuration. Most settings can be overruled from
//! outside; a driver, a filter or an external diff cannot be taken back once it is named.
//!
//! The files are not parsed. A key of git's configuration stands at the beginning of a line or behind a
//! `]`, in plain letters, and nothing can be put inside it; so every word at such a place is taken for a
//! key. That finds more than git would, never less.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::facts::open_regular;

/// Keys, without their section, that name a program git runs when it only reads, or that lead to more
/// configuration or to another tree of files.
const KEYS: &[&str] = &[
    "clean",
    "cmd",
    "command",
    "defaultkeycommand",
    "difffilter",
    "driver",
    "external",
    "process",
    "program",
    "smudge",
    "textconv",
];

/// Larger files are not looked at, and count as naming something.
const LARGEST: u64 = 1 << 20;
/// Further repositories below one that are looked at.
const MOST_REPOSITORIES: usize = 200;
const DEEPEST_INCLUDE: usize = 8;

/// The work tree around `directory`, with its git directory and the one that holds what it shares.
fn repository_around(directory: &Path) -> Option<(&Path, PathBuf, PathBuf)> {
    let (root, git) = directory
        .ancestors()
        .find_map(|above| Some((above, git_directory(above)?)))?;
    let common = first_line(&git.join("commondir")).map(|common| git.join(common));
    let common = common.unwrap_or_else(|| git.clone());
    Some((root, git, common))
}

/// The hook among `names` that git would start in `directory`, or the setting by which it may have others.
pub(super) fn hook_named(directory: &Path, names: &[&str]) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let (root, git, common) = repository_around(directory)?;
    for file in [common.join("config"), git.join("config.worktree")] {
        if let Some(key) = named_in(&file, &["hookspath"], None, DEEPEST_INCLUDE) {
            return Some(format!("`{key}` in `{}`", shown(&file, root)));
        }
    }
    let hooks = common.join("hooks");
    let runs = |name: &&&str| {
        let data = std::fs::metadata(hooks.join(name));
        data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let hook = names.iter().find(runs)?;
    Some(format!("the hook `{hook}`"))
}

/// The first such setting of the repository that git would find from `directory`, or of one below it.
pub(super) fn program_named(directory: &Path) -> Option<String> {
    let (root, git, common) = repository_around(directory)?;
    let mut repositories = vec![git.clone()];
    if common != git {
        repositories.push(common.clone());
    }
    if !modules(&common.join("modules"), 0, &mut repositories) {
        return Some("too many repositories below this one to look at".to_owned());
    }
    // Submodules that keep their repository in place.
    if let Ok(text) = read(&root.join(".gitmodules")) {
        for line in text.lines() {
            if let Some((key, path)) = line.split_once('=')
                && key.trim().eq_ignore_ascii_case("path")
            {
                let place = root.join(path.trim().trim_matches('"'));
                repositories.extend(git_directory(&place));
            }
        }
    }
    for (number, repository) in repositories.iter().enumerate() {
        for name in ["config", "config.worktree"] {
            let file = repository.join(name);
            // The tree of a submodule lies elsewhere by design.
            let own = number == 0 && name == "config";
            let found = named_in(&file, KEYS, own.then_some(root), DEEPEST_INCLUDE);
            if let Some(key) = found {
                return Some(format!("`{key}` in `{}`", shown(&file, root)));
            }
        }
    }
    None
}

fn shown(file: &Path, root: &Path) -> String {
    let shown = file.strip_prefix(root).unwrap_or(file);
    shown.display().to_string()
}

/// The git directory of a work tree, also where `.git` is a file that says where it is; and the directory
/// itself where it looks like one.
fn git_directory(tree: &Path) -> Option<PathBuf> {
    let git = tree.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    if let Some(line) = first_line(&git) {
        let place = line.strip_prefix("gitdir:")?.trim();
        return Some(tree.join(place));
    }
    let bare = tree.join("HEAD").exists()
        && (tree.join("commondir").exists()
            || tree.join("objects").is_dir() && tree.join("refs").is_dir());
    bare.then(|| tree.to_owned())
}

/// Adds the repositories of submodules; false when there are too many.
fn modules(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return true;
    };
    for entry in entries.flatten() {
        if found.len() >= MOST_REPOSITORIES || depth > DEEPEST_INCLUDE {
            return false;
        }
        let path = entry.path();
        if path.join("HEAD").exists() {
            found.push(path.clone());
            if !modules(&path.join("modules"), depth + 1, found) {
                return false;
            }
        } else if path.is_dir() && !modules(&path, depth + 1, found) {
            return false;
        }
    }
    true
}

/// The first of `keys` in a file, which may send git to others. `root` is the work tree where the file
/// may move it.
fn named_in(file: &Path, keys: &[&str], root: Option<&Path>, includes: usize) -> Option<String> {
    let text = match read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some("what cannot be looked at".to_owned()),
    };
    let folded = text.to_ascii_lowercase();
    let includes_more = folded.contains("include");
    for line in text.split(['\n', '\r']) {
        // Behind each `]`, because a section's name may hold one.
        let starts = [0]
            .into_iter()
            .chain(line.match_indices(']').map(|(at, _)| at + 1));
        for start in starts {
            let rest = line.get(start..).unwrap_or_default();
            let rest = rest
                .trim_start_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}');
            let end = rest
                .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
                .unwrap_or(rest.len());
            let (key, value) = rest.split_at(end);
            let key = key.to_ascii_lowercase();
            if keys.contains(&key.as_str()) {
                return Some(key);
            }
            let value = value.trim_start().strip_prefix('=').unwrap_or_default();
            let value = value.trim().trim_matches('"');
            if key == "worktree" && root.is_some_and(|root| leaves(root, file, value)) {
                return Some(key);
            }
            if key == "path" && includes_more && !value.is_empty() {
                // The home directory of a command is empty.
                if value.starts_with("~/") {
                    continue;
                }
                let beside = file.parent().unwrap_or(Path::new("/")).join(value);
                if includes == 0 || value.contains(['\\', '%', '#', ';', '"']) {
                    return Some("include".to_owned());
                }
                if let Some(found) = named_in(&beside, keys, root, includes - 1) {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// Whether the work tree would lie outside the one whose repository this is.
fn leaves(root: &Path, file: &Path, value: &str) -> bool {
    let place = file.parent().unwrap_or(Path::new("/")).join(value);
    let resolved = (std::fs::canonicalize(place), std::fs::canonicalize(root));
    !matches!(resolved, (Ok(place), Ok(root)) if place.starts_with(&root))
}

fn first_line(file: &Path) -> Option<String> {
    let text = read(file).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// The text of a regular file that is not too large.
fn read(file: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    open_regular(file, LARGEST)?
        .take(LARGEST)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, expected: Option<&str>) {
        let place = tempfile::tempdir().unwrap();
        let git = place.path().join(".git");
        std::fs::create_dir_all(place.path().join("deep/down")).unwrap();
        std::fs::create_dir(&git).unwrap();
        std::fs::write(git.join("more"), "[diff \"x\"] TextConv = sh\n").unwrap();
        std::fs::write(git.join("plain"), "[user]\n\tname = a\n").unwrap();
        std::fs::write(git.join("config"), config).unwrap();
        let found = program_named(&place.path().join("deep/down"));
        let expected = expected.map(|key| format!("`{key}` in `.git/config`"));
        assert_eq!(found, expected, "{config}");
    }

    #[test]
    fn keys_that_name_programs_are_found_however_they_are_written() {
        check("[diff]\n\texternal = ./x\n", Some("external"));
        check("[diff \"x\"]\n  textConv=sh\n", Some("textconv"));
        check("[filter \"a]b\"] CLEAN = x\n", Some("clean"));
        check("[a][filter \"y\"]process=x", Some("process"));
        check("\u{feff}[diff \"x\"]command\n", Some("command"));
        check("[gpg]\r\n\tprogram = x\r\n", Some("program"));
        check("[include]\n\tpath = more\n", Some("textconv"));
        check(
            "[includeIf \"gitdir:/\"]\n\tpath = \"more\"\n",
            Some("textconv"),
        );
        check("[include]\n\tpath = \"mo\\\nre\"\n", Some("include"));
        check("[core]\n\tworktree = /etc\n", Some("worktree"));
        check("[include]\n\tpath = plain\n\tpath = ~/.gitconfig\n", None);
        check(
            "[core]\n\tbare = false\n\tfsmonitor = ./x\n[remote \"origin\"]\n\turl = https://x/command\n",
            None,
        );
    }

    #[test]
    fn hooks_count_where_git_would_start_them() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        std::fs::create_dir_all(root.join(".git/hooks")).unwrap();
        std::fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        std::fs::create_dir_all(root.join("w/deep")).unwrap();
        std::fs::write(root.join(".git/worktrees/w/commondir"), "../..\n").unwrap();
        std::fs::write(root.join("w/.git"), "gitdir: ../.git/worktrees/w\n").unwrap();
        let names = ["pre-commit", "commit-msg"];
        let check = |expected: Option<&str>| {
            for directory in [root.to_owned(), root.join("w/deep")] {
                let found = hook_named(&directory, &names);
                assert_eq!(found.as_deref(), expected, "{directory:?}");
            }
        };
        let hook = |name: &str, mode: u32| {
            let path = root.join(".git/hooks").join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        check(None);
        hook("pre-commit.sample", 0o755);
        hook("pre-push", 0o755);
        hook("commit-msg", 0o644);
        check(None);
        hook("commit-msg", 0o755);
        check(Some("the hook `commit-msg`"));
        hook("commit-msg", 0o644);
        std::fs::write(root.join(".git/config"), "[core] hooksPath = .husky\n").unwrap();
        let found = hook_named(root, &names).unwrap();
        assert_eq!(found, "`hookspath` in `.git/config`");
    }

    #[test]
    fn submodules_and_linked_trees_are_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".git/config", "");
        write(".git/modules/a/b/HEAD", "");
        write(
            ".git/modules/a/b/config",
            "[core]\n\tworktree = ../../../../a/b\n",
        );
        assert_eq!(program_named(root), None);
        write(".git/modules/a/b/config", "[filter \"x\"]\n\tclean = x\n");
        assert!(program_named(root).is_some());
        write(".git/modules/a/b/config", "");
        write(".gitmodules", "[submodule \"s\"]\n\tpath = s\n");
        write("s/.git/config", "[filter \"x\"]\n\tclean = x\n");
        assert!(program_named(root).is_some());
        write("s/.git/config", "");
        write(".git/worktrees/w/commondir", "../..\n");
        write("w/.git", "gitdir: ../.git/worktrees/w\n");
        assert_eq!(program_named(&root.join("w")), None);
        write(".git/worktrees/w/config.worktree", "[diff]\nexternal=x\n");
        assert!(program_named(&root.join("w")).is_some());
        write(".git/worktrees/w/config.worktree", "");
        write(".git/config", "[diff]\nexternal=x\n");
        assert!(program_named(&root.join("w")).is_some());
    }
}
