//! The directories below the home directory that a developer's programs live in.
//!
//! The home directory is hidden from commands; these are bound back read-only. They are found
//! by looking, not assumed: a directory counts if it exists, or if the `PATH` leads into it. A
//! variable such as `CARGO_HOME` says where one is that lies elsewhere.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Tool directories that were found, ready for a policy.
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

/// Below these directories, by their usual names: never readable although what is around them is.
const CREDENTIALS: [&str; 6] = [
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".m2/repository/settings.xml",
    ".dotnet/NuGet.Config",
    ".local/share/uv/credentials",
    ".bun/.npmrc",
];

/// Looks for the known directories below `home` or where the host's `variable` says they are, for
/// what `path` (the host's `PATH`) leads into below `home`, and for `extra` ones from the user's
/// configuration.
pub fn find(
    home: &Path,
    path: &OsStr,
    variable: &dyn Fn(&str) -> Option<OsString>,
    extra: &[PathBuf],
) -> ToolDirs {
    let mut found = ToolDirs::default();
    for (relative, name) in KNOWN {
        let named = name.and_then(variable).map(PathBuf::from);
        let named = named
            .filter(|directory| holds_tools_only(directory, home))
            .filter(|directory| name != Some("GOPATH") || !directory.starts_with(home));
        let directory = named.unwrap_or_else(|| home.join(relative));
        if !directory.is_dir() {
            continue;
        }
        let credentials = CREDENTIALS
            .iter()
            .filter_map(|file| Path::new(file).strip_prefix(relative).ok())
            .map(|file| directory.join(file));
        found
            .hidden
            .extend(credentials.filter(|file| file.exists()));
        if let Some(name) = name {
            let value = directory.clone().into();
            found.environment.push((name.into(), value));
        }
        found.readable.push(directory);
    }
    for entry in std::env::split_paths(path) {
        // Of `~/tools/bin` only that directory, not its neighbours.
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
    found
}

/// True if a directory that a variable names can be shown: not if the whole home would be. (For the
/// same reason `GOPATH` is not followed inside home: all of a user's work may be there.)
fn holds_tools_only(directory: &Path, home: &Path) -> bool {
    let resolved = |path: &Path| std::fs::canonicalize(path);
    let (Ok(real), Ok(home)) = (resolved(directory), resolved(home)) else {
        return false;
    };
    directory.is_absolute() && real.is_dir() && !home.starts_with(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_directories_are_found_and_credentials_hidden() {
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
        let extra = [home.join("plain"), home.join("missing")];
        let found = find(home, &path, &|_| None, &extra);
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

    #[test]
    fn a_variable_says_where_a_directory_is() {
        let place = tempfile::tempdir().unwrap();
        let (home, elsewhere) = (place.path().join("home"), place.path().join("cargo"));
        std::fs::create_dir_all(home.join(".cargo")).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("credentials.toml"), "token").unwrap();
        let find_with = |value: &Path| {
            let variable =
                |name: &str| (name == "CARGO_HOME").then(|| value.as_os_str().to_owned());
            find(&home, OsStr::new(""), &variable, &[])
        };
        let found = find_with(&elsewhere);
        assert_eq!(found.readable, std::slice::from_ref(&elsewhere));
        assert_eq!(found.hidden, [elsewhere.join("credentials.toml")]);
        assert_eq!(
            found.environment,
            [("CARGO_HOME".into(), elsewhere.clone().into())]
        );
        let work = home.join("work");
        std::fs::create_dir(&work).unwrap();
        let gopath = |name: &str| (name == "GOPATH").then(|| work.clone().into());
        let found = find(&home, OsStr::new(""), &gopath, &[]);
        assert_eq!(found.readable, [home.join(".cargo")]);
        // Neither a way to see all of the home nor a name that leads nowhere.
        for wrong in [
            &home,
            place.path(),
            Path::new("relative"),
            Path::new("/none"),
        ] {
            assert_eq!(
                find_with(wrong).readable,
                [home.join(".cargo")],
                "{wrong:?}"
            );
        }
    }
}
