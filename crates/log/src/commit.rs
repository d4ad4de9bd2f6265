//! Group commit: however many callers wait, one `fdatasync` serves all of them.

use std::sync::{Condvar, Mutex, PoisonError};

/// Progress of syncing: how far the log is safe from a power cut, and which thread is making it so.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    state: Mutex<CommitState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CommitState {
    /// Everything before this event is on disk.
    safe: u64,
    is_syncing: bool,
    /// Number of syncs.
    syncs: u64,
}

impl GroupCommit {
    /// Starts with everything before `safe` on disk.
    pub(crate) fn new(safe: u64) -> Self {
        Self {
            state: Mutex::new(CommitState {
                safe,
                ..CommitState::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// Returns once every event before `wanted` is on disk. `written` tells how many events a sync
    /// that starts now covers; `sync` asks the disk. Returns what is safe now.
    pub(crate) fn reach<E>(
        &self,
        wanted: u64,
        written: impl FnOnce() -> u64,
        sync: impl FnOnce() -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.safe >= wanted {
                return Ok(state.safe);
            }
            if !state.is_syncing {
                break;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.is_syncing = true;
        drop(state);
        // Read before the disk is asked: what is appended from here on waits for the next one.
        let covered = written();
        let outcome = sync();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_syncing = false;
        state.syncs += 1;
        if outcome.is_ok() {
            state.safe = state.safe.max(covered);
        }
        let safe = state.safe;
        drop(state);
        self.changed.notify_all();
        outcome.map(|()| safe)
    }

    /// Everything before this event is on disk.
    pub(crate) fn safe(&self) -> u64 {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .safe
    }

    /// Number of syncs.
    pub(crate) fn syncs(&self) -> u64 {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .syncs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn waiting_callers_share_one_sync() {
        let commit = GroupCommit::new(0);
        let (started, has_started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let commit = &commit;
            scope.spawn(move || {
                let sync = || {
                    started.send(()).unwrap();
                    released.recv().unwrap();
                    Ok::<(), ()>(())
                };
                assert_eq!(commit.reach(1, || 1, sync), Ok(1));
            });
            has_started.recv().unwrap();
            // Three more callers come while the first sync runs; one more sync serves them all.
            let later: Vec<_> = (0..3)
                .map(|_| scope.spawn(move || commit.reach(4, || 4, || Ok::<(), ()>(()))))
                .collect();
            release.send(()).unwrap();
            for caller in later {
                assert_eq!(caller.join().unwrap(), Ok(4));
            }
        });
        assert_eq!(commit.syncs(), 2);
        assert_eq!(
            commit.reach(4, || 4, || Err(())),
            Ok(4),
            "nothing left to do"
        );
    }

    #[test]
    fn a_failed_sync_makes_nothing_safe() {
        let commit = GroupCommit::new(0);
        assert_eq!(commit.reach(1, || 1, || Err("full")), Err("full"));
        assert_eq!(commit.safe(), 0);
        assert_eq!(commit.reach(1, || 1, || Ok::<(), ()>(())), Ok(1));
    }
}
