//! Lines of a log, read with a buffer that does not grow with them, and looked at lightly.

use std::io::{self, Read};

use agent_protocol::{EventHead, MAX_LINE_BYTES};
use sha2::{Digest, Sha256};

use crate::hash::{Hash, hash_of};

const BUFFER_BYTES: usize = 512 * 1024;

/// Splits a stream into lines. A line that is longer than a log allows is hashed and counted, and
/// its text is not kept.
pub struct Lines<R> {
    source: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Lines handed out so far.
    number: u64,
    /// Bytes handed out so far.
    offset: u64,
    at_end: bool,
}

/// One line of a log.
#[derive(Debug)]
pub struct Line<'a> {
    /// Counts from 1.
    pub number: u64,
    /// Of the line's first byte.
    pub offset: u64,
    /// Without the newline.
    pub length: u64,
    pub text: Text<'a>,
    /// True if a newline ended it; only the last line can lack one.
    pub is_terminated: bool,
}

/// Content of a line.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    Kept(&'a [u8]),
    /// Longer than a log allows: only its hash was kept.
    TooLong(Hash),
}

impl<'a> Line<'a> {
    /// The text, unless the line is longer than a log allows.
    pub fn text(&self) -> Option<&'a [u8]> {
        match self.text {
            Text::Kept(text) => Some(text),
            Text::TooLong(_) => None,
        }
    }

    /// Computed when asked for: whoever only looks for something need not pay for it.
    pub fn hash(&self) -> Hash {
        match self.text {
            Text::Kept(text) => hash_of(text),
            Text::TooLong(hash) => hash,
        }
    }

    /// Start of the line after this one.
    pub fn end(&self) -> u64 {
        self.offset + self.length + u64::from(self.is_terminated)
    }
}

impl<R: Read> Lines<R> {
    pub fn new(source: R) -> Self {
        Self::continuing(source, 0, 0)
    }

    /// Lines of a stream that starts after `number` lines and `offset` bytes.
    pub(crate) fn continuing(source: R, number: u64, offset: u64) -> Self {
        Self {
            source,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            number,
            offset,
            at_end: false,
        }
    }

    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        loop {
            let pending = &self.buffer[self.start..self.end];
            if let Some(found) = memchr::memchr(b'\n', &pending[searched..]) {
                let length = searched + found;
                let from = self.start;
                self.start += length + 1;
                if length > MAX_LINE_BYTES {
                    let hash = hash_of(&self.buffer[from..from + length]);
                    return Ok(Some(self.hand_out_long(length as u64, hash, true)));
                }
                return Ok(Some(self.hand_out(from, length, true)));
            }
            searched = pending.len();
            if searched > MAX_LINE_BYTES {
                return self.skip_long().map(Some);
            }
            if self.at_end {
                if searched == 0 {
                    return Ok(None);
                }
                let from = self.start;
                self.start = self.end;
                return Ok(Some(self.hand_out(from, searched, false)));
            }
            self.fill()?;
        }
    }

    fn hand_out(&mut self, from: usize, length: usize, is_terminated: bool) -> Line<'_> {
        let (number, offset) = self.count(length as u64, is_terminated);
        let text = &self.buffer[from..from + length];
        Line {
            number,
            offset,
            length: length as u64,
            text: Text::Kept(text),
            is_terminated,
        }
    }

    fn hand_out_long(&mut self, length: u64, hash: Hash, is_terminated: bool) -> Line<'_> {
        let (number, offset) = self.count(length, is_terminated);
        Line {
            number,
            offset,
            length,
            text: Text::TooLong(hash),
            is_terminated,
        }
    }

    fn count(&mut self, length: u64, is_terminated: bool) -> (u64, u64) {
        let offset = self.offset;
        self.number += 1;
        self.offset += length + u64::from(is_terminated);
        (self.number, offset)
    }

    /// Hashes the rest of a line that does not fit, without keeping it.
    fn skip_long(&mut self) -> io::Result<Line<'_>> {
        let mut hasher = Sha256::new();
        let mut length = 0;
        loop {
            let pending = &self.buffer[self.start..self.end];
            let found = memchr::memchr(b'\n', pending);
            let part = &pending[..found.unwrap_or(pending.len())];
            hasher.update(part);
            length += part.len() as u64;
            if let Some(found) = found {
                self.start += found + 1;
                return Ok(self.hand_out_long(length, hasher.finalize().into(), true));
            }
            self.start = self.end;
            if self.at_end {
                return Ok(self.hand_out_long(length, hasher.finalize().into(), false));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

/// The two facts of a line the chain consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) sequence: u64,
    pub(crate) prev: Hash,
}

/// Finds `sequence` and `prev` of a line. Lines as this program writes them are looked at only at
/// their ends; any other line is parsed.
pub(crate) fn link_of(line: &[u8]) -> Option<Link> {
    quick_link(line).or_else(|| {
        let head: EventHead<'_> = serde_json::from_slice(line).ok()?;
        Some(Link {
            sequence: head.sequence,
            prev: agent_text::hex::from_hex(head.prev.strip_prefix("sha256:")?.as_bytes())?,
        })
    })
}

fn quick_link(line: &[u8]) -> Option<Link> {
    // The final brace closes the whole line, so what stands right before it is a field of the
    // envelope and not of the payload.
    const TAIL: usize = 64 + 2;
    let prev_at = line.len().checked_sub(TAIL)?;
    let (front, tail) = line.split_at(prev_at);
    if !front.ends_with(br#","prev":"sha256:"#) || !tail.ends_with(br#""}"#) {
        return None;
    }
    let prev = agent_text::hex::from_hex(&tail[..64])?;

    let mut rest = field(line.strip_prefix(b"{")?, b"type")?.1;
    if let Some((_, after)) = field(rest, b"native_type") {
        rest = after;
    }
    rest = field(rest, b"event_id")?.1;
    rest = field(rest, b"timestamp")?.1;
    let digits = rest.strip_prefix(br#""sequence":"#)?;
    let count = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if digits.get(count) != Some(&b',') || !(1..=19).contains(&count) {
        return None;
    }
    let sequence = digits[..count]
        .iter()
        .fold(0u64, |value, digit| value * 10 + u64::from(digit - b'0'));
    Some(Link { sequence, prev })
}

/// The class of a line as this program writes it, without parsing the line.
pub fn quick_type(line: &[u8]) -> Option<&str> {
    let (value, _) = field(line.strip_prefix(b"{")?, b"type")?;
    std::str::from_utf8(value).ok()
}

/// Takes `"name":"value",` off the front, if it stands there and the value needs no unescaping.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let rest = text
        .strip_prefix(b"\"")?
        .strip_prefix(name)?
        .strip_prefix(br#"":""#)?;
    let end = memchr::memchr(b'"', rest)?;
    let value = &rest[..end];
    if memchr::memchr(b'\\', value).is_some() {
        return None;
    }
    Some((value, rest[end + 1..].strip_prefix(b",")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &[u8], expected: &[(u64, u64, bool)]) {
        let mut lines = Lines::new(input);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            let bytes = &input[usize::try_from(line.offset).unwrap()..]
                [..usize::try_from(line.length).unwrap()];
            assert_eq!(line.hash(), hash_of(bytes));
            if let Some(text) = line.text() {
                assert_eq!(text, bytes);
            }
            found.push((line.offset, line.length, line.is_terminated));
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_have_their_place() {
        check(b"", &[]);
        check(b"\n", &[(0, 0, true)]);
        check(b"ab\nc\n", &[(0, 2, true), (3, 1, true)]);
        check(b"ab\nc", &[(0, 2, true), (3, 1, false)]);
    }

    #[test]
    fn long_lines_are_passed_over() {
        let long = vec![b'x'; 3 * BUFFER_BYTES];
        let mut input = b"a\n".to_vec();
        input.extend(&long);
        input.extend(b"\nb\n");
        let long_length = long.len() as u64;
        check(
            &input,
            &[
                (0, 1, true),
                (2, long_length, true),
                (3 + long_length, 1, true),
            ],
        );
        input.truncate(input.len() - 3);
        check(&input, &[(0, 1, true), (2, long_length, false)]);
        let exact = vec![b'x'; MAX_LINE_BYTES];
        let mut lines = Lines::new(&exact[..]);
        assert!(lines.next_line().unwrap().unwrap().text().is_some());
    }

    #[test]
    fn both_ways_of_looking_agree() {
        let prev = "0f".repeat(32);
        let ours = format!(
            r#"{{"type":"a","native_type":"b","event_id":"c","timestamp":"d","sequence":17,"schema_version":"1","session_id":"s","payload":{{}},"prev":"sha256:{prev}"}}"#
        );
        assert!(quick_link(ours.as_bytes()).is_some());
        let other = format!(
            r#"{{ "prev":"sha256:{prev}","sequence":17,"type":"a","session_id":"s","schema_version":"1" }}"#
        );
        assert!(quick_link(other.as_bytes()).is_none());
        assert_eq!(link_of(other.as_bytes()), link_of(ours.as_bytes()));
        assert_eq!(quick_type(ours.as_bytes()), Some("a"));
        let nested = format!(r#"{{"type":"a","payload":{{"x":1,"prev":"sha256:{prev}"}}}}"#);
        assert_eq!(link_of(nested.as_bytes()), None);
    }
}
