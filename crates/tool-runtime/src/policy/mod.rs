//! The result policy: how much of an output is kept in view, and where the rest is.

mod collector;

pub use collector::{CollectLimits, CollectedOutput, Collector, Segment, Stream};
