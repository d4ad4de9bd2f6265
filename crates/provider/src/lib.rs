//! Model requests out, a stream of model events in.
//!
//! The crate reports what a model said and can start nothing: no process, no file of a project. It
//! contacts the configured model endpoint and nothing else. It reads neither environment nor clock
//! nor key files; keys are handed in as secrets that do not print.
//!
//! Start reading at [`conversation`] (what is asked) and [`event`] (what is answered), then
//! [`dialect`] (one folder per wire format: an encoder and a decoder, both pure), [`provider`] (the
//! seam the turn loop uses) and [`transport`] (where all waiting happens).

pub mod conversation;
pub mod event;
pub mod provider;
pub mod response;

pub mod dialect;
pub mod error;
pub mod quirks;
pub mod sse;

pub mod endpoint;
pub mod hint;
pub mod limits;
pub mod transport;

pub mod catalog;
pub mod config;
pub mod cost;
pub mod local;
pub mod models;
pub mod prompt;
pub mod routing;

mod calls;
mod classify;
mod text;

pub use config::{HostCredentials, ModelConfig, ProviderConfig, resolve_endpoint};
pub use conversation::{
    Arguments, AssistantPart, CachePolicy, Image, ImageDetail, Message, ModelRequest, Opaque,
    ReasoningEffort, ToolCall, ToolChoice, ToolResult, ToolSpec, UserPart,
};
pub use cost::Cost;
pub use dialect::scripted::{ScriptedProvider, Transcript};
pub use dialect::{Decoder, Dialect, decode_all, encode};
pub use endpoint::{Endpoint, RetryPolicy, Timeouts};
pub use error::{ErrorKind, ModelError};
pub use event::{ModelEvent, StopReason, Usage};
pub use provider::{Provider, Signal};
pub use quirks::Quirks;
pub use response::{Response, ResponseBuilder};
pub use routing::{ModelRef, Route};
pub use transport::{EndpointError, HttpProvider, Reached};
