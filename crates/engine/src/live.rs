//! Text on its way: shown while the model still speaks. It is not a fact yet; the events that follow
//! are, and whoever shows live text replaces it by them.

/// A piece of text as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveText<'a> {
    /// Part of the answer.
    Answer(&'a str),
    /// Part of the reasoning.
    Reasoning(&'a str),
    /// The name of a tool the model begins to call.
    Call(&'a str),
}

/// Somebody who watches.
pub trait StreamSink: Send + Sync {
    /// Called on the engine's thread; it must not block.
    fn show(&self, text: LiveText<'_>);
}

/// Nobody watches.
pub struct NullSink;

impl StreamSink for NullSink {
    fn show(&self, _: LiveText<'_>) {}
}
