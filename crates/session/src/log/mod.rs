//! The log: one event per line, chained by hash, appended by one writer, read by anyone.

pub(crate) mod commit;
pub(crate) mod error;
mod evidence;
pub(crate) mod index;
pub(crate) mod lease;
pub(crate) mod line;
pub(crate) mod open;
pub(crate) mod reader;
pub(crate) mod repair;
pub(crate) mod spill;
mod tail;
pub(crate) mod writer;

/// The name of the log in a session's directory.
pub(crate) const LOG: &str = "events.jsonl";
