//! What the exit code says. Scripts rely on these numbers, so they are all here.

use std::process::ExitCode;

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// What was asked for happened.
    Done = 0,
    /// It was tried and failed; for `audit`: there are findings.
    Failed = 1,
    /// Bad usage or configuration, nothing was started; for `audit`: the session is unreadable.
    Usage = 2,
    /// The reader of our output went away; the number a process killed by SIGPIPE would have.
    OutputClosed = 141,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The table at the end of `agent --help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done
  1    it was tried and failed (`audit`: there are findings)
  2    bad usage or configuration, nothing was started (`audit`: unreadable)
  141  the reader of the output went away";
