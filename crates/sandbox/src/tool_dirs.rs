//! The directories below the home directory that a developer's programs live in.
//!
//! The home directory is hidden from commands; these are bound back read-only. They are found
//! by looking, not assumed: a directory counts if it exists, or if the `PATH` leads into it.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// What was found, ready for a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolDirs {
    pub readable: Vec<PathBuf>,
    /// Files inside them that hold credentials.
    pub hidden: Vec<PathBuf>,
    /// Tells the programs where their directories are, since `HOME` lies elsewhere inside.
    pub environment: Vec<(OsString, OsString)>,
}

/// Directory below home, and the variable that names it if there is one.
const KNOWN: [(&str, Option<&str>); 24] = [
    (".cargo", Some("CARGO_HOME")),
    (".rustup", Some("RUSTUP_HOME")),
    (".nvm", Some("NVM_DIR")),
    (".volta", Some("VOLTA_HOME")),
    (".fnm", None),
    (".bun", Some("BUN_INSTALL")),
    (".deno", Some("DENO_INSTALL_ROOT")),
    (".pyenv", Some("PYENV_ROOT")),
    (".rye", Some("RYE_HOME")),
    (".local/bin", None),
    (".local/lib", None),
    (".local/pipx", None),
    (".local/share/uv", None),
    (".local/share/pnpm", None),
    (".local/share/mise", Some("MISE_DATA_DIR")),
    (".asdf", Some("ASDF_DATA_DIR")),
    (".rbenv", Some("RBENV_ROOT")),
    (".sdkman", Some("SDKMAN_DIR")),
    (".ghcup", None),
    (".juliaup", None),
    (".dotnet", Some("DOTNET_ROOT")),
    (".npm-global", None),
    ("go", Some("GOPATH")),
    (".m2/repository", None),
];

/// Relative to home: never readable although the directory around them is.
const CREDENTIALS: [&str; 6] = [
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".m2/repository/settings.xml",
    ".dotnet/NuGet.Config",
    ".local/share/uv/credentials",
    ".bun/.npmrc",
];

/// Looks below `home` for the known directories, for what `path` (the host's `PATH`) leads
/// into, and for `extra` ones from the user's configuration.
pub fn find(home: &Path, path: &OsStr, extra: &[PathBuf]) -> ToolDirs {
    let mut found = ToolDirs::default();
    for (relative, variable) in KNOWN {
        let directory = home.join(relative);
        if directory.is_dir() {
            if let Some(variable) = variable {
                found
                    .environment
                    .push((variable.into(), directory.clone().into()));
            }
            found.readable.push(directory);
        }
    }
    for entry in std::env::split_paths(path) {
        // Of `~/tools/bin` only that directory: its neighbours are nobody's business.
        if let Ok(below) = entry.strip_prefix(home)
            && below
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
            && below.components().next().is_some()
            && entry.is_dir()
            && !found.readable.iter().any(|known| entry.starts_with(known))
        {
            found.readable.push(entry);
        }
    }
    for directory in extra {
        if directory.exists() && !found.readable.contains(directory) {
            found.readable.push(directory.clone());
        }
    }
    found.hidden = CREDENTIALS
        .iter()
        .map(|relative| home.join(relative))
        .filter(|file| file.exists())
        .collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_is_found_and_credentials_are_hidden() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        for directory in [".cargo/bin", "tools/bin", "plain", ".ssh"] {
            std::fs::create_dir_all(home.join(directory)).unwrap();
        }
        std::fs::write(home.join(".cargo/credentials.toml"), "token").unwrap();
        let path = std::env::join_paths([
            home.join("tools/bin"),
            home.join(".cargo/bin"),
            home.to_owned(),
        ])
        .unwrap();
        let found = find(home, &path, &[home.join("plain"), home.join("missing")]);
        let relative: Vec<_> = found
            .readable
            .iter()
            .map(|path| path.strip_prefix(home).unwrap())
            .collect();
        assert_eq!(
            relative,
            [
                Path::new(".cargo"),
                Path::new("tools/bin"),
                Path::new("plain")
            ]
        );
        assert_eq!(found.hidden, [home.join(".cargo/credentials.toml")]);
        assert_eq!(
            found.environment,
            [("CARGO_HOME".into(), home.join(".cargo").into())]
        );
    }
}
