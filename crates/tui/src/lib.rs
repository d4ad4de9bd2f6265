//! The terminal interface: events in, frames out; keys in, control commands out.
//!
//! The screen is a fold over the session's events ([`state`]) with a little state of its own around
//! it ([`ui`]): what is being typed, which question is open, what is being read. [`keys`] turns keys
//! into commands, [`view`] turns all of it into lines; both are plain functions over values, so a
//! live session, a resumed one and a replayed one look the same and are tested without a terminal.
//! [`terminal`], [`surface`] and the loop in [`run()`] touch the machine.
//!
//! What this crate deliberately cannot do: it reaches no model and no tool, opens no file, starts no
//! program and reads no environment. It asks its host ([`host::HostRequest`]) and tells the engine
//! ([`agent_protocol::command::ControlCommand`]); that a call was allowed it learns from the log like
//! everybody else. No text from outside reaches the terminal but through [`safe`].
//!
//! Where to start: [`host`] is the seam, [`run()`] the loop, [`state::State::apply`] the fold,
//! [`view::frame`] the picture.

pub mod commands;
pub mod compose;
pub mod diff;
pub mod highlight;
pub mod host;
pub mod keymap;
pub mod keys;
pub mod markdown;
pub mod plain;
pub mod replay;
pub mod report;
mod run;
pub mod safe;
pub mod state;
pub mod surface;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod ui;
pub mod view;

pub use host::{
    Document, DocumentFormat, Exit, ExportForm, ExternalEditor, FirstRun, HostMessage, HostRequest,
    Input, LiveText, Output, Prepared, ProcessLine, ProcessRequest, RewindPlan, Secret,
    SessionLine, Settings, Start, TrustQuestion,
};
pub use keymap::KeyMap;
pub use run::{RunError, run, run_on};
pub use theme::{Background, ColorDepth, ThemeChoice};
pub use view::status::StatusItem;
