//! The work of a walk, shared out among its workers.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use agent_tool_runtime::Cancel;

use super::{Depth, Hides, Walk};
use crate::search::rules::Level;

/// A directory that is being looked at.
pub(super) struct Directory {
    pub(super) descriptor: OwnedFd,
    /// With a final slash, relative to the topmost directory with rules.
    pub(super) path: Vec<u8>,
    pub(super) level: Option<Arc<Level>>,
    /// An ignore rule names it or one above it; only what deny rules name is looked for.
    pub(super) ignored: bool,
}

pub(super) enum Job {
    Enter {
        parent: Arc<Directory>,
        name: CString,
        /// See [`Directory::ignored`].
        ignored: bool,
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

pub(super) struct Shared<'a> {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Bytes of every path in front of the part that is relative to the start.
    pub(super) base: usize,
    pub(super) denied: Hides<'a>,
    pub(super) depth: Depth,
    pub(super) cancel: &'a Cancel,
}

impl<'a> Shared<'a> {
    /// Shared by the workers of `walk`, one of which is busy.
    pub(super) fn of(walk: &Walk<'a>, base: usize) -> Self {
        Self {
            queue: Mutex::new(Queue {
                busy: 1,
                ..Queue::default()
            }),
            changed: Condvar::new(),
            base,
            denied: walk.denied,
            depth: walk.depth,
            cancel: walk.cancel,
        }
    }

    pub(super) fn next(&self) -> Option<Job> {
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

    pub(super) fn add(&self, jobs: &mut Vec<Job>) {
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

    pub(super) fn done(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.busy -= 1;
        if queue.busy == 0 && queue.jobs.is_empty() {
            drop(queue);
            self.changed.notify_all();
        }
    }

    pub(super) fn stop(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopped = true;
        self.changed.notify_all();
    }
}

/// Ends the walk for the others too when a worker panics; a job that is never done would keep them
/// waiting for ever.
pub(super) struct StopOnPanic<'a, 'b>(pub(super) &'a Shared<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
