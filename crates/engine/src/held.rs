//! What a conversation holds for the model to see, and what of it is cut or gone: the facts of the
//! receipt, and what decides which files need to be shown again.

use std::collections::{HashMap, HashSet};

use agent_protocol::id::ToolCallId;
use agent_protocol::payload::model::{ContextOmission, FileRef, MissingFact};
use agent_protocol::payload::tool::Baseline;

use crate::conversation::{Call, Conversation, Entry};
use crate::prompt::Preamble;

impl Conversation {
    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.items().iter().flat_map(|item| item.entry.calls())
    }

    /// The calls whose observation is in the input, with its text.
    #[must_use]
    pub fn held_calls(&self) -> HashSet<&ToolCallId> {
        let held = self.calls().filter(|call| call.has_text());
        held.map(|call| &call.tool_call_id).collect()
    }

    /// Every file whose content is in the input, by version, with the lines that are; in the order of
    /// their first appearance.
    #[must_use]
    pub fn files(&self) -> Vec<FileRef> {
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        let mut found: Vec<(&Baseline, Vec<(u64, u64)>)> = Vec::new();
        let held = self.calls().filter(|call| call.has_text());
        for file in held.filter_map(|call| call.file.as_ref()) {
            let at = *places.entry((&file.path, &file.sha256)).or_insert_with(|| {
                found.push((file, Vec::new()));
                found.len() - 1
            });
            found[at].1.extend(file.range.as_deref().and_then(lines));
        }
        let files = found.into_iter().map(|(file, ranges)| FileRef {
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            range: joined(ranges),
        });
        files.collect()
    }

    /// What belongs into the input and cannot be there.
    #[must_use]
    pub fn missing(&self) -> Vec<MissingFact> {
        let gone = self.items().iter().flat_map(|item| {
            let sequence = item.sequence;
            item.gone.iter().map(move |id| MissingFact {
                fact: format!("what artifact {id} held of the entry that event {sequence} began"),
                status: "unavailable".to_owned(),
            })
        });
        gone.collect()
    }
}

/// What the input leaves out of what there is.
pub(crate) fn omitted(preamble: &Preamble, conversation: &Conversation) -> Vec<ContextOmission> {
    let instructions = preamble.left_out.iter().map(|left| ContextOmission {
        source: format!("instructions in `{}`", left.path),
        reference: None,
        reason: left.reason.clone(),
    });
    let compacted = conversation.items().first().and_then(|item| {
        let Entry::Summary {
            artifact, excerpts, ..
        } = &item.entry
        else {
            return None;
        };
        let reference = Some(artifact.to_string());
        let history = ContextOmission {
            source: format!("the conversation up to event {}", item.sequence),
            reference: reference.clone(),
            reason: "compacted: a summary stands for it".to_owned(),
        };
        let words = (*excerpts > 0).then(|| ContextOmission {
            source: format!("parts of {excerpts} inputs of the user"),
            reference,
            reason: "too long: the fact sheet says where each can be read whole".to_owned(),
        });
        Some(std::iter::once(history).chain(words))
    });
    instructions
        .chain(compacted.into_iter().flatten())
        .collect()
}

/// What the input should hold and cannot.
pub(crate) fn missing(preamble: &Preamble, conversation: &Conversation) -> Vec<MissingFact> {
    let unread = preamble.left_out.iter().filter(|left| left.is_missing);
    let instructions = unread.map(|left| MissingFact {
        fact: format!("instructions in `{}`: {}", left.path, left.reason),
        status: "unavailable".to_owned(),
    });
    instructions.chain(conversation.missing()).collect()
}

/// The first and last line of a range such as `1-20`.
fn lines(range: &str) -> Option<(u64, u64)> {
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Ranges as one text, with those that touch put together.
fn joined(mut ranges: Vec<(u64, u64)>) -> Option<String> {
    ranges.sort_unstable();
    let mut whole: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match whole.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = (*end).max(last),
            _ => whole.push((first, last)),
        }
    }
    let texts = whole.iter().map(|(first, last)| format!("{first}-{last}"));
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ranges: &[(u64, u64)], expected: Option<&str>) {
        assert_eq!(joined(ranges.to_vec()).as_deref(), expected, "{ranges:?}");
    }

    #[test]
    fn ranges_that_touch_are_one() {
        check(&[], None);
        check(&[(5, 8), (1, 4)], Some("1-8"));
        check(&[(1, 4), (2, 3), (6, 9)], Some("1-4,6-9"));
        assert_eq!(lines("1-20"), Some((1, 20)));
        assert_eq!(lines("all"), None);
    }
}
