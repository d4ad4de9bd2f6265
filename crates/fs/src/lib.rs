//! Files below a directory that somebody else may be changing.
//!
//! A project, a session's directory and a command's leftovers are not ours alone: a repository may bring a link
//! where our log belongs, and a command may swap a directory for a link while we look at it. [`Dir`] reaches
//! everything from an open directory with no link on the way, [`Draft`] puts new content in the place of a file
//! whole or not at all, [`Stamp`] tells whether a file is still the one that was seen, and [`remove_tree`] removes
//! what a command left, whatever it did to the modes.

mod attributes;
mod beneath;
mod content;
mod dir;
mod draft;
mod remove;
mod stamp;

pub use attributes::dress;
pub use beneath::beneath;
pub use content::{Hashed, hash, overwrite};
pub use dir::{Dir, kind_of};
pub use draft::{Draft, create, replace};
pub use remove::remove_tree;
pub use stamp::{Stamp, now};
