//! Taking back what a session did to the project's files, and telling what that was.
//!
//! [`Plan::make`] decides from the log and the disk and changes nothing; `carry_out` does it and
//! records it through the session's one writer, for the control command `undo` alone. Nothing here
//! starts a program. The commands `undo` and `diff` and the screen's `/undo` and `/diff` are all made
//! of these.

mod diff;
mod extent;
mod plan;
mod restore;
mod tree;

pub use diff::{FileDiff, SessionDiff, Shown};
pub use extent::{Chosen, Extent};
pub use plan::{Entry, Plan, Verdict};
pub(crate) use restore::carry_out;
pub use restore::restore_without_record;
