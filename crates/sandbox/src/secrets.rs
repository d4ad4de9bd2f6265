//! Places that hold credentials and are readable to the command's user unless hidden.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Hidden one by one when the home directory as a whole cannot be.
const BELOW_HOME: [&str; 24] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".config/git/credentials",
    ".local/share/keyrings",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".bash_history",
    ".config/google-chrome",
];

pub(crate) fn below_home(home: &Path) -> Vec<PathBuf> {
    let existing = BELOW_HOME
        .iter()
        .filter_map(|name| std::fs::canonicalize(home.join(name)).ok());
    existing.collect()
}

/// Paths that root owns and no one else may read: root without capabilities is still the owner.
/// They are searched for once, since they change with the machine and not with the session.
pub(crate) fn of_root() -> &'static [PathBuf] {
    static FOUND: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found = Vec::new();
        for (directory, depth) in [
            ("/etc", 3),
            ("/var/lib", 1),
            ("/var/spool", 2),
            ("/var/cache", 1),
            ("/var/backups", 1),
            ("/var/log", 1),
            ("/boot", 1),
        ] {
            private_below(Path::new(directory), depth, &mut found);
        }
        found
    })
}

fn private_below(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    /// More than a machine has; each costs a mount.
    const MOST: usize = 200;
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(data) = entry.metadata() else { continue };
        if data.is_symlink() || found.len() >= MOST {
            continue;
        }
        let world_readable = data.mode() & 0o004 != 0;
        if !world_readable && data.uid() == 0 && (data.is_dir() || data.is_file()) {
            found.push(entry.path());
        } else if data.is_dir() && depth > 1 {
            private_below(&entry.path(), depth - 1, found);
        }
    }
}
