//! OpenAI Chat Completions, the form most servers speak.

mod decode;
mod encode;
mod think;

pub use decode::ChatDecoder;
pub use encode::encode;
pub(super) use encode::{sent_arguments, tool_name};
