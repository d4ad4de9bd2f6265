//! Telling others about events, in order, and never before they may know.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use agent_protocol::{Event, Payload};

use crate::writer::is_anchored;

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

    /// Tells everything that may be told; `reached` gives the first sequence the kernel does not
    /// have yet and the first that is not on disk. When another thread is telling already, it also
    /// tells what is new.
    pub(crate) fn deliver(&self, reached: impl Fn() -> (u64, u64)) {
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
                while let Some(appended) = self.next(&reached) {
                    let before = listening.len();
                    listening.retain_mut(|listener| listener(&appended));
                    self.count
                        .fetch_sub(before - listening.len(), Ordering::AcqRel);
                }
            }
            // Something may have been queued by a thread that found us still telling.
            if !self.has_next(&reached) {
                return;
            }
        }
    }

    fn next(&self, reached: &impl Fn() -> (u64, u64)) -> Option<Arc<Appended>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if may_be_told(waiting.front()?, reached) {
            waiting.pop_front()
        } else {
            None
        }
    }

    fn has_next(&self, reached: &impl Fn() -> (u64, u64)) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting
            .front()
            .is_some_and(|appended| may_be_told(appended, reached))
    }
}

/// An observation, and what is anchored, is on disk before anyone sees it; the rest may be seen once it
/// is written. An event that is not kept has the sequence of the next one, and follows those before it.
fn may_be_told(appended: &Appended, reached: &impl Fn() -> (u64, u64)) -> bool {
    let (written, safe) = reached();
    let sequence = appended.event.sequence;
    match &appended.event.payload {
        Payload::ToolObservation(_) => sequence < safe,
        payload if is_anchored(payload) => sequence < safe,
        _ if appended.is_durable => sequence < written,
        _ => sequence <= written,
    }
}
