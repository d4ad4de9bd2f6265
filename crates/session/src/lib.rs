//! The session log and everything that is a fold over it.
