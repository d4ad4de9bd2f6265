//! Streamed text on its way to the log.

use agent_protocol::Timestamp;

/// How often streamed text is written to the log at most.
const DELTA_INTERVAL_MS: u64 = 250;
/// The most bytes of streamed text one event holds.
const DELTA_BYTES: usize = 16 * 1024;

/// Text that is written in pieces, cut at blanks so that a secret is never split over two events
/// and so escapes masking.
pub(super) struct Stream {
    pub(super) whole: String,
    pending: String,
    pub(super) index: u64,
    pub(super) written: Timestamp,
}

impl Stream {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            whole: String::new(),
            pending: String::new(),
            index: 0,
            written: now,
        }
    }

    pub(super) fn reset(&mut self) {
        self.whole.clear();
        self.pending.clear();
        self.index = 0;
    }

    pub(super) fn push(&mut self, text: &str) {
        self.pending.push_str(text);
        self.whole.push_str(text);
    }

    pub(super) fn due(&self, now: Timestamp) -> bool {
        now.millis_since(self.written) >= DELTA_INTERVAL_MS
    }

    pub(super) fn take(&mut self, all: bool) -> Option<(u64, String)> {
        let limit = floor_boundary(&self.pending, DELTA_BYTES);
        let end = if all && limit == self.pending.len() {
            limit
        } else {
            self.pending[..limit]
                .rfind(char::is_whitespace)
                .map_or(0, |at| {
                    at + self.pending[at..].chars().next().map_or(1, char::len_utf8)
                })
        };
        let end = if end == 0 && self.pending.len() > DELTA_BYTES {
            limit
        } else {
            end
        };
        if end == 0 {
            return None;
        }
        let rest = self.pending.split_off(end);
        let text = std::mem::replace(&mut self.pending, rest);
        let index = self.index;
        self.index += text.len() as u64;
        Some((index, text))
    }
}

fn floor_boundary(text: &str, limit: usize) -> usize {
    if text.len() <= limit {
        return text.len();
    }
    (0..=limit)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_text_is_cut_at_blanks_and_loses_nothing() {
        let mut stream = Stream::new(Timestamp::default());
        stream.push("the key is sk-abc");
        assert_eq!(stream.take(false), Some((0, "the key is ".to_owned())));
        assert_eq!(stream.take(false), None);
        stream.push("def and");
        assert_eq!(stream.take(false), Some((11, "sk-abcdef ".to_owned())));
        assert_eq!(stream.take(true), Some((21, "and".to_owned())));
        assert_eq!(stream.take(true), None);
        let long = "x".repeat(DELTA_BYTES + 5);
        stream.push(&long);
        assert_eq!(
            stream.take(false).map(|(_, text)| text.len()),
            Some(DELTA_BYTES)
        );
        assert_eq!(stream.take(true).map(|(_, text)| text.len()), Some(5));
    }
}
