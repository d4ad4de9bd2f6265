//! Anthropic Messages.

mod decode;
mod encode;

pub use decode::AnthropicDecoder;
pub use encode::encode;
