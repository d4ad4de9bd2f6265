//! Protected names before and after a run. Mounts cannot protect what does not exist yet, so
//! what appeared is moved into quarantine once every process of the command is dead.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::policy::WriteAccess;
use crate::protected;
use crate::violation::{Detection, Kind, Permit, Quarantined, Violation};

/// Below `.git`, where git follows what it finds; watched when git's data is writable.
const GIT_FOLLOWS: [&str; 8] = [
    "modules",
    "worktrees",
    "hooks",
    "config",
    "commondir",
    "config.worktree",
    "info/attributes",
    "gitdir",
];

#[derive(Debug)]
pub(crate) struct Watch {
    workspace: PathBuf,
    quarantine: PathBuf,
    access: WriteAccess,
    /// Compare content too, because no mount kept it.
    content: bool,
    /// Protected by this policy besides the names that are searched for.
    also: Vec<PathBuf>,
    before: BTreeMap<PathBuf, State>,
}

/// What is compared of one protected path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Present,
    /// A link, which no mount can protect, by its target.
    Link(PathBuf),
    /// A hash over names and content below.
    Content([u8; 32]),
}

impl Watch {
    pub(crate) fn before(
        workspace: &Path,
        session_dir: &Path,
        access: WriteAccess,
        content: bool,
        found: &[PathBuf],
        also: &[PathBuf],
    ) -> Self {
        let mut watch = Self {
            workspace: workspace.to_owned(),
            quarantine: session_dir.join("quarantine"),
            access,
            content,
            also: also.to_owned(),
            before: BTreeMap::new(),
        };
        watch.before = watch.look(found);
        watch
    }

    fn look(&self, found: &[PathBuf]) -> BTreeMap<PathBuf, State> {
        let mut paths = [found, &self.also].concat();
        if self.access == WriteAccess::WorkspaceWithGit {
            let git = Path::new(".git");
            paths.extend(GIT_FOLLOWS.iter().map(|name| git.join(name)));
            for (holder, names) in [("modules", &GIT_FOLLOWS[..]), ("worktrees", &[][..])] {
                let holder = git.join(holder);
                let entries = std::fs::read_dir(self.workspace.join(&holder));
                for entry in entries.into_iter().flatten().flatten() {
                    let one = holder.join(entry.file_name());
                    paths.extend(names.iter().map(|name| one.join(name)));
                    paths.push(one);
                }
            }
        }
        paths
            .into_iter()
            .filter_map(|path| Some((path.clone(), self.state(&path)?)))
            .collect()
    }

    fn state(&self, path: &Path) -> Option<State> {
        let full = self.workspace.join(path);
        let data = std::fs::symlink_metadata(&full).ok()?;
        if data.is_symlink() {
            return Some(State::Link(std::fs::read_link(&full).unwrap_or_default()));
        }
        // The log grows while we run; it is guarded by its own hash chain.
        let compared =
            self.content && protected::is_protected(path) != Some(protected::Kind::Agent);
        if !compared {
            return Some(State::Present);
        }
        let mut hash = Sha256::new();
        let mut left = 2_000;
        digest(&full, &mut hash, &mut left);
        Some(State::Content(hash.finalize().into()))
    }

    /// Compares, moves what is new out of the way, and says what happened.
    pub(crate) fn after(&self) -> (Vec<Violation>, Vec<Quarantined>) {
        let mut violations = Vec::new();
        let mut quarantined = Vec::new();
        if self.access == WriteAccess::ReadOnly && !self.content {
            return (violations, quarantined);
        }
        // What was there before is looked at again, whether or not it would be found anew.
        let mut found = protected::existing(&self.workspace).paths;
        found.extend(self.before.keys().cloned());
        let after = self.look(&found);
        let mut report = |path: &Path, what: &str| {
            let git = path.starts_with(".git") && self.access != WriteAccess::WorkspaceWithGit;
            violations.push(Violation {
                kind: Kind::Write,
                target: format!("{} {what}", path.display()),
                count: 1,
                detection: Detection::BeforeAfterComparison,
                permitted_by: if git {
                    Permit::GitWrite
                } else {
                    Permit::SandboxOff
                },
                expected: false,
            });
        };
        for (path, state) in &after {
            match self.before.get(path) {
                None if quarantined
                    .iter()
                    .any(|done: &Quarantined| path.starts_with(&done.path)) => {}
                None => {
                    report(path, "was created");
                    quarantined.push(self.move_away(path));
                }
                Some(known) if known != state => {
                    report(path, "was changed");
                    if matches!(state, State::Link(_)) || matches!(known, State::Link(_)) {
                        quarantined.push(self.move_away(path));
                    }
                }
                Some(_) => {}
            }
        }
        for path in self.before.keys().filter(|path| !after.contains_key(*path)) {
            report(path, "was removed");
        }
        (violations, quarantined)
    }

    fn move_away(&self, path: &Path) -> Quarantined {
        let moved_to = self.try_move(path);
        Quarantined {
            path: path.to_owned(),
            moved_to: moved_to.ok(),
        }
    }

    fn try_move(&self, path: &Path) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(&self.quarantine)?;
        let name = path.to_string_lossy().replace('/', "%");
        for number in 0..1000 {
            let target = self.quarantine.join(format!("{number:03}-{name}"));
            if std::fs::symlink_metadata(&target).is_ok() {
                continue;
            }
            let source = self.workspace.join(path);
            if std::fs::rename(&source, &target).is_err() {
                // Another file system: out of the way matters more than out of the tree, and a
                // name that nothing looks for is out of the way.
                let aside = source.with_file_name(format!(
                    "quarantined-{number:03}-{}",
                    path.file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .trim_start_matches('.')
                ));
                std::fs::rename(&source, &aside)?;
                return Ok(aside);
            }
            return Ok(target);
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }
}

/// Hashes a tree by names, modes and content, within a bound on entries and bytes.
fn digest(path: &Path, hash: &mut Sha256, left: &mut usize) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    let Ok(data) = std::fs::symlink_metadata(path) else {
        return;
    };
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.update(data.mode().to_le_bytes());
    if data.is_dir() {
        let mut names: Vec<PathBuf> = std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        names.sort();
        for name in names {
            // Objects are named by their content; hooks, configuration and references are not.
            if !name.ends_with("objects") {
                digest(&name, hash, left);
            }
        }
    } else if data.is_symlink() {
        hash.update(
            std::fs::read_link(path)
                .unwrap_or_default()
                .as_os_str()
                .as_encoded_bytes(),
        );
    } else if data.is_file() {
        let mut content = Vec::new();
        if std::fs::File::open(path)
            .and_then(|file| file.take(1 << 20).read_to_end(&mut content))
            .is_ok()
        {
            hash.update(&content);
        }
    }
}
