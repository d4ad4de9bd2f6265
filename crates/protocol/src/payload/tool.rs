//! One tool call, from intent to observation, and the catalogue it was chosen from.

use serde_json::Value;

use crate::code::{ActionHappened, Code, Phase};
use crate::id::{ActionId, ArtifactId, IntentId, InvocationId, ModelRequestId, ObservationId};
use crate::payload::model::Trust;
use crate::payload::plan::PlanItem;
use crate::payload::{ArtifactRef, SideEffect};
use crate::record::{record, words};
use crate::status::Mode;

record! {
    /// The tools a turn can use, as a fact and as an artifact.
    ToolCatalogResolved {
        catalog_hash: String,
        catalog_ref: ArtifactId,
        mode: Mode,
        tools*: CatalogEntry,
        diff?: CatalogDiff,
    }
}

words! {
    /// Home of a tool's code.
    RuntimeOwner {
        Local = "local",
        McpServer = "mcp_server",
        HostedConnector = "hosted_connector",
        ProviderNative = "provider_native",
        Workflow = "workflow",
        Subagent = "subagent",
        Skill = "skill",
        Extension = "extension",
    }
}

words! {
    /// The forecast for a tool in this mode; each call is still decided on its own.
    CatalogPolicy {
        Unavailable = "unavailable",
        Denied = "denied",
        Ask = "ask",
        Sandboxed = "sandboxed",
        Allowed = "allowed",
    }
}

words! {
    /// Resource that a tool can touch.
    Capability {
        Custom = "custom",
        Read = "read",
        Write = "write",
        Network = "network",
        Browser = "browser",
        Filesystem = "filesystem",
        Shell = "shell",
        Artifact = "artifact",
    }
}

words! {
    /// The kinds of risk a tool carries.
    Risk {
        Read = "read",
        Write = "write",
        Execute = "execute",
        Network = "network",
        Delegate = "delegate",
    }
}

words! {
    /// Beside what a tool may run.
    Concurrency {
        /// Beside nothing.
        Exclusive = "exclusive",
        /// Beside calls with another key.
        Keyed = "keyed",
        /// Beside any other safe call.
        Safe = "safe",
    }
}

words! {
    /// Effect of new input on a running call. All tools of this program block: an input that steers joins the turn
    /// after the call, and only an interrupt ends a call early.
    InterruptBehavior {
        /// The call finishes first.
        Block = "block",
        /// The call is cancelled.
        Cancel = "cancel",
    }
}

record! {
    /// A tool as the model could see it.
    CatalogEntry {
        tool_name: String,
        version: String,
        definition_hash: String,
        description?: String,
        input_schema?: Value,
        capabilities*: Capability,
        risk*: Risk,
        policy: CatalogPolicy,
        runtime_owner: RuntimeOwner,
        is_read_only: bool,
        is_concurrency_safe: bool,
        concurrency: Concurrency,
        is_destructive: bool,
        interrupt_behavior: InterruptBehavior,
        max_result_chars: u64,
        needs_sandbox: bool,
        output?: String,
        metadata_ref?: ArtifactId,
        /// Reason why it cannot be used, as the end of a sentence; `policy` is `unavailable` then.
        unavailable_because?: String,
    }
}

record! {
    /// Difference of a catalogue to the one before.
    CatalogDiff {
        added*: String,
        removed*: String,
        changed*: String,
        /// The added and changed ones that cannot be used.
        unavailable*: UnavailableTool,
    }
}

record! {
    /// A tool that cannot be used, and why.
    UnavailableTool {
        tool_name: String,
        reason: String,
    }
}

record! {
    /// The model asked for a tool. Nothing has happened yet.
    ToolIntent {
        intent_id: IntentId,
        /// The tool's own name; the name as asked when there is no such tool.
        tool_name: String,
        /// The name the model used, when it is an alias.
        requested_name?: String,
        tool_version?: String,
        definition_hash?: String,
        raw_input?: Value,
        raw_input_ref?: ArtifactId,
        /// The input in the tool's own words, when the model used those of another program.
        own_input?: Value,
        own_input_ref?: ArtifactId,
        /// SHA-256 of the argument text exactly as it came.
        raw_input_sha256: String,
        /// Reason that the model gave; shown, never used to decide.
        reason?: String,
        provider_call_id?: String,
        model_request_id?: ModelRequestId,
        assembled_from_chunks?: u64,
    }
}

impl ToolIntent {
    /// The input in the tool's own words, unless it lies in an artifact.
    #[must_use]
    pub fn input(&self) -> Option<&Value> {
        let is_own = self.own_input.is_some() || self.own_input_ref.is_some();
        if is_own {
            self.own_input.as_ref()
        } else {
            self.raw_input.as_ref()
        }
    }

    /// The artifact with the input in the tool's own words.
    #[must_use]
    pub fn input_ref(&self) -> Option<&ArtifactId> {
        let is_own = self.own_input.is_some() || self.own_input_ref.is_some();
        if is_own {
            self.own_input_ref.as_ref()
        } else {
            self.raw_input_ref.as_ref()
        }
    }
}

words! {
    /// Check that failed or passed.
    ValidationLayer {
        Lookup = "lookup",
        Visibility = "visibility",
        Schema = "schema",
        Runtime = "runtime",
    }
}

record! {
    /// Validation of an intent.
    ToolValidation {
        intent_id: IntentId,
        ok: bool,
        layer: ValidationLayer,
        code?: Code,
        errors*: ValidationError,
        recovery?: String,
    }
}

record! {
    /// One thing that is wrong with an input.
    ValidationError {
        /// JSON pointer into the input; empty for the whole.
        path: String,
        message: String,
    }
}

record! {
    /// The input as it will be used.
    ToolArgs {
        safe_args?: Value,
        args_ref?: ArtifactId,
        args_sha256: String,
        changed_by_hook?: bool,
        normalised_paths*: String,
    }
}

record! {
    /// Execution begins.
    ToolStarted {
        invocation_id: InvocationId,
        intent_id: IntentId,
        tool_name: String,
        /// Code that runs it, by class (`fs`, `process`, `external`), e.g. `process:bash@1+workspace`.
        executor: String,
        args_ref?: ArtifactId,
        args_sha256: String,
        cwd: String,
        timeout_ms?: u64,
        sandboxed: bool,
        /// The `permission.evaluated` or `permission.resolved` event that let it through.
        permission_ref: String,
        action_id?: ActionId,
        sandbox_ref?: String,
        flags: CallFlags,
        plan: ExecutionPlanFacts,
    }
}

record! {
    /// Properties of a call.
    CallFlags {
        is_read_only: bool,
        is_destructive: bool,
        is_concurrency_safe: bool,
        interrupt_behavior: InterruptBehavior,
    }
}

record! {
    /// Schedule of the call.
    ExecutionPlanFacts {
        concurrency: Concurrency,
        lock_key?: String,
        waited_ms: u64,
        background: bool,
        cancellable: bool,
        streams_progress: bool,
        /// True if the same call again would do no harm, however this one ends: it only reads.
        retryable?: bool,
    }
}

words! {
    /// State of a call that has not ended.
    ProgressStatus {
        Queued = "queued",
        Running = "running",
    }
}

record! {
    /// A call waits, or is still running.
    ToolProgress {
        phase: Phase,
        status: ProgressStatus,
        elapsed_ms: u64,
        bytes?: u64,
        lines?: u64,
        percent?: f64,
        preview?: String,
        lock_key?: String,
        waited_ms?: u64,
    }
}

words! {
    /// Exit of the executor.
    ToolExit {
        Error = "error",
        Ok = "ok",
        Cancelled = "cancelled",
        Timeout = "timeout",
    }
}

record! {
    /// The executor gave a result, also one that is not a success.
    ToolResult {
        invocation_id: InvocationId,
        exit: ToolExit,
        ok: bool,
        code: Code,
        result_ref?: ArtifactId,
        preview?: String,
        artifact_refs*: ArtifactRef,
        evidence_refs*: String,
        side_effects*: SideEffect,
        /// Facts of this tool: baseline, exit code, matches and the like.
        data: ToolData,
        truncated: bool,
        omitted_bytes: u64,
        metrics: ToolMetrics,
    }
}

record! {
    /// Facts that only some tools have.
    ToolData {
        path?: String,
        baseline?: Baseline,
        /// Of a call that is about several files.
        baselines?: Vec<Baseline>,
        encoding?: String,
        line_ending?: String,
        offset?: u64,
        limit?: u64,
        lines?: u64,
        total_lines?: u64,
        exit_code?: i32,
        /// As in `process.completed`.
        pipe_status?: Vec<i32>,
        signal?: i32,
        cwd_after?: String,
        matches?: u64,
        files?: u64,
        returned?: u64,
        skipped*: SkippedFiles,
        replacements?: u64,
        lines_added?: u64,
        lines_removed?: u64,
        process_id?: String,
        process_status?: String,
        background?: bool,
        other_names?: u64,
        /// Of a call that asked somebody on the network.
        web?: WebFacts,
        /// The whole list of things to do after the call.
        plan?: Vec<PlanItem>,
        /// A fact no other field has room for.
        note?: String,
    }
}

record! {
    /// A page, and who answered with it.
    WebFacts {
        /// Where it was in the end.
        url: String,
        host: String,
        /// Number of the machine that was connected to; not known of one behind a proxy.
        machine?: String,
        status?: u16,
        media_type?: String,
        bytes: u64,
        /// Addresses at the same host that led there.
        redirects*: String,
        /// Where the page is said to be, at another host; nobody was asked there.
        elsewhere?: String,
        /// Characters of its text.
        characters?: u64,
    }
}

record! {
    /// Files a search did not look at, and why.
    SkippedFiles {
        reason: String,
        count: u64,
    }
}

record! {
    /// A file as it was when it was read or written.
    Baseline {
        path: String,
        size: u64,
        mtime_ms?: i64,
        sha256: String,
        /// The lines that were shown, e.g. `1-2000`.
        range?: String,
    }
}

record! {
    /// Duration of a call and size of its output.
    ToolMetrics {
        started_at: crate::Timestamp,
        ended_at: crate::Timestamp,
        duration_ms: u64,
        output_bytes: u64,
    }
}

record! {
    /// The call ended without a result.
    ToolFailed {
        invocation_id?: InvocationId,
        exit?: ToolExit,
        phase: Phase,
        /// Category of the failure, e.g. `validation`, `permission`, `process`, `io`.
        category: String,
        code: Code,
        message: String,
        retryable: bool,
        recovery: String,
        action_happened: ActionHappened,
        partial_refs*: ArtifactRef,
        side_effects*: SideEffect,
    }
}

words! {
    /// Format of the text of a content block.
    ContentFormat {
        Text = "text",
        Json = "json",
        Diff = "diff",
        Image = "image",
        ArtifactRef = "artifact_ref",
    }
}

record! {
    /// A piece of content with what may be believed of it.
    ContentBlock {
        trust: Trust,
        format: ContentFormat,
        /// Source of the text, e.g. `file src/a.rs`, `stderr`.
        source?: String,
        /// The content; of a long one the beginning and the end, with a mark between them.
        text?: String,
        /// Bytes of the content that `text` leaves out.
        omitted_bytes?: u64,
        artifact?: ArtifactId,
        media_type?: String,
    }
}

record! {
    /// Way to read what was left out.
    ReadMore {
        tool: String,
        input_hint: Value,
    }
}

record! {
    /// Part of a result that model and user see.
    ToolObservation {
        observation_id: ObservationId,
        intent_id: IntentId,
        invocation_id?: InvocationId,
        tool_name: String,
        ok: bool,
        phase: Phase,
        code: Code,
        title: String,
        summary: String,
        model_text?: String,
        model_text_ref?: ArtifactId,
        user_text: String,
        content*: ContentBlock,
        preview?: String,
        truncated: bool,
        omitted_bytes: u64,
        artifact_refs*: ArtifactRef,
        side_effects*: SideEffect,
        action_happened: ActionHappened,
        retryable: bool,
        recovery?: String,
        read_more?: ReadMore,
        facts: ObservationFacts,
    }
}

record! {
    /// The structured facts beside the text.
    ObservationFacts {
        exit_code?: i32,
        signal?: i32,
        duration_ms?: u64,
        output_bytes?: u64,
        errors*: ValidationError,
        permission?: PermissionFacts,
        sandbox?: String,
        data: ToolData,
    }
}

record! {
    /// Permission under which the call ran or was stopped.
    PermissionFacts {
        decision: String,
        source: String,
        reason: String,
        rule?: String,
        note?: String,
    }
}

record! {
    /// Output went to an artifact because it was large.
    OutputSpilled {
        artifact_id: ArtifactId,
        bytes: u64,
        threshold: u64,
    }
}

words! {
    /// Part of a long output that was kept.
    TruncationStrategy {
        Head = "head",
        HeadTail = "head_tail",
        ErrorWindow = "error_window",
    }
}

record! {
    /// A part of the output is not shown.
    OutputTruncated {
        shown_bytes: u64,
        omitted_bytes: u64,
        strategy: TruncationStrategy,
        artifact_id?: ArtifactId,
    }
}

words! {
    /// Place of a masked value.
    RedactionTarget {
        Artifact = "artifact",
        ModelText = "model_text",
        UserText = "user_text",
        Args = "args",
        Prompt = "prompt",
        ModelOutput = "model_output",
        Event = "event",
    }
}

record! {
    /// Secrets were masked before anything was written, shown or sent.
    OutputRedacted {
        rule: String,
        count: u64,
        target: RedactionTarget,
        /// The placeholders that stand in their place.
        placeholders*: String,
        /// The type of the event that was masked.
        event_type?: String,
    }
}

record! {
    /// An artifact was removed by retention or by the user.
    OutputExpired {
        artifact_id: ArtifactId,
        retention_rule: String,
        bytes?: u64,
    }
}
