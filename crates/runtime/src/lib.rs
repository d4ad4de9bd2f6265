//! The front door: everything a front end needs to open a session and to change it.
//!
//! A [`Runtime`] is the machine and a project, as values that the program hands in. It reads the
//! [settings](config), chooses the [models], puts log, rules, tools and engine together, and opens
//! sessions. What a session did to files is taken back by [`undo`]; its recorded answers are played again by
//! [`rerun`].
//!
//! What this crate deliberately cannot do: it prints nothing, reads no environment, home directory
//! or clock, and knows no screen and no command line.

pub mod catalogue;
pub mod changes;
pub mod command_settings;
pub mod config;
mod error;
mod git_identity;
mod host;
pub mod keys;
pub mod models;
mod offline_gate;
mod preamble;
pub mod private;
mod project;
pub mod prompts;
pub mod reach;
pub mod rerun;
pub mod rule_file;
mod rules;
mod runtime;
mod scratch;
pub mod session;
pub mod undo;
mod work_tree;

pub use error::{ErrorKind, RuntimeError, While, chain};
pub use host::{Directories, Environment, Host, Random};
pub use offline_gate::OfflineGate;
pub use preamble::branch;
pub use project::Project;
pub use rules::{bases, rules};
pub use runtime::Runtime;
pub use scratch::Scratch;
pub use session::{OpenOptions, Pending, Session, SessionModels, TurnReport};

pub use agent_engine::live::{LiveText, StreamSink};
pub use agent_engine::{Model, OnAsk, TurnEnd};
pub use agent_log::Appended;
pub use agent_sandbox::dispatch_helper;
