//! Masking of an event on its way into the log: most lines cost one search, the others are taken
//! apart, masked text by text and written anew.

use std::borrow::Cow;
use std::sync::LazyLock;

use agent_protocol::payload::tool::RedactionTarget;
use agent_protocol::{Event, Payload};
use memchr::memmem;
use serde_json::Value;

use super::{Counts, Pattern, Redacted, Redactor, Search};

impl Redactor {
    /// True if the payload of a line could hold a secret; cheap, and wrong only on the safe side.
    pub fn suspects(&self, line: &[u8]) -> bool {
        static PAYLOAD: LazyLock<memmem::Finder<'static>> =
            LazyLock::new(|| memmem::Finder::new(br#","payload":"#));
        if matches!(self.search, Search::Off) {
            return false;
        }
        // The envelope before the payload holds ids and times only.
        let payload = PAYLOAD.find(line).unwrap_or(0);
        let payload = &line[payload..];
        self.search.suspects(payload) || self.late.suspects(payload)
    }

    /// Masks every text in the payload of an event and writes its line anew. The line stays as it
    /// is when there is nothing to mask. What a tool's output held was masked before the text was
    /// measured and cut; that counts, too.
    pub(crate) fn mask_event(&self, event: &mut Event, line: &mut Vec<u8>) -> Vec<Redacted> {
        let mut counts = if self.suspects(line) {
            self.mask_payload(event, line)
        } else {
            Counts::new()
        };
        if let Payload::ToolObservation(observation) = &event.payload
            && let Some(text) = &observation.model_text
        {
            // The same text stands in several fields; once is how often it was masked.
            counts.extend(self.made_in(text));
        }
        let target = target_of(&event.payload);
        counts
            .into_iter()
            .map(|(rule, (count, placeholders))| Redacted {
                rule,
                count,
                target,
                placeholders,
            })
            .collect()
    }

    fn mask_payload(&self, event: &mut Event, line: &mut Vec<u8>) -> Counts {
        // Shapes are written so that they also match inside JSON text, which spares most lines
        // with a mere hint the parsing; configured patterns may not be.
        if matches!(self.search, Search::Hints(_)) {
            let text = std::str::from_utf8(line).unwrap_or_default();
            let matches = |pattern: &Pattern| {
                pattern
                    .regex_for(text)
                    .is_some_and(|regex| regex.is_match(text))
            };
            let holds = |stretch: &String| memmem::find(line, stretch.as_bytes()).is_some();
            if !self.stretches.iter().any(holds)
                && !self.late.suspects(line)
                && !self.patterns.iter().any(matches)
            {
                return Counts::new();
            }
        }
        let Ok(mut whole) = serde_json::from_slice::<Value>(line) else {
            return Counts::new();
        };
        let mut counts = Counts::new();
        if let Some(payload) = whole.get_mut("payload") {
            self.mask_value(payload, &mut counts, false);
        }
        if counts.is_empty() {
            return counts;
        }
        let mut masked = reread(&whole);
        let was_known = event.payload.event_type().is_some();
        if was_known
            && masked
                .as_ref()
                .is_none_or(|event| event.payload.event_type().is_none())
        {
            // A secret that happens to be one of our own words; the words of the vocabulary hold
            // nothing of the user's and stay.
            counts.clear();
            if let Ok(mut again) = serde_json::from_slice::<Value>(line) {
                if let Some(payload) = again.get_mut("payload") {
                    self.mask_value(payload, &mut counts, true);
                }
                masked = reread(&again);
            }
        }
        let Some(masked) = masked else {
            return Counts::new();
        };
        event.payload = masked.payload;
        line.clear();
        if event.write_line(line).is_err() {
            return Counts::new();
        }
        counts
    }

    fn mask_value(&self, value: &mut Value, counts: &mut Counts, spare_words: bool) {
        match value {
            Value::String(text) => {
                let is_word = text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || b"_-.".contains(&byte));
                if spare_words && is_word && text.len() <= 32 {
                    return;
                }
                if let Cow::Owned(masked) = self.mask_counting(text, counts) {
                    *text = masked;
                }
            }
            Value::Array(entries) => {
                for entry in entries {
                    self.mask_value(entry, counts, spare_words);
                }
            }
            Value::Object(fields) => {
                // Names come from the model too, in tool inputs.
                let names: Vec<String> = fields.keys().cloned().collect();
                for name in names {
                    if let Cow::Owned(masked) = self.mask_counting(&name, counts)
                        && let Some(field) = fields.shift_remove(&name)
                    {
                        fields.insert(masked, field);
                    }
                }
                for field in fields.values_mut() {
                    self.mask_value(field, counts, spare_words);
                }
            }
            _ => {}
        }
    }
}

fn reread(whole: &Value) -> Option<Event> {
    Event::from_line(whole.to_string().as_bytes()).ok()
}

fn target_of(payload: &Payload) -> RedactionTarget {
    match payload {
        Payload::TurnSubmitted(_) => RedactionTarget::Prompt,
        Payload::ToolObservation(_) => RedactionTarget::ModelText,
        Payload::ToolIntent(_) | Payload::ToolArgs(_) | Payload::ActionRequired(_) => {
            RedactionTarget::Args
        }
        Payload::ModelDelta(_)
        | Payload::ModelCompleted(_)
        | Payload::ReasoningDelta(_)
        | Payload::ReasoningSummary(_) => RedactionTarget::ModelOutput,
        Payload::ToolResult(_) | Payload::ProcessOutput(_) => RedactionTarget::UserText,
        _ => RedactionTarget::Event,
    }
}
