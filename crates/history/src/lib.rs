//! The meaning of a session's events: read models, the project's files at any event, verification.
//!
//! Everything here is a plain fold over the events that `agent-log` reads. Folding a prefix and then
//! the rest gives what folding all gives; what the log does not show is unknown. Nothing is decided
//! here, and nothing but the cache of read models is written.
//!
//! The state machine of a call is `agent_protocol::CallState`, because the log and the tool runtime
//! need it too; [`fold::Calls`] moves one for each call.
//!
//! Where to start: [`fold::ReadModels`] says what the events amount to, [`workspace::Workspace`]
//! what they did to the project's files, [`verification`] when work counts as verified.

mod cache;
pub mod describe;
pub mod fold;
mod imported;
pub mod verification;
pub mod workspace;

pub use cache::{
    CacheError, Loaded, load_read_models, record_repair, refresh_read_models, store_read_models,
};
pub use describe::{Description, describe};
pub use imported::{IMPORTED, imported_from};
