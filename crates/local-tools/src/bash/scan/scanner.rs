//! One worker's part in a scan: metadata and images of the files it meets.

use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use agent_tool_runtime::{Cancel, CancelReason};
use rustix::fs::FileType;

use super::ChangeTracker;
use super::images::Image;
use crate::search::walk::{Entry, Skipped, Visitor};
use agent_fs::Stamp;

/// Progress of one scan, shared by its workers.
pub(super) struct Progress<'a> {
    pub(super) tracker: &'a ChangeTracker,
    pub(super) count: AtomicUsize,
    /// The end of the images.
    pub(super) end: AtomicU64,
    pub(super) stop: Cancel,
    /// Nothing more is noted.
    pub(super) given_up: AtomicBool,
    /// The walk is needed to its end also when nothing more is noted.
    pub(super) goes_on: bool,
    pub(super) began: Instant,
    pub(super) keep: bool,
}

impl Progress<'_> {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn was_late(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Counts a file; true if it is still to be noted.
    fn takes_another(&self) -> bool {
        if self.given_up.load(Ordering::Relaxed) {
            return false;
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let limits = &self.tracker.limits;
        let late = count.is_multiple_of(1024) && self.began.elapsed() > limits.time;
        if count <= limits.files && !late {
            return true;
        }
        self.given_up.store(true, Ordering::Relaxed);
        if !self.goes_on {
            self.stop.raise(CancelReason::Timeout);
        }
        false
    }
}

pub(super) struct Scanner<'a> {
    progress: &'a Progress<'a>,
    pub(super) files: Vec<(Vec<u8>, Stamp)>,
    pub(super) images: Vec<(Vec<u8>, Image)>,
    /// Directories that cannot be listed.
    pub(super) closed: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(progress: &'a Progress<'a>) -> Self {
        Self {
            progress,
            files: Vec::new(),
            images: Vec::new(),
            closed: Vec::new(),
            buffer: Vec::new(),
        }
    }

    fn note(&mut self, entry: &Entry<'_>) {
        if !self.progress.takes_another() {
            return;
        }
        let Ok(stat) = entry.stat() else {
            return;
        };
        let seen = Stamp::of_entry(&stat);
        if self.progress.keep && seen.size <= self.progress.tracker.limits.image_bytes {
            self.keep(entry, seen);
        }
        self.files.push((entry.path.to_vec(), seen));
    }

    /// Copies the content unless this version is kept. What cannot be read is not kept.
    fn keep(&mut self, entry: &Entry<'_>, seen: Stamp) {
        if seen.kind() == FileType::Directory {
            return;
        }
        let images = &self.progress.tracker.images;
        let images = images.read().unwrap_or_else(PoisonError::into_inner);
        let Some(spool) = images.room_for(entry.path, seen) else {
            return;
        };
        let limits = &self.progress.tracker.limits;
        let is_full = self.progress.end.load(Ordering::Relaxed) + seen.size > limits.store_bytes;
        if is_full || self.progress.began.elapsed() >= limits.copy_time {
            return;
        }
        self.buffer.clear();
        if self.read(entry, seen).is_none() || self.buffer.len() as u64 != seen.size {
            return;
        }
        let offset = self.progress.end.fetch_add(seen.size, Ordering::Relaxed);
        if spool.write_all_at(&self.buffer, offset).is_ok() {
            self.images
                .push((entry.path.to_vec(), Image { seen, offset }));
        }
    }

    /// The content of a link is where it points to.
    fn read(&mut self, entry: &Entry<'_>, seen: Stamp) -> Option<()> {
        if seen.kind() == FileType::Symlink {
            let target = rustix::fs::readlinkat(entry.directory, entry.name, Vec::new()).ok()?;
            self.buffer.extend_from_slice(target.as_bytes());
            return Some(());
        }
        let file = entry.open().ok()?;
        let read = file.take(seen.size + 1).read_to_end(&mut self.buffer);
        read.ok().map(|_| ())
    }
}

impl Visitor for Scanner<'_> {
    const EVERYTHING: bool = true;

    fn file(&mut self, entry: &Entry<'_>, _: &mut Skipped) {
        self.note(entry);
    }

    fn other(&mut self, entry: &Entry<'_>) {
        self.note(entry);
    }

    fn closed(&mut self, path: &[u8]) {
        self.closed.push(path.to_vec());
    }
}
