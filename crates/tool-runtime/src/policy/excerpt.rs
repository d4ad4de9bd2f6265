//! Excerpt of a long output: the beginning, the end, and the surroundings of lines that look like errors. Bounded
//! memory, whatever the length.

use std::collections::VecDeque;

use aho_corasick::{AhoCorasick, MatchKind};
use memchr::{memchr, memrchr};

use super::collector::Segment;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectLimits {
    /// Bytes from the start. Output that is no longer than this is kept whole.
    pub head: usize,
    /// Bytes from the end.
    pub tail: usize,
    /// Up to here the beginning is shown anyway, so nobody looks for errors.
    pub look_from: usize,
    /// How many error lines get a window of their own.
    pub windows: usize,
    /// How long a window may be.
    pub window_bytes: usize,
}

impl Default for CollectLimits {
    fn default() -> Self {
        Self {
            head: 32 * 1024,
            tail: 16 * 1024,
            look_from: 9 * 1024,
            windows: 6,
            window_bytes: 1200,
        }
    }
}

impl CollectLimits {
    /// What fits into a text of this many characters.
    pub(crate) fn for_chars(chars: usize) -> Self {
        Self {
            head: chars * 3 / 10,
            tail: chars * 45 / 100,
            look_from: chars * 3 / 10,
            windows: 6,
            window_bytes: (chars / 25).min(1200),
        }
    }
}

/// Words that stand in error lines of compilers, test runners and interpreters. Without their first
/// letter where both cases occur.
const ERROR_WORDS: [&str; 9] = [
    "rror",
    "ERROR",
    "FAIL",
    "ailed",
    "panicked",
    "xception",
    "Traceback",
    "atal:",
    "FATAL",
];

/// An unfinished line longer than this is looked at as it is.
const MAX_PENDING: usize = 4096;
const LINES_BEFORE: usize = 2;
const BYTES_BEFORE: usize = 300;

pub(crate) struct Excerpt {
    limits: CollectLimits,
    /// Finds the first error word in one pass; nothing only if the words could not be compiled,
    /// and then no windows are kept.
    error_words: Option<AhoCorasick>,
    total: u64,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    windows: Vec<Segment>,
    /// How many bytes the last window still takes.
    open: usize,
    /// The line that has no end yet.
    pending: Vec<u8>,
    /// The end of what was looked at so far.
    seen: Vec<u8>,
}

impl Excerpt {
    pub(crate) fn new(limits: CollectLimits) -> Self {
        Self {
            limits,
            // Asked for the leftmost, it looks at 16 bytes at a time.
            error_words: AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .build(ERROR_WORDS)
                .ok(),
            total: 0,
            head: Vec::new(),
            tail: VecDeque::new(),
            windows: Vec::new(),
            open: 0,
            pending: Vec::new(),
            seen: Vec::new(),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = self.limits.head.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.watch(bytes);
        if bytes.len() >= self.limits.tail {
            self.tail.clear();
            self.tail.extend(&bytes[bytes.len() - self.limits.tail..]);
        } else {
            let excess = (self.tail.len() + bytes.len()).saturating_sub(self.limits.tail);
            self.tail.drain(..excess);
            self.tail.extend(bytes);
        }
        self.total += bytes.len() as u64;
    }

    /// Looks at whole lines only, so that it does not matter where the pieces were cut.
    fn watch(&mut self, bytes: &[u8]) {
        if self.windows.len() >= self.limits.windows && self.open == 0 {
            return;
        }
        let Some(last_newline) = memrchr(b'\n', bytes) else {
            self.pending.extend_from_slice(bytes);
            if self.pending.len() > MAX_PENDING {
                let line = std::mem::take(&mut self.pending);
                let start = self.total + bytes.len() as u64 - line.len() as u64;
                self.look(&line, start);
            }
            return;
        };
        let mut from = 0;
        if !self.pending.is_empty() {
            let first = memchr(b'\n', bytes).unwrap_or(last_newline);
            let mut line = std::mem::take(&mut self.pending);
            let start = self.total - line.len() as u64;
            line.extend_from_slice(&bytes[..=first]);
            self.look(&line, start);
            from = first + 1;
        }
        if from <= last_newline {
            self.look(&bytes[from..=last_newline], self.total + from as u64);
        }
        self.pending.extend_from_slice(&bytes[last_newline + 1..]);
    }

    /// Takes whole lines that start at `start` of the output into windows.
    fn look(&mut self, lines: &[u8], start: u64) {
        let mut at = 0;
        if self.open > 0 {
            at = self.extend_window(lines, 0);
        }
        let skip = (self.limits.look_from as u64).saturating_sub(start);
        at = at.max(usize::try_from(skip).unwrap_or(usize::MAX));
        while at < lines.len() && self.windows.len() < self.limits.windows {
            let rest = &lines[at..];
            let words = self.error_words.as_ref();
            let Some(found) = words.and_then(|words| words.find(rest)) else {
                break;
            };
            let line =
                memrchr(b'\n', &lines[..at + found.start()]).map_or(0, |newline| newline + 1);
            let before = self.context_before(&lines[..line]);
            self.windows.push(Segment {
                offset: start + line as u64 - before.len() as u64,
                bytes: before,
                stderr: Vec::new(),
            });
            self.open = self.limits.window_bytes;
            at = self.extend_window(lines, line);
        }
        self.seen = last_bytes(&self.seen, lines, BYTES_BEFORE);
    }

    /// Gives the open window the lines it still takes; returns where it ended. Only a first line
    /// that is too long is cut.
    fn extend_window(&mut self, lines: &[u8], from: usize) -> usize {
        let Some(window) = self.windows.last_mut() else {
            return from;
        };
        let mut at = from;
        while at < lines.len() {
            let length =
                memchr(b'\n', &lines[at..]).map_or(lines.len() - at, |newline| newline + 1);
            let is_first = self.open == self.limits.window_bytes;
            if length > self.open {
                if is_first {
                    window.bytes.extend_from_slice(&lines[at..at + self.open]);
                    at += length;
                }
                self.open = 0;
                return at;
            }
            window.bytes.extend_from_slice(&lines[at..at + length]);
            self.open -= length;
            at += length;
        }
        at
    }

    /// A line or two before an error, of what was looked at before and of `lines` up to it.
    fn context_before(&self, lines: &[u8]) -> Vec<u8> {
        let mut before = last_bytes(&self.seen, lines, BYTES_BEFORE);
        let mut cut = before.len();
        for _ in 0..=LINES_BEFORE {
            match memrchr(b'\n', &before[..cut]) {
                Some(newline) => cut = newline,
                // The first line is only whole when it is the first of all.
                None if before.len() < BYTES_BEFORE => return before,
                None => {
                    return match memchr(b'\n', &before) {
                        Some(newline) => before.split_off(newline + 1),
                        None => before,
                    };
                }
            }
        }
        before.split_off(cut + 1)
    }

    /// What was kept, in order and without overlap.
    pub(crate) fn finish(mut self) -> Vec<Segment> {
        if !self.pending.is_empty() {
            let line = std::mem::take(&mut self.pending);
            let start = self.total - line.len() as u64;
            self.look(&line, start);
        }
        let tail_start = self.total - self.tail.len() as u64;
        if self.total > self.limits.head as u64 {
            // The rest of it was only kept in case the whole would fit.
            self.head.truncate(self.limits.look_from);
        }
        let head = Segment {
            offset: 0,
            bytes: self.head,
            stderr: Vec::new(),
        };
        let tail = Segment {
            offset: tail_start,
            bytes: self.tail.into(),
            stderr: Vec::new(),
        };
        let mut segments: Vec<Segment> = Vec::new();
        for mut segment in std::iter::once(head).chain(self.windows).chain([tail]) {
            let end = segments.last().map_or(0, Segment::end);
            let overlap = usize::try_from(end.saturating_sub(segment.offset)).unwrap_or(usize::MAX);
            if overlap >= segment.bytes.len() {
                continue;
            }
            segment.bytes.drain(..overlap);
            segment.offset += overlap as u64;
            // Touching pieces are one piece.
            match segments.last_mut() {
                Some(last) if last.end() == segment.offset => {
                    last.bytes.append(&mut segment.bytes);
                }
                _ => segments.push(segment),
            }
        }
        segments
    }
}

/// The last `count` bytes of two pieces that follow each other.
fn last_bytes(first: &[u8], second: &[u8], count: usize) -> Vec<u8> {
    let from_second = &second[second.len().saturating_sub(count)..];
    let wanted = count - from_second.len();
    let mut bytes = first[first.len().saturating_sub(wanted)..].to_vec();
    bytes.extend_from_slice(from_second);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> CollectLimits {
        CollectLimits {
            head: 60,
            tail: 40,
            look_from: 30,
            windows: 2,
            window_bytes: 30,
        }
    }

    fn keep(limits: CollectLimits, pieces: &[&[u8]]) -> Vec<(u64, String)> {
        let mut excerpt = Excerpt::new(limits);
        for piece in pieces {
            excerpt.push(piece);
        }
        excerpt
            .finish()
            .into_iter()
            .map(|segment| (segment.offset, String::from_utf8(segment.bytes).unwrap()))
            .collect()
    }

    fn numbered(count: usize) -> String {
        (0..count).map(|line| format!("line {line:04}\n")).collect()
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        assert_eq!(
            keep(small(), &[b"one\n", b"two\n"]),
            [(0, "one\ntwo\n".into())]
        );
        assert_eq!(keep(small(), &[]), []);
    }

    #[test]
    fn beginning_end_and_errors_are_kept() {
        let text = numbered(20) + "an error: here\nafter 1\nafter 2\nafter 3\n" + &numbered(20);
        let kept = keep(small(), &[text.as_bytes()]);
        assert_eq!(kept[0], (0, text[..30].into()));
        assert_eq!(kept[1].1, "line 0018\nline 0019\nan error: here\nafter 1\n");
        assert_eq!(kept[2].1, text[text.len() - 40..]);
        for (offset, part) in &kept {
            let at = usize::try_from(*offset).unwrap();
            assert_eq!(&text[at..at + part.len()], part);
        }
    }

    proptest::proptest! {
        /// Where the pipe happens to cut the output must not change what is kept.
        #[test]
        fn cuts_change_nothing(lines in proptest::collection::vec("[a-z]{0,12}( error)?", 0..60), cuts in proptest::collection::vec(1usize..50, 1..40)) {
            let text = lines.join("\n");
            let whole = keep(small(), &[text.as_bytes()]);
            let mut excerpt = Excerpt::new(small());
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, left) = rest.split_at((*cut).min(rest.len()));
                excerpt.push(piece);
                rest = left;
            }
            let pieces = excerpt.finish();
            let mut end = 0;
            for (piece, (offset, part)) in pieces.iter().zip(&whole) {
                proptest::prop_assert_eq!(&piece.bytes, part.as_bytes());
                proptest::prop_assert_eq!(piece.offset, *offset);
                proptest::prop_assert!(piece.offset >= end);
                end = piece.end();
                let at = usize::try_from(piece.offset).unwrap();
                proptest::prop_assert_eq!(&text.as_bytes()[at..at + piece.bytes.len()], &piece.bytes[..]);
            }
            proptest::prop_assert_eq!(pieces.len(), whole.len());
        }
    }
}
