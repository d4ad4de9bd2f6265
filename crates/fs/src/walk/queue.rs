//! Work of a walk, shared out among its workers.

use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::WalkedDir;

pub(super) enum Job<S> {
    Enter {
        path: Vec<u8>,
        state: S,
    },
    Files {
        directory: Arc<WalkedDir>,
        names: Vec<CString>,
    },
}

/// Jobs that wait, and how many are being done.
pub(super) struct Queue<S> {
    jobs: Mutex<Jobs<S>>,
    changed: Condvar,
}

struct Jobs<S> {
    directories: VecDeque<Job<S>>,
    /// Done first, because each keeps its directory open.
    files: Vec<Job<S>>,
    busy: usize,
    stopped: bool,
}

impl<S> Default for Queue<S> {
    fn default() -> Self {
        Self {
            jobs: Mutex::new(Jobs {
                directories: VecDeque::new(),
                files: Vec::new(),
                busy: 0,
                stopped: false,
            }),
            changed: Condvar::new(),
        }
    }
}

impl<S> Queue<S> {
    fn jobs(&self) -> MutexGuard<'_, Jobs<S>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; waits for one while another worker is busy. Each is followed by [`Self::done`].
    pub(super) fn next(&self) -> Option<Job<S>> {
        let mut jobs = self.jobs();
        loop {
            if jobs.stopped {
                return None;
            }
            let job = jobs.files.pop();
            if let Some(job) = job.or_else(|| jobs.directories.pop_front()) {
                jobs.busy += 1;
                return Some(job);
            }
            if jobs.busy == 0 {
                return None;
            }
            jobs = self
                .changed
                .wait(jobs)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn add(&self, directories: Vec<Job<S>>, files: Vec<Job<S>>) {
        let added = directories.len() + files.len();
        if added == 0 {
            return;
        }
        let mut jobs = self.jobs();
        jobs.directories.extend(directories);
        jobs.files.extend(files);
        drop(jobs);
        if added > 1 {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }

    pub(super) fn done(&self) {
        let mut jobs = self.jobs();
        jobs.busy -= 1;
        if jobs.busy == 0 && jobs.directories.is_empty() && jobs.files.is_empty() {
            drop(jobs);
            self.changed.notify_all();
        }
    }

    /// True if no job waits or none is to be done any more.
    pub(super) fn is_empty(&self) -> bool {
        let jobs = self.jobs();
        jobs.stopped || jobs.directories.is_empty() && jobs.files.is_empty()
    }

    pub(super) fn stop(&self) {
        self.jobs().stopped = true;
        self.changed.notify_all();
    }
}

/// Guard that ends the walk for the others too when a worker panics; a job that is never done would keep them
/// waiting for ever.
pub(super) struct StopOnPanic<'a, S>(pub(super) &'a Queue<S>);

impl<S> Drop for StopOnPanic<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
