//! A second edit engine, written as plainly as possible and sharing no code with the first. Used by
//! the properties here and by the fuzz target `edit`.

use agent_local_tools::Encoding;
use agent_local_tools::edit::Edit;
use agent_protocol::Code;

const FEED: u16 = 0x0A;
const RETURN: u16 = 0x0D;

/// What the edits make of a file.
pub(crate) struct Edited {
    pub(crate) bytes: Vec<u8>,
    /// A place had both kinds of line break, so that which one a new line gets is a choice that this
    /// oracle does not repeat.
    pub(crate) breaks_are_open: bool,
}

impl Edited {
    /// True if `bytes` is this file.
    pub(crate) fn is(&self, bytes: &[u8], encoding: Encoding) -> bool {
        let joined = |bytes: &[u8]| -> Vec<u16> {
            let units = units(bytes, encoding);
            let is_pair = |at: usize| units[at] == RETURN && units.get(at + 1) == Some(&FEED);
            (0..units.len())
                .filter(|at| !is_pair(*at))
                .map(|at| units[at])
                .collect()
        };
        bytes == self.bytes || (self.breaks_are_open && joined(bytes) == joined(&self.bytes))
    }
}

/// The bytes of `content` as its smallest units: two bytes in UTF-16, one in everything else.
fn units(bytes: &[u8], encoding: Encoding) -> Vec<u16> {
    match encoding {
        Encoding::Utf16Le => (bytes.chunks_exact(2).map(|unit| [unit[0], unit[1]]))
            .map(u16::from_le_bytes)
            .collect(),
        Encoding::Utf16Be => (bytes.chunks_exact(2).map(|unit| [unit[0], unit[1]]))
            .map(u16::from_be_bytes)
            .collect(),
        _ => bytes.iter().map(|byte| u16::from(*byte)).collect(),
    }
}

fn bytes(units: &[u16], encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Utf16Le => units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        Encoding::Utf16Be => units.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
        _ => units.iter().map(|unit| unit.to_le_bytes()[0]).collect(),
    }
}

/// Makes `edits`, or says with which code they are refused.
pub(crate) fn edited(content: &[u8], encoding: Encoding, edits: &[Edit]) -> Result<Edited, Code> {
    if edits.iter().all(|edit| edit.old == edit.new) {
        return Err(Code::NoChange);
    }
    let (mark, text) = content.split_at(encoding.mark_length());
    let text = units(text, encoding);
    let mut places = Vec::new();
    let mut breaks_are_open = false;
    for edit in edits {
        for (start, end) in places_of(&text, encoding, edit)? {
            let mixed = breaks_in(&text, start, end);
            let mixed = mixed.contains(&true) && mixed.contains(&false);
            breaks_are_open |= mixed && !is_literal(edit);
            let new = replacement(&text, start, end, edit);
            let new = encoding
                .encode(&new)
                .map_err(|_| Code::UnsupportedContent)?;
            places.push((start, end, units(&new, encoding)));
        }
    }
    places.sort();
    let mut after = Vec::new();
    let mut copied = 0;
    for (start, end, new) in places {
        let kept = text.get(copied..start);
        after.extend(kept.ok_or(Code::RuntimePreconditionFailed)?);
        after.extend(new);
        copied = end;
    }
    after.extend(&text[copied..]);
    if after == text {
        return Err(Code::NoChange);
    }
    // A byte that makes no unit stays at the end.
    let rest = &content[mark.len() + bytes(&text, encoding).len()..];
    Ok(Edited {
        bytes: [mark, &bytes(&after, encoding), rest].concat(),
        breaks_are_open,
    })
}

fn is_literal(edit: &Edit) -> bool {
    edit.old.contains('\r') || edit.new.contains('\r')
}

/// Where the edit applies.
fn places_of(text: &[u16], encoding: Encoding, edit: &Edit) -> Result<Vec<(usize, usize)>, Code> {
    let old = encoding
        .encode(&edit.old)
        .map_err(|_| Code::TargetNotFound)?;
    let old = units(&old, encoding);
    let literal = is_literal(edit);
    let match_at = |at: usize| -> Option<usize> {
        let mut end = at;
        for wanted in &old {
            if !literal && *wanted == FEED && text[end..].starts_with(&[RETURN, FEED]) {
                end += 2;
            } else if text.get(end) == Some(wanted) {
                end += 1;
            } else {
                return None;
            }
        }
        Some(end)
    };
    // A carriage return before a matched line feed belongs to the break, not to what is before it.
    let starts_inside_break =
        |at: usize| !literal && text[at] == FEED && at > 0 && text[at - 1] == RETURN;
    let candidates: Vec<(usize, usize)> = (0..text.len())
        .filter(|_| !old.is_empty())
        .filter(|at| !starts_inside_break(*at))
        .filter_map(|at| match_at(at).map(|end| (at, end)))
        .collect();
    match candidates.len() {
        0 => Err(Code::TargetNotFound),
        1 => Ok(candidates),
        _ if !edit.replace_all => Err(Code::AmbiguousTarget),
        _ => {
            let mut free = 0;
            let mut apart = candidates;
            apart.retain(|(start, end)| {
                let is_free = *start >= free;
                if is_free {
                    free = *end;
                }
                is_free
            });
            Ok(apart)
        }
    }
}

/// Of each line break in a place, whether it is a pair.
fn breaks_in(text: &[u16], start: usize, end: usize) -> Vec<bool> {
    (start..end)
        .filter(|at| text[*at] == FEED)
        .map(|at| at > start && text[at - 1] == RETURN)
        .collect()
}

/// The new text with the line breaks of the place it goes to.
fn replacement(text: &[u16], start: usize, end: usize, edit: &Edit) -> String {
    if is_literal(edit) {
        return edit.new.clone();
    }
    let around = || {
        let after = (end..text.len()).find(|at| text[*at] == FEED);
        let before = (0..start).rev().find(|at| text[*at] == FEED);
        (after.or(before)).is_some_and(|at| at > 0 && text[at - 1] == RETURN)
    };
    let breaks = breaks_in(text, start, end);
    let is_pair = breaks.first().copied().unwrap_or_else(around);
    edit.new.replace('\n', if is_pair { "\r\n" } else { "\n" })
}
