//! One event in words, the same for every reader: text replay, page, card, `agent why`, progress and screen.
//!
//! [`describe`] is a function of the event alone, and its `match` names every class: a class that is added to
//! the vocabulary does not compile until it has words here. A [`Description`] is values; how it looks is its
//! reader's business. Its text is safe to print: nothing in it acts on a terminal or hides, and nothing in it
//! is longer than a line of the log.

mod call;
mod command;
mod conversation;
mod decision;
mod model;
pub mod phrases;
mod record;
mod work;

use std::borrow::Cow;

use agent_protocol::id::ArtifactId;
use agent_protocol::payload::{UnknownPayload, UnknownReason};
use agent_protocol::{Event, Payload};

/// The most bytes of a text: a line of the log has no more, so that only what is not from a log is cut.
pub const MOST_TEXT: usize = 65_536;
/// The most bytes of a label.
pub const MOST_LABEL: usize = 256;

/// An event in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    pub kind: Kind,
    pub tone: Tone,
    pub level: Level,
    /// One or two words: the speaker, or the step.
    pub label: Cow<'static, str>,
    /// Title of the thing the event is about, where it has one of its own.
    pub subject: Option<String>,
    /// The event in one sentence or several lines.
    pub text: String,
    /// Artifact that has the whole text when the event has none of it.
    pub text_ref: Option<ArtifactId>,
    pub facts: Facts,
    /// Content that belongs to it: an input, an output, a diff.
    pub blocks: Vec<Block>,
}

/// Topic of an event, for filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Words of user and model.
    Conversation,
    /// Requests to tools and their results.
    Call,
    /// Decisions, with their makers and reasons.
    Decision,
    /// Changes in the project.
    Change,
    /// Commands and the boundary around them.
    Command,
    /// Checks, and claims held against the facts.
    Evidence,
    /// Requests, context, routing, cost.
    Model,
    /// Warnings and errors.
    Problem,
    /// Bookkeeping of the record itself.
    Record,
}

impl Kind {
    /// Every kind, in the order filters show them.
    pub const ALL: [Self; 9] = [
        Self::Conversation,
        Self::Call,
        Self::Decision,
        Self::Change,
        Self::Command,
        Self::Evidence,
        Self::Model,
        Self::Problem,
        Self::Record,
    ];

    /// The word for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Call => "call",
            Self::Decision => "decision",
            Self::Change => "change",
            Self::Command => "command",
            Self::Evidence => "evidence",
            Self::Model => "model",
            Self::Problem => "problem",
            Self::Record => "record",
        }
    }
}

/// Colour of an event; never the only way something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Warn,
    Bad,
}

impl Tone {
    /// The word for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// Importance of an event to a reader of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Bookkeeping.
    Record,
    /// A step of something larger.
    Detail,
    /// The story itself.
    Headline,
}

impl Level {
    /// The word for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Detail => "detail",
            Self::Headline => "headline",
        }
    }
}

/// A piece of content that belongs to an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub kind: BlockKind,
    /// Its name, e.g. `input`, `output`.
    pub title: Cow<'static, str>,
    /// The text; empty when only the artifact has it.
    pub text: String,
    pub artifact: Option<ArtifactId>,
    /// The text is the beginning and the end of the whole.
    pub is_cut: bool,
    /// A command printed it, so that its end tells most.
    pub is_printed: bool,
}

/// Reading of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Words of a person or a model.
    Prose,
    /// Output of a tool: data, never an instruction.
    Output,
    Diff,
    Json,
    /// Lines of `name: value`.
    Facts,
}

impl BlockKind {
    /// The word for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prose => "prose",
            Self::Output => "output",
            Self::Diff => "diff",
            Self::Json => "json",
            Self::Facts => "facts",
        }
    }
}

impl Block {
    fn new(kind: BlockKind, title: impl Into<Cow<'static, str>>, text: String) -> Self {
        Self {
            kind,
            title: title.into(),
            text,
            artifact: None,
            is_cut: false,
            is_printed: false,
        }
    }
}

/// Lines of `name: value`, for what is worth knowing but not worth a sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(String);

impl Facts {
    /// The facts, one per line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The facts one by one, as `name: value`.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }

    /// The value of a fact.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn add(mut self, name: &str, value: impl AsRef<str>) -> Self {
        let value = value.as_ref();
        if !value.is_empty() {
            if !self.0.is_empty() {
                self.0.push('\n');
            }
            self.0.push_str(name);
            self.0.push_str(": ");
            // A line break in a value would begin another fact.
            if value.contains('\n') {
                self.0.push_str(&value.replace('\n', " "));
            } else {
                self.0.push_str(value);
            }
        }
        self
    }

    fn maybe(self, name: &str, value: Option<&str>) -> Self {
        self.add(name, value.unwrap_or_default())
    }

    fn list(self, name: &str, values: &[String]) -> Self {
        if values.is_empty() {
            return self;
        }
        self.add(name, values.join(", "))
    }
}

impl Description {
    fn new(
        kind: Kind,
        level: Level,
        label: impl Into<Cow<'static, str>>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            tone: Tone::Plain,
            level,
            label: label.into(),
            subject: None,
            text: text.into(),
            text_ref: None,
            facts: Facts::default(),
            blocks: Vec::new(),
        }
    }

    fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    fn block(
        mut self,
        kind: BlockKind,
        title: impl Into<Cow<'static, str>>,
        text: impl Into<String>,
    ) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.blocks.push(Block::new(kind, title, text));
        }
        self
    }

    fn facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    /// Label and text in one line: `warning: the disk is nearly full`.
    #[must_use]
    pub fn line(&self) -> String {
        let line = format!("{}: {}", self.label, self.text);
        agent_text::visible_line(&line).into_owned()
    }

    /// Puts the whole text, read from its artifact, in place of the few words that name it.
    pub fn set_text(&mut self, mut text: String) {
        make_visible(&mut text);
        self.text = text;
    }

    /// The blocks, and the facts as the last of them.
    pub fn blocks_and_facts(&self) -> impl Iterator<Item = Cow<'_, Block>> {
        let facts = (!self.facts.is_empty())
            .then(|| Block::new(BlockKind::Facts, "facts", self.facts.0.clone()));
        self.blocks
            .iter()
            .map(Cow::Borrowed)
            .chain(facts.map(Cow::Owned))
    }

    /// The same with nothing in it that hides or acts on a terminal, and nothing longer than a line of a log.
    fn made_safe(mut self) -> Self {
        if let Cow::Owned(label) = agent_text::visible_line(&self.label) {
            self.label = Cow::Owned(label);
        }
        if self.label.len() > MOST_LABEL {
            cut(self.label.to_mut(), MOST_LABEL);
        }
        if let Some(subject) = &mut self.subject {
            if let Cow::Owned(line) = agent_text::visible_line(subject) {
                *subject = line;
            }
            cut(subject, MOST_TEXT);
        }
        make_safe(&mut self.text);
        make_safe(&mut self.facts.0);
        for block in &mut self.blocks {
            if let Cow::Owned(title) = agent_text::visible_line(&block.title) {
                block.title = Cow::Owned(title);
            }
            if block.title.len() > MOST_LABEL {
                cut(block.title.to_mut(), MOST_LABEL);
            }
            make_safe(&mut block.text);
        }
        self
    }
}

fn make_visible(text: &mut String) {
    if let Cow::Owned(visible) = agent_text::visible_lines(text) {
        *text = visible;
    }
}

fn make_safe(text: &mut String) {
    make_visible(text);
    cut(text, MOST_TEXT);
}

/// Cuts a text to about `most` bytes, with a mark that says so.
fn cut(text: &mut String, most: usize) {
    const MARK: &str = "[… cut]";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
}

/// The words of one event.
#[must_use]
pub fn describe(event: &Event) -> Description {
    let mut description = describe_payload(&event.payload);
    let is_of_subagent = event.scope.subagent_id.is_some();
    if is_of_subagent && description.level == Level::Headline && !names_subagent(&event.payload) {
        description.text.insert_str(0, "(sub-agent) ");
    }
    if description.label.is_empty() {
        description.label = description.kind.as_str().into();
    }
    if description.text.is_empty() {
        description.text.push_str("(nothing recorded)");
    }
    description.made_safe()
}

/// True if an event is about a sub-agent as a whole, and says so itself.
fn names_subagent(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::SubagentSpawned(_) | Payload::SubagentCompleted(_) | Payload::SubagentFailed(_)
    )
}

/// Names every class, and has no arm for the rest.
fn describe_payload(payload: &Payload) -> Description {
    match payload {
        Payload::SessionCreated(payload) => record::session_created(payload),
        Payload::SessionUpdated(payload) => record::session_updated(payload),
        Payload::ThreadStarted(payload) => record::thread_started(payload),
        Payload::ThreadUpdated(payload) => record::thread_updated(payload),
        Payload::TurnSubmitted(payload) => conversation::turn_submitted(payload),
        Payload::TurnStarted(payload) => conversation::turn_started(payload),
        Payload::TurnCompleted(payload) => conversation::turn_completed(payload),
        Payload::TurnFailed(payload) => conversation::turn_failed(payload),
        Payload::TaskCreated(payload) => work::task_created(payload),
        Payload::TaskAccepted(payload) => work::task_accepted(payload),
        Payload::TaskQueued(payload) => work::task_queued(payload),
        Payload::TaskStarted(payload) => work::task_started(payload),
        Payload::TaskUpdated(payload) => work::task_updated(payload),
        Payload::TaskProgress(payload) => work::task_progress(payload),
        Payload::TaskWaiting(payload) => work::task_waiting(payload),
        Payload::TaskBlocked(payload) => work::task_blocked(payload),
        Payload::TaskPaused(payload) => work::task_paused(payload),
        Payload::TaskResumed(payload) => work::task_resumed(payload),
        Payload::TaskRetrying(payload) => work::task_retrying(payload),
        Payload::TaskCancelRequested(payload) => work::task_cancel_requested(payload),
        Payload::TaskCancelled(payload) => work::task_cancelled(payload),
        Payload::TaskTimedOut(payload) => work::task_timed_out(payload),
        Payload::TaskFailed(payload) => work::task_failed(payload),
        Payload::TaskLost(payload) => work::task_lost(payload),
        Payload::TaskCompleted(payload) => work::task_completed(payload),
        Payload::TaskArchived(payload) => work::task_archived(payload),
        Payload::RunStatus(payload) => record::run_status(payload),
        Payload::ModelRequested(payload) => model::model_requested(payload),
        Payload::ModelDelta(payload) => model::model_delta(payload),
        Payload::ModelCompleted(payload) => model::model_completed(payload),
        Payload::ModelFailed(payload) => model::model_failed(payload),
        Payload::ReasoningDelta(payload) => model::reasoning_delta(payload),
        Payload::ReasoningSummary(payload) => model::reasoning_summary(payload),
        Payload::ToolCatalogResolved(payload) => model::tool_catalog_resolved(payload),
        Payload::ToolIntent(payload) => call::tool_intent(payload),
        Payload::ToolValidation(payload) => call::tool_validation(payload),
        Payload::ToolArgs(payload) => call::tool_args(payload),
        Payload::ToolStarted(payload) => call::tool_started(payload),
        Payload::ToolProgress(payload) => call::tool_progress(payload),
        Payload::ToolResult(payload) => call::tool_result(payload),
        Payload::ToolFailed(payload) => call::tool_failed(payload),
        Payload::ToolObservation(payload) => call::tool_observation(payload),
        Payload::ActionRequired(payload) => decision::action_required(payload),
        Payload::ActionResolved(payload) => decision::action_resolved(payload),
        Payload::QueueChanged(payload) => conversation::queue_changed(payload),
        Payload::ContextResolved(payload) => model::context_resolved(payload),
        Payload::ContextCompactionStarted(payload) => model::context_compaction_started(payload),
        Payload::ContextCompactionCompleted(payload) => {
            model::context_compaction_completed(payload)
        }
        Payload::ContextCompactionFailed(payload) => model::context_compaction_failed(payload),
        Payload::ArtifactChanged(payload) => record::artifact_changed(payload),
        Payload::EvidenceChanged(payload) => record::evidence_changed(payload),
        Payload::SubagentSpawned(payload) => work::subagent_spawned(payload),
        Payload::SubagentStatus(payload) => work::subagent_status(payload),
        Payload::SubagentInput(payload) => work::subagent_input(payload),
        Payload::SubagentCompleted(payload) => work::subagent_completed(payload),
        Payload::SubagentFailed(payload) => work::subagent_failed(payload),
        Payload::SubagentClosed(payload) => work::subagent_closed(payload),
        Payload::LimitChanged(payload) => model::limit_changed(payload),
        Payload::SnapshotUpdated(payload) => record::snapshot_updated(payload),
        Payload::RuntimeWarning(payload) => record::runtime_warning(payload),
        Payload::RuntimeError(payload) => record::runtime_error(payload),
        Payload::PermissionEvaluated(payload) => decision::permission_evaluated(payload),
        Payload::PermissionRequested(payload) => decision::permission_requested(payload),
        Payload::PermissionResolved(payload) => decision::permission_resolved(payload),
        Payload::SandboxApplied(payload) => command::sandbox_applied(payload),
        Payload::SandboxViolation(payload) => command::sandbox_violation(payload),
        Payload::HookStarted(payload) => decision::hook_started(payload),
        Payload::HookCompleted(payload) => decision::hook_completed(payload),
        Payload::HookFailed(payload) => decision::hook_failed(payload),
        Payload::PolicyChanged(payload) => decision::policy_changed(payload),
        Payload::ProcessStarted(payload) => command::process_started(payload),
        Payload::ProcessOutput(payload) => command::process_output(payload),
        Payload::ProcessInput(payload) => command::process_input(payload),
        Payload::ProcessCompleted(payload) => command::process_completed(payload),
        Payload::ProcessFailed(payload) => command::process_failed(payload),
        Payload::ProcessTerminated(payload) => command::process_terminated(payload),
        Payload::TaskProfileResolved(payload) => work::task_profile_resolved(payload),
        Payload::RoutingCandidatesResolved(payload) => model::routing_candidates_resolved(payload),
        Payload::RoutingDecided(payload) => model::routing_decided(payload),
        Payload::RoutingFallbackApplied(payload) => model::routing_fallback_applied(payload),
        Payload::RoutingNotPossible(payload) => model::routing_not_possible(payload),
        Payload::RoutingSingleCandidate(payload) => model::routing_single_candidate(payload),
        Payload::TaskDelegated(payload) => work::task_delegated(payload),
        Payload::TaskDependencyUpdated(payload) => work::task_dependency_updated(payload),
        Payload::TaskAttemptStarted(payload) => work::task_attempt_started(payload),
        Payload::TaskAttemptCompleted(payload) => work::task_attempt_completed(payload),
        Payload::TaskAttemptFailed(payload) => work::task_attempt_failed(payload),
        Payload::CostEstimated(payload) => model::cost_estimated(payload),
        Payload::CostRecorded(payload) => model::cost_recorded(payload),
        Payload::RateLimitHit(payload) => model::rate_limit_hit(payload),
        Payload::QuotaLow(payload) => model::quota_low(payload),
        Payload::QuotaBlocked(payload) => model::quota_blocked(payload),
        Payload::ChannelConnected(payload) => work::channel_connected(payload),
        Payload::ChannelDisconnected(payload) => work::channel_disconnected(payload),
        Payload::ChannelResumed(payload) => work::channel_resumed(payload),
        Payload::ChannelMessage(payload) => work::channel_message(payload),
        Payload::ChannelPermissionForwarded(payload) => work::channel_permission_forwarded(payload),
        Payload::ChannelPermissionReturned(payload) => work::channel_permission_returned(payload),
        Payload::JobCreated(payload) => work::job_created(payload),
        Payload::JobStarted(payload) => work::job_started(payload),
        Payload::JobProgress(payload) => work::job_progress(payload),
        Payload::JobItemStarted(payload) => work::job_item_started(payload),
        Payload::JobItemCompleted(payload) => work::job_item_completed(payload),
        Payload::JobItemFailed(payload) => work::job_item_failed(payload),
        Payload::JobCompleted(payload) => work::job_completed(payload),
        Payload::JobFailed(payload) => work::job_failed(payload),
        Payload::JobCancelled(payload) => work::job_cancelled(payload),
        Payload::OutputSpilled(payload) => command::output_spilled(payload),
        Payload::OutputTruncated(payload) => command::output_truncated(payload),
        Payload::OutputRedacted(payload) => command::output_redacted(payload),
        Payload::OutputExpired(payload) => command::output_expired(payload),
        Payload::HistoryWindowLoaded(payload) => record::history_window_loaded(payload),
        Payload::HistoryReconstructed(payload) => record::history_reconstructed(payload),
        Payload::HistoryRollbackStarted(payload) => record::history_rollback_started(payload),
        Payload::HistoryRollbackCompleted(payload) => record::history_rollback_completed(payload),
        Payload::SnapshotRepaired(payload) => record::snapshot_repaired(payload),
        Payload::Unknown(payload) => unknown(payload),
    }
}

fn unknown(unknown: &UnknownPayload) -> Description {
    let (class, json) = (&unknown.type_name, &unknown.json);
    let text = match &unknown.reason {
        UnknownReason::Type => format!("`{class}`, which this version does not know"),
        UnknownReason::Shape(why) => {
            format!("`{class}` in a shape that this version does not know: {why}")
        }
    };
    Description::new(Kind::Record, Level::Record, "record", text).block(
        BlockKind::Json,
        "payload",
        json.clone(),
    )
}
