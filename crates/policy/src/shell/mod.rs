//! Analysis of bash scripts, read twice with opposite guarantees.
//!
//! [`analyse`] turns a script into a flat list of every simple command found anywhere in it: in lists,
//! pipelines, substitutions, functions, behind `sudo env timeout …`, inside `sh -c`. Two readers use it:
//! - [`prove`] says that a script only reads, or is covered by rules. Whatever is not understood voids the
//!   proof, so it is right or silent.
//! - detection (deny rules and circuit breakers in `gate`) looks at everything found, and at the bare
//!   text of scripts that could not be parsed, so it would rather see too much.
//!
//! Nothing here starts a process or looks at a file. Start reading at [`analyse`].

mod analysis;
mod candidates;
mod checks;
mod indirect;
pub(crate) mod inline_code;
mod lookalike;
mod mentions;
mod opaque;
mod outcome;
mod parse;
mod prescan;
mod programs;
pub mod prove;
mod reading;
pub mod subset;
mod text;
mod walk;
pub mod word;
mod wrappers;

pub use analysis::{
    Analysis, Assignment, Command, Directories, Place, Redirect, RedirectKind, Start,
};
pub(crate) use analysis::{empty_command, normalise};
pub(crate) use candidates::Candidates;
pub(crate) use indirect::Operands;
pub(crate) use inline_code::runs_scripts;
pub use outcome::{Judged, Outcome, ScriptEnd, commands_behind_exit, judge};
pub use parse::parses;
pub use prescan::{MAX_BYTES, Refusal, is_deceptive, prescan};
pub(crate) use programs::{Granted, is_spelt, judge_granted, offers};
pub use reading::Reading;
pub use text::segments;
pub(crate) use walk::FORK_BOMB;
pub use walk::{analyse, small};
pub(crate) use wrappers::is_shell;
