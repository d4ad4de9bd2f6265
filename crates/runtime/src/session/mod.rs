//! An open session: log, rules, tools and engine put together.

mod open;
mod plane;

pub(crate) use open::registry;
pub use open::{Closer, OpenOptions, Workbench, created, open, verification_patterns};
