//! Threads that tools run on. One that has ended its call waits for the next: making a thread and
//! taking it down again takes longer than a small read. A tool that never ends keeps its thread, and
//! nobody waits for it.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// More than this many do not wait; the rest ends.
const MOST_IDLE: usize = 4;

#[derive(Default)]
pub(crate) struct Workers {
    idle: Arc<Mutex<Vec<SyncSender<Job>>>>,
}

impl Workers {
    /// Runs `job`, which must not panic, on a thread of its own.
    ///
    /// # Errors
    /// When none waits and none can be made; `job` was not run.
    pub(crate) fn run(&self, job: Job) -> io::Result<()> {
        let mut job = job;
        while let Some(worker) = self.take_idle() {
            // One that is gone gives the job back.
            match worker.send(job) {
                Ok(()) => return Ok(()),
                Err(returned) => job = returned.0,
            }
        }
        let idle = Arc::downgrade(&self.idle);
        thread::Builder::new()
            .name("tool".to_owned())
            .spawn(move || {
                let mut next = Some(job);
                while let Some(job) = next.take() {
                    job();
                    // Nobody else holds the other end: when the runtime goes, the wait ends.
                    let (worker, jobs) = mpsc::sync_channel(1);
                    {
                        let Some(idle) = idle.upgrade() else { return };
                        let mut waiting = idle.lock().unwrap_or_else(PoisonError::into_inner);
                        if waiting.len() >= MOST_IDLE {
                            return;
                        }
                        waiting.push(worker);
                    }
                    next = jobs.recv().ok();
                }
            })?;
        Ok(())
    }

    fn take_idle(&self) -> Option<SyncSender<Job>> {
        let mut waiting = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use super::*;

    /// The thread a job ran on, and whether it waits again.
    fn run_one(workers: &Workers) -> ThreadId {
        let (say, heard) = channel();
        let job = move || say.send(thread::current().id()).unwrap();
        workers.run(Box::new(job)).unwrap();
        let id = heard.recv().unwrap();
        while workers.idle.lock().unwrap().is_empty() {
            thread::yield_now();
        }
        id
    }

    #[test]
    fn a_thread_is_used_again() {
        let workers = Workers::default();
        let first = run_one(&workers);
        assert_eq!(run_one(&workers), first);
    }

    #[test]
    fn a_job_that_never_ends_keeps_nobody_waiting() {
        let workers = Workers::default();
        let first = run_one(&workers);
        let (hold, held) = channel::<()>();
        workers
            .run(Box::new(move || {
                let _ = held.recv();
            }))
            .unwrap();
        assert_ne!(run_one(&workers), first);
        drop(hold);
    }

    #[test]
    fn threads_end_with_the_runtime() {
        let (say, heard) = channel();
        let workers = Workers::default();
        thread_local! {
            static ENDED: std::cell::RefCell<Option<mpsc::Sender<()>>> = const { std::cell::RefCell::new(None) };
        }
        let job = move || ENDED.with(|ended| *ended.borrow_mut() = Some(say));
        workers.run(Box::new(job)).unwrap();
        drop(workers);
        assert!(
            heard.recv().is_err(),
            "the thread and what it holds are gone"
        );
    }
}
