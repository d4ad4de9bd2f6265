//! Search for the text to replace, in bytes.
//!
//! The text is put into the file's encoding and searched as bytes. Line breaks follow one rule:
//! when neither the old nor the new text holds a carriage return, a line feed in the old text
//! matches a line break of the file, `\n` or `\r\n`, and the line breaks of the new text become
//! those of the place. When one of them holds a carriage return, both are taken literally.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::Finder;

use crate::encoding::Encoding;

/// A file's content, prepared for any number of searches.
pub(crate) struct Haystack<'a> {
    pub(crate) content: &'a [u8],
    pub(crate) encoding: Encoding,
    /// Start of the text, after the byte order mark.
    start: usize,
    /// The content with `\r\n` as `\n`, made when the first text with a line feed is searched.
    joined: Option<Joined>,
}

struct Joined {
    content: Vec<u8>,
    /// Positions in `content` of line feeds whose carriage return was left out.
    removed: Vec<usize>,
}

/// Rule for line breaks in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// Byte for byte.
    Literal,
    /// A line feed matches either line break.
    Either,
}

impl Breaks {
    /// The rule for one edit.
    pub(crate) fn of(old: &str, new: &str) -> Self {
        if old.contains('\r') || new.contains('\r') {
            Self::Literal
        } else {
            Self::Either
        }
    }
}

impl<'a> Haystack<'a> {
    pub(crate) fn new(content: &'a [u8], encoding: Encoding) -> Self {
        Self {
            content,
            encoding,
            start: encoding.mark_length(),
            joined: None,
        }
    }

    /// Calls `found` with each match from left to right, overlapping ones left out, until it
    /// returns false.
    pub(crate) fn each(
        &mut self,
        needle: &[u8],
        breaks: Breaks,
        mut found: impl FnMut(Range<usize>) -> bool,
    ) {
        let encoding = self.encoding;
        let start = self.start;
        let has_feed = encoding.line_end(needle, 0).is_some();
        if breaks == Breaks::Literal || !has_feed || !holds_pair(self.content, encoding) {
            aligned(self.content, needle, start, encoding.unit(), found);
            return;
        }
        let content = self.content;
        let joined = self
            .joined
            .get_or_insert_with(|| Joined::of(content, encoding));
        aligned(&joined.content, needle, start, encoding.unit(), |range| {
            found(joined.original(range.start, encoding)..joined.original(range.end, encoding))
        });
    }

    /// True if there is a second match, also one that overlaps the first.
    pub(crate) fn again_within(
        &mut self,
        needle: &[u8],
        breaks: Breaks,
        first: &Range<usize>,
    ) -> bool {
        let unit = self.encoding.unit();
        // Only the bytes a second, overlapping match could cover are looked at: at most twice as
        // many, when its line breaks are the longer ones.
        let until = (first.end + 2 * first.len()).min(self.content.len());
        let mut from = first.start + unit;
        let after_return = self.content[first.start..].starts_with(self.encoding.carriage_return());
        if breaks == Breaks::Either
            && after_return
            && self.content[from..].starts_with(self.encoding.line_feed())
        {
            // The second half of a line break is not a line break of its own.
            from += unit;
        }
        let mut window = Haystack {
            content: &self.content[from.min(until)..until],
            encoding: self.encoding,
            start: 0,
            joined: None,
        };
        let mut again = false;
        window.each(needle, breaks, |_| {
            again = true;
            false
        });
        again
    }
}

fn aligned(
    content: &[u8],
    needle: &[u8],
    start: usize,
    unit: usize,
    mut found: impl FnMut(Range<usize>) -> bool,
) {
    let finder = Finder::new(needle);
    let mut from = start.min(content.len());
    while let Some(at) = finder.find(&content[from..]) {
        let at = from + at;
        if !at.is_multiple_of(unit) {
            from = at + 1;
            continue;
        }
        from = at + needle.len();
        if !found(at..from) {
            return;
        }
    }
}

fn holds_pair(content: &[u8], encoding: Encoding) -> bool {
    let pair = [encoding.carriage_return(), encoding.line_feed()].concat();
    memchr::memmem::find(content, &pair).is_some()
}

impl Joined {
    fn of(content: &[u8], encoding: Encoding) -> Self {
        let unit = encoding.unit();
        let pair = [encoding.carriage_return(), encoding.line_feed()].concat();
        let mut joined = Self {
            content: Vec::with_capacity(content.len()),
            removed: Vec::new(),
        };
        let mut copied = 0;
        aligned(content, &pair, 0, unit, |range| {
            joined
                .content
                .extend_from_slice(&content[copied..range.start]);
            joined.removed.push(joined.content.len());
            copied = range.start + unit;
            true
        });
        joined.content.extend_from_slice(&content[copied..]);
        joined
    }

    /// Start of the unit at `at` in the original.
    fn original(&self, at: usize, encoding: Encoding) -> usize {
        at + self.removed.partition_point(|removed| *removed < at) * encoding.unit()
    }
}

/// `new` in the file's encoding, with the line breaks of the place it goes to.
pub(crate) fn with_breaks_of_place(
    old: &str,
    new: &str,
    content: &[u8],
    place: &Range<usize>,
    encoding: Encoding,
) -> Result<Vec<u8>, char> {
    let breaks = breaks_in(&content[place.clone()], encoding);
    let feeds = memchr::memchr_iter(b'\n', new.as_bytes()).count();
    let wanted = if feeds == 0 {
        Vec::new()
    } else if breaks.is_empty() {
        vec![break_around(content, place, encoding); feeds]
    } else {
        carry_over(old, new, &breaks)
    };
    if !wanted.contains(&Break::Pair) {
        return encoding.encode(new).map(Cow::into_owned);
    }
    let mut text = String::with_capacity(new.len() + wanted.len());
    for (index, line) in new.split('\n').enumerate() {
        if index > 0 {
            text.push_str(if wanted.get(index - 1) == Some(&Break::Pair) {
                "\r\n"
            } else {
                "\n"
            });
        }
        text.push_str(line);
    }
    encoding.encode(&text).map(Cow::into_owned)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    Feed,
    Pair,
}

fn breaks_in(bytes: &[u8], encoding: Encoding) -> Vec<Break> {
    let mut breaks = Vec::new();
    let mut from = 0;
    while let Some(end) = encoding.line_end(bytes, from) {
        breaks.push(break_ending_at(bytes, end, encoding));
        from = end;
    }
    breaks
}

fn break_ending_at(bytes: &[u8], end: usize, encoding: Encoding) -> Break {
    let unit = encoding.unit();
    let paired =
        end >= 2 * unit && &bytes[end - 2 * unit..end - unit] == encoding.carriage_return();
    if paired { Break::Pair } else { Break::Feed }
}

/// The break at the end of the line the place is on, else the one before it.
fn break_around(content: &[u8], place: &Range<usize>, encoding: Encoding) -> Break {
    if let Some(end) = encoding.line_end(content, place.end) {
        return break_ending_at(content, end, encoding);
    }
    match encoding.line_start(content, place.start) {
        0 => Break::Feed,
        start => break_ending_at(content, start, encoding),
    }
}

/// Lines that stay keep their own break; new ones take that of their neighbour.
fn carry_over(old: &str, new: &str, breaks: &[Break]) -> Vec<Break> {
    let feeds = memchr::memchr_iter(b'\n', new.as_bytes()).count();
    let last = breaks[breaks.len() - 1];
    if breaks.iter().all(|one| *one == last) {
        return vec![last; feeds];
    }
    let old_lines: Vec<&str> = old.split('\n').collect();
    let new_lines: Vec<&str> = new.split('\n').collect();
    let shorter = old_lines.len().min(new_lines.len());
    let same_head = (0..shorter)
        .take_while(|index| old_lines[*index] == new_lines[*index])
        .count();
    let same_tail = (1..=shorter - same_head)
        .take_while(|back| old_lines[old_lines.len() - back] == new_lines[new_lines.len() - back])
        .count();
    (0..feeds)
        .map(|index| {
            // The break after line `index` is the one before line `index + 1`.
            let from_end = new_lines.len() - 1 - index;
            let source = if index >= same_head && from_end <= same_tail {
                breaks.len().saturating_sub(from_end)
            } else {
                index
            };
            breaks.get(source).copied().unwrap_or(last)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &[u8], needle: &str, breaks: Breaks, expected: &[(usize, usize)]) {
        let encoding = Encoding::of(content);
        let bytes = encoding.encode(needle).unwrap().into_owned();
        let mut got = Vec::new();
        Haystack::new(content, encoding).each(&bytes, breaks, |range| {
            got.push((range.start, range.end));
            true
        });
        assert_eq!(got, expected, "{content:?} {needle:?}");
    }

    #[test]
    fn a_line_feed_matches_either_break() {
        check(b"a\r\nb\nc", "a\nb", Breaks::Either, &[(0, 4)]);
        check(b"a\r\nb\nc", "b\nc", Breaks::Either, &[(3, 6)]);
        check(b"a\r\nb\nc", "\nb", Breaks::Either, &[(1, 4)]);
        check(b"a\r\nb\nc", "a\n", Breaks::Either, &[(0, 3)]);
        check(b"a\r\nb", "a\nb", Breaks::Literal, &[]);
        check(b"a\r\nb", "a\r\nb", Breaks::Literal, &[(0, 4)]);
        check(b"a\r\nb\r\na\nb", "a\nb", Breaks::Either, &[(0, 4), (6, 9)]);
        check(b"\r\n\r\n", "\n", Breaks::Either, &[(0, 2), (2, 4)]);
    }

    #[test]
    fn wide_text_matches_at_its_own_units_only() {
        let wide: Vec<u8> = [0xFF, 0xFE]
            .into_iter()
            .chain(
                "\u{6100}\u{0061}\r\nb"
                    .encode_utf16()
                    .flat_map(u16::to_le_bytes),
            )
            .collect();
        check(&wide, "a", Breaks::Either, &[(4, 6)]);
        check(&wide, "a\nb", Breaks::Either, &[(4, 12)]);
        // The mark itself is no text.
        check(b"\xEF\xBB\xBFab", "\u{feff}a", Breaks::Either, &[]);
    }

    #[test]
    fn overlapping_matches_are_seen() {
        let mut haystack = Haystack::new(b"xaaay", Encoding::Utf8);
        assert!(haystack.again_within(b"aa", Breaks::Either, &(1..3)));
        let mut haystack = Haystack::new(b"xaay", Encoding::Utf8);
        assert!(!haystack.again_within(b"aa", Breaks::Either, &(1..3)));
    }

    #[test]
    fn kept_lines_keep_their_break() {
        let carried = |old: &str, new: &str, content: &[u8]| {
            let whole = 0..content.len();
            with_breaks_of_place(old, new, content, &whole, Encoding::Utf8).unwrap()
        };
        assert_eq!(carried("a\nb\n", "x\nb\n", b"a\r\nb\n"), b"x\r\nb\n");
        assert_eq!(
            carried("a\nb\n", "a\nnew\nb\n", b"a\r\nb\n"),
            b"a\r\nnew\r\nb\n"
        );
        assert_eq!(
            carried("a\nb\nc\n", "b\nc\n", b"a\r\nb\nc\r\n"),
            b"b\nc\r\n"
        );
        assert_eq!(carried("a\nb", "a\nb\nc", b"a\r\nb"), b"a\r\nb\r\nc");
        let around = with_breaks_of_place("b", "b\nc", b"a\r\nb", &(3..4), Encoding::Utf8).unwrap();
        assert_eq!(around, b"b\r\nc");
    }
}
