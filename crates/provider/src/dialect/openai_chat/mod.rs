//! OpenAI Chat Completions, the form most servers speak.

mod decode;
mod encode;
mod matching;
mod think;

/// The field of a message that holds thinking, by the name most compatible servers gave it.
const REASONING_CONTENT: &str = "reasoning_content";

pub use decode::ChatDecoder;
pub use encode::encode;
pub(super) use encode::{plain, sent_arguments, tool_name};
