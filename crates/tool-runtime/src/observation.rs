//! What model and screen may see of a call.

use std::fmt::Write as _;

use agent_protocol::id::{ActionId, EventId, IntentId, InvocationId, ObservationId, ToolCallId};
use agent_protocol::payload::tool::{
    ObservationFacts, PermissionFacts, ReadMore, ToolData, ToolObservation, ValidationError,
};
use agent_protocol::payload::{ArtifactRef, SideEffect};
use agent_protocol::{ActionHappened, Code, Phase};

use crate::journal::{Journal, Recorded};
use crate::policy::project::Projection;
use crate::result::Omission;
use agent_text::{visible, visible_excerpt};

/// The bounded, escaped and masked projection of a call, exactly as it stands in the log. Handed
/// out only after it would survive a power cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    tool_call_id: ToolCallId,
    event_id: EventId,
    sequence: u64,
    model_text: String,
    fact: ToolObservation,
}

impl Observation {
    #[must_use]
    pub fn tool_call_id(&self) -> &ToolCallId {
        &self.tool_call_id
    }

    #[must_use]
    pub fn event_id(&self) -> &EventId {
        &self.event_id
    }

    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What the model sees, inside the wrapper of [`crate::wrapper`]. In the log it is `model_text`
    /// or the text of the artifact `model_text_ref`.
    #[must_use]
    pub fn model_text(&self) -> &str {
        &self.model_text
    }

    /// The facts, with the whole `model_text` in place.
    #[must_use]
    pub fn fact(&self) -> &ToolObservation {
        &self.fact
    }

    /// The one constructor: a call that has been recorded.
    pub(crate) fn of(
        tool_call_id: ToolCallId,
        recorded: &Recorded,
        draft: ToolObservation,
    ) -> Self {
        Self {
            tool_call_id,
            event_id: recorded.event_id.clone(),
            sequence: recorded.sequence,
            model_text: draft.model_text.clone().unwrap_or_default(),
            fact: draft,
        }
    }
}

/// How a call left the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It ended, with success or without.
    Observed(Box<Observation>),
    /// Its question stays open; there is no observation yet.
    LeftOpen {
        tool_call_id: ToolCallId,
        action_id: ActionId,
    },
}

impl Outcome {
    /// The observation, unless the question stays open.
    #[must_use]
    pub fn observation(&self) -> Option<&Observation> {
        match self {
            Self::Observed(observation) => Some(observation),
            Self::LeftOpen { .. } => None,
        }
    }
}

/// Everything known at the end of a call, before it is put into words.
#[derive(Debug, Default)]
pub(crate) struct EndFacts {
    pub(crate) intent_id: IntentId,
    pub(crate) invocation_id: Option<InvocationId>,
    pub(crate) tool_name: String,
    pub(crate) ok: bool,
    pub(crate) phase: Phase,
    pub(crate) code: Code,
    pub(crate) title: String,
    pub(crate) summary: String,
    pub(crate) detail: String,
    pub(crate) user_text: Option<String>,
    pub(crate) errors: Vec<ValidationError>,
    pub(crate) side_effects: Vec<SideEffect>,
    pub(crate) artifacts: Vec<ArtifactRef>,
    pub(crate) action_happened: ActionHappened,
    pub(crate) permission: Option<PermissionFacts>,
    pub(crate) data: ToolData,
    pub(crate) omission: Option<Omission>,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) sandbox: Option<String>,
}

/// No head of a text is longer than this, so that there is always room for content.
const MAX_HEAD_CHARS: usize = 8_000;
const MAX_LISTED_EFFECTS: usize = 20;
/// Room for the lines behind the content.
const FOOT_CHARS: usize = 600;

impl EndFacts {
    /// The lines before the content: what happened, in facts.
    pub(crate) fn head(&self, journal: &dyn Journal) -> String {
        let mut head = bounded(&self.summary, 2_000);
        if !self.detail.is_empty() {
            new_line(&mut head);
            head.push_str(&bounded(&self.detail, 4_000));
        }
        for error in &self.errors {
            let path = if error.path.is_empty() {
                "input"
            } else {
                &error.path
            };
            let _ = write!(
                head,
                "\n- {}: {}",
                visible_excerpt(path, 200),
                visible_excerpt(&error.message, 400)
            );
        }
        if !self.ok {
            let facts = self.code.facts();
            let _ = write!(
                head,
                "\n[failed in {}: {}; action happened: {}; retryable: {}; {}]",
                self.phase,
                self.code,
                self.action_happened,
                if facts.retryable { "yes" } else { "no" },
                facts.recovery
            );
        }
        for effect in self.side_effects.iter().take(MAX_LISTED_EFFECTS) {
            let _ = write!(
                head,
                "\n[{} {}]",
                effect.kind,
                visible_excerpt(&effect.path, 300)
            );
        }
        if self.side_effects.len() > MAX_LISTED_EFFECTS {
            let more = self.side_effects.len() - MAX_LISTED_EFFECTS;
            let _ = write!(head, "\n[and {more} more files]");
        }
        let head = journal.mask(&head);
        match head.char_indices().nth(MAX_HEAD_CHARS) {
            Some((end, _)) => format!("{}…", &head[..end]),
            None => head,
        }
    }

    /// How many characters are left for content in a text of `limit`.
    pub(crate) fn content_budget(head: &str, limit: usize) -> usize {
        limit.saturating_sub(head.chars().count() + FOOT_CHARS)
    }

    /// The observation as it will be recorded.
    pub(crate) fn observe(
        self,
        observation_id: ObservationId,
        head: &str,
        projection: Projection,
        limit: usize,
        journal: &dyn Journal,
    ) -> ToolObservation {
        let own_omission = self.omission.unwrap_or_default();
        let read_more = projection.read_more.or(own_omission.read_more);
        let mut model_text = head.to_owned();
        if !projection.text.is_empty() {
            new_line(&mut model_text);
            model_text.push_str(&projection.text);
        }
        if own_omission.bytes > 0 {
            new_line(&mut model_text);
            let _ = write!(
                model_text,
                "[truncated: {} bytes omitted]",
                own_omission.bytes
            );
        }
        if let Some(more) = &read_more {
            new_line(&mut model_text);
            let _ = write!(model_text, "[read more: {}]", read_more_words(more));
        }
        // Masking may have made the text longer than what was measured.
        if let Some((end, _)) = model_text.char_indices().nth(limit) {
            model_text.truncate(end);
        }
        let output_bytes = self
            .invocation_id
            .is_some()
            .then_some(projection.output_bytes);
        let user_text = self.user_text.as_deref().unwrap_or(&self.summary);
        let preview = preview_of(&projection.text);
        let omitted_bytes = projection.omitted_bytes + own_omission.bytes;
        let mut artifact_refs = self.artifacts;
        for artifact in projection.artifacts {
            if !artifact_refs.contains(&artifact) {
                artifact_refs.push(artifact);
            }
        }
        ToolObservation {
            observation_id,
            intent_id: self.intent_id,
            invocation_id: self.invocation_id,
            tool_name: self.tool_name,
            ok: self.ok,
            phase: self.phase,
            code: self.code,
            title: journal.mask(&visible_excerpt(&self.title, 200)),
            summary: journal.mask(&bounded(&self.summary, 2_000)),
            model_text: Some(model_text),
            model_text_ref: None,
            user_text: journal.mask(&bounded(user_text, 4_000)),
            content: projection.blocks,
            preview,
            truncated: omitted_bytes > 0,
            omitted_bytes,
            artifact_refs,
            side_effects: self.side_effects,
            action_happened: self.action_happened,
            retryable: !self.ok && self.code.facts().retryable,
            recovery: (!self.ok).then(|| self.code.facts().recovery.to_owned()),
            read_more,
            facts: ObservationFacts {
                exit_code: self.data.exit_code,
                signal: self.data.signal,
                duration_ms: self.duration_ms,
                output_bytes,
                errors: self.errors,
                permission: self.permission,
                sandbox: self.sandbox,
                data: self.data,
            },
        }
    }
}

fn read_more_words(more: &ReadMore) -> String {
    format!("{} {}", more.tool, more.input_hint)
}

/// A few lines for a status display.
pub(crate) fn preview_of(text: &str) -> Option<String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let shown: Vec<_> = lines
        .by_ref()
        .take(6)
        .map(|line| visible_excerpt(line, 160))
        .collect();
    (!shown.is_empty()).then(|| shown.join("\n"))
}

fn bounded(text: &str, chars: usize) -> String {
    let mut shown = visible(text.as_bytes());
    if let Some((end, _)) = shown.char_indices().nth(chars) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

fn new_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
