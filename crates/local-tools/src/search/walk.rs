//! A parallel walk that knows what it left out.
//!
//! Every directory is opened beneath its parent's descriptor without following links, so that a
//! directory swapped for a link is an error and not a way out. Each worker has a visitor of its own
//! and meets files in any order; whoever needs an order sorts what was found. Nothing is listed
//! twice: what is skipped is counted where it is seen.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use agent_protocol::payload::tool::SkippedFiles;
use agent_tool_runtime::Cancel;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::rules::{Level, RuleFiles};

/// Files of one directory that one worker takes at a time.
const BATCH: usize = 64;
/// More workers than this wait for the same locks in the kernel.
const MAX_WORKERS: usize = 8;

/// What was left out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// Files an ignore rule names.
    pub(crate) ignored: u64,
    /// Directories an ignore rule names; what is in them was not looked at.
    pub(crate) ignored_directories: u64,
    /// Files and directories a deny rule hides.
    pub(crate) denied: u64,
    /// Symbolic links, which are not followed.
    pub(crate) links: u64,
    /// Pipes, sockets and devices.
    pub(crate) special: u64,
    /// Files with binary content.
    pub(crate) binary: u64,
    /// Files that are too large to be searched.
    pub(crate) too_large: u64,
    /// Files and directories that could not be read, or were gone when their turn came.
    pub(crate) unreadable: u64,
}

impl Skipped {
    /// Adds the counts of another worker.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ignored += other.ignored;
        self.ignored_directories += other.ignored_directories;
        self.denied += other.denied;
        self.links += other.links;
        self.special += other.special;
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.unreadable += other.unreadable;
    }

    /// The counts with their names, also those that are zero.
    pub(crate) fn facts(&self) -> Vec<SkippedFiles> {
        [
            ("ignored", self.ignored),
            ("ignored_directory", self.ignored_directories),
            ("denied", self.denied),
            ("symlink", self.links),
            ("special", self.special),
            ("binary", self.binary),
            ("too_large", self.too_large),
            ("unreadable", self.unreadable),
        ]
        .into_iter()
        .map(|(reason, count)| SkippedFiles {
            reason: reason.to_owned(),
            count,
        })
        .collect()
    }
}

/// `Skipped: 3 ignored files, 2 ignored directories (not entered).`
pub(crate) fn skipped_sentence(facts: &[SkippedFiles]) -> String {
    let parts: Vec<String> = facts
        .iter()
        .filter(|fact| fact.count > 0)
        .map(|fact| {
            let words = match fact.reason.as_str() {
                "ignored" => "ignored by .gitignore or .ignore",
                "ignored_directory" => "ignored directories (not entered)",
                "denied" => "hidden by a rule",
                "symlink" => "symbolic links (not followed)",
                "special" => "not regular files",
                "binary" => "binary",
                "too_large" => "too large",
                "unreadable" => "unreadable",
                other => other,
            };
            format!("{} {words}", fact.count)
        })
        .collect();
    if parts.is_empty() {
        "Skipped: nothing.".to_owned()
    } else {
        format!("Skipped: {}.", parts.join(", "))
    }
}

/// A file the walk came to. Nothing is known of it yet but its name and that it is a regular file.
pub(crate) struct Met<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// Relative to where the walk began.
    pub(crate) path: &'a [u8],
}

impl Met<'_> {
    /// Opens the file; a pipe that took its place does not block.
    pub(crate) fn open(&self) -> rustix::io::Result<std::fs::File> {
        let flags =
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(self.directory, self.name, flags, Mode::empty()).map(std::fs::File::from)
    }
}

/// What a worker does with the files it meets.
pub(crate) trait Visitor: Send {
    /// One regular file that no rule leaves out.
    fn file(&mut self, file: &Met<'_>, skipped: &mut Skipped);
}

/// How to walk.
pub(crate) struct Walk<'a> {
    /// Where it begins.
    pub(crate) start: OwnedFd,
    /// The same, absolute; for the ignore rules above it.
    pub(crate) start_path: &'a Path,
    /// No ignore file above this directory counts, unless it belongs to the same repository.
    pub(crate) project: &'a Path,
    /// Paths, relative to the start, that must not be seen.
    pub(crate) denied: &'a (dyn Fn(&[u8]) -> bool + Sync),
    pub(crate) cancel: &'a Cancel,
}

struct Directory {
    descriptor: OwnedFd,
    /// With a final slash, relative to the topmost directory with rules.
    path: Vec<u8>,
    level: Option<Arc<Level>>,
}

enum Job {
    Enter {
        parent: Arc<Directory>,
        name: CString,
    },
    Files {
        directory: Arc<Directory>,
        names: Vec<CString>,
    },
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    busy: usize,
    stopped: bool,
}

struct Shared<'a> {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Bytes of every path in front of the part that is relative to the start.
    base: usize,
    denied: &'a (dyn Fn(&[u8]) -> bool + Sync),
    cancel: &'a Cancel,
}

impl Walk<'_> {
    /// Walks, with one visitor per worker, and gives the visitors back with what was left out.
    pub(crate) fn run<V: Visitor>(self, make: impl Fn() -> V) -> (Vec<V>, Skipped) {
        let (level, path) = levels_above(self.start_path, self.project);
        let base = path.len();
        let root = Arc::new(Directory {
            descriptor: self.start,
            path,
            level,
        });
        let shared = Shared {
            queue: Mutex::new(Queue {
                busy: 1,
                ..Queue::default()
            }),
            changed: Condvar::new(),
            base,
            denied: self.denied,
            cancel: self.cancel,
        };
        let mut first = Worker::new(&shared, make());
        first.list(root);
        shared.done();
        let workers = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_WORKERS);
        let mut visitors = Vec::with_capacity(workers);
        let mut skipped = Skipped::default();
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers)
                .map(|_| {
                    let mut worker = Worker::new(&shared, make());
                    scope.spawn(move || {
                        worker.run();
                        (worker.visitor, worker.skipped)
                    })
                })
                .collect();
            first.run();
            for handle in others {
                // A panic in a visitor goes on in the calling thread.
                let (visitor, counts) = match handle.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                visitors.push(visitor);
                skipped.add(&counts);
            }
        });
        skipped.add(&first.skipped);
        visitors.push(first.visitor);
        (visitors, skipped)
    }
}

/// The rules above the start, and the start's path as those rules see it.
fn levels_above(start: &Path, project: &Path) -> (Option<Arc<Level>>, Vec<u8>) {
    let repository = start
        .ancestors()
        .find(|directory| directory.join(".git").symlink_metadata().is_ok());
    let top = match repository {
        Some(repository) if !repository.starts_with(project) => repository,
        _ if start.starts_with(project) => project,
        _ => start,
    };
    let mut level = None;
    let mut path = Vec::new();
    let below = start.strip_prefix(top).unwrap_or(Path::new(""));
    let mut at = top.to_owned();
    let mut names = below.components();
    loop {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let last = at == start;
        // The start itself is listed by the walk, which loads its rules then.
        if !last && let Ok(directory) = rustix::fs::open(&at, flags, Mode::empty()) {
            level = Level::enter(level, directory, path.len(), RuleFiles::unknown());
        }
        let Some(name) = names.next() else {
            return (level, path);
        };
        at.push(name);
        path.extend_from_slice(name.as_os_str().as_bytes());
        path.push(b'/');
    }
}

impl Shared<'_> {
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(job) = queue.jobs.pop() {
                queue.busy += 1;
                return Some(job);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn add(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let several = jobs.len() > 1;
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.jobs.append(jobs);
        drop(queue);
        if several {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }

    fn done(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.busy -= 1;
        if queue.busy == 0 && queue.jobs.is_empty() {
            drop(queue);
            self.changed.notify_all();
        }
    }

    fn stop(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopped = true;
        self.changed.notify_all();
    }
}

/// Ends the walk for the others too when a worker panics; a job that is never done would keep them
/// waiting for ever.
struct StopOnPanic<'a, 'b>(&'a Shared<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

struct Worker<'a, V> {
    shared: &'a Shared<'a>,
    visitor: V,
    skipped: Skipped,
    path: Vec<u8>,
    buffer: Vec<MaybeUninit<u8>>,
    jobs: Vec<Job>,
}

impl<'a, V: Visitor> Worker<'a, V> {
    fn new(shared: &'a Shared<'a>, visitor: V) -> Self {
        let mut buffer = Vec::new();
        buffer.resize(32 << 10, MaybeUninit::uninit());
        Self {
            shared,
            visitor,
            skipped: Skipped::default(),
            path: Vec::new(),
            buffer,
            jobs: Vec::new(),
        }
    }

    fn run(&mut self) {
        let _guard = StopOnPanic(self.shared);
        while let Some(job) = self.shared.next() {
            if self.shared.cancel.is_raised() {
                self.shared.stop();
                return;
            }
            match job {
                Job::Enter { parent, name } => self.enter(&parent, &name),
                Job::Files { directory, names } => {
                    for name in names {
                        self.visit(&directory, &name);
                    }
                }
            }
            self.shared.done();
        }
    }

    fn enter(&mut self, parent: &Directory, name: &CStr) {
        let flags = OFlags::RDONLY
            | OFlags::DIRECTORY
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NONBLOCK;
        let Ok(descriptor) = rustix::fs::openat(&parent.descriptor, name, flags, Mode::empty())
        else {
            self.skipped.unreadable += 1;
            return;
        };
        let mut path = Vec::with_capacity(parent.path.len() + name.count_bytes() + 1);
        path.extend_from_slice(&parent.path);
        path.extend_from_slice(name.to_bytes());
        path.push(b'/');
        let level = parent.level.clone();
        self.list(Arc::new(Directory {
            descriptor,
            path,
            level,
        }));
    }

    /// Lists a directory, hands out its directories and most of its files, and visits the rest.
    fn list(&mut self, directory: Arc<Directory>) {
        let mut directories = Vec::new();
        let mut files = Vec::new();
        let mut rules = RuleFiles::default();
        let mut entries = RawDir::new(&directory.descriptor, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                // Removed while it was listed, or a disk that fails: the rest is unknown.
                self.skipped.unreadable += 1;
                break;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            rules.notice(name.to_bytes());
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                kind = match rustix::fs::statat(
                    &directory.descriptor,
                    name,
                    AtFlags::SYMLINK_NOFOLLOW,
                ) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => {
                        self.skipped.unreadable += 1;
                        continue;
                    }
                };
            }
            match kind {
                FileType::Directory => directories.push(name.to_owned()),
                FileType::RegularFile => files.push(name.to_owned()),
                FileType::Symlink => self.skipped.links += 1,
                _ => self.skipped.special += 1,
            }
        }
        let directory = if rules == RuleFiles::default() {
            directory
        } else {
            self.with_rules(directory, rules)
        };
        self.hand_out(&directory, directories, files);
    }

    fn with_rules(&self, directory: Arc<Directory>, rules: RuleFiles) -> Arc<Directory> {
        let level = Level::enter(
            directory.level.clone(),
            &directory.descriptor,
            directory.path.len(),
            rules,
        );
        match Arc::try_unwrap(directory) {
            Ok(directory) => Arc::new(Directory { level, ..directory }),
            Err(shared) => shared,
        }
    }

    fn hand_out(
        &mut self,
        directory: &Arc<Directory>,
        directories: Vec<CString>,
        files: Vec<CString>,
    ) {
        for name in directories {
            match self.verdict(directory, name.to_bytes(), true) {
                Verdict::Wanted => {
                    self.jobs.push(Job::Enter {
                        parent: Arc::clone(directory),
                        name,
                    });
                }
                Verdict::Ignored => self.skipped.ignored_directories += 1,
                Verdict::Denied => self.skipped.denied += 1,
            }
        }
        let mut wanted = Vec::new();
        for name in files {
            match self.verdict(directory, name.to_bytes(), false) {
                Verdict::Wanted => wanted.push(name),
                Verdict::Ignored => self.skipped.ignored += 1,
                Verdict::Denied => self.skipped.denied += 1,
            }
        }
        let mut jobs = std::mem::take(&mut self.jobs);
        while wanted.len() > BATCH {
            let names = wanted.split_off(wanted.len() - BATCH);
            jobs.push(Job::Files {
                directory: Arc::clone(directory),
                names,
            });
        }
        self.shared.add(&mut jobs);
        self.jobs = jobs;
        for name in wanted {
            self.visit(directory, &name);
        }
    }

    fn verdict(&mut self, directory: &Directory, name: &[u8], is_directory: bool) -> Verdict {
        if name == b".git" {
            return Verdict::Ignored;
        }
        self.path.clear();
        self.path.extend_from_slice(&directory.path);
        self.path.extend_from_slice(name);
        if (self.shared.denied)(&self.path[self.shared.base..]) {
            return Verdict::Denied;
        }
        match &directory.level {
            Some(level) if level.ignores(&self.path, is_directory) => Verdict::Ignored,
            _ => Verdict::Wanted,
        }
    }

    fn visit(&mut self, directory: &Directory, name: &CStr) {
        self.path.clear();
        self.path.extend_from_slice(&directory.path);
        self.path.extend_from_slice(name.to_bytes());
        let met = Met {
            directory: directory.descriptor.as_fd(),
            name,
            path: &self.path[self.shared.base..],
        };
        self.visitor.file(&met, &mut self.skipped);
    }
}

enum Verdict {
    Wanted,
    Ignored,
    Denied,
}

/// The bytes of a path as a path.
pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Whether a file that could not be opened is merely not there any more or may not be read.
pub(crate) fn note_unopened(error: Errno, skipped: &mut Skipped) {
    match error {
        Errno::LOOP => skipped.links += 1,
        _ => skipped.unreadable += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    struct Names(Vec<String>);

    impl Visitor for Names {
        fn file(&mut self, file: &Met<'_>, _: &mut Skipped) {
            self.0.push(String::from_utf8_lossy(file.path).into_owned());
        }
    }

    fn walk(start: &Path, project: &Path) -> (Vec<String>, Skipped) {
        let descriptor = rustix::fs::open(
            start,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
        let walk = Walk {
            start: descriptor,
            start_path: start,
            project,
            denied: &|path| path.ends_with(b".secret"),
            cancel: &Cancel::new(),
        };
        let (visitors, skipped) = walk.run(|| Names(Vec::new()));
        let mut names: Vec<String> = visitors.into_iter().flat_map(|names| names.0).collect();
        names.sort();
        (names, skipped)
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let folder = tree(&[
            (".gitignore", "*.log\ntarget/\n!keep.log\n"),
            ("a.rs", ""),
            ("b.log", ""),
            ("keep.log", ""),
            ("x.secret", ""),
            ("target/one", ""),
            ("target/deep/two", ""),
            ("sub/.ignore", "skip\n"),
            ("sub/skip", ""),
            ("sub/c.log", ""),
            ("sub/d", ""),
        ]);
        std::os::unix::fs::symlink("a.rs", folder.path().join("link")).unwrap();
        let (names, skipped) = walk(folder.path(), folder.path());
        assert_eq!(
            names,
            [".gitignore", "a.rs", "keep.log", "sub/.ignore", "sub/d"]
        );
        let expected = Skipped {
            ignored: 3,
            ignored_directories: 1,
            denied: 1,
            links: 1,
            ..Skipped::default()
        };
        assert_eq!(skipped, expected);
        let (names, _) = walk(&folder.path().join("sub"), folder.path());
        assert_eq!(names, [".ignore", "d"]);
        let (names, _) = walk(&folder.path().join("target"), folder.path());
        assert_eq!(names, ["deep/two", "one"]);
    }

    #[test]
    fn a_nested_repository_has_its_own_rules() {
        let folder = tree(&[
            (".git/HEAD", ""),
            (".git/info/exclude", "private\n"),
            (".gitignore", "*.o\n"),
            ("private", ""),
            ("a.o", ""),
            ("vendor/.git/HEAD", ""),
            ("vendor/b.o", ""),
            ("vendor/private", ""),
        ]);
        let (names, skipped) = walk(folder.path(), folder.path());
        assert_eq!(names, [".gitignore", "vendor/b.o", "vendor/private"]);
        assert_eq!((skipped.ignored, skipped.ignored_directories), (2, 2));
    }

    #[test]
    fn a_large_flat_directory_is_shared_out() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..500 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(walk(folder.path(), folder.path()).0.len(), 500);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The rules are those of ripgrep: the same files as its own walker finds.
        #[test]
        fn the_same_files_as_ripgrep(
            files in proptest::collection::vec("[ab]{1,2}(/[ab]{1,2}){0,2}\\.[xy]", 1..12),
            rules in proptest::collection::vec(
                ("([ab]/)?(\\.gitignore|\\.ignore|\\.rgignore)",
                 proptest::collection::vec("!?/?([ab*]{1,2}/)?[ab*]{1,2}(\\.[xy])?/?", 1..4)), 0..4),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let root = fs::canonicalize(folder.path()).unwrap();
            for file in &files {
                let path = root.join(file);
                let _ = fs::create_dir_all(path.parent().unwrap());
                let _ = fs::write(path, "");
            }
            for (name, lines) in &rules {
                let path = root.join(name);
                let _ = fs::create_dir_all(path.parent().unwrap());
                let _ = fs::write(path, lines.join("\n"));
            }
            let mut expected: Vec<String> = ignore::WalkBuilder::new(&root)
                .hidden(false)
                .require_git(false)
                .git_global(false)
                .parents(false)
                .add_custom_ignore_filename(".rgignore")
                .build()
                .flatten()
                .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
                .map(|entry| entry.path().strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
                .collect();
            expected.sort();
            prop_assert_eq!(walk(&root, &root).0, expected);
        }
    }
}
