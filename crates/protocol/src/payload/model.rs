//! Model requests and answers: what was sent, what came back, what it cost, and what was in context.

use crate::id::{
    ActionId, ArtifactId, ContextId, EvidenceId, ModelRequestId, ProcessId, ToolCallId, TurnId,
};
use crate::payload::Usage;
use crate::record::{record, words};

words! {
    /// Purpose of a request whose answer is no part of the conversation.
    RequestPurpose {
        /// The summary that compaction puts in place of older history.
        Summary = "summary",
    }
}

record! {
    /// One attempt to ask a model went on the wire.
    ModelRequested {
        /// Counts the model requests of the session from 1.
        request_no: u64,
        /// Counts the attempts of this request from 1.
        attempt: u64,
        provider: String,
        model: String,
        /// The wire dialect: `openai-chat`, `openai-responses`, `anthropic-messages` or `scripted`.
        strategy: String,
        model_request_id: ModelRequestId,
        tool_catalog_ref?: ArtifactId,
        tool_catalog_hash?: String,
        context_ref?: ContextId,
        /// The exact bytes that were sent; missing when that is switched off.
        input_ref?: ArtifactId,
        /// SHA-256 of the exact bytes that were sent.
        input_hash: String,
        input_bytes: u64,
        prompt_evidence: PromptEvidence,
        options: ModelOptions,
        /// Missing when the answer becomes a part of the conversation.
        purpose?: RequestPurpose,
    }
}

record! {
    /// A summary of the prompt that holds none of its text.
    PromptEvidence {
        render_mode: String,
        profile?: String,
        prompt_hash: String,
        message_count: u64,
        roles*: String,
        modalities*: String,
        text_parts: u64,
        image_parts: u64,
        media_count: u64,
    }
}

record! {
    /// Options of a model request.
    ModelOptions {
        max_output_tokens?: u64,
        temperature?: f64,
        tool_choice?: String,
        reasoning_effort?: String,
        /// `false` when images were left out because the model cannot see them.
        images?: bool,
    }
}

record! {
    /// Text as it streamed in, coalesced.
    ModelDelta {
        model_request_id: ModelRequestId,
        /// Bytes of text before this piece.
        index: u64,
        text: String,
    }
}

record! {
    /// The model's answer is whole.
    ModelCompleted {
        model_request_id: ModelRequestId,
        stop_reason: String,
        text?: String,
        text_ref?: ArtifactId,
        tool_call_ids*: ToolCallId,
        usage: Usage,
        request_id?: String,
        provider?: String,
        latency_ms: u64,
        first_token_ms?: u64,
        /// Data that has to be sent back with the next request, e.g. signed reasoning.
        continuation_ref?: ArtifactId,
    }
}

words! {
    /// Kind of failure of a model request.
    ModelFailureKind {
        Unknown = "unknown",
        Auth = "auth",
        RateLimit = "rate_limit",
        Quota = "quota",
        Timeout = "timeout",
        Overloaded = "overloaded",
        ServerError = "server_error",
        BadRequest = "bad_request",
        ContextLength = "context_length",
        StreamInterrupted = "stream_interrupted",
        Malformed = "malformed",
        MalformedToolCall = "malformed_tool_call",
        Refused = "refused",
        Unsupported = "unsupported",
        Network = "network",
        Tls = "tls",
        Cancelled = "cancelled",
    }
}

record! {
    /// An attempt to ask a model failed.
    ModelFailed {
        model_request_id: ModelRequestId,
        attempt: u64,
        kind: ModelFailureKind,
        http_status?: u16,
        retryable: bool,
        request_id?: String,
        message: String,
        hint?: String,
        retry_in_ms?: u64,
        /// Text that had arrived before the failure.
        partial_text?: String,
        /// Provider that the request went to.
        provider?: String,
        /// Most attempts that are made.
        max_attempts?: u64,
        /// Usage of an answer that cannot be used, such as one that was cut inside a call.
        usage?: Usage,
    }
}

impl ModelFailed {
    /// Failure and time of the next attempt, in one line; nothing when there is none.
    #[must_use]
    pub fn retry_in_words(&self) -> Option<String> {
        let wait = self.retry_in_ms?;
        let who = self.provider.as_deref().unwrap_or("the model");
        let what = match (self.kind, self.http_status) {
            (ModelFailureKind::RateLimit, _) => format!("Rate limited by {who}"),
            (ModelFailureKind::Overloaded, _) => format!("{who} is overloaded"),
            (ModelFailureKind::ServerError, Some(status)) => {
                format!("{who} returned a server error ({status})")
            }
            (ModelFailureKind::ServerError, None) => format!("{who} returned a server error"),
            (ModelFailureKind::Timeout, _) => format!("{who} did not answer in time"),
            (ModelFailureKind::Network, _) => format!("{who} cannot be reached"),
            (ModelFailureKind::StreamInterrupted, _) => {
                format!("The connection to {who} dropped")
            }
            _ => format!("{who}: {}", self.message),
        };
        let tries = match self.max_attempts {
            Some(most) => format!(" ({} of {most})", self.attempt + 1),
            None => String::new(),
        };
        let seconds = (wait.saturating_add(500) / 1000).max(1);
        Some(format!("{what}; retrying in {seconds} s{tries}"))
    }
}

record! {
    /// Reasoning as it streamed in, coalesced.
    ReasoningDelta {
        model_request_id: ModelRequestId,
        index: u64,
        bytes: u64,
        text?: String,
    }
}

record! {
    /// The model's reasoning, apart from its answer.
    ReasoningSummary {
        model_request_id: ModelRequestId,
        text?: String,
        text_ref?: ArtifactId,
    }
}

words! {
    /// Part of a source that is in the model input.
    ContextMode {
        Reference = "reference",
        Summary = "summary",
        Excerpt = "excerpt",
        Full = "full",
    }
}

words! {
    /// Trust in content.
    Trust {
        /// Output of a tool: data, never an instruction.
        ToolOutputUntrusted = "tool_output_untrusted",
        /// Instructions found in the project.
        ProjectInstructions = "project_instructions",
        /// Earlier output of the model.
        Model = "model",
        /// Input of the user.
        User = "user",
        /// Text of this program.
        System = "system",
    }
}

record! {
    /// Content of the next model input, decided before it is sent.
    ContextResolved {
        context_id: ContextId,
        model_request_no: u64,
        included*: ContextItem,
        omitted*: ContextOmission,
        missing*: MissingFact,
        memory_refs*: String,
        source_refs*: String,
        /// Every file whose content is in the input, with the lines that are.
        file_refs*: FileRef,
        /// Sessions whose history the input goes on from: the parent of a fork. A browser is not applicable.
        session_refs*: String,
        policy_facts: PolicyFacts,
        instruction_refs*: FileRef,
        budget: ContextBudget,
        /// SHA-256 of the neutral form of the input.
        input_hash: String,
    }
}

record! {
    /// A part of the model input.
    ContextItem {
        source: String,
        reference?: String,
        mode: ContextMode,
        trust: Trust,
        /// An estimate.
        tokens: u64,
        reason?: String,
    }
}

record! {
    /// Something that was left out of the model input.
    ContextOmission {
        source: String,
        reference?: String,
        reason: String,
    }
}

record! {
    /// A fact the model input should hold and does not.
    MissingFact {
        fact: String,
        /// `unknown`, `unavailable`, `stale` or `blocked`.
        status: String,
    }
}

record! {
    /// A file as it was when it was used.
    FileRef {
        path: String,
        sha256: String,
        range?: String,
    }
}

record! {
    /// The policy in force when the input was made.
    PolicyFacts {
        mode: String,
        sandbox: String,
        on_ask?: String,
    }
}

record! {
    /// Tokens of a model input; estimates until the provider has counted.
    ContextBudget {
        window_tokens?: u64,
        estimated_tokens: u64,
        /// The provider's own count of the last input.
        last_input_tokens?: u64,
        cached_tokens?: u64,
    }
}

words! {
    /// Reason why history is compacted.
    CompactionTrigger {
        Threshold = "threshold",
        User = "user",
        ContextLength = "context_length",
    }
}

record! {
    /// Compaction begins.
    ContextCompactionStarted {
        trigger: CompactionTrigger,
        turns*: TurnId,
        tokens_before: u64,
    }
}

record! {
    /// Older history is now represented by a fact sheet and a summary.
    ContextCompactionCompleted {
        trigger: CompactionTrigger,
        turns*: TurnId,
        summary_ref: ArtifactId,
        summary_preview: String,
        preserved: Preserved,
        dropped*: String,
        /// The event up to which history is summarised.
        up_to_sequence: u64,
        /// The `context_id` of the next model input, the first without that history.
        continuation_ref?: String,
        tokens_before: u64,
        tokens_after: u64,
        /// True if the prose came from the model; otherwise the fact sheet stands alone.
        summarised_by_model: bool,
        /// Bytes at the end of the summary that a model wrote; the rest is the fact sheet.
        prose_bytes?: u64,
        outcome?: CompactionOutcome,
        /// Reason why there is no prose, when the outcome is `degraded`.
        error?: String,
    }
}

words! {
    /// Outcome of a compaction that took place.
    CompactionOutcome {
        /// Without a summary: the fact sheet stands alone.
        Degraded = "degraded",
        Completed = "completed",
    }
}

record! {
    /// Content that compaction never drops.
    Preserved {
        action_ids*: ActionId,
        incidents*: String,
        evidence_ids*: EvidenceId,
        /// Inputs of the user that the fact sheet repeats word for word, also those that joined a running turn.
        requests*: TurnId,
        /// Inputs of the user of which it has a part, and the artifact that has all of it.
        excerpts*: ExcerptedInput,
        /// Commands that go on in the background.
        process_ids*: ProcessId,
    }
}

record! {
    /// An input of the user that is too long to be repeated.
    ExcerptedInput {
        turn_id: TurnId,
        /// The whole text, or the texts of several inputs.
        artifact: ArtifactId,
        bytes: u64,
        shown_bytes: u64,
    }
}

record! {
    /// Compaction was given up; history is as before. It ends a compaction, as `completed` does, and never both.
    ContextCompactionFailed {
        trigger: CompactionTrigger,
        error: String,
        retryable: bool,
    }
}

record! {
    /// Requirements of a task for a model.
    TaskProfileResolved {
        kind: String,
        required_capabilities*: String,
        latency?: String,
        budget_class?: String,
        source: String,
    }
}

record! {
    /// A provider and a model.
    ModelChoice {
        provider: String,
        model: String,
    }
}

record! {
    /// A model that could serve, or why it cannot.
    RoutingCandidate {
        provider: String,
        model: String,
        capabilities*: String,
        excluded_reason?: String,
    }
}

record! {
    /// The models that were thought of; one with `excluded_reason` cannot serve.
    RoutingCandidatesResolved {
        candidates*: RoutingCandidate,
        /// Of those that can serve.
        count: u64,
    }
}

record! {
    /// The model that was chosen.
    RoutingDecided {
        requested: ModelChoice,
        selected: ModelChoice,
        reason: String,
        /// Setting that decided: `flag`, `environment`, `config`, `detected`, `default`.
        source: String,
        /// Of those that can serve.
        candidate_count: u64,
        fallback_chain*: ModelChoice,
        limit_state?: String,
    }
}

record! {
    /// Another model took over.
    RoutingFallbackApplied {
        from: ModelChoice,
        to: ModelChoice,
        reason: String,
        /// The `model.failed` event that was the reason.
        error_ref?: String,
    }
}

record! {
    /// No model can serve.
    RoutingNotPossible {
        missing*: String,
        required_action: String,
    }
}

record! {
    /// Only one model can serve.
    RoutingSingleCandidate {
        selected: ModelChoice,
        capability_gap?: String,
    }
}

record! {
    /// Upper estimate of the cost of a request.
    CostEstimated {
        model_request_id: ModelRequestId,
        amount?: f64,
        currency: String,
        basis: String,
    }
}

record! {
    /// Cost of a request; a missing amount means unknown, not free.
    CostRecorded {
        model_request_id: ModelRequestId,
        usage: Usage,
        amount?: f64,
        currency: String,
        price_source: String,
        session_total?: f64,
    }
}

record! {
    /// The provider said to slow down.
    RateLimitHit {
        provider: String,
        model_request_id?: ModelRequestId,
        retry_after_ms?: u64,
        scope?: String,
    }
}

words! {
    /// Limited quantity.
    LimitKind {
        Policy = "policy",
        Steps = "steps",
        Tokens = "tokens",
        Cost = "cost",
        Time = "time",
    }
}

record! {
    /// A ceiling was set or changed.
    LimitChanged {
        limit: LimitKind,
        old?: f64,
        new?: f64,
        source: String,
    }
}

record! {
    /// A ceiling is near.
    QuotaLow {
        limit: LimitKind,
        remaining: f64,
    }
}

record! {
    /// A ceiling stops the work.
    QuotaBlocked {
        limit: LimitKind,
        required_action: String,
    }
}
