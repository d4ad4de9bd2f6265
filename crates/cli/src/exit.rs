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
    /// Something that was needed was refused, or could not be asked.
    Denied = 3,
    /// Finished, but not verified although that was required.
    Unverified = 4,
    /// A budget or limit ended it.
    Limit = 5,
    /// The sandbox could not be enforced; nothing was run.
    NoSandbox = 6,
    /// Interrupted by the user.
    Interrupted = 130,
    /// Told to end.
    Terminated = 143,
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
  1    the command failed (`audit`, `review --fail-on`: there are findings)
  2    bad usage or configuration; nothing was started (`audit`: unreadable)
  3    something needed was denied, or needed an approval nobody could give
  4    finished, but not verified, with --require-verified
  5    stopped by a budget or limit
  6    the sandbox could not be enforced; nothing was run
  130  interrupted
  141  the reader of the output closed it
  143  terminated";
