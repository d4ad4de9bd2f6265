//! The flags of every command that works in a session.

use std::path::PathBuf;

use agent_runtime::OpenOptions;
use clap::Args;

/// Which session to work in, and how; the flags of every command that does.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SessionArgs {
    /// Resume this session: a number, title, id, or `last`
    #[arg(short = 'r', long, alias = "resume", value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Continue the last session of this project
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    pub(crate) continues: bool,
    /// Also use the permission rules in this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) rules: Option<PathBuf>,
    /// Let this directory outside the project be read, too
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) add_dir: Vec<PathBuf>,
    /// Run tool calls one at a time
    #[arg(long)]
    pub(crate) serial: bool,
}

impl SessionArgs {
    /// The name of the session to go on with; none for a new one.
    pub(crate) fn name(&self) -> Option<&str> {
        let last = self.continues.then_some("last");
        self.session.as_deref().or(last)
    }

    /// The session these flags name, to be opened by a process that calls itself `program`.
    pub(crate) fn options(&self, program: &str) -> OpenOptions {
        OpenOptions {
            program: program.to_owned(),
            session: self.name().map(str::to_owned),
            rules: self.rules.clone(),
            // Relative to where the user is, and not to the project.
            directories: (self.add_dir.iter())
                .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
                .collect(),
            serial: self.serial,
            ..OpenOptions::default()
        }
    }

    /// The same flags for another session, or for a new one.
    pub(crate) fn for_session(&mut self, session: Option<String>) {
        self.session = session;
        self.continues = false;
    }
}
