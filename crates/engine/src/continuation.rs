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
    /// How the parts followed each other, where it was not reasoning, then text, then calls: a
    /// provider that signs its reasoning wants it back in its place.
    order: Vec<Place>,
}

/// What stood at one place of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Reasoning,
    /// So many bytes of the text.
    Text(usize),
    Call,
}

#[derive(Clone, Debug, PartialEq)]
struct Reasoning {
    text: String,
    opaque: Option<Opaque>,
}

impl Continuation {
    /// Takes what has to be kept from an answer's parts, with secrets masked by `mask`. What a
    /// provider signed or sealed cannot be changed, so it is left out when it holds a secret.
    #[must_use]
    pub fn of(parts: &[AssistantPart], mask: &dyn Fn(&str) -> String) -> Self {
        let mut kept = Self::default();
        let is_clean = |opaque: &Opaque| {
            let text = opaque.value.to_string();
            mask(&text) == text
        };
        for part in parts {
            match part {
                AssistantPart::Reasoning { text, opaque } => {
                    let masked = mask(text);
                    if opaque
                        .as_ref()
                        .is_some_and(|opaque| masked != *text || !is_clean(opaque))
                    {
                        continue;
                    }
                    kept.reasoning.push(Reasoning {
                        text: masked,
                        opaque: opaque.clone(),
                    });
                    kept.order.push(Place::Reasoning);
                }
                AssistantPart::ToolCall(call) => {
                    kept.calls.push(call.opaque.clone().filter(is_clean));
                    kept.order.push(Place::Call);
                }
                AssistantPart::Text(text) => kept.order.push(Place::Text(mask(text).len())),
            }
        }
        let rank = |place: &Place| match place {
            Place::Reasoning => 0,
            Place::Text(_) => 1,
            Place::Call => 2,
        };
        if kept.order.is_sorted_by_key(rank) {
            kept.order.clear();
        }
        kept
    }

    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.calls.iter().all(Option::is_none)
    }

    /// The answer as it is sent back: its reasoning, `text` and `calls` in the order they came.
    #[must_use]
    pub fn arrange(&self, text: &str, calls: Vec<AssistantPart>) -> Vec<AssistantPart> {
        self.in_order(text, &calls).unwrap_or_else(|| {
            let text = Some(text).filter(|text| !text.is_empty());
            let text = text.map(|text| AssistantPart::Text(text.to_owned()));
            self.reasoning
                .iter()
                .map(Reasoning::part)
                .chain(text)
                .chain(calls)
                .collect()
        })
    }

    /// The parts as they followed each other; `None` when that is not known, or does not fit what
    /// there is: calls may be missing, and masking may have changed the text.
    fn in_order(&self, text: &str, calls: &[AssistantPart]) -> Option<Vec<AssistantPart>> {
        if self.order.is_empty() || calls.len() != self.calls.len() {
            return None;
        }
        let (mut reasoning, mut calls) = (self.reasoning.iter(), calls.iter());
        let mut at = 0_usize;
        let mut parts = Vec::with_capacity(self.order.len());
        for place in &self.order {
            parts.push(match place {
                Place::Reasoning => reasoning.next()?.part(),
                Place::Call => calls.next()?.clone(),
                Place::Text(bytes) => {
                    let piece = text.get(at..at.checked_add(*bytes)?)?;
                    at += bytes;
                    AssistantPart::Text(piece.to_owned())
                }
            });
        }
        (at == text.len() && calls.next().is_none() && reasoning.next().is_none()).then_some(parts)
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
        let mut kept = json!({ "reasoning": reasoning, "calls": calls });
        if !self.order.is_empty() {
            let place = |place: &Place| match place {
                Place::Reasoning => json!("reasoning"),
                Place::Text(bytes) => json!({ "text": bytes }),
                Place::Call => json!("call"),
            };
            kept["order"] = self.order.iter().map(place).collect();
        }
        kept.to_string().into_bytes()
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
        let place = |place: &Value| match place.as_str() {
            Some("reasoning") => Some(Place::Reasoning),
            Some("call") => Some(Place::Call),
            Some(_) => None,
            None => {
                let bytes = place.get("text")?.as_u64()?;
                Some(Place::Text(usize::try_from(bytes).ok()?))
            }
        };
        let order = value.get("order").and_then(Value::as_array);
        let order = order.into_iter().flatten().map(place);
        Some(Self {
            reasoning: reasoning.collect::<Option<_>>()?,
            calls,
            order: order.collect::<Option<_>>().unwrap_or_default(),
        })
    }
}

impl Reasoning {
    fn part(&self) -> AssistantPart {
        AssistantPart::Reasoning {
            text: self.text.clone(),
            opaque: self.opaque.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_provider::conversation::{Arguments, ToolCall};

    fn thought(text: &str, signature: &str) -> AssistantPart {
        AssistantPart::Reasoning {
            text: text.to_owned(),
            opaque: Some(Opaque {
                dialect: Dialect::AnthropicMessages,
                value: json!({ "type": "thinking", "signature": signature }),
            }),
        }
    }

    fn said(text: &str) -> AssistantPart {
        AssistantPart::Text(text.to_owned())
    }

    fn call(id: &str) -> AssistantPart {
        AssistantPart::ToolCall(ToolCall {
            provider_call_id: id.to_owned(),
            name: "read".to_owned(),
            arguments_text: "{}".to_owned(),
            arguments: Arguments::Object,
            opaque: None,
        })
    }

    fn mask(text: &str) -> String {
        text.replace("secret", "[redacted]")
    }

    /// What is kept of `parts`, by way of its bytes, gives them back.
    fn check(parts: &[AssistantPart], text: &str, calls: &[AssistantPart]) {
        let kept = Continuation::of(parts, &mask);
        let kept = Continuation::from_bytes(&kept.to_bytes()).unwrap();
        assert_eq!(kept.arrange(text, calls.to_vec()), parts);
    }

    #[test]
    fn parts_go_back_in_the_order_they_came() {
        check(
            &[thought("one", "S1"), said("Hello"), call("a")],
            "Hello",
            &[call("a")],
        );
        check(
            &[
                thought("one", "S1"),
                said("Hello"),
                thought("two", "S2"),
                call("a"),
                said(" again"),
                call("b"),
            ],
            "Hello again",
            &[call("a"), call("b")],
        );
    }

    #[test]
    fn what_does_not_fit_any_more_goes_back_in_the_usual_order() {
        let parts = [said("Hello"), thought("two", "S2"), call("a")];
        let kept = Continuation::of(&parts, &mask);
        let usual = [thought("two", "S2"), said("Hello"), call("a")];
        let arranged = kept.arrange("Hello", vec![call("a"), call("b")]);
        assert_eq!(arranged[..3], usual);
        let shorter = kept.arrange("Hell", vec![call("a")]);
        assert_eq!(shorter[1], said("Hell"));
    }

    #[test]
    fn a_secret_is_masked_and_what_is_sealed_with_one_is_left_out() {
        let open = AssistantPart::Reasoning {
            text: "the secret".to_owned(),
            opaque: None,
        };
        let parts = [thought("my secret", "S1"), open, thought("two", "secret")];
        let kept = Continuation::of(&parts, &mask);
        let bytes = String::from_utf8(kept.to_bytes()).unwrap();
        assert!(!bytes.contains("secret"), "{bytes}");
        assert!(bytes.contains("the [redacted]"), "{bytes}");
        assert_eq!(kept.arrange("", Vec::new()).len(), 1);
    }
}
