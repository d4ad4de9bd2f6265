//! The edit engine: exact text in, exact bytes out.
//!
//! [`plan`] finds every place in the content as it is and says no unless all of it is certain;
//! [`Plan::apply`] then copies the content with those places replaced. Nothing else is touched, and
//! nothing is ever matched approximately: what is nearly there is reported by `diagnose`.

mod diagnose;
mod matching;
mod tool;

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use agent_protocol::Code;

pub(crate) use diagnose::nearest;
pub use diagnose::{Difference, Nearest};
pub(crate) use tool::{TOOL, check_version, current_version, not_readable, readable};

use crate::encoding::Encoding;
use matching::{Breaks, Haystack, with_breaks_of_place};

/// Number of lines an error lists.
const LISTED: usize = 10;

/// One replacement the model asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The text to replace.
    pub old: String,
    /// What takes its place.
    pub new: String,
    /// Every place instead of the only one.
    pub replace_all: bool,
}

/// The places to replace, in order, without overlap.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    replacements: Vec<Replacement>,
    after_length: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    pub(crate) place: Range<usize>,
    pub(crate) with: Rc<[u8]>,
    /// Index of the edit that asked for it.
    edit: usize,
}

/// Reason the edits cannot be made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EditProblem {
    /// The text does not occur.
    #[error("edit {edit}: the text to replace does not occur in the file{}", described(.nearest.as_ref()))]
    NotFound {
        /// Number of the edit, from 1.
        edit: usize,
        /// The closest match.
        nearest: Option<Nearest>,
    },
    /// The text occurs more than once.
    #[error("edit {edit}: the text to replace occurs {count} times (lines {}), and has to occur once", listed(.lines, *.count))]
    Ambiguous {
        /// Number of the edit, from 1.
        edit: usize,
        /// Number of matches.
        count: usize,
        /// Lines of the first matches.
        lines: Vec<usize>,
    },
    /// Two edits want the same bytes.
    #[error("edits {first} and {second} overlap on line {line}")]
    Overlap {
        /// The one that starts first.
        first: usize,
        /// The other.
        second: usize,
        /// First line of the other.
        line: usize,
    },
    /// Old and new are the same.
    #[error("the edits leave the file as it is")]
    NoChange,
    /// The new text has a character the file's encoding has no place for.
    #[error("edit {edit}: the file is {encoding}, which has no place for `{}` (U+{:04X})", .character.escape_debug(), u32::from(*.character))]
    Unencodable {
        /// Number of the edit, from 1.
        edit: usize,
        /// The character.
        character: char,
        /// The file's encoding.
        encoding: &'static str,
    },
}

fn described(nearest: Option<&Nearest>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; {nearest}"))
}

fn listed(lines: &[usize], count: usize) -> String {
    let mut text = lines
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if lines.len() < count {
        text.push_str(", \u{2026}");
    }
    text
}

impl EditProblem {
    /// The code of the call.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } => Code::TargetNotFound,
            Self::Ambiguous { .. } => Code::AmbiguousTarget,
            Self::Overlap { .. } => Code::RuntimePreconditionFailed,
            Self::NoChange => Code::NoChange,
            Self::Unencodable { .. } => Code::UnsupportedContent,
        }
    }

    /// Index of the edit it is about, from 0.
    pub fn edit(&self) -> Option<usize> {
        match self {
            Self::NotFound { edit, .. }
            | Self::Ambiguous { edit, .. }
            | Self::Unencodable { edit, .. } => Some(edit - 1),
            Self::Overlap { second, .. } => Some(second - 1),
            Self::NoChange => None,
        }
    }
}

/// Finds the places of all `edits` in `content`. Each is matched against the content as it is, not
/// against what an earlier edit makes of it.
pub fn plan(content: &[u8], encoding: Encoding, edits: &[Edit]) -> Result<Plan, EditProblem> {
    if edits.iter().all(|edit| edit.old == edit.new) {
        return Err(EditProblem::NoChange);
    }
    let mut haystack = Haystack::new(content, encoding);
    let mut replacements = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        find_one(&mut haystack, index, edit, &mut replacements)?;
    }
    replacements
        .sort_by_key(|replacement: &Replacement| (replacement.place.start, replacement.place.end));
    for pair in replacements.windows(2) {
        if pair[1].place.start < pair[0].place.end {
            return Err(EditProblem::Overlap {
                first: pair[0].edit + 1,
                second: pair[1].edit + 1,
                line: line_at(content, encoding, pair[1].place.start),
            });
        }
    }
    if replacements
        .iter()
        .all(|one| content[one.place.clone()] == *one.with)
    {
        return Err(EditProblem::NoChange);
    }
    let removed: usize = replacements.iter().map(|one| one.place.len()).sum();
    let added: usize = replacements.iter().map(|one| one.with.len()).sum();
    Ok(Plan {
        replacements,
        after_length: content.len() - removed + added,
    })
}

fn find_one(
    haystack: &mut Haystack<'_>,
    index: usize,
    edit: &Edit,
    replacements: &mut Vec<Replacement>,
) -> Result<(), EditProblem> {
    let (content, encoding) = (haystack.content, haystack.encoding);
    let breaks = Breaks::of(&edit.old, &edit.new);
    let not_found = || EditProblem::NotFound {
        edit: index + 1,
        nearest: nearest(content, encoding, &edit.old),
    };
    let needle = match encoding.encode(&edit.old) {
        Ok(needle) if !needle.is_empty() => needle,
        _ => return Err(not_found()),
    };
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut count = 0;
    haystack.each(&needle, breaks, |place| {
        count += 1;
        if edit.replace_all || count <= LISTED {
            places.push(place);
        }
        true
    });
    if !edit.replace_all {
        let overlapping = count == 1 && haystack.again_within(&needle, breaks, &places[0]);
        if count > 1 || overlapping {
            let lines = places
                .iter()
                .map(|place| line_at(content, encoding, place.start))
                .collect();
            return Err(EditProblem::Ambiguous {
                edit: index + 1,
                count: count.max(2),
                lines,
            });
        }
    }
    if places.is_empty() {
        return Err(not_found());
    }
    let unencodable = |character| EditProblem::Unencodable {
        edit: index + 1,
        character,
        encoding: encoding.name(),
    };
    // Most edits write the same bytes at every place; those are shared.
    let literal = breaks == Breaks::Literal || !edit.new.contains('\n');
    let mut last: Option<Rc<[u8]>> = None;
    for place in places {
        let with: Rc<[u8]> = match &last {
            Some(shared) if literal => Rc::clone(shared),
            known => {
                let bytes = if literal {
                    encoding.encode(&edit.new).map_err(unencodable)?
                } else {
                    Cow::Owned(
                        with_breaks_of_place(&edit.old, &edit.new, content, &place, encoding)
                            .map_err(unencodable)?,
                    )
                };
                match known {
                    Some(shared) if **shared == *bytes => Rc::clone(shared),
                    _ => bytes.into_owned().into(),
                }
            }
        };
        last = Some(Rc::clone(&with));
        replacements.push(Replacement {
            place,
            with,
            edit: index,
        });
    }
    Ok(())
}

/// The line, from 1, on which the byte at `at` stands.
pub(crate) fn line_at(content: &[u8], encoding: Encoding, at: usize) -> usize {
    encoding.count_feeds(&content[..at]) + 1
}

impl Plan {
    /// The content with every place replaced.
    pub fn apply(&self, content: &[u8]) -> Vec<u8> {
        let mut after = Vec::with_capacity(self.after_length);
        let mut copied = 0;
        for replacement in &self.replacements {
            after.extend_from_slice(&content[copied..replacement.place.start]);
            after.extend_from_slice(&replacement.with);
            copied = replacement.place.end;
        }
        after.extend_from_slice(&content[copied..]);
        after
    }

    /// Number of places that are replaced.
    pub fn count(&self) -> usize {
        self.replacements.len()
    }

    /// The changed byte ranges, before and after.
    pub fn changes(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let mut shift = 0isize;
        self.replacements
            .iter()
            .map(|one| {
                let start = one.place.start.saturating_add_signed(shift);
                shift += one.with.len() as isize - one.place.len() as isize;
                (one.place.clone(), start..start + one.with.len())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
