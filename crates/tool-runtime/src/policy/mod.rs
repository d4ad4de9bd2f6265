//! The result policy: how much of an output is in view, what was left out, and where the rest is.

mod collector;
mod keeper;
mod noise;
pub mod piece;
pub(crate) mod project;

pub use collector::{CollectedOutput, Collector, Segment, Stream};
pub use keeper::CollectLimits;
pub use project::MAX_MODEL_CHARS;
