//! Names inside a workspace that make something run later: git metadata, editor and agent
//! configuration, shell start-up files. The caller supplies them; there is one list for mounts,
//! gate and file tools.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

/// Part of a writable directory in which a name is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Anywhere,
    /// Not below a directory that a package manager fills.
    OutsideDependencies,
    /// Directly in the directory.
    Root,
    /// The same, and tools write it again as it was: it is compared and put back, not made read-only.
    RootRewritten,
}

/// Directories that package managers and builds fill with other people's projects.
const DEPENDENCIES: [&str; 14] = [
    "node_modules",
    "bower_components",
    ".pnpm-store",
    ".yarn",
    "vendor",
    "target",
    "site-packages",
    "dist-packages",
    "__pypackages__",
    ".venv",
    "venv",
    ".tox",
    "pods",
    "registry",
];

/// The protected names.
#[derive(Debug, Clone)]
pub struct Names(Arc<Table>);

#[derive(Debug)]
struct Table {
    /// By the last component.
    names: HashMap<String, Vec<Name>>,
    /// The first bytes of last components.
    first: BTreeSet<u8>,
}

#[derive(Debug)]
struct Name {
    /// The components before the last.
    above: Vec<String>,
    scope: Scope,
}

/// The names that the sandbox itself relies on.
impl Default for Names {
    fn default() -> Self {
        Self::new([(".git", Scope::Anywhere), (".agent", Scope::Anywhere)])
    }
}

impl Names {
    /// Each name has one or more components, separated by slashes, in lower case.
    pub fn new<'a>(list: impl IntoIterator<Item = (&'a str, Scope)>) -> Self {
        let mut names: HashMap<String, Vec<Name>> = HashMap::new();
        for (path, scope) in list {
            let mut above: Vec<String> = path.split('/').map(str::to_owned).collect();
            let last = above.pop().unwrap_or_default();
            names.entry(last).or_default().push(Name { above, scope });
        }
        let first = names.keys().filter_map(|name| name.bytes().next());
        let first = first.collect();
        Self(Arc::new(Table { names, first }))
    }

    /// True if writing to `path`, relative to the directory that commands may write, changes something that runs
    /// later. Creation counts as change. Names are compared without regard to case, because some file systems do not
    /// regard it either. The caller resolves links first and asks for both forms.
    pub fn protect(&self, path: &Path) -> bool {
        let parts = folded(path);
        (1..=parts.len()).any(|end| self.name(parts.get(..end).unwrap_or_default()))
    }

    /// True if the whole of a path is such a name, or a link in place of a directory that holds one.
    pub(crate) fn is_named(&self, path: &Path, is_link: bool) -> bool {
        let parts = folded(path);
        self.name(&parts) || is_link && self.holds(&parts)
    }

    /// True if tools rewrite the file at a path with the same content.
    pub(crate) fn is_rewritten(&self, path: &Path) -> bool {
        let scope = self.scope(&folded(path));
        scope == Some(Scope::RootRewritten)
    }

    fn name(&self, parts: &[String]) -> bool {
        self.scope(parts).is_some()
    }

    fn scope(&self, parts: &[String]) -> Option<Scope> {
        let (last, before) = parts.split_last()?;
        let mut known = self.0.names.get(last)?.iter();
        let found = known.find(|name| {
            before
                .strip_suffix(&*name.above)
                .is_some_and(|around| counts(name.scope, around))
        });
        found.map(|name| name.scope)
    }

    fn holds(&self, parts: &[String]) -> bool {
        let Some((last, around)) = parts.split_last() else {
            return false;
        };
        let mut all = self.0.names.values().flatten();
        all.any(|name| name.above.first() == Some(last) && counts(name.scope, around))
    }

    /// Spares the thousands of plain names in a workspace the full comparison.
    pub(crate) fn may_have(&self, name: &OsStr) -> bool {
        let first = name.as_bytes().first().copied().unwrap_or(0);
        !first.is_ascii() || self.0.first.contains(&first.to_ascii_lowercase())
    }

    /// The names that may be protected in a directory at this path.
    pub(crate) fn at(&self, relative: &Path) -> Vec<&str> {
        let around = folded(relative);
        let all = self.0.names.iter();
        all.filter(|(_, names)| {
            names.iter().any(|name| {
                around
                    .strip_suffix(&*name.above)
                    .is_some_and(|around| counts(name.scope, around))
            })
        })
        .map(|(last, _)| last.as_str())
        .collect()
    }
}

fn counts(scope: Scope, around: &[String]) -> bool {
    match scope {
        Scope::Anywhere => true,
        Scope::OutsideDependencies => {
            let mut around = around.iter();
            !around.any(|part| DEPENDENCIES.contains(&part.as_str()))
        }
        Scope::Root | Scope::RootRewritten => around.is_empty(),
    }
}

/// True if a path belongs to the agent, whose log grows while commands run.
pub(crate) fn is_agents(path: &Path) -> bool {
    folded(path).iter().any(|part| part == ".agent")
}

fn folded(path: &Path) -> Vec<String> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(fold(name.as_bytes())),
        _ => None,
    });
    parts.collect()
}

/// Lower case, and without what some file systems drop: trailing dots and spaces, and the
/// invisible characters that are ignored in comparisons.
fn fold(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name)
        .chars()
        .filter(|character| !agent_text::is_hidden(*character))
        .flat_map(char::to_lowercase)
        .collect();
    text.trim_end_matches(['.', ' ']).to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn some() -> Names {
        Names::new([
            (".git", Scope::Anywhere),
            (".agent", Scope::Anywhere),
            (".envrc", Scope::Anywhere),
            (".vscode", Scope::Root),
            (".github/workflows", Scope::Root),
            (".gitea/workflows", Scope::Root),
            (".jj/repo/config.toml", Scope::Anywhere),
            (".npmrc", Scope::OutsideDependencies),
            ("agents.md", Scope::OutsideDependencies),
        ])
    }

    fn check(path: &str, expected: bool) {
        assert_eq!(some().protect(Path::new(path)), expected, "{path}");
    }

    #[test]
    fn names_are_protected_where_their_readers_look() {
        check(".git/hooks/pre-push", true);
        check("a/b/c/d/e/.git/config", true);
        check("sub/.GIT", true);
        check(".git. /config", true);
        check(".g\u{200c}it/config", true);
        check(".agent/config.local.toml", true);
        check(".VSCode/tasks.json", true);
        check(".github/workflows/x.yml", true);
        check(".github/CODEOWNERS", false);
        check("src/.vscode/tasks.json", false);
        check("src/.github/workflows/x.yml", false);
        check("sub/.envrc", true);
        check("node_modules/x/.envrc", true);
        check("packages/a/.npmrc", true);
        check("node_modules/x/.npmrc", false);
        check("docs/AGENTS.md", true);
        check("a/.jj/repo/config.toml", true);
        check("a/.jj/config.toml", false);
        check(".gitignore", false);
        check("src/main.rs", false);
        check("git/hooks", false);
        check("", false);
    }

    #[test]
    fn the_names_of_a_directory_are_those_that_count_in_it() {
        let names = some();
        let at = |path: &str| {
            let mut names = names.at(Path::new(path));
            names.sort_unstable();
            names
        };
        assert_eq!(at("node_modules/x"), [".agent", ".envrc", ".git"]);
        assert_eq!(at(".github").last(), Some(&"workflows"));
        assert!(at("").contains(&".vscode"));
        assert!(names.is_named(Path::new(".github"), true));
        assert!(!names.is_named(Path::new(".github"), false));
    }
}
