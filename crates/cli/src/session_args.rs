//! The flags of every command that works in a session.

use std::path::PathBuf;

use agent_runtime::session::OpenOptions;
use clap::Args;

/// Which session to work in, and how; the flags of every command that does.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SessionArgs {
    /// Resume this session: an id, a unique prefix of one, or `last`
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Also use the permission rules in this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) rules: Option<PathBuf>,
    /// Run tool calls one at a time
    #[arg(long)]
    pub(crate) serial: bool,
}

impl SessionArgs {
    /// The session these flags name, to be opened by a process that calls itself `program`.
    pub(crate) fn options(&self, program: &str) -> OpenOptions {
        OpenOptions {
            program: program.to_owned(),
            session: self.session.clone(),
            rules: self.rules.clone(),
            serial: self.serial,
            ..OpenOptions::default()
        }
    }
}
