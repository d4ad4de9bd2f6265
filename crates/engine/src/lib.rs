//! The turn loop.

mod journal;

pub use journal::SessionJournal;
