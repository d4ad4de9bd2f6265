//! The turn loop: what joins the model, the tools and the log.
//!
//! A turn is a small state machine over events: an input is submitted, the [context policy](context)
//! decides what the model sees, the exchange with the model is recorded as it streams, the model's
//! calls go through the tool runtime, and their observations lead to the next request, until the
//! model has no more to say or something ends the turn. Everything the engine knows is folded from
//! the log into [`ThreadState`] and [`SessionState`]; a restart folds the same lines and goes on.
//!
//! What this crate deliberately cannot do: it decides nothing by a tool's name, opens no socket and no project
//! file, reads no environment and no clock. Only [`Control::respond`] lets a paused call go on.
//!
//! Where to start: [`Engine::run_turn`] is the loop, [`conversation`] what the model is told again,
//! [`verification`] how the end is judged, [`control`] the turns that wait.

mod accounting;
pub mod approvals;
mod authority;
mod compaction;
pub mod context;
mod continuation;
pub mod control;
pub mod conversation;
mod cut;
mod ending;
mod engine;
mod entering;
mod exchange;
pub mod fact_sheet;
mod fallback;
mod held;
mod images;
pub mod interrupt;
mod journal;
pub mod limits;
pub mod live;
pub mod model;
mod notes;
pub mod prompt;
mod rebuild;
pub mod state;
mod turn;
mod user_words;
pub mod verification;

pub use approvals::{OnAsk, PendingApprovals};
pub use authority::{Place as AuthorityPlace, SessionAuthority, TreeIsDirty};
pub use control::{Control, Queued, Resumed};
pub use engine::{Engine, EngineError, Parts, Settings};
pub use interrupt::Interrupt;
pub use journal::{CountChecks, SessionJournal};
pub use model::{Model, Price};
pub use rebuild::{Rebuilder, Rebuilt};
pub use state::{SessionState, ThreadState};
pub use turn::{OwnCall, TurnEnd};
