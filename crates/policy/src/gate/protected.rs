//! Names whose change makes something else run later, and names whose content is a secret.
//!
//! Compared without regard to case, on every component of the given and of the resolved path: a file
//! that does not exist yet counts like one that does.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use super::names::{NOT_SECRET, PROTECTED_NAMES, SECRET_DIRECTORIES, SECRET_NAMES, SECRET_PAIRS};

/// Why a path may not be written without a person saying so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Protected {
    /// One clause: what the path is.
    pub what: &'static str,
    /// The component that makes it so; a rule that spells it out is taken to mean it.
    pub marker: String,
    /// The runtime's own record: not even a rule opens it.
    pub is_record: bool,
}

fn folded(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|component| match component {
            std::path::Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
            _ => None,
        })
        .collect()
}

/// Whether writing `path` needs a person, and why.
pub(super) fn protected(path: &Path) -> Option<Protected> {
    // Git takes a directory with such a file in it for a repository, and runs what it says.
    if path.file_name().is_some_and(|name| name == "HEAD") {
        return Some(Protected {
            what: "a file that makes its directory a git repository",
            marker: "head".to_owned(),
            is_record: false,
        });
    }
    let components = folded(path);
    for (index, component) in components.iter().enumerate() {
        let next = components.get(index + 1).map(String::as_str);
        if component == ".agent" && next == Some("sessions") {
            return Some(Protected {
                what: "agent's own record",
                marker: "sessions".to_owned(),
                is_record: true,
            });
        }
        let rest = components.get(index..).unwrap_or_default();
        let named = PROTECTED_NAMES.iter().find(|(name, ..)| {
            let mut parts = name.split('/').zip(rest);
            name.split('/').count() <= rest.len()
                && parts.all(|(part, component)| part == component)
        });
        if let Some((name, what, _)) = named {
            return Some(Protected {
                what,
                marker: name.rsplit('/').next().unwrap_or(name).to_owned(),
                is_record: false,
            });
        }
    }
    None
}

/// Whether changing `path` makes something else run later.
pub fn is_protected(path: &Path) -> bool {
    protected(path).is_some()
}

/// Whether `path` leads to something protected: moving or deleting it moves or deletes that too.
pub(super) fn holds_protected(path: &Path) -> bool {
    folded(path).last().is_some_and(|last| {
        let mut above = PROTECTED_NAMES
            .iter()
            .filter_map(|(name, ..)| name.split_once('/'));
        above.any(|(above, _)| above == last)
    }) || protected(path).is_some()
}

/// Whether the content of `path` is a secret by its name.
pub fn is_secret(path: &Path) -> bool {
    secret(path).is_some()
}

/// The globs over names by how they are compared, because whole trees are gone through.
struct SecretNames {
    plain: HashMap<&'static str, usize>,
    /// `*.pem` by what stands behind the star.
    extensions: HashMap<&'static str, usize>,
    others: Vec<usize>,
}

static SECRETS: LazyLock<SecretNames> = LazyLock::new(|| {
    let mut names = SecretNames {
        plain: HashMap::new(),
        extensions: HashMap::new(),
        others: Vec::new(),
    };
    for (at, (glob, _)) in SECRET_NAMES.iter().enumerate() {
        match glob.strip_prefix('*') {
            Some(rest) if rest.rfind('.') == Some(0) && !rest.contains('*') => {
                names.extensions.entry(rest).or_insert(at);
            }
            _ if glob.contains('*') => names.others.push(at),
            _ => {
                names.plain.entry(glob).or_insert(at);
            }
        }
    }
    names
});

/// The first glob of the list that matches a name in lower case.
fn secret_name(name: &str) -> Option<&'static (&'static str, &'static str)> {
    let extension = name.rfind('.').and_then(|at| name.get(at..));
    let others = SECRETS.others.iter().find(|at| {
        let glob = SECRET_NAMES.get(**at);
        glob.is_some_and(|(glob, _)| wildcard(glob, name))
    });
    let found = [
        SECRETS.plain.get(name),
        extension.and_then(|extension| SECRETS.extensions.get(extension)),
        others,
    ];
    SECRET_NAMES.get(*found.into_iter().flatten().min()?)
}

/// Whether the content of `path` is a secret, with what it is and the names a rule may spell out.
pub(super) fn secret(path: &Path) -> Option<(&'static str, Vec<String>)> {
    let components = folded(path);
    let name = components.last()?;
    if components.first().is_some_and(|first| first == "proc")
        && matches!(name.as_str(), "environ" | "mem" | "cmdline" | "maps")
    {
        return Some(("a process's memory or environment", vec![name.clone()]));
    }
    if let Some((directory, what)) = SECRET_DIRECTORIES
        .iter()
        .find(|(directory, _)| components.iter().any(|component| component == directory))
    {
        return Some((what, vec![(*directory).to_owned(), name.clone()]));
    }
    if let Some((_, second, what)) = SECRET_PAIRS.iter().find(|(first, second, _)| {
        components
            .windows(2)
            .any(|pair| matches!(pair, [one, two] if one == first && two == second))
    }) {
        return Some((what, vec![(*second).to_owned(), name.clone()]));
    }
    let (glob, what) = secret_name(name)?;
    if NOT_SECRET.iter().any(|glob| wildcard(glob, name)) {
        return None;
    }
    Some((what, vec![name.clone(), (*glob).to_owned()]))
}

/// `*` stands for anything, also nothing. Linear in practice: patterns have one or two stars.
pub(super) fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_look_at_every_component_and_fold_case() {
        for path in [
            "/w/.git/hooks/post-merge",
            "/w/sub/.git/config",
            "/w/.GIT/config",
            "/w/.agent/config.local.toml",
            "/w/.vscode/launch.json",
            "/w/.github/workflows/x.yml",
            "/w/AGENTS.md",
            "/home/u/.bashrc",
            "/w/.cargo/config.toml",
            "/w/sub/HEAD",
            "/w/.exrc",
            "/w/.npmrc",
            "/w/.Roo/rules",
            "/w/WARP.md",
            "/w/sub/.jj/repo/config.toml",
            "/w/.hg/hgrc",
            "/w/mise.local.toml",
            "/w/.config/mise/config.toml",
            "/w/.dir-locals.el",
        ] {
            assert!(protected(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "/w/src/git.rs",
            "/w/.github/ISSUE_TEMPLATE.md",
            "/w/.gitignore",
            "/w/ci.yml",
            "/w/src/head/mod.rs",
            "/w/head",
        ] {
            assert!(protected(Path::new(path)).is_none(), "{path}");
        }
    }

    #[test]
    fn secrets_are_known_by_name_or_place() {
        for path in [
            "/w/.env",
            "/w/.env.production",
            "/home/u/.ssh/config",
            "/home/u/.aws/credentials",
            "/w/certs/a.pem",
            "/proc/1/environ",
            "/w/ID_RSA",
            "/home/u/.config/gh/hosts.yml",
            "/run/secrets/token",
            "/w/.secrets",
        ] {
            assert!(secret(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "/w/.env.example",
            "/w/src/env.rs",
            "/w/id_rsa.pub",
            "/w/key.rs",
            "/w/src/secrets.rs",
            "/w/gh/hosts.yml",
        ] {
            assert!(secret(Path::new(path)).is_none(), "{path}");
        }
    }

    #[test]
    fn names_are_found_as_by_going_through_the_list() {
        let ends = [
            "",
            "x",
            ".x",
            "env",
            ".env",
            ".pem.x",
            ".env.example",
            "_rsa",
        ];
        for (glob, _) in SECRET_NAMES {
            for end in ends {
                for name in [
                    glob.replace('*', end),
                    format!("{end}{}", glob.replace('*', "")),
                ] {
                    let slow = SECRET_NAMES.iter().find(|(glob, _)| wildcard(glob, &name));
                    assert_eq!(secret_name(&name), slow, "{name}");
                }
            }
        }
        assert_eq!(secret_name("main.rs"), None);
    }

    #[test]
    fn stars_match_any_run() {
        for (pattern, text, expected) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "acb", false),
            ("*", "", true),
            ("abc", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("a*b", "ab", true),
            ("ab*b", "ab", false),
        ] {
            assert_eq!(wildcard(pattern, text), expected, "{pattern} {text}");
        }
    }
}
