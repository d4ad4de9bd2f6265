//! The codes a tool call can end with. They are part of the public contract: stable strings, each
//! with the facts a program or a model needs to continue.

use crate::record::words;

words! {
    /// Phase in which a call ended.
    Phase {
        Lookup = "lookup",
        Validate = "validate",
        Permission = "permission",
        Schedule = "schedule",
        Execute = "execute",
        Normalize = "normalize",
        WriteBack = "write_back",
    }
}

words! {
    /// Answer to the question whether anything in the world changed.
    ActionHappened {
        Unknown = "unknown",
        No = "no",
        Yes = "yes",
    }
}

words! {
    /// Code with which a call ended.
    Code {
        InternalError = "internal_error",
        Ok = "ok",
        FileUnchanged = "file_unchanged",
        UnknownTool = "unknown_tool",
        ToolNotVisible = "tool_not_visible",
        SchemaInvalid = "schema_invalid",
        RuntimePreconditionFailed = "runtime_precondition_failed",
        AmbiguousTarget = "ambiguous_target",
        TargetNotFound = "target_not_found",
        StaleFileBaseline = "stale_file_baseline",
        NoChange = "no_change",
        FileNotFound = "file_not_found",
        NotAFile = "not_a_file",
        UnsupportedContent = "unsupported_content",
        TooLarge = "too_large",
        OutsideWorkspace = "outside_workspace",
        PermissionDenied = "permission_denied",
        PolicyDenied = "policy_denied",
        UserDenied = "user_denied",
        ApprovalUnavailable = "approval_unavailable",
        ApprovalExpired = "approval_expired",
        Timeout = "timeout",
        Cancelled = "cancelled",
        Lost = "lost",
        SpawnFailed = "spawn_failed",
        SandboxUnavailable = "sandbox_unavailable",
        SandboxViolation = "sandbox_violation",
        ExitNonzero = "exit_nonzero",
        OutputLimit = "output_limit",
        IoError = "io_error",
        NetworkFailed = "network_failed",
    }
}

/// Facts about a code, for a program or a model that has to act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeFacts {
    /// The phase in which the code normally arises.
    pub phase: Phase,
    /// `No` if the world is certainly as before.
    pub action_happened: ActionHappened,
    /// True if the same call may succeed when tried again as it is or after the recovery step.
    pub retryable: bool,
    /// The mechanical next step, as a fact about the code and not as advice on the task.
    pub recovery: &'static str,
}

impl Code {
    /// True if the call did what was asked.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok | Self::FileUnchanged)
    }

    /// The facts of this code. Exhaustive on purpose: a new code cannot be added without them.
    #[must_use]
    pub const fn facts(self) -> CodeFacts {
        use ActionHappened::{No, Unknown, Yes};
        use Phase::{Execute, Lookup, Permission, Schedule, Validate};
        let (phase, action_happened, retryable, recovery) = match self {
            Self::Ok => (Execute, Yes, false, "none needed"),
            Self::FileUnchanged => (
                Execute,
                No,
                false,
                "the content was already given and is still current",
            ),
            Self::UnknownTool => (Lookup, No, true, "choose a tool from the catalogue"),
            Self::ToolNotVisible => (Lookup, No, true, "use a tool that is visible in this mode"),
            Self::SchemaInvalid => (Validate, No, true, "correct the named fields"),
            Self::RuntimePreconditionFailed => (
                Validate,
                No,
                true,
                "meet the named precondition, then call again",
            ),
            Self::AmbiguousTarget => (Validate, No, true, "name one place, or set replace_all"),
            Self::TargetNotFound => (Validate, No, true, "read the file and use its exact text"),
            Self::StaleFileBaseline => (Validate, No, true, "read the file again"),
            Self::NoChange => (Validate, No, false, "the call would change nothing"),
            Self::FileNotFound => (Validate, No, true, "use a path that exists"),
            Self::NotAFile => (Validate, No, true, "use the path of a regular file"),
            Self::UnsupportedContent => (
                Validate,
                No,
                false,
                "this content cannot be shown or edited as text",
            ),
            Self::TooLarge => (Validate, No, true, "ask for a smaller part"),
            Self::OutsideWorkspace => (Validate, No, true, "use a path inside the project"),
            Self::PermissionDenied => (
                Permission,
                No,
                false,
                "the operating system refused; the user has to change the permissions",
            ),
            Self::PolicyDenied => (
                Permission,
                No,
                false,
                "a rule forbids this; choose another way",
            ),
            Self::UserDenied => (Permission, No, false, "the user refused this"),
            Self::ApprovalUnavailable => (
                Permission,
                No,
                false,
                "approval was not possible; it needs an interactive run or a rule",
            ),
            Self::ApprovalExpired => (Permission, No, true, "ask again"),
            Self::Cancelled => (Schedule, Unknown, true, "call again if it is still wanted"),
            Self::Lost => (
                Schedule,
                Unknown,
                true,
                "check the state, then call again if it is still wanted",
            ),
            Self::Timeout => (
                Execute,
                Unknown,
                true,
                "use a longer timeout or the background",
            ),
            Self::SpawnFailed => (Execute, No, true, "check that the program exists"),
            Self::SandboxUnavailable => (
                Execute,
                No,
                false,
                "the user has to make a sandbox available",
            ),
            Self::SandboxViolation => (
                Execute,
                Unknown,
                false,
                "stay inside what the sandbox allows",
            ),
            Self::ExitNonzero => (Execute, Yes, true, "read the output"),
            Self::OutputLimit => (Execute, Unknown, true, "produce less output"),
            Self::IoError => (Execute, Unknown, true, "check the path and the disk"),
            Self::NetworkFailed => (Execute, No, true, "check the address, or try again later"),
            Self::InternalError => (
                Execute,
                Unknown,
                true,
                "call again; the failure is recorded",
            ),
        };
        CodeFacts {
            phase,
            action_happened,
            retryable,
            recovery,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_happened_before_execution() {
        for code in Code::ALL {
            let facts = code.facts();
            assert!(!facts.recovery.is_empty());
            if matches!(
                facts.phase,
                Phase::Lookup | Phase::Validate | Phase::Permission
            ) {
                assert_eq!(facts.action_happened, ActionHappened::No, "{code}");
            }
        }
    }
}
