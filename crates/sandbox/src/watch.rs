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

use crate::guard::{Found, Guard};
use crate::keepsake::Keepsake;
use crate::policy::WriteAccess;
use crate::protected;
use crate::violation::{Detection, Kind, Permit, Quarantined, Violation};
use agent_fs::Dir;

/// More than a protected directory has without git's objects.
const MOST_ENTRIES: usize = 2_000;

/// How many changes are told one by one.
const MOST_LISTED: usize = 100;

/// How far the times of files lag behind the clock.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// A name that any file system takes, with room for a number before it.
const LONGEST_NAME: usize = 160;

#[derive(Debug)]
pub(crate) struct Watch {
    /// The first is the workspace.
    guarded: Vec<Guarded>,
    session: Dir,
    access: WriteAccess,
    /// Compare content everywhere, because no mount kept it.
    content: bool,
}

/// One directory and what was in it before.
#[derive(Debug)]
struct Guarded {
    guard: Guard,
    before: BTreeMap<PathBuf, State>,
    /// Whose content is compared.
    compared: BTreeSet<PathBuf>,
    /// What is put back, where content is compared.
    keepsake: Keepsake,
    /// Whether all there was has been seen.
    complete: bool,
    /// When the run began, as files tell the time; where not everything was seen.
    begun: Option<SystemTime>,
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
    /// `guards` and what was found there; the workspace comes first.
    pub(crate) fn before(
        guards: Vec<(Guard, Found)>,
        session_dir: &Path,
        access: WriteAccess,
        content: bool,
    ) -> io::Result<Self> {
        let guarded = guards
            .into_iter()
            .map(|(guard, found)| Guarded::before(guard, &found, content))
            .collect();
        Ok(Self {
            guarded,
            session: Dir::open(session_dir)?,
            access,
            content,
        })
    }

    /// Compares, moves what is new out of the way, and says what happened.
    /// What is `settled` was made by somebody else.
    pub(crate) fn after(&self, settled: &[PathBuf], outcome: &mut Outcome) {
        self.compare(Moment::After, settled, outcome);
    }

    /// Moves what is new out of the way while the command goes on: a name that makes something run
    /// must not stay for as long as a server does.
    pub(crate) fn meanwhile(&self, settled: &[PathBuf], outcome: &mut Outcome) {
        self.compare(Moment::Meanwhile, settled, outcome);
    }

    fn compare(&self, moment: Moment, settled: &[PathBuf], outcome: &mut Outcome) {
        if self.access == WriteAccess::ReadOnly && !self.content {
            return;
        }
        for (number, guarded) in self.guarded.iter().enumerate() {
            let compared = Comparison {
                watch: self,
                guarded,
                is_workspace: number == 0,
                moment,
                settled,
            };
            compared.run(outcome);
        }
    }
}

/// When a directory is looked back at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The command runs; what it changes may be half done.
    Meanwhile,
    After,
}

/// Everything found of one command, however often it was looked back at; bounded, so that a log does not grow with
/// what a command makes up.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    violations: Vec<Violation>,
    quarantined: Vec<Quarantined>,
    /// Further ones, which were dealt with as well.
    unlisted: u64,
}

impl Outcome {
    /// Put there again and again, something is taken away each time and told once.
    fn add(&mut self, violation: Violation) {
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

    pub(crate) fn told(mut self) -> (Vec<Violation>, Vec<Quarantined>) {
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

impl Guarded {
    fn before(guard: Guard, found: &Found, content: bool) -> Self {
        let mut guarded = Self {
            guard,
            before: BTreeMap::new(),
            compared: found.compared.iter().cloned().collect(),
            keepsake: Keepsake::default(),
            complete: found.complete,
            begun: if found.complete {
                None
            } else {
                agent_fs::now().ok()
            },
        };
        for path in &found.read_only {
            // The log grows while we run; it is guarded by its own hash chain.
            if content && !protected::is_agents(path) || guarded.has_other_names(path) {
                guarded.compared.insert(path.clone());
            }
        }
        guarded.before = guarded.states(found);
        for path in &guarded.compared {
            guarded.keepsake.keep(&guarded.guard.tree, path);
        }
        guarded
    }

    /// A file that can be written under a name that is not protected.
    fn has_other_names(&self, path: &Path) -> bool {
        self.guard
            .tree
            .stat(path)
            .is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_file() && data.st_nlink > 1)
    }

    /// Whether something that was not seen before was made since. Where not everything was seen,
    /// the file system has to say so: what belongs to the user must not be taken away.
    fn is_new(&self, path: &Path) -> bool {
        let tree = &self.guard.tree;
        // It may have gone away with the directory it is in.
        tree.exists(path)
            && (self.complete
                || self.begun.is_some_and(|begun| {
                    let made = tree.created(path);
                    made.is_ok_and(|made| made + CLOCK_TICK >= begun)
                }))
    }

    fn states(&self, found: &Found) -> BTreeMap<PathBuf, State> {
        let paths = [&found.read_only, &found.present, &found.compared].into_iter();
        paths
            .flatten()
            .filter_map(|path| Some((path.clone(), self.state(path)?)))
            .collect()
    }

    fn state(&self, path: &Path) -> Option<State> {
        let tree = &self.guard.tree;
        if tree.kind(path)?.is_symlink() {
            return Some(State::Link(tree.link(path).unwrap_or_default()));
        }
        if !self.compared.contains(path) {
            return Some(State::Present);
        }
        let mut hash = Sha256::new();
        let mut left = MOST_ENTRIES;
        digest(tree, path, &mut hash, &mut left);
        Some(State::Content(hash.finalize().into()))
    }
}

/// The look back at one directory.
struct Comparison<'a> {
    watch: &'a Watch,
    guarded: &'a Guarded,
    is_workspace: bool,
    moment: Moment,
    settled: &'a [PathBuf],
}

impl Comparison<'_> {
    fn run(&self, outcome: &mut Outcome) {
        // What was there before is looked at again, whether or not it would be found anew.
        let before = &self.guarded.before;
        let mut found = self.guarded.guard.look_again(self.guarded.complete);
        if self.guarded.complete && !found.complete {
            self.report(
                Path::new("."),
                "has more files than could be looked at",
                outcome,
            );
        }
        found.present.extend(before.keys().cloned());
        let after = self.guarded.states(&found);
        for (path, state) in &after {
            match before.get(path) {
                None if !self.guarded.is_new(path) || self.is_settled(path) => {}
                None => {
                    self.report(path, "was created", outcome);
                    outcome.moved([self.move_away(path)]);
                }
                Some(_) if self.moment == Moment::Meanwhile => {}
                Some(known) if known != state => {
                    self.report(path, "was changed", outcome);
                    let is_link = |state: &State| matches!(state, State::Link(_));
                    if is_link(state) || is_link(known) {
                        outcome.moved([self.move_away(path)]);
                    }
                    outcome.moved(self.restore(path));
                }
                Some(_) => {}
            }
        }
        let gone = |path: &&PathBuf| !after.contains_key(*path);
        let is_over = self.moment == Moment::After;
        for path in before.keys().filter(gone).filter(|_| is_over) {
            self.report(path, "was removed", outcome);
            outcome.moved(self.restore(path));
        }
    }

    fn is_settled(&self, path: &Path) -> bool {
        let mut settled = self.settled.iter();
        self.is_workspace && settled.any(|settled| settled.starts_with(path))
    }

    /// As people know it: relative in the workspace, absolute elsewhere.
    fn shown(&self, path: &Path) -> PathBuf {
        if self.is_workspace {
            path.to_owned()
        } else {
            self.guarded.guard.tree.path().join(path)
        }
    }

    fn report(&self, path: &Path, what: &str, outcome: &mut Outcome) {
        let ungranted = self.watch.access != WriteAccess::WorkspaceWithGit;
        let permitted_by = if self.is_workspace && path.starts_with(".git") && ungranted {
            Permit::GitWrite
        } else if self.guarded.guard.is_by_policy(path) {
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

    /// Puts back what is known of a protected path; what was there instead goes to quarantine,
    /// and so do files that were not there before.
    fn restore(&self, path: &Path) -> Vec<Quarantined> {
        let (tree, keepsake) = (&self.guarded.guard.tree, &self.guarded.keepsake);
        let mut moved = Vec::new();
        // What cannot be put back was reported as changed.
        if let Some(State::Link(target)) = self.guarded.before.get(path) {
            let _ = tree.create_link(path, target);
            return moved;
        }
        for file in keepsake.differing(tree, path) {
            if tree.exists(&file) {
                moved.push(self.move_away(&file));
            }
            let _ = keepsake.put_back(tree, &file);
        }
        let mut added = Vec::new();
        if self.guarded.compared.contains(path) {
            files_below(tree, path, &mut added);
        }
        added.retain(|file| keepsake.is_new(file));
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
        let (tree, session) = (&self.guarded.guard.tree, &self.watch.session);
        let folder = Path::new("quarantine");
        session.make_parent(&folder.join("file"), 0o755)?;
        let name = shortened(&self.shown(path).to_string_lossy().replace('/', "%"));
        // A name that is taken gets a number which no other of this process has.
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

    /// Where it cannot be moved far, another file system for example: out of the way matters more
    /// than out of the tree, and a name that nothing looks for is out of the way.
    fn move_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let tree = &self.guarded.guard.tree;
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
