//! The tools that work on the local project.

mod change;
pub mod diff;
pub mod edit;
mod encoding;
pub mod file;
mod page;
mod path;
mod read;
pub mod replace;
mod search;
mod support;
mod write;

pub use edit::EditTool;
pub use encoding::{Encoding, LineEndings};
pub use path::Roots;
pub use read::ReadTool;
pub use search::{GlobTool, GrepTool};
pub use write::WriteTool;
