//! Decisions: what the gate said and why, what a person was asked, what a hook did.

use serde_json::Value;

use crate::Timestamp;
use crate::id::{ActionId, ArtifactId};
use crate::record::{record, words};
use crate::status::Mode;

words! {
    /// What the gate says.
    Effect {
        Ask = "ask",
        Allow = "allow",
        Deny = "deny",
    }
}

words! {
    /// What kind of action a call is.
    ActionClass {
        Dangerous = "dangerous",
        Execute = "execute",
        Modify = "modify",
        Search = "search",
        Observe = "observe",
    }
}

words! {
    /// What decided.
    DecisionSource {
        Default = "default",
        Mode = "mode",
        Rule = "rule",
        Hook = "hook",
        Classifier = "classifier",
        PathBoundary = "path_boundary",
        ProtectedPath = "protected_path",
        CircuitBreaker = "circuit_breaker",
        SessionGrant = "session_grant",
        Sandbox = "sandbox",
        HostPolicy = "host_policy",
        Human = "human",
        Policy = "policy",
        Timeout = "timeout",
        Cancel = "cancel",
    }
}

words! {
    /// Where a rule or setting comes from, strongest first.
    Layer {
        BuiltIn = "built_in",
        User = "user",
        Project = "project",
        ProjectLocal = "project_local",
        Environment = "environment",
        CommandLine = "command_line",
        Session = "session",
        Managed = "managed",
    }
}

record! {
    /// Where a rule stands.
    RuleOrigin {
        layer: Layer,
        file?: String,
        line?: u64,
    }
}

record! {
    /// A rule that matched.
    MatchedRule {
        rule: String,
        effect: Effect,
        origin: RuleOrigin,
        /// The part of the call it matched.
        on?: String,
    }
}

record! {
    /// What the shell parser found.
    CommandParse {
        ok: bool,
        /// Each simple command's words, after unwrapping.
        commands*: ParsedCommand,
        redirects*: String,
        read_only: bool,
        why_not_proven?: String,
    }
}

record! {
    /// One simple command.
    ParsedCommand {
        words*: String,
        /// The programs it was unwrapped from, e.g. `timeout`.
        wrappers*: String,
        /// Whether a word is only known when the command runs.
        dynamic: bool,
    }
}

record! {
    /// The gate decided.
    PermissionEvaluated {
        decision: Effect,
        action_class: ActionClass,
        risk*: String,
        decision_source: DecisionSource,
        reason: String,
        rule_refs*: String,
        matched*: MatchedRule,
        parse?: CommandParse,
        mode: Mode,
        suggested_rule?: String,
        /// What the decision holds for: tool, input, paths, baselines and sandbox, hashed.
        binding?: String,
        /// The facts the gate decided from, for back-testing a rule set.
        resources*: Resource,
    }
}

words! {
    /// What a call does to a resource.
    Access {
        Write = "write",
        Read = "read",
        Execute = "execute",
        Connect = "connect",
    }
}

record! {
    /// Something a call touches.
    Resource {
        access: Access,
        given: String,
        resolved?: String,
    }
}

record! {
    /// A person is asked.
    PermissionRequested {
        action_id: ActionId,
        risk_facts*: String,
        expires_at?: Timestamp,
    }
}

/// The rules that an answer for all edits of a session adds: files of the project, protected ones not. The
/// first one names the answer.
pub const SESSION_EDITS: [&str; 2] = ["edit(**)", "write(**)"];

words! {
    /// How long an answer holds.
    GrantScope {
        Once = "once",
        Session = "session",
        ProjectLocal = "project_local",
        User = "user",
    }
}

record! {
    /// The question was answered.
    PermissionResolved {
        /// `allow` or `deny`.
        decision: Effect,
        decision_source: DecisionSource,
        scope: GrantScope,
        action_id: ActionId,
        rule_saved?: String,
        note?: String,
    }
}

words! {
    /// What kind of answer is needed.
    ActionType {
        ToolPermission = "tool_permission",
        Question = "question",
        Plan = "plan",
        Trust = "trust",
    }
}

words! {
    /// The answers one can give.
    ActionDecision {
        Deny = "deny",
        AllowOnce = "allow_once",
        AllowSession = "allow_session",
        Abort = "abort",
        Answer = "answer",
    }
}

record! {
    /// Work is paused until somebody answers.
    ActionRequired {
        action_type: ActionType,
        title: String,
        prompt: String,
        risk_facts*: String,
        tool_name?: String,
        safe_args?: Value,
        diff_ref?: ArtifactId,
        decisions*: ActionDecision,
        schema?: Value,
        timeout_ms?: u64,
        policy?: String,
        suggested_rule?: String,
        /// Hash of tool and arguments: the same question has the same key.
        approval_key?: String,
        cwd?: String,
    }
}

impl ActionRequired {
    /// From when on no answer counts, if the question was put at `asked_at`.
    #[must_use]
    pub fn expires_at(&self, asked_at: Timestamp) -> Option<Timestamp> {
        let wait = i64::try_from(self.timeout_ms?).unwrap_or(i64::MAX);
        let end = asked_at.unix_millis().saturating_add(wait);
        Some(Timestamp::from_unix_millis(end))
    }
}

words! {
    /// Who answered.
    DecidedBy {
        Policy = "policy",
        User = "user",
        Timeout = "timeout",
        Cancel = "cancel",
    }
}

record! {
    /// Somebody answered; work goes on or ends.
    ActionResolved {
        decision: ActionDecision,
        decided_by: DecidedBy,
        /// A note to the model, an edited input, or a structured answer.
        payload?: ActionAnswer,
        scope: GrantScope,
        latency_ms: u64,
    }
}

record! {
    /// What came with an answer.
    ActionAnswer {
        note?: String,
        edited_input?: Value,
        answer?: Value,
        saved_rule?: String,
    }
}

record! {
    /// Mode, rules or trust changed.
    PolicyChanged {
        scope: GrantScope,
        changed: PolicyChanges,
        by: DecidedBy,
        reason: String,
    }
}

record! {
    /// What changed in the policy; fields that did not are missing.
    PolicyChanges {
        mode?: Mode,
        rules_added*: String,
        rules_removed*: String,
        trusted_file?: String,
        trusted_hash?: String,
        ignored_grants?: u64,
    }
}

record! {
    /// A hook runs.
    HookStarted {
        hook_point: String,
        handler_ref: String,
        timeout_ms: u64,
    }
}

words! {
    /// What a hook decided.
    HookDecision {
        Block = "block",
        Continue = "continue",
        Allow = "allow",
        Deny = "deny",
        Ask = "ask",
    }
}

record! {
    /// A hook finished.
    HookCompleted {
        decision: HookDecision,
        duration_ms: u64,
        updated_input_ref?: ArtifactId,
        added_context_refs*: String,
    }
}

words! {
    /// What a hook's failure means.
    FailMode {
        Closed = "closed",
        Open = "open",
    }
}

record! {
    /// A hook failed.
    HookFailed {
        error: String,
        duration_ms: u64,
        fail_mode: FailMode,
    }
}
