//! Anthropic Messages.

mod decode;
mod encode;

pub use decode::AnthropicDecoder;
pub use encode::encode;
pub(crate) use encode::{BINDING_CONTROLS, binds_thinking};
