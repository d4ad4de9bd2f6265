//! The words for how far something is and how it ended.

use crate::record::words;

/// A word that is not in its set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not one of {expected}")]
pub struct UnknownWord {
    word: String,
    expected: String,
}

impl UnknownWord {
    pub(crate) fn new(word: &str, expected: impl Iterator<Item = &'static str>) -> Self {
        let shown = word.chars().take(64).flat_map(char::escape_debug).collect();
        Self {
            word: shown,
            expected: expected.collect::<Vec<_>>().join(", "),
        }
    }
}

words! {
    /// Status of a thread, turn or task. `Unknown` is what a read model says when the log does not
    /// show it; it is never written.
    Status {
        Unknown = "unknown",
        Accepted = "accepted",
        Queued = "queued",
        Preparing = "preparing",
        Running = "running",
        WaitingInput = "waiting_input",
        WaitingPermission = "waiting_permission",
        WaitingResource = "waiting_resource",
        Blocked = "blocked",
        Streaming = "streaming",
        Retrying = "retrying",
        Lost = "lost",
        TimedOut = "timed_out",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        Stale = "stale",
        Idle = "idle",
        Ended = "ended",
    }
}

impl Status {
    /// True if nothing more will happen without a new request.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Lost
                | Self::TimedOut
                | Self::Completed
                | Self::Failed
                | Self::Cancelled
                | Self::Ended
        )
    }
}

words! {
    /// Ceiling on what is done without asking. No allow rule lifts one.
    Mode {
        /// Nothing may be written; commands only where they are proven to read.
        ReadOnly = "read-only",
        /// As read-only, until a plan is approved that the model hands over.
        Plan = "plan",
        /// Reading is free, the rest asks.
        Ask = "ask",
        /// Edits inside the project are free.
        AcceptEdits = "accept-edits",
        /// Commands are free as long as the full sandbox holds them.
        Auto = "auto",
        /// No asking; sandbox and deny rules still hold.
        Full = "full",
    }
}

impl Mode {
    /// True if nothing may be changed.
    #[must_use]
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Plan)
    }
}

words! {
    /// How much a model may think before it answers.
    Thinking {
        /// Nothing is said to the model about it.
        Off = "off",
        Minimal = "minimal",
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

words! {
    /// Verification status, computed from recorded facts.
    VerificationStatus {
        /// No verification was run, although files changed.
        Unverified = "unverified",
        /// The last run of every check since the last change passed, and no failed one is unanswered.
        Passed = "passed",
        /// The last run of some check failed, and nothing changed since.
        Failed = "failed",
        /// Files changed after the last run, or after a failed run that was not repeated.
        Stale = "stale",
        /// A check ran whose exit status the shell did not report.
        CouldNotBeJudged = "could_not_be_judged",
        /// Nothing changed, so there was nothing to verify.
        NotApplicable = "not_applicable",
    }
}
