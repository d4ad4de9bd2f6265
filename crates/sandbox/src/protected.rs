//! Names inside a workspace that make something run later: git metadata, editor and agent
//! configuration, shell start-up files. One list for mounts, gate and file tools.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

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

/// Spares the thousands of plain names in a workspace the full comparison.
pub(crate) fn may_be_protected(name: &OsStr, parent: &Path) -> bool {
    let first = name.as_bytes().first().copied().unwrap_or(0);
    first == b'.' || !first.is_ascii() || parent.as_os_str().as_bytes().first() == Some(&b'.')
}

/// The names that may be protected in a directory at this place.
pub(crate) fn names_at(relative: &Path) -> impl Iterator<Item = &'static str> {
    let at_root = AT_ROOT.iter().filter(|_| relative.as_os_str().is_empty());
    let all = ANYWHERE.iter().chain(at_root);
    all.map(|(name, _)| *name).collect::<Vec<_>>().into_iter()
}

pub(crate) fn is_forge(path: &Path) -> bool {
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
}
