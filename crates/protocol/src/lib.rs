//! The vocabulary of `agent`: what can be said, and nothing that does anything.
//!
//! Every other crate talks in these words: [ids](id), the [event envelope](Event) with its typed
//! [payloads](payload), the [control commands](command) that are the only way in, the
//! [codes](Code) a call can end with, the [state machine](CallState) it goes through, and the
//! [status words](status) a turn can have.
//!
//! The crate deliberately opens no file, reads no clock, starts no thread and knows nothing of
//! async. An [`Event`] is a value; writing one durably is the business of `agent-log`, and
//! deciding its content that of the crate that did the work.
//!
//! Start at [`payload::Payload`], which lists every event class in one place; [`Event::to_line`]
//! and [`Event::from_line`] are the on-disk form, and [`persistence::persistence`] is the one
//! decision about what is kept.

mod call;
mod code;
pub mod command;
mod envelope;
mod escape;
pub mod id;
pub mod payload;
pub mod persistence;
mod record;
pub mod reply;
pub mod schema;
pub mod status;
mod time;

pub use call::{CallFault, CallState, CallStatus, CallStep, is_before_execution};
pub use code::{ActionHappened, Code, CodeFacts, Phase};
pub use envelope::{
    Event, EventHead, LineError, MAX_LINE_BYTES, RefTarget, Refs, SCHEMA_VERSION, Scope,
};
pub use escape::to_terminal_safe_json;
pub use payload::{EventType, Payload, UnknownPayload, UnknownReason};
pub use time::{Clock, Timestamp};
