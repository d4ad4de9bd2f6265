//! Parallel walk over a tree of directories.
//!
//! The walk lists; a [`Visitor`] decides what is entered and which files are looked at. Each directory is opened by
//! its path below the start with no link on the way, so that one swapped for a link is an error and not a way out,
//! and stays open only while it is being worked on. Directories are entered in the order in which they were found:
//! the upper levels come first.

mod queue;

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};

use crate::beneath;
use queue::{Job, Queue, StopOnPanic};

/// Files of one directory that one worker takes at a time.
const BATCH: usize = 64;

/// More workers than this wait for the same locks in the kernel.
const MAX_WORKERS: usize = 8;

/// Name in a listed directory, with its kind.
#[derive(Debug)]
pub struct Listed {
    pub name: CString,
    pub kind: FileType,
}

/// Directory that a walk has opened.
#[derive(Debug)]
pub struct WalkedDir {
    descriptor: OwnedFd,
    path: Vec<u8>,
}

impl WalkedDir {
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Path below the start, with a final slash; empty for the start itself.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

/// File, link or directory that a walk came to.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub directory: BorrowedFd<'a>,
    pub name: &'a CStr,
    /// Path below the start.
    pub path: &'a [u8],
}

impl Entry<'_> {
    /// Opens the file for reading; a pipe that took its place does not block.
    ///
    /// # Errors
    /// When it cannot be opened; `ELOOP` for a link.
    pub fn open(&self) -> rustix::io::Result<File> {
        let flags =
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(self.directory, self.name, flags, Mode::empty()).map(File::from)
    }

    /// Status of the entry itself, also if it is a link.
    ///
    /// # Errors
    /// When it is gone, or cannot be read.
    pub fn stat(&self) -> rustix::io::Result<Stat> {
        rustix::fs::statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// One worker's part in a walk.
pub trait Visitor: Send {
    /// Handed down from a directory to those in it.
    type State: Send;

    /// Takes a directory with all that is in it, and chooses what the walk goes on with. `is_whole` is false if
    /// listing stopped with an error.
    fn directory(
        &mut self,
        directory: &WalkedDir,
        state: Self::State,
        entries: Vec<Listed>,
        is_whole: bool,
        next: &mut Next<Self::State>,
    );

    /// Takes a directory that cannot be listed.
    fn unlisted(&mut self, path: &[u8], state: Self::State, error: &io::Error);

    /// Takes a file that was chosen.
    fn file(&mut self, file: &Entry<'_>);
}

/// Entries of one directory that a walk goes on with.
#[derive(Debug)]
pub struct Next<S> {
    directories: Vec<(CString, S)>,
    files: Vec<CString>,
}

impl<S> Next<S> {
    pub fn enter(&mut self, name: CString, state: S) {
        self.directories.push((name, state));
    }

    pub fn visit(&mut self, name: CString) {
        self.files.push(name);
    }
}

/// Start of a walk, and when it ends early.
pub struct Walk<'a> {
    pub start: OwnedFd,
    /// One worker per processor, or a single one.
    pub is_parallel: bool,
    /// True once nothing more is wanted.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

impl Walk<'_> {
    /// Walks with one visitor per worker and returns them all.
    pub fn run<V: Visitor>(self, state: V::State, make: impl Fn() -> V) -> Vec<V> {
        let shared = Shared {
            start: self.start,
            is_over: self.is_over,
            queue: Queue::default(),
        };
        let start = Job::Enter {
            path: Vec::new(),
            state,
        };
        shared.queue.add(vec![start], Vec::new());
        let mut first = Worker::new(&shared, make());
        // A small tree is walked before another thread would have started.
        first.run(true);
        if shared.queue.is_empty() {
            return vec![first.visitor];
        }
        let workers = match self.is_parallel {
            true => std::thread::available_parallelism().map_or(1, usize::from),
            false => 1,
        };
        let mut visitors = Vec::with_capacity(workers);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers.min(MAX_WORKERS))
                .map(|_| {
                    let mut worker = Worker::new(&shared, make());
                    scope.spawn(move || {
                        worker.run(false);
                        worker.visitor
                    })
                })
                .collect();
            first.run(false);
            for handle in others {
                // A panic in a visitor goes on in the calling thread.
                match handle.join() {
                    Ok(visitor) => visitors.push(visitor),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        visitors.push(first.visitor);
        visitors
    }
}

struct Shared<'a, S> {
    start: OwnedFd,
    is_over: &'a (dyn Fn() -> bool + Sync),
    queue: Queue<S>,
}

struct Worker<'a, V: Visitor> {
    shared: &'a Shared<'a, V::State>,
    visitor: V,
    path: Vec<u8>,
    buffer: Vec<MaybeUninit<u8>>,
}

/// Jobs that one worker does alone before others are started.
const ALONE: usize = 8;

impl<'a, V: Visitor> Worker<'a, V> {
    fn new(shared: &'a Shared<'a, V::State>, visitor: V) -> Self {
        let mut buffer = Vec::new();
        buffer.resize(32 << 10, MaybeUninit::uninit());
        Self {
            shared,
            visitor,
            path: Vec::new(),
            buffer,
        }
    }

    /// Works until nothing is left, or only for the first few jobs.
    fn run(&mut self, is_beginning: bool) {
        let _guard = StopOnPanic(&self.shared.queue);
        let mut left = if is_beginning { ALONE } else { usize::MAX };
        while left > 0
            && let Some(job) = self.shared.queue.next()
        {
            left -= 1;
            if (self.shared.is_over)() {
                self.shared.queue.stop();
                return;
            }
            match job {
                Job::Enter { path, state } => self.enter(path, state),
                Job::Files { directory, names } => self.visit(&directory, &names),
            }
            self.shared.queue.done();
        }
    }

    /// Lists a directory, has the visitor choose, and hands out all but the last files.
    fn enter(&mut self, mut path: Vec<u8>, state: V::State) {
        let relative = Path::new(OsStr::from_bytes(&path));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let descriptor = match beneath(&self.shared.start, relative, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(error) => return self.visitor.unlisted(&path, state, &error),
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        let (entries, is_whole) = list(&descriptor, &mut self.buffer);
        let directory = Arc::new(WalkedDir { descriptor, path });
        let mut next = Next {
            directories: Vec::new(),
            files: Vec::new(),
        };
        self.visitor
            .directory(&directory, state, entries, is_whole, &mut next);
        let below = |name: &CStr| [&*directory.path, name.to_bytes()].concat();
        let enter = |(name, state): (CString, V::State)| Job::Enter {
            path: below(&name),
            state,
        };
        let directories = next.directories.into_iter().map(enter).collect();
        let mut batches = Vec::new();
        while next.files.len() > BATCH {
            let names = next.files.split_off(next.files.len() - BATCH);
            let directory = Arc::clone(&directory);
            batches.push(Job::Files { directory, names });
        }
        self.shared.queue.add(directories, batches);
        self.visit(&directory, &next.files);
    }

    fn visit(&mut self, directory: &WalkedDir, names: &[CString]) {
        for name in names {
            self.path.clear();
            self.path.extend_from_slice(&directory.path);
            self.path.extend_from_slice(name.to_bytes());
            self.visitor.file(&Entry {
                directory: directory.descriptor(),
                name,
                path: &self.path,
            });
        }
    }
}

/// The names in a directory with their kinds; false if not all could be read. One that vanishes meanwhile is left
/// out.
fn list(descriptor: &OwnedFd, buffer: &mut [MaybeUninit<u8>]) -> (Vec<Listed>, bool) {
    let mut listed = Vec::new();
    let mut entries = RawDir::new(descriptor, buffer);
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else {
            return (listed, false);
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
                stat.map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                })
            }
            kind => kind,
        };
        listed.push(Listed {
            name: name.to_owned(),
            kind,
        });
    }
    (listed, true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Enters every directory and remembers what it met, in the order in which it did.
    #[derive(Default)]
    struct All {
        met: Vec<String>,
        unlisted: Vec<String>,
    }

    fn text(path: &[u8]) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    impl Visitor for All {
        type State = usize;

        fn directory(
            &mut self,
            directory: &WalkedDir,
            depth: usize,
            entries: Vec<Listed>,
            is_whole: bool,
            next: &mut Next<usize>,
        ) {
            assert!(is_whole);
            self.met.push(format!("{depth} {}", text(directory.path())));
            for entry in entries {
                match entry.kind {
                    FileType::Directory => next.enter(entry.name, depth + 1),
                    // Links too: a visitor that asks for one as a directory gets an error.
                    FileType::Symlink => next.enter(entry.name, depth + 1),
                    _ => next.visit(entry.name),
                }
            }
        }

        fn unlisted(&mut self, path: &[u8], _: usize, _: &io::Error) {
            self.unlisted.push(text(path));
        }

        fn file(&mut self, file: &Entry<'_>) {
            assert!(file.open().is_ok() && file.stat().is_ok());
            self.met.push(text(file.path));
        }
    }

    fn start(root: &Path) -> OwnedFd {
        crate::Dir::open(root)
            .unwrap()
            .listing(Path::new(""))
            .unwrap()
    }

    #[test]
    fn upper_levels_come_first_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::create_dir_all(root.join("d/e")).unwrap();
        std::fs::write(folder.path().join("outside"), "").unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        for file in ["a/b/c/deep", "d/e/f", "top"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let walk = Walk {
            start: start(&root),
            is_parallel: false,
            is_over: &|| false,
        };
        let visitors = walk.run(0, All::default);
        let [only] = &*visitors else {
            panic!("one worker")
        };
        assert_eq!(only.unlisted, ["up"]);
        let depths = only.met.iter().filter_map(|met| met.split_once(' '));
        let depths: Vec<&str> = depths.map(|(depth, _)| depth).collect();
        assert_eq!(depths, ["0", "1", "1", "2", "2", "3"]);
        assert!(only.met.iter().any(|met| met == "a/b/c/deep"));
        assert!(!only.met.iter().any(|met| met.contains("outside")));
    }

    #[test]
    fn several_workers_meet_each_file_once_and_stop_when_told() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..40 {
            let directory = folder.path().join(format!("d{number}/deep"));
            std::fs::create_dir_all(&directory).unwrap();
            for file in 0..BATCH + 3 {
                std::fs::write(directory.join(format!("f{file}")), "").unwrap();
            }
        }
        let walk = |is_over: &(dyn Fn() -> bool + Sync)| {
            let walk = Walk {
                start: start(folder.path()),
                is_parallel: true,
                is_over,
            };
            let visitors = walk.run(0, All::default);
            let mut met: Vec<String> = visitors.into_iter().flat_map(|all| all.met).collect();
            met.sort();
            met
        };
        let met = walk(&|| false);
        let files: Vec<&String> = met.iter().filter(|met| !met.contains(' ')).collect();
        assert_eq!(files.len(), 40 * (BATCH + 3));
        assert!(files.windows(2).all(|two| two[0] != two[1]));
        let left = AtomicUsize::new(5);
        let over = || {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
        };
        assert!(walk(&|| over().is_err()).len() < met.len());
    }
}
