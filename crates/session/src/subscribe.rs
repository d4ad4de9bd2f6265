//! Telling others about events, in order, and never before they may know.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use agent_protocol::{Event, Payload};

/// An event as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Appended {
    pub event: Event,
    /// The exact bytes of the line without its newline.
    pub line: Vec<u8>,
    /// False for the few classes that are only shown.
    pub is_durable: bool,
}

type Listener = Box<dyn FnMut(&Arc<Appended>) -> bool + Send>;

/// Whoever wants to know, and what they have not been told yet.
#[derive(Default)]
pub(crate) struct Listeners {
    listening: Mutex<Vec<Listener>>,
    added: Mutex<Vec<Listener>>,
    waiting: Mutex<VecDeque<Arc<Appended>>>,
    count: AtomicUsize,
}

impl Listeners {
    pub(crate) fn add(&self, listener: Listener) {
        // Kept apart, so that a listener may add another one while it is being told something.
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        added.push(listener);
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Keeps an event for the listeners, if there are any.
    pub(crate) fn queue(&self, appended: impl FnOnce() -> Appended) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push_back(Arc::new(appended()));
        }
    }

    /// Tells everything that may be told; `safe` is the first sequence that is not on disk yet.
    /// When another thread is telling already, it also tells what is new.
    pub(crate) fn deliver(&self, safe: impl Fn() -> u64) {
        while self.count.load(Ordering::Acquire) > 0 {
            {
                let mut listening = match self.listening.try_lock() {
                    Ok(listening) => listening,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => return,
                };
                let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
                listening.append(&mut added);
                drop(added);
                while let Some(appended) = self.next(&safe) {
                    let before = listening.len();
                    listening.retain_mut(|listener| listener(&appended));
                    self.count
                        .fetch_sub(before - listening.len(), Ordering::AcqRel);
                }
            }
            // Something may have been queued by a thread that found us still telling.
            if !self.has_next(&safe) {
                return;
            }
        }
    }

    fn next(&self, safe: &impl Fn() -> u64) -> Option<Arc<Appended>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if may_be_told(waiting.front()?, safe) {
            waiting.pop_front()
        } else {
            None
        }
    }

    fn has_next(&self, safe: &impl Fn() -> u64) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting
            .front()
            .is_some_and(|appended| may_be_told(appended, safe))
    }
}

/// An observation is on disk before anyone sees it; the rest may be seen once it is written.
fn may_be_told(appended: &Appended, safe: &impl Fn() -> u64) -> bool {
    !matches!(appended.event.payload, Payload::ToolObservation(_))
        || appended.event.sequence < safe()
}
