//! Stopping what runs: one handle that threads can ask, wait on, and poll as a file descriptor.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Why something is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The user, or whoever drives the turn, does not want it any more.
    Interrupted,
    /// Its time is over.
    Timeout,
    /// The program was told to end.
    Terminated,
}

/// Raised once, never lowered. Clones are the same handle; [`child`](Self::child) is raised with
/// its parent but not the other way round.
#[derive(Clone)]
pub struct Cancel {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    raised: Condvar,
    /// Keeps the way up open, so that a child of a child is found.
    _parent: Option<Arc<Shared>>,
}

#[derive(Default)]
struct State {
    reason: Option<CancelReason>,
    /// Dropping the writing end wakes every poller of the reading end.
    pipe: Option<(PipeReader, Option<PipeWriter>)>,
    children: Vec<Weak<Shared>>,
    wakers: Vec<Box<dyn FnOnce() + Send>>,
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    #[must_use]
    pub fn new() -> Self {
        Self::with_parent(None)
    }

    fn with_parent(parent: Option<Arc<Shared>>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            raised: Condvar::new(),
            _parent: parent,
        });
        Self { shared }
    }

    /// A handle that is raised with this one, and can be raised alone.
    #[must_use]
    pub fn child(&self) -> Self {
        let child = Self::with_parent(Some(Arc::clone(&self.shared)));
        let mut state = self.state();
        state.children.retain(|weak| weak.strong_count() > 0);
        state.children.push(Arc::downgrade(&child.shared));
        let reason = state.reason;
        drop(state);
        if let Some(reason) = reason {
            child.raise(reason);
        }
        child
    }

    /// Raises the handle; the first reason stays.
    pub fn raise(&self, reason: CancelReason) {
        let (children, wakers) = {
            let mut state = self.state();
            if state.reason.is_some() {
                return;
            }
            state.reason = Some(reason);
            if let Some((_, writer)) = &mut state.pipe {
                writer.take();
            }
            self.shared.raised.notify_all();
            let wakers = std::mem::take(&mut state.wakers);
            (std::mem::take(&mut state.children), wakers)
        };
        for waker in wakers {
            waker();
        }
        for child in children.iter().filter_map(Weak::upgrade) {
            Self { shared: child }.raise(reason);
        }
    }

    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.state().reason.is_some()
    }

    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        self.state().reason
    }

    /// Waits until the handle is raised or `timeout` is over, and says whether it was raised.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        while state.reason.is_none() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            state = self
                .shared
                .raised
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// Calls `waker` once when the handle is raised, at once if it already is.
    pub fn on_raise(&self, waker: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.reason.is_none() {
            state.wakers.push(Box::new(waker));
            return;
        }
        drop(state);
        waker();
    }

    /// A descriptor that hangs up (`POLLHUP`, end of file) as soon as the handle is raised, for use
    /// in `poll` beside pipes and processes.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        let mut state = self.state();
        if state.pipe.is_none() {
            let (reader, writer) = io::pipe()?;
            let writer = state.reason.is_none().then_some(writer);
            state.pipe = Some((reader, writer));
        }
        match &state.pipe {
            Some((reader, _)) => Ok(reader.try_clone()?.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_child_falls_with_its_parent_but_not_the_other_way_round() {
        let parent = Cancel::new();
        let (one, two) = (parent.child(), parent.child());
        let grandchild = two.child();
        one.raise(CancelReason::Timeout);
        assert!(one.is_raised() && !parent.is_raised() && !two.is_raised());
        parent.raise(CancelReason::Interrupted);
        assert_eq!(one.reason(), Some(CancelReason::Timeout));
        assert_eq!(grandchild.reason(), Some(CancelReason::Interrupted));
        assert!(parent.child().is_raised());
    }

    #[test]
    fn the_descriptor_hangs_up() {
        for raise_first in [true, false] {
            let cancel = Cancel::new();
            if raise_first {
                cancel.raise(CancelReason::Interrupted);
            }
            let mut reader: std::fs::File = cancel.descriptor().unwrap().into();
            cancel.raise(CancelReason::Interrupted);
            assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
        }
    }

    #[test]
    fn waiting_ends() {
        let cancel = Cancel::new();
        assert!(!cancel.wait(Duration::from_millis(1)));
        let waiter = std::thread::spawn({
            let cancel = cancel.clone();
            move || cancel.wait(Duration::from_secs(60))
        });
        cancel.raise(CancelReason::Interrupted);
        assert!(waiter.join().unwrap());
    }
}
