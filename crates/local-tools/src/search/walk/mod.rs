//! A parallel walk that knows what it left out.
//!
//! Every directory is opened beneath its parent's descriptor without following links, so that a
//! directory swapped for a link is an error and not a way out. Each worker has a visitor of its own
//! and meets files in any order; whoever needs an order sorts what was found. Nothing is listed
//! twice: what is skipped is counted where it is seen.

mod queue;
mod skipped;
#[cfg(test)]
mod tests;
mod worker;

use std::ffi::{CStr, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use agent_tool_runtime::Cancel;
use rustix::fs::{Mode, OFlags};

pub(crate) use skipped::{Skipped, note_unopened, skipped_sentence};

use super::rules::{Level, RuleFiles};
use queue::{Directory, Shared};
use worker::Worker;

/// More workers than this wait for the same locks in the kernel.
const MAX_WORKERS: usize = 8;

/// A file the walk came to. Nothing is known of it yet but its name and that it is a regular file.
pub(crate) struct Entry<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// Relative to where the walk began.
    pub(crate) path: &'a [u8],
}

impl Entry<'_> {
    /// Opens the file; a pipe that took its place does not block.
    pub(crate) fn open(&self) -> rustix::io::Result<std::fs::File> {
        let flags =
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(self.directory, self.name, flags, Mode::empty()).map(std::fs::File::from)
    }
}

/// Visitor of the files a walk meets.
pub(crate) trait Visitor: Send {
    /// True if symbolic links and directories are wanted too.
    const EVERYTHING: bool = false;

    /// One regular file that no rule leaves out.
    fn file(&mut self, file: &Entry<'_>, skipped: &mut Skipped);

    /// One symbolic link or directory that no rule leaves out.
    fn other(&mut self, _: &Entry<'_>) {}

    /// One directory that no rule leaves out and that cannot be looked into.
    fn closed(&mut self, _: &Entry<'_>) {}
}

/// Says of a path, relative to the start, whether it must not be seen.
pub(crate) type Hides<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);

/// Options of a walk.
pub(crate) struct Walk<'a> {
    /// Its start.
    pub(crate) start: OwnedFd,
    /// The same, absolute; for the ignore rules above it.
    pub(crate) start_path: &'a Path,
    /// No ignore file above this directory counts, unless it belongs to the same repository.
    pub(crate) project: &'a Path,
    /// Paths, relative to the start, that must not be seen.
    pub(crate) denied: Hides<'a>,
    pub(crate) depth: Depth,
    pub(crate) cancel: &'a Cancel,
}

/// Depth of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// To what no ignore rule names.
    Wanted,
    /// Into ignored directories too, but only to ask about each name there whether it is denied.
    IgnoredForDenied,
}

impl Walk<'_> {
    /// Walks, with one visitor per worker, and gives the visitors back with what was left out.
    pub(crate) fn run<V: Visitor>(self, make: impl Fn() -> V) -> (Vec<V>, Skipped) {
        let (level, path) = levels_above(self.start_path, self.project);
        let shared = Shared::of(&self, path.len());
        let root = Arc::new(Directory {
            descriptor: self.start,
            path,
            level,
            ignored: false,
        });
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

/// True if the project's ignore rules name the file `relative`, or a directory it lies in.
pub(crate) fn is_ignored(project: &Path, relative: &Path) -> bool {
    let (mut level, mut path) = levels_above(project, project);
    let mut directory = project.to_owned();
    let mut names = relative.components().peekable();
    while let Some(name) = names.next() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(opened) = rustix::fs::open(&directory, flags, Mode::empty()) {
            level = Level::enter(level, opened, path.len(), RuleFiles::unknown());
        }
        path.extend_from_slice(name.as_os_str().as_bytes());
        let is_directory = names.peek().is_some();
        let named = |level: &Arc<Level>| level.ignores(&path, is_directory);
        if level.as_ref().is_some_and(named) {
            return true;
        }
        path.push(b'/');
        directory.push(name);
    }
    false
}

/// The bytes of a path as a path.
pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
