//! Parallel walk by the ignore rules that knows what it left out.
//!
//! [`agent_fs::walk`] lists and opens; [`judge`] decides by ignore and deny rules what is entered and shown. Each
//! worker has a visitor of its own and meets files in any order; who needs an order sorts what was found. Nothing is
//! listed twice: what is skipped is counted where it is seen.

mod judge;
mod skipped;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

pub(crate) use agent_fs::walk::Entry;
use agent_sandbox::NameSearch;
use agent_tool_runtime::Cancel;
use rustix::fs::{Mode, OFlags};

pub(crate) use skipped::{Skipped, note_unopened, skipped_sentence};

use super::rules::{Level, RuleFiles};
use judge::{Judge, State};

/// One worker's part in a walk.
pub(crate) trait Visitor: Send {
    /// True if symbolic links and directories are wanted too.
    const EVERYTHING: bool = false;

    /// One regular file that no rule leaves out.
    fn file(&mut self, file: &Entry<'_>, skipped: &mut Skipped);

    /// One symbolic link or directory that no rule leaves out.
    fn other(&mut self, _: &Entry<'_>) {}

    /// One directory, by its path, that no rule leaves out and that cannot be looked into.
    fn closed(&mut self, _: &[u8]) {}
}

/// True of a path, relative to the start, that must not be seen.
pub(crate) type Hides<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);

/// Start and rules of a walk.
pub(crate) struct Walk<'a> {
    /// The directory in which it begins.
    pub(crate) start: OwnedFd,
    /// The same, absolute; for the ignore rules above it.
    pub(crate) start_path: &'a Path,
    /// No ignore file above this directory counts, unless it belongs to the same repository.
    pub(crate) project: &'a Path,
    /// Paths, relative to the start, that must not be seen.
    pub(crate) denied: Hides<'a>,
    pub(crate) depth: Depth,
    /// Search that is shown every directory it wants, whatever the rules say.
    pub(crate) names: Option<&'a NameSearch>,
    pub(crate) cancel: &'a Cancel,
}

/// Reach of a walk.
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
        let (level, prefix) = levels_above(self.start_path, self.project);
        let state = State::start(level, self.names.is_some());
        let walk = agent_fs::walk::Walk {
            start: self.start,
            is_parallel: true,
            is_over: &|| self.cancel.is_raised(),
        };
        let judges = walk.run(state, || Judge {
            prefix: &prefix,
            denied: self.denied,
            depth: self.depth,
            names: self.names,
            visitor: make(),
            skipped: Skipped::default(),
            path: Vec::new(),
        });
        let mut skipped = Skipped::default();
        let visitors = judges
            .into_iter()
            .map(|judge| {
                skipped.add(&judge.skipped);
                judge.visitor
            })
            .collect();
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
