//! Answers that stopped before their end, by their length or because the server paused: the model is asked
//! for the rest, and what it said counts as one answer.

use std::sync::Arc;

use agent_provider::StopReason;
use agent_provider::conversation::{Message, UserPart};

use crate::conversation::{Entry, Item, Step};

/// Times that one answer is continued.
const MOST: usize = 3;

const GO_ON: &str = "[Your answer was cut off by the length limit. Go on exactly where it stopped; do not repeat what \
you have said.]";

/// The reason why an answer stopped before its end.
fn stopped_early(step: &Step) -> Option<StopReason> {
    let stop = StopReason::from_word(&step.stop_reason);
    let is_early = matches!(stop, StopReason::MaxTokens | StopReason::Paused);
    (is_early && step.answered).then_some(stop)
}

/// True of an answer without calls that can be repeated to the model: not of one whose connection broke, and not
/// of a thought alone that was cut off, which services refuse.
pub(crate) fn can_be_repeated(step: &Step) -> bool {
    step.answered && !(step.text.is_empty() && stopped_early(step).is_some())
}

/// The answer, if it stopped before its end and asked for nothing.
fn cut(item: &Item) -> Option<(&Step, StopReason)> {
    match &item.entry {
        Entry::Step(step) if step.calls.is_empty() => Some((step, stopped_early(step)?)),
        _ => None,
    }
}

/// True if the last answer is to be continued.
pub(crate) fn is_unfinished(items: &[Item]) -> bool {
    let pieces = items.iter().rev().map_while(cut).count();
    (1..=MOST).contains(&pieces)
}

/// The last answer, which says `last`, with the pieces that it continues.
pub(crate) fn whole(items: &[Item], last: &str) -> String {
    let before = items.iter().rev().skip(1).map_while(cut);
    let mut texts: Vec<&str> = before.map(|(step, _)| step.text.as_str()).collect();
    texts.reverse();
    texts.push(last);
    texts.concat()
}

/// The message behind the first of `items`, by which the model is asked for the rest. A paused server goes on
/// by itself, and the user's next words need no other.
pub(crate) fn word_behind(items: &[Item]) -> Option<Arc<Message>> {
    let (step, stop) = cut(items.first()?)?;
    let is_answered = items
        .get(1)
        .is_some_and(|next| !matches!(next.entry, Entry::Step(_)));
    let is_wanted = stop == StopReason::MaxTokens && !step.text.is_empty() && !is_answered;
    is_wanted.then(|| Arc::new(Message::User(vec![UserPart::Text(GO_ON.to_owned())])))
}
