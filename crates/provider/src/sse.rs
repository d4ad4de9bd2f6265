//! Server-sent events: bytes in, one payload per event out.
//!
//! Written for what servers really send rather than for the letter of the specification: CRLF, LF
//! and CR line ends, a byte order mark, comments, blanks before a field name, a last event without
//! its blank line. Where the network cuts the bytes makes no difference.

use memchr::memchr2;

/// The most bytes one event may have; a server that sends more is not answering a chat request.
pub const EVENT_CAP: usize = 16 * 1024 * 1024;

/// An event of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event:` field, empty when there was none.
    pub name: &'a [u8],
    /// The `data:` lines, joined with line feeds.
    pub data: &'a [u8],
}

/// One event was larger than [`EVENT_CAP`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stream event is larger than {EVENT_CAP} bytes")]
pub struct EventTooLarge;

/// Splits a byte stream into events.
#[derive(Debug, Default)]
pub struct SseDecoder {
    /// Bytes not yet dispatched: whole lines of an unfinished event are folded into `data` and
    /// `name`, so this holds at most one unfinished line between calls.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    /// The last byte was a CR, so a following LF belongs to the same line end.
    after_return: bool,
    started: bool,
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and hands every event they complete to `dispatch`.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        dispatch: &mut impl FnMut(SseEvent<'_>),
    ) -> Result<(), EventTooLarge> {
        let mut rest = bytes;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
            }
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, tail) = (&rest[..end], &rest[end..]);
            let skip = match tail {
                [b'\r', b'\n', ..] => 2,
                [b'\r'] => {
                    self.after_return = true;
                    1
                }
                _ => 1,
            };
            rest = &tail[skip..];
            if self.line.is_empty() {
                // The usual case: a `data:` line followed by its blank line, both in this chunk,
                // is dispatched from the chunk itself.
                if !self.has_data
                    && self.started
                    && let Some(data) = line.strip_prefix(b"data: ")
                    && data.len() <= EVENT_CAP
                    && let Some(after) = blank_line(rest)
                {
                    dispatch(SseEvent {
                        name: &self.name,
                        data,
                    });
                    self.name.clear();
                    rest = after;
                    continue;
                }
                self.take_line(line, dispatch)?;
            } else {
                if self.line.len() + line.len() > EVENT_CAP {
                    return Err(EventTooLarge);
                }
                self.line.extend_from_slice(line);
                let whole = std::mem::take(&mut self.line);
                self.take_line(&whole, dispatch)?;
                // Keep the allocation for the next cut.
                self.line = whole;
                self.line.clear();
            }
        }
        if self.line.len() + rest.len() > EVENT_CAP {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    /// The stream ended: an event whose blank line never came is handed out as it is.
    pub fn finish(&mut self, dispatch: &mut impl FnMut(SseEvent<'_>)) -> Result<(), EventTooLarge> {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, dispatch)?;
        }
        self.take_line(b"", dispatch)
    }

    fn take_line(
        &mut self,
        line: &[u8],
        dispatch: &mut impl FnMut(SseEvent<'_>),
    ) -> Result<(), EventTooLarge> {
        let mut line = line;
        if !self.started {
            self.started = true;
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        line = line.trim_ascii_start();
        if line.is_empty() {
            if self.has_data {
                dispatch(SseEvent {
                    name: &self.name,
                    data: &self.data,
                });
            }
            self.name.clear();
            self.data.clear();
            self.has_data = false;
            return Ok(());
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.data.len() + value.len() + 1 > EVENT_CAP {
                    return Err(EventTooLarge);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Comments, ids and retry times say nothing to us.
            _ => {}
        }
        Ok(())
    }
}

/// Rest of `bytes` after a blank line at its start, when it certainly is one.
fn blank_line(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [b'\n', rest @ ..] => Some(rest),
        [b'\r', b'\n', rest @ ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    fn decode(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Vec::new();
        let mut dispatch = |event: SseEvent<'_>| {
            events.push((
                String::from_utf8_lossy(event.name).into_owned(),
                String::from_utf8_lossy(event.data).into_owned(),
            ));
        };
        let mut decoder = SseDecoder::new();
        for chunk in chunks {
            decoder.feed(chunk, &mut dispatch).unwrap();
        }
        decoder.finish(&mut dispatch).unwrap();
        events
    }

    fn check(stream: &str, expected: &[(&str, &str)]) {
        let got = decode(&[stream.as_bytes()]);
        let got: Vec<(&str, &str)> = got
            .iter()
            .map(|(name, data)| (name.as_str(), data.as_str()))
            .collect();
        assert_eq!(got, expected, "{stream:?}");
    }

    #[test]
    fn events_are_split_at_blank_lines_of_every_kind() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
    }

    #[test]
    fn names_comments_and_several_data_lines() {
        check("event: x\ndata: a\n\ndata: b\n\n", &[("x", "a"), ("", "b")]);
        check(": hello\n\ndata: a\n: inside\ndata: b\n\n", &[("", "a\nb")]);
        check("id: 4\nretry: 9\ndata:a\n\n", &[("", "a")]);
    }

    #[test]
    fn common_mistakes_of_servers_are_read_as_meant() {
        check("\u{feff}data: a\n\n", &[("", "a")]);
        check("\n data: a\n\n", &[("", "a")]);
        check("data: a", &[("", "a")]);
        check("data: a\n", &[("", "a")]);
        check("event: lonely\n\ndata: a\n\n", &[("", "a")]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut decoder = SseDecoder::new();
        let block = vec![b'x'; 1 << 20];
        let fed = (0..17)
            .map(|_| decoder.feed(&block, &mut |_| {}))
            .find(Result::is_err);
        assert_eq!(fed, Some(Err(EventTooLarge)));
    }

    proptest! {
        /// The cuts that the network makes in a stream must not change its content.
        #[test]
        fn a_cut_changes_nothing(
            stream in vec(select(b"\n\n\r: dataev\xF0\x9F\xEF\xBB\xBF".to_vec()), 0..64),
            first: Index,
            second: Index,
        ) {
            let (head, tail) = stream.split_at(first.index(stream.len() + 1));
            let (middle, end) = tail.split_at(second.index(tail.len() + 1));
            prop_assert_eq!(decode(&[head, middle, end]), decode(&[&stream]));
        }
    }
}
