//! The decision about a call: what a script does, which rules match, and whether it is allowed, asked about or denied.
//!
//! Values go in and a judgement comes out. A tool is data ([`ToolDefinition`]) and says what a call would do
//! ([`PermissionSemantics`]); [`gate`] judges it
//! by circuit breakers, rules, mode and grants; [`shell`] reads the scripts of commands. The names of protected and secret
//! files are data of this crate, and file tools and the sandbox's mounts read the same list.
//!
//! This crate runs nothing, writes nothing and waits for nobody.

mod address;
pub mod gate;
mod request;
pub mod shell;
mod tool;

pub use address::{WebAddress, private_kind};
pub use request::{
    CommandRequest, Confinement, GitWrites, PROOF_TIMEOUT, PermissionSemantics, ResourceAccess,
    Workspace,
};
pub use tool::{PatchField, PathField, Reveals, Subject, ToolDefinition, Tools};
