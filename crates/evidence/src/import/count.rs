//! What a record counted, and which answer it belongs to.

use std::collections::HashMap;

use agent_protocol::payload::Usage;

use super::{Entry, Said};

/// Which answer each count belongs to: the one before it, or the one right after it. A count that
/// belongs to none is its own.
pub(super) fn usages(said: &[Entry]) -> HashMap<usize, Usage> {
    let mut usages = HashMap::new();
    let is_border = |said: &Said| {
        matches!(
            said,
            Said::Counted(_) | Said::Prompt { .. } | Said::Result(_)
        )
    };
    let is_answer = |said: &Said| matches!(said, Said::Answer { .. });
    for (at, entry) in said.iter().enumerate() {
        let Said::Counted(usage) = &entry.said else {
            continue;
        };
        // A sub-agent counts its own answers.
        let same = |(_, other): &(usize, &Entry)| other.agent == entry.agent;
        let before = said[..at].iter().enumerate().rev().filter(same);
        let mut before = before.take_while(|(_, entry)| !is_border(&entry.said));
        let after = said[at + 1..].iter().enumerate().filter(same);
        let mut after = after.take_while(|(_, entry)| !is_border(&entry.said));
        let place = before
            .find(|(_, entry)| is_answer(&entry.said))
            .map(|(place, _)| place)
            .or_else(|| {
                let found = after.find(|(_, entry)| is_answer(&entry.said));
                found.map(|(place, _)| at + 1 + place)
            })
            .filter(|place| !usages.contains_key(place));
        usages.insert(place.unwrap_or(at), usage.clone());
    }
    usages
}

/// Adds what was counted to a total; a missing number stays missing until one is known.
pub(super) fn add(total: &mut Usage, more: &Usage) {
    let sum = |total: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *total = Some(total.unwrap_or(0).saturating_add(more));
        }
    };
    sum(&mut total.input, more.input);
    sum(&mut total.output, more.output);
    sum(&mut total.cached_input, more.cached_input);
    sum(&mut total.cache_write, more.cache_write);
    sum(&mut total.reasoning, more.reasoning);
}
