//! The session log and everything that is a fold over it.
//!
//! A session is a directory with one append-only file, `events.jsonl`, and the artifacts its events
//! name. Everything else (what the screen shows, what the next model input holds, what resume,
//! audit and export say) is computed from that file, by plain functions, here or in the crates
//! above.
//!
//! What this crate deliberately cannot do: it runs nothing, asks nobody, opens no connection, and
//! finds neither the clock nor the environment nor the home directory by itself; all of that is
//! handed in as a [`Rim`]. It does not know what a tool or a model is beyond the events about them.
//!
//! Where to start: [`SessionStore`] finds and makes sessions, [`SessionWriter`] appends,
//! [`LogReader`] reads, [`fold::ReadModels`] says what the events amount to,
//! [`workspace::Workspace`] what they did to the project's files, and [`fork::fork`] branches off.

mod anchor;
mod artifact;
pub mod audit;
mod cache;
pub mod compare;
pub mod export;
pub mod fold;
pub mod fork;
mod hash;
mod hint;
pub mod import;
mod log;
mod model_input;
mod place;
mod prune;
mod redact;
pub mod replay;
pub mod report;
mod store;
mod subscribe;
pub mod verification;
pub mod workspace;

pub use anchor::{Anchor, AnchorError, AnchorStore, OwnEvents};
pub use artifact::{ArtifactError, ArtifactFile, ArtifactStore, ArtifactWriter, Stored};
pub use cache::{
    CacheError, Loaded, load_read_models, record_repair, refresh_read_models, store_read_models,
};
pub use hint::hint;
pub use log::error::{AppendError, SyncError};
pub use log::index::LogIndex;
pub use log::lease::{Holder, LeaseError};
pub use log::open::{Listener, OpenError, Opened, Repairs, Rim};
pub use log::reader::{
    ChainReport, Damage, DamageKind, Head, LogItem, LogReader, Notes, ReadError, verify_chain,
};
pub use log::writer::{Gathering, Recorded, SessionWriter};
pub use model_input::{Kept, ModelInputError, ModelInputs, read_model_input};
pub use place::PlaceError;
pub use prune::{Expiring, PruneError, PrunePlan, PrunePolicy, plan_prune, prune};
pub use redact::{
    LateSecrets, Masked, MaskedReader, PatternError, Redacted, RedactionRules, Redactor,
    Unresolved, placeholders,
};
pub use store::{
    AGENT_DIRECTORY, Glance, ResolveError, SessionDirectory, SessionSize, SessionStore, StoreError,
    project_root,
};
pub use subscribe::Appended;
