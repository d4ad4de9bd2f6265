//! The result policy: how much of an output is in view, what was left out, and where the rest is.

mod collector;
mod excerpt;
mod noise;
pub mod piece;
pub(crate) mod project;

pub use collector::{CollectedOutput, Collector, Segment, Stream};
pub use excerpt::CollectLimits;
pub use project::MAX_MODEL_CHARS;
