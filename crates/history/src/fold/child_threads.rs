//! The rule by which events belong to the threads of a session.

use std::collections::BTreeSet;

use agent_protocol::id::ThreadId;
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

/// Threads of a session that were started by another thread, and the rule that goes by them:
///
/// - An event that names a thread belongs to that thread alone.
/// - An event that names none belongs to the session, and every thread takes it in. Such are the
///   session's own beginning, an undo, and what is found and repaired when a log is opened.
/// - A thread that was started by another one (`thread.started` with `parent_thread_id`) is a child
///   and begins with nothing. All others are the main thread: in a fork, and in an imported session
///   that is resumed, the new main thread takes in what the one before it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildThreads(BTreeSet<ThreadId>);

/// The part of a session that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<'a> {
    /// The session, and so every thread of it.
    Session,
    /// The main thread.
    Main,
    /// A thread that another one started.
    Child(&'a ThreadId),
}

impl ChildThreads {
    /// The owner of the next event. Feed it the events in order.
    pub fn owner<'a>(&mut self, event: &'a Event) -> Owner<'a> {
        let Some(thread_id) = &event.scope.thread_id else {
            return Owner::Session;
        };
        if let Payload::ThreadStarted(started) = &event.payload
            && started.parent_thread_id.is_some()
        {
            self.0.insert(thread_id.clone());
        }
        if self.0.contains(thread_id) {
            Owner::Child(thread_id)
        } else {
            Owner::Main
        }
    }
}
