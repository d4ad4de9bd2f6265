//! Protected names before and after a run. Mounts cannot protect what does not exist yet, so
//! what appeared is moved into quarantine once every process of the command is dead. Another
//! command may still run in the same workspace, so that nothing here follows a link.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;
use sha2::{Digest, Sha256};

use crate::backup::Backup;
use crate::policy::{Policy, WorkspaceWalk, WriteAccess};
use crate::protected;
use crate::protected_dir::{ProtectedDir, ProtectedPaths};
use crate::violation::{Detection, Kind, Permit, Quarantined, Violation};
use agent_fs::Dir;

/// More than a protected directory has without git's objects.
const MOST_ENTRIES: usize = 2_000;

/// Most changes that are listed one by one.
const MOST_LISTED: usize = 100;

/// Lag of file times behind the clock.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// A name that any file system takes, with room for a number before it.
const LONGEST_NAME: usize = 160;

#[derive(Debug)]
pub(crate) struct Watch {
    /// The first is the workspace.
    dirs: Vec<WatchedDir>,
    session: Dir,
    access: WriteAccess,
    /// Compare content everywhere, because no mount kept it.
    content: bool,
    /// Made over the workspace once the command has ended.
    walk_after: Option<WorkspaceWalk>,
}

/// One directory and what was in it before.
#[derive(Debug)]
struct WatchedDir {
    dir: ProtectedDir,
    before: BTreeMap<PathBuf, Fingerprint>,
    /// Paths whose content is compared.
    compared: BTreeSet<PathBuf>,
    /// Content to restore, where content is compared.
    backup: Backup,
    /// True if the scan before the run was complete.
    complete: bool,
    /// Start of the run in file-system time, if the scan was not complete.
    begun: Option<SystemTime>,
}

/// Fingerprint of one protected path, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fingerprint {
    Present,
    /// A link, which no mount can protect, by its target.
    Link(PathBuf),
    /// A hash over names and content below.
    Content([u8; 32]),
}

impl Watch {
    /// `dirs` with the protected paths found there; the workspace comes first.
    pub(crate) fn before(
        dirs: Vec<(ProtectedDir, ProtectedPaths)>,
        session_dir: &Path,
        policy: &Policy,
        content: bool,
    ) -> io::Result<Self> {
        let dirs = dirs
            .into_iter()
            .map(|(dir, found)| WatchedDir::before(dir, &found, content))
            .collect();
        Ok(Self {
            dirs,
            session: Dir::open(session_dir)?,
            access: policy.write_access,
            content,
            walk_after: policy.walk_after.clone(),
        })
    }

    /// Compares, moves what is new out of the way, and says what happened.
    /// Paths in `external` were written by others.
    pub(crate) fn after(&self, external: &[PathBuf], outcome: &mut Outcome) {
        outcome.has_news = false;
        self.compare(Phase::After, external, outcome);
    }

    /// Moves new names to quarantine while the command runs: a name that makes something run
    /// must not stay for as long as a server does.
    pub(crate) fn during(&self, external: &[PathBuf], outcome: &mut Outcome) {
        self.compare(Phase::During, external, outcome);
    }

    fn compare(&self, phase: Phase, external: &[PathBuf], outcome: &mut Outcome) {
        if self.access == WriteAccess::ReadOnly && !self.content {
            return;
        }
        for (number, watched) in self.dirs.iter().enumerate() {
            let compared = Comparison {
                watch: self,
                watched,
                is_workspace: number == 0,
                phase,
                external,
            };
            compared.run(outcome);
        }
    }
}

/// Phase of the run in which a directory is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The command runs; what it changes may be half done.
    During,
    After,
}

/// Everything found about one command, however often it was compared; bounded, so that a log does not grow with
/// what a command makes up.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    violations: Vec<Violation>,
    quarantined: Vec<Quarantined>,
    /// Further ones, which were dealt with as well.
    unlisted: u64,
    /// True if anything was found, and so perhaps moved or put back, since the command ended.
    has_news: bool,
}

impl Outcome {
    /// Adds a violation; one that is repeated is listed once, with its count.
    fn add(&mut self, violation: Violation) {
        self.has_news = true;
        let mut known = self.violations.iter_mut();
        if let Some(known) = known.find(|known| known.target == violation.target) {
            known.count += violation.count;
        } else if self.violations.len() < MOST_LISTED {
            self.violations.push(violation);
        } else {
            self.unlisted += violation.count;
        }
    }

    fn moved(&mut self, items: impl IntoIterator<Item = Quarantined>) {
        for item in items {
            let is_listed = self.quarantined.iter().any(|known| known.path == item.path);
            if !is_listed && self.quarantined.len() < MOST_LISTED {
                self.quarantined.push(item);
            }
        }
    }

    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    pub(crate) fn into_parts(mut self) -> (Vec<Violation>, Vec<Quarantined>) {
        if self.unlisted > 0 {
            self.violations.push(Violation {
                kind: Kind::Write,
                target: "more protected names".into(),
                count: self.unlisted,
                detection: Detection::BeforeAfterComparison,
                permitted_by: Permit::SandboxOff,
                expected: false,
            });
        }
        (self.violations, self.quarantined)
    }
}

impl WatchedDir {
    fn before(dir: ProtectedDir, found: &ProtectedPaths, content: bool) -> Self {
        let mut watched = Self {
            dir,
            before: BTreeMap::new(),
            compared: found.compared.iter().cloned().collect(),
            backup: Backup::default(),
            complete: found.complete,
            begun: if found.complete {
                None
            } else {
                agent_fs::now().ok()
            },
        };
        for path in &found.read_only {
            // The log grows while we run; it is protected by its own hash chain.
            if content && !protected::is_agents(path) || watched.has_other_names(path) {
                watched.compared.insert(path.clone());
            }
        }
        watched.before = watched.states(found);
        for path in &watched.compared {
            watched.backup.save(&watched.dir.tree, path);
        }
        watched
    }

    /// A file that can be written under a name that is not protected.
    fn has_other_names(&self, path: &Path) -> bool {
        self.dir
            .tree
            .stat(path)
            .is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_file() && data.st_nlink > 1)
    }

    /// True if a path that was not there before was made since. Where the first scan was not complete the file
    /// system's birth time decides: files of the user must not be taken away.
    fn is_new(&self, path: &Path) -> bool {
        let tree = &self.dir.tree;
        // It may have gone away with the directory it is in.
        tree.exists(path)
            && (self.complete
                || self.begun.is_some_and(|begun| {
                    let made = tree.created(path);
                    made.is_ok_and(|made| made + CLOCK_TICK >= begun)
                }))
    }

    fn states(&self, found: &ProtectedPaths) -> BTreeMap<PathBuf, Fingerprint> {
        let paths = [&found.read_only, &found.present, &found.compared].into_iter();
        paths
            .flatten()
            .filter_map(|path| Some((path.clone(), self.state(path)?)))
            .collect()
    }

    fn state(&self, path: &Path) -> Option<Fingerprint> {
        let tree = &self.dir.tree;
        if tree.kind(path)?.is_symlink() {
            return Some(Fingerprint::Link(tree.link(path).unwrap_or_default()));
        }
        if !self.compared.contains(path) {
            return Some(Fingerprint::Present);
        }
        let mut hash = Sha256::new();
        let mut left = MOST_ENTRIES;
        digest(tree, path, &mut hash, &mut left);
        Some(Fingerprint::Content(hash.finalize().into()))
    }
}

/// Comparison of one directory with its earlier state.
struct Comparison<'a> {
    watch: &'a Watch,
    watched: &'a WatchedDir,
    is_workspace: bool,
    phase: Phase,
    external: &'a [PathBuf],
}

impl Comparison<'_> {
    fn run(&self, outcome: &mut Outcome) {
        // What was there before is compared, whether or not the scan finds it again.
        let before = &self.watched.before;
        let walk = self.watch.walk_after.as_ref();
        let walk = walk.filter(|_| self.is_workspace && self.phase == Phase::After);
        let mut found = self.watched.dir.rescan(self.watched.complete, walk);
        if self.watched.complete && !found.complete {
            self.report(
                Path::new("."),
                "has more files than could be checked",
                outcome,
            );
        }
        found.present.extend(before.keys().cloned());
        let after = self.watched.states(&found);
        for (path, state) in &after {
            match before.get(path) {
                None if !self.watched.is_new(path) || self.is_external(path) => {}
                None => {
                    self.report(path, "was created", outcome);
                    outcome.moved([self.move_away(path)]);
                }
                Some(_) if self.phase == Phase::During => {}
                Some(known) if known != state => {
                    self.report(path, "was changed", outcome);
                    let is_link = |state: &Fingerprint| matches!(state, Fingerprint::Link(_));
                    if is_link(state) || is_link(known) {
                        outcome.moved([self.move_away(path)]);
                    }
                    outcome.moved(self.restore(path));
                }
                Some(_) => {}
            }
        }
        let gone = |path: &&PathBuf| !after.contains_key(*path);
        let is_over = self.phase == Phase::After;
        for path in before.keys().filter(gone).filter(|_| is_over) {
            self.report(path, "was removed", outcome);
            outcome.moved(self.restore(path));
        }
    }

    fn is_external(&self, path: &Path) -> bool {
        let mut external = self.external.iter();
        self.is_workspace && external.any(|external| external.starts_with(path))
    }

    /// Path for people: relative in the workspace, absolute elsewhere.
    fn shown(&self, path: &Path) -> PathBuf {
        if self.is_workspace {
            path.to_owned()
        } else {
            self.watched.dir.tree.path().join(path)
        }
    }

    fn report(&self, path: &Path, what: &str, outcome: &mut Outcome) {
        let ungranted = !self.watch.access.writes_git();
        let permitted_by = if self.is_workspace && path.starts_with(".git") && ungranted {
            Permit::GitWrite
        } else if self.watched.dir.is_by_policy(path) {
            Permit::NoDenyRule
        } else {
            Permit::SandboxOff
        };
        outcome.add(Violation {
            kind: Kind::Write,
            target: format!("{} {what}", self.shown(path).display()),
            count: 1,
            detection: Detection::BeforeAfterComparison,
            permitted_by,
            expected: false,
        });
    }

    /// Restores what is known of a protected path; what was there instead goes to quarantine,
    /// and so do files that were not there before.
    fn restore(&self, path: &Path) -> Vec<Quarantined> {
        let (tree, backup) = (&self.watched.dir.tree, &self.watched.backup);
        let mut moved = Vec::new();
        // What cannot be put back was reported as changed.
        if let Some(Fingerprint::Link(target)) = self.watched.before.get(path) {
            let _ = tree.create_link(path, target);
            return moved;
        }
        for file in backup.differing(tree, path) {
            if tree.exists(&file) {
                moved.push(self.move_away(&file));
            }
            let _ = backup.restore(tree, &file);
        }
        let mut added = Vec::new();
        if self.watched.compared.contains(path) {
            files_below(tree, path, &mut added);
        }
        added.retain(|file| backup.is_new(file));
        moved.extend(added.iter().map(|file| self.move_away(file)));
        moved
    }

    fn move_away(&self, path: &Path) -> Quarantined {
        Quarantined {
            path: self.shown(path),
            moved_to: self.try_move(path).ok(),
        }
    }

    fn try_move(&self, path: &Path) -> io::Result<PathBuf> {
        let (tree, session) = (&self.watched.dir.tree, &self.watch.session);
        let folder = Path::new("quarantine");
        session.make_parent(&folder.join("file"), 0o755)?;
        let name = shortened(&self.shown(path).to_string_lossy().replace('/', "%"));
        // A name that is taken gets a number that no other name of this process has.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut number = 0;
        loop {
            let target = folder.join(format!("{number:03}-{name}"));
            match tree.move_to(path, session, &target) {
                Ok(()) => return Ok(session.path().join(target)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = NEXT.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => return self.move_aside(path),
            }
        }
    }

    /// Fallback when it cannot be moved to quarantine, for example to another file system: renames it in place to a
    /// name that no tool looks for.
    fn move_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let tree = &self.watched.dir.tree;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = shortened(name.trim_start_matches('.'));
        for number in 0..1000 {
            let aside = path.with_file_name(format!("quarantined-{number:03}-{name}"));
            match tree.move_to(path, tree, &aside) {
                Ok(()) => return Ok(tree.path().join(aside)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// The end of a name, which says most.
fn shortened(name: &str) -> String {
    let mut from = name.len().saturating_sub(LONGEST_NAME);
    while !name.is_char_boundary(from) {
        from += 1;
    }
    name.get(from..).unwrap_or_default().to_owned()
}

/// The files that git or an editor would find at and below a path, within a bound.
fn files_below(tree: &Dir, path: &Path, found: &mut Vec<PathBuf>) {
    match tree.kind(path) {
        None => {}
        Some(FileType::Directory) => {
            for name in tree.names(path).unwrap_or_default() {
                if name != "objects" && found.len() < MOST_ENTRIES {
                    files_below(tree, &path.join(name), found);
                }
            }
        }
        Some(_) => found.push(path.to_owned()),
    }
}

/// Hashes a tree by names, modes and content, within a bound on entries and bytes.
fn digest(tree: &Dir, path: &Path, hash: &mut Sha256, left: &mut usize) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    let Ok(data) = tree.stat(path) else {
        return;
    };
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.update(data.st_mode.to_le_bytes());
    match FileType::from_raw_mode(data.st_mode) {
        FileType::Directory => {
            for name in tree.names(path).unwrap_or_default() {
                // Objects are named by their content; hooks, configuration and references are not.
                if name != "objects" {
                    digest(tree, &path.join(name), hash, left);
                }
            }
        }
        FileType::Symlink => {
            let target = tree.link(path).unwrap_or_default();
            hash.update(target.as_os_str().as_encoded_bytes());
        }
        FileType::RegularFile => hash.update(tree.read(path, 1 << 20).unwrap_or_default()),
        _ => {}
    }
}
