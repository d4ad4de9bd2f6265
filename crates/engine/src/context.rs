//! What the next model input holds: instructions, the tool catalogue and the conversation, in an order
//! that only ever grows at its end, so that provider caches hit. The decision is recorded before
//! the request goes out, as a receipt that does not grow with the session.

use agent_protocol::id::ContextId;
use agent_protocol::payload::model::{
    ContextBudget, ContextItem, ContextMode, ContextOmission, ContextResolved, FileRef,
    MissingFact, PolicyFacts, Trust,
};
use agent_provider::conversation::{
    CachePolicy, ModelRequest, ReasoningEffort, ToolChoice, ToolSpec,
};

use crate::conversation::{Call, Conversation, Entry, Item, OwnCalls, Step};
use crate::prompt::Preamble;

/// Bytes per token until a provider has counted.
const BYTES_PER_TOKEN: f64 = 4.0;

/// The part of a window that a conversation may take however much else there is.
const LEAST_CONVERSATION: f64 = 0.125;

/// Settings of a request that do not change during a turn.
#[derive(Clone, Debug, Default)]
pub struct RequestSettings {
    pub model: String,
    pub max_output_tokens: Option<u32>,
    /// The most tokens an answer of this model can have, if that is known.
    pub most_output_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<ReasoningEffort>,
    pub tool_choice: Option<ToolChoice>,
    pub tool_choice_after_tool_result: Option<ToolChoice>,
    pub cache: CachePolicy,
    /// Tokens the model can take, if that is known.
    pub window: Option<u64>,
    /// Whether the model can see images, if that is known.
    pub images: Option<bool>,
    /// True if the model writes its changes as patches.
    pub takes_patches: bool,
}

/// Decides and remembers what was told before, so that each receipt names only what is new.
#[derive(Debug, Default)]
pub struct ContextPolicy {
    reported: usize,
    /// Bytes of the entries that were reported, so that a step costs the same late in a session.
    reported_bytes: u64,
    reported_preamble: bool,
    bytes_per_token: Option<f64>,
    last_input_tokens: Option<u64>,
    last_cached_tokens: Option<u64>,
    last_bytes: u64,
}

/// A request and its receipt, which lacks only the hash of the bytes that will be sent.
pub struct Resolved {
    pub request: ModelRequest,
    pub receipt: ContextResolved,
    /// Images were left out, because the model cannot see them.
    pub without_images: bool,
}

impl ContextPolicy {
    /// Puts the next model input together.
    pub fn resolve(
        &mut self,
        conversation: &Conversation,
        preamble: &Preamble,
        tools: &[ToolSpec],
        settings: &RequestSettings,
        facts: Facts,
    ) -> Resolved {
        let mut messages = conversation.messages();
        let mut missing = facts.missing;
        let mut without_images = false;
        if settings.images == Some(false) {
            let images = crate::images::leave_out(&mut messages);
            without_images = images > 0;
            missing.extend(without_images.then(|| MissingFact {
                fact: format!("{images} images, which the model cannot see"),
                status: "blocked".to_owned(),
            }));
        }
        let request = ModelRequest {
            model: settings.model.clone(),
            system: preamble.parts.clone(),
            messages,
            tools: tools.to_vec(),
            tool_choice: settings.tool_choice.clone(),
            tool_choice_after_tool_result: settings.tool_choice_after_tool_result.clone(),
            max_output_tokens: settings.max_output_tokens,
            temperature: settings.temperature,
            reasoning_effort: settings.reasoning_effort,
            cache: settings.cache,
            stop: Vec::new(),
        };
        let included = self.included(conversation, preamble, tools);
        let bytes = self.reported_bytes + preamble_bytes(preamble) + tool_bytes(tools);
        let receipt = ContextResolved {
            context_id: facts.context_id,
            model_request_no: facts.request_no,
            included,
            omitted: facts.omitted,
            missing,
            file_refs: conversation.files(),
            session_refs: facts.sessions,
            policy_facts: facts.policy,
            instruction_refs: preamble
                .instructions
                .iter()
                .map(|file| FileRef {
                    path: file.path.clone(),
                    sha256: file.sha256.clone(),
                    range: None,
                })
                .collect(),
            budget: ContextBudget {
                window_tokens: settings.window,
                estimated_tokens: self.estimate(bytes),
                last_input_tokens: self.last_input_tokens,
                cached_tokens: self.last_cached_tokens,
            },
            ..ContextResolved::default()
        };
        self.last_bytes = bytes;
        Resolved {
            request,
            receipt,
            without_images,
        }
    }

    fn included(
        &mut self,
        conversation: &Conversation,
        preamble: &Preamble,
        tools: &[ToolSpec],
    ) -> Vec<ContextItem> {
        let mut included = Vec::new();
        included.push(ContextItem {
            source: "system".to_owned(),
            mode: ContextMode::Full,
            trust: Trust::System,
            tokens: self.estimate(preamble_bytes(preamble)),
            reason: (!self.reported_preamble).then(|| "instructions and environment".to_owned()),
            ..ContextItem::default()
        });
        included.push(ContextItem {
            source: format!("{} tools", tools.len()),
            mode: ContextMode::Full,
            trust: Trust::System,
            tokens: self.estimate(tool_bytes(tools)),
            ..ContextItem::default()
        });
        let items = conversation.items();
        if self.reported > items.len() {
            // Compaction made the conversation shorter.
            self.reported = 0;
            self.reported_bytes = 0;
        }
        let (old, new) = items.split_at(self.reported);
        if let (Some(first), Some(last)) = (old.first(), old.last()) {
            included.push(ContextItem {
                source: format!("{} earlier entries of the conversation", old.len()),
                reference: Some(format!("events {}..{}", first.sequence, last.sequence)),
                mode: old.iter().map(mode).min().unwrap_or_default(),
                trust: Trust::ToolOutputUntrusted,
                tokens: self.estimate(self.reported_bytes),
                reason: Some("unchanged since the last request".to_owned()),
            });
        }
        let mut new_bytes = 0;
        for item in new {
            let bytes = entry_bytes(&item.entry);
            new_bytes += bytes;
            for (source, trust, bytes) in sources(&item.entry, bytes) {
                included.push(ContextItem {
                    source: source.to_owned(),
                    reference: Some(format!("event {}", item.sequence)),
                    mode: mode(item),
                    trust,
                    tokens: self.estimate(bytes),
                    reason: cut(&item.entry),
                });
            }
        }
        self.reported = items.len();
        self.reported_bytes += new_bytes;
        self.reported_preamble = true;
        included
    }

    /// Learns from the provider's own count.
    pub fn counted(&mut self, input_tokens: Option<u64>, cached_tokens: Option<u64>) {
        if let Some(tokens) = input_tokens.filter(|tokens| *tokens > 0)
            && self.last_bytes > 0
        {
            let ratio = self.last_bytes as f64 / tokens as f64;
            self.bytes_per_token = Some(ratio.clamp(1.5, 8.0));
        }
        self.last_input_tokens = input_tokens;
        self.last_cached_tokens = cached_tokens;
    }

    /// Tokens of `bytes` of text: an estimate.
    #[must_use]
    pub fn estimate(&self, bytes: u64) -> u64 {
        (bytes as f64 / self.bytes_per_token.unwrap_or(BYTES_PER_TOKEN)).ceil() as u64
    }

    /// Bytes of so many tokens of text: an estimate.
    #[must_use]
    pub fn bytes(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.bytes_per_token.unwrap_or(BYTES_PER_TOKEN)) as u64
    }

    /// An estimate for one entry of the conversation.
    #[must_use]
    pub(crate) fn entry_tokens(&self, entry: &Entry) -> u64 {
        self.estimate(entry_bytes(entry))
    }

    /// An estimate for the whole conversation.
    #[must_use]
    pub fn conversation_tokens(&self, conversation: &Conversation) -> u64 {
        self.estimate(self.conversation_bytes(conversation))
    }

    /// An estimate for the conversation when its first `cut` entries are replaced by a summary.
    #[must_use]
    pub fn tokens_after(
        &self,
        conversation: &Conversation,
        cut: usize,
        summary_bytes: usize,
    ) -> u64 {
        let kept: u64 = conversation
            .items()
            .iter()
            .skip(cut)
            .map(|item| entry_bytes(&item.entry))
            .sum();
        self.estimate(kept + summary_bytes as u64)
    }

    /// Starts the receipts over, after the conversation was replaced.
    pub fn forget_reported(&mut self) {
        self.reported = 0;
        self.reported_bytes = 0;
    }

    fn conversation_bytes(&self, conversation: &Conversation) -> u64 {
        let items = conversation.items();
        let (known, from) = if self.reported <= items.len() {
            (self.reported_bytes, self.reported)
        } else {
            (0, 0)
        };
        known
            + items[from..]
                .iter()
                .map(|item| entry_bytes(&item.entry))
                .sum::<u64>()
    }

    /// Tokens a conversation may take before it is about to outgrow the model's window, where that
    /// is known.
    #[must_use]
    pub fn conversation_room(
        &self,
        preamble: &Preamble,
        tools: &[ToolSpec],
        settings: &RequestSettings,
        compact_at: f64,
    ) -> Option<u64> {
        let window = settings.window? as f64;
        let fixed = self.estimate(preamble_bytes(preamble) + tool_bytes(tools))
            + u64::from(settings.max_output_tokens.unwrap_or(0));
        let room = (window - fixed as f64) * compact_at;
        // Where the rest leaves hardly any room, a summary before every request would not help.
        let room = room.max(window * LEAST_CONVERSATION);
        Some(room as u64)
    }
}

/// What the receipt holds beside the input itself.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub context_id: ContextId,
    pub request_no: u64,
    pub policy: PolicyFacts,
    pub omitted: Vec<ContextOmission>,
    pub missing: Vec<MissingFact>,
    /// Sessions whose history the input goes on from.
    pub sessions: Vec<String>,
}

/// How much of what an entry is about stands in the input.
fn mode(item: &Item) -> ContextMode {
    match &item.entry {
        Entry::Summary { .. } => ContextMode::Summary,
        entry if omitted_bytes(entry) > 0 => ContextMode::Excerpt,
        _ => ContextMode::Full,
    }
}

fn omitted_bytes(entry: &Entry) -> u64 {
    let results = entry.calls().iter().filter_map(|call| call.result.as_ref());
    results.map(|result| result.omitted_bytes).sum()
}

/// What is not in the observations of an entry, in words.
fn cut(entry: &Entry) -> Option<String> {
    let bytes = omitted_bytes(entry);
    (bytes > 0).then(|| format!("cut: {bytes} bytes are left out of its observations"))
}

/// Who is behind an entry, and how many of its bytes are theirs.
fn sources(entry: &Entry, bytes: u64) -> Vec<(&'static str, Trust, u64)> {
    let (source, trust) = match entry {
        Entry::User { input, .. } => {
            let attached = call_bytes(&input.attached.calls);
            let said = ("user", Trust::User, bytes.saturating_sub(attached));
            let attached = ("attached by the user", Trust::ToolOutputUntrusted, attached);
            let both = [said, attached].into_iter();
            return both
                .filter(|(source, _, bytes)| *source == "user" || *bytes > 0)
                .collect();
        }
        Entry::Summary { prose_bytes, .. } => {
            let prose = *prose_bytes as u64;
            let facts = ("fact sheet", Trust::System, bytes.saturating_sub(prose));
            let prose = ("summary by a model", Trust::Model, prose);
            let both = [facts, prose].into_iter();
            return both.filter(|(_, _, bytes)| *bytes > 0).collect();
        }
        Entry::Step(step) if step.calls.is_empty() => ("model", Trust::Model),
        Entry::Own(_) => (
            "a command of the user and its observation",
            Trust::ToolOutputUntrusted,
        ),
        Entry::Step(_) => ("model and tool observations", Trust::ToolOutputUntrusted),
    };
    vec![(source, trust, bytes)]
}

fn preamble_bytes(preamble: &Preamble) -> u64 {
    preamble.parts.iter().map(String::len).sum::<usize>() as u64
}

fn tool_bytes(tools: &[ToolSpec]) -> u64 {
    tools
        .iter()
        .map(|tool| tool.description.len() as u64 + json_bytes(&tool.schema))
        .sum()
}

/// How long a value is as JSON, without writing it anywhere.
fn json_bytes(value: &serde_json::Value) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn entry_bytes(entry: &Entry) -> u64 {
    let bytes = match entry {
        Entry::User { input, .. } => input.text.len() + input.images.len() * 4_000,
        Entry::Summary { text, .. } => text.len(),
        Entry::Step(Step { text, .. }) | Entry::Own(OwnCalls { text, .. }) => text.len(),
    };
    bytes as u64 + call_bytes(entry.calls())
}

fn call_bytes(calls: &[Call]) -> u64 {
    let calls = calls.iter().map(|call| {
        call.name.len()
            + call.arguments.as_ref().map_or(0, String::len)
            + call.result.as_ref().map_or(0, |result| result.text.len())
    });
    calls.sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The room for a conversation in a window of 1,000 tokens with a catalogue of so many.
    fn check(tools: usize, expected: u64) {
        let policy = ContextPolicy::default();
        let tools = [ToolSpec {
            name: "t".to_owned(),
            description: "x".repeat(tools * 4),
            schema: json!({}),
        }];
        let settings = RequestSettings {
            window: Some(1_000),
            ..RequestSettings::default()
        };
        let room = policy.conversation_room(&Preamble::default(), &tools, &settings, 0.8);
        assert_eq!(room, Some(expected));
    }

    #[test]
    fn what_goes_with_the_conversation_takes_of_its_room() {
        check(0, 799);
        check(100, 719);
        check(600, 319);
        // With next to no room a short conversation is left alone all the same.
        check(900, 125);
    }
}
