//! Searching the project: names with `glob`, content with `grep`.
//!
//! [`walk`] meets the files in parallel and counts what it leaves out by the [`rules`]; [`find`]
//! looks into them with ripgrep's searcher. Order and bounds come last, so that neither the number
//! of files nor the luck of the threads shows in the result.

mod find;
mod glob;
mod grep;
mod pattern;
mod rules;
mod scope;
pub(crate) mod walk;

pub use glob::GlobTool;
pub use grep::GrepTool;
pub(crate) use scope::denied_globs;
