//! Names inside a workspace that make something run later: git metadata, editor and agent
//! configuration, shell start-up files. One list for mounts, gate and file tools.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::git_data;

/// Why a path is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Hooks, configuration and history of a repository.
    Git,
    /// Our own configuration and log.
    Agent,
    /// Configuration of another agent.
    OtherAgent,
    /// Editor settings that can start programs.
    Editor,
    /// Read by a shell at its start.
    Shell,
    /// Run by a build service with rights of its own.
    Workflow,
    /// Other configuration that programs act on when they meet it.
    Tool,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Agent => "agent",
            Self::OtherAgent => "other_agent",
            Self::Editor => "editor",
            Self::Shell => "shell",
            Self::Workflow => "workflow",
            Self::Tool => "tool",
        }
    }
}

/// Protected wherever they stand.
const ANYWHERE: [(&str, Kind); 4] = [
    (".git", Kind::Git),
    (".agent", Kind::Agent),
    (".gitmodules", Kind::Git),
    (".envrc", Kind::Tool),
];

/// Protected directly in the workspace, which is where their readers look.
const AT_ROOT: &[(&str, Kind)] = &[
    (".vscode", Kind::Editor),
    (".idea", Kind::Editor),
    (".zed", Kind::Editor),
    (".devcontainer", Kind::Editor),
    (".devcontainer.json", Kind::Editor),
    (".vim", Kind::Editor),
    (".nvim.lua", Kind::Editor),
    (".exrc", Kind::Editor),
    (".vimrc", Kind::Editor),
    (".mcp.json", Kind::OtherAgent),
    (".claude", Kind::OtherAgent),
    (".cursor", Kind::OtherAgent),
    (".codex", Kind::OtherAgent),
    (".gemini", Kind::OtherAgent),
    (".opencode", Kind::OtherAgent),
    (".windsurf", Kind::OtherAgent),
    (".ripgreprc", Kind::Tool),
    (".gdbinit", Kind::Tool),
    (".bashrc", Kind::Shell),
    (".bash_profile", Kind::Shell),
    (".bash_login", Kind::Shell),
    (".bash_logout", Kind::Shell),
    (".bash_aliases", Kind::Shell),
    (".profile", Kind::Shell),
    (".zshrc", Kind::Shell),
    (".zshenv", Kind::Shell),
    (".zprofile", Kind::Shell),
    (".zlogin", Kind::Shell),
    (".zlogout", Kind::Shell),
    (".kshrc", Kind::Shell),
    (".cshrc", Kind::Shell),
    (".tcshrc", Kind::Shell),
    (".inputrc", Kind::Shell),
    (".gitconfig", Kind::Git),
];

/// Directories whose folder `workflows` is run by a build service.
const FORGES: [&str; 3] = [".github", ".gitea", ".forgejo"];

/// How deep nested repositories are looked for, and how many directory entries at most.
pub(crate) const SEARCH_DEPTH: usize = 4;
/// The same in directories that are writable besides the workspace and may be large caches.
pub(crate) const SEARCH_DEPTH_ELSEWHERE: usize = 2;
const SEARCH_ENTRIES: usize = 50_000;

/// Whether writing to `path`, relative to the workspace, changes something that runs later.
/// Creation counts as change. Names are compared without regard to case, because some file
/// systems do not regard it either. The caller resolves links first and asks for both forms.
pub fn is_protected(path: &Path) -> Option<Kind> {
    let mut parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(fold(name.as_bytes())),
        _ => None,
    });
    let first = parts.next()?;
    let find = |list: &[(&str, Kind)], name: &str| {
        list.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    };
    let second = parts.next();
    if let Some(kind) = find(AT_ROOT, &first).or_else(|| find(&ANYWHERE, &first)) {
        return Some(kind);
    }
    if FORGES.contains(&first.as_str()) && second.as_deref() == Some("workflows") {
        return Some(Kind::Workflow);
    }
    second
        .into_iter()
        .chain(parts)
        .find_map(|name| find(&ANYWHERE, &name))
}

/// Lower case, and without what some file systems drop: trailing dots and spaces, and the
/// invisible characters that are ignored in comparisons.
fn fold(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name)
        .chars()
        .filter(|character| !matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'))
        .flat_map(char::to_lowercase)
        .collect();
    text.trim_end_matches(['.', ' ']).to_owned()
}

/// The protected paths that exist in a workspace, relative to it and in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) paths: Vec<PathBuf>,
    /// False when the workspace is too large to have been searched as deep as intended.
    pub(crate) complete: bool,
}

/// Spares the thousands of plain names in a workspace the full comparison.
fn may_be_protected(name: &OsStr, parent: &Path) -> bool {
    let first = name.as_bytes().first().copied().unwrap_or(0);
    first == b'.' || !first.is_ascii() || parent.as_os_str().as_bytes().first() == Some(&b'.')
}

/// Searches a directory and so many levels in all. Links are not followed: what they point to has
/// its own name.
pub(crate) fn existing(root: &Path, depth: usize) -> Existing {
    let mut found = Existing {
        paths: Vec::new(),
        complete: true,
    };
    let mut left = SEARCH_ENTRIES;
    let mut level = vec![PathBuf::new()];
    for _ in 0..depth {
        let mut next = Vec::new();
        for relative in level {
            let Ok(entries) = std::fs::read_dir(root.join(&relative)) else {
                found.ask_for_names(root, &relative);
                continue;
            };
            let mut looks_like_git = false;
            for entry in entries.flatten() {
                if left == 0 {
                    found.complete = false;
                    break;
                }
                left -= 1;
                let name = entry.file_name();
                let path = relative.join(&name);
                let kind = entry.file_type();
                looks_like_git |= name == "HEAD";
                if may_be_protected(&name, &relative)
                    && (is_protected(&path).is_some()
                        || is_forge(&path) && kind.as_ref().is_ok_and(|kind| kind.is_symlink()))
                {
                    found.paths.push(path);
                } else if kind.is_ok_and(|kind| kind.is_dir()) {
                    next.push(path);
                }
            }
            if looks_like_git {
                found.add_repository(root, &relative);
            }
        }
        level = next;
    }
    found.paths.sort();
    found.paths.dedup();
    found
}

impl Existing {
    /// A directory that may be entered and not listed still has the names that git and others ask
    /// for.
    fn ask_for_names(&mut self, root: &Path, relative: &Path) {
        let at_root = AT_ROOT.iter().filter(|_| relative.as_os_str().is_empty());
        for (name, _) in ANYWHERE.iter().chain(at_root) {
            let path = relative.join(name);
            if std::fs::symlink_metadata(root.join(&path)).is_ok() {
                self.paths.push(path);
            }
        }
        self.add_repository(root, relative);
    }

    /// A repository without a work tree is not known by its name: git takes the directory for one
    /// when somebody is in it, and runs what it says.
    fn add_repository(&mut self, root: &Path, relative: &Path) {
        let full = root.join(relative);
        let has = |name: &str| std::fs::symlink_metadata(full.join(name)).is_ok();
        if git_data::is_repository(has) {
            let there = git_data::BARE_FOLLOWED.iter().filter(|name| has(name));
            self.paths.extend(there.map(|name| relative.join(name)));
        }
    }
}

fn is_forge(path: &Path) -> bool {
    path.to_str()
        .is_some_and(|name| FORGES.contains(&fold(name.as_bytes()).as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<Kind>) {
        assert_eq!(is_protected(Path::new(path)), expected, "{path}");
    }

    #[test]
    fn names_are_protected_where_their_readers_look() {
        check(".git/hooks/pre-push", Some(Kind::Git));
        check("a/b/c/d/e/.git/config", Some(Kind::Git));
        check("sub/.GIT", Some(Kind::Git));
        check(".git. /config", Some(Kind::Git));
        check(".g\u{200c}it/config", Some(Kind::Git));
        check(".agent/config.local.toml", Some(Kind::Agent));
        check(".VSCode/tasks.json", Some(Kind::Editor));
        check(".github/workflows/x.yml", Some(Kind::Workflow));
        check(".github/CODEOWNERS", None);
        check("src/.vscode/tasks.json", None);
        check("sub/.envrc", Some(Kind::Tool));
        check(".gitignore", None);
        check("src/main.rs", None);
        check("git/hooks", None);
        check("", None);
    }

    #[test]
    fn nested_repositories_are_found_to_their_depth() {
        let workspace = tempfile::tempdir().unwrap();
        for directory in [
            "a/b/c/.git",
            "a/b/c/d/.git",
            ".vscode",
            "src/.vscode",
            ".github/workflows",
        ] {
            std::fs::create_dir_all(workspace.path().join(directory)).unwrap();
        }
        std::fs::create_dir_all(workspace.path().join("w")).unwrap();
        std::fs::write(workspace.path().join("w/.git"), "gitdir: /elsewhere").unwrap();
        let found = existing(workspace.path(), SEARCH_DEPTH);
        assert_eq!(
            found.paths,
            [".github/workflows", ".vscode", "a/b/c/.git", "w/.git"].map(PathBuf::from)
        );
        assert!(found.complete);
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
        assert_eq!(existing(root, SEARCH_DEPTH).paths, expected);
        // The workspace itself can be one.
        std::fs::write(root.join("commondir"), "bare.git").unwrap();
        assert!(
            existing(root, SEARCH_DEPTH)
                .paths
                .contains(&"commondir".into())
        );
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
        let found = existing(place.path(), SEARCH_DEPTH);
        mode(0o755);
        assert_eq!(found.paths, [PathBuf::from("closed/.git")]);
    }

    #[test]
    fn a_link_in_place_of_a_forges_directory_counts() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join(".gitea")).unwrap();
        std::os::unix::fs::symlink("elsewhere", place.path().join(".github")).unwrap();
        let found = existing(place.path(), SEARCH_DEPTH);
        assert_eq!(found.paths, [PathBuf::from(".github")]);
    }
}
