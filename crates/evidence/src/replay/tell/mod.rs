//! One event in words. A function of the event alone: whatever it says, the event says.

mod call;
mod conversation;
mod decision;
mod model;

use std::borrow::Cow;

use agent_protocol::{Event, Payload};

use super::entry::{Block, BlockKind, Kind, Level, Tone};

pub(super) use decision::rule;

/// What an event says, before it has a place in the story.
pub(super) struct Told {
    pub(super) kind: Kind,
    pub(super) tone: Tone,
    pub(super) level: Level,
    pub(super) label: Cow<'static, str>,
    pub(super) says: String,
    pub(super) blocks: Vec<Block>,
}

impl Told {
    fn new(
        kind: Kind,
        level: Level,
        label: impl Into<Cow<'static, str>>,
        says: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            tone: Tone::Plain,
            level,
            label: label.into(),
            says: says.into(),
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

    fn facts(self, facts: Facts) -> Self {
        self.block(BlockKind::Facts, "facts", facts.0)
    }
}

/// Lines of `name: value`, for what is worth knowing but not worth a sentence.
#[derive(Default)]
struct Facts(String);

impl Facts {
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

    fn list(self, name: &str, values: &[String]) -> Self {
        if values.is_empty() {
            return self;
        }
        self.add(name, values.join(", "))
    }
}

/// Tells one event.
pub(super) fn tell(event: &Event) -> Told {
    let payload = &event.payload;
    let told = conversation::tell(payload)
        .or_else(|| call::tell(payload))
        .or_else(|| decision::tell(payload))
        .or_else(|| model::tell(payload));
    let mut told = told.unwrap_or_else(|| anything_else(payload));
    if event.scope.subagent_id.is_some() && told.level == Level::Headline && !is_spawned(payload) {
        told.says = format!("(sub-agent) {}", told.says);
    }
    told
}

/// True if an event is about a sub-agent as a whole, and says so itself.
fn is_spawned(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::SubagentSpawned(_) | Payload::SubagentCompleted(_) | Payload::SubagentFailed(_)
    )
}

/// A class nobody has words for: its own name and its payload.
fn anything_else(payload: &Payload) -> Told {
    let class = payload.type_name().to_owned();
    let json = match payload {
        Payload::Unknown(unknown) => unknown.json.clone(),
        known => serde_json::to_string(known).unwrap_or_default(),
    };
    let (kind, says) = match payload {
        Payload::Unknown(_) => (
            Kind::Record,
            format!("`{class}`, which this version does not know"),
        ),
        _ => (Kind::Record, class.clone()),
    };
    Told::new(kind, Level::Record, "record", says).block(BlockKind::Json, "payload", json)
}

/// A word of the log as people write it.
fn words(word: &str) -> String {
    word.replace('_', " ")
}
