//! Stopping a turn: one handle that reaches the model stream and the tools at once.

use std::sync::{Arc, Mutex, PoisonError};

use agent_protocol::command::InterruptReason;
use agent_tool_runtime::{Cancel, CancelReason};
use tokio_util::sync::CancellationToken;

/// Raised once; the first reason stays. Clones are the same handle.
#[derive(Clone, Default)]
pub struct Interrupt {
    token: CancellationToken,
    cancel: Cancel,
    reason: Arc<Mutex<Option<InterruptReason>>>,
}

impl Interrupt {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops what runs: the connection to the model is closed, tools are cancelled.
    pub fn raise(&self, reason: InterruptReason) {
        let mut first = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(reason);
        drop(first);
        self.token.cancel();
        self.cancel.raise(match reason {
            InterruptReason::Timeout => CancelReason::Timeout,
            InterruptReason::User => CancelReason::Interrupted,
            InterruptReason::Terminated => CancelReason::Terminated,
        });
    }

    /// Why it was raised, if it was.
    #[must_use]
    pub fn reason(&self) -> Option<InterruptReason> {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The handle that tools watch.
    #[must_use]
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}

/// Tools wait for files and processes, so they get a thread of their own; signals, timers and the
/// connection go on meanwhile, also where the runtime has one thread only.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
