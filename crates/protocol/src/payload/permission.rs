//! Decisions: what the gate said and why, what a person was asked, what a hook did.

use serde_json::Value;

use crate::Timestamp;
use crate::id::{ActionId, ArtifactId};
use crate::record::{record, words};
use crate::status::Mode;

words! {
    /// Decision of the gate.
    Effect {
        Ask = "ask",
        Allow = "allow",
        Deny = "deny",
    }
}

words! {
    /// Class of action that a call is.
    ActionClass {
        Dangerous = "dangerous",
        Execute = "execute",
        Modify = "modify",
        Search = "search",
        Observe = "observe",
    }
}

words! {
    /// Source of a decision.
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
    /// Layer that a rule or setting comes from, strongest first.
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
    /// File and line of a rule.
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
    /// Result of the shell parser.
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
        /// True if a word is only known when the command runs.
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
        /// Hash of everything the decision holds for: tool, input, paths, baselines and sandbox.
        binding?: String,
        /// The facts the gate decided from, for back-testing a rule set.
        resources*: Resource,
    }
}

words! {
    /// Access of a call to a resource.
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
pub const SESSION_EDITS: [&str; 3] = ["edit(**)", "write(**)", "apply_patch(**)"];

words! {
    /// Lifetime of an answer.
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
    /// Kind of answer that is needed.
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
    /// Work is paused until a question is answered.
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
    /// The plan that is asked about.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        let input = self.safe_args.as_ref();
        let plan = input.filter(|_| self.action_type == ActionType::Plan)?;
        plan.get("plan")?.as_str()
    }

    /// From when on no answer counts, if the question was put at `asked_at`.
    #[must_use]
    pub fn expires_at(&self, asked_at: Timestamp) -> Option<Timestamp> {
        let wait = i64::try_from(self.timeout_ms?).unwrap_or(i64::MAX);
        let end = asked_at.unix_millis().saturating_add(wait);
        Some(Timestamp::from_unix_millis(end))
    }
}

words! {
    /// Source of an answer.
    DecidedBy {
        Policy = "policy",
        User = "user",
        Timeout = "timeout",
        Cancel = "cancel",
    }
}

record! {
    /// A question was answered; work resumes or ends.
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
    /// Content that came with an answer.
    ActionAnswer {
        note?: String,
        edited_input?: Value,
        answer?: Value,
        saved_rule?: String,
        /// The mode that holds from then on, with an answer that allows.
        mode?: Mode,
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
    /// Changed fields of the policy; others are missing.
    PolicyChanges {
        mode?: Mode,
        rules_added*: String,
        rules_removed*: String,
        /// Directories outside the project that may be read, absolute and without links.
        directories_added?: Vec<String>,
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
    /// Decision of a hook.
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
    /// Consequence of a hook's failure.
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
