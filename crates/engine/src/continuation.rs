//! What a provider wants back with the next request: signed or encrypted reasoning, kept unread in
//! an artifact beside the answer it came with.

use agent_provider::conversation::{AssistantPart, Opaque};
use agent_provider::dialect::Dialect;
use serde_json::{Value, json};

/// Reasoning and provider data of one answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Continuation {
    reasoning: Vec<Reasoning>,
    calls: Vec<Option<Opaque>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Reasoning {
    text: String,
    opaque: Option<Opaque>,
}

impl Continuation {
    /// Takes what has to be kept from an answer's parts. Nothing has to be when no part carries
    /// provider data and no reasoning has to be repeated.
    #[must_use]
    pub fn of(parts: &[AssistantPart]) -> Self {
        let mut kept = Self::default();
        for part in parts {
            match part {
                AssistantPart::Reasoning { text, opaque } => {
                    kept.reasoning.push(Reasoning {
                        text: text.clone(),
                        opaque: opaque.clone(),
                    });
                }
                AssistantPart::ToolCall(call) => kept.calls.push(call.opaque.clone()),
                AssistantPart::Text(_) => {}
            }
        }
        kept
    }

    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.calls.iter().all(Option::is_none)
    }

    /// The reasoning to send back, in its own order.
    #[must_use]
    pub fn reasoning_parts(&self) -> Vec<AssistantPart> {
        let part = |kept: &Reasoning| AssistantPart::Reasoning {
            text: kept.text.clone(),
            opaque: kept.opaque.clone(),
        };
        self.reasoning.iter().map(part).collect()
    }

    /// The provider data of the call at `index`.
    #[must_use]
    pub fn call_opaque(&self, index: usize) -> Option<Opaque> {
        self.calls.get(index).cloned().flatten()
    }

    /// The artifact's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let opaque = |opaque: &Option<Opaque>| match opaque {
            Some(kept) => json!({ "dialect": kept.dialect.as_str(), "value": kept.value }),
            None => Value::Null,
        };
        let reasoning: Vec<Value> = self
            .reasoning
            .iter()
            .map(|kept| json!({ "text": kept.text, "opaque": opaque(&kept.opaque) }))
            .collect();
        let calls: Vec<Value> = self.calls.iter().map(opaque).collect();
        json!({ "reasoning": reasoning, "calls": calls })
            .to_string()
            .into_bytes()
    }

    /// Reads an artifact's bytes; `None` when they are not what [`Self::to_bytes`] writes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let opaque = |value: &Value| -> Option<Opaque> {
            let dialect = Dialect::from_word(value.get("dialect")?.as_str()?)?;
            Some(Opaque {
                dialect,
                value: value.get("value")?.clone(),
            })
        };
        let reasoning = value.get("reasoning")?.as_array()?.iter().map(|kept| {
            Some(Reasoning {
                text: kept.get("text")?.as_str()?.to_owned(),
                opaque: opaque(kept.get("opaque")?),
            })
        });
        let calls = value.get("calls")?.as_array()?.iter().map(opaque).collect();
        Some(Self {
            reasoning: reasoning.collect::<Option<_>>()?,
            calls,
        })
    }
}
