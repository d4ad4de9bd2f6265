//! OpenAI Responses, used without server-side state: the whole conversation is sent each time.

mod decode;
mod encode;

pub use decode::ResponsesDecoder;
pub(crate) use encode::effort_word;
pub use encode::encode;
