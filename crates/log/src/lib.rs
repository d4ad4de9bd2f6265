//! The session log: one event per line, chained by hash, appended by one writer, read by anyone.
//!
//! A session is a directory with one append-only file, `events.jsonl`, and the artifacts its events
//! name. Everything else (what the screen shows, what the next model input holds, what resume,
//! audit and export say) is computed from that file, in the crates above.
//!
//! This crate deliberately cannot do some things: it runs nothing, asks nobody, opens no
//! connection, and finds neither the clock nor the environment nor the home directory by itself; all
//! of that is handed in as a [`SessionEnv`]. It does not know what a tool or a model is beyond the events
//! about them, and it does not say what events amount to: that is `agent-history`.
//!
//! Where to start: [`SessionStore`] finds and makes sessions, [`SessionWriter`] appends,
//! [`LogReader`] reads, [`ArtifactStore`] keeps what is too large for a line, and [`fork::fork`]
//! branches off.

mod anchor;
mod artifact;
mod commit;
mod error;
pub mod fork;
mod hash;
mod hint;
mod index;
mod inventory;
mod lease;
mod line;
mod model_input;
mod naming;
mod open;
mod place;
mod prune;
mod reader;
mod recorded_artifact;
mod redact;
mod repair;
mod spill;
mod store;
mod subscribe;
mod tail;
mod writer;

pub use anchor::{Anchor, AnchorError, AnchorStore, OwnEvents};
pub use artifact::{ArtifactError, ArtifactFile, ArtifactStore, ArtifactWriter, Stored};
pub use error::{AppendError, SyncError};
pub use hash::{Hash, named};
pub use hint::hint;
pub use index::LogIndex;
pub use inventory::{ArtifactBrief, ArtifactInventory, ArtifactState};
pub use lease::{Holder, LeaseError};
pub use line::{Line, Lines, Text, quick_type};
pub use model_input::{Kept, ModelInputError, ModelInputs, read_after, read_model_input};
pub use naming::{Among, Candidate, ResolveError};
pub use open::{Listener, OpenError, Opened, Repairs, SessionEnv};
pub use place::{Place, PlaceError};
pub use prune::{Expiring, PruneError, PrunePlan, PrunePolicy, plan_prune, prune};
pub use reader::{
    ChainReport, Damage, DamageKind, Head, LogItem, LogReader, Notes, ReadError, verify_chain,
};
pub use redact::{
    LateSecrets, Masked, MaskedReader, PatternError, Redacted, RedactionRules, Redactor,
    Unresolved, placeholders,
};
pub use store::{
    AGENT_DIRECTORY, LastTurn, MASKED_COPIES, SessionDirectory, SessionPreview, SessionSize,
    SessionStore, StoreError, project_root,
};
pub use subscribe::Appended;
pub use writer::{Gathering, Recorded, SessionWriter};

/// The name of the log in a session's directory.
pub(crate) const LOG: &str = "events.jsonl";
