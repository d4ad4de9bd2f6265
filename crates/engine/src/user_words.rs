//! What the user said, for the fact sheet of a compaction: word for word as far as there is room,
//! the newest first, and otherwise its beginning and its end with the artifact that has all of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use agent_protocol::id::{ArtifactId, TurnId};
use agent_protocol::payload::conversation::{NO_MODEL, TurnSubmitted};
use agent_protocol::payload::model::ExcerptedInput;
use agent_protocol::{Event, Payload};

use crate::conversation::ArtifactText;
use crate::entering::Entering;

/// Bytes at the begin and at the end of an input that an excerpt has.
const EXCERPT: (usize, usize) = (1_200, 400);
/// The same where there is hardly any room.
const SHORT_EXCERPT: (usize, usize) = (160, 40);
/// What goes around an input, at most.
const FRAME: usize = 300;

/// Everything the user said that became a part of the conversation, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserWords {
    said: Vec<Said>,
    /// Inputs that wait for work on them to begin.
    waiting: BTreeMap<TurnId, Said>,
    entering: Entering,
    /// Events that were inherited: a fork's own count on from there.
    base: u64,
}

#[derive(Clone, Debug, Default)]
struct Said {
    /// The event with which it joined the conversation.
    sequence: u64,
    turn_id: TurnId,
    text: String,
    /// Where the text is kept, if it was too long for its event.
    kept: Option<ArtifactId>,
    /// Images and the like, each in words.
    attached: Vec<String>,
    /// The user ran it; it was no request to a model.
    is_own: bool,
}

/// How the inputs were written down.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) whole: Vec<TurnId>,
    pub(crate) excerpts: Vec<ExcerptedInput>,
}

impl UserWords {
    /// Takes in one event.
    pub(crate) fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) {
        match &event.payload {
            Payload::SessionCreated(created) => {
                if let Some(parent) = &created.parent {
                    self.base += parent.sequence + 1;
                    self.waiting.clear();
                }
            }
            Payload::TurnSubmitted(submitted) => {
                if let Some(turn_id) = &event.scope.turn_id {
                    let said = Said::of(turn_id, submitted, artifact);
                    self.waiting.insert(turn_id.clone(), said);
                }
            }
            _ => {}
        }
        if let Some(turn_id) = self.entering.turn(event) {
            let is_own =
                matches!(&event.payload, Payload::TurnStarted(now) if now.model == NO_MODEL);
            self.enter(event, turn_id, is_own);
        }
    }

    fn enter(&mut self, event: &Event, turn_id: &TurnId, is_own: bool) {
        if let Some(mut said) = self.waiting.remove(turn_id) {
            said.sequence = self.base + event.sequence;
            said.is_own = is_own;
            self.said.push(said);
        }
    }

    /// Writes what was said up to an event in about `room` bytes. `keep` keeps a text that is not
    /// repeated whole, so that it can be read back.
    pub(crate) fn write<E>(
        &self,
        out: &mut String,
        up_to_sequence: u64,
        room: usize,
        keep: &mut dyn FnMut(&str) -> Result<ArtifactId, E>,
    ) -> Result<Written, E> {
        let count = self
            .said
            .iter()
            .take_while(|said| said.sequence <= up_to_sequence)
            .count();
        let said = &self.said[..count];
        let (listed, forms) = forms(said, room);
        let mut written = Written::default();
        let _ = writeln!(
            out,
            "\nWhat the user said, oldest first. Marked \"word for word\" it is all they said; marked \"excerpt\" it is the \
             begin and the end of it, and what read_artifact shows of the artifact named there is the user's own text too."
        );
        if listed > 0 {
            let mut whole = String::new();
            for (number, said) in said[..listed].iter().enumerate() {
                let number = number + 1;
                let _ = writeln!(whole, "--- input {number} ---\n{}", said.text);
            }
            let artifact = keep(&whole)?;
            let _ = writeln!(
                out,
                "--- inputs 1 to {listed} are not repeated here; whole: read_artifact {{\"artifact_id\": \"{artifact}\"}} ---"
            );
            written.excerpts = said[..listed]
                .iter()
                .map(|said| said.excerpted(&artifact, 0))
                .collect();
        }
        for (number, (said, form)) in said
            .iter()
            .enumerate()
            .skip(listed)
            .zip(forms)
            .map(|((number, said), form)| (number + 1, (said, form)))
        {
            let who = if said.is_own {
                ", a command the user ran"
            } else {
                ""
            };
            match form {
                None => {
                    let _ = writeln!(
                        out,
                        "--- input {number}, word for word{who} ---\n{}",
                        said.text
                    );
                    written.whole.push(said.turn_id.clone());
                }
                Some((head, tail)) => {
                    let text = &said.text;
                    let head = text.floor_char_boundary(head);
                    let tail = text.ceil_char_boundary(text.len() - tail);
                    let artifact = match &said.kept {
                        Some(kept) => kept.clone(),
                        None => keep(text)?,
                    };
                    let left_out = tail - head;
                    let _ = writeln!(
                        out,
                        "--- input {number}, excerpt{who}: {left_out} of {} bytes are left out; whole: read_artifact {{\"artifact_id\": \"{artifact}\"}} ---\n{}\n[… {left_out} bytes …]\n{}",
                        text.len(),
                        &text[..head],
                        &text[tail..],
                    );
                    let shown = text.len() - left_out;
                    written.excerpts.push(said.excerpted(&artifact, shown));
                }
            }
            for attached in &said.attached {
                let _ = writeln!(out, "[with {attached}; it is no longer shown]");
            }
        }
        out.push_str("--- end of what the user said ---\n");
        Ok(written)
    }
}

/// How many of the oldest are only named, and for each of the others the bytes of its begin and end,
/// or nothing when it is whole.
type Forms = (usize, Vec<Option<(usize, usize)>>);

fn forms(said: &[Said], room: usize) -> Forms {
    let mut left = room;
    let mut forms = Vec::new();
    for said in said.iter().rev() {
        let length = said.text.len();
        let taken = |form: (usize, usize)| form.0 + form.1 + FRAME;
        let form = if length + FRAME <= left && length <= room / 2 {
            None
        } else {
            let form = if taken(EXCERPT) <= left {
                EXCERPT
            } else {
                SHORT_EXCERPT
            };
            // The newest is never only named. What an excerpt would hold anyway is not cut.
            if taken(form) > left && !forms.is_empty() {
                break;
            }
            (length > form.0 + form.1).then_some(form)
        };
        left = left.saturating_sub(form.map_or(length + FRAME, taken));
        forms.push(form);
    }
    forms.reverse();
    (said.len() - forms.len(), forms)
}

impl Said {
    fn of(turn_id: &TurnId, submitted: &TurnSubmitted, artifact: ArtifactText<'_>) -> Self {
        let kept = submitted.input_ref.clone();
        let read = |id: &ArtifactId| String::from_utf8(artifact(id)?).ok();
        let text = match (&submitted.text, &kept) {
            (Some(text), _) => text.clone(),
            (None, Some(id)) => {
                read(id).unwrap_or_else(|| format!("[the artifact {id} with this text is missing]"))
            }
            (None, None) => String::new(),
        };
        let attached = submitted.input_parts.iter().filter_map(|part| {
            let id = part.artifact.as_ref()?;
            let media_type = part.media_type.as_deref().unwrap_or("content");
            let name = part.name.as_deref().unwrap_or("no name");
            Some(format!(
                "{media_type}, {name}, {} bytes, artifact {id}",
                part.bytes
            ))
        });
        Self {
            turn_id: turn_id.clone(),
            text,
            kept,
            attached: attached.collect(),
            ..Self::default()
        }
    }

    fn excerpted(&self, artifact: &ArtifactId, shown: usize) -> ExcerptedInput {
        ExcerptedInput {
            turn_id: self.turn_id.clone(),
            artifact: artifact.clone(),
            bytes: self.text.len() as u64,
            shown_bytes: shown as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lengths: &[usize], room: usize, named: usize, expected: &[Option<(usize, usize)>]) {
        let said: Vec<Said> = lengths
            .iter()
            .map(|length| Said {
                text: "x".repeat(*length),
                ..Said::default()
            })
            .collect();
        assert_eq!(
            forms(&said, room),
            (named, expected.to_vec()),
            "{lengths:?} in {room}"
        );
    }

    #[test]
    fn the_newest_words_have_the_room() {
        let (long, short) = (Some(EXCERPT), Some(SHORT_EXCERPT));
        check(&[10, 10], 4_000, 0, &[None, None]);
        check(&[10, 100_000, 10], 4_000, 0, &[None, long, None]);
        check(&[10, 100_000, 1_500, 100_000], 4_000, 2, &[None, long]);
        check(&[2_000, 2_000, 2_000], 4_100, 0, &[short, short, None]);
        check(&[2_000, 2_000, 2_000], 2_400, 1, &[short, long]);
        check(&[10, 10, 100_000], 100, 2, &[short]);
        check(&[], 100, 0, &[]);
    }
}
