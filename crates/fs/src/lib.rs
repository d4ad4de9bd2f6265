//! Files below a directory that other programs may be changing.
//!
//! A project, a session's directory and a command's leftovers are not ours alone: a repository may bring a link
//! where our log belongs, and a command may swap a directory for a link while we read it. [`Dir`] reaches
//! everything from an open directory with no link on the way, [`TempFile`] puts new content in the place of a file
//! whole or not at all, [`Stamp`] shows whether a file has changed, [`walk`] lists a whole tree, [`Snapshot`] tells
//! what differs between two moments of it, and [`remove_tree`] removes one whatever its modes.

mod attributes;
mod beneath;
mod content;
mod dir;
mod remove;
mod snapshot;
mod stamp;
mod temp_file;
pub mod walk;

pub use attributes::copy_metadata;
pub use beneath::beneath;
pub use content::{Hashed, hash, open_regular, overwrite};
pub use dir::{Dir, kind_of};
pub use remove::remove_tree;
pub use snapshot::{Difference, Snapshot};
pub use stamp::{Stamp, now};
pub use temp_file::{TempFile, create, replace};
