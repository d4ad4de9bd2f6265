//! Replay: a past session told again from its log, in words.
//!
//! There is one fold, [`Timeline`]: each event goes in and comes out as an [`Entry`], one line of
//! words with what belongs to it. Text, JSON and HTML are pure functions over entries, so no form
//! can say something another does not. A [`Card`] answers, for one call, the questions an auditor
//! asks; what the log does not show is `unknown`, in every form and at every place of the log.
//!
//! What this module deliberately cannot do: it runs nothing, writes nothing and asks nobody. It
//! reads a log and, for the tools as they were defined then, the artifacts the log names.

mod card;
pub(crate) mod claims;
mod entry;
pub mod html;
pub mod json;
mod lineage;
mod read;
mod streamed;
mod summary;
pub mod text;
mod timeline;

pub use card::{Answer, Card, CardError, Cards};
pub use entry::Entry;
pub use lineage::{Lineage, parent_of, tell_inherited};
pub use read::{Anchored, Inherited, Integrity, Range, ReplayError, Replayed, replay, replay_each};
pub use streamed::Streamed;
pub use summary::{OpenWork, Summary};
pub use timeline::Timeline;
