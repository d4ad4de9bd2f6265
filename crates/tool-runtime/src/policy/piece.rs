//! Pieces of a longer text, masked as the whole would be: a secret that lies across the border of a
//! piece is found because its surroundings are looked at, too.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// So much is looked at on either side of a piece. Keys and tokens are far shorter.
const SURROUNDINGS: u64 = 64 << 10;

/// Where a secret stands in a whole text, and what stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    pub start: u64,
    pub end: u64,
    pub placeholder: String,
}

/// The secrets that touch `range` of a text of which `read` gives any part, as offsets in it.
pub fn hidden_in(
    range: Range<u64>,
    secrets: impl FnOnce(&[u8]) -> Vec<(Range<usize>, String)>,
    read: impl FnOnce(Range<u64>) -> Vec<u8>,
) -> Vec<Hidden> {
    let from = range.start.saturating_sub(SURROUNDINGS);
    let bytes = read(from..range.end.saturating_add(SURROUNDINGS));
    let secrets = secrets(&bytes).into_iter();
    let hidden = secrets.map(|(place, placeholder)| Hidden {
        start: from + place.start as u64,
        end: from + place.end as u64,
        placeholder,
    });
    hidden
        .filter(|hidden| hidden.end > range.start && hidden.start < range.end)
        .collect()
}

/// As much of a range as a file has.
pub fn read_range(file: &File, range: Range<u64>) -> Vec<u8> {
    let length = range.end.saturating_sub(range.start);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], range.start + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes.truncate(filled);
    bytes
}

/// `bytes`, which begin at `start` of the whole, with what is hidden replaced.
#[must_use]
pub fn masked_piece(bytes: &[u8], start: u64, hidden: &[Hidden]) -> Vec<u8> {
    let end = start + bytes.len() as u64;
    let index =
        |place: u64| usize::try_from(place.clamp(start, end) - start).unwrap_or(bytes.len());
    let mut masked = Vec::with_capacity(bytes.len());
    let mut at = start;
    for hidden in hidden {
        if hidden.end <= at || hidden.start >= end {
            continue;
        }
        masked.extend_from_slice(&bytes[index(at)..index(hidden.start.max(at))]);
        masked.extend_from_slice(hidden.placeholder.as_bytes());
        at = hidden.end;
    }
    masked.extend_from_slice(&bytes[index(at)..]);
    masked
}
